//! Requests and the verdicts that they should get, written down: `lastmeter plugin test CASES.toml`.
//!
//! ```toml
//! config = "10 20"                    # given to lm_init
//!
//! [[case]]
//! name = "the second packet within a millisecond is dropped"
//! at = "1 ms"                         # when it is asked; never earlier than the case before
//! interface = 2                       # a packet; other kinds have their own fields
//! data = "45 00 00 14"
//! verdict = "deny 3"
//! changed = "45 b8 00 14"             # where the verdict is "changed"
//! ```
//!
//! Verdicts are `allow`, `deny CODE`, `changed`, `to-interface N`, `to-flow N`, `clone N`, `remap LBA BLOCKS`,
//! `read-only`, `clip X Y WIDTH HEIGHT`, `move X Y`, `crop X Y WIDTH HEIGHT`, `scale WIDTH HEIGHT`, `recompress
//! QUALITY`.

use crate::request::{Answers, Body, Kind, Policy, Rect, Request, Verdict};
use lastmeter_base::text::Quantity;
use lastmeter_base::{Duration, Time};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;

/// The longest file of cases.
pub const CASES_LEN_MAX: usize = 1 << 20;

/// A file of cases.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cases {
    /// Given to `lm_init`.
    #[serde(default)]
    pub config: String,
    /// In the order in which they are asked.
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
}

/// A request, and the verdict that it should get. Fields of another kind are ignored.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Case {
    /// What it shows.
    pub name: String,
    /// When it is asked.
    pub at: Option<String>,
    /// How often.
    pub times: Option<u32>,
    /// Its flow.
    pub flow: u64,
    /// Its length; that of its data if absent.
    pub length: Option<u32>,
    /// In hexadecimal digits.
    pub data: String,
    /// Of a packet.
    pub interface: u16,
    /// Of a block or framebuffer command, as a number; the pixel format of a frame.
    pub operation: u16,
    /// Of a block command.
    pub lba: u64,
    /// Of a block command.
    pub blocks: u32,
    /// Of a block command.
    pub initiator: u32,
    /// Of a framebuffer command or frame: x, y, width, height.
    pub rectangle: [u16; 4],
    /// Of a copy.
    pub from: [u16; 2],
    /// Of a framebuffer command.
    pub value: u32,
    /// Of a frame: width and height.
    pub whole: Option<[u16; 2]>,
    /// Of a frame.
    pub number: u32,
    /// Of a frame.
    pub quality: Option<u8>,
    /// What it should be.
    pub verdict: String,
    /// The data that it should be changed to.
    pub changed: Option<String>,
}

/// The quality of a frame unless a case says otherwise.
const QUALITY: u8 = 80;

impl Cases {
    /// Reads a file of cases; the error says what is wrong.
    pub fn parse(text: &str) -> Result<Cases, String> {
        if text.len() > CASES_LEN_MAX {
            return Err(format!("{} bytes of cases; at most {CASES_LEN_MAX}", text.len()));
        }
        toml::from_str(text).map_err(|error| error.to_string())
    }
    /// Asks a policy about each; returns what was wrong, a sentence each.
    pub fn run(&self, policy: &mut dyn Policy, kind: Kind) -> Result<Vec<String>, String> {
        let (mut wrong, mut now) = (Vec::new(), Time::from_ps(0));
        let mut answers = Answers::default();
        // The plugin's word for each flow, as a device would keep it.
        let mut marks = BTreeMap::new();
        for case in &self.cases {
            let name = &case.name;
            if let Some(at) = &case.at {
                let at = Duration::parse(at).map_err(|error| format!("{name}: {error}"))?;
                now = now.max(Time::from_ps(0) + at);
            }
            let data = hex(&case.data).ok_or(format!("{name}: data are hexadecimal digits"))?;
            let mut request = Request {
                body: case.body(kind),
                flow: case.flow,
                arrival: now,
                mark: marks.get(&case.flow).copied().unwrap_or(0),
                length: case.length.unwrap_or(data.len() as u32),
                data: &data,
            };
            for _ in 0..case.times.unwrap_or(1) {
                policy.process(now, &[request], &mut answers);
                request.mark = answers.answers.first().map_or(0, |answer| answer.mark);
            }
            marks.insert(case.flow, request.mark);
            let Some(answer) = answers.answers.first() else { continue };
            let found = answer.verdict.to_string();
            if found != case.verdict {
                wrong.push(format!("{name}: {found}; it should be {}", case.verdict));
            } else if let Some(changed) = &case.changed {
                let changed = hex(changed).ok_or(format!("{name}: changed is hexadecimal"))?;
                let found = answers.data(answer);
                if found != changed {
                    wrong.push(format!("{name}: changed to {}", digits(found)));
                }
            }
        }
        Ok(wrong)
    }
}

impl Case {
    fn body(&self, kind: Kind) -> Body {
        let [x, y, w, h] = self.rectangle;
        let rect = Rect { x, y, w, h };
        let operation = self.operation;
        match kind {
            Kind::Packet => Body::Packet { interface: self.interface },
            Kind::Block => {
                let Case { lba, blocks, initiator, .. } = *self;
                Body::Block { operation, lba, blocks, initiator }
            }
            Kind::Framebuffer => {
                let from = (self.from[0], self.from[1]);
                Body::Framebuffer { operation, rect, from, value: self.value }
            }
            Kind::Frame => {
                let [width, height] =
                    self.whole.unwrap_or([x.saturating_add(w), y.saturating_add(h)]);
                let quality = self.quality.unwrap_or(QUALITY);
                let number = self.number;
                Body::Frame { format: operation, width, height, region: rect, number, quality }
            }
        }
    }
}

/// Bytes from hexadecimal digits, with any blanks.
fn hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16)).collect();
    let digits = digits?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| (high << 4 | low) as u8).collect())
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Allow => f.write_str("allow"),
            Verdict::Deny { code } => write!(f, "deny {code}"),
            Verdict::Changed => f.write_str("changed"),
            Verdict::ToInterface(to) => write!(f, "to-interface {to}"),
            Verdict::ToFlow(to) => write!(f, "to-flow {to}"),
            Verdict::Clone(to) => write!(f, "clone {to}"),
            Verdict::Remap { lba, blocks } => write!(f, "remap {lba} {blocks}"),
            Verdict::ReadOnly => f.write_str("read-only"),
            Verdict::Clip(Rect { x, y, w, h }) => write!(f, "clip {x} {y} {w} {h}"),
            Verdict::Move { x, y } => write!(f, "move {x} {y}"),
            Verdict::Crop(Rect { x, y, w, h }) => write!(f, "crop {x} {y} {w} {h}"),
            Verdict::Scale { w, h } => write!(f, "scale {w} {h}"),
            Verdict::Quality(quality) => write!(f, "recompress {quality}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::Expression;

    #[test]
    fn cases_are_compared_and_differences_named() {
        let text = r#"
            [[case]]
            name = "small"
            data = "45 00"
            verdict = "allow"
            [[case]]
            name = "large"
            length = 100
            verdict = "allow"
        "#;
        let cases = Cases::parse(text).unwrap();
        let mut policy = Expression::new("e", Kind::Packet, "(< length 50)").unwrap();
        let wrong = cases.run(&mut policy, Kind::Packet).unwrap();
        assert_eq!(wrong, ["large: deny 0; it should be allow"]);
        assert!(Cases::parse("[[case]]\nverdikt = 1").unwrap_err().contains("verdikt"));
    }
}
