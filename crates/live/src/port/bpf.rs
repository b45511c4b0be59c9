//! The eBPF program that redirects an interface's frames to an AF_XDP socket, as instructions, loaded
//! without any library.
//!
//! ```text
//! r2 = context.rx_queue_index
//! r1 = map                          the socket of each queue
//! r3 = XDP_PASS                     for frames of a queue without socket
//! call bpf_redirect_map
//! exit
//! ```
//!
//! The program is attached by a link object, which goes away with its descriptor: a killed run leaves no
//! program on an interface. Source: the kernel's `Documentation/bpf/instruction-set.rst` and
//! `map_xskmap.rst`; `linux/bpf.h`.

use super::memory::{bpf_change, bpf_new};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

const MAP_CREATE: i32 = 0;
const MAP_UPDATE: i32 = 2;
const PROGRAM_LOAD: i32 = 5;
const LINK_CREATE: i32 = 28;
const MAP_TYPE_XSK: u64 = 17;
const PROGRAM_TYPE_XDP: u64 = 6;
const ATTACH_XDP: u64 = 37;
/// The generic hook, which every interface has.
const SKB_MODE: u64 = 1 << 1;
const QUEUES: u64 = 64;

/// One instruction: operation, registers (source above destination), offset, number.
const fn instruction(operation: u8, to: u8, from: u8, offset: i16, number: i32) -> u64 {
    let registers = (from << 4 | to) as u64;
    operation as u64
        | registers << 8
        | ((offset as u16) as u64) << 16
        | ((number as u32) as u64) << 32
}

/// The program for a map.
fn program(map: i32) -> [u64; 6] {
    const LOAD_WORD: u8 = 0x61;
    const LOAD_NUMBER: u8 = 0x18;
    const MOVE_NUMBER: u8 = 0xb7;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    const MAP_BY_DESCRIPTOR: u8 = 1;
    const RX_QUEUE_INDEX: i16 = 16;
    const XDP_PASS: i32 = 2;
    const REDIRECT_MAP: i32 = 51;
    [
        instruction(LOAD_WORD, 2, 1, RX_QUEUE_INDEX, 0),
        instruction(LOAD_NUMBER, 1, MAP_BY_DESCRIPTOR, 0, map),
        0,
        instruction(MOVE_NUMBER, 3, 0, 0, XDP_PASS),
        instruction(CALL, 0, 0, 0, REDIRECT_MAP),
        instruction(EXIT, 0, 0, 0, 0),
    ]
}

/// Two 32-bit words as one 64-bit word, low word first.
const fn pair(low: u64, high: u64) -> u64 {
    low | high << 32
}

/// Redirects frames arriving on queue 0 of interface `index` of this namespace to `socket`, for the
/// lifetime of the returned descriptor.
///
/// # Errors
/// When the kernel refuses; it requires `CAP_BPF` and `CAP_NET_ADMIN` outside any user namespace.
pub(crate) fn redirect(index: u32, socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // Type and key size; value size and entries.
    let map = bpf_new(MAP_CREATE, &mut [pair(MAP_TYPE_XSK, 4), pair(4, QUEUES)])?;
    let (key, value) = (0u32, socket.as_raw_fd());
    let (key_at, value_at) = (&raw const key as u64, &raw const value as u64);
    bpf_change(MAP_UPDATE, &mut [map.as_raw_fd() as u64, key_at, value_at, 0])?;
    let instructions = program(map.as_raw_fd());
    let licence = c"Apache-2.0";
    let program = bpf_new(
        PROGRAM_LOAD,
        &mut [
            pair(PROGRAM_TYPE_XDP, instructions.len() as u64),
            instructions.as_ptr() as u64,
            licence.as_ptr() as u64,
        ],
    )?;
    let target = pair(program.as_raw_fd() as u64, index.into());
    bpf_new(LINK_CREATE, &mut [target, pair(ATTACH_XDP, SKB_MODE)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_laid_out_as_the_kernel_reads_them() {
        // r2 = *(u32 *)(r1 + 16): operation 61, registers 12, offset 0010.
        assert_eq!(program(7)[0].to_le_bytes(), [0x61, 0x12, 0x10, 0, 0, 0, 0, 0]);
        assert_eq!(program(7)[1].to_le_bytes(), [0x18, 0x11, 0, 0, 7, 0, 0, 0]);
        assert_eq!(program(7)[5].to_le_bytes(), [0x95, 0, 0, 0, 0, 0, 0, 0]);
    }
}
