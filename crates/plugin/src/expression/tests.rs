//! Expressions: what they mean, what is refused, and that both forms agree.

use super::*;
use crate::host::{Host, Limits};
use crate::instance::{Fail, Instance};
use crate::request::{Body, Rect, block};
use lastmeter_base::Stream;
use proptest::prelude::*;

fn decide(kind: Kind, text: &str, request: &Request<'_>) -> Verdict {
    let mut policy = Expression::new("test", kind, text).unwrap();
    let mut answers = Answers::default();
    policy.process(Time::from_ps(0), &[*request], &mut answers);
    answers.answers[0].verdict
}

fn request(body: Body, data: &[u8]) -> Request<'_> {
    let length = data.len() as u32;
    Request { body, flow: 1, arrival: Time::from_ps(0), mark: 0, length, data }
}

const DENY: Verdict = Verdict::Deny { code: 0 };

fn command(operation: u16, lba: u64, blocks: u32) -> Request<'static> {
    request(Body::Block { operation, lba, blocks, initiator: 9 }, &[])
}

#[test]
fn a_disk_can_be_made_smaller_and_read_only() {
    let decide = |operation, lba, blocks| {
        let text = "(and (read-only) (within lba 0 4096))";
        decide(Kind::Block, text, &command(operation, lba, blocks))
    };
    assert_eq!(decide(block::READ, 0, 8), Verdict::Allow);
    assert_eq!(decide(block::READ, 4088, 8), Verdict::Allow);
    assert_eq!(decide(block::READ, 4089, 8), DENY);
    assert_eq!(decide(block::WRITE, 0, 8), DENY);
    assert_eq!(decide(block::READ, u64::MAX - 3, 3), DENY, "as a signed number it is -4");
    assert_eq!(decide(block::READ, i64::MAX as u64, 8), DENY, "the sum would wrap");
}

#[test]
fn packets_are_told_apart_by_their_headers() {
    let mut packet = [0; 40];
    packet[0] = 0x45;
    packet[1] = 46 << 2;
    packet[9] = 17;
    packet[12..16].copy_from_slice(&[10, 1, 2, 3]);
    packet[22..24].copy_from_slice(&53u16.to_be_bytes());
    let request = request(Body::Packet { interface: 2 }, &packet);
    let decide = |text| decide(Kind::Packet, text, &request);
    assert_eq!(decide("(in source 10.0.0.0/8)"), Verdict::Allow);
    assert_eq!(decide("(in source 11.0.0.0/8)"), DENY);
    assert_eq!(decide("(= source 10.1.2.3)"), Verdict::Allow);
    assert_eq!(decide("(and (= protocol 17) (= destination-port 53) (= dscp 46))"), Verdict::Allow);
    assert_eq!(decide("(if (= interface 2) (to-interface 7) (deny 5))"), Verdict::ToInterface(7));
    assert_eq!(decide("(if (= interface 3) (clone 7) (deny 5))"), Verdict::Deny { code: 5 });
    assert_eq!(decide("(to-interface 70000)"), DENY, "out of range becomes a denial");
    assert_eq!(decide("(= (u32 200) 0)"), Verdict::Allow, "beyond the data is zero");
    assert_eq!(decide("(= (/ 7 0) (mod 7 0))"), Verdict::Allow);
    assert_eq!(decide("(let ((a (+ length 2))) (= a 42)) ; a comment"), Verdict::Allow);
}

