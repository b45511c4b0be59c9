//! Requests of the four kinds and the verdicts on them, as values and as descriptors.
//!
//! A verdict comes from untrusted memory: [`Verdict::read`] refuses one that does not belong to the kind or
//! exceeds what was asked for, so that a verdict can only narrow a request, move it, or change its bytes.

use crate::abi::{DESCRIPTOR_LEN, field};
use lastmeter_base::Time;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An IP packet.
    Packet = 1,
    /// A command to a disk.
    Block = 2,
    /// A command to a display.
    Framebuffer = 3,
    /// A frame of video.
    Frame = 4,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 4] = [Kind::Packet, Kind::Block, Kind::Framebuffer, Kind::Frame];
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Packet => "packet",
            Kind::Block => "block",
            Kind::Framebuffer => "framebuffer",
            Kind::Frame => "frame",
        }
    }
    /// By its name.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// What a block command does. Numbers as in a descriptor.
pub mod block {
    /// Reads blocks.
    pub const READ: u16 = 1;
    /// Writes blocks.
    pub const WRITE: u16 = 2;
    /// Makes what was written permanent.
    pub const FLUSH: u16 = 3;
    /// Gives blocks up.
    pub const TRIM: u16 = 4;
    /// Fills blocks with zeros.
    pub const ZERO: u16 = 5;
    /// Writes a block if it is as expected.
    pub const COMPARE_AND_WRITE: u16 = 6;
    /// Reserves the disk.
    pub const RESERVE: u16 = 7;
    /// Sense key, code and qualifier (SPC-4, table 43 and annex D): write protected.
    pub const WRITE_PROTECTED: u32 = 0x07_27_00;
    /// The largest sense: 4 bits of key, 8 of code, 8 of qualifier.
    pub const SENSE_MAX: u32 = 0x0f_ff_ff;
    /// Whether a command changes the disk.
    pub const fn writes(operation: u16) -> bool {
        matches!(operation, WRITE | TRIM | ZERO | COMPARE_AND_WRITE)
    }
}

/// What a framebuffer command does. Numbers as in a descriptor.
pub mod framebuffer {
    /// Asks for the pixels of a rectangle.
    pub const UPDATE: u16 = 1;
    /// Sends the pixels of a rectangle.
    pub const DRAW: u16 = 2;
    /// Copies a rectangle from elsewhere on the screen.
    pub const COPY: u16 = 3;
    /// Fills a rectangle.
    pub const FILL: u16 = 4;
    /// A key goes down.
    pub const KEY_DOWN: u16 = 5;
    /// A key goes up.
    pub const KEY_UP: u16 = 6;
    /// The pointer moves, or its buttons change; its place is a rectangle of one pixel.
    pub const POINTER: u16 = 7;
    /// Text is put on the clipboard.
    pub const CUT: u16 = 8;
}

/// A rectangle in pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rect {
    /// Of its left edge.
    pub x: u16,
    /// Of its upper edge.
    pub y: u16,
    /// Its width.
    pub w: u16,
    /// Its height.
    pub h: u16,
}

impl Rect {
    /// Whether it has no pixels.
    pub fn is_empty(self) -> bool {
        self.w == 0 || self.h == 0
    }
    /// Whether all its pixels are in `other`.
    pub fn within(self, other: Rect) -> bool {
        self.is_empty() || self.inside(other)
    }
    /// Whether its edges lie in `other`, too, where it has no pixels.
    fn inside(self, other: Rect) -> bool {
        let inside = |at: u16, len: u16, from: u16, room: u16| {
            at >= from && u32::from(at) + u32::from(len) <= u32::from(from) + u32::from(room)
        };
        inside(self.x, self.w, other.x, other.w) && inside(self.y, self.h, other.y, other.h)
    }
    /// The pixels of both; without any pixels if there are none.
    pub fn meet(self, other: Rect) -> Rect {
        let overlap = |a: u16, a_len: u16, b: u16, b_len: u16| {
            let start = a.max(b);
            let end = (u32::from(a) + u32::from(a_len)).min(u32::from(b) + u32::from(b_len));
            (start, end.saturating_sub(u32::from(start)) as u16)
        };
        let (x, w) = overlap(self.x, self.w, other.x, other.w);
        let (y, h) = overlap(self.y, self.h, other.y, other.h);
        if w == 0 || h == 0 {
            Rect { x: self.x, y: self.y, w: 0, h: 0 }
        } else {
            Rect { x, y, w, h }
        }
    }
}

