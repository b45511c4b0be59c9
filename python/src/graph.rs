//! Graphs of elements, for teaching: some of the elements may be written in Python.
//!
//! ```text
//! (source)--> [server] --delay--> (an element in Python) --> (sink)
//! ```
//!
//! Those in Python are in `element.rs`.

use crate::element::{Foreign, Shared, gone, time};
use crate::ledger::Ledger;
use crate::problem::{EngineError, wrong};
use crate::watched::watched;
use lastmeter_base::kind::Nested;
use lastmeter_base::{Bytes, Draw, Duration, FlowId, NodeId, PathId, Time};
use lastmeter_engine::{Element, ElementId, PortId, Serial};
use lastmeter_engine::{Graph as Elements, ResourceInfo, ResourceKind, StageInfo};
use lastmeter_lab::close::{Close, close};
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::Builtin;
use lastmeter_ledger::Provenance;
use lastmeter_net::queue::{self, Site};
use lastmeter_net::server::Service;
use lastmeter_net::sink::Sink;
use lastmeter_net::source::{Flow, Header, Pattern, Sizes, Source, Span};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

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
    /// `None` once it has run. Elements are `Send` and not `Sync`.
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
        let over = "this graph has already run; make another one";
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

/// The queue that a dict describes, parsed like a link's.
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
    queue.ok_or_else(|| wrong(py, "this is not a queue"))
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

    /// A source of packets of one size at a rate, evenly spaced or as a Poisson process; at most `packets` of
    /// them.
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
        let size = crate::element::size(size)?;
        let mean = crate::element::rate(py, rate)?.time_for(size);
        let gap = if poisson { Draw::Exponential(mean) } else { Draw::Constant(mean) };
        let pattern = Pattern::Gaps { gap, sizes: Sizes::Constant(size) };
        let span = Span { packets: packets.unwrap_or(u64::MAX), ..Span::ALWAYS };
        let (path, flow, destination) = (PathId(path), FlowId(flow), NodeId(0));
        let flow = Flow { path, flow, destination, header: Header::PLAIN };
        self.element(py, name, Box::new(Source::new(flow, pattern, span)))
    }

    /// A queue and its server: a line with a `rate`, or a constant `service` time (with `exponential`, its
    /// mean). `queue` is as in experiments: `{"drop-tail": {"packets": 10}}`. Adds a resource of this
    /// name and a stage to the ledger.
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
                let rate = crate::element::rate(py, text)?;
                (Service::Line { rate, framing: Bytes::ZERO }, ResourceKind::Wire, Some(rate))
            }
            (None, Some(value)) => {
                let mean = time(value)?;
                let draw = if exponential { Draw::Exponential(mean) } else { Draw::Constant(mean) };
                (Service::Draw(draw), ResourceKind::Engine, None)
            }
            _ => return Err(PyTypeError::new_err("give `rate` or `service`")),
        };
        let queue = self::queue(py, queue)?;
        let seed = self.seed;
        let graph = self.open()?;
        let resource = graph.resource(ResourceInfo::new(name.to_owned(), kind));
        let (stage, resource_of_stage) = (format!("{name} service"), Some(resource));
        let stage = graph.stage(StageInfo::new(stage, resource_of_stage));
        let site = Site { seed, rate, name, ..Site::ANYWHERE };
        let server = queue::serve(&queue, &site, service, stage, resource);
        self.element(py, name, server)
    }

    /// Where packets end.
    fn sink(&mut self, py: Python<'_>, name: &str) -> PyResult<u32> {
        self.element(py, name, Box::new(Sink::default()))
    }

    /// An element written in Python: an `Element` with `receive` and optionally `start` and `expire`. The
    /// time for which it holds packets back is a stage of its own in the ledger.
    fn add(&mut self, py: Python<'_>, name: &str, element: &Bound<'_, PyAny>) -> PyResult<u32> {
        const TIMERS_MAX: u32 = 1024;
        for handler in ["start", "receive", "expire"] {
            if !element.hasattr(handler)? {
                let words = format!("an element must have `{handler}`: derive it from `Element`");
                return Err(PyTypeError::new_err(words));
            }
        }
        let timers: u32 = match element.getattr_opt("timers")? {
            Some(timers) => timers.extract()?,
            None => 1,
        };
        if timers > TIMERS_MAX {
            return Err(wrong(py, format!("{timers} timers; at most {TIMERS_MAX} are allowed")));
        }
        let info = StageInfo::new(name.to_owned(), None);
        let stage = self.open()?.stage(info);
        let (object, shared) = (element.clone().unbind(), self.shared.clone());
        self.foreign = true;
        // Paths are declared before the sources that use them.
        let paths = self.paths;
        let foreign = Foreign { object, stage, timers, paths, held: 0, shared };
        self.element(py, name, Box::new(foreign))
    }

    /// Connects an output port to an input port, with a `delay`.
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
            graph.stage(StageInfo::new(name, None))
        });
        let joined = graph.connect_after(from, PortId(output), to, PortId(input), delay, stage);
        joined.map_err(|error| wrong(py, error))
    }

    /// Connects port 0 of each to port 0 of the next.
    #[pyo3(signature = (*elements))]
    fn chain(&mut self, py: Python<'_>, elements: Vec<u32>) -> PyResult<()> {
        elements.windows(2).try_for_each(|pair| self.connect(py, pair[0], pair[1], 0, 0, None))
    }

    /// Runs it for this simulated time and closes the books. Ctrl-C ends the run, as does an exception in an
    /// element, which is raised here.
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
        // Packets that Python still references are held; those that it released are lost track of.
        let forgotten = shared.forgotten.load(Ordering::Relaxed);
        if forgotten > 0 {
            return Err(EngineError::new_err(format!(
                "{forgotten} packets were lost track of: an element must send, deliver, drop or \
                 keep each packet that it receives or makes"
            )));
        }
        let outcome = engine.finish().map_err(fault)?;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let level = "model".to_owned();
        let provenance = Provenance { version, seed: Some(seed), level, ..Provenance::default() };
        Ok(Ledger::new(close(&outcome, Close { title: title.to_owned(), provenance })))
    }

    fn __repr__(&mut self) -> String {
        match self.elements() {
            Some(elements) => format!("<Graph of {} elements>", elements.len()),
            None => "<Graph that has run>".to_owned(),
        }
    }
}