#[test]
fn rectangles_are_cut_to_what_they_share() {
    let rect = Rect { x: 10, y: 10, w: 100, h: 100 };
    let body = |rect| Body::Framebuffer { operation: 2, rect, from: (0, 0), value: 0 };
    let decide = |text, rect| decide(Kind::Framebuffer, text, &request(body(rect), &[]));
    let clipped = Verdict::Clip(Rect { x: 50, y: 10, w: 60, h: 40 });
    assert_eq!(decide("(clip 50 0 500 50)", rect), clipped);
    assert_eq!(decide("(clip 500 0 50 50)", rect), DENY);
    assert_eq!(decide("(clip -9999999999 -9999999999 5 5)", rect), DENY);
    assert_eq!(decide("(inside 0 0 110 110)", rect), Verdict::Allow);
    assert_eq!(decide("(inside 0 0 109 110)", rect), DENY);
    assert_eq!(decide("(move 65535 0)", rect), DENY);
    assert_eq!(decide("(move (+ x 5) y)", rect), Verdict::Move { x: 15, y: 10 });
    assert_eq!(decide("(clip 0 0 5 5)", Rect::default()), Verdict::Allow, "a key has no place");
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (text, said) in [
        ("", "column 1: the text ends here"),
        ("(and (read-only)", "column 1: this `(` has no `)`"),
        ("(and)) ", "column 6: an expression is one form"),
        (")", "`)` without"),
        ("(and\n  lba)", "line 2, column 3: true or false was expected"),
        ("(= lba blok)", "column 8: a block has no `blok`; it has operation, lba"),
        ("(= lba)", "column 1: 2 arguments are needed: (= NUMBER NUMBER)"),
        ("(= lba 99999999999999999999)", "column 8: `99999999999999999999` is no whole number"),
        ("(in lba 10.0.0.0/33)", "is no address"),
        ("(in lba 10)", "column 9: a prefix was expected"),
        ("(clip 1 2 3 4)", "`clip` is neither true nor false"),
        ("(= lba {)", "column 8: '{' is not a part of any word"),
        ("(let ((a)) (allow))", "(let ((NAME NUMBER)) BODY)"),
        ("(+ 1 2)", "`+` is neither true nor false"),
    ] {
        let wrong = Expression::new("test", Kind::Block, text).unwrap_err().describe(text);
        assert!(wrong.contains(said), "{text}: {wrong}");
    }
    let deep = "(not ".repeat(100) + "#t" + &")".repeat(100);
    assert!(parse(&deep).unwrap_err().what.contains("more than 32"));
    assert!(parse(&" ".repeat(TEXT_LEN_MAX + 1)).is_err());
    let broad = format!("(and {})", "(= destination-port 53) ".repeat(600));
    assert!(Expression::new("b", Kind::Packet, &broad).unwrap_err().what.contains("too large"));
}

/// Writes a random expression that passes the checks.
pub(crate) fn random_text(random: &mut Stream, kind: Kind) -> String {
    let mut text = String::new();
    outcome(random, kind, 4, &mut text);
    text
}

fn one_of<'a>(random: &mut Stream, choices: &[&'a str]) -> &'a str {
    choices[random.below(choices.len() as u64) as usize]
}

fn words(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Packet => &["length", "interface", "source", "dscp", "tcp-flags", "destination-port"],
        Kind::Block => &["lba", "blocks", "operation", "initiator", "write"],
        Kind::Framebuffer => &["x", "y", "width", "height", "value", "operation", "pointer"],
        Kind::Frame => &["x", "y", "width", "height", "quality", "number", "whole-width"],
    }
}

fn number(random: &mut Stream, kind: Kind, depth: u32, text: &mut String) {
    match random.below(if depth == 0 { 3 } else { 8 }) {
        0 => text.push_str(&random.below(100).to_string()),
        1 => {
            let wide = random.bits().cast_signed() >> random.below(64);
            text.push_str(&wide.to_string());
        }
        2 => text.push_str(one_of(random, words(kind))),
        3 => {
            text.push_str(one_of(random, &["(u8 ", "(u16 ", "(u32 "]));
            number(random, kind, 0, text);
            text.push(')');
        }
        4 => {
            text.push_str("(if ");
            truth(random, kind, depth - 1, text);
            list(random, kind, depth - 1, 2, text);
        }
        5 => {
            text.push_str("(let ((a ");
            number(random, kind, depth - 1, text);
            text.push_str(")) (bit-xor a");
            list(random, kind, depth - 1, 1, text);
            text.push(')');
        }
        _ => {
            let heads = [
                "(+",
                "(-",
                "(*",
                "(/",
                "(mod",
                "(min",
                "(max",
                "(bit-and",
                "(bit-or",
                "(bit-xor",
                "(shift-left",
                "(shift-right",
            ];
            text.push_str(one_of(random, &heads));
            list(random, kind, depth - 1, 2, text);
        }
    }
}

/// So many numbers, and the end of a list.
fn list(random: &mut Stream, kind: Kind, depth: u32, numbers: u32, text: &mut String) {
    for _ in 0..numbers {
        text.push(' ');
        number(random, kind, depth, text);
    }
    text.push(')');
}

fn truth(random: &mut Stream, kind: Kind, depth: u32, text: &mut String) {
    match random.below(if depth == 0 { 2 } else { 8 }) {
        0 => text.push_str(one_of(random, &["#t", "#f"])),
        1 | 2 => {
            text.push_str(one_of(random, &["(=", "(<", "(<=", "(>", "(>="]));
            list(random, kind, depth.saturating_sub(1), 2, text);
        }
        3 => {
            text.push_str(one_of(random, &["(and ", "(or "]));
            truth(random, kind, depth - 1, text);
            text.push(' ');
            truth(random, kind, depth - 1, text);
            text.push(')');
        }
        4 => {
            text.push_str("(not ");
            truth(random, kind, depth - 1, text);
            text.push(')');
        }
        5 => {
            text.push_str("(within ");
            text.push_str(one_of(random, words(kind)));
            list(random, kind, depth - 1, 2, text);
        }
        6 => match kind {
            Kind::Packet => text.push_str("(in source 10.0.0.0/8)"),
            Kind::Block => text.push_str("(read-only)"),
            _ => {
                text.push_str("(inside");
                list(random, kind, depth - 1, 4, text);
            }
        },
        _ => {
            text.push_str("(let ((a ");
            number(random, kind, depth - 1, text);
            text.push_str(")) (< a");
            list(random, kind, depth - 1, 1, text);
            text.push(')');
        }
    }
}

