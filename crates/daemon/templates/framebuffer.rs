//! NAME: a display that can be seen, but takes no keys, pointer or text.
#![no_std]
#![no_main]
#![allow(non_upper_case_globals, reason = "the interface's name")]

mod lastmeter;

use lastmeter::{ALLOW, DENY, Request};

lastmeter::plugin!(kinds: lastmeter::FRAMEBUFFER, wanted: 0, decide);

fn decide(request: &mut Request, _data: &mut [u8]) {
    let is_input = (5..=8).contains(&request.operation);
    request.verdict = if is_input { DENY } else { ALLOW };
}
