//! Port processors come up: each sets up its plugins, rules and queues, opens its ports, and forwards, on a thread of
//! its own.
//!
//! ```text
//! all at once:   one  |set up|open ports|forwards ...     each stage timed: `show boot`
//!                two  |set up|open ports|forwards ...
//! ```
//!
//! One that fails ends alone: its ports are down, and the others go on.
//!
//! Rows: D-25, D-26.

use super::count::{Counters, Stages};
use super::crossing::Crossing;
use super::housekeeper::House;
use super::line::Line;
use super::setup::{Running, set_up};
use super::tables::Readers;
use super::{Change, Event, Parts, PortProcessor};
use crate::config::Config;
use crate::message::Bound;
use lastmeter_linux::dataplane::{self, Frames, Interface};
use serde_json::{Value, json};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Frames that each port has to receive into.
pub const RECEIVING: usize = 1024;
/// How long to retry ports that are in use.
const HELD_BY_OTHERS: Duration = Duration::from_secs(2);

/// What a port processor is made of.
pub(super) struct Making {
    pub(super) number: usize,
    pub(super) frames: Frames,
    pub(super) readers: Readers,
    pub(super) changes: Receiver<Change>,
    pub(super) pending: Arc<AtomicBool>,
    pub(super) wake: OwnedFd,
    pub(super) events: Sender<Event>,
    pub(super) attention: OwnedFd,
    pub(super) counts: Arc<Vec<Counters>>,
    pub(super) stages: Arc<Stages>,
    pub(super) crossing: Option<Crossing>,
}

/// How a port processor came up, in seconds.
#[derive(Clone, Debug)]
pub(super) struct Up {
    name: String,
    /// Since the first one began.
    began: f64,
    ended: f64,
    stages: Vec<(String, f64)>,
}

impl Up {
    pub(super) fn shown(&self) -> Value {
        let stages = self.stages.iter().map(|(stage, s)| json!({ "stage": stage, "seconds": s }));
        json!({
            "processor": self.name,
            "began": self.began,
            "ended": self.ended,
            "stages": stages.collect::<Vec<_>>(),
        })
    }
}

/// Port processors that forward: their threads, how they came up, and the plugins that run.
type Started = (Vec<JoinHandle<()>>, Vec<Up>, Running);

/// How many frames each port processor owns.
pub(super) fn shares(config: &Config) -> Vec<usize> {
    let share = |ports: usize| config.frames * ports / config.ports.len() + ports * RECEIVING * 2;
    config.processors.iter().map(|processor| share(processor.ports.len())).collect()
}

/// Starts port processors, all at once or one after the other, and waits until all forward.
pub(super) fn bring_up(
    house: &Arc<House>,
    config: &Arc<Config>,
    all: Vec<Making>,
) -> Result<Started, String> {
    let began = Instant::now();
    let (mut threads, mut waits, mut ups) = (Vec::new(), Vec::new(), Vec::new());
    let mut running = Running::new();
    let mut wait = |told: Receiver<Result<(Up, Running), String>>| -> Result<(), String> {
        let (up, own) = told.recv().map_err(|_| "a port processor failed at once")??;
        ups.push(up);
        running = own;
        Ok(())
    };
    for making in all {
        let (ready, told) = channel();
        let (house, config) = (house.clone(), config.clone());
        let name = config.processors[making.number].name.clone();
        let in_turn = config.in_turn;
        let thread = std::thread::Builder::new().name(name);
        let thread = thread.spawn(move || live(&house, &config, making, began, &ready));
        threads.push(thread.map_err(|error| format!("a thread: {error}"))?);
        match in_turn {
            true => wait(told)?,
            false => waits.push(told),
        }
    }
    waits.into_iter().try_for_each(wait)?;
    Ok((threads, ups, running))
}

/// The life of a port processor.
fn live(
    house: &House,
    config: &Config,
    making: Making,
    began: Instant,
    ready: &Sender<Result<(Up, Running), String>>,
) {
    let number = making.number;
    let mut processor = match make(house, config, making, began) {
        Ok((processor, up, running)) => {
            let _ = ready.send(Ok((up, running)));
            processor
        }
        Err(why) => return drop(ready.send(Err(why))),
    };
    let ran = catch_unwind(AssertUnwindSafe(|| processor.run()));
    drop(processor);
    let why = ran.err().map(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
    });
    house.ended(number, why);
}

fn make(
    house: &House,
    config: &Config,
    making: Making,
    began: Instant,
) -> Result<(PortProcessor, Up, Running), String> {
    let own = &config.processors[making.number];
    let mut up = Up {
        name: own.name.clone(),
        began: began.elapsed().as_secs_f64(),
        ended: 0.0,
        stages: Vec::new(),
    };
    if let Some(core) = own.core {
        let mut set = rustix::thread::CpuSet::new();
        set.set(core);
        rustix::thread::sched_setaffinity(None, &set)
            .map_err(|error| format!("core {core}: {error}"))?;
    }
    let Making { number, mut frames, readers, changes, pending, wake, .. } = making;
    let Making { events, attention, counts, stages, crossing, .. } = making;
    let from = Instant::now();
    let host = (&*house.host, number);
    let (setup, running, _) = set_up(config, &Bound::default(), None, house.places(), host)?;
    up.stages.push(("set up".to_owned(), from.elapsed().as_secs_f64()));
    let from = Instant::now();
    let interface = |port: &u16| {
        let (index, mac) = house.interfaces[usize::from(*port)];
        let labels = config.ports[usize::from(*port)].labels;
        Interface { port: (*port).into(), index, mac, labels }
    };
    let interfaces: Vec<Interface> = own.ports.iter().map(interface).collect();
    let opened = open(&mut frames, house, &interfaces)?;
    let mut lines: Vec<Option<Line>> = config.ports.iter().map(|_| None).collect();
    for (port, socket) in own.ports.iter().zip(opened) {
        lines[usize::from(*port)] = Some(Line::Socket(socket));
    }
    up.stages.push(("open ports".to_owned(), from.elapsed().as_secs_f64()));
    let processor = PortProcessor::new(Parts {
        names: config.ports.iter().map(|port| port.name.clone()).collect(),
        own_core: own.core.is_some(),
        lines,
        frames,
        readers,
        setup,
        fast: config.fast,
        generation: house.entered.generation.clone(),
        changes,
        pending,
        wake,
        events,
        attention,
        counts,
        stages,
        copied: house.copied.clone(),
        crossing,
    });
    up.ended = began.elapsed().as_secs_f64();
    Ok((processor, up, running))
}

/// Opens the ports. A process killed a moment ago may still hold them.
fn open(
    frames: &mut Frames,
    house: &House,
    interfaces: &[Interface],
) -> Result<Vec<dataplane::Socket>, String> {
    let began = Instant::now();
    loop {
        match dataplane::frames::open(frames, &house.shared, interfaces, RECEIVING) {
            Ok(sockets) => return Ok(sockets),
            Err(error)
                if error.kind() == std::io::ErrorKind::ResourceBusy
                    && began.elapsed() < HELD_BY_OTHERS =>
            {
                frames.reset();
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(format!("opening the ports (are you root?): {error}")),
        }
    }
}
