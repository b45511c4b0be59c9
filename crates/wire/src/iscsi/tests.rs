//! Any header survives its bytes; any bytes do no harm.

use super::*;
use proptest::prelude::*;

fn ask() -> impl Strategy<Value = Ask> {
    let flags = any::<(bool, bool, bool, u8)>();
    prop_oneof![
        any::<u32>().prop_map(|transfer| Ask::NopOut { transfer }),
        (flags, any::<u32>(), any::<[u8; 16]>()).prop_map(
            |((last, reads, writes, attribute), expected, cdb)| Ask::Command {
                last,
                reads,
                writes,
                attribute: attribute & 7,
                expected,
                cdb
            }
        ),
        (0u8..128, any::<u32>(), any::<u32>()).prop_map(|(function, referenced, number)| {
            Ask::Manage { function, referenced, number }
        }),
        (any::<(bool, bool)>(), 0u8..4, 0u8..4, any::<[u8; 6]>(), any::<(u16, u16, u8, u8)>())
            .prop_map(|((transit, continues), current, next, isid, more)| Ask::Login {
                transit,
                continues,
                current,
                next,
                version_max: more.2,
                version_min: more.3,
                isid,
                tsih: more.0,
                connection: more.1,
            }),
        any::<(bool, bool, u32)>().prop_map(|(last, continues, transfer)| Ask::Text {
            last,
            continues,
            transfer
        }),
        any::<(bool, u32, u32, u32)>().prop_map(|(last, transfer, number, offset)| Ask::DataOut {
            last,
            transfer,
            number,
            offset
        }),
        (0u8..128, any::<u16>())
            .prop_map(|(reason, connection)| Ask::Logout { reason, connection }),
    ]
}

proptest! {
    #[test]
    fn a_request_survives_its_bytes(
        ask in ask(),
        (task, number, lun, immediate) in any::<(u32, u32, u64, bool)>(),
        len in 0u32..1 << 24,
    ) {
        let mut request = Request { task, immediate, data_len: len, ..Request::new(ask) };
        (request.more_headers, request.status_expected) = (3, 9);
        if !matches!(ask, Ask::DataOut { .. }) {
            request.command_number = number;
        }
        if !matches!(ask, Ask::Login { .. } | Ask::Logout { .. }) {
            request.lun = lun;
        }
        let bytes = request.emit();
        prop_assert_eq!(Request::parse(&bytes), Ok(request));
        prop_assert_eq!(lengths(&bytes), (12, len as usize));
    }

    #[test]
    fn bytes_that_parse_are_emitted_so_that_they_parse_to_the_same(
        bytes: [u8; 16],
        rest: [u8; 32],
    ) {
        let header = std::array::from_fn(|at| if at < 16 { bytes[at] } else { rest[at - 16] });
        if let Ok(request) = Request::parse(&header) {
            prop_assert_eq!(Request::parse(&request.emit()), Ok(request));
        }
        if let Ok(response) = Response::parse(&header) {
            prop_assert_eq!(Response::parse(&response.emit()), Ok(response));
        }
    }

    #[test]
    fn binary_values_survive_their_text(bytes: Vec<u8>) {
        let short = bytes.len() <= text::BINARY_MAX && !bytes.is_empty();
        prop_assert_eq!(text::binary(&text::hexadecimal(&bytes)), short.then_some(bytes));
    }
}

#[test]
fn the_digest_is_that_of_the_standard() {
    // RFC 7143, appendix A.4: 32 bytes of zeros, of ones, ascending.
    assert_eq!(digest(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
    assert_eq!(digest(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
    let ascending: Vec<u8> = (0..32).collect();
    assert_eq!(digest(&ascending), [0x4e, 0x79, 0xdd, 0x46]);
}

#[test]
fn text_has_keys_and_values() {
    assert_eq!(text::parse(b"a=b\0c=\0\0\0"), Ok(vec![("a", "b"), ("c", "")]));
    assert_eq!(text::parse(b"a=b=c"), Ok(vec![("a", "b=c")]));
    for wrong in [&b"ab\0"[..], b"=b\0", b"a=\xff\0"] {
        assert!(text::parse(wrong).is_err(), "{wrong:?}");
    }
    assert_eq!(text::number("0x10"), Some(16));
    assert_eq!(text::number("8192"), Some(8192));
    assert_eq!(text::number("-1"), None);
    assert_eq!(text::binary("0bTGFzdG1ldGVy"), Some(b"Lastmeter".to_vec()));
    assert_eq!(text::binary("0bTA=="), Some(b"L".to_vec()));
    for wrong in ["", "0x", "0xgg", "0b!", "0bA", "12"] {
        assert_eq!(text::binary(wrong), None, "{wrong}");
    }
}
