//! NAME: drops packets to TCP port 23.
#![no_std]
#![no_main]
#![allow(non_upper_case_globals, reason = "the interface's name")]

mod lastmeter;

use lastmeter::{ALLOW, DENY, Request};

lastmeter::plugin!(kinds: lastmeter::PACKET, wanted: 64, decide);

fn decide(request: &mut Request, data: &mut [u8]) {
    let data = &data[..request.captured as usize];
    let is_telnet = is_to_port(data, 23);
    request.verdict = if is_telnet { DENY } else { ALLOW };
    request.code = u32::from(is_telnet);
}

/// Whether it is the first fragment of a TCP segment over IPv4 to this port.
fn is_to_port(data: &[u8], port: u16) -> bool {
    let Some(header) = data.first_chunk::<20>() else { return false };
    let length = usize::from(header[0] & 15) * 4;
    let is_first = u16::from_be_bytes([header[6], header[7]]) & 0x1fff == 0;
    header[0] >> 4 == 4
        && header[9] == 6
        && is_first
        && data.get(length + 2..length + 4) == Some(&port.to_be_bytes()[..])
}
