//! The machine of a host: stages in a chain or in any other order, and the resources they share.
//!
//! ```text
//! entry p --> [queue] stage --> [queue] stage --> ... --> exit q        drops: `full`
//!                       |                 |
//!                 primary resource   primary resource + bytes over buses
//! ```
//!
//! A stage takes the next packet of its queue when it has a free place, and requests from its primary resource the
//! time that the packet costs. From the moment that this resource begins to serve it, the packet's bytes also
//! cross the stage's buses. The packet continues when both are done; until then it holds the primary resource,
//! which is blocked while the packet only waits for a bus. This is END's n-stage procedure (Indiresan 1997, Fig
//! 4.4; E-50) with shared resources: `take` is its `do`, `leave` its `done`.
//!
//! When the next stage's queue is full, the packet is dropped, or waits where it is and keeps its place in the
//! stage (but not the resource: a thread sleeps).
//!
//! A machine may have a [`Reception`] on one of its CPUs: interfaces whose commands a policy handles in
//! interrupts, soft interrupts or threads, and the application. Its jobs compete with those of stages. To a packet
//! it is one more stage, which drops and never blocks.

use crate::receive::{Counts, Reception};
use crate::resource::{Done, Job, Options, Priority, Resource};
use lastmeter_base::{Bytes, Cost, Draw, Duration, Packet, PerByte, StageId, Stream, Time};
use lastmeter_engine::{Meter, PortId, ResourceId};
use lastmeter_net::queue::Queue;
use std::collections::VecDeque;

/// Parameters of a stage.
pub struct Stage {
    /// Its name in the books.
    pub id: StageId,
    /// Packets that wait for it.
    pub queue: Box<dyn Queue>,
    /// What happens to a packet that its queue refuses.
    pub full: Full,
    /// Its primary resource, by index.
    pub resource: usize,
    /// Priority at the primary resource and at priority buses.
    pub priority: Priority,
    /// Whether it may pre-empt stages of lower priority.
    pub preemptive: bool,
    /// Cost of a packet on the primary resource.
    pub cost: Cost,
    /// Additional cost of a PDU's last packet.
    pub per_pdu: Duration,
    /// A random additional cost per packet, and the stream that it is drawn from.
    pub random: Option<(Draw, Stream)>,
    /// Whether packets that wait when one is done are handled in the same interrupt.
    pub batch: bool,
    /// Buses that a packet's bytes cross, by index, and how many times each byte does.
    pub buses: Vec<(usize, u32)>,
    /// How many packets it processes at once.
    pub places: u32,
    /// Where packets go next.
    pub next: Next,
}

/// What happens to a packet that finds a queue full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// It is dropped.
    Drop,
    /// It waits in the previous stage, which takes no other packet meanwhile. At an entry, it is dropped.
    Block,
}

/// Where packets go next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// To another stage, by index.
    Stage(usize),
    /// To an interface of the machine's reception, by index.
    Interface(usize),
    /// Out of the machine.
    Exit(PortId),
}

/// An effect of the machine on the outside world.
#[derive(Debug)]
pub enum Output {
    /// A packet leaves.
    Send(PortId, Packet),
    /// A packet ends at a stage, for a reason.
    Drop(Packet, StageId, &'static str),
}

/// Parameters of a resource.
#[derive(Clone, Copy, Debug)]
pub struct ResourceOptions {
    /// Its name in the books.
    pub id: ResourceId,
    /// Its units, discipline and switching costs.
    pub options: Options,
    /// Cost per byte where it is used as a bus.
    pub per_byte: PerByte,
}

/// A host's stages and resources.
pub struct Machine {
    stages: Vec<StageState>,
    resources: Vec<Resource>,
    bus_cost: Vec<PerByte>,
    jobs: Jobs,
    entries: Vec<usize>,
    reception: Option<Receiving>,
    outputs: Vec<Output>,
}

/// Reception, and its place in the machine.
struct Receiving {
    reception: Reception,
    /// The resource that it runs on, by index.
    cpu: usize,
    /// The exit of packets that the application has processed; `None`: the port of their interface.
    exit: Option<PortId>,
}

struct StageState {
    stage: Stage,
    free: u32,
    /// Blocked packets, oldest first, and since when.
    stuck: VecDeque<Work>,
    /// Stages that wait for room in this one's queue.
    waiters: VecDeque<usize>,
}

/// A packet in service.
struct Work {
    packet: Packet,
    stage: usize,
    started: Time,
    served: Duration,
    primary_done: bool,
    buses_left: u32,
}

/// Work by number; numbers are reused.
#[derive(Default)]
struct Jobs {
    work: Vec<Option<Work>>,
    free: Vec<usize>,
}

impl Machine {
    /// A machine at rest. `entries` gives the first stage for packets from each input port.
    ///
    /// Panics if a stage names a resource, bus or stage that does not exist, or its own primary resource as a bus.
    pub fn new(resources: &[ResourceOptions], stages: Vec<Stage>, entries: Vec<usize>) -> Machine {
        let exists = |stage: &Stage| {
            stage.resource < resources.len()
                && stage.buses.iter().all(|&(bus, _)| bus < resources.len())
                && stage.buses.iter().all(|&(bus, _)| bus != stage.resource)
                && !matches!(stage.next, Next::Stage(next) if next >= stages.len())
        };
        assert!(stages.iter().all(exists), "a stage names what does not exist");
        assert!(entries.iter().all(|&entry| entry < stages.len()), "an entry without a stage");
        let state = |stage: Stage| StageState {
            free: stage.places,
            stuck: VecDeque::new(),
            waiters: VecDeque::new(),
            stage,
        };
        Machine {
            stages: stages.into_iter().map(state).collect(),
            resources: resources.iter().map(|r| Resource::new(r.id, r.options)).collect(),
            bus_cost: resources.iter().map(|r| r.per_byte).collect(),
            jobs: Jobs::default(),
            entries,
            reception: None,
            outputs: Vec::new(),
        }
    }

