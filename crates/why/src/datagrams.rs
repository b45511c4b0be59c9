//! What is known of a program's datagrams, and what is not, as notes and counters of its ledger.

use lastmeter_ledger::{Counter, Ledger, figures};
use lastmeter_live::observe::{Observation, Udp};

/// Datagrams each second below which there is nothing to say.
const FEW: f64 = 20.0;
/// Bytes of IP above which a datagram was more than one packet of an Ethernet.
const PACKET: f64 = 1500.0;
/// Packets for each datagram from which some arrived together.
const TOGETHER: f64 = 1.2;

/// Adds them where the program has UDP sockets that carry something.
pub fn add(ledger: &mut Ledger, seen: &Observation) {
    let Some(w) = &seen.witnesses else { return };
    let (arrived, left) = w.datagrams;
    if w.udp.sockets == 0 || arrived + left < FEW {
        return;
    }
    ledger.notes.push(format!(
        "UDP: {}; {}. Its own {} UDP sockets dropped {} datagrams; a receive buffer was half full \
         or more at {:.0} % of the looks. Datagrams and bytes are those of its network namespace, \
         in which others may have some.",
        way("arrived", arrived, w.udp.bytes.0, w.udp.per_call.map(|each| each.0)),
        way("left", left, w.udp.bytes.1, w.udp.per_call.map(|each| each.1)),
        w.udp.sockets,
        w.udp.dropped,
        100.0 * w.udp.full
    ));
    ledger.notes.extend(together(&w.udp));
    if w.udp.quic {
        ledger.notes.push(
            "QUIC, by its port 443: its round trip, congestion window, losses and pacing are \
             inside the program and encrypted on the way, so no test of TCP applies; which \
             application it carries (ALPN) is not known either."
                .to_owned(),
        );
    }
    ledger.counters.push(Counter {
        element: "UDP".to_owned(),
        name: "dropped at its sockets".to_owned(),
        value: w.udp.dropped,
    });
}

/// One direction.
fn way(word: &str, each_second: f64, bytes: f64, per_call: Option<f64>) -> String {
    let rate = figures::rate(8.0 * each_second * bytes);
    let calls = match per_call {
        Some(each) if each > 0.0 => format!(", {each:.1} for each call"),
        _ => String::new(),
    };
    format!("{each_second:.0} a second {word} ({bytes:.0} B of IP each, {rate}{calls})")
}

/// Whether segments travel as one.
fn together(udp: &Udp) -> Option<String> {
    let send = udp.bytes.1 > PACKET;
    let receive = udp.packets >= TOGETHER;
    let words = match (send, receive) {
        (true, true) => "UDP_SEGMENT and UDP_GRO are in use: several packets go up and down as one",
        (true, false) => "UDP_SEGMENT is in use, or its datagrams are larger than a packet",
        (false, true) => "UDP_GRO is in use: several packets come up as one",
        (false, false) => return None,
    };
    Some(format!("{words} ({:.1} packets for each datagram that arrived).", udp.packets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_travels_together_is_said() {
        let udp = Udp { bytes: (1228.0, 12_028.0), packets: 1.0, ..Udp::default() };
        assert!(together(&udp).unwrap().starts_with("UDP_SEGMENT is in use, or"));
        let gro = Udp { bytes: (12_028.0, 60.0), packets: 10.0, ..udp };
        assert!(together(&gro).unwrap().starts_with("UDP_GRO is in use"));
        assert_eq!(together(&Udp { packets: 1.0, bytes: (1228.0, 60.0), ..udp }), None);
        let words = way("arrived", 10_000.0, 1250.0, Some(2.0));
        assert_eq!(
            words,
            "10000 a second arrived (1250 B of IP each, 100 Mbit/s, 2.0 for each call)"
        );
    }
}
