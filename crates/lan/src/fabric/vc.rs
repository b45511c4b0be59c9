//! Virtual circuits inside a router: the circuit number identifies the sender, so a receiver knows how to handle a
//! cell without looking inside.
//!
//! | from | on | to | on |
//! |---|---|---|---|
//! | input i | 40 + j | output j | 40 + i |
//! | control processor | 84 + j | processor of port j | 62 |
//!
//! Each circuit has its own number at its end, so cells of different senders are never mixed.
//!
//! On these circuits the control processor sends commands to ports: messages in AAL5 to their processors, single
//! cells in AAL0 to the hardware (D-06).
//!
//! Source: Kuhns et al., §2.1, §3.1 (D-06, D-19, D-21, D-22). The document's router has eight ports. With its
//! rules as printed, a packet of input 22 would look like a command, and circuits to outputs from 44 on would look
//! like commands to processors; so they are valid for at most [`PORTS_MAX`] ports.

use lastmeter_wire::control::der::{VCI_CONTROL, VCI_IP, VCI_LISTEN};

/// Most ports for which no two circuits have the same number: 40 + i must be less than 62.
pub const PORTS_MAX: u16 = VCI_LISTEN - VCI_IP;

/// What a port's processor has to do with data arriving on a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A packet of this input, which has been classified there.
    Packet {
        /// The input.
        from: u16,
    },
    /// A command of the control processor.
    Command,
}

/// The far end of a circuit: the port, and the number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    /// The port at which it ends.
    pub port: u16,
    /// Its number there.
    pub vci: u16,
}

/// The destination of a cell that enters the switch at port `input` on circuit `vci`; `None` if no circuit of a
/// router of `ports` ports has this number there.
///
/// ```
/// use lastmeter_lan::fabric::vc::{End, translate};
/// assert_eq!(translate(8, 2, 45), Some(End { port: 5, vci: 42 }));
/// assert_eq!(translate(8, 2, 48), None);
/// ```
pub fn translate(ports: u16, input: u16, vci: u16) -> Option<End> {
    let port = vci.checked_sub(VCI_IP).filter(|&port| port < ports)?;
    (ports <= PORTS_MAX && input < ports).then_some(End { port, vci: VCI_IP + input })
}

/// The destination of a cell from the control processor on circuit `vci`.
pub fn command(ports: u16, vci: u16) -> Option<End> {
    let port = vci.checked_sub(VCI_CONTROL).filter(|&port| port < ports)?;
    (ports <= PORTS_MAX).then_some(End { port, vci: VCI_LISTEN })
}

/// The meaning of a cell on circuit `vci` to a port's processor: one comparison and one subtraction, without
/// looking at the packet (D-19).
pub fn arrival(ports: u16, vci: u16) -> Option<Arrival> {
    match vci {
        VCI_LISTEN => Some(Arrival::Command),
        _ => {
            let from = vci.checked_sub(VCI_IP).filter(|&from| from < ports)?;
            Some(Arrival::Packet { from })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// D-22, for every pair of ports of every router for which the rules are valid.
    #[test]
    fn the_rules_are_those_of_the_document_and_no_two_circuits_collide() {
        assert_eq!((VCI_IP, VCI_CONTROL, VCI_LISTEN), (40, 84, 62));
        for ports in 1..=PORTS_MAX {
            let mut ends = BTreeSet::new();
            for input in 0..ports {
                for output in 0..ports {
                    let end = translate(ports, input, 40 + output).unwrap();
                    assert_eq!(end, End { port: output, vci: 40 + input });
                    assert_eq!(arrival(ports, end.vci), Some(Arrival::Packet { from: input }));
                    assert!(ends.insert(end));
                }
                let end = command(ports, 84 + input).unwrap();
                assert_eq!(end, End { port: input, vci: 62 });
                assert_eq!(arrival(ports, end.vci), Some(Arrival::Command));
                assert!(ends.insert(end), "{ports} ports");
                assert!(command(ports, 40 + input).is_none());
            }
            assert!(translate(ports, 0, 39).is_none() && translate(ports, ports, 40).is_none());
        }
    }

    #[test]
    fn with_more_ports_the_rules_contradict_each_other() {
        assert_eq!(PORTS_MAX, 22);
        assert_eq!(VCI_IP + PORTS_MAX, VCI_LISTEN);
        assert!(translate(23, 0, 40).is_none() && command(23, 84).is_none());
    }

    /// D-21: a packet and a command, with their cells interleaved on one link, are reassembled correctly.
    #[test]
    fn packets_and_commands_on_their_own_circuits_are_not_mixed() {
        use lastmeter_wire::aal::aal5;
        let messages: [(u16, Vec<u8>); 2] = [(43, vec![1; 700]), (62, vec![2; 300])];
        let frames: Vec<Vec<u8>> =
            messages.iter().map(|(_, data)| aal5::emit(data, 0).unwrap()).collect();
        let mut apart: [Vec<u8>; 2] = Default::default();
        let mut mixed = Vec::new();
        for cell in 0..16 {
            for (which, frame) in frames.iter().enumerate() {
                if let Some(payload) = frame.chunks(48).nth(cell) {
                    let vci = messages[which].0;
                    let command = arrival(8, vci) == Some(Arrival::Command);
                    apart[usize::from(command)].extend(payload);
                    mixed.extend(payload);
                }
            }
        }
        for (which, bytes) in apart.iter().enumerate() {
            assert_eq!(aal5::parse(bytes).unwrap().payload, messages[which].1);
        }
        assert!(aal5::parse(&mixed).is_err(), "on one circuit they cannot be reassembled");
    }

    /// D-06: the control processor reaches every port in AAL5, over circuits inside the switch, and its hardware
    /// in single cells; both arrive unchanged, and nowhere else.
    #[test]
    fn commands_of_the_control_processor_reach_each_port_over_the_switch() {
        use lastmeter_wire::aal::aal5;
        use lastmeter_wire::control::der::{ControlCell, Message, Operation, Type, vci_control_to};
        let operations =
            [Operation::SetIdentity, Operation::ForwardingUpdate, Operation::PluginLoad];
        for port in 0..8u8 {
            let end = command(8, vci_control_to(port).unwrap()).unwrap();
            assert_eq!(end, End { port: port.into(), vci: VCI_LISTEN });
            assert_eq!(arrival(8, end.vci), Some(Arrival::Command));
            for (sequence, operation) in operations.into_iter().enumerate() {
                let (sequence, body) = (sequence as u32, vec![port; 100 * sequence + 1]);
                let message_type = Type::Request;
                let message = Message { message_type, operation, port, sequence, body: &body };
                let frame = aal5::emit(&message.emit().unwrap(), 0).unwrap();
                let cells: Vec<&[u8]> = frame.chunks(48).collect();
                assert!(cells.iter().all(|cell| cell.len() == 48));
                let heard = cells.concat();
                let payload = aal5::parse(&heard).unwrap().payload.to_vec();
                assert_eq!(Message::parse(&payload).unwrap(), message);
            }
            let cell = ControlCell { operation: 7, sequence: 1, port, len: 2, body: [port; 40] };
            assert_eq!(ControlCell::parse(&cell.emit()).unwrap(), cell);
        }
        assert!((0..8).all(|port| command(port.into(), vci_control_to(port).unwrap()).is_none()));
    }
}
