//! A transfer's end in a helper process, looked at while it plays.

use super::ends::Job;
use super::message::Seen;
use crate::channel;
use crate::observe;
use crate::sample::{Prepared, Sampler};
use crate::worker::{Reply, Request, Worker, reply};
use lastmeter_linux::Result;
use lastmeter_linux::load;
use std::time::Duration;

/// How long the machine is looked at before.
const LOOK: Duration = Duration::from_millis(100);

/// An end that plays.
pub(super) struct Playing {
    worker: Worker,
    sampling: std::result::Result<Sampler, String>,
    busy: Option<String>,
}

impl Playing {
    /// Starts it, sampled if `sample`.
    pub(super) fn start(job: Job, sample: bool) -> Result<Playing> {
        let busy = load::words(load::others(LOOK)?);
        let prepared = match sample {
            true => Prepared::new(),
            false => Err("sampling was not asked for".to_owned()),
        };
        let mut worker = Worker::spawn()?;
        // It is to compete with others as any program would.
        worker.done(&Request::Ordinary)?;
        let sampling = prepared.and_then(|prepared| {
            let sampler = Sampler::open(prepared, &[worker.pid()])?;
            sampler.begin().map_err(|error| error.to_string())?;
            Ok(sampler)
        });
        worker.ask(&Request::Far(job))?;
        Ok(Playing { worker, sampling, busy })
    }

    /// Where it listens.
    pub(super) fn port(&mut self) -> Result<u16> {
        Ok(reply!(self.worker, "listen", Reply::Listening { port } => port))
    }

    /// Looks at it until it ends, or `pause`, handed the seconds to wait, says that it is over.
    pub(super) fn look(mut self, mut pause: impl FnMut(f64) -> Result<bool>) -> Result<Seen> {
        const DOING: &str = "move the test's data";
        let worker = &mut self.worker;
        let observation = observe::process(worker.pid(), |seconds| {
            let over = pause(seconds)?;
            while worker.has_answered() {
                match worker.answer(DOING)? {
                    Reply::Connected => {}
                    Reply::End(_) => return Ok(true),
                    other => return Err(channel::instead(DOING, other)),
                }
            }
            Ok(over)
        })?;
        let sampled = self.sampling.and_then(|s| s.end().map_err(|error| error.to_string()));
        let unsampled = sampled.as_ref().err().cloned();
        Ok(Seen { observation, sampled: sampled.ok(), unsampled, busy: self.busy })
    }
}