/// What is particular to a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// A packet that arrived on an interface.
    Packet {
        /// The number of the interface.
        interface: u16,
    },
    /// A command to a disk.
    Block {
        /// One of [`block`].
        operation: u16,
        /// The first logical block.
        lba: u64,
        /// How many blocks.
        blocks: u32,
        /// Who asks.
        initiator: u32,
    },
    /// A command to a display.
    Framebuffer {
        /// One of [`framebuffer`].
        operation: u16,
        /// Where.
        rect: Rect,
        /// Where a copy comes from.
        from: (u16, u16),
        /// The encoding, the key, the buttons.
        value: u32,
    },
    /// A frame of video.
    Frame {
        /// Its pixel format, as the device numbers them.
        format: u16,
        /// The whole frame's width.
        width: u16,
        /// Its height.
        height: u16,
        /// The part that is sent.
        region: Rect,
        /// Counts the frames of its source.
        number: u32,
        /// From 1 to 100.
        quality: u8,
    },
}

impl Body {
    /// Of which kind it is.
    pub fn kind(&self) -> Kind {
        match self {
            Body::Packet { .. } => Kind::Packet,
            Body::Block { .. } => Kind::Block,
            Body::Framebuffer { .. } => Kind::Framebuffer,
            Body::Frame { .. } => Kind::Frame,
        }
    }
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What is particular to its kind.
    pub body: Body,
    /// The flow, session or client that it belongs to.
    pub flow: u64,
    /// When it arrived.
    pub arrival: Time,
    /// The plugin's own word for the flow.
    pub mark: u64,
    /// Length of the whole request.
    pub length: u32,
    /// Its first bytes, from the IP header on for a packet.
    pub data: &'a [u8],
}

/// A descriptor, as the plugin sees it.
pub type Descriptor = [u8; DESCRIPTOR_LEN];