    /// The machine with reception on its resource `cpu`. The input ports after the entries are its interfaces.
    /// Packets that the application has processed leave at `exit`, or at the output with their interface's number.
    ///
    /// Panics if the CPU does not exist, or serves several jobs at once, which a single application cannot use.
    pub fn receiving(mut self, cpu: usize, reception: Reception, exit: Option<PortId>) -> Machine {
        assert!(self.resources[cpu].meters().count() == 1, "reception is for one processor");
        self.reception = Some(Receiving { reception, cpu, exit });
        self.follow(Time::START);
        self
    }

    /// A packet arrives at `port`. Panics if the machine has no such entry.
    pub fn arrive(&mut self, now: Time, port: PortId, packet: Packet) {
        let Some(&stage) = self.entries.get(port.0 as usize) else {
            return self.take_in(now, port.0 as usize - self.entries.len(), packet);
        };
        if let Err(packet) = self.offer(now, stage, packet) {
            self.outputs.push(Output::Drop(packet, self.stages[stage].stage.id, "full"));
        }
    }

    /// When the next event is due.
    pub fn ready_at(&self) -> Option<Time> {
        self.earliest().map(|(due, _)| due)
    }

    /// Handles everything due by `now`, in the order in which it became due.
    pub fn advance(&mut self, now: Time) {
        while let Some((due, at)) = self.earliest().filter(|&(due, _)| due <= now) {
            match &mut self.reception {
                Some(receiving) if at == self.resources.len() => {
                    receiving.reception.advance_to(due);
                    self.follow(due);
                }
                _ => self.complete(due, at),
            }
        }
    }

    /// The machine's effects on the outside world, in order.
    pub fn outputs(&mut self) -> std::vec::Drain<'_, Output> {
        self.outputs.drain(..)
    }

    /// What is due first: a resource, or, numbered after them all, the interfaces of reception.
    fn earliest(&self) -> Option<(Time, usize)> {
        let due = self.resources.iter().enumerate().filter_map(|(at, r)| Some((r.ready_at()?, at)));
        let interfaces = self.reception.as_ref().and_then(|r| r.reception.ready_at());
        due.chain(interfaces.map(|due| (due, self.resources.len()))).min()
    }

    /// A packet arrives at an interface of reception.
    fn take_in(&mut self, now: Time, interface: usize, packet: Packet) {
        let receiving = self.reception.as_mut().expect("only reception has interfaces");
        receiving.reception.arrive(now, interface, packet);
        self.follow(now);
    }

    /// Carries out the requests of reception.
    fn follow(&mut self, now: Time) {
        let Some(Receiving { reception, cpu, exit }) = &mut self.reception else { return };
        let (cpu, exit) = (*cpu, *exit);
        for request in reception.requests() {
            self.resources[cpu].submit(now, request.job);
            self.resources[cpu].moved(request.bytes);
        }
        self.outputs.extend(reception.outputs().map(|output| match output {
            Output::Send(port, packet) => Output::Send(exit.unwrap_or(port), packet),
            dropped @ Output::Drop(..) => dropped,
        }));
        self.cross(now, cpu);
    }

    /// Puts a packet into a stage's queue, or gives it back.
    fn offer(&mut self, now: Time, stage: usize, mut packet: Packet) -> Result<(), Packet> {
        packet.entered = now;
        let enqueued = self.stages[stage].stage.queue.enqueue(now, packet);
        self.take_dropped(stage);
        enqueued?;
        self.take(now, stage, false);
        Ok(())
    }

