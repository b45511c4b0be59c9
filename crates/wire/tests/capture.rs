//! Captures: the example file, both byte orders, both resolutions, and all kinds of malformed files.

use lastmeter_base::{Bytes, Duration, Time};
use lastmeter_wire::capture::{
    CaptureError, LinkType, OPTIONS_LEN_MAX, RECORD_LEN_MAX, Reader, Record, Writer,
};

const MIXED: &[u8] = include_bytes!("../../../examples/captures/mixed.pcapng");

fn read_all(file: &[u8]) -> Result<Vec<Record>, CaptureError> {
    Reader::open(file)?.collect()
}

/// A block in the given byte order.
fn block(big: bool, kind: u32, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    let len = body.len() as u32 + 12;
    let word = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    [&word(kind)[..], &word(len), &body, &word(len)].concat()
}

fn words(big: bool, values: &[u32]) -> Vec<u8> {
    let word = |value: &u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    values.iter().flat_map(word).collect()
}

fn section(big: bool) -> Vec<u8> {
    let version = if big { 1 << 16 } else { 1 };
    block(big, 0x0a0d_0d0a, &words(big, &[0x1a2b_3c4d, version, u32::MAX, u32::MAX]))
}

/// An interface with one option of one byte.
fn interface(big: bool, link: u16, option: Option<(u16, u8)>) -> Vec<u8> {
    let half = |value: u16| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let mut body = [&half(link)[..], &[0; 6]].concat();
    if let Some((code, value)) = option {
        body.extend([&half(code)[..], &half(1), &[value, 0, 0, 0]].concat());
    }
    block(big, 1, &body)
}

fn packet(big: bool, interface: u32, stamp: u64, wire: u32, data: &[u8]) -> Vec<u8> {
    let head = [interface, (stamp >> 32) as u32, stamp as u32, data.len() as u32, wire];
    block(big, 6, &[&words(big, &head), data].concat())
}

#[test]
fn reads_the_example_capture() {
    let mut reader = Reader::open(MIXED).unwrap();
    assert_eq!(reader.link_type(), LinkType::ETHERNET);
    assert_eq!(reader.interfaces()[0].name.as_deref(), Some("lm0"));
    assert_eq!(reader.interfaces()[0].ticks_per_second, 1_000_000_000);
    let records: Vec<Record> = reader.by_ref().collect::<Result<_, _>>().unwrap();
    // The counts that capinfos and tshark print for the file.
    assert_eq!(records.len(), 855);
    assert_eq!(records.iter().map(|record| record.len_on_wire).sum::<Bytes>(), Bytes(795_304));
    assert_eq!(records[0].since_first, Duration::ZERO);
    assert_eq!(records[854].since_first, Duration::from_ns(2_565_999_857));
    assert!(records.iter().all(|record| record.data.len() <= 96));
    assert_eq!(reader.backwards, 0);
    assert_eq!(reader.records(), 855);
}

#[test]
fn writes_what_it_reads_back() {
    let records = read_all(MIXED).unwrap();
    let mut pcapng = Writer::pcapng(Vec::new()).unwrap();
    pcapng.add_interface(LinkType::ETHERNET, "copy", Bytes(65_535)).unwrap();
    let mut pcap = Writer::pcap(Vec::new(), LinkType::ETHERNET, Bytes(65_535)).unwrap();
    for record in &records {
        let at = Time::from_ps(record.since_first.as_ps());
        pcapng.write(at, 0, record.len_on_wire, &record.data).unwrap();
        pcap.write(at, 0, record.len_on_wire, &record.data).unwrap();
    }
    assert_eq!(read_all(&pcapng.finish().unwrap()).unwrap(), records);
    assert_eq!(read_all(&pcap.finish().unwrap()).unwrap(), records);
}

#[test]
fn reads_both_byte_orders_and_both_fractions_of_pcap() {
    for big in [false, true] {
        for (magic, unit) in [(0xa1b2_c3d4, 1_000_000), (0xa1b2_3c4d, 1_000)] {
            let version = if big { 2 << 16 | 4 } else { 4 << 16 | 2 };
            let mut file = words(big, &[magic, version, 0, 0, 65_535, 101]);
            file.extend(words(big, &[7, 999_999, 3, 1500]).iter().chain(b"abc"));
            file.extend(words(big, &[8, 1, 2, 2]).iter().chain(b"de"));
            let records = read_all(&file).unwrap();
            assert_eq!(records[0].data, b"abc");
            assert_eq!(records[0].len_on_wire, Bytes(1500));
            let second = Duration::from_secs(1).as_ps();
            assert_eq!(records[1].since_first, Duration::from_ps(second - 999_998 * unit));
        }
    }
}

#[test]
fn keeps_the_clock_of_every_interface() {
    for big in [false, true] {
        let file = [
            section(big),
            interface(big, 1, None),
            interface(big, 147, Some((9, 9))),
            interface(big, 100, Some((9, 0x80 | 10))),
            packet(big, 0, 1_000_000, 60, b"us"),
            packet(big, 1, 1_000_000_005, 61, b"ns"),
            packet(big, 2, 1025, 62, b"2^-10 s"),
            block(big, 3, &[&words(big, &[64])[..], b"simple"].concat()),
            packet(big, 0, 999_999, 60, b"early"),
            block(big, 0x0bad, b"unknown"),
        ]
        .concat();
        let mut reader = Reader::open(file.as_slice()).unwrap();
        let records: Vec<Record> = reader.by_ref().collect::<Result<_, _>>().unwrap();
        let since: Vec<u64> = records.iter().map(|record| record.since_first.as_ps()).collect();
        assert_eq!(since, [0, 5_000, 976_562_500, 976_562_500, 0]);
        assert_eq!(records[2].data, b"2^-10 s");
        assert_eq!(records[3].len_on_wire, Bytes(64));
        assert_eq!(reader.interfaces()[1].link_type, LinkType::JETSTREAM);
        assert_eq!(reader.backwards, 1, "one record has an earlier timestamp than the first");
    }
}

