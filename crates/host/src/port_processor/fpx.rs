//! The Field Programmable Port Extender: in front of a port processor, it handles ordinary packets.
//!
//! ```text
//!                     RAD: region 0, region 1     each with an SRAM and an SDRAM
//!                           |        |
//! line card --> [ NID: a switch of four ports, a table of flows on each ] --> switch, port processor
//!                     control cells: tables, reprogram memory, reprogram
//!
//! packet --> FIPL --> plain:  on to the fabric, past the processor
//!                 '-> active: to the processor on a circuit of its own, classified already
//! ```
//!
//! [`Nid`] routes circuits between its ports by tables that control cells write, and loads modules into the
//! regions of the RAD while all others go on (D-15, D-16). [`Fpx`] is the part that has time: packets wait for
//! lookup engines ([`crate::lookup_engines`]), and go on when their next hop is known. Packets of a class other
//! than 0 match a filter, and go to the processor, which looks nothing up for them (D-14).
//!
//! Source: description of the Dynamically Extensible Router, §2.3, §4.2, §9.1. Deviations: the document gives no
//! delay of NID and RAD, so they have none but that of the engines; the layout of control cells is not
//! described, and ours has the same verbs; a packet that has been to the processor does not come to the FPX
//! again.

use crate::lookup_engines::{self, Engines};
use lastmeter_base::{Duration, Packet, StageId, Time};
use std::collections::{BTreeMap, VecDeque};

/// Packets that wait for the engines at most.
pub const PACKETS_MAX: usize = 1024;

/// Nodes that a lookup passes at most, all of its 32 bits (§9.1).
pub const NODES_MOST: u64 = 9;

/// The engines of §9: a word in 10 ns and one of each engine in 80; what hands over is fitted in
/// `experiments/fipl` to D-136.
pub fn fipl(engines: usize) -> lookup_engines::Options {
    lookup_engines::Options {
        engines,
        cycle: Duration::from_ns(10),
        period: Duration::from_ns(80),
        handover: Duration::from_ns(30),
        supply: Duration::from_ns(99),
        in_order: true,
    }
}

/// The ports of the NID's switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NidPort {
    /// Towards the router's switch, and the processor before it.
    Switch,
    /// Towards the line card.
    Line,
    /// The RAD's first region.
    Region0,
    /// Its other one.
    Region1,
}

impl NidPort {
    /// All four.
    pub const ALL: [NidPort; 4] =
        [NidPort::Switch, NidPort::Line, NidPort::Region0, NidPort::Region1];
}

/// What a control cell asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Cells of a circuit that come in on a port leave by another.
    Route {
        /// Where they come in.
        from: NidPort,
        /// Their circuit.
        vci: u16,
        /// Where they leave; `None`: the default.
        to: Option<NidPort>,
    },
    /// A piece of a program for the RAD, into the reprogram memory.
    Load {
        /// Where in the memory; pieces come in order.
        offset: usize,
        /// The piece.
        bytes: Vec<u8>,
    },
    /// The reprogram memory becomes the module of a region; an empty memory takes the module away.
    Reprogram {
        /// Which region.
        region: usize,
    },
}

/// A module in a region of the RAD, with its memories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// What it was programmed with.
    pub program: Vec<u8>,
    /// Words of its static memory, for tables.
    pub sram: BTreeMap<u32, u32>,
    /// Words of its dynamic memory, for packets.
    pub sdram: BTreeMap<u32, u64>,
}

/// The regions of the RAD; each has a bank of static and one of dynamic memory.
pub const REGIONS: usize = 2;
/// Banks of memory of a region.
pub const BANKS_A_REGION: usize = 2;
/// What the reprogram memory holds, in bytes: as much as a Virtex XCV1000E takes, the RAD's device.
pub const PROGRAM_MAX: usize = 823_000;

/// The Network Interface Device: a switch, its tables, and who loads the RAD (D-15).
///
/// ```
/// use lastmeter_host::port_processor::fpx::{Control, Nid, NidPort};
/// let mut nid = Nid::default();
/// // By default: from the line card to the switch, and back.
/// assert_eq!(nid.route(NidPort::Line, 50), Some(NidPort::Switch));
/// nid.load(0, vec![7; 100])?;
/// assert!(nid.route(NidPort::Line, 60).is_some());
/// nid.control(Control::Reprogram { region: 0 })?;
/// nid.control(Control::Route { from: NidPort::Line, vci: 50, to: Some(NidPort::Region0) })?;
/// assert_eq!(nid.route(NidPort::Line, 50), Some(NidPort::Region0));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Nid {
    tables: [BTreeMap<u16, NidPort>; 4],
    memory: Vec<u8>,
    /// The modules that are loaded (D-16).
    pub regions: [Option<Module>; REGIONS],
}

