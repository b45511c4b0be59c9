//! A port processor as an element.
//!
//! ```text
//! line   --> in 0 --> port processor --> out 0        drops: `no buffer`, `overrun`, `line full`
//! fabric --> in 1 -->
//! ```
//!
//! With an FPX in front, it does the lookups, and only packets of a class other than 0 pass the processor; those from
//! the line return to the FPX, which forwards them (D-127).
//!
//! Cells of a channel that the card passes on go from one of its ports to the other, past memory, bus and processor
//! (D-12): they wait only for cells of the same kind before them, as many as the FIFO holds.

use super::fpx::{Classified, Control, Fpx};
use super::{Machine, Options, Side};
use crate::machine::Output;
use lastmeter_base::{Duration, Packet, StageId, Time};
use lastmeter_engine::{Context, Element, PortId, Report, TimerId};
use std::collections::BTreeSet;

/// Gives a port processor ports and a timer.
pub struct Port {
    machine: Machine,
    fpx: Option<Fpx>,
    /// Packets that are with the processor and come back to the FPX.
    lent: BTreeSet<u64>,
    /// Control cells for the FPX, and when they arrive.
    control: Option<(Time, Vec<Control>)>,
    passing: Option<Passing>,
}

/// Channels that the card passes on.
pub struct Passing {
    /// The class of packets on them.
    pub class: u8,
    /// The time of a cell at either of its ports.
    pub cell: Duration,
    /// The most cells that wait.
    pub fifo: u64,
    /// What it is accounted to.
    pub stage: StageId,
    /// Until when cells leave.
    free_at: Time,
    passed: u64,
}

impl Passing {
    /// Packets of a class, with the time of a cell and a FIFO of this many cells.
    pub fn new(class: u8, cell: Duration, fifo: u64, stage: StageId) -> Passing {
        Passing { class, cell, fifo, stage, free_at: Time::START, passed: 0 }
    }

    /// When a packet that arrives has left; nothing if the FIFO has no room.
    fn pass(&mut self, now: Time, packet: &mut Packet) -> Option<Time> {
        let start = now.max(self.free_at);
        if start - now > self.cell * self.fifo {
            return None;
        }
        self.free_at = start + self.cell * Options::cells(packet.len);
        self.passed += 1;
        packet.visit(self.stage, start - now, self.free_at - start, Duration::ZERO);
        Some(self.free_at)
    }
}

const DUE: TimerId = TimerId(0);
/// Arrival of control cells.
const CONTROL: TimerId = TimerId(1);
/// Input from the lines, for the input side.
pub const FROM_LINES: PortId = PortId(0);
/// Input from the fabric, for the output side.
pub const FROM_FABRIC: PortId = PortId(1);

impl Port {
    /// An element around `machine`.
    pub fn new(machine: Machine) -> Port {
        let (fpx, control, passing) = (None, None, None);
        Port { machine, fpx, lent: BTreeSet::new(), control, passing }
    }

    /// The same with an FPX between lines and processor (D-14).
    pub fn with_fpx(self, fpx: Option<Fpx>) -> Port {
        Port { fpx, ..self }
    }

    /// The same, whose FPX gets control cells at that time.
    pub fn with_control(self, at: Time, cells: Vec<Control>) -> Port {
        Port { control: Some((at, cells)), ..self }
    }

    /// The same with channels that the card passes on (D-12).
    pub fn with_passing(self, passing: Option<Passing>) -> Port {
        Port { passing, ..self }
    }

    fn act(&mut self, cx: &mut Context<'_>) {
        if let Some(fpx) = &mut self.fpx {
            fpx.advance(cx.now());
        }
        self.classified(cx);
        self.machine.advance(cx.now());
        let mut back = Vec::new();
        for output in self.machine.outputs() {
            match output {
                Output::Send(_, packet) if self.lent.remove(&packet.id) => back.push(packet),
                Output::Send(port, packet) => cx.send(port, packet),
                Output::Drop(packet, stage, reason) => {
                    self.lent.remove(&packet.id);
                    cx.drop(packet, Some(stage), reason);
                }
            }
        }
        for packet in back {
            if let Some(fpx) = &mut self.fpx {
                fpx.come_back(cx.now(), packet);
            }
        }
        self.classified(cx);
        let lookup = self.fpx.as_ref().and_then(Fpx::ready_at);
        match self.machine.ready_at().into_iter().chain(lookup).min() {
            Some(at) => cx.arm(DUE, at),
            None => cx.disarm(DUE),
        }
    }

    /// What the FPX has finished with.
    fn classified(&mut self, cx: &mut Context<'_>) {
        let Some(fpx) = &mut self.fpx else { return };
        let stage = fpx.stage();
        for one in fpx.outputs() {
            match one {
                Classified::Plain(packet) | Classified::ToLine(packet) => {
                    cx.send(PortId(0), packet)
                }
                Classified::Active(packet) => {
                    self.lent.insert(packet.id);
                    self.machine.arrive(cx.now(), Side::Classified, packet);
                }
                Classified::Unknown(packet) => self.machine.arrive(cx.now(), Side::Input, packet),
                Classified::Refused(packet) => cx.drop(packet, Some(stage), "lookup full"),
                Classified::Stopped(packet) => cx.drop(packet, Some(stage), "no module"),
            }
        }
    }
}

impl Element for Port {
    fn start(&mut self, cx: &mut Context<'_>) {
        if let Some((at, _)) = &self.control {
            cx.arm(CONTROL, *at);
        }
        self.act(cx);
    }
    fn receive(&mut self, cx: &mut Context<'_>, port: PortId, mut packet: Packet) {
        if let Some(passing) = self.passing.as_mut().filter(|one| one.class == packet.class) {
            return match passing.pass(cx.now(), &mut packet) {
                Some(left) => cx.send_at(PortId(0), packet, left),
                None => cx.drop(packet, Some(passing.stage), "overrun"),
            };
        }
        match (&mut self.fpx, port == FROM_FABRIC) {
            // The input side has already looked it up.
            (Some(_), true) if packet.class == 0 => cx.send(PortId(0), packet),
            (Some(fpx), false) => fpx.arrive(cx.now(), packet),
            (_, true) => self.machine.arrive(cx.now(), Side::Output, packet),
            (None, false) => self.machine.arrive(cx.now(), Side::Input, packet),
        }
        self.act(cx);
    }
    fn expire(&mut self, cx: &mut Context<'_>, timer: TimerId) {
        if timer == CONTROL
            && let (Some(fpx), Some((_, cells))) = (&mut self.fpx, self.control.take())
        {
            for cell in cells {
                fpx.control(cell).expect("these cells load a module that fits");
            }
        }
        self.act(cx);
    }
    fn timers(&self) -> u32 {
        2
    }
    fn report(&self, out: &mut Report) {
        let (plain, active, back) = self.fpx.as_ref().map_or((0, 0, 0), Fpx::counts);
        out.held(self.machine.held() + self.fpx.as_ref().map_or(0, Fpx::held));
        out.count("plain", plain);
        out.count("active", active);
        out.count("back", back);
        out.count("passed", self.passing.as_ref().map_or(0, |passing| passing.passed));
        out.count("overruns", self.machine.overruns());
        self.machine.meters().for_each(|meter| out.meter(meter));
    }
}
