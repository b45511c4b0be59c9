//! Where the fields of a tracepoint's records are, as its `format` file in tracefs says.
//!
//! ```text
//! ID: 2304
//!         field:void * skbaddr;   offset:8;   size:8; signed:0;
//!         field:__data_loc char[] name;   offset:20;  size:4; signed:0;
//! ```
//!
//! Offsets differ between kernels, so none is assumed. Lines that are no fields are skipped; a file without an `ID`
//! is refused. A field `__data_loc` holds where its text is: the offset in the low 16 bits, the length in the high.
//!
//! Source: the kernel's `Documentation/trace/events.rst`, and `trace_events.h`.

use crate::perf;

/// The most bytes of such a file; the kernel's are a page at most.
const TEXT_MAX: usize = 1 << 16;
/// The most fields of a tracepoint.
const FIELDS_MAX: usize = 128;

/// A tracepoint's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// The number of the tracepoint, which its records begin with.
    pub id: u16,
    fields: Vec<(String, Field)>,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    /// A number, or bytes in their place.
    Value,
    /// Where a text is.
    Text,
    /// Something that is not read.
    Other,
}

/// Where a field is in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    offset: usize,
    size: usize,
    holds: Holds,
}

impl Format {
    /// That of a tracepoint, such as `net/net_dev_queue`; `None` where there is none, or this user may not read it.
    pub fn of(tracepoint: &str) -> Option<Format> {
        let bytes = perf::about(tracepoint, "format", TEXT_MAX)?;
        Format::parse(std::str::from_utf8(&bytes).ok()?)
    }

    /// Parses the text of a `format` file.
    pub fn parse(text: &str) -> Option<Format> {
        let mut id = None;
        let mut fields = Vec::new();
        for line in text.lines().map(str::trim) {
            if let Some(number) = line.strip_prefix("ID:") {
                id = number.trim().parse().ok();
            } else if let Some(field) = field(line).filter(|_| fields.len() < FIELDS_MAX) {
                fields.push(field);
            }
        }
        Some(Format { id: id?, fields })
    }

    /// The field of this name.
    pub fn field(&self, name: &str) -> Option<Field> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, field)| *field)
    }
}

/// `field:TYPE NAME;  offset:N;  size:N;  signed:N;`
fn field(line: &str) -> Option<(String, Field)> {
    let mut parts = line.strip_prefix("field:")?.split(';').map(str::trim);
    let declaration = parts.next()?;
    let number = |part: Option<&str>, name: &str| part?.strip_prefix(name)?.parse::<u16>().ok();
    let offset = usize::from(number(parts.next(), "offset:")?);
    let size = usize::from(number(parts.next(), "size:")?);
    let (kind, name) = declaration.rsplit_once([' ', '*'])?;
    let name = name.split('[').next().filter(|name| !name.is_empty())?;
    let holds = match kind.split_whitespace().next() {
        Some("__data_loc") if size == 4 => Holds::Text,
        Some("__data_loc" | "__rel_loc") => Holds::Other,
        _ => Holds::Value,
    };
    Some((name.to_owned(), Field { offset, size, holds }))
}

impl Field {
    fn bytes(self, record: &[u8]) -> Option<&[u8]> {
        record.get(self.offset..self.offset.checked_add(self.size)?)
    }

    /// Its value in a record, without regard to a sign; `None` where the record is shorter, or this is no number.
    pub fn number(self, record: &[u8]) -> Option<u64> {
        let bytes = self.bytes(record).filter(|_| self.holds == Holds::Value)?;
        Some(match *bytes {
            [one] => u64::from(one),
            [a, b] => u64::from(u16::from_ne_bytes([a, b])),
            [a, b, c, d] => u64::from(u32::from_ne_bytes([a, b, c, d])),
            _ => u64::from_ne_bytes(bytes.try_into().ok()?),
        })
    }

    /// Its text in a record, up to a zero.
    pub fn text(self, record: &[u8]) -> Option<&[u8]> {
        let bytes = match self.holds {
            Holds::Value => self.bytes(record)?,
            Holds::Text => {
                let at = u32::from_ne_bytes(self.bytes(record)?.try_into().ok()?);
                let (from, len) = ((at & 0xffff) as usize, (at >> 16) as usize);
                record.get(from..from + len)?
            }
            Holds::Other => return None,
        };
        bytes.split(|byte| *byte == 0).next()
    }
}

