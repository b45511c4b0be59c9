//! Records of the sampling clock's ring: samples with their call chains, forks, losses.
//!
//! Format: `linux/perf_event.h`. What is not understood is skipped; what is cut short ends the reading.

/// The most frames of a chain that are looked at; the kernel keeps 127 unless told otherwise.
const FRAMES_MAX: usize = 256;
/// Addresses above this one are marks between kernel and user frames (`PERF_CONTEXT_MAX`).
const MARKS: u64 = -4095_i64 as u64;
/// Bytes of `struct perf_event_header`.
const HEADER: usize = 8;
/// `PERF_RECORD_LOST`, `PERF_RECORD_FORK`, `PERF_RECORD_SAMPLE`.
const LOST: u32 = 2;
/// See [`LOST`].
const FORK: u32 = 7;
/// See [`LOST`].
const SAMPLE: u32 = 9;
/// `PERF_RECORD_MISC_USER` of the low three bits.
const USER: u16 = 2;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// A sample.
    Sample {
        /// The process.
        pid: u32,
        /// It was in user mode.
        user: bool,
        /// The kernel's frames, innermost first.
        chain: Chain<'a>,
    },
    /// A process or thread was started.
    Fork { pid: u32, parent: u32 },
    /// So many records found no room.
    Lost(u64),
}

/// The addresses of a chain, innermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chain<'a>(&'a [u8]);

impl<'a> Chain<'a> {
    /// The kernel's addresses.
    pub(super) fn addresses(self) -> impl Iterator<Item = u64> + 'a {
        let words = self.0.chunks_exact(8).take(FRAMES_MAX);
        words.map(|bytes| word(bytes, 0)).filter(|&address| address < MARKS)
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
    found.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

fn half(bytes: &[u8], at: usize) -> u32 {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    found.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

/// Hands each record to `each`.
pub(super) fn read(mut bytes: &[u8], mut each: impl FnMut(Record<'_>)) {
    while bytes.len() >= HEADER {
        let (kind, rest) = (half(bytes, 0), half(bytes, 4));
        let (misc, size) = (rest as u16, (rest >> 16) as usize);
        if size < HEADER || size > bytes.len() {
            return;
        }
        let (body, after) = (&bytes[HEADER..size], &bytes[size..]);
        bytes = after;
        match kind {
            SAMPLE if body.len() >= 16 => {
                let frames = word(body, 8).min((body.len() as u64 - 16) / 8) as usize;
                let chain = Chain(&body[16..16 + frames * 8]);
                each(Record::Sample { pid: half(body, 0), user: misc & 7 == USER, chain });
            }
            FORK if body.len() >= 8 => {
                each(Record::Fork { pid: half(body, 0), parent: half(body, 4) });
            }
            LOST if body.len() >= 16 => each(Record::Lost(word(body, 8))),
            _ => {}
        }
    }
}

/// Any bytes: records lie within them, and none is read twice.
pub(super) fn fuzz(bytes: &[u8]) {
    let (mut records, mut frames) = (0, 0);
    read(bytes, |record| {
        records += 1;
        if let Record::Sample { chain, .. } = record {
            frames += chain.addresses().count();
        }
    });
    assert!(records * HEADER + frames * 8 <= bytes.len());
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A record as the kernel writes it.
    pub(in super::super) fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let size = (HEADER + body.len()) as u16;
        [&kind.to_ne_bytes()[..], &misc.to_ne_bytes(), &size.to_ne_bytes(), body].concat()
    }

    /// A sample of a kernel chain.
    pub(in super::super) fn sample(pid: u32, misc: u16, chain: &[u64]) -> Vec<u8> {
        let mut body = [pid.to_ne_bytes(), pid.to_ne_bytes()].concat();
        body.extend((chain.len() as u64).to_ne_bytes());
        chain.iter().for_each(|address| body.extend(address.to_ne_bytes()));
        record(SAMPLE, misc, &body)
    }

    #[test]
    fn reads_samples_forks_and_losses_and_skips_the_rest() {
        let kernel_mark = -128_i64 as u64;
        let bytes = [
            sample(7, 1, &[kernel_mark, 0xffff_0001, 0xffff_0002]),
            record(3, 0, &[0; 24]),
            sample(8, 2, &[]),
            record(FORK, 0, &[9u32.to_ne_bytes(), 7u32.to_ne_bytes()].concat()),
            record(LOST, 0, &[1u64.to_ne_bytes(), 5u64.to_ne_bytes()].concat()),
            record(SAMPLE, 0, &[0; 8]),
        ];
        let mut seen = Vec::new();
        read(&bytes.concat(), |record| {
            seen.push(match record {
                Record::Sample { pid, user, chain } => {
                    format!("{pid} {user} {:x?}", chain.addresses().collect::<Vec<_>>())
                }
                other => format!("{other:?}"),
            });
        });
        let right = ["7 false [ffff0001, ffff0002]", "8 true []", "Fork { pid: 9, parent: 7 }"];
        assert_eq!(seen[..3], right);
        assert_eq!(seen[3..], ["Lost(5)"]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            fuzz(&bytes);
        }
    }
}
