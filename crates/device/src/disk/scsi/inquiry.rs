//! What the unit reports about itself (SPC-4, sections 6.6 and 7.8; SBC-3, section 6.6).

use super::{COMPARE_MAX, SAME_MAX, TRANSFER_MAX, UNMAP_MAX, Unit};
use crate::disk::gate::Gate;
use lastmeter_wire::scsi::{OPCODES, Opcode, Place, Sense};

/// Peripheral of a logical unit that is not there.
pub(super) const ABSENT: u8 = 0x7f;
const VENDOR: &[u8; 8] = b"LASTMETR";
const PRODUCT: &[u8; 16] = b"DISK            ";
const REVISION: &[u8; 4] = b"0001";
/// What is best read, written and unmapped: pages of the kernel.
const PAGE: u32 = 4096;

/// Standard data.
pub(super) fn standard() -> Vec<u8> {
    const SPC4: u8 = 6;
    const QUEUES: u8 = 2;
    // Bits of byte 5: implicit asymmetric access (16), third-party copies (8).
    let mut bytes = vec![0, 0, SPC4, 0x12, 0, 0x18, 0, QUEUES];
    bytes.extend(VENDOR);
    bytes.extend(PRODUCT);
    bytes.extend(REVISION);
    bytes.resize(58, 0);
    // SAM-5, SPC-4, SBC-3, iSCSI.
    [0x00a0u16, 0x0460, 0x04c0, 0x0960].iter().for_each(|v| bytes.extend(v.to_be_bytes()));
    bytes.resize(74, 0);
    bytes[4] = (bytes.len() - 5) as u8;
    bytes
}

const PAGES: [u8; 9] = [0x00, 0x80, 0x83, 0x86, 0x87, 0x8f, 0xb0, 0xb1, 0xb2];

/// A page of vital product data.
///
/// # Errors
/// If there is no such page.
pub(super) fn vital(unit: &Unit, gate: &Gate, page: u8) -> Result<Vec<u8>, Sense> {
    let body = match page {
        0x00 => PAGES.to_vec(),
        0x80 => unit.serial().into_bytes(),
        0x83 => identities(unit),
        0x86 => {
            // No protection; simple, ordered and head-of-queue tasks.
            let mut body = vec![0, 0x07, 0, 0];
            body.resize(60, 0);
            body
        }
        // All mode pages are shared by all initiators.
        0x87 => vec![0x3f, 0xff, 0, 0],
        0x8f => copies(),
        0xb0 => limits(gate.disk().medium.block()),
        0xb1 => {
            // No rotation; no form factor.
            let mut body = vec![0, 1];
            body.resize(60, 0);
            body
        }
        // UNMAP, WRITE SAME(16) and (10) unmap; what is unmapped reads as zeros; thin.
        0xb2 => vec![0, 0xe4, 2, 0],
        _ => return Err(Sense::INVALID_FIELD.at(Place::Command(2))),
    };
    let [high, low] = (body.len() as u16).to_be_bytes();
    Ok([&[0, page, high, low][..], &body].concat())
}

/// Names of the unit and of the port.
fn identities(unit: &Unit) -> Vec<u8> {
    const BINARY: u8 = 1;
    const TEXT: u8 = 3;
    const ISCSI: u8 = 0x50;
    // The port and the target, which are named with the protocol.
    const OF_PORT: u8 = 0x90;
    const OF_TARGET: u8 = 0xa0;
    let mut bytes = Vec::new();
    let mut add = |set: u8, kind: u8, name: &[u8]| {
        let set = if kind & 0x80 != 0 { set | ISCSI } else { set };
        bytes.extend([set, kind, 0, name.len() as u8]);
        bytes.extend(name);
    };
    add(BINARY, 3, &unit.designator());
    add(2, 1, &[VENDOR, unit.serial().as_bytes()].concat());
    add(BINARY, OF_PORT | 4, &[0, 0, 0, 1]);
    add(BINARY, OF_PORT | 5, &[0, 0, 0, 1]);
    let text = |name: String| {
        let mut name = name.into_bytes();
        name.push(0);
        name.resize(name.len().next_multiple_of(4), 0);
        name
    };
    add(TEXT, OF_PORT | 8, &text(format!("{},t,0x0001", unit.name())));
    add(TEXT, OF_TARGET | 8, &text(unit.name().to_owned()));
    bytes
}

/// What can be copied without its initiator (SPC-4, section 7.8.17).
fn copies() -> Vec<u8> {
    // EXTENDED COPY; RECEIVE COPY RESULTS: status and parameters.
    let commands = [7, 0x83, 1, 0x00, 0x84, 2, 0x00, 0x03, 0, 0, 0, 0];
    let mut body = vec![0, 1, 0, commands.len() as u8];
    body.extend(commands);
    body
}

/// Limits of commands on blocks.
fn limits(block: u32) -> Vec<u8> {
    let (page, most) = (PAGE / block, TRANSFER_MAX / block);
    // A WRITE SAME of zero blocks is refused; the longest comparison; the granularity of transfers.
    let mut body = vec![1, COMPARE_MAX as u8];
    body.extend((page as u16).to_be_bytes());
    // Transfers: the longest, the best; the longest prefetch; blocks and descriptors of an unmap, its granularity and
    // alignment.
    [most, page, most, u32::MAX, UNMAP_MAX as u32, page, 0x8000_0000]
        .iter()
        .for_each(|value| body.extend(value.to_be_bytes()));
    body.extend(u64::from(SAME_MAX).to_be_bytes());
    // No atomic writes: of a file, the kernel promises none that are longer than a page.
    body.resize(60, 0);
    body
}

