//! Graphs of elements, for teaching: some of the elements may be written in Python.
//!
//! ```text
//! (source)--> [server] --delay--> (an element in Python) --> (sink)
//! ```
//!
//! A handler in Python is given a [`Context`] whose acts are done when it returns, in their order,
//! at its instant: as an element in Rust may not call others, neither may one in Python. What an
//! element holds back is accounted to a stage of its own, so that the books balance by themselves.

use crate::ledger::Ledger;
use crate::problem::{EngineError, wrong};
use crate::watched::watched;
use lastmeter_base::kind::Nested;
use lastmeter_base::{Bytes, Draw, Duration, FlowId, NodeId, PathId, Quantity, Rate};
use lastmeter_base::{Packet as Inner, StageId, Stream, Time};
use lastmeter_engine::{Context as Engine, Element, ElementId, PortId, Report, Serial, TimerId};
use lastmeter_engine::{Graph as Elements, ResourceInfo, ResourceKind, StageInfo};
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::ledger::{Close, Provenance, close};
use lastmeter_lab::library::Builtin;
use lastmeter_lab::run::Watch;
use lastmeter_net::queue::{self, Site};
use lastmeter_net::server::Service;
use lastmeter_net::sink::Sink;
use lastmeter_net::source::{Flow, Header, Pattern, Sizes, Source, Span};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Different reasons to drop that the elements of one graph may have.
const REASONS_MAX: usize = 64;

/// What the elements of a graph that are written in Python share.
#[derive(Default)]
struct Shared {
    /// The first exception that a handler raised.
    failure: Mutex<Option<PyErr>>,
    /// Packets that Python let go of and that had gone nowhere.
    forgotten: AtomicU64,
    /// Reasons to drop, which the books keep for as long as the program runs.
    reasons: Mutex<BTreeSet<&'static str>>,
    watch: Watch,
}

impl Shared {
    fn fail(&self, error: PyErr) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(error);
        self.watch.control.stop();
    }
    fn failed(&self) -> bool {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
    fn reason(&self, reason: &str) -> PyResult<&'static str> {
        let mut reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = reasons.get(reason) {
            return Ok(known);
        }
        if reasons.len() == REASONS_MAX {
            let words = format!("more than {REASONS_MAX} reasons to drop; a reason is a kind");
            return Err(PyRuntimeError::new_err(words));
        }
        // There are few, and a book speaks of them after the graph is gone.
        let kept: &'static str = Box::leak(reason.to_owned().into_boxed_str());
        reasons.insert(kept);
        Ok(kept)
    }
}

/// A time: seconds as a number, or text with a unit.
fn time(value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    if let Ok(text) = value.cast::<PyString>() {
        return Duration::parse(&text.to_string()).map_err(|error| wrong(value.py(), error));
    }
    let seconds: f64 = value.extract().map_err(|_| {
        PyTypeError::new_err("write a time as seconds or as text with a unit: \"10 us\"")
    })?;
    match (0.0..=1e6).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err(wrong(value.py(), format!("{seconds} s is no time of a run"))),
    }
}

/// A size: bytes as a number, or text with a unit.
fn size(value: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    const SIZE_MAX: u64 = 16 << 20;
    let size = match value.cast::<PyString>() {
        Ok(text) => Bytes::parse(&text.to_string()).map_err(|error| wrong(value.py(), error))?,
        Err(_) => Bytes(value.extract()?),
    };
    match (1..=SIZE_MAX).contains(&size.0) {
        true => Ok(size),
        false => {
            Err(wrong(value.py(), format!("a packet has 1 to {SIZE_MAX} bytes, not {}", size.0)))
        }
    }
}

fn rate(py: Python<'_>, text: &str) -> PyResult<Rate> {
    Rate::parse(text).map_err(|error| wrong(py, error))
}