/// Any bytes as a `format` file, and as a record of it: what is read lies within.
pub(super) fn fuzz(bytes: &[u8]) {
    let Some(format) = Format::parse(&String::from_utf8_lossy(bytes)) else { return };
    assert!(format.fields.len() <= FIELDS_MAX);
    for (name, field) in &format.fields {
        assert!(format.field(name).is_some() && !name.is_empty());
        let whole = field.offset + field.size;
        assert!(field.number(bytes).is_none() || whole <= bytes.len());
        assert!(field.text(bytes).is_none_or(|text| text.len() <= bytes.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As Linux 6.18 has it, with a field of another kind.
    const QUEUE: &str = "name: net_dev_queue\nID: 2304\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:void * skbaddr;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int len;\toffset:16;\tsize:4;\tsigned:0;\n\
        \tfield:__data_loc char[] name;\toffset:20;\tsize:4;\tsigned:0;\n\
        \tfield:__rel_loc char[] far;\toffset:24;\tsize:4;\tsigned:0;\n\
        \tfield:char comm[4];\toffset:28;\tsize:4;\tsigned:0;\n\n\
        print fmt: \"dev=%s\", __get_str(name)\n";

    #[test]
    fn fields_are_found_where_the_kernel_says_they_are() {
        let format = Format::parse(QUEUE).unwrap();
        assert_eq!((format.id, format.fields.len()), (2304, 7));
        let mut record = vec![0u8; 36];
        record[..2].copy_from_slice(&2304u16.to_ne_bytes());
        record[8..16].copy_from_slice(&0xffff_8880_1234_5600u64.to_ne_bytes());
        record[16..20].copy_from_slice(&66u32.to_ne_bytes());
        record[20..24].copy_from_slice(&(32 | 4u32 << 16).to_ne_bytes());
        record[28..32].copy_from_slice(b"sh\0x");
        record[32..].copy_from_slice(b"lm0\0");
        let number = |name: &str| format.field(name).unwrap().number(&record);
        let text = |name: &str| format.field(name).unwrap().text(&record);
        assert_eq!(number("common_type"), Some(2304));
        assert_eq!(number("skbaddr"), Some(0xffff_8880_1234_5600));
        assert_eq!(number("len"), Some(66));
        assert_eq!((text("name"), number("name")), (Some(&b"lm0"[..]), None));
        assert_eq!((text("far"), number("far")), (None, None));
        assert_eq!(text("comm"), Some(&b"sh"[..]));
        assert_eq!(format.field("skb"), None);
    }

    #[test]
    fn what_a_record_is_too_short_for_is_absent() {
        let format = Format::parse(QUEUE).unwrap();
        let mut record = vec![0u8; 24];
        record[20..].copy_from_slice(&(20 | 5u32 << 16).to_ne_bytes());
        assert_eq!(format.field("skbaddr").unwrap().number(&record[..15]), None);
        assert_eq!(format.field("name").unwrap().text(&record), None, "a text beyond its end");
        assert_eq!(format.field("name").unwrap().text(&record[..22]), None);
    }

    #[test]
    fn what_is_no_format_is_refused_and_an_odd_line_skipped() {
        assert_eq!(Format::parse("format:\n\tfield:int a;\toffset:0;\tsize:4;\n"), None);
        assert_eq!(Format::parse("ID: 70000\n"), None);
        let odd = "ID: 1\nfield:int;\toffset:0;\tsize:4;\nfield:int a;\toffset:-1;\tsize:4;\n\
                   field:int b;\tsize:4;\nfield:int c;\toffset:0;\tsize:99999;\n";
        assert_eq!(Format::parse(odd).unwrap().fields, []);
        let long: String =
            (0..1000).map(|n| format!("field:int f{n};offset:0;size:4;\n")).collect();
        assert_eq!(Format::parse(&format!("ID: 1\n{long}")).unwrap().fields.len(), FIELDS_MAX);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(
            lines in prop::collection::vec(
                concat!(
                    "(ID:|field:)? ?(int|__data_loc|__rel_loc|\\*)? ?\\PC{0,8};",
                    "(offset:[0-9]{0,6};size:[0-9]{0,6};)?"
                ),
                0..12,
            )
        ) {
            fuzz(format!("ID: 7\n{}", lines.join("\n")).as_bytes());
        }
    }
}
