//! Messages that are read as they were written, and bytes that are none.

use super::*;
use proptest::prelude::*;

fn address() -> impl Strategy<Value = Ipv4Addr> {
    any::<u32>().prop_map(Ipv4Addr::from)
}
prop_compose! {
    fn traffic()(
        rate in 0.0..1e9f32, bucket in 0.0..1e9f32, peak in 0.0..1e9f32,
        (shortest, longest) in any::<(u32, u32)>(),
    ) -> Traffic {
        Traffic { rate, bucket, peak, shortest, longest }
    }
}
prop_compose! {
    fn wanted()(
        traffic in traffic(), guaranteed in prop::option::of((0.0..1e9f32, any::<u32>())),
    ) -> Wanted {
        Wanted { traffic, guaranteed }
    }
}
prop_compose! {
    fn step()(loose in any::<bool>(), address in address(), len in 0..=32u8) -> Step {
        Step { loose, address, len }
    }
}
prop_compose! {
    fn message()(
        kind in 0..6usize, (hops, tunnel) in any::<(u8, u16)>(),
        end in address(), extended in address(),
        hop in prop::option::of((address(), any::<u32>())),
        fault in prop::option::of((address(), any::<(u8, u8, u16)>())),
        route in prop::option::of(prop::collection::vec(step(), 0..STEPS_MAX)),
        (refresh, payload, label) in any::<(Option<u32>, Option<u16>, Option<u32>)>(),
        name in prop::option::of("[!-~]{0,64}"),
        wanted in prop::option::of(wanted()), traffic in prop::option::of(traffic()),
        sender in prop::option::of((address(), any::<u16>())),
    ) -> Message {
        let fault = fault.map(|(at, (flags, code, value))| Fault { at, flags, code, value });
        Message {
            kind: Kind::ALL[kind], hops, session: Session { end, tunnel, extended },
            hop: hop.map(|(address, handle)| Hop { address, handle }), refresh, fault, route,
            payload, name, wanted, traffic, label,
            sender: sender.map(|(from, path)| Sender { from, path }),
        }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_d_43(message in message()) {
        let bytes = message.emit();
        prop_assert!(bytes.len() <= LEN_MAX && bytes.len().is_multiple_of(4));
        prop_assert_eq!(Message::parse(&bytes), Ok(message));
        prop_assert_eq!(Message::parse(&bytes[..bytes.len() - 1]), Err(Wrong::Length));
    }

    /// No bytes do harm, and what is read can be written and read again.
    #[test]
    fn no_message_panics(
        message in message(), bytes in prop::collection::vec(any::<u8>(), 0..200),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let _ = Message::parse(&bytes);
        let mut bytes = message.emit();
        changes.iter().for_each(|(at, to)| *at.get_mut(&mut bytes) = *to);
        bytes[2..4].fill(0);
        if let Ok(read) = Message::parse(&bytes) {
            prop_assert_eq!(Message::parse(&read.emit()), Ok(read));
        }
    }
}

/// RFC 2210 §3.1 and §3.2.2 draw these words.
#[test]
fn traffic_is_written_as_rfc_2210_draws_it_d_43() {
    let traffic =
        Traffic { rate: 125_000.0, bucket: 1500.0, peak: 1.25e6, shortest: 64, longest: 1500 };
    let numbers = [0x47f4_2400, 0x44bb_8000, 0x4998_9680, 64, 1500];
    let of =
        |head: [u32; 3]| words::<3>(head).into_iter().chain(words(numbers)).collect::<Vec<u8>>();
    assert_eq!(bucket(GENERAL, &traffic, 0), of([7, 0x0100_0006, 0x7f00_0005]));
    let mut message = Message::new(
        Kind::Resv,
        Session { end: [10, 3, 0, 1].into(), tunnel: 1, extended: [10, 1, 0, 2].into() },
    );
    message.wanted = Some(Wanted { traffic, guaranteed: Some((250_000.0, 7)) });
    let bytes = message.emit();
    let guaranteed =
        [of([10, 0x0200_0009, 0x7f00_0005]), words([0x8200_0002, 250_000.0f32.to_bits(), 7])];
    assert!(bytes.ends_with(&guaranteed.concat()), "{bytes:x?}");
    assert_eq!(message.wanted.map(|wanted| wanted.rate()), Some(250_000.0));
}

#[test]
fn what_must_be_known_is_refused_and_the_rest_is_left_out() {
    let session = Session { end: [10, 3, 0, 1].into(), tunnel: 1, extended: [10, 1, 0, 2].into() };
    let with = |class: u8, kind: u8, value: &[u8]| {
        let mut bytes = Message::new(Kind::Path, session).emit();
        object(&mut bytes, (class, kind), value);
        let len = (bytes.len() as u16).to_be_bytes();
        bytes[6..8].copy_from_slice(&len);
        bytes[2..4].fill(0);
        Message::parse(&bytes)
    };
    let plain = Message::new(Kind::Path, session);
    for skipped in [13, 21, 130, 200] {
        assert_eq!(with(skipped, 1, &[1, 2, 3, 4]).as_ref(), Ok(&plain), "{skipped}");
    }
    assert_eq!(with(99, 1, &[]), Err(Wrong::Class(99)));
    assert_eq!(with(1, 1, &[0; 8]), Err(Wrong::Object(1)), "a session without a tunnel");
    assert_eq!(with(1, 7, &[0; 12]), Err(Wrong::Twice(1)));
    assert_eq!(with(9, 2, &[0; 32]), Err(Wrong::Object(9)));
    assert_eq!(with(8, 1, &[0, 0, 0, 0x11]), Err(Wrong::Object(8)), "a wildcard filter");
    let mut short = plain.emit();
    short[3] ^= 1;
    assert_eq!(Message::parse(&short), Err(Wrong::Checksum));
    assert_eq!(Message::parse(&[0x20; 8]), Err(Wrong::Version));
    assert_eq!(Message::parse(&[0x10, 9, 0, 0, 0, 0, 0, 8]), Err(Wrong::Kind));
    assert_eq!(Message::parse(&[0x10, 1, 0, 0, 0, 0, 0, 8]), Err(Wrong::Lacks(1)));
}
