//! What a benchmark puts around a router and beside it, in the kernel: a source, a sink, a forwarder.
//!
//! ```text
//! source --> router, or the forwarder of XDP with the kernel's lookup --> sink that drops in its driver
//! ```

use super::program::{ABORTED, CONTEXT, PACKET, STACK, begin, find, hop_count};
use crate::bpf::{self, Hook, If, Kind, Map, PASS, Program, Size};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

const KTIME: i32 = 5;
const REDIRECT: i32 = 23;
const FIB_LOOKUP: i32 = 69;
const DROP: i32 = 1;
/// The context's field: the interface at which a frame arrived.
const ARRIVED: i16 = 12;

/// A program of a benchmark at an interface, removed when this is dropped.
#[derive(Debug)]
pub struct Standing {
    _link: OwnedFd,
    _program: OwnedFd,
}

impl Standing {
    fn new(index: u32, program: &Program) -> io::Result<Standing> {
        let program = program.load_xdp()?;
        let link = bpf::attach(index, program.as_fd(), Hook::Driver)?;
        Ok(Standing { _link: link, _program: program })
    }
    /// A sink at interface `index`: frames are dropped as soon as its driver has them, and counted by it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn sink(index: u32) -> io::Result<Standing> {
        let mut p = Program::default();
        p.set(0, DROP);
        p.exit();
        Standing::new(index, &p)
    }
    /// A forwarder of IPv4 at interface `index` that asks the kernel for each packet's next hop, and redirects it: the
    /// least that an XDP program does that routes. What the kernel has no answer for, the kernel gets.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kernel_lookup(index: u32) -> io::Result<Standing> {
        /// `struct bpf_fib_lookup` on the stack, and its fields.
        const QUESTION: i16 = -64;
        const LEN: i32 = 64;
        const PROTOCOL: i16 = QUESTION + 1;
        const TOTAL_LEN: i16 = QUESTION + 6;
        const INTERFACE: i16 = QUESTION + 8;
        const SOURCE: i16 = QUESTION + 16;
        const DESTINATION: i16 = QUESTION + 32;
        const MACS: i16 = QUESTION + 52;
        const AF_INET: i32 = 2;
        let mut p = Program::default();
        let pass = p.label();
        begin(&mut p, 34, pass);
        p.load(Size::Half, 3, PACKET, 12);
        p.go_if(3, If::NotEqual, i32::from(0x0800u16.to_be()), pass);
        p.load(Size::Byte, 3, PACKET, 22);
        p.go_if(3, If::Below, 2, pass);
        for word in 0..8 {
            p.store_number(Size::Double, STACK, QUESTION + 8 * word, 0);
        }
        p.store_number(Size::Byte, STACK, QUESTION, AF_INET);
        p.load(Size::Byte, 3, PACKET, 23);
        p.store(Size::Byte, STACK, PROTOCOL, 3);
        p.load(Size::Half, 3, PACKET, 16);
        p.swap_half(3);
        p.store(Size::Half, STACK, TOTAL_LEN, 3);
        p.load(Size::Word, 3, CONTEXT, ARRIVED);
        p.store(Size::Word, STACK, INTERFACE, 3);
        for (at, field) in [(26, SOURCE), (30, DESTINATION)] {
            p.load(Size::Word, 3, PACKET, at);
            p.store(Size::Word, STACK, field, 3);
        }
        p.copy(1, CONTEXT);
        p.copy(2, STACK);
        p.add(2, i32::from(QUESTION));
        p.set(3, LEN);
        p.set(4, 0);
        p.call(FIB_LOOKUP);
        p.go_if(0, If::NotEqual, 0, pass);
        hop_count(&mut p);
        // The answer has the source's address first, a frame the destination's.
        for (field, at) in (MACS..).step_by(2).zip([6, 8, 10, 0, 2, 4]) {
            p.load(Size::Half, 3, STACK, field);
            p.store(Size::Half, PACKET, at, 3);
        }
        p.load(Size::Word, 1, STACK, INTERFACE);
        p.set(2, 0);
        p.call(REDIRECT);
        p.exit();
        p.place(pass);
        p.set(0, PASS);
        p.exit();
        Standing::new(index, &p)
    }
}

/// Frames made in the kernel, faster than any program sends them: a template, of which destination, check sum and
/// source port change from frame to frame.
#[derive(Debug)]
pub struct Generator {
    program: OwnedFd,
    state: Map<4, 88>,
    _list: Map<4, 8>,
    len: usize,
}

/// Bytes of the template that are written into each frame.
const TEMPLATE_LEN: usize = 42;

impl Generator {
    /// How often a frame looks at the clock until it is due; then it is dropped, for programs must end. Each look takes
    /// some 30 ns.
    const LOOKS: i32 = 100;

