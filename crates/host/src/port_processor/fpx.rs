//! The Field Programmable Port Extender, in front of a port processor: it handles ordinary packets.
//!
//! ```text
//!                     RAD: region 0, region 1     each with an SRAM and an SDRAM
//!                           |        |
//! line card --> [ NID: a four-port switch, a flow table on each port ] --> switch, port processor
//!                     control cells: tables, reprogram memory, reprogram
//!
//! from the line, on 50 --> FIPL --> on 40: past the processor to the fabric
//!                               '-> on 51: to the processor, already classified --> on 52: back, then on 40
//! ```
//!
//! [`Nid`] routes circuits between its ports by tables that control cells write, and loads modules into the
//! regions of the RAD while all others keep running (D-15, D-16). [`Fpx`] is the part that takes time. Every packet
//! goes where the table of its port of arrival says. In FIPL's region it lies in the SDRAM while it waits for
//! lookup engines ([`crate::lookup_engines`]) and continues when its next hop is known. What filters say of its class
//! is a word of the SRAM: packets of a class other than 0 go to the processor on a circuit of their own, which does no
//! lookup for them (D-14, D-94), and come back on another (D-127).
//!
//! As long as no module is loaded, nothing is routed to its region, and packets go to the processor on the circuit
//! on which they came, which then looks them up itself, as without an FPX.
//!
//! Source: description of the Dynamically Extensible Router, §2.3, §4.2, §9.1. Deviations: the document gives no
//! delay of NID and RAD, so only the engines take time here. It does not describe the layout of control cells;
//! ours have the same verbs. It says of circuits that they are special, and prints no numbers but 40.

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

/// Packets from a line.
pub const FROM_LINE: u16 = 50;
/// Packets for the processor, which have been looked up.
pub const ACTIVE: u16 = 51;
/// Packets that come back from the processor.
pub const BACK: u16 = 52;
/// Packets that go on to their next hop.
pub const ONWARDS: u16 = 40;
/// The region in which FIPL is loaded.
const FIPL: usize = 0;
/// Limit on lookups of a packet's circuit before it leaves.
const PASSES_MAX: u32 = 4;

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
    /// A word of a module's tables, for its SRAM.
    Write {
        /// The region.
        region: usize,
        /// Where it is.
        address: u32,
        /// What it is; zero is as if it had never been written.
        word: u32,
    },
}

/// A module in a region of the RAD, with its memories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Its program.
    pub program: Vec<u8>,
    /// Words of static memory, for tables.
    pub sram: BTreeMap<u32, u32>,
    /// Packets in dynamic memory, by where they are.
    pub sdram: BTreeMap<u32, u64>,
}

/// Words of an SRAM. The document gives no size; the choice is ours.
pub const SRAM_WORDS: u32 = 1 << 18;

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
            Control::Write { region, address, word } => {
                let module = self.regions.get_mut(region).and_then(Option::as_mut);
                let module = module.ok_or_else(|| format!("no module in region {region}"))?;
                match (address < SRAM_WORDS, word) {
                    (false, _) => return Err(format!("an SRAM has {SRAM_WORDS} words")),
                    (_, 0) => drop(module.sram.remove(&address)),
                    (_, word) => drop(module.sram.insert(address, word)),
                }
                Ok(())
            }
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
    /// It proceeds to the fabric, past the processor.
    Plain(Packet),
    /// It goes to the processor, which does not look up its next hop.
    Active(Packet),
    /// It goes to the processor as it came: no module has looked it up.
    Unknown(Packet),
    /// It leaves by the line.
    ToLine(Packet),
    /// The memory for packets was full.
    Refused(Packet),
    /// Its circuit leads to a region without a module, or in a circle.
    Stopped(Packet),
}

/// The FPX in the way of packets: its NID, and FIPL's engines in the first region.
pub struct Fpx {
    nid: Nid,
    engines: Engines,
    nodes: u64,
    stage: StageId,
    /// Packets in the SDRAM by the numbers of their lookups, and the lookups completed.
    waiting: VecDeque<(u64, Packet)>,
    ended: BTreeMap<u64, lookup_engines::Finished>,
    requested: u64,
    out: Vec<Classified>,
    plain: u64,
    active: u64,
    back: u64,
}

/// What loads FIPL: its program, its filters, and the circuits that lead to and from it.
pub fn load_fipl(active: impl IntoIterator<Item = u8>) -> Vec<Control> {
    let region = NidPort::Region0;
    let route = |from, vci, to| Control::Route { from, vci, to: Some(to) };
    let write =
        |class: u8| Control::Write { region: FIPL, address: class.into(), word: ACTIVE.into() };
    let mut cells = vec![
        Control::Load { offset: 0, bytes: b"FIPL".to_vec() },
        Control::Reprogram { region: FIPL },
    ];
    cells.extend(active.into_iter().map(write));
    cells.extend([
        route(region, ONWARDS, NidPort::Switch),
        route(region, ACTIVE, NidPort::Switch),
        route(NidPort::Switch, BACK, region),
        route(NidPort::Line, FROM_LINE, region),
    ]);
    cells
}

