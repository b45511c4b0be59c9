//! E-50: the n-stage procedure of END (Indiresan 1997, Fig 4.4): its listing is executed line by line and compared
//! with the machine. E-48: contention and pre-emption between stages that share a resource.

use lastmeter_base::{Bytes, Cost, Duration, Packet, PerByte, StageId, Stream, Time};
use lastmeter_engine::{PortId, ResourceId};
use lastmeter_host::machine::{Full, Machine, Next, Output, ResourceOptions, Stage};
use lastmeter_host::resource::{Discipline, Options, Priority};
use lastmeter_net::queue::DropTail;
use std::collections::{BTreeSet, VecDeque};

fn us(us: u64) -> Duration {
    Duration::from_us(us)
}

fn resources(count: u32) -> Vec<ResourceOptions> {
    let options = Options {
        units: 1,
        discipline: Discipline::Priority,
        context_switch: Duration::ZERO,
        interrupt: Duration::ZERO,
    };
    let resource = |id| ResourceOptions { id: ResourceId(id), options, per_byte: PerByte::ZERO };
    (0..count).map(resource).collect()
}

fn stage(index: usize, resource: usize, next: Next, cost: Cost) -> Stage {
    Stage {
        id: StageId(index as u32),
        queue: Box::new(DropTail::new(u64::MAX, Bytes(u64::MAX))),
        full: Full::Drop,
        resource,
        priority: Priority::Thread(0),
        preemptive: false,
        cost,
        per_pdu: Duration::ZERO,
        random: None,
        batch: false,
        buses: Vec::new(),
        places: 1,
        next,
    }
}

/// Feeds in arrivals and collects departures as (packet id, time).
fn run(machine: &mut Machine, arrivals: &[(Time, u64, Bytes)]) -> Vec<(u64, Time)> {
    let mut departures = Vec::new();
    let mut collect = |machine: &mut Machine, now: Time| {
        for output in machine.outputs() {
            let Output::Send(_, packet) = output else { panic!("nothing is dropped here") };
            departures.push((packet.id, now));
        }
    };
    let mut arrivals = arrivals.iter().peekable();
    loop {
        let arrival = arrivals.peek().map(|&&(at, ..)| at);
        let Some(now) = machine.ready_at().into_iter().chain(arrival).min() else { break };
        machine.advance(now);
        collect(machine, now);
        while let Some(&(at, id, len)) = arrivals.next_if(|&&(at, ..)| at <= now) {
            let mut packet = Packet::new(len);
            packet.id = id;
            machine.arrive(at, PortId(0), packet);
        }
    }
    departures
}

/// The listing itself. Line numbers are those of Fig 4.4.
struct Listing {
    queues: Vec<VecDeque<(u64, Bytes)>>,
    free: Vec<u32>,
    delay: Vec<Cost>,
    /// Contents of the time device: (completion, stage, message).
    events: BTreeSet<(Time, usize, u64, Bytes)>,
    acknowledged: Vec<(u64, Time)>,
}

impl Listing {
    fn transmit_request(&mut self, now: Time, message: (u64, Bytes)) {
        self.queues[0].push_back(message); // 5
        self.stage_do(now, 0); // 6
    }
    fn stage_do(&mut self, now: Time, i: usize) {
        if self.free[i] > 0 && !self.queues[i].is_empty() {
            // 10
            self.free[i] -= 1; // 11
            let (id, len) = self.queues[i].pop_front().unwrap(); // 12
            let at = now + self.delay[i].time_for(len); // 13
            self.events.insert((at, i, id, len)); // 14, 15
        } // 16
    }
    fn stage_done(&mut self, now: Time, i: usize, message: (u64, Bytes)) {
        if i + 1 < self.queues.len() {
            self.queues[i + 1].push_back(message); // 21
            self.stage_do(now, i + 1); // 22
        } else {
            self.acknowledged.push((message.0, now)); // 29
        }
        self.free[i] += 1; // 23, 30
        self.stage_do(now, i); // 24, 31
    }
    fn run_until(&mut self, until: Time) {
        while let Some(&(at, i, id, len)) = self.events.first().filter(|event| event.0 <= until) {
            self.events.pop_first();
            self.stage_done(at, i, (id, len));
        }
    }
}

#[test]
fn the_machine_does_the_same_as_the_listing_of_fig_4_4() {
    for seed in 0..50 {
        let mut stream = Stream::new(seed, "end");
        let stages = 1 + stream.below(5) as usize;
        let cost: Vec<Cost> = (0..stages)
            .map(|_| Cost {
                per_packet: us(1 + stream.below(50)),
                per_byte: PerByte::from_fs(stream.below(100_000_000)),
            })
            .collect();
        let mut now = Time::START;
        let arrivals: Vec<(Time, u64, Bytes)> = (0..200)
            .map(|id| {
                // Odd picoseconds keep arrivals from tying with completions.
                now += Duration::from_ps(1 + stream.below(60_000_000));
                (now, id, Bytes(1 + stream.below(2000)))
            })
            .collect();
        let mut listing = Listing {
            queues: vec![VecDeque::new(); stages],
            free: vec![1; stages],
            delay: cost.clone(),
            events: BTreeSet::new(),
            acknowledged: Vec::new(),
        };
        for &(at, id, len) in &arrivals {
            listing.run_until(at);
            listing.transmit_request(at, (id, len));
        }
        listing.run_until(Time::MAX);
        let next = |i| if i + 1 < stages { Next::Stage(i + 1) } else { Next::Exit(PortId(0)) };
        let stages = cost.iter().enumerate().map(|(i, &cost)| stage(i, i, next(i), cost)).collect();
        let mut machine = Machine::new(&resources(5), stages, vec![0]);
        assert_eq!(run(&mut machine, &arrivals), listing.acknowledged, "seed {seed}");
    }
}

