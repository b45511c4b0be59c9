//! The Field Programmable Port Extender, in front of a port processor: it handles ordinary packets.
//!
//! ```text
//!                     RAD: region 0, region 1     each with an SRAM and an SDRAM
//!                           |        |
//! line card --> [ NID: a four-port switch, a flow table on each port ] --> switch, port processor
//!                     control cells: tables, reprogram memory, reprogram
//!
//! packet --> FIPL --> plain:  on to the fabric, bypassing the processor
//!                 '-> active: to the processor on a circuit of its own, already classified
//! ```
//!
//! [`Nid`] routes circuits between its ports by tables that control cells write, and loads modules into the
//! regions of the RAD while all others keep running (D-15, D-16). [`Fpx`] is the part that takes time: packets
//! wait for lookup engines ([`crate::lookup_engines`]) and continue when their next hop is known. Packets of a
//! class other than 0 match a filter and go to the processor, which does no lookup for them (D-14).
//!
//! Source: description of the Dynamically Extensible Router, §2.3, §4.2, §9.1. Deviations: the document gives no
//! delay of NID and RAD, so only the engines take time here. It does not describe the layout of control cells;
//! ours have the same verbs. A packet that has been to the processor does not return to the FPX.

use crate::lookup_engines::{self, Engines};
use lastmeter_base::{Duration, Packet, StageId, Time};
use std::collections::{BTreeMap, VecDeque};

/// Most packets waiting for the engines.
pub const PACKETS_MAX: usize = 1024;

/// Most nodes on the path of a lookup, for all 32 bits (§9.1).
pub const NODES_MOST: u64 = 9;

/// The engines of §9: a word in 10 ns, and one request of each engine in 80 ns; the handover time is fitted to
/// D-136 in `experiments/fipl`.
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
    /// Towards the router's switch, with the processor in between.
    Switch,
    /// Towards the line card.
    Line,
    /// The first region of the RAD.
    Region0,
    /// The second region.
    Region1,
}

impl NidPort {
    /// All four.
    pub const ALL: [NidPort; 4] =
        [NidPort::Switch, NidPort::Line, NidPort::Region0, NidPort::Region1];
}

/// A command in a control cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Cells of a circuit that arrive at a port leave by another.
    Route {
        /// The port at which they arrive.
        from: NidPort,
        /// Their circuit.
        vci: u16,
        /// The port by which they leave; `None`: the default.
        to: Option<NidPort>,
    },
    /// A piece of a program for the RAD, to be written to the reprogram memory.
    Load {
        /// Its offset in the memory; pieces come in order.
        offset: usize,
        /// The piece.
        bytes: Vec<u8>,
    },
    /// Loads the reprogram memory into a region as its module; an empty memory removes the module.
    Reprogram {
        /// The region.
        region: usize,
    },
}

/// A module in a region of the RAD, with its memories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Its program.
    pub program: Vec<u8>,
    /// Words of static memory, for tables.
    pub sram: BTreeMap<u32, u32>,
    /// Words of dynamic memory, for packets.
    pub sdram: BTreeMap<u32, u64>,
}

/// Regions of the RAD; each has a bank of static and one of dynamic memory.
pub const REGIONS: usize = 2;
/// Memory banks of a region.
pub const BANKS_A_REGION: usize = 2;
/// Capacity of the reprogram memory in bytes: the configuration of a Virtex XCV1000E, the RAD's device.
pub const PROGRAM_MAX: usize = 823_000;

/// The Network Interface Device: a switch with its tables, which also loads the RAD (D-15).
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
    /// The loaded modules (D-16).
    pub regions: [Option<Module>; REGIONS],
}

impl Nid {
    /// The port by which a cell leaves; `None` if it would go to a region without a module, or arrives from one.
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

    /// A control cell arrives. Everything that it does not name stays as it is.
    ///
    /// # Errors
    /// If there is no such region, or a piece does not follow the previous one. Nothing has changed then.
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

    /// A piece of a program arrives.
    ///
    /// # Errors
    /// If it does not follow the previous one, or there is no room.
    pub fn load(&mut self, offset: usize, bytes: Vec<u8>) -> Result<(), String> {
        let loaded = self.memory.len();
        if offset != loaded {
            return Err(format!("a piece for offset {offset}, but {loaded} bytes are loaded"));
        }
        if bytes.len() > PROGRAM_MAX - loaded {
            return Err(format!("the reprogram memory holds {PROGRAM_MAX} bytes"));
        }
        self.memory.extend(bytes);
        Ok(())
    }
}

/// What happens to a packet after the FPX.
#[derive(Debug)]
pub enum Classified {
    /// It proceeds to the fabric.
    Plain(Packet),
    /// It goes to the processor, which does not look up its next hop.
    Active(Packet),
    /// The queue of the engines was full.
    Refused(Packet),
}

/// Packets that wait for lookup engines, and then continue.
pub struct Fpx {
    engines: Engines,
    nodes: u64,
    stage: StageId,
    /// Packets by the numbers of their lookups, and the lookups completed.
    waiting: VecDeque<(u64, Packet)>,
    ended: BTreeMap<u64, lookup_engines::Finished>,
    requested: u64,
    out: Vec<Classified>,
    plain: u64,
    active: u64,
}

impl Fpx {
    /// Engines whose lookups pass this many nodes each, with their time accounted to `stage`.
    pub fn new(options: lookup_engines::Options, nodes: u64, stage: StageId) -> Fpx {
        let engines = Engines::new(options);
        Fpx {
            engines,
            nodes,
            stage,
            waiting: VecDeque::new(),
            ended: BTreeMap::new(),
            requested: 0,
            out: Vec::new(),
            plain: 0,
            active: 0,
        }
    }

    /// A packet arrives from the line.
    pub fn arrive(&mut self, now: Time, mut packet: Packet) {
        self.advance(now);
        if self.waiting.len() >= PACKETS_MAX {
            self.out.push(Classified::Refused(packet));
            return;
        }
        packet.entered = now;
        self.waiting.push_back((self.requested, packet));
        self.requested += 1;
        self.engines.lookup(now, self.nodes);
    }

    /// When the next event is due.
    pub fn ready_at(&self) -> Option<Time> {
        self.engines.ready_at()
    }

    /// Handles everything due; packets leave in order even if a later lookup ends first.
    pub fn advance(&mut self, now: Time) {
        self.engines.advance(now);
        self.ended.extend(self.engines.finished().map(|one| (one.number, one)));
        let mut last = Time::START;
        while let Some(one) = self.waiting.front().and_then(|first| self.ended.remove(&first.0)) {
            let (_, mut packet) = self.waiting.pop_front().expect("the queue was found not empty");
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

    /// The packets that continue, in order.
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

    /// Packets that bypassed the processor, and packets that went to it.
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
    fn d_15_each_port_reaches_every_other_by_its_own_table() {
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
    fn d_16_a_module_is_loaded_in_pieces_and_can_be_removed() {
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
        fn d_15_a_control_cell_affects_only_the_flow_that_it_names(
            cells in prop::collection::vec((0_usize..4, 40_u16..60, 0_usize..6, 0_usize..3), 1..60),
        ) {
            let mut nid = Nid::default();
            nid.load(0, vec![1]).unwrap();
            nid.control(Control::Reprogram { region: 0 }).unwrap();
            // Other circuits, one of which passes through a module that stays.
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
                // Errors are refused, and change nothing.
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
        fn d_14_every_packet_leaves_once_in_order_and_where_its_class_says(
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
