//! eBPF without any library: programs as instructions, maps, and the hooks at interfaces.
//!
//! A program is attached by a link object, which goes away with its descriptor: a killed run leaves no program on an
//! interface. Source: the kernel's `Documentation/bpf/instruction-set.rst` and `map_xskmap.rst`; `linux/bpf.h`.

mod assemble;
mod map;

pub(crate) use assemble::{If, Label, Program, Size};
pub(crate) use map::{Kind, Map};

use crate::port::memory::bpf_new;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Where a program sees frames.
#[derive(Clone, Copy)]
pub(crate) enum Hook {
    /// Before the stack: every interface has it.
    Stack = 1 << 1,
    /// In the driver, where it can.
    Driver = 1 << 2,
}

/// What an interface's frames do when the map has no socket for their queue.
pub(crate) const PASS: i32 = 2;
/// The queue on which a frame arrived, in a program's context.
pub(crate) const QUEUE: i16 = 16;
/// Sockets of as many queues as an interface may have.
const QUEUES: u32 = 64;

/// The map with the socket of queue 0.
pub(crate) fn sockets(socket: BorrowedFd<'_>) -> io::Result<Map<4, 4>> {
    let map = Map::new(Kind::Sockets, QUEUES)?;
    map.insert(&0u32.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes())?;
    Ok(map)
}

/// The end of a program whose context is in `context`: the frame goes to the socket of its queue.
pub(crate) fn to_socket(program: &mut Program, context: u8, sockets: &Map<4, 4>) {
    const REDIRECT_MAP: i32 = 51;
    program.load(Size::Word, 2, context, QUEUE);
    program.map(1, sockets.fd());
    program.set(3, PASS);
    program.call(REDIRECT_MAP);
    program.exit();
}

/// Attaches a program to interface `index` of this namespace, for the lifetime of the returned descriptor.
///
/// # Errors
/// When the kernel refuses; it requires `CAP_BPF` and `CAP_NET_ADMIN` outside any user namespace.
pub(crate) fn attach(index: u32, program: BorrowedFd<'_>, hook: Hook) -> io::Result<OwnedFd> {
    const LINK_CREATE: i32 = 28;
    const ATTACH_XDP: u64 = 37;
    let target = program.as_raw_fd() as u64 | u64::from(index) << 32;
    bpf_new(LINK_CREATE, &mut [target, ATTACH_XDP | (hook as u64) << 32])
}

/// Redirects all frames arriving on queue 0 of interface `index` of this namespace to `socket`, for the lifetime of the
/// returned descriptor.
///
/// # Errors
/// As [`attach`].
pub(crate) fn redirect(index: u32, socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let sockets = sockets(socket)?;
    let mut program = Program::default();
    to_socket(&mut program, 1, &sockets);
    attach(index, program.load_xdp()?.as_fd(), Hook::Stack)
}