    /// E-50, `stage.do`: takes packets while the stage has a free place; `after` another one was done.
    fn take(&mut self, now: Time, stage: usize, after: bool) {
        while self.stages[stage].free > 0 {
            let packet = self.stages[stage].stage.queue.dequeue(now);
            self.take_dropped(stage);
            let Some(packet) = packet else { break };
            self.stages[stage].free -= 1;
            self.begin(now, stage, packet, after);
            self.admit_waiter(now, stage);
        }
    }

    /// Ends the packets that the stage's queue itself has dropped.
    fn take_dropped(&mut self, stage: usize) {
        let Stage { queue, id, .. } = &mut self.stages[stage].stage;
        while let Some((packet, reason)) = queue.dropped() {
            self.outputs.push(Output::Drop(packet, *id, reason));
        }
    }

    fn begin(&mut self, now: Time, stage: usize, packet: Packet, after: bool) {
        let len = packet.len;
        let Stage { resource, cost, per_pdu, batch, priority, ref buses, ref mut random, .. } =
            self.stages[stage].stage;
        let mut work = cost.time_for(len) + if packet.ends { per_pdu } else { Duration::ZERO };
        if let Some((draw, stream)) = random {
            work += draw.sample(stream);
        }
        let entered = after && batch && priority == Priority::Interrupt;
        let job = self.jobs.add(Work {
            packet,
            stage,
            started: now,
            served: Duration::ZERO,
            primary_done: false,
            buses_left: buses.len() as u32,
        });
        self.request(now, resource, job, work, len, entered);
        self.cross(now, resource);
    }

    /// Requests work from a resource for a packet's bytes, in a handler that has been `entered` or not.
    fn request(
        &mut self,
        now: Time,
        resource: usize,
        job: usize,
        work: Duration,
        bytes: Bytes,
        entered: bool,
    ) {
        let stage = &self.stages[self.jobs.get(job).stage].stage;
        let (priority, preemptive) = (stage.priority, stage.preemptive);
        let priority = if entered { Priority::Handler } else { priority };
        let job = Job { id: job, stage: stage.id, priority, preemptive, work };
        self.resources[resource].submit(now, job);
        self.resources[resource].moved(bytes);
    }

    /// Sends the bytes of packets that `resource`, their primary one, has begun to serve over the buses: a
    /// processor moves nothing for a stage before it has switched to it.
    fn cross(&mut self, now: Time, resource: usize) {
        for job in self.resources[resource].first_served() {
            if let Some(level) = Reception::level(job) {
                self.cross_received(now, resource, job, level);
                continue;
            }
            let work = self.jobs.get(job);
            let (stage, len) = (work.stage, work.packet.len);
            if self.stages[stage].stage.resource != resource {
                continue; // This resource is one of the packet's buses.
            }
            let buses = std::mem::take(&mut self.stages[stage].stage.buses);
            for &(bus, crossings) in &buses {
                let bytes = Bytes(len.0 * u64::from(crossings));
                self.request(now, bus, job, self.bus_cost[bus].time_for(bytes), bytes, false);
                self.cross(now, bus);
            }
            self.stages[stage].stage.buses = buses;
        }
    }

    /// As [`Machine::cross`], for the step of reception at a level of its CPU.
    fn cross_received(&mut self, now: Time, resource: usize, id: usize, level: usize) {
        let Some(Receiving { reception, cpu, .. }) = &self.reception else { return };
        let Some((part, len)) = reception.running(level).filter(|_| resource == *cpu) else {
            return;
        };
        let (stage, priority, buses) = (part.stage, part.priority, part.buses.clone());
        for (bus, crossings) in buses {
            let bytes = Bytes(len.0 * u64::from(crossings));
            let work = self.bus_cost[bus].time_for(bytes);
            self.resources[bus].submit(now, Job { id, stage, priority, preemptive: false, work });
            self.resources[bus].moved(bytes);
            self.cross(now, bus);
        }
    }

    /// Reception's CPU, or a bus, has done its share of the step at a level.
    fn complete_received(&mut self, now: Time, resource: usize, done: Done, level: usize) {
        let Some(Receiving { reception, cpu, .. }) = &mut self.reception else { return };
        let (cpu, id) = (*cpu, done.id);
        let all_done = match resource == cpu {
            true => reception.served(level, done),
            false => reception.crossed(level),
        };
        if resource != cpu {
            self.resources[resource].release(now, id);
            self.cross(now, resource);
        }
        if all_done {
            self.resources[cpu].release(now, id);
            self.cross(now, cpu);
            if let Some(Receiving { reception, .. }) = &mut self.reception {
                reception.complete(now, level);
            }
            self.follow(now);
        }
    }

