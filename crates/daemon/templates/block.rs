//! NAME: a disk of 4096 blocks that cannot be written.
#![no_std]
#![no_main]
#![allow(non_upper_case_globals, reason = "the interface's name")]

mod lastmeter;

use lastmeter::{DENY, READ_ONLY, Request};

lastmeter::plugin!(kinds: lastmeter::BLOCK, wanted: 0, decide);

fn decide(request: &mut Request, _data: &mut [u8]) {
    let is_inside = request.lba() <= 4096 && u64::from(request.blocks()) <= 4096 - request.lba();
    request.verdict = if is_inside { READ_ONLY } else { DENY };
    request.code = 0x05_21_00; // illegal request: LBA out of range
}
