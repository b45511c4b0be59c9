//! RSVP-TE between routers: reservations that travel hop by hop, with the labels of their packets (RFC 2205, RFC 3209).
//!
//! ```text
//!            PATH -->            PATH -->            PATH -->
//! ingress ------------- transit ------------- transit ------------- egress     what is wanted, and by which way
//!            <-- RESV, label 21  <-- RESV, label 17  <-- RESV, label 30        admitted here, told with a label
//! ```
//!
//! [`message`] is the format, [`machine`] what a router does with messages and time. Left out are merging
//! of several senders and styles other than fixed filter (a tunnel has one sender), ADSPEC and guaranteed service of
//! our own (others' is admitted at its rate), pre-emption, RECORD_ROUTE, summary refreshes, and authentication (ports
//! that take messages are chosen in `router.toml`).
//!
//! Messages are packets of IP with protocol 46; PATH and what follows it have the Router Alert option (RFC 2113), by
//! which routers on the way take them though they are for the end of the tunnel. So no socket of the kernel is needed
//! that could not tell where a message arrived.
//!
//! Rows: D-43.

pub mod machine;
pub mod message;

/// The protocol of IP.
pub const PROTOCOL: u8 = 46;
/// The option by which routers take a packet that is not for them.
pub const ALERT: [u8; 4] = [148, 4, 0, 0];

/// Whether a packet of IPv4 has the Router Alert option.
pub fn is_alert(packet: &[u8]) -> bool {
    let header_len = packet.first().map_or(0, |first| usize::from(first & 15) * 4);
    let Some(mut options) = packet.get(20..header_len) else { return false };
    loop {
        match options {
            [148, 4, ..] => return true,
            [1, rest @ ..] => options = rest,
            [kind, len, ..] if *kind != 0 && *len >= 2 => {
                options = options.get(usize::from(*len)..).unwrap_or(&[]);
            }
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_wire::internet::ipv4;

    #[test]
    fn an_alert_is_found_among_other_options() {
        let header = ipv4::Header::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), PROTOCOL);
        for (options, alert) in [
            (&[][..], false),
            (&ALERT, true),
            (&[1, 1, 7, 3, 4, 148, 4, 0, 0][..], true),
            (&[0, 148, 4, 0][..], false),
            (&[7, 40, 148, 4][..], false),
        ] {
            let mut packet = Vec::new();
            header.emit_with_options(options, 0, &mut packet).expect("fits");
            assert_eq!(is_alert(&packet), alert, "{options:?}");
        }
        assert!(!is_alert(&[]) && !is_alert(&[0x4f; 22]));
    }
}
