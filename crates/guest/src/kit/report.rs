//! What the agent in a guest says over its serial port, line by line.
//!
//! ```text
//! ready 2.91                 seconds since the guest's kernel started
//! sample first 3.02          counters follow: before the command (first), every so often (during), after it (last)
//! file stat                  a file of /proc; its lines begin with a blank
//!  cpu  12 0 49 ...
//! end
//! exit 0                     the command's status
//! ```
//!
//! A guest may say anything: what does not fit is counted and left out.

use std::collections::BTreeMap;

/// Samples that are kept.
pub const SAMPLES_MAX: usize = 4096;
/// Bytes of a sample's files together, and of a line.
pub const SAMPLE_MAX: usize = 1 << 18;

/// Counters of the guest at an instant, as its kernel gives them: sampled, not exact.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// `first`, `during` or `last`.
    pub when: String,
    /// Seconds since the guest's kernel started.
    pub uptime: f64,
    /// Files of /proc by their name, without `/proc/`.
    pub files: BTreeMap<String, String>,
}

impl Sample {
    /// A number of a line of one of the files: the line begins with `name`, numbers are counted from 0.
    pub fn number(&self, file: &str, name: &str, at: usize) -> Option<u64> {
        let mut lines = self.files.get(file)?.lines();
        let line = lines.find_map(|line| line.trim_start().strip_prefix(name))?;
        line.split_whitespace().nth(at)?.parse().ok()
    }

    /// Interrupts of all processors of the line that ends with `device`.
    pub fn interrupts(&self, device: &str) -> Option<u64> {
        let line = self.files.get("interrupts")?.lines().find(|line| line.ends_with(device))?;
        let counts = line.split_whitespace().skip(1);
        Some(counts.map_while(|count| count.parse::<u64>().ok()).sum())
    }
}

/// All that was said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// When the command was about to start, in seconds of the guest.
    pub ready: Option<f64>,
    /// Counters, by time.
    pub samples: Vec<Sample>,
    /// The command's exit status.
    pub status: Option<i32>,
    /// Lines that no agent would say, and samples beyond [`SAMPLES_MAX`].
    pub odd: u64,
    open: Option<(Sample, Option<String>, usize)>,
}

impl Report {
    /// Reads a line, without its end.
    pub fn line(&mut self, line: &str) {
        let line = line.trim_end_matches('\r');
        if self.in_sample(line) {
            return;
        }
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "ready" => self.ready = seconds(rest).or_else(|| self.refuse()),
            "exit" => self.status = rest.parse().ok().or_else(|| self.refuse()),
            "sample" => {
                let (when, uptime) = rest.split_once(' ').unwrap_or((rest, ""));
                match seconds(uptime) {
                    Some(uptime) => {
                        let sample =
                            Sample { when: when.to_owned(), uptime, files: BTreeMap::new() };
                        self.open = Some((sample, None, 0));
                    }
                    None => self.odd += 1,
                }
            }
            "" => {}
            _ => self.odd += 1,
        }
    }

    fn refuse<T>(&mut self) -> Option<T> {
        self.odd += 1;
        None
    }

    /// Whether the line belongs to the open sample.
    fn in_sample(&mut self, line: &str) -> bool {
        let Some((sample, file, bytes)) = self.open.as_mut() else { return false };
        *bytes += line.len() + 1;
        if let Some(content) = line.strip_prefix(' ') {
            match file {
                Some(name) if *bytes <= SAMPLE_MAX => {
                    let text = sample.files.entry(name.clone()).or_default();
                    text.push_str(content);
                    text.push('\n');
                }
                _ => self.odd += 1,
            }
            return true;
        }
        if let Some(name) = line.strip_prefix("file ") {
            if *bytes <= SAMPLE_MAX {
                *file = Some(name.to_owned());
            }
            return true;
        }
        if line == "end" {
            match (self.open.take(), self.samples.len() < SAMPLES_MAX) {
                (Some((sample, ..)), true) => self.samples.push(sample),
                _ => self.odd += 1,
            }
            return true;
        }
        // It was cut off.
        self.odd += 1;
        self.open = None;
        false
    }
}

fn seconds(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|seconds: &f64| seconds.is_finite() && *seconds >= 0.0)
}

/// The entry point of fuzzing: bytes of a serial port.
pub fn fuzz(bytes: &[u8]) {
    let mut report = Report::default();
    String::from_utf8_lossy(bytes).lines().for_each(|line| report.line(line));
    assert!(report.samples.len() <= SAMPLES_MAX);
    for sample in &report.samples {
        let bytes: usize = sample.files.iter().map(|(name, text)| name.len() + text.len()).sum();
        assert!(bytes <= SAMPLE_MAX && sample.uptime >= 0.0);
        let _ = sample.number("stat", "cpu", 0);
        let _ = sample.interrupts("virtio0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Report {
        let mut report = Report::default();
        text.lines().for_each(|line| report.line(line));
        report
    }

    const SAID: &str = "ready 2.91\nsample first 3.02\nfile stat\n cpu  12 0 49\n cpu0 12 0 49\nfile \
                        interrupts\n           CPU0\n  10:   42   IO-APIC  virtio0\nend\nexit 7\n";

    #[test]
    fn samples_and_status_are_read() {
        let report = read(SAID);
        assert_eq!((report.ready, report.status, report.odd), (Some(2.91), Some(7), 0));
        let [sample] = &report.samples[..] else { panic!("{report:?}") };
        assert_eq!((sample.when.as_str(), sample.uptime), ("first", 3.02));
        assert_eq!(sample.number("stat", "cpu ", 2), Some(49));
        assert_eq!(sample.interrupts("virtio0"), Some(42));
        assert_eq!(sample.number("none", "cpu", 0), None);
    }

    #[test]
    fn what_no_agent_says_is_counted() {
        assert_eq!(read("hello\nexit\nready -1\nsample x y\n").odd, 4);
        // A sample that another begins in is left out.
        let cut = read("sample first 1\nfile stat\n a\nsample last 2\nfile stat\n b 1\nend\n");
        assert_eq!((cut.samples.len(), cut.odd, cut.samples[0].uptime), (1, 1, 2.0));
        assert_eq!(read("sample first 1\n x\nend").odd, 1);
    }

    #[test]
    fn a_sample_without_end_keeps_no_more_than_its_limit() {
        let mut report = read("sample first 1\nfile stat\n");
        let line = format!(" {}", "x".repeat(1000));
        (0..2 * SAMPLE_MAX / 1000).for_each(|_| report.line(&line));
        report.line("end");
        assert!(report.odd > 0 && report.samples[0].files["stat"].len() <= SAMPLE_MAX);
    }

    proptest! {
        #[test]
        fn anything_may_be_said(
            lines in prop::collection::vec(
                prop_oneof![
                    Just("end".to_owned()), "sample [a-z]{0,3} [0-9.]{0,4}", "file [a-z]{0,5}", " [ -~]{0,20}",
                    "exit [0-9-]{0,4}", "ready [0-9.]{0,4}", "\\PC{0,20}",
                ],
                0..60,
            ),
        ) {
            fuzz(lines.join("\n").as_bytes());
        }
    }
}