/// READ CAPACITY(10).
pub(super) fn capacity_short(gate: &Gate) -> Vec<u8> {
    let last = u32::try_from(gate.blocks() - 1).unwrap_or(u32::MAX);
    [last.to_be_bytes(), gate.disk().medium.block().to_be_bytes()].concat()
}

/// READ CAPACITY(16).
pub(super) fn capacity(gate: &Gate) -> Vec<u8> {
    let block = gate.disk().medium.block();
    let mut bytes = (gate.blocks() - 1).to_be_bytes().to_vec();
    bytes.extend(block.to_be_bytes());
    // Thin, and what is unmapped reads as zeros.
    bytes.extend([0, 0, 0xc0, 0]);
    bytes.resize(32, 0);
    bytes
}

/// REPORT LUNS: there is one.
///
/// # Errors
/// If the selection is not known, or there is no room.
pub(super) fn luns(select: u8, room: u32) -> Result<Vec<u8>, Sense> {
    if room < 16 {
        return Err(Sense::INVALID_FIELD.at(Place::Command(6)));
    }
    match select {
        0 | 2 => Ok(vec![0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        1 => Ok(vec![0; 8]),
        _ => Err(Sense::INVALID_FIELD.at(Place::Command(2))),
    }
}

/// REPORT TARGET PORT GROUPS: one group, of one port, which is always the best.
pub(super) fn groups(extended: bool) -> Vec<u8> {
    // Active and optimized, which is all that is supported; group 1 of one port, number 1.
    let list = [0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1];
    let head = if extended { vec![0, 0, 0, 16, 0x10, 0, 0, 0] } else { vec![0, 0, 0, 12] };
    [&head[..], &list].concat()
}

/// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS: abort task and task set, clear task set, reset.
pub(super) fn functions() -> Vec<u8> {
    vec![0xda, 0, 0, 0]
}

/// No timeouts are told: they are zero.
const TIMEOUTS: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// REPORT SUPPORTED OPERATION CODES.
///
/// # Errors
/// If the options do not fit the command that is asked about.
pub(super) fn opcodes(
    timeouts: bool,
    options: u8,
    code: u8,
    action: u16,
) -> Result<Vec<u8>, Sense> {
    let wrong = |byte: u16| Err(Sense::INVALID_FIELD.at(Place::Command(byte)));
    if options == 0 {
        let mut list = Vec::new();
        for Opcode { code, action, usage, .. } in OPCODES {
            let flags = u8::from(timeouts) << 1 | u8::from(action.is_some());
            list.extend([*code, 0]);
            list.extend(action.unwrap_or(0).to_be_bytes());
            list.extend([0, flags, 0, usage.len() as u8]);
            list.extend(&TIMEOUTS[..if timeouts { TIMEOUTS.len() } else { 0 }]);
        }
        return Ok([&(list.len() as u32).to_be_bytes()[..], &list].concat());
    }
    let acts = OPCODES.iter().any(|row| row.code == code && row.action.is_some());
    match options {
        1 if acts => return wrong(2),
        2 if !acts && OPCODES.iter().any(|row| row.code == code) => return wrong(2),
        1..=3 => {}
        _ => return wrong(2),
    }
    let wanted = |row: &&Opcode| row.code == code && row.action.is_none_or(|own| own == action);
    let Some(row) = OPCODES.iter().find(wanted) else {
        const NOT_SUPPORTED: u8 = 1;
        return Ok(vec![0, NOT_SUPPORTED, 0, 0]);
    };
    const SUPPORTED: u8 = 3;
    let flags = SUPPORTED | if timeouts { 0x80 } else { 0 };
    let mut bytes = vec![0, flags, 0, row.usage.len() as u8];
    bytes.extend(row.usage);
    bytes.extend(&TIMEOUTS[..if timeouts { TIMEOUTS.len() } else { 0 }]);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SBC-3, table 206: where each limit stands.
    #[test]
    fn the_page_of_limits() {
        let body = limits(512);
        assert_eq!(body.len(), 60);
        let word =
            |at: usize| u32::from_be_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
        // The page's bytes are numbered from its header, which has four.
        assert_eq!(body[5 - 4], COMPARE_MAX as u8);
        assert_eq!(u16::from_be_bytes([body[2], body[3]]), 8, "granularity");
        assert_eq!(word(8 - 4), TRANSFER_MAX / 512);
        assert_eq!(word(12 - 4), 8, "the best length");
        assert_eq!((word(20 - 4), word(24 - 4)), (u32::MAX, UNMAP_MAX as u32));
        assert_eq!((word(28 - 4), word(40 - 4)), (8, SAME_MAX));
    }

    #[test]
    fn a_command_is_told_with_its_bits() {
        let read = opcodes(true, 1, 0x28, 0).expect("it is there");
        assert_eq!(read[..6], [0, 0x83, 0, 10, 0x28, 0xf8]);
        assert_eq!(read.len(), 4 + 10 + 12);
        assert_eq!(opcodes(false, 1, 0xff, 0), Ok(vec![0, 1, 0, 0]));
        assert!(opcodes(false, 1, 0x9e, 0x10).is_err(), "it has service actions");
        assert!(opcodes(false, 2, 0x28, 0).is_err(), "it has none");
    }
}