fn outcome(random: &mut Stream, kind: Kind, depth: u32, text: &mut String) {
    let own: &[(&str, u32)] = match kind {
        Kind::Packet => &[("(to-interface", 1), ("(to-flow", 1), ("(clone", 1)],
        Kind::Block => &[("(remap", 2)],
        Kind::Framebuffer => &[("(clip", 4), ("(move", 2)],
        Kind::Frame => &[("(crop", 4), ("(scale", 2), ("(recompress", 1)],
    };
    match random.below(if depth == 0 { 3 } else { 6 }) {
        0 => text.push_str(one_of(random, &["(allow)", "(deny)", "(deny 7)"])),
        1..=3 => {
            let (head, numbers) = own[random.below(own.len() as u64) as usize];
            text.push_str(head);
            list(random, kind, depth.min(2), numbers, text);
        }
        4 => truth(random, kind, depth - 1, text),
        _ => {
            text.push_str("(if ");
            truth(random, kind, depth - 1, text);
            text.push(' ');
            outcome(random, kind, depth - 1, text);
            text.push(' ');
            outcome(random, kind, depth - 1, text);
            text.push(')');
        }
    }
}

/// A random request, with fields that are near each other as often as far.
pub(crate) fn random_body(random: &mut Stream, kind: Kind) -> Body {
    fn side(random: &mut Stream) -> u16 {
        let most = if random.chance(0.5) { 200 } else { 65_536 };
        random.below(most) as u16
    }
    let mut rect = Rect { x: side(random), y: side(random), w: side(random), h: side(random) };
    rect.w = rect.w.min(u16::MAX - rect.x);
    rect.h = rect.h.min(u16::MAX - rect.y);
    match kind {
        Kind::Packet => Body::Packet { interface: side(random) },
        Kind::Block => Body::Block {
            operation: random.below(9) as u16,
            lba: random.bits() >> random.below(64),
            blocks: (random.bits() >> (32 + random.below(32))) as u32,
            initiator: random.below(4) as u32,
        },
        Kind::Framebuffer => Body::Framebuffer {
            operation: random.below(9) as u16,
            rect,
            from: (side(random), side(random)),
            value: random.below(100) as u32,
        },
        Kind::Frame => Body::Frame {
            format: 1,
            width: rect.x + rect.w,
            height: rect.y + rect.h,
            region: rect,
            number: random.below(1000) as u32,
            quality: 1 + random.below(100) as u8,
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_compiled_form_decides_as_the_interpreter(seed: u64) {
        let mut random = Stream::new(seed, "expressions");
        let host = Host::new(Limits { instances: 2, ..Limits::default() }).unwrap();
        for kind in Kind::ALL {
            let text = random_text(&mut random, kind);
            let mut expression = Expression::new("e", kind, &text).unwrap();
            let class = host.load("e", &expression.compile(), Some(kind)).unwrap();
            let now = Time::from_ps(0);
            let mut plugin = Instance::new(class, "e", b"", Fail::Closed, 0, now).unwrap();
            let data: Vec<Vec<u8>> = (0..80)
                .map(|_| {
                    let mut data: Vec<u8> =
                        (0..random.below(160)).map(|_| random.bits() as u8).collect();
                    if let Some(first) = data.first_mut().filter(|_| random.chance(0.8)) {
                        *first = if random.chance(0.7) { 0x45 } else { 0x60 };
                    }
                    data
                })
                .collect();
            let requests: Vec<_> =
                data.iter().map(|data| request(random_body(&mut random, kind), data)).collect();
            let (mut ours, mut theirs) = (Answers::default(), Answers::default());
            expression.process(now, &requests, &mut ours);
            plugin.process(now, &requests, &mut theirs);
            prop_assert!(plugin.is_running(), "{text}: {:?}", plugin.last_failure());
            prop_assert_eq!(&ours.answers, &theirs.answers, "{}", text);
        }
    }

    #[test]
    fn what_is_printed_means_the_same(seed: u64) {
        let mut random = Stream::new(seed, "printed");
        for kind in Kind::ALL {
            let text = random_text(&mut random, kind);
            let expression = Expression::new("e", kind, &text).unwrap();
            let printed = expression.form().to_string();
            let again = Expression::new("e", kind, &printed).unwrap();
            prop_assert_eq!(expression.form(), again.form());
            prop_assert_eq!(&expression.tree, &again.tree);
            prop_assert_eq!(printed, again.form().to_string());
        }
    }
}