pub(crate) fn u16_at(bytes: &Descriptor, at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn u32_at(bytes: &Descriptor, at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

pub(crate) fn u64_at(bytes: &Descriptor, at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

fn rect_at(bytes: &Descriptor) -> Rect {
    let [x, y, w, h] = [field::X, field::Y, field::W, field::H].map(|at| u16_at(bytes, at));
    Rect { x, y, w, h }
}

/// Nanoseconds since the beginning.
pub(crate) fn nanoseconds(at: Time) -> u64 {
    at.as_ps() / 1000
}

impl Request<'_> {
    /// Writes its descriptor: `captured` bytes of its data lie at `offset`, where `room` bytes fit. Word by word: small
    /// stores would cost as much as all the rest of a request.
    #[inline]
    pub fn emit(&self, bytes: &mut Descriptor, offset: u32, captured: u32, room: u32) {
        let words = self.words(offset, captured, room);
        let (places, _) = bytes.as_chunks_mut::<8>();
        for (place, word) in places.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
    }
    /// The descriptor, as [`field`] describes it.
    #[inline]
    fn words(&self, offset: u32, captured: u32, room: u32) -> [u64; DESCRIPTOR_LEN / 8] {
        let two = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let four = |a: u16, b: u16, c: u16, d: u16| {
            two(u32::from(a) | u32::from(b) << 16, u32::from(c) | u32::from(d) << 16)
        };
        let (operation, code, place, more) = match self.body {
            Body::Packet { interface } => (0, 0, interface.into(), 0),
            Body::Block { operation, lba, blocks, initiator } => {
                (operation, 0, lba, two(blocks, initiator))
            }
            Body::Framebuffer { operation, rect: Rect { x, y, w, h }, from, value } => {
                let (low, high) = (value as u16, (value >> 16) as u16);
                (operation, 0, four(x, y, w, h), four(from.0, from.1, low, high))
            }
            Body::Frame { format, width, height, region, number, quality } => {
                let Rect { x, y, w, h } = region;
                let (low, high) = (number as u16, (number >> 16) as u16);
                (format, quality.into(), four(x, y, w, h), four(width, height, low, high))
            }
        };
        let first = two(u32::from(self.body.kind() as u8) | u32::from(operation) << 16, code);
        let (length, sizes) = (two(self.length, offset), two(captured, room));
        [first, length, sizes, self.flow, nanoseconds(self.arrival), self.mark, place, more]
    }
}

/// What a plugin decides about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Passes, as it is.
    Allow,
    /// Is dropped or denied, with a reason: the plugin's own, or a block command's sense.
    Deny {
        /// The reason.
        code: u32,
    },
    /// A packet or frame passes with other bytes.
    Changed,
    /// A packet leaves on this interface.
    ToInterface(u16),
    /// A packet joins this flow.
    ToFlow(u32),
    /// A packet passes, and a copy of it leaves on this interface.
    Clone(u16),
    /// A block command goes to other blocks, or to fewer.
    Remap {
        /// The first logical block.
        lba: u64,
        /// How many blocks.
        blocks: u32,
    },
    /// A block command passes unless it writes.
    ReadOnly,
    /// A framebuffer command is done in this part of its rectangle only.
    Clip(Rect),
    /// A framebuffer command is done elsewhere.
    Move {
        /// Of the left edge.
        x: u16,
        /// Of the upper edge.
        y: u16,
    },
    /// This part of a frame passes.
    Crop(Rect),
    /// A frame passes, smaller.
    Scale {
        /// The new width.
        w: u16,
        /// The new height.
        h: u16,
    },
    /// A frame is compressed again.
    Quality(u8),
}

/// The numbers of verdicts in a descriptor.
pub mod number {
    /// [`Allow`](super::Verdict::Allow)
    pub const ALLOW: u8 = 1;
    /// [`Deny`](super::Verdict::Deny)
    pub const DENY: u8 = 2;
    /// [`Changed`](super::Verdict::Changed)
    pub const CHANGED: u8 = 3;
    /// [`ToInterface`](super::Verdict::ToInterface)
    pub const TO_INTERFACE: u8 = 4;
    /// [`ToFlow`](super::Verdict::ToFlow)
    pub const TO_FLOW: u8 = 5;
    /// [`Clone`](super::Verdict::Clone)
    pub const CLONE: u8 = 6;
    /// [`Remap`](super::Verdict::Remap)
    pub const REMAP: u8 = 7;
    /// [`ReadOnly`](super::Verdict::ReadOnly)
    pub const READ_ONLY: u8 = 8;
    /// [`Clip`](super::Verdict::Clip)
    pub const CLIP: u8 = 9;
    /// [`Move`](super::Verdict::Move)
    pub const MOVE: u8 = 10;
    /// [`Crop`](super::Verdict::Crop)
    pub const CROP: u8 = 11;
    /// [`Scale`](super::Verdict::Scale)
    pub const SCALE: u8 = 12;
    /// [`Quality`](super::Verdict::Quality)
    pub const QUALITY: u8 = 13;
}

/// What a plugin did that the interface forbids; in words for its author.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault(pub &'static str);

impl Verdict {
    /// Reads the verdict on `body` from its descriptor, and checks that it exceeds nothing that was asked for.
    #[inline]
    pub fn read(descriptor: &Descriptor, body: &Body) -> Result<Verdict, Fault> {
        let code = u32_at(descriptor, field::CODE);
        let interface = || u16::try_from(code).map_err(|_| Fault("an interface above 65535"));
        let kind = body.kind();
        match (descriptor[field::VERDICT], body) {
            (number::ALLOW, _) => Ok(Verdict::Allow),
            (number::DENY, Body::Block { .. }) if code > block::SENSE_MAX => {
                Err(Fault("a sense of more than 20 bits"))
            }
            (number::DENY, _) => Ok(Verdict::Deny { code }),
            (number::CHANGED, Body::Packet { .. } | Body::Frame { .. }) => Ok(Verdict::Changed),
            (number::TO_INTERFACE, Body::Packet { .. }) => Ok(Verdict::ToInterface(interface()?)),
            (number::TO_FLOW, Body::Packet { .. }) => Ok(Verdict::ToFlow(code)),
            (number::CLONE, Body::Packet { .. }) => Ok(Verdict::Clone(interface()?)),
            (number::REMAP, Body::Block { blocks: asked, .. }) => {
                let (lba, blocks) =
                    (u64_at(descriptor, field::LBA), u32_at(descriptor, field::BLOCKS));
                if blocks > *asked || (blocks == 0 && *asked > 0) {
                    return Err(Fault("a remap to more blocks than asked for, or to none"));
                }
                if lba.checked_add(u64::from(blocks)).is_none() {
                    return Err(Fault("a remap beyond the last block that there can be"));
                }
                Ok(Verdict::Remap { lba, blocks })
            }
            (number::READ_ONLY, Body::Block { .. }) => Ok(Verdict::ReadOnly),
            (number::CLIP, Body::Framebuffer { rect, .. }) => part(rect_at(descriptor), *rect)
                .map(Verdict::Clip)
                .ok_or(Fault("a clip that is not a part of the rectangle")),
            (number::MOVE, Body::Framebuffer { rect, .. }) => {
                let Rect { x, y, .. } = rect_at(descriptor);
                if x.checked_add(rect.w).is_none() || y.checked_add(rect.h).is_none() {
                    return Err(Fault("a move beyond 65535"));
                }
                Ok(Verdict::Move { x, y })
            }
            (number::CROP, Body::Frame { region, .. }) => part(rect_at(descriptor), *region)
                .map(Verdict::Crop)
                .ok_or(Fault("a crop that is not a part of the region")),
            (number::SCALE, Body::Frame { region, .. }) => {
                let Rect { w, h, .. } = rect_at(descriptor);
                if w == 0 || h == 0 || w > region.w || h > region.h {
                    return Err(Fault("a scale to more pixels than there are, or to none"));
                }
                Ok(Verdict::Scale { w, h })
            }
            (number::QUALITY, Body::Frame { quality, .. }) => {
                if code == 0 || code > u32::from(*quality) {
                    return Err(Fault("a quality above the frame's own, or zero"));
                }
                Ok(Verdict::Quality(code as u8))
            }
            (0, _) => Err(Fault("no verdict")),
            _ if kind == Kind::Packet => Err(Fault("no verdict on packets has this number")),
            _ if kind == Kind::Block => Err(Fault("no verdict on block commands has this number")),
            _ if kind == Kind::Frame => Err(Fault("no verdict on frames has this number")),
            _ => Err(Fault("no verdict on framebuffer commands has this number")),
        }
    }
}

/// `found`, if it is a part of `whole`, and has pixels if `whole` has.
fn part(found: Rect, whole: Rect) -> Option<Rect> {
    (found.inside(whole) && found.is_empty() == whole.is_empty()).then_some(found)
}

/// Whether a router has to classify a packet again after a plugin changed it: its addresses, protocol or ports differ.
pub fn reclassify(before: &[u8], after: &[u8]) -> bool {
    key(before) != key(after)
}

/// The version, addresses, ports and protocol of an IP packet.
fn key(packet: &[u8]) -> (u8, [Option<&[u8]>; 3]) {
    let version = packet.first().map_or(0, |byte| byte >> 4);
    let (addresses, protocol, ports) = match version {
        4 => (12..20, 9, packet.first().map_or(0, |byte| usize::from(byte & 15) * 4)),
        _ => (8..40, 6, 40),
    };
    let protocol = packet.get(protocol..=protocol);
    (version, [packet.get(addresses), packet.get(ports..ports + 4), protocol])
}

/// A number for the flow of an IP packet: the same for all packets with its addresses, protocol and ports.
pub fn flow(packet: &[u8]) -> u64 {
    let (version, [addresses, ports, protocol]) = key(packet);
    let parts = [addresses, ports, protocol].into_iter().flatten().flatten();
    // FNV-1a, and a last mix so that the low bits depend on all.
    let hash =
        std::iter::once(&version).chain(parts).fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    hash ^ hash >> 32
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What was decided.
    pub verdict: Verdict,
    /// The word for the flow, as the plugin left it.
    pub mark: u64,
    /// Bytes of data that the policy saw; changed ones replace them.
    pub seen: u32,
    /// Where in [`Answers::bytes`] the changed data lie.
    pub data: (usize, usize),
}

/// The answers to a batch, in its order. Kept by the caller, so that a batch allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// One for each request.
    pub answers: Vec<Answer>,
    /// The data of those that changed.
    pub bytes: Vec<u8>,
}

