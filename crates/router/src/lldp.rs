//! LLDP (IEEE 802.1AB-2016): how routers on a line identify themselves.
//!
//! ```text
//! Ethernet to 01:80:c2:00:00:0e, 0x88cc | chassis | port | time to live | description | system name | end
//!                                         each: type (7 bits), length (9 bits), value
//! ```
//!
//! We send the interface's Ethernet address as the chassis, its name as the port, the port's name in `router.toml` as
//! the description, and the host's name. Of what we receive, the first three are required and in this order; unknown
//! parts are skipped. Values that are not text, or contain control characters, are shown in hexadecimal.

/// Where frames are sent: the nearest bridge or router, and no further.
pub const GROUP: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0x0e];
/// The type of their payload.
pub const ETHERTYPE: u16 = 0x88cc;
/// Limit on the length of a text that is kept.
const TEXT_MAX: usize = 255;

const END: u16 = 0;
const CHASSIS: u16 = 1;
const PORT: u16 = 2;
const TIME_TO_LIVE: u16 = 3;
const DESCRIPTION: u16 = 4;
const SYSTEM: u16 = 5;
/// Chassis and port by Ethernet address; the port by the interface's name.
const CHASSIS_MAC: u8 = 4;
const PORT_MAC: u8 = 3;
const PORT_NAME: u8 = 5;

/// What a router says of itself on one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its box.
    pub chassis: String,
    /// Its port.
    pub port: String,
    /// For how many seconds this holds; 0 if it goes.
    pub seconds: u16,
    /// What its port is called.
    pub description: Option<String>,
    /// Its name.
    pub system: Option<String>,
}

/// A frame about a port of ours.
pub fn emit(
    mac: [u8; 6],
    interface: &str,
    seconds: u16,
    description: &str,
    system: &str,
) -> Vec<u8> {
    let mut frame = [&GROUP[..], &mac, &ETHERTYPE.to_be_bytes()].concat();
    let mut part = |kind: u16, value: &[u8]| {
        let value = &value[..value.len().min(TEXT_MAX)];
        frame.extend((kind << 9 | value.len() as u16).to_be_bytes());
        frame.extend_from_slice(value);
    };
    part(CHASSIS, &[&[CHASSIS_MAC][..], &mac].concat());
    part(PORT, &[&[PORT_NAME], interface.as_bytes()].concat());
    part(TIME_TO_LIVE, &seconds.to_be_bytes());
    part(DESCRIPTION, description.as_bytes());
    part(SYSTEM, system.as_bytes());
    part(END, &[]);
    frame
}

/// Reads what follows the Ethernet header.
///
/// # Errors
/// What is wrong with it.
pub fn parse(mut bytes: &[u8]) -> Result<Neighbour, &'static str> {
    let mut part = || -> Result<(u16, &[u8]), &'static str> {
        let (head, rest) = bytes.split_first_chunk::<2>().ok_or("cut short")?;
        let head = u16::from_be_bytes(*head);
        let (value, rest) = rest.split_at_checked(usize::from(head & 0x1ff)).ok_or("cut short")?;
        bytes = rest;
        Ok((head >> 9, value))
    };
    let mut required = |wanted: u16, why: &'static str| match part() {
        Ok((kind, value)) if kind == wanted && value.len() >= 2 => Ok(value),
        Ok(_) => Err(why),
        Err(short) => Err(short),
    };
    let chassis = name(required(CHASSIS, "no chassis")?, CHASSIS_MAC);
    let port = name(required(PORT, "no port")?, PORT_MAC);
    let seconds = required(TIME_TO_LIVE, "no time to live")?;
    let seconds = u16::from_be_bytes([seconds[0], seconds[1]]);
    let (mut description, mut system) = (None, None);
    // Most end their frames as they should; padding would be read as an end.
    while let Ok((kind, value)) = part() {
        match kind {
            END => break,
            DESCRIPTION => description = Some(text(value)),
            SYSTEM => system = Some(text(value)),
            _ => {}
        }
    }
    Ok(Neighbour { chassis, port, seconds, description, system })
}

/// An identifier: its kind, and its value.
fn name(value: &[u8], mac: u8) -> String {
    match value {
        [kind, address @ ..] if *kind == mac && address.len() == 6 => {
            address.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
        }
        [_, rest @ ..] => text(rest),
        [] => String::new(),
    }
}

fn text(value: &[u8]) -> String {
    let value = &value[..value.len().min(TEXT_MAX)];
    match std::str::from_utf8(value) {
        Ok(text) if !text.contains(char::is_control) => text.to_owned(),
        _ => value.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

    #[test]
    fn what_is_sent_is_what_is_read() {
        let frame = emit(MAC, "eth0", 120, "uplink", "router-1");
        assert_eq!(frame[..6], GROUP);
        let read = parse(&frame[14..]).expect("a frame");
        assert_eq!((read.chassis.as_str(), read.port.as_str()), ("02:00:00:00:00:07", "eth0"));
        assert_eq!((read.seconds, read.system.as_deref()), (120, Some("router-1")));
        assert_eq!(read.description.as_deref(), Some("uplink"));
        for len in 14..frame.len() - 2 {
            let cut = parse(&frame[14..len]);
            assert!(cut.is_err() || cut.is_ok_and(|cut| cut.port == "eth0"));
        }
        assert_eq!(parse(&frame[15..]), Err("cut short"));
    }

    #[test]
    fn a_frame_of_another_s_making_is_read() {
        // A switch with a name as its chassis and a MAC address as its port, and a part of an organisation.
        let mut bytes = vec![2, 3, 7, b's', b'w', 4, 7, 3];
        bytes.extend(MAC);
        bytes.extend([6, 2, 0, 60, 0xfe, 4, 0, 0x12, 0x0f, 1, 10, 2, 0x1b, b'x', 0, 0, 0, 0]);
        let read = parse(&bytes).expect("a frame");
        assert_eq!((read.chassis.as_str(), read.port.as_str()), ("sw", "02:00:00:00:00:07"));
        assert_eq!((read.seconds, read.system.as_deref()), (60, Some("1b78")));
    }

    proptest! {
        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0..60usize, to: u8) {
            let _ = parse(&bytes);
            let mut frame = emit(MAC, "eth0", 120, "uplink", "router-1").split_off(14);
            let at = at % frame.len();
            frame[at] = to;
            if let Ok(read) = parse(&frame) {
                prop_assert!(!read.chassis.contains(char::is_control) && read.chassis.len() < 600);
            }
        }
    }
}
