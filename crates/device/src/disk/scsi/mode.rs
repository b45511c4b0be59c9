//! Mode pages (SPC-4, section 7.5; SBC-3, section 6.4).

use super::Unit;
use super::{DESCRIPTOR_SENSE, PROTECTED};
use lastmeter_wire::scsi::{Place, Sense};

/// What MODE SENSE asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// In the longer format.
    pub(super) long: bool,
    /// With a descriptor of blocks.
    pub(super) descriptor: bool,
    /// 0: current values; 1: what can be changed; 2: default; 3: saved.
    pub(super) control: u8,
    /// The page; 3Fh is all.
    pub(super) page: u8,
    /// The subpage.
    pub(super) subpage: u8,
}

const RECOVERY: u8 = 0x01;
const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0a;
const EXCEPTIONS: u8 = 0x1c;
const ALL: u8 = 0x3f;
const PAGES: [u8; 4] = [RECOVERY, CACHING, CONTROL, EXCEPTIONS];
/// Of the control page: sense with descriptors (byte 2), software write protection (byte 4).
const D_SENSE: u8 = 0x04;
const SWP: u8 = 0x08;

/// A page. What is changeable has ones.
fn page(unit: &Unit, number: u8, control: u8) -> Vec<u8> {
    let body = match number {
        CACHING => 18,
        _ => 10,
    };
    let mut bytes = vec![0; 2 + body];
    (bytes[0], bytes[1]) = (number, body as u8);
    let flags = match control {
        0 => unit.flags(),
        1 => DESCRIPTOR_SENSE | PROTECTED,
        _ => 0,
    };
    match number {
        CACHING if control != 1 => bytes[2] = 0x04,
        CONTROL => {
            bytes[2] = if flags & DESCRIPTOR_SENSE != 0 { D_SENSE } else { 0 };
            bytes[4] = if flags & PROTECTED != 0 { SWP } else { 0 };
            if control != 1 {
                // Commands may be reordered; a busy time is unlimited.
                bytes[3] = 0x10;
                (bytes[8], bytes[9]) = (0xff, 0xff);
            }
        }
        _ => {}
    }
    bytes
}

/// MODE SENSE of a disk with so many blocks of this size.
///
/// # Errors
/// If there is no such page, or saved values are asked for.
pub(super) fn sense(
    unit: &Unit,
    wanted: Wanted,
    blocks: u64,
    block: u32,
    read_only: bool,
) -> Result<Vec<u8>, Sense> {
    const NOT_SAVED: Sense = Sense::new(5, 0x39, 0);
    if wanted.control == 3 {
        return Err(NOT_SAVED);
    }
    let all = wanted.page == ALL;
    if (!all && !PAGES.contains(&wanted.page)) || !matches!(wanted.subpage, 0 | 0xff) {
        let byte = if matches!(wanted.subpage, 0 | 0xff) { 2 } else { 3 };
        return Err(Sense::INVALID_FIELD.at(Place::Command(byte)));
    }
    let pages = PAGES.iter().filter(|number| all || **number == wanted.page);
    let pages: Vec<u8> = pages.flat_map(|number| page(unit, *number, wanted.control)).collect();
    let descriptor = if wanted.descriptor {
        let count = u32::try_from(blocks).unwrap_or(u32::MAX).to_be_bytes();
        [&count[..], &block.to_be_bytes()].concat()
    } else {
        Vec::new()
    };
    // FUA is honoured.
    const FUA: u8 = 0x10;
    let protected = read_only || unit.flags() & PROTECTED != 0;
    let specific = FUA | if protected { 0x80 } else { 0 };
    let count = descriptor.len() as u8;
    let head = if wanted.long {
        let length = (6 + descriptor.len() + pages.len()) as u16;
        let [high, low] = length.to_be_bytes();
        vec![high, low, 0, specific, 0, 0, 0, count]
    } else {
        vec![(3 + descriptor.len() + pages.len()) as u8, 0, specific, count]
    };
    Ok([head, descriptor, pages].concat())
}

/// MODE SELECT: the unit's new flags.
///
/// # Errors
/// If a page is not there, or something is to change that cannot.
pub(super) fn select(unit: &Unit, long: bool, data: &[u8]) -> Result<u8, Sense> {
    if data.is_empty() {
        return Ok(unit.flags());
    }
    let wrong = |byte: usize| Sense::INVALID_PARAMETER.at(Place::Parameter(byte as u16));
    let head = if long { 8 } else { 4 };
    let descriptors = match (long, data.len() >= head) {
        (_, false) => return Err(Sense::LIST_LENGTH),
        (true, _) => usize::from(u16::from_be_bytes([data[6], data[7]])),
        (false, _) => data[3].into(),
    };
    let (mut at, mut flags) = (head + descriptors, unit.flags());
    if at > data.len() || !matches!(descriptors, 0 | 8) {
        return Err(Sense::LIST_LENGTH);
    }
    while at < data.len() {
        let number = data[at] & 0x3f;
        if !PAGES.contains(&number) || data[at] & 0x40 != 0 {
            return Err(wrong(at));
        }
        let (current, may) = (page(unit, number, 0), page(unit, number, 1));
        let Some(new) = data.get(at..at + current.len()) else { return Err(Sense::LIST_LENGTH) };
        if new[1] != current[1] {
            return Err(wrong(at + 1));
        }
        let fixed = (2..new.len()).find(|byte| (new[*byte] ^ current[*byte]) & !may[*byte] != 0);
        if let Some(byte) = fixed {
            return Err(wrong(at + byte));
        }
        if number == CONTROL {
            flags = if new[2] & D_SENSE != 0 { DESCRIPTOR_SENSE } else { 0 };
            flags |= if new[4] & SWP != 0 { PROTECTED } else { 0 };
        }
        at += current.len();
    }
    Ok(flags)
}