#[test]
fn numbers_interfaces_over_all_sections() {
    let file = [
        section(false),
        interface(false, 1, None),
        packet(false, 0, 1, 4, b"in a"),
        section(true),
        interface(true, 101, None),
        packet(true, 0, 2, 4, b"in b"),
    ]
    .concat();
    let records = read_all(&file).unwrap();
    assert_eq!([records[0].interface, records[1].interface], [0, 1]);
}

#[test]
fn an_error_says_where_a_file_ends_too_early() {
    for len in 1..MIXED.len().min(3000) {
        let records = match Reader::open(&MIXED[..len]) {
            Ok(reader) => reader.filter(Result::is_ok).count() as u64,
            Err(CaptureError::Truncated { record, .. }) => record - 1,
            // Ends between two blocks, before the first interface.
            Err(CaptureError::Malformed { .. }) => 0,
            Err(error) => panic!("{len}: {error}"),
        };
        let error = read_all(&MIXED[..len]).err();
        if let Some(CaptureError::Truncated { record, offset }) = error {
            assert_eq!(record, records + 1, "cut at {len}");
            assert!(offset < len as u64);
        }
    }
    let error = read_all(&MIXED[..1000]).unwrap_err();
    assert!(error.to_string().contains("the file ends within it"), "{error}");
}

#[test]
fn refuses_items_that_are_too_long_before_allocating() {
    let long = RECORD_LEN_MAX as u32 + 1;
    let mut pcap = words(false, &[0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_535, 1]);
    pcap.extend(words(false, &[0, 0, long, long]));
    let error = read_all(&pcap).unwrap_err();
    assert!(matches!(error, CaptureError::TooLong { record: 1, offset: 24, .. }), "{error}");

    let head = [section(false), interface(false, 1, None)].concat();
    let mut file = head.clone();
    file.extend(words(false, &[6, 0xffff_fff0, 0, 0, 0, 0xffff_ff00, 0xffff_ff00]));
    let error = read_all(&file).unwrap_err();
    assert!(matches!(error, CaptureError::TooLong { record: 1, .. }), "{error}");

    let mut file = section(false);
    file.extend(words(false, &[1, OPTIONS_LEN_MAX as u32 + 24, 1, 0]));
    let error = read_all(&file).unwrap_err();
    assert!(matches!(error, CaptureError::TooLong { .. }), "{error}");
}

#[test]
fn an_error_names_the_fault_of_a_malformed_block() {
    let head = [section(false), interface(false, 1, None)].concat();
    let broken = |tail: Vec<u8>| {
        let file = [head.clone(), packet(false, 0, 1, 1, b"x"), tail].concat();
        read_all(&file).unwrap_err().to_string()
    };
    let mut ends_badly = packet(false, 0, 2, 2, b"ab");
    let last = ends_badly.len() - 4;
    ends_badly[last] ^= 1;
    let cases = [
        (ends_badly, "trailing length must equal"),
        (words(false, &[6, 33]), "multiple of 4"),
        (words(false, &[6, 8]), "12 bytes or more"),
        (words(false, &[6, 16, 0, 16]), "32 bytes or more"),
        (packet(false, 5, 2, 2, b"ab"), "unknown interface, found 5"),
        (packet(false, 0, u64::MAX, 2, b"ab"), "213 days"),
        (block(false, 6, &words(false, &[0, 0, 9, 64, 64])), "longer than its block"),
        (interface(false, 1, Some((9, 20))), "10^19 or 2^63"),
        (block(false, 1, &words(false, &[1, 0, 9 | 400 << 16])), "option runs past"),
    ];
    for (tail, expected) in cases {
        let text = broken(tail);
        assert!(text.contains(expected), "{text}");
        assert!(text.starts_with("record 2 at byte 84"), "{text}");
    }
}

#[test]
fn refuses_files_that_are_not_captures() {
    let error = Reader::open(&b"GIF89a"[..]).unwrap_err();
    assert!(matches!(error, CaptureError::NotACapture { magic } if &magic == b"GIF8"));
    assert!(matches!(Reader::open(&b""[..]), Err(CaptureError::Truncated { .. })));
    assert!(Reader::open(section(true).as_slice()).is_err(), "no interface");
}

#[test]
fn reads_a_long_capture_in_bounded_memory() {
    /// A capture of `left` packets that is generated while it is read.
    struct Endless {
        pending: Vec<u8>,
        at: usize,
        left: u32,
    }
    impl std::io::Read for Endless {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            if self.at == self.pending.len() {
                if self.left == 0 {
                    return Ok(0);
                }
                self.left -= 1;
                (self.pending, self.at) = (packet(false, 0, 1, 9000, &[7; 9000]), 0);
            }
            let len = out.len().min(self.pending.len() - self.at);
            out[..len].copy_from_slice(&self.pending[self.at..self.at + len]);
            self.at += len;
            Ok(len)
        }
    }
    let pending = [section(false), interface(false, 1, None)].concat();
    let mut reader = Reader::open(Endless { pending, at: 0, left: 20_000 }).unwrap();
    let mut record = Record::default();
    let mut count = 0;
    while reader.read(&mut record).unwrap() {
        assert!(record.data.capacity() <= 16_384);
        count += 1;
    }
    assert_eq!(count, 20_000);
}