    /// Something that a packet waited for is done.
    fn complete(&mut self, now: Time, resource: usize) {
        let done = self.resources[resource].complete_and_hold(now);
        self.cross(now, resource);
        let Some(done) = done else { return };
        if let Some(level) = Reception::level(done.id) {
            return self.complete_received(now, resource, done, level);
        }
        let Done { id, started, served, .. } = done;
        let work = self.jobs.get(id);
        let primary = self.stages[work.stage].stage.resource;
        if resource == primary {
            (work.primary_done, work.started, work.served) = (true, started, served);
        } else {
            work.buses_left -= 1;
        }
        let all_done = work.primary_done && work.buses_left == 0;
        if all_done {
            // The packet leaves first, so that any resulting work competes for the units.
            let work = self.jobs.remove(id);
            self.leave(now, work);
            self.resources[primary].release(now, id);
            self.cross(now, primary);
        }
        if resource != primary {
            self.resources[resource].release(now, id);
            self.cross(now, resource);
        }
    }

    /// E-50, `stage.done`: passes the packet on, frees its place and takes the next one.
    fn leave(&mut self, now: Time, mut work: Work) {
        let stage = work.stage;
        let Stage { id, next, .. } = self.stages[stage].stage;
        match next {
            Next::Exit(port) => {
                record(now, id, &mut work);
                self.outputs.push(Output::Send(port, work.packet));
            }
            Next::Interface(interface) => {
                record(now, id, &mut work);
                self.take_in(now, interface, work.packet);
            }
            Next::Stage(next) => {
                if let Some(work) = self.pass(now, work, next) {
                    self.stages[stage].stuck.push_back(work);
                    self.stages[next].waiters.push_back(stage);
                    return; // The place stays occupied.
                }
            }
        }
        self.stages[stage].free += 1;
        self.take(now, stage, true);
    }

    /// Passes a packet to the next stage; gives it back if it has to wait for room.
    fn pass(&mut self, now: Time, mut work: Work, next: usize) -> Option<Work> {
        let full = self.stages[next].stage.full;
        let before = (work.packet.visits.mark(), work.packet.entered);
        record(now, self.stages[work.stage].stage.id, &mut work);
        match self.offer(now, next, work.packet) {
            Ok(()) => None,
            Err(packet) if full == Full::Drop => {
                self.outputs.push(Output::Drop(packet, self.stages[next].stage.id, "full"));
                None
            }
            Err(mut packet) => {
                packet.visits.rewind(before.0);
                packet.entered = before.1;
                work.packet = packet;
                Some(work)
            }
        }
    }

    /// A packet has left `stage`'s queue: one blocked in front of it may move up.
    fn admit_waiter(&mut self, now: Time, stage: usize) {
        let Some(before) = self.stages[stage].waiters.pop_front() else { return };
        let Some(work) = self.stages[before].stuck.pop_front() else { return };
        match self.pass(now, work, stage) {
            Some(work) => {
                self.stages[before].stuck.push_front(work);
                self.stages[stage].waiters.push_front(before);
            }
            None => {
                self.stages[before].free += 1;
                self.take(now, before, false);
            }
        }
    }

    /// Packets in queues and in service.
    pub fn held(&self) -> u64 {
        let queued = |state: &StageState| state.stage.queue.packets() + state.stuck.len() as u64;
        let received = self.reception.as_ref().map_or(0, |r| r.reception.held());
        self.stages.iter().map(queued).sum::<u64>() + self.jobs.len() + received
    }

    /// Counts of an interface of reception. Panics if the machine has no such interface.
    pub fn counts(&self, interface: usize) -> Counts {
        let receiving = self.reception.as_ref().expect("only reception has interfaces");
        receiving.reception.counts(interface)
    }

    /// The times of every unit of every resource.
    pub fn meters(&self) -> impl Iterator<Item = &Meter> {
        self.resources.iter().flat_map(Resource::meters)
    }
}

/// Records the stage in the packet. Time neither waiting nor in service was blocked: pre-empted, waiting for a
/// bus, or waiting for room.
fn record(now: Time, stage: StageId, work: &mut Work) {
    let wait = work.started - work.packet.entered;
    let blocked = (now - work.started) - work.served;
    work.packet.visit(stage, wait, work.served, blocked);
}

impl Jobs {
    fn add(&mut self, work: Work) -> usize {
        match self.free.pop() {
            Some(id) => {
                self.work[id] = Some(work);
                id
            }
            None => {
                self.work.push(Some(work));
                self.work.len() - 1
            }
        }
    }
    fn get(&mut self, id: usize) -> &mut Work {
        self.work[id].as_mut().expect("a job that is done has its work")
    }
    fn remove(&mut self, id: usize) -> Work {
        self.free.push(id);
        self.work[id].take().expect("a job that is done has its work")
    }
    fn len(&self) -> u64 {
        (self.work.len() - self.free.len()) as u64
    }
}
