//! Elements written in Python, and the arguments of their handlers.
//!
//! A handler gets a [`Context`] whose actions are carried out when it returns, in order, at its instant: as in
//! Rust, an element cannot call others. The time for which it holds packets is a stage of its own, so that the
//! books always balance.

use crate::problem::wrong;
use lastmeter_base::{Bytes, Draw, Duration, FlowId, PathId, Quantity, Rate};
use lastmeter_base::{Packet as Inner, StageId, Stream, Time};
use lastmeter_engine::{Context as Engine, Element, PortId, Report, TimerId};
use lastmeter_lab::run::Watch;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Limit on the distinct drop reasons of one graph's elements.
const REASONS_MAX: usize = 64;

/// State shared by a graph's elements written in Python.
#[derive(Default)]
pub(super) struct Shared {
    /// The first exception that a handler raised.
    pub(super) failure: Mutex<Option<PyErr>>,
    /// Packets that Python released without sending, delivering or dropping them.
    pub(super) forgotten: AtomicU64,
    /// Drop reasons, which live as long as the program.
    reasons: Mutex<BTreeSet<&'static str>>,
    pub(super) watch: Watch,
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
            let words = format!(
                "more than {REASONS_MAX} distinct drop reasons; use few, without details of \
                 the packet"
            );
            return Err(PyRuntimeError::new_err(words));
        }
        // There are few, and the books refer to them after the graph is gone.
        let kept: &'static str = Box::leak(reason.to_owned().into_boxed_str());
        reasons.insert(kept);
        Ok(kept)
    }
}

/// A time: seconds as a number, or text with a unit.
pub(super) fn time(value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    if let Ok(text) = value.cast::<PyString>() {
        return Duration::parse(&text.to_string()).map_err(|error| wrong(value.py(), error));
    }
    let seconds: f64 = value.extract().map_err(|_| {
        PyTypeError::new_err("write a time as seconds or as text with a unit: \"10 us\"")
    })?;
    match (0.0..=1e6).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err(wrong(value.py(), format!("{seconds} s is not a time within a run"))),
    }
}

/// A size: bytes as a number, or text with a unit.
pub(super) fn size(value: &Bound<'_, PyAny>) -> PyResult<Bytes> {
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

pub(super) fn rate(py: Python<'_>, text: &str) -> PyResult<Rate> {
    Rate::parse(text).map_err(|error| wrong(py, error))
}

/// A packet. It has one owner: an element that sends, delivers or drops it no longer owns it.
#[pyclass(module = "lastmeter")]
pub(crate) struct Packet {
    /// `None` once it is gone.
    inner: Option<Inner>,
    /// Whether an action of this handler sends, delivers or drops it.
    going: bool,
    /// Whether the element itself has accounted for the packet's time.
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

pub(super) fn gone() -> PyErr {
    PyRuntimeError::new_err("this packet has already been sent, delivered or dropped")
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
    /// Its sequence number within its flow, from 0.
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
    /// The path in the ledger to which it is accounted.
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

/// An action of a handler.
enum Act {
    Make(Py<Packet>),
    Send(u16, Py<Packet>, Time),
    Deliver(Py<Packet>),
    Drop(Py<Packet>, &'static str),
    Arm(u32, Time),
    Disarm(u32),
}

/// The actions that a handler can take while it runs.
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
        let over = "this context belongs to a handler that has returned";
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
    /// Takes the packet, for the action that follows.
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
    /// Sends a packet out of a port, now or `after` a time: packets leave a port in the order in which they
    /// were sent.
    #[pyo3(signature = (port, packet, *, after=None))]
    fn send(
        &mut self,
        port: u16,
        packet: &Bound<'_, Packet>,
        after: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let after = after.map(time).transpose()?.unwrap_or(Duration::ZERO);
        let departs = self.now + after;
        let packet = self.take(packet)?;
        self.act(Act::Send(port, packet, departs))
    }
    /// The packet has reached its end.
    fn deliver(&mut self, packet: &Bound<'_, Packet>) -> PyResult<()> {
        let packet = self.take(packet)?;
        self.act(Act::Deliver(packet))
    }
    /// Drops the packet, for a reason in a word or two.
    fn drop(&mut self, packet: &Bound<'_, Packet>, reason: &str) -> PyResult<()> {
        let reason = self.shared.reason(reason)?;
        let packet = self.take(packet)?;
        self.act(Act::Drop(packet, reason))
    }
    /// Makes a packet, accounted to a path from now on.
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
            (Some(after), None) => self.now + time(after)?,
            (None, Some(at)) => Time::START + time(at)?,
            _ => return Err(PyTypeError::new_err("give `after` or `at`")),
        };
        self.act(Act::Arm(timer, at))
    }
    /// Disarms a timer.
    #[pyo3(signature = (timer=0))]
    fn disarm(&mut self, timer: u32) -> PyResult<()> {
        let timer = self.timer(timer)?;
        self.act(Act::Disarm(timer))
    }
    /// A random number in [0, 1) from the element's own stream.
    fn random(&mut self) -> PyResult<f64> {
        Ok(self.stream()?.unit())
    }
    /// A random time in seconds, exponentially distributed with this mean.
    fn exponential(&mut self, mean: &Bound<'_, PyAny>) -> PyResult<f64> {
        let draw = Draw::Exponential(time(mean)?);
        Ok(draw.sample(self.stream()?).as_secs_f64())
    }
}

/// An element that is written in Python.
pub(super) struct Foreign {
    pub(super) object: Py<PyAny>,
    pub(super) stage: StageId,
    pub(super) timers: u32,
    pub(super) paths: u32,
    /// The packets that it received or made and still holds.
    pub(super) held: u64,
    pub(super) shared: Arc<Shared>,
}

impl Foreign {
    /// Calls a handler and carries out its actions.
    fn call(
        &mut self,
        cx: &mut Engine<'_>,
        handler: &str,
        arrived: Option<(PortId, Inner)>,
        timer: Option<TimerId>,
    ) {
        if self.shared.failed() {
            // The run is ending; its result is the exception.
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

    /// The packet with the time that it spent here: held back counts as waiting, then until departure as service.
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