impl Fpx {
    /// With FIPL loaded: engines whose lookups pass this many nodes each, with their time accounted to `stage`. Packets
    /// of a class other than 0 match a filter.
    pub fn new(options: lookup_engines::Options, nodes: u64, stage: StageId) -> Fpx {
        let mut fpx = Fpx::empty(options, nodes, stage);
        for cell in load_fipl(1..=u8::MAX) {
            fpx.control(cell).expect("FIPL fits, and its circuits exist");
        }
        fpx
    }

    /// With empty regions: all packets go on to the processor.
    pub fn empty(options: lookup_engines::Options, nodes: u64, stage: StageId) -> Fpx {
        let engines = Engines::new(options);
        Fpx {
            nid: Nid::default(),
            engines,
            nodes,
            stage,
            waiting: VecDeque::new(),
            ended: BTreeMap::new(),
            requested: 0,
            out: Vec::new(),
            plain: 0,
            active: 0,
            back: 0,
        }
    }

    /// A control cell arrives. Packets in a module that is removed are looked up to the end.
    ///
    /// # Errors
    /// As [`Nid::control`].
    pub fn control(&mut self, cell: Control) -> Result<(), String> {
        self.nid.control(cell)
    }

    /// The module of a region.
    pub fn module(&self, region: usize) -> Option<&Module> {
        self.nid.regions.get(region)?.as_ref()
    }

    /// A packet arrives from the line.
    pub fn arrive(&mut self, now: Time, packet: Packet) {
        self.advance(now);
        self.route(now, (NidPort::Line, FROM_LINE), packet);
    }

    /// A packet comes back from the processor (D-127).
    pub fn come_back(&mut self, now: Time, packet: Packet) {
        self.advance(now);
        self.back += 1;
        self.route(now, (NidPort::Switch, BACK), packet);
    }

    /// A packet goes where the tables say.
    fn route(&mut self, now: Time, (mut from, mut vci): (NidPort, u16), packet: Packet) {
        let first = vci != BACK;
        for _ in 0..PASSES_MAX {
            let to = self.nid.route(from, vci);
            let one = match to {
                Some(NidPort::Line) => Classified::ToLine(packet),
                Some(NidPort::Switch) => match vci {
                    ONWARDS => {
                        self.plain += u64::from(first);
                        Classified::Plain(packet)
                    }
                    ACTIVE => {
                        self.active += 1;
                        Classified::Active(packet)
                    }
                    _ => Classified::Unknown(packet),
                },
                Some(NidPort::Region0) if vci == FROM_LINE => return self.look_up(now, packet),
                // What comes back is forwarded by FIPL without another lookup; a module of the other region leaves
                // packets and their circuit as they are.
                Some(region) => {
                    vci = if region == NidPort::Region0 { ONWARDS } else { vci };
                    from = region;
                    continue;
                }
                None => Classified::Stopped(packet),
            };
            return self.out.push(one);
        }
        self.out.push(Classified::Stopped(packet));
    }