#[test]
fn stages_that_share_a_resource_take_turns_and_others_proceed() {
    let cost = |n| Cost { per_packet: us(n), per_byte: PerByte::ZERO };
    // Stages 0 and 2 share resource 0; stage 1 has resource 1.
    let stages = vec![
        stage(0, 0, Next::Stage(1), cost(10)),
        stage(1, 1, Next::Stage(2), cost(4)),
        stage(2, 0, Next::Exit(PortId(0)), cost(10)),
    ];
    let mut machine = Machine::new(&resources(2), stages, vec![0]);
    let arrivals = [(Time::START, 0, Bytes(1)), (Time::START, 1, Bytes(1))];
    let at = |n| Time::START + us(n);
    // 0: 0-10, 10-14, waits for packet 1 until 20, 20-30; 1: 10-20, 20-24, 30-40.
    assert_eq!(run(&mut machine, &arrivals), [(0, at(30)), (1, at(40))]);
}

#[test]
fn transmission_preempts_dma_on_the_shared_memory_of_an_adapter() {
    // E-48 and Indiresan §5.1.3.2: on the CIM, the network has pre-emptive priority over DMA.
    let cost = |n| Cost { per_packet: us(n), per_byte: PerByte::ZERO };
    let mut transmit = stage(1, 0, Next::Exit(PortId(0)), cost(30));
    (transmit.priority, transmit.preemptive) = (Priority::Thread(1), true);
    let stages = vec![stage(0, 0, Next::Stage(1), cost(100)), transmit];
    let mut machine = Machine::new(&resources(1), stages, vec![0]);
    let arrivals = [(Time::START, 0, Bytes(1)), (Time::START, 1, Bytes(1))];
    let at = |n| Time::START + us(n);
    // Packet 1's DMA starts as packet 0's ends at 100, is pre-empted at once, and resumes at 130.
    assert_eq!(run(&mut machine, &arrivals), [(0, at(130)), (1, at(260))]);
}

#[test]
fn a_full_queue_blocks_the_previous_stage_and_loses_nothing() {
    let cost = |n| Cost { per_packet: us(n), per_byte: PerByte::ZERO };
    let mut slow = stage(1, 1, Next::Exit(PortId(0)), cost(100));
    (slow.queue, slow.full) = (Box::new(DropTail::new(1, Bytes(u64::MAX))), Full::Block);
    let stages = vec![stage(0, 0, Next::Stage(1), cost(1)), slow];
    let mut machine = Machine::new(&resources(2), stages, vec![0]);
    let arrivals: Vec<_> = (0..6).map(|id| (Time::START, id, Bytes(1))).collect();
    let at = |n| Time::START + us(n);
    let expected: Vec<_> = (0..6).map(|id| (id, at(1 + 100 * (id + 1)))).collect();
    assert_eq!(run(&mut machine, &arrivals), expected);
}

#[test]
fn a_copy_that_waits_for_memory_blocks_its_cpu() {
    let mut all = resources(2);
    all[1].per_byte = PerByte::from_fs(10_000_000); // 10 ns per byte
    let mut copy =
        stage(0, 0, Next::Exit(PortId(0)), Cost { per_packet: us(2), per_byte: PerByte::ZERO });
    copy.buses = vec![(1, 2)];
    let mut machine = Machine::new(&all, vec![copy], vec![0]);
    // 1000 bytes cross memory twice: 20 us, during which the CPU works for 2 us.
    assert_eq!(run(&mut machine, &[(Time::START, 0, Bytes(1000))]), [(0, Time::START + us(20))]);
    let cpu = machine.meters().next().unwrap();
    assert_eq!((cpu.busy(), cpu.time_blocked()), (us(2), us(18)));
    assert_eq!(machine.meters().nth(1).unwrap().bytes(), Bytes(2000));
}

#[test]
fn a_cpu_moves_nothing_for_a_stage_before_switching_to_it() {
    let mut all = resources(2);
    all[1].per_byte = PerByte::from_fs(10_000_000); // 10 ns per byte
    let cost = |time| Cost { per_packet: us(time), per_byte: PerByte::ZERO };
    let mut copy = stage(1, 0, Next::Exit(PortId(0)), cost(0));
    copy.buses = vec![(1, 1)];
    let protocol = stage(0, 0, Next::Stage(1), cost(5));
    let mut machine = Machine::new(&all, vec![protocol, copy], vec![0]);
    let arrivals: Vec<_> = (0..3).map(|id| (Time::START, id, Bytes(1000))).collect();
    // 5 us of protocol, then 10 us of copying for each, never both at once.
    let at = |n| Time::START + us(n);
    assert_eq!(run(&mut machine, &arrivals), [(0, at(15)), (1, at(30)), (2, at(45))]);
}