impl Nid {
    /// By which port a cell leaves; `None` where it would go to a region without a module, or come from one.
    pub fn route(&self, from: NidPort, vci: u16) -> Option<NidPort> {
        let to = self.tables[from as usize].get(&vci).copied().unwrap_or(match from {
            NidPort::Line => NidPort::Switch,
            _ => NidPort::Line,
        });
        let loaded = |port: NidPort| match port {
            NidPort::Region0 => self.regions[0].is_some(),
            NidPort::Region1 => self.regions[1].is_some(),
            NidPort::Switch | NidPort::Line => true,
        };
        (loaded(from) && loaded(to)).then_some(to)
    }

    /// A control cell comes: everything else stays as it was.
    ///
    /// # Errors
    /// If there is no such region, or a piece does not follow the one before. Nothing has changed then.
    pub fn control(&mut self, cell: Control) -> Result<(), String> {
        match cell {
            Control::Route { from, vci, to } => {
                let table = &mut self.tables[from as usize];
                match to {
                    Some(to) => drop(table.insert(vci, to)),
                    None => drop(table.remove(&vci)),
                }
                Ok(())
            }
            Control::Load { offset, bytes } => self.load(offset, bytes),
            Control::Reprogram { region } => {
                let module = self.regions.get_mut(region);
                let module = module.ok_or_else(|| format!("there is no region {region}"))?;
                let program = std::mem::take(&mut self.memory);
                *module = (!program.is_empty()).then(|| Module { program, ..Module::default() });
                Ok(())
            }
        }
    }

    /// A piece of a program comes.
    ///
    /// # Errors
    /// If it does not follow the one before, or there is no room.
    pub fn load(&mut self, offset: usize, bytes: Vec<u8>) -> Result<(), String> {
        let loaded = self.memory.len();
        if offset != loaded {
            return Err(format!("a piece for {offset} comes where {loaded} bytes are loaded"));
        }
        if bytes.len() > PROGRAM_MAX - loaded {
            return Err(format!("the reprogram memory holds {PROGRAM_MAX} bytes"));
        }
        self.memory.extend(bytes);
        Ok(())
    }
}

/// What happens to a packet behind the FPX.
#[derive(Debug)]
pub enum Classified {
    /// It proceeds to the fabric.
    Plain(Packet),
    /// It goes to the processor, which need not look its next hop up.
    Active(Packet),
    /// The queue of the engines was full.
    Refused(Packet),
}

/// Packets that wait for lookup engines, and go on.
pub struct Fpx {
    engines: Engines,
    nodes: u64,
    stage: StageId,
    /// Packets by the numbers of their lookups, and what has ended of them.
    waiting: VecDeque<(u64, Packet)>,
    ended: BTreeMap<u64, lookup_engines::Finished>,
    asked: u64,
    out: Vec<Classified>,
    plain: u64,
    active: u64,
}

impl Fpx {
    /// Engines whose lookups pass so many nodes each, and whose time is that of `stage`.
    pub fn new(options: lookup_engines::Options, nodes: u64, stage: StageId) -> Fpx {
        let engines = Engines::new(options);
        Fpx {
            engines,
            nodes,
            stage,
            waiting: VecDeque::new(),
            ended: BTreeMap::new(),
            asked: 0,
            out: Vec::new(),
            plain: 0,
            active: 0,
        }
    }

    /// A packet comes from the line.
    pub fn arrive(&mut self, now: Time, mut packet: Packet) {
        self.advance(now);
        if self.waiting.len() >= PACKETS_MAX {
            self.out.push(Classified::Refused(packet));
            return;
        }
        packet.entered = now;
        self.waiting.push_back((self.asked, packet));
        self.asked += 1;
        self.engines.lookup(now, self.nodes);
    }

    /// When something happens next.
    pub fn ready_at(&self) -> Option<Time> {
        self.engines.ready_at()
    }

    /// Does what is due; packets leave in order even if a later lookup ends first.
    pub fn advance(&mut self, now: Time) {
        self.engines.advance(now);
        self.ended.extend(self.engines.finished().map(|one| (one.number, one)));
        let mut last = Time::START;
        while let Some(one) = self.waiting.front().and_then(|first| self.ended.remove(&first.0)) {
            let (_, mut packet) = self.waiting.pop_front().expect("a first one was seen");
            let left = one.at.max(last);
            last = left;
            let service = one.latency.min(left - packet.entered);
            let wait = (left - packet.entered) - service;
            packet.visit(self.stage, wait, service, Duration::ZERO);
            packet.entered = left;
            if packet.class == 0 {
                self.plain += 1;
                self.out.push(Classified::Plain(packet));
            } else {
                self.active += 1;
                self.out.push(Classified::Active(packet));
            }
        }
    }

