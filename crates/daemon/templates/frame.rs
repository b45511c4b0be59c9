//! NAME: sends every second frame, at half its quality.
#![no_std]
#![no_main]
#![allow(non_upper_case_globals, reason = "the interface's name")]

mod lastmeter;

use lastmeter::{DENY, QUALITY, Request};

lastmeter::plugin!(kinds: lastmeter::FRAME, wanted: 0, decide);

fn decide(request: &mut Request, _data: &mut [u8]) {
    let quality = request.code;
    request.verdict = if request.number() % 2 == 1 { DENY } else { QUALITY };
    request.code = (quality / 2).max(1);
}
