//! Entry point for fuzzing what hosts of channels receive: any bytes in, no panic.

use crate::datagram::{self, Datagram};
use lastmeter_wire::fuzz::Target;

/// All targets.
pub const TARGETS: &[Target] = &[Target { name: "fuzz_rtc_datagram", run: fuzz_rtc_datagram }];

/// A datagram: what is read is written as it was, and a host that hears it goes on, with tables that stay small.
pub fn fuzz_rtc_datagram(bytes: &[u8]) {
    let Ok(datagram) = Datagram::parse(bytes, None) else { return };
    assert_eq!(datagram.emit(None), bytes);
    datagram::hear(datagram);
}