impl Answers {
    /// The changed first bytes of a request; they replace as many as the plugin was given.
    pub fn data(&self, answer: &Answer) -> &[u8] {
        &self.bytes[answer.data.0..answer.data.1]
    }
    /// Removes all.
    pub fn clear(&mut self) {
        self.answers.clear();
        self.bytes.clear();
    }
}

/// What decides about requests: a plugin's instance or an expression.
pub trait Policy {
    /// Decides about each of `requests`; `answers` holds as many afterwards, in the same order.
    fn process(&mut self, now: Time, requests: &[Request<'_>], answers: &mut Answers);
    /// Its name, for the log.
    fn name(&self) -> &str;
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Body = Body::Frame {
        format: 1,
        width: 640,
        height: 480,
        region: Rect { x: 0, y: 0, w: 640, h: 480 },
        number: 7,
        quality: 80,
    };

    fn descriptor(body: Body) -> Descriptor {
        let request = Request {
            body,
            flow: 3,
            arrival: Time::from_ps(5000),
            mark: 9,
            length: 100,
            data: &[],
        };
        let mut bytes = [0; DESCRIPTOR_LEN];
        request.emit(&mut bytes, 4096, 64, 64);
        bytes
    }

    #[test]
    fn each_field_of_a_descriptor_is_in_its_place() {
        let block = descriptor(Body::Block {
            operation: block::TRIM,
            lba: 0x0102_0304_0506_0708,
            blocks: 9,
            initiator: 10,
        });
        assert_eq!((block[field::KIND], block[field::VERDICT]), (2, 0));
        assert_eq!(u16_at(&block, field::OPERATION), block::TRIM);
        assert_eq!(u64_at(&block, field::LBA), 0x0102_0304_0506_0708);
        assert_eq!((u32_at(&block, field::BLOCKS), u32_at(&block, field::INITIATOR)), (9, 10));
        let of = |at: usize| u32_at(&block, at);
        assert_eq!((of(field::LENGTH), of(field::OFFSET)), (100, 4096));
        assert_eq!((of(field::CAPTURED), of(field::ROOM)), (64, 64));
        let of = |at: usize| u64_at(&block, at);
        assert_eq!((of(field::FLOW), of(field::ARRIVAL), of(field::MARK)), (3, 5, 9));
        let rect = Rect { x: 1, y: 2, w: 3, h: 4 };
        let operation = framebuffer::COPY;
        let body = Body::Framebuffer { operation, rect, from: (5, 6), value: 0x0007_0008 };
        let screen = descriptor(body);
        assert_eq!(rect_at(&screen), rect);
        assert_eq!(u16_at(&screen, field::FROM_X), 5);
        assert_eq!(u16_at(&screen, field::FROM_Y), 6);
        assert_eq!(u32_at(&screen, field::VALUE), 0x0007_0008);
        let frame = descriptor(FRAME);
        assert_eq!((u16_at(&frame, field::OPERATION), u32_at(&frame, field::CODE)), (1, 80));
        assert_eq!((u16_at(&frame, field::WIDTH), u16_at(&frame, field::HEIGHT)), (640, 480));
        assert_eq!(u32_at(&frame, field::NUMBER), 7);
        let packet = descriptor(Body::Packet { interface: 0x0304 });
        assert_eq!(u16_at(&packet, field::INTERFACE), 0x0304);
    }

    #[test]
    fn a_verdict_cannot_widen_a_request() {
        let mut wide = descriptor(FRAME);
        wide[field::VERDICT] = number::CROP;
        wide[field::W..field::W + 2].copy_from_slice(&641u16.to_le_bytes());
        assert!(Verdict::read(&wide, &FRAME).is_err());
        wide[field::W..field::W + 2].copy_from_slice(&639u16.to_le_bytes());
        let crop = Rect { x: 0, y: 0, w: 639, h: 480 };
        assert_eq!(Verdict::read(&wide, &FRAME), Ok(Verdict::Crop(crop)));
        wide[field::VERDICT] = number::QUALITY;
        wide[field::CODE] = 81;
        assert!(Verdict::read(&wide, &FRAME).is_err());
        let asked = Body::Block { operation: block::READ, lba: 8, blocks: 4, initiator: 1 };
        let mut more = descriptor(asked);
        more[field::VERDICT] = number::REMAP;
        assert_eq!(Verdict::read(&more, &asked), Ok(Verdict::Remap { lba: 8, blocks: 4 }));
        more[field::BLOCKS] = 5;
        assert!(Verdict::read(&more, &asked).is_err());
    }

    #[test]
    fn a_clip_of_nothing_cannot_have_edges_elsewhere() {
        let rect = Rect { x: 10, y: 10, w: 0, h: 5 };
        let asked =
            Body::Framebuffer { operation: framebuffer::DRAW, rect, from: (0, 0), value: 0 };
        let mut clip = descriptor(asked);
        clip[field::VERDICT] = number::CLIP;
        assert_eq!(Verdict::read(&clip, &asked), Ok(Verdict::Clip(rect)));
        // No pixels either, but an edge beyond 65535.
        (clip[field::W], clip[field::W + 1], clip[field::H]) = (0xff, 0xff, 0);
        assert!(Verdict::read(&clip, &asked).is_err());
    }

    #[test]
    fn a_verdict_of_another_kind_is_a_fault() {
        for verdict in 0..=255 {
            for body in [FRAME, Body::Packet { interface: 1 }] {
                let mut bytes = descriptor(body);
                bytes[field::VERDICT] = verdict;
                let is_read = Verdict::read(&bytes, &body).is_ok();
                let known = match body {
                    Body::Frame { .. } => matches!(verdict, 1..=3 | 11..=13),
                    _ => (1..=6).contains(&verdict),
                };
                assert_eq!(is_read, known, "{verdict} {body:?}");
            }
        }
    }

    #[test]
    fn rectangles_meet_within_both() {
        let a = Rect { x: 65_000, y: 0, w: 535, h: 10 };
        let b = Rect { x: 65_500, y: 5, w: 35, h: 65_000 };
        let both = a.meet(b);
        assert_eq!(both, Rect { x: 65_500, y: 5, w: 35, h: 5 });
        assert!(both.within(a) && both.within(b));
        assert!(a.meet(Rect { x: 0, y: 0, w: 10, h: 10 }).is_empty());
    }

    #[test]
    fn a_packet_is_classified_again_if_its_flow_changed() {
        let mut packet = [0; 40];
        packet[0] = 0x45;
        let before = packet;
        packet[1] = 0xb8;
        assert!(!reclassify(&before, &packet), "the DSCP is not part of a flow");
        packet[19] = 1;
        assert!(reclassify(&before, &packet));
        let mut port = before;
        port[23] = 80;
        assert!(reclassify(&before, &port));
    }
}
