//! Records of a ring of tracepoints: passes with time, process and fields; losses with when they were.
//!
//! Format: `linux/perf_event.h`. What is not understood is skipped; what is cut short ends the reading.

/// Bytes of `struct perf_event_header`.
const HEADER: usize = 8;
/// `PERF_RECORD_LOST`.
const LOST: u32 = 2;
/// `PERF_RECORD_SAMPLE`.
const SAMPLE: u32 = 9;
/// Bytes before a pass's own: process, thread, time, CPU, reserved, size.
const BEFORE: usize = 28;

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A tracepoint was passed.
    Pass {
        /// Nanoseconds of the monotonic clock.
        at: u64,
        /// The CPU.
        cpu: u32,
        /// The process that ran there, as this process numbers it; zero for none.
        process: u32,
        /// What the tracepoint recorded: see [`Format`](super::Format).
        data: &'a [u8],
    },
    /// Records of a CPU found no room.
    Lost {
        /// How many.
        count: u64,
        /// After this time, that of the last one before them.
        from: u64,
        /// Until then.
        until: u64,
    },
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk::<8>().map(|bytes| u64::from_ne_bytes(*bytes))
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk::<4>().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// Hands each record of a CPU to `each`; `last` is the time of the last one, kept from one reading to the next.
pub fn read(mut bytes: &[u8], last: &mut u64, mut each: impl FnMut(Record<'_>)) {
    while let Some((kind, rest)) = half(bytes, 0).zip(half(bytes, 4)) {
        let size = (rest >> 16) as usize;
        if size < HEADER || size > bytes.len() {
            return;
        }
        let (body, after) = (&bytes[HEADER..size], &bytes[size..]);
        bytes = after;
        let found = match kind {
            SAMPLE => pass(body),
            LOST => lost(body, *last),
            _ => None,
        };
        let Some(record) = found else { continue };
        let (Record::Pass { at, .. } | Record::Lost { until: at, .. }) = record;
        *last = at.max(*last);
        each(record);
    }
}

fn pass(body: &[u8]) -> Option<Record<'_>> {
    let len = half(body, BEFORE - 4)? as usize;
    let data = body.get(BEFORE..)?.get(..len)?;
    let (process, cpu) = (half(body, 0)?, half(body, 16)?);
    Some(Record::Pass { at: word(body, 8)?, cpu, process, data })
}

fn lost(body: &[u8], last: u64) -> Option<Record<'_>> {
    let (count, until) = (word(body, 8)?, word(body, 24)?);
    Some(Record::Lost { count, from: last.min(until), until })
}

/// Any bytes: records lie within them, none is read twice, and a gap does not end before it begins.
pub(super) fn fuzz(bytes: &[u8]) {
    let (mut read_bytes, mut last) = (0, 0);
    read(bytes, &mut last, |record| match record {
        Record::Pass { data, .. } => read_bytes += HEADER + BEFORE + data.len(),
        Record::Lost { from, until, .. } => {
            read_bytes += HEADER + 32;
            assert!(from <= until);
        }
    });
    assert!(read_bytes <= bytes.len());
}

#[cfg(test)]
mod tests {
    use super::super::made;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn passes_and_losses_are_read_and_the_rest_is_skipped() {
        let mut other = made::pass(1, 2, 3, &[]);
        other[0] = 3;
        let bytes = [
            made::pass(100, 1, 7, &[1, 2, 3, 4]),
            other,
            made::lost(5, 180),
            made::pass(190, 1, 0, &[]),
        ];
        let (mut seen, mut last) = (Vec::new(), 0);
        read(&bytes.concat(), &mut last, |record| seen.push(format!("{record:?}")));
        assert_eq!(
            seen,
            [
                "Pass { at: 100, cpu: 1, process: 7, data: [1, 2, 3, 4] }",
                "Lost { count: 5, from: 100, until: 180 }",
                "Pass { at: 190, cpu: 1, process: 0, data: [] }",
            ]
        );
        assert_eq!(last, 190);
    }

    #[test]
    fn a_record_that_is_cut_short_ends_the_reading_and_a_length_beyond_it_is_skipped() {
        let whole = made::pass(1, 0, 7, &[9; 8]);
        let count = |bytes: &[u8]| {
            let mut count = 0;
            read(bytes, &mut 0, |_| count += 1);
            count
        };
        assert_eq!((count(&whole), count(&whole[..whole.len() - 1])), (1, 0));
        let mut long = whole.clone();
        long[HEADER + BEFORE - 4] = 200;
        assert_eq!(count(&[long, whole].concat()), 1);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            size in 0u16..300,
            kind in prop::sample::select(vec![LOST, SAMPLE, 3]),
        ) {
            let head = [kind.to_ne_bytes(), (u32::from(size) << 16).to_ne_bytes()].concat();
            fuzz(&[head, bytes].concat());
        }
    }
}
