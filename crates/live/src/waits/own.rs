//! What waits in a transfer of one's own.

use super::{EVENTS_MAX, Seen, Tracing, Waits};
use crate::namespace::{Hosts, INTERFACE, Isolation, RELAY_IN, RELAY_OUT};
use crate::transfer::{Measurement, Setting};
use lastmeter_linux::Result;
use std::time::{Duration, Instant};

/// How long a transfer is looked at.
const LOOK: lastmeter_base::Duration = lastmeter_base::Duration::from_ms(300);

/// The tracepoints during a transfer, and what was seen of it.
pub(crate) struct Looking {
    tracing: Tracing,
    seen: std::result::Result<Seen, String>,
}

impl Looking {
    /// Looks for so long, or until there are too many events.
    pub(crate) fn look(&mut self, lasts: Duration) {
        self.seen = self.tracing.look(lasts, EVENTS_MAX, || false);
    }
}

impl Hosts {
    /// As [`Hosts::run_quiet`] of hosts that are sampled. Then a short one of the same is looked at for what waits,
    /// which would cost the first too much.
    ///
    /// # Errors
    /// As [`Hosts::run`].
    pub fn run_sampled(&mut self, setting: &Setting, deadline: Instant) -> Result<Measurement> {
        let mut measured = self.run_quiet(setting, deadline)?;
        if let Some(sampled) = &mut measured.sampled {
            match self.waits(setting)? {
                Ok(waits) => sampled.waits = Some(waits),
                Err(why) => sampled.unseen = Some(why),
            }
        }
        Ok(measured)
    }

    /// What waits in a transfer of this setting; the inner `Err` says in words why that cannot be seen.
    ///
    /// # Errors
    /// As [`Hosts::run`].
    pub fn waits(&mut self, setting: &Setting) -> Result<std::result::Result<Waits, String>> {
        let tracing = match Tracing::open() {
            Ok(tracing) => tracing,
            Err(why) => return Ok(Err(why)),
        };
        // Samples would only make it slower.
        let sampler = self.sampler.take();
        self.looking = Some(Looking { tracing, seen: Ok(Seen::default()) });
        let ran = self.run(&Setting { duration: LOOK, ..setting.clone() });
        self.sampler = sampler;
        let looking = self.looking.take();
        let seen = looking.map_or(Ok(Seen::default()), |looking| {
            looking.tracing.close();
            looking.seen
        });
        ran?;
        let ends = [self.sender.pid(), self.receiver.pid()];
        let group = |process| ends.iter().position(|end| *end == process);
        let ours: &[&str] = match self.isolation {
            Isolation::Loopback => &["lo"],
            _ => &[INTERFACE, RELAY_IN, RELAY_OUT],
        };
        let is_ours = |name: &str| ours.contains(&name);
        Ok(seen.map(|seen| seen.waits(&["sender", "receiver"], group, is_ours)))
    }
}