    /// A packet is stored in FIPL's SDRAM and looked up.
    fn look_up(&mut self, now: Time, mut packet: Packet) {
        let module = self.nid.regions[FIPL].as_mut().expect("routed to a region with a module");
        if module.sdram.len() >= PACKETS_MAX {
            self.out.push(Classified::Refused(packet));
            return;
        }
        packet.entered = now;
        module.sdram.insert(place(self.requested), packet.id);
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
            let (number, mut packet) =
                self.waiting.pop_front().expect("the queue was found not empty");
            let left = one.at.max(last);
            last = left;
            let service = one.latency.min(left - packet.entered);
            let wait = (left - packet.entered) - service;
            packet.visit(self.stage, wait, service, Duration::ZERO);
            packet.entered = left;
            let module = self.nid.regions[FIPL].as_mut();
            let word = module.and_then(|module| {
                module.sdram.remove(&place(number));
                module.sram.get(&packet.class.into()).copied()
            });
            let vci = word.and_then(|word| u16::try_from(word).ok()).unwrap_or(ONWARDS);
            self.route(left, (NidPort::Region0, vci), packet);
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

    /// Packets that bypassed the processor, packets that went to it, and those of them that came back.
    pub fn counts(&self) -> (u64, u64, u64) {
        (self.plain, self.active, self.back)
    }
}

/// Where the packet of a lookup lies in the SDRAM.
fn place(number: u64) -> u32 {
    (number % PACKETS_MAX as u64) as u32
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

    /// Sends packets of these classes through, 100 ns apart: which are plain, active and unknown.
    fn pass(fpx: &mut Fpx, from: Time, classes: &[u8]) -> [usize; 3] {
        let mut counts = [0; 3];
        for (id, &class) in classes.iter().enumerate() {
            let mut packet = Packet::new(Bytes(40));
            (packet.id, packet.class) = (id as u64, class);
            fpx.arrive(from + Duration::from_ns(100) * id as u64, packet);
        }
        while let Some(next) = fpx.ready_at() {
            fpx.advance(next);
        }
        for one in fpx.outputs() {
            match one {
                Classified::Plain(_) => counts[0] += 1,
                Classified::Active(_) => counts[1] += 1,
                Classified::Unknown(_) => counts[2] += 1,
                other => panic!("{other:?}"),
            }
        }
        counts
    }

    #[test]
    fn d_15_d_16_packets_go_where_tables_and_memories_say_while_modules_come_and_go() {
        let mut fpx = Fpx::empty(fipl(8), NODES_MOST, StageId(0));
        let classes = [0, 1, 0, 2];
        let at = |us| Time::START + Duration::from_us(us);
        assert_eq!(pass(&mut fpx, at(0), &classes), [0, 0, 4], "no module: all to the processor");
        for cell in load_fipl([1]) {
            fpx.control(cell).unwrap();
        }
        assert_eq!(
            pass(&mut fpx, at(100), &classes),
            [3, 1, 0],
            "the filter's word is in the SRAM"
        );
        assert_eq!(fpx.module(0).unwrap().sram.len(), 1);
        assert!(fpx.module(0).unwrap().sdram.is_empty(), "packets have left the SDRAM");
        // Another word while it runs.
        let word = ACTIVE.into();
        fpx.control(Control::Write { region: 0, address: 2, word }).unwrap();
        assert_eq!(pass(&mut fpx, at(200), &classes), [2, 2, 0]);
        assert!(fpx.control(Control::Write { region: 1, address: 2, word }).is_err());
        assert!(fpx.control(Control::Write { region: 0, address: SRAM_WORDS, word }).is_err());
        // The SDRAM holds packets as long as they wait.
        for _ in 0..5 {
            fpx.arrive(at(300), Packet::new(Bytes(40)));
        }
        assert_eq!(fpx.module(0).unwrap().sdram.len() as u64, fpx.held());
        assert!(fpx.held() > 0);
        while let Some(next) = fpx.ready_at() {
            fpx.advance(next);
        }
        assert_eq!(fpx.outputs().count(), 5);
        // Removed, the line's circuit leads nowhere, until the table says otherwise.
        fpx.control(Control::Reprogram { region: 0 }).unwrap();
        fpx.arrive(at(400), Packet::new(Bytes(40)));
        assert!(matches!(fpx.outputs().next(), Some(Classified::Stopped(_))));
        let to = None;
        fpx.control(Control::Route { from: NidPort::Line, vci: FROM_LINE, to }).unwrap();
        assert_eq!(pass(&mut fpx, at(500), &classes), [0, 0, 4]);
    }

    #[test]
    fn d_15_circuits_in_a_circle_end() {
        let mut fpx = Fpx::new(fipl(1), NODES_MOST, StageId(0));
        fpx.control(Control::Load { offset: 0, bytes: vec![1] }).unwrap();
        fpx.control(Control::Reprogram { region: 1 }).unwrap();
        for (from, to) in [(NidPort::Line, NidPort::Region1), (NidPort::Region1, NidPort::Region1)]
        {
            fpx.control(Control::Route { from, vci: FROM_LINE, to: Some(to) }).unwrap();
        }
        fpx.arrive(Time::START, Packet::new(Bytes(40)));
        assert!(matches!(fpx.outputs().next(), Some(Classified::Stopped(_))));
    }

    #[test]
    fn d_127_what_comes_back_goes_on_without_another_lookup() {
        let mut fpx = Fpx::new(fipl(1), NODES_MOST, StageId(0));
        let mut packet = Packet::new(Bytes(40));
        packet.class = 1;
        fpx.come_back(Time::START, packet);
        assert!(
            matches!(fpx.outputs().next(), Some(Classified::Plain(packet)) if packet.class == 1)
        );
        assert_eq!((fpx.counts(), fpx.held()), ((0, 0, 1), 0));
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
                    other => unreachable!("there is room for all, and a module: {other:?}"),
                });
            }
            let expected: Vec<_> = (0..classes.len() as u64).map(|id| (id, true)).collect();
            prop_assert_eq!(got, expected);
            prop_assert_eq!(fpx.held(), 0);
        }
    }
}
