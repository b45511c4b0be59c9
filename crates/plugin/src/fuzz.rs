//! Entry points for fuzzing: any bytes in, no panic, and what is read is what was written.
//!
//! Modules are scanned but not compiled: the compiler is fuzzed by those who write it.

use crate::abi::{DESCRIPTION_LEN, DESCRIPTOR_LEN, Description};
use crate::chain::Effect;
use crate::expression::{Expression, parse};
use crate::host::scan;
use crate::index::{Index, Version};
use crate::request::{Answers, Body, Kind, Policy, Rect, Request, Verdict};
use crate::trust::Trust;
use lastmeter_base::Time;
use lastmeter_wire::fuzz::Target;

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "fuzz_plugin_module", run: module },
    Target { name: "fuzz_plugin_descriptor", run: descriptor },
    Target { name: "fuzz_plugin_expression", run: expression },
    Target { name: "fuzz_plugin_index", run: index },
    Target { name: "fuzz_plugin_signature", run: signature },
];

/// A module before it is compiled, and a description.
fn module(bytes: &[u8]) {
    // Whether it is refused does not matter, only that it ends.
    let _ = scan(bytes);
    if let Some(description) = bytes.first_chunk::<DESCRIPTION_LEN>()
        && let Ok(description) = Description::parse(description, 1 << 24)
    {
        assert_eq!(Description::parse(&description.emit(), 1 << 24), Ok(description));
        assert!((1..=crate::abi::BATCH_MAX).contains(&description.batch()));
        assert!(description.room as usize + description.room_len as usize <= 1 << 24);
    }
}

/// Numbers from the input; zeros after its end.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn next(&mut self) -> u64 {
        let (now, rest) = self.0.split_at(self.0.len().min(8));
        self.0 = rest;
        now.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }
    fn rect(&mut self) -> Rect {
        let bits = self.next();
        let (x, y) = (bits as u16, (bits >> 16) as u16);
        let fit = |len: u64, at: u16| (len as u16).min(u16::MAX - at);
        Rect { x, y, w: fit(bits >> 32, x), h: fit(bits >> 48, y) }
    }
    fn body(&mut self) -> Body {
        let kind = self.next();
        let operation = (kind >> 8) as u16;
        match kind % 4 {
            0 => Body::Packet { interface: operation },
            1 => Body::Block {
                operation,
                lba: self.next(),
                blocks: self.next() as u32,
                initiator: 1,
            },
            2 => Body::Framebuffer { operation, rect: self.rect(), from: (1, 1), value: 0 },
            _ => Body::Frame {
                format: operation,
                width: 1,
                height: 1,
                region: self.rect(),
                number: 1,
                quality: (kind >> 24) as u8,
            },
        }
    }
}

fn request<'a>(body: Body, data: &'a [u8]) -> Request<'a> {
    let length = data.len() as u32;
    Request { body, flow: 1, arrival: Time::from_ps(0), mark: 1, length, data }
}

/// A verdict that is read from any descriptor stays within the request.
fn descriptor(bytes: &[u8]) {
    let Some((bytes, rest)) = bytes.split_first_chunk::<DESCRIPTOR_LEN>() else { return };
    let body = Numbers(rest).body();
    let Ok(verdict) = Verdict::read(bytes, &body) else { return };
    let effect = Effect::of(&body, verdict, 0);
    assert!(effect.within(&effect));
    match (effect, body) {
        (Effect::Block { lba, blocks }, Body::Block { blocks: asked, .. }) => {
            let remapped = matches!(verdict, Verdict::Remap { .. });
            assert!(blocks <= asked && (!remapped || lba.checked_add(u64::from(blocks)).is_some()));
        }
        (Effect::Framebuffer { rect, .. }, Body::Framebuffer { rect: asked, .. }) => {
            assert!(rect.w <= asked.w && rect.h <= asked.h);
            assert!(rect.x.checked_add(rect.w).is_some() && rect.y.checked_add(rect.h).is_some());
        }
        (Effect::Frame { region, quality, .. }, Body::Frame { region: whole, quality: q, .. }) => {
            assert!(region.within(whole) && quality <= q);
        }
        _ => {}
    }
}

/// A text that is an expression: it prints as text that means the same, and decides about any request.
fn expression(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(form) = parse(text) else { return };
    let printed = form.to_string();
    assert!(parse(&printed).is_ok_and(|again| again == form), "{printed}");
    let mut answers = Answers::default();
    for kind in Kind::ALL {
        if let Ok(mut expression) = Expression::new("fuzz", kind, text) {
            let request = request(Numbers(bytes).body(), bytes);
            expression.process(Time::from_ps(0), &[request], &mut answers);
            assert_eq!(answers.answers.len(), 1);
            assert!(expression.compile().starts_with(b"\0asm"));
        }
    }
}

/// An index, a version, cases.
fn index(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(index) = Index::parse(text) {
        assert_eq!(Index::parse(&index.emit()), Ok(index));
    }
    if let Some(version) = Version::parse(text) {
        assert_eq!(version.to_string(), text);
    }
    let _ = crate::cases::Cases::parse(text);
}

/// A key and a signature, divided by a zero byte: nothing that was not signed is admitted.
fn signature(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let texts = (parts.next().map(std::str::from_utf8), parts.next().map(std::str::from_utf8));
    let (Some(Ok(key)), Some(Ok(signature))) = texts else { return };
    let mut trust = Trust::default();
    let _ = trust.add_key("fuzz", key);
    // The corpus has signatures of other bytes.
    let module = b"\0asm\x01\0\0\0 never signed";
    assert!(trust.admit("fuzz", Version(1, 0, 0), module, signature, false).is_err());
}
