//! The threads of a receiving host: the application, the pollers, and their scheduling.

use super::{Batch, Reception, Scheduling, Step, THREAD, Who};
use crate::receive::{Costs, Place};
use lastmeter_base::{Duration, Time};

impl Reception {
    /// The next step of a thread, if the CPU has none yet.
    pub(super) fn continue_threads(&mut self, now: Time) {
        while self.levels[THREAD].step.is_none() {
            let who = self.turn();
            let turned = who != self.last;
            self.running = who;
            match who {
                Some(Who::Application) => self.work(turned),
                Some(Who::Poller(interface)) => self.poll(now, interface, turned),
                None => {
                    if !self.poll_idle(now) {
                        self.application_asleep = true;
                        return;
                    }
                }
            }
        }
    }

    /// The thread whose turn it is.
    fn turn(&self) -> Option<Who> {
        let first = self.pollers.front().map(|batch| Who::Poller(batch.interface));
        let application = (!self.queue.is_empty()).then_some(Who::Application);
        let ready = |who: Who| match who {
            Who::Application => application.is_some(),
            Who::Poller(interface) => self.pollers.iter().any(|b| b.interface == interface),
        };
        let present = self.running.filter(|&who| ready(who));
        match self.options.scheduling {
            Scheduling::Cooperative => present.or(match self.application_first {
                true => application.or(first),
                false => first.or(application),
            }),
            Scheduling::Fair(slice) => {
                let runtime = |who: &Who| match *who {
                    Who::Application => self.runtimes[0],
                    Who::Poller(interface) => self.runtimes[interface + 1],
                };
                let pollers = self.pollers.iter().map(|batch| Who::Poller(batch.interface));
                let least = application.into_iter().chain(pollers).min_by_key(runtime)?;
                // A thread keeps running until it is a slice ahead of another.
                present.filter(|who| runtime(who) <= runtime(&least) + slice).or(Some(least))
            }
        }
    }

    fn work(&mut self, turned: bool) {
        let Costs { wake, application, cache_miss, accept, demultiplex, protocol, .. } =
            self.options.costs;
        let stages = self.options.stages;
        if self.application_asleep {
            let least = self.pollers.iter().map(|b| self.runtimes[b.interface + 1]).min();
            self.runtimes[0] = self.runtimes[0].max(least.unwrap_or(self.runtimes[0]));
        }
        self.last = Some(Who::Application);
        let turned = std::mem::take(&mut self.application_asleep) || turned;
        if turned && !wake.is_zero() {
            self.step(THREAD, Step::Turn, (stages.switch, wake), 0..0);
            return;
        }
        let Some((interface, packet)) = self.queue.pop_front() else { return };
        let lazy = self.interfaces[interface].options.policy.is_lazy();
        let saved = if self.cold { Duration::ZERO } else { cache_miss };
        let left = (accept + protocol).saturating_sub(demultiplex);
        let left = if lazy { left } else { Duration::ZERO };
        let work = application.saturating_sub(saved) + left;
        self.cold = false;
        if self.pollers.is_empty() {
            self.application_first = false;
        }
        let first = if lazy { 0 } else { self.options.kernel };
        let parts = first..self.options.parts.len();
        self.step(THREAD, Step::Work(interface, packet), (stages.application, work), parts);
    }

    fn poll(&mut self, now: Time, interface: usize, turned: bool) {
        let Costs { switch, look, .. } = self.options.costs;
        let stages = self.options.stages;
        let Some(at) = self.pollers.iter().position(|b| b.interface == interface) else { return };
        let batch = self.pollers[at];
        if turned && !batch.in_application && !switch.is_zero() {
            self.last = Some(Who::Poller(interface));
            self.step(THREAD, Step::Turn, (stages.switch, switch), 0..0);
            return;
        }
        let view = self.view(interface);
        let policy = &mut self.interfaces[interface].options.policy;
        if view.pending > 0 && policy.proceed(now, &view, batch.handled) {
            self.handle(now, THREAD, interface);
            return;
        }
        let place = policy.finished(now, &view, batch.handled);
        self.pollers.remove(at);
        self.running = None;
        self.application_first = !self.queue.is_empty();
        if batch.handled == 0 && !look.is_zero() {
            self.step(THREAD, Step::Look, (stages.polling, look), 0..0);
        }
        self.ended(now, interface, place);
    }

    /// Lets policies use an idle host. Returns whether one did.
    fn poll_idle(&mut self, now: Time) -> bool {
        let count = self.interfaces.len();
        let first = self.polled_first;
        for interface in (0..count).map(|turn| (first + turn) % count) {
            let view = self.view(interface);
            let card = &mut self.interfaces[interface];
            if card.engaged {
                continue;
            }
            match card.options.policy.idle(now, &view) {
                Some(place) => {
                    self.begin_quietly(interface, place);
                    self.polled_first = (interface + 1) % count;
                    return true;
                }
                None => self.consult(now, interface),
            }
        }
        false
    }

    /// As [`Reception::begin`] for threads, during a thread's own turn.
    fn begin_quietly(&mut self, interface: usize, place: Place) {
        debug_assert!(
            matches!(place, Place::Thread | Place::Application),
            "idle work runs in threads"
        );
        self.interfaces[interface].engaged = true;
        self.interfaces[interface].interrupt = None;
        let in_application = place == Place::Application;
        self.pollers.push_back(Batch { interface, handled: 0, in_application });
    }
}
