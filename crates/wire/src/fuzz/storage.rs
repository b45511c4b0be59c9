//! The protocols of disks.

use crate::certificate;
use crate::iscsi::{self, Request, Response, text};
use crate::nbd;
use crate::scsi::{CDB_LEN, Command, Sense};
use crate::ticket::{self, Head, RECORD_LEN, Signed, TICKET_MAX, Ticket};

/// NBD's options and requests: what parses is emitted as it was.
pub fn fuzz_nbd(input: &[u8]) {
    if let Some(Ok(option)) = input.first_chunk().map(nbd::Option::parse) {
        assert_eq!(option.emit(), input[..nbd::OPTION_LEN]);
    }
    if let Some(Ok(request)) = input.first_chunk().map(nbd::Request::parse) {
        assert_eq!(request.emit(), input[..nbd::REQUEST_LEN]);
    }
    if let Ok(wanted) = nbd::Wanted::parse(input) {
        assert_eq!(wanted.emit(), input);
    }
    if let Ok((name, queries)) = nbd::contexts(input) {
        let len: usize = queries.iter().map(|query| 4 + query.len()).sum();
        assert_eq!(8 + name.len() + len, input.len());
    }
}

/// iSCSI's headers and text: what parses is emitted so that it parses to the same, and values are bounded.
pub fn fuzz_iscsi(input: &[u8]) {
    if let Some(header) = input.first_chunk() {
        if let Ok(request) = Request::parse(header) {
            assert_eq!(Request::parse(&request.emit()), Ok(request));
            let (more, data) = iscsi::lengths(header);
            assert_eq!((more / 4, data), (request.more_headers.into(), request.data_len as usize));
        }
        if let Ok(response) = Response::parse(header) {
            assert_eq!(Response::parse(&response.emit()), Ok(response));
        }
    }
    if let Ok(pairs) = text::parse(input) {
        let mut again = Vec::new();
        pairs.iter().for_each(|(key, value)| text::emit(&mut again, key, value));
        assert_eq!(text::parse(&again), Ok(pairs.clone()));
        for (_, value) in pairs {
            text::number(value);
            if let Some(bytes) = text::binary(value) {
                assert!(bytes.len() <= text::BINARY_MAX);
            }
        }
    }
}

/// SCSI's commands and sense.
pub fn fuzz_scsi(input: &[u8]) {
    if let Some(cdb) = input.first_chunk::<CDB_LEN>()
        && let Ok(command) = Command::parse(cdb)
    {
        // Twice the most blocks of the greatest size.
        assert!(command.data_out(4096) <= 2 * 4096 * u64::from(u32::MAX));
    }
    if let Some(sense) = Sense::parse(input) {
        assert_eq!(Sense::parse(&sense.fixed()), Some(sense));
        assert_eq!(Sense::parse(&sense.descriptors()), Some(sense));
    }
}

/// Tickets and the messages of transfers: what parses is emitted as it was, and is consistent.
pub fn fuzz_ticket(input: &[u8]) {
    if let Ok(ticket) = Ticket::parse(input) {
        assert_eq!(ticket.emit().as_deref(), Ok(input));
        assert!(input.len() <= TICKET_MAX && ticket.cargo().is_ok());
    }
    if let Ok(signed) = Signed::parse(input) {
        assert_eq!(signed.emit().as_deref(), Ok(input));
    }
    if let Some(Ok(head)) = input.first_chunk().map(|bytes| Head::parse(*bytes)) {
        assert_eq!(head.emit(), input[..ticket::HEAD_LEN]);
        assert!(head.length as usize <= ticket::BODY_MAX);
    }
    if let Some((clock, jpeg, rest)) = ticket::parse_record(input) {
        assert!(RECORD_LEN + jpeg.len() + rest.len() <= input.len());
        assert_eq!(
            ticket::parse_record(&ticket::record(clock, jpeg)),
            Some((clock, jpeg, &[][..]))
        );
    }
}

/// Names in certificates: those that there are, each once, and few enough.
pub fn fuzz_certificate(input: &[u8]) {
    let Ok(names) = certificate::names(input) else { return };
    assert!(names.len() <= certificate::NAMES_MAX);
    for (at, name) in names.iter().enumerate() {
        assert!(!name.is_empty() && !name.contains(char::is_control));
        assert!(!names[..at].contains(name));
        assert!(input.windows(name.len()).any(|part| part == name.as_bytes()));
    }
    // The same names in a certificate of our own come back, where it has room for them.
    if input.len() <= super::INPUT_LEN_MAX {
        assert_eq!(certificate::names(&certificate::unsigned(&names, &[])), Ok(names));
    }
}