/// A packet. It has one owner: who sends, delivers or drops it has it no longer.
#[pyclass(module = "lastmeter")]
pub(crate) struct Packet {
    /// `None` once it has gone.
    inner: Option<Inner>,
    /// Whether it is going, by an act of this handler.
    going: bool,
    /// Whether the element has said itself where the packet's time went.
    accounted: bool,
    /// When this element got it.
    arrived: Time,
    shared: Arc<Shared>,
}

impl Packet {
    fn here(&self) -> PyResult<&Inner> {
        match (&self.inner, self.going) {
            (Some(inner), false) => Ok(inner),
            _ => Err(gone()),
        }
    }
    fn here_mut(&mut self) -> PyResult<&mut Inner> {
        match (&mut self.inner, self.going) {
            (Some(inner), false) => Ok(inner),
            _ => Err(gone()),
        }
    }
}

fn gone() -> PyErr {
    PyRuntimeError::new_err("this packet was sent, delivered or dropped already")
}

impl Drop for Packet {
    fn drop(&mut self) {
        if self.inner.is_some() {
            self.shared.forgotten.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[pymethods]
impl Packet {
    /// Its length in bytes.
    #[getter]
    fn size(&self) -> PyResult<u64> {
        Ok(self.here()?.len.0)
    }
    #[setter]
    fn set_size(&mut self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let size = size(value)?;
        self.here_mut()?.len = size;
        Ok(())
    }
    /// When its source made it, in seconds since the start.
    #[getter]
    fn born(&self) -> PyResult<f64> {
        Ok(self.here()?.born.since_start().as_secs_f64())
    }
    /// Its flow within its path.
    #[getter]
    fn flow(&self) -> PyResult<u32> {
        Ok(self.here()?.flow.0)
    }
    #[setter]
    fn set_flow(&mut self, flow: u32) -> PyResult<()> {
        self.here_mut()?.flow = FlowId(flow);
        Ok(())
    }
    /// Its place within its flow, from 0.
    #[getter]
    fn seq(&self) -> PyResult<u64> {
        Ok(self.here()?.seq)
    }
    #[setter]
    fn set_seq(&mut self, seq: u64) -> PyResult<()> {
        self.here_mut()?.seq = seq;
        Ok(())
    }
    /// Its class of service, from 0.
    #[getter]
    fn traffic_class(&self) -> PyResult<u8> {
        Ok(self.here()?.class)
    }
    #[setter]
    fn set_traffic_class(&mut self, class: u8) -> PyResult<()> {
        self.here_mut()?.class = class;
        Ok(())
    }
    /// The path of the ledger that it is accounted to.
    #[getter]
    fn path(&self) -> PyResult<u32> {
        Ok(self.here()?.path.0)
    }
    /// Unique in a run.
    #[getter]
    fn id(&self) -> PyResult<u64> {
        Ok(self.here()?.id)
    }
    fn __repr__(&self) -> String {
        match self.here() {
            Ok(inner) => {
                format!("<Packet {} of flow {}: {} B>", inner.seq, inner.flow.0, inner.len.0)
            }
            Err(_) => "<Packet, gone>".to_owned(),
        }
    }
}

/// One thing that a handler did.
enum Act {
    Make(Py<Packet>),
    Send(u16, Py<Packet>, Time),
    Deliver(Py<Packet>),
    Drop(Py<Packet>, &'static str),
    Arm(u32, Time),
    Disarm(u32),
}

/// What a handler may do, for as long as it runs.
#[pyclass(module = "lastmeter")]
pub(crate) struct Context {
    now: Time,
    /// `None` once the handler has returned.
    stream: Option<Stream>,
    acts: Vec<Act>,
    timers: u32,
    paths: u32,
    shared: Arc<Shared>,
}

impl Context {
    fn act(&mut self, act: Act) -> PyResult<()> {
        self.stream()?;
        self.acts.push(act);
        Ok(())
    }
    fn stream(&mut self) -> PyResult<&mut Stream> {
        let over = "this context was of a handler that has returned";
        self.stream.as_mut().ok_or_else(|| PyRuntimeError::new_err(over))
    }
    fn timer(&self, timer: u32) -> PyResult<u32> {
        match timer < self.timers {
            true => Ok(timer),
            false => {
                let words = format!("there is no timer {timer}: `timers` is {}", self.timers);
                Err(PyRuntimeError::new_err(words))
            }
        }
    }
    /// The packet goes, by the act that follows.
    fn take(&mut self, packet: &Bound<'_, Packet>) -> PyResult<Py<Packet>> {
        self.stream()?;
        let mut inside = packet.borrow_mut();
        inside.here()?;
        inside.going = true;
        Ok(packet.clone().unbind())
    }
}

#[pymethods]
impl Context {
    /// The instant of the handler, in seconds since the start.
    #[getter]
    fn now(&self) -> f64 {
        self.now.since_start().as_secs_f64()
    }
    /// Sends a packet out of a port, now, or when `after` has passed: what is sent through one port
    /// leaves in the order of sending.
    #[pyo3(signature = (port, packet, *, after=None))]
    fn send(
        &mut self,
        port: u16,
        packet: &Bound<'_, Packet>,
        after: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let after = after.map(time).transpose()?.unwrap_or(Duration::ZERO);
        let departs = self.now.saturating_add(after);
        let packet = self.take(packet)?;
        self.act(Act::Send(port, packet, departs))
    }
    /// The packet has reached its end.
    fn deliver(&mut self, packet: &Bound<'_, Packet>) -> PyResult<()> {
        let packet = self.take(packet)?;
        self.act(Act::Deliver(packet))
    }
    /// The packet ends here, for a reason in a word or two.
    fn drop(&mut self, packet: &Bound<'_, Packet>, reason: &str) -> PyResult<()> {
        let reason = self.shared.reason(reason)?;
        let packet = self.take(packet)?;
        self.act(Act::Drop(packet, reason))
    }
    /// A new packet, accounted to a path from now on.
    fn make(&mut self, py: Python<'_>, path: u32, size: &Bound<'_, PyAny>) -> PyResult<Py<Packet>> {
        if path >= self.paths {
            return Err(wrong(py, format!("there is no path {path}: `Graph.path` makes one")));
        }
        let mut inner = Inner::new(self::size(size)?);
        (inner.path, inner.born) = (PathId(path), self.now);
        let shared = self.shared.clone();
        let (going, accounted, arrived) = (false, false, self.now);
        let packet = Packet { inner: Some(inner), going, accounted, arrived, shared };
        let packet = Py::new(py, packet)?;
        self.act(Act::Make(packet.clone_ref(py)))?;
        Ok(packet)
    }
    /// Sets a timer, replacing an earlier setting: `after` from now, or `at` since the start.
    #[pyo3(signature = (timer=0, *, after=None, at=None))]
    fn arm(
        &mut self,
        timer: u32,
        after: Option<&Bound<'_, PyAny>>,
        at: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let timer = self.timer(timer)?;
        let at = match (after, at) {
            (Some(after), None) => self.now.saturating_add(time(after)?),
            (None, Some(at)) => Time::START + time(at)?,
            _ => return Err(PyTypeError::new_err("say `after` or `at`")),
        };
        self.act(Act::Arm(timer, at))
    }
    /// Makes sure that a timer does not expire.
    #[pyo3(signature = (timer=0))]
    fn disarm(&mut self, timer: u32) -> PyResult<()> {
        let timer = self.timer(timer)?;
        self.act(Act::Disarm(timer))
    }
    /// A number from 0 to below 1, from the element's own stream.
    fn random(&mut self) -> PyResult<f64> {
        Ok(self.stream()?.unit())
    }
    /// A time in seconds, exponentially distributed with this mean.
    fn exponential(&mut self, mean: &Bound<'_, PyAny>) -> PyResult<f64> {
        let draw = Draw::Exponential(time(mean)?);
        Ok(draw.sample(self.stream()?).as_secs_f64())
    }
}

/// An element that is written in Python.
struct Foreign {
    object: Py<PyAny>,
    stage: StageId,
    timers: u32,
    paths: u32,
    /// What it has got or made and not let go.
    held: u64,
    shared: Arc<Shared>,
}

impl Foreign {
    /// Calls a handler and does what it did.
    fn call(
        &mut self,
        cx: &mut Engine<'_>,
        handler: &str,
        arrived: Option<(PortId, Inner)>,
        timer: Option<TimerId>,
    ) {
        if self.shared.failed() {
            // The run is ending; what comes of it is the exception.
            if let Some((_, packet)) = arrived {
                cx.drop(packet, None, "an element failed");
            }
            return;
        }
        let stream = std::mem::replace(cx.rng(), Stream::new(0, ""));
        let context = Context {
            now: cx.now(),
            stream: Some(stream),
            acts: Vec::new(),
            timers: self.timers,
            paths: self.paths,
            shared: self.shared.clone(),
        };
        let done = Python::attach(|py| {
            let context = Bound::new(py, context)?;
            let handler = self.object.bind(py).getattr(handler)?;
            let result = match (arrived, timer) {
                (Some((port, packet)), _) => {
                    self.held += 1;
                    let shared = self.shared.clone();
                    let (going, accounted, arrived) = (false, false, cx.now());
                    let inner = Some(packet);
                    let packet = Packet { inner, going, accounted, arrived, shared };
                    handler.call1((&context, port.0, Bound::new(py, packet)?))
                }
                (None, Some(timer)) => handler.call1((&context, timer.0)),
                (None, None) => handler.call1((&context,)),
            };
            let mut inside = context.borrow_mut();
            if let Some(stream) = inside.stream.take() {
                *cx.rng() = stream;
            }
            let acts = std::mem::take(&mut inside.acts);
            acts.into_iter().for_each(|act| self.act(py, cx, act));
            result.map(drop)
        });
        if let Err(error) = done {
            self.shared.fail(error);
        }
    }

    fn act(&mut self, py: Python<'_>, cx: &mut Engine<'_>, act: Act) {
        let now = cx.now();
        match act {
            Act::Arm(timer, at) => cx.arm(TimerId(timer), at),
            Act::Disarm(timer) => cx.disarm(TimerId(timer)),
            Act::Make(packet) => {
                let mut place = packet.borrow_mut(py);
                let Some(wish) = place.inner.take() else { return };
                let mut made = cx.make(wish.path, wish.len);
                (made.flow, made.seq, made.class) = (wish.flow, wish.seq, wish.class);
                place.inner = Some(made);
                self.held += 1;
            }
            Act::Send(port, packet, departs) => {
                if let Some(packet) = self.release(py, now, &packet, departs) {
                    cx.send_at(PortId(port), packet, departs);
                }
            }
            Act::Deliver(packet) => {
                if let Some(packet) = self.release(py, now, &packet, now) {
                    cx.deliver(packet);
                }
            }
            Act::Drop(packet, reason) => {
                if let Some(packet) = self.release(py, now, &packet, now) {
                    cx.drop(packet, Some(self.stage), reason);
                }
            }
        }
    }

    /// The packet, with the time that it spent here: held back as waiting, then until it departs
    /// as service.
    fn release(
        &mut self,
        py: Python<'_>,
        now: Time,
        packet: &Py<Packet>,
        departs: Time,
    ) -> Option<Inner> {
        let mut place = packet.borrow_mut(py);
        let mut inner = place.inner.take()?;
        let (wait, service) = (now - place.arrived, departs - now);
        if !place.accounted && (!wait.is_zero() || !service.is_zero()) {
            inner.visit(self.stage, wait, service, Duration::ZERO);
        }
        self.held -= 1;
        Some(inner)
    }
}

impl Element for Foreign {
    fn start(&mut self, cx: &mut Engine<'_>) {
        self.call(cx, "start", None, None);
    }
    fn receive(&mut self, cx: &mut Engine<'_>, port: PortId, packet: Inner) {
        self.call(cx, "receive", Some((port, packet)), None);
    }
    fn expire(&mut self, cx: &mut Engine<'_>, timer: TimerId) {
        self.call(cx, "expire", None, Some(timer));
    }
    fn timers(&self) -> u32 {
        self.timers
    }
    fn report(&self, out: &mut Report) {
        out.held(self.held);
    }
}

/// Elements joined by edges. It runs once.
///
/// >>> import lastmeter as lm
/// >>> class EverySecond(lm.Element):
/// ...     '''Lets every second packet pass.'''
/// ...     def receive(self, cx, port, packet):
/// ...         if packet.seq % 2:
/// ...             cx.drop(packet, "odd")
/// ...         else:
/// ...             cx.send(0, packet, after="1 us")
/// >>> graph = lm.Graph(seed=1)
/// >>> path = graph.path("here to there", "stream")
/// >>> graph.chain(graph.source("source", path, rate="12 Mbit/s", size=1500),
/// ...             graph.add("filter", EverySecond()), graph.sink("sink"))
/// >>> ledger = graph.run("9.5 ms")
/// >>> ledger.drops["reason"], ledger.loss
/// (['odd'], 0.5)
#[pyclass(module = "lastmeter")]
pub(crate) struct Graph {
    /// `None` once it has run. Elements may move between threads and not be looked at by two.
    elements: Mutex<Option<Elements>>,
    seed: u64,
    foreign: bool,
    paths: u32,
    shared: Arc<Shared>,
}

impl Graph {
    fn elements(&mut self) -> &mut Option<Elements> {
        self.elements.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
    fn open(&mut self) -> PyResult<&mut Elements> {
        let over = "this graph has run; make another one";
        self.elements().as_mut().ok_or_else(|| PyRuntimeError::new_err(over))
    }
    fn element(&mut self, py: Python<'_>, name: &str, element: Box<dyn Element>) -> PyResult<u32> {
        let added = self.open()?.add_boxed(name.to_owned(), element);
        added.map(|id| id.0).map_err(|error| wrong(py, error))
    }
    fn known(&mut self, py: Python<'_>, element: u32) -> PyResult<ElementId> {
        match (element as usize) < self.open()?.len() {
            true => Ok(ElementId(element)),
            false => Err(wrong(py, format!("there is no element {element}"))),
        }
    }
}

/// The queue that a dict describes, read as a link's would be.
fn queue(py: Python<'_>, described: Option<&Bound<'_, PyDict>>) -> PyResult<Nested> {
    let words = match described {
        Some(dict) => crate::value::to_toml(dict.as_any())?,
        None => "{ drop-tail = { packets = 1000 } }".to_owned(),
    };
    let text = format!(
        "duration = \"1 s\"\n[nodes]\na = {{ host = {{}} }}\nb = {{ host = {{}} }}\n[[links]]\n\
         between = [\"a\", \"b\"]\nrate = \"1 Mbit/s\"\nqueue = {words}\n\
         [[traffic]]\nname = \"t\"\nfrom = \"a\"\nto = \"b\"\n\
         constant = {{ rate = \"1 Mbit/s\", size = \"1 B\" }}\n"
    );
    let experiment = Experiment::parse("queue", text, &[], &Builtin);
    let experiment = experiment.map_err(|list| crate::problem::problems(py, &list))?;
    let queue = experiment.links.first().and_then(|link| link.values.given("queue"));
    queue.ok_or_else(|| wrong(py, "this is no queue"))
}

#[pymethods]
impl Graph {
    #[new]
    #[pyo3(signature = (*, seed=1))]
    fn new(seed: u64) -> Graph {
        let shared = Arc::new(Shared::default());
        Graph {
            elements: Mutex::new(Some(Elements::new(seed))),
            seed,
            foreign: false,
            paths: 0,
            shared,
        }
    }

    /// A path of the ledger, for one class of traffic.
    #[pyo3(signature = (name, traffic_class="traffic"))]
    fn path(&mut self, name: &str, traffic_class: &str) -> PyResult<u32> {
        let path = self.open()?.path(name, traffic_class);
        self.paths = path.0 + 1;
        Ok(path.0)
    }

    /// Packets of one size at a rate, evenly spaced or as a Poisson process; `packets` of them at
    /// most.
    #[pyo3(signature = (name, path, *, rate, size, poisson=false, packets=None, flow=0))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn source(
        &mut self,
        py: Python<'_>,
        name: &str,
        path: u32,
        rate: &str,
        size: &Bound<'_, PyAny>,
        poisson: bool,
        packets: Option<u64>,
        flow: u32,
    ) -> PyResult<u32> {
        if path >= self.paths {
            return Err(wrong(py, format!("there is no path {path}: `Graph.path` makes one")));
        }
        let size = self::size(size)?;
        let mean = self::rate(py, rate)?.time_for(size);
        let gap = if poisson { Draw::Exponential(mean) } else { Draw::Constant(mean) };
        let pattern = Pattern::Gaps { gap, sizes: Sizes::Constant(size) };
        let span = Span { packets: packets.unwrap_or(u64::MAX), ..Span::ALWAYS };
        let (path, flow, destination) = (PathId(path), FlowId(flow), NodeId(0));
        let flow = Flow { path, flow, destination, header: Header::PLAIN };
        self.element(py, name, Box::new(Source::new(flow, pattern, span)))
    }

    /// A queue and what serves it: a line of some `rate`, or a `service` of a constant time (or,
    /// with `exponential`, of that mean). `queue` is as in experiments:
    /// `{"drop-tail": {"packets": 10}}`. Adds a resource of this name and a stage to the ledger.
    #[pyo3(signature = (name, *, rate=None, service=None, exponential=false, queue=None))]
    fn server(
        &mut self,
        py: Python<'_>,
        name: &str,
        rate: Option<&str>,
        service: Option<&Bound<'_, PyAny>>,
        exponential: bool,
        queue: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<u32> {
        let (service, kind, rate) = match (rate, service) {
            (Some(text), None) => {
                let rate = self::rate(py, text)?;
                (Service::Line { rate, framing: Bytes::ZERO }, ResourceKind::Wire, Some(rate))
            }
            (None, Some(value)) => {
                let mean = time(value)?;
                let draw = if exponential { Draw::Exponential(mean) } else { Draw::Constant(mean) };
                (Service::Draw(draw), ResourceKind::Engine, None)
            }
            _ => return Err(PyTypeError::new_err("say `rate` or `service`")),
        };
        let queue = self::queue(py, queue)?;
        let seed = self.seed;
        let graph = self.open()?;
        let resource = graph.resource(ResourceInfo { name: name.to_owned(), kind, units: 1 });
        let (stage, resource_of_stage) = (format!("{name} service"), Some(resource));
        let stage = graph.stage(StageInfo {
            name: stage,
            resource: resource_of_stage,
            copies: 0,
            touches: 0,
            memory: 0,
        });
        let site = Site { seed, rate, name, ..Site::ANYWHERE };
        let server = queue::serve(&queue, &site, service, stage, resource);
        self.element(py, name, server)
    }

    /// Where packets end.
    fn sink(&mut self, py: Python<'_>, name: &str) -> PyResult<u32> {
        self.element(py, name, Box::new(Sink::default()))
    }

    /// An element written in Python: an `Element`, with `receive` and, where it wants, `start` and
    /// `expire`. What it holds back becomes a stage of its own in the ledger.
    fn add(&mut self, py: Python<'_>, name: &str, element: &Bound<'_, PyAny>) -> PyResult<u32> {
        const TIMERS_MAX: u32 = 1024;
        for handler in ["start", "receive", "expire"] {
            if !element.hasattr(handler)? {
                let words = format!("an element has a `{handler}`: derive it from `Element`");
                return Err(PyTypeError::new_err(words));
            }
        }
        let timers: u32 = match element.getattr_opt("timers")? {
            Some(timers) => timers.extract()?,
            None => 1,
        };
        if timers > TIMERS_MAX {
            return Err(wrong(py, format!("{timers} timers; {TIMERS_MAX} are most")));
        }
        let info =
            StageInfo { name: name.to_owned(), resource: None, copies: 0, touches: 0, memory: 0 };
        let stage = self.open()?.stage(info);
        let (object, shared) = (element.clone().unbind(), self.shared.clone());
        self.foreign = true;
        // Paths are declared before what makes packets for them.
        let paths = self.paths;
        let foreign = Foreign { object, stage, timers, paths, held: 0, shared };
        self.element(py, name, Box::new(foreign))
    }

    /// Joins an output port to an input port, `delay` away.
    #[pyo3(signature = (source, target, *, output=0, input=0, delay=None))]
    fn connect(
        &mut self,
        py: Python<'_>,
        source: u32,
        target: u32,
        output: u16,
        input: u16,
        delay: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (from, to) = (self.known(py, source)?, self.known(py, target)?);
        let delay = delay.map(time).transpose()?.unwrap_or(Duration::ZERO);
        let graph = self.open()?;
        let stage = (!delay.is_zero()).then(|| {
            let name = format!("edge {}.{output} to {}.{input}", from.0, to.0);
            graph.stage(StageInfo { name, resource: None, copies: 0, touches: 0, memory: 0 })
        });
        let joined = graph.connect_after(from, PortId(output), to, PortId(input), delay, stage);
        joined.map_err(|error| wrong(py, error))
    }

    /// Joins port 0 of each to port 0 of the next.
    #[pyo3(signature = (*elements))]
    fn chain(&mut self, py: Python<'_>, elements: Vec<u32>) -> PyResult<()> {
        elements.windows(2).try_for_each(|pair| self.connect(py, pair[0], pair[1], 0, 0, None))
    }

    /// Runs it for so long, in its own time, and closes the books. Ctrl-C ends the run, and so does
    /// an exception of an element, which is raised here.
    #[pyo3(signature = (duration, *, title="graph"))]
    fn run(
        &mut self,
        py: Python<'_>,
        duration: &Bound<'_, PyAny>,
        title: &str,
    ) -> PyResult<Ledger> {
        let end = Time::START + time(duration)?;
        self.open()?;
        let Some(graph) = self.elements().take() else { return Err(gone()) };
        let (shared, seed) = (self.shared.clone(), self.seed);
        let control = shared.watch.control.clone();
        let ran = watched(
            py,
            &shared.watch,
            |_| Ok(()),
            || {
                let mut engine = graph.build(1)?;
                engine.run_parallel(end, &control, &Serial)?;
                Ok(engine)
            },
        )?;
        let failure = shared.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(error) = failure {
            return Err(error);
        }
        let fault = |error: lastmeter_engine::Error| EngineError::new_err(error.to_string());
        let engine = ran.map_err(fault)?;
        // Packets that Python keeps are held; those that it let go of are nowhere.
        let forgotten = shared.forgotten.load(Ordering::Relaxed);
        if forgotten > 0 {
            return Err(EngineError::new_err(format!(
                "{forgotten} packets were forgotten: an element sends, delivers, drops or keeps \
                 each that it gets or makes"
            )));
        }
        let outcome = engine.finish().map_err(fault)?;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let level = "model".to_owned();
        let provenance = Provenance { version, seed, level, ..Provenance::default() };
        Ok(Ledger::new(close(&outcome, Close { title: title.to_owned(), provenance })))
    }

    fn __repr__(&mut self) -> String {
        match self.elements() {
            Some(elements) => format!("<Graph of {} elements>", elements.len()),
            None => "<Graph that has run>".to_owned(),
        }
    }
}