    /// What goes on, in order.
    pub fn outputs(&mut self) -> std::vec::Drain<'_, Classified> {
        self.out.drain(..)
    }

    /// Packets that wait.
    pub fn held(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// The stage of its lookups.
    pub fn stage(&self) -> StageId {
        self.stage
    }

    /// Packets that went past the processor, and to it.
    pub fn counts(&self) -> (u64, u64) {
        (self.plain, self.active)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::Bytes;
    use proptest::prelude::*;

    #[test]
    fn d_15_every_port_leads_to_every_other_by_its_own_table() {
        let mut nid = Nid::default();
        for region in 0..REGIONS {
            nid.load(0, vec![1]).unwrap();
            nid.control(Control::Reprogram { region }).unwrap();
        }
        for from in NidPort::ALL {
            for (vci, to) in (40..).zip(NidPort::ALL) {
                nid.control(Control::Route { from, vci, to: Some(to) }).unwrap();
                assert_eq!(nid.route(from, vci), Some(to));
                nid.control(Control::Route { from, vci, to: None }).unwrap();
            }
        }
        assert_eq!(nid.route(NidPort::Switch, 40), Some(NidPort::Line));
    }

    #[test]
    fn d_16_a_module_is_loaded_in_pieces_and_taken_away_again() {
        let mut nid = Nid::default();
        nid.control(Control::Load { offset: 0, bytes: vec![1, 2] }).unwrap();
        assert!(nid.control(Control::Load { offset: 3, bytes: vec![9] }).is_err(), "a gap");
        nid.control(Control::Load { offset: 2, bytes: vec![3] }).unwrap();
        assert!(nid.control(Control::Reprogram { region: REGIONS }).is_err());
        nid.control(Control::Reprogram { region: 1 }).unwrap();
        assert_eq!(nid.regions[1].as_ref().unwrap().program, [1, 2, 3]);
        assert!(nid.regions[0].is_none());
        nid.control(Control::Reprogram { region: 1 }).unwrap();
        assert!(nid.regions[1].is_none());
        assert!(nid.load(0, vec![0; PROGRAM_MAX + 1]).is_err());
    }

    proptest! {
        #[test]
        fn d_15_no_control_cell_moves_a_flow_that_it_does_not_name(
            cells in prop::collection::vec((0_usize..4, 40_u16..60, 0_usize..6, 0_usize..3), 1..60),
        ) {
            let mut nid = Nid::default();
            nid.load(0, vec![1]).unwrap();
            nid.control(Control::Reprogram { region: 0 }).unwrap();
            // Flows of other circuits, one of them through a module that stays.
            nid.control(Control::Route {
                from: NidPort::Line,
                vci: 70,
                to: Some(NidPort::Region0),
            }).unwrap();
            let flows = |nid: &Nid| {
                [(NidPort::Line, 70), (NidPort::Region0, 70), (NidPort::Switch, 71)]
                    .map(|(from, vci)| nid.route(from, vci))
            };
            let before = flows(&nid);
            for (from, vci, to, what) in cells {
                // Mistakes are refused, and change nothing.
                let port = NidPort::ALL.get(to).copied();
                drop(nid.control(match what {
                    0 => Control::Route { from: NidPort::ALL[from], vci, to: port },
                    1 => Control::Load { offset: to, bytes: vec![7; from] },
                    _ => Control::Reprogram { region: 1 },
                }));
                prop_assert_eq!(flows(&nid), before);
            }
        }

        #[test]
        fn d_14_every_packet_goes_on_once_in_order_and_to_whom_its_class_says(
            classes in prop::collection::vec(0_u8..3, 1..200),
            gap in 0_u64..400,
            engines in 1_usize..=8,
        ) {
            let mut fpx = Fpx::new(fipl(engines), NODES_MOST, StageId(0));
            let mut got = Vec::new();
            let mut now = Time::START;
            for (id, &class) in classes.iter().enumerate() {
                now += Duration::from_ns(gap);
                let mut packet = Packet::new(Bytes(40));
                (packet.id, packet.class) = (id as u64, class);
                fpx.arrive(now, packet);
            }
            while let Some(next) = fpx.ready_at() {
                fpx.advance(next);
            }
            for one in fpx.outputs() {
                got.push(match one {
                    Classified::Plain(packet) => (packet.id, packet.class == 0),
                    Classified::Active(packet) => (packet.id, packet.class != 0),
                    Classified::Refused(_) => unreachable!("there is room for all"),
                });
            }
            let expected: Vec<_> = (0..classes.len() as u64).map(|id| (id, true)).collect();
            prop_assert_eq!(got, expected);
            prop_assert_eq!(fpx.held(), 0);
        }
    }
}