    /// Frames of `len` bytes on interface `index` that begin with `template` (Ethernet, IPv4 and UDP headers), to the
    /// destinations in turn, each with a source port of its own. `rate` in frames a second; 0 is as fast as possible.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new(
        index: u32,
        template: &[u8; TEMPLATE_LEN],
        len: usize,
        destinations: &[u32],
        rate: f64,
    ) -> io::Result<Generator> {
        let count = destinations.len() as u32;
        let list = Map::<4, 8>::new(Kind::Array, count.max(1))?;
        let value = |(number, destination): (usize, &u32)| {
            let mut header: [u8; 20] = template[14..34].try_into().unwrap_or_default();
            header[16..20].copy_from_slice(&destination.to_be_bytes());
            header[10..12].fill(0);
            let sum = lastmeter_wire::internet::checksum::Sum::of(&header).checksum();
            let port = 1024 + (number as u16 & 0x3fff);
            let mut value = [0; 8];
            value[..4].copy_from_slice(&destination.to_be_bytes());
            value[4..6].copy_from_slice(&sum.to_be_bytes());
            value[6..].copy_from_slice(&port.to_be_bytes());
            value
        };
        let values: Vec<[u8; 8]> = destinations.iter().enumerate().map(value).collect();
        let keys: Vec<[u8; 4]> = (0..count).map(u32::to_ne_bytes).collect();
        list.insert_all(&keys, &values)?;
        let state = Map::<4, 88>::new(Kind::Array, 1)?;
        let step = if rate > 0.0 { (1e9 / rate * 256.0) as u64 } else { 0 };
        let mut value = [0; 88];
        value[..4].copy_from_slice(&index.to_ne_bytes());
        value[4..8].copy_from_slice(&count.to_ne_bytes());
        value[16..24].copy_from_slice(&step.to_ne_bytes());
        value[40..40 + TEMPLATE_LEN].copy_from_slice(template);
        state.insert(&[0; 4], &value)?;
        let program = Generator::program(&state, &list).load_xdp()?;
        Ok(Generator { program, state, _list: list, len })
    }

    fn program(state: &Map<4, 88>, list: &Map<4, 8>) -> Program {
        const STATE: u8 = 9;
        const LEFT: u8 = 8;
        /// The most that is caught up after a pause: 1 ms.
        const CATCH_UP: i32 = 1_000_000 << 8;
        let mut p = Program::default();
        let (wrong, due, first) = (p.label(), p.label(), p.label());
        begin(&mut p, TEMPLATE_LEN as i32, wrong);
        p.store_number(Size::Word, STACK, -4, 0);
        find(&mut p, state.fd(), -4);
        p.go_if(0, If::Equal, 0, wrong);
        p.copy(STATE, 0);
        p.load(Size::Double, 3, STATE, 16);
        p.go_if(3, If::Equal, 0, due);
        // A frame waits until it is due. Were it dropped at once, the pool from which frames come would be asked many
        // times as often, at the cost of those who give its memory back on another core.
        let (late, paced) = (p.label(), p.label());
        let (look, is_due) = (p.label(), p.label());
        p.set(LEFT, Generator::LOOKS);
        p.place(look);
        p.call(KTIME);
        p.left(0, 8);
        p.load(Size::Double, 3, STATE, 24);
        p.go_if_register(0, If::AtLeast, 3, is_due);
        p.add(LEFT, -1);
        p.go_if(LEFT, If::NotEqual, 0, look);
        p.set(0, DROP);
        p.exit();
        p.place(is_due);
        p.copy(4, 0);
        p.subtract_register(4, 3);
        p.go_if(4, If::Above, CATCH_UP, late);
        p.load(Size::Double, 4, STATE, 16);
        p.add_register(3, 4);
        p.go(paced);
        p.place(late);
        p.copy(3, 0);
        p.place(paced);
        p.store(Size::Double, STATE, 24, 3);
        p.place(due);
        p.load(Size::Double, 3, STATE, 32);
        p.add(3, 1);
        p.store(Size::Double, STATE, 32, 3);
        for at in (0..40).step_by(8) {
            p.load(Size::Double, 3, STATE, 40 + at);
            p.store(Size::Double, PACKET, at, 3);
        }
        p.load(Size::Half, 3, STATE, 80);
        p.store(Size::Half, PACKET, 40, 3);
        p.load(Size::Word, 3, STATE, 8);
        p.load(Size::Word, 4, STATE, 4);
        p.go_if_register(3, If::Below, 4, first);
        p.set(3, 0);
        p.place(first);
        p.store(Size::Word, STACK, -4, 3);
        p.add(3, 1);
        p.store(Size::Word, STATE, 8, 3);
        find(&mut p, list.fd(), -4);
        p.go_if(0, If::Equal, 0, wrong);
        p.load(Size::Word, 3, 0, 0);
        p.store(Size::Word, PACKET, 30, 3);
        p.load(Size::Half, 3, 0, 4);
        p.store(Size::Half, PACKET, 24, 3);
        p.load(Size::Half, 3, 0, 6);
        p.store(Size::Half, PACKET, 34, 3);
        p.load(Size::Word, 1, STATE, 0);
        p.set(2, 0);
        p.call(REDIRECT);
        p.exit();
        p.place(wrong);
        p.set(0, ABORTED);
        p.exit();
        p
    }

    /// Makes so many frames, of which those are not sent that were not due within some microseconds. Returns when they
    /// are sent.
    ///
    /// # Errors
    /// When the kernel refuses, or a signal arrives.
    pub fn run(&self, frames: u32) -> io::Result<()> {
        const TEST_RUN: i32 = 10;
        const LIVE_FRAMES: u64 = 1 << 1;
        const BATCH: u64 = 64;
        let frame = vec![0u8; self.len];
        let mut context = [0u8; 24];
        context[4..8].copy_from_slice(&(self.len as u32).to_ne_bytes());
        let attribute = &mut [
            self.program.as_raw_fd() as u64,
            self.len as u64,
            frame.as_ptr() as u64,
            0,
            frames.into(),
            context.len() as u64,
            context.as_ptr() as u64,
            0,
            LIVE_FRAMES,
            BATCH,
        ];
        crate::port::memory::bpf_change(TEST_RUN, attribute)
    }
    /// Frames sent so far.
    pub fn sent(&self) -> u64 {
        let value = self.state.get(&[0; 4]).unwrap_or([0; 88]);
        value[32..40].try_into().map_or(0, u64::from_ne_bytes)
    }
}
