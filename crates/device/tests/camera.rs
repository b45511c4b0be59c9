//! The camera without a network, and its clock without waiting.

use lastmeter_device::camera::encode::{from_jpeg, jpeg};
use lastmeter_device::camera::frame::{Layout, Pixels};
use lastmeter_device::camera::pace::{LEASE, Next, Pace};
use lastmeter_device::camera::pattern::{Pattern, read};
use lastmeter_device::camera::shape::{
    Bursts, Certificate, Keeper, PACKET_MAX, PDU_MAX, pdus, plan,
};
use lastmeter_plugin::request::Rect;
use lastmeter_wire::camera::rtp::Scan;
use lastmeter_wire::camera::{Code, Command, PIECE_LEN, Shape};
use proptest::prelude::*;
use std::time::Duration;

#[test]
fn the_digits_of_a_pattern_are_read_even_after_jpeg() {
    for (w, h) in [(640, 480), (320, 240), (160, 120), (100, 24), (1920, 1080)] {
        for layout in [Layout::Grey, Layout::Colour] {
            let drawn = Pattern::new(layout, w, h).draw(1_234_567_890, 1_764_032_640_123_456);
            let wanted = Some((1_234_567_890, 1_764_032_640_123_456));
            assert_eq!(read(&drawn), wanted, "{w}x{h} {layout:?}");
            let packed = jpeg(&drawn, 80).expect("encoded");
            assert_eq!(read(&from_jpeg(&packed).expect("decoded")), wanted, "{w}x{h} {layout:?}");
        }
    }
    assert_eq!(read(&Pixels::new(Layout::Grey, 640, 480)), None, "black has no digits");
}

#[test]
fn what_the_encoder_makes_rtp_can_carry() {
    let drawn = Pattern::new(Layout::Colour, 640, 480).draw(1, 2);
    let packed = jpeg(&drawn, 80).expect("encoded");
    let scan = Scan::of(&packed).expect("4:2:0 with two tables");
    assert_eq!((scan.kind, scan.width, scan.height), (1, 640, 480));
    let grey = jpeg(&drawn.convert(Layout::Grey), 80).expect("encoded");
    assert!(Scan::of(&grey).is_err(), "RTP has no grey");
}

#[test]
fn a_part_is_the_mean_of_what_it_stands_for() {
    let mut pixels = Pixels::new(Layout::Grey, 4, 4);
    pixels.bytes = (0..16).map(|at| at * 10).collect();
    let part = Rect { x: 1, y: 1, w: 2, h: 2 };
    assert_eq!(pixels.part(part, 2, 2).bytes, [50, 60, 90, 100]);
    assert_eq!(pixels.part(part, 1, 1).bytes, [75]);
    assert_eq!(pixels.part(pixels.whole(), 1, 4).bytes, [15, 55, 95, 135]);
}

fn asks(code: Code, sequence: u16, frames: u32, millihertz: u32) -> Command {
    Command { code, sequence, frames, millihertz, ..Command::default() }
}

const fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

#[test]
fn a_receiver_gets_what_it_asks_for_and_no_more() {
    let mut pace = Pace::new(ms(0));
    assert_eq!(pace.next(ms(0)), Next::Idle(LEASE));
    assert!(pace.command(&asks(Code::Frames, 1, 2, 0), ms(10)));
    assert_eq!(pace.next(ms(10)), Next::Take);
    pace.took();
    assert!(!pace.command(&asks(Code::Frames, 1, 2, 0), ms(20)), "it came before");
    pace.took();
    assert_eq!(pace.next(ms(30)), Next::Idle(LEASE - ms(10)), "the repetition was heard");
    assert_eq!(pace.next(ms(20) + LEASE), Next::Over);
}

#[test]
fn a_rate_keeps_its_step_and_counts_missed_turns() {
    let mut pace = Pace::new(ms(0));
    pace.command(&asks(Code::Rate, 1, 0, 10_000), ms(0));
    for turn in 0..5 {
        assert_eq!(pace.next(ms(turn * 100)), Next::Take);
        pace.took();
        pace.sent(ms(turn * 100 + 30));
        assert_eq!(pace.next(ms(turn * 100 + 30)), Next::Wait(ms(70)));
    }
    pace.took();
    // It took 450 ms to send: the turns at 600, 700 and 800 are over, that of 900 is still to come.
    pace.sent(ms(950));
    assert_eq!(pace.skipped, 3);
    assert_eq!(pace.next(ms(950)), Next::Take);
    pace.command(&asks(Code::Stop, 2, 0, 0), ms(960));
    assert!(matches!(pace.next(ms(960)), Next::Idle(_)));
}

#[test]
fn knobs_spread_packets_as_the_vidboard_did() {
    // 640x480 grey in groups of 16 lines: 10,240 bytes in 8 packets; bursts of 4, and a pause after each group.
    let shape = Shape { lines: 16, pause: 1000, burst: 4, gap: 240, packet: 0 };
    let packets: Vec<_> = plan(shape, 640 * 480, 480).collect();
    assert_eq!(packets.len(), 30 * 8);
    assert_eq!(packets[3].due, Duration::ZERO);
    assert_eq!(packets[4].due, Duration::from_micros(240));
    assert_eq!(packets[8].due, Duration::from_micros(1240));
    let last = packets[packets.len() - 1];
    assert_eq!(last.due, Duration::from_micros(29 * 1000 + 30 * 240));
    assert_eq!(last.offset + last.len, 640 * 480);
}

#[test]
fn a_52_bursts_of_cells_go_on_over_the_pdus_of_a_frame() {
    // The Vidboard's 640x480x8 in groups of 16 lines: PDUs of 215 cells, with our header.
    let shape = Shape { lines: 16, burst: 28, gap: 240, ..Shape::default() };
    let found = pdus(shape, 640 * 480, 480);
    assert_eq!((found.len(), found[1]), (30, (10_240, 10_240, true)));
    let (mut bursts, mut datagrams, mut last) = (Bursts::new(shape), 0, Duration::ZERO);
    for (_, len, _) in found {
        let mut left = (len + PIECE_LEN + 8usize).div_ceil(48);
        assert_eq!(left, 215);
        while left > 0 {
            let (count, due) = bursts.take(left);
            assert!((1..=27).contains(&count) && due >= last, "{count} {due:?}");
            (left, last, datagrams) = (left - count, due, datagrams + 1);
        }
    }
    // 6450 cells are 231 bursts, each of a datagram of 27 cells and one of the last.
    assert_eq!(last, Duration::from_micros(230 * 240));
    assert!(datagrams >= 2 * 230, "{datagrams}");
    // With a pause between groups.
    let mut bursts = Bursts::new(Shape { pause: 1000, ..shape });
    assert_eq!(bursts.take(10).1, Duration::ZERO);
    bursts.pause();
    assert_eq!(bursts.take(28), (27, Duration::from_micros(1000)));
    assert_eq!(bursts.take(28), (1, Duration::from_micros(1000)));
    assert_eq!(bursts.take(28), (27, Duration::from_micros(1240)));
}

#[test]
fn a_late_packet_is_made_up_for_by_at_most_one_gap() {
    let us = Duration::from_micros;
    let mut keeper = Keeper::default();
    assert_eq!(keeper.left(us(240), us(300)), us(60));
    assert_eq!(keeper.target(us(480)), us(480), "a little is made up for");
    // Not run for 3 ms: the next two bursts follow each other, the others keep their distance.
    assert_eq!(keeper.left(us(480), us(3480)), us(3000));
    assert_eq!(keeper.target(us(720)), us(3480));
    assert_eq!(keeper.left(us(720), us(3480)), us(0));
    assert_eq!(keeper.target(us(960)), us(3720));
    assert_eq!(keeper.left(us(960), us(3720)), us(0));
}

#[test]
fn the_certificate_says_how_late_packets_were() {
    let mut certificate = Certificate::default();
    for micros in [0, 1, 70, 130, 5_000_000] {
        certificate.add(Duration::from_micros(micros));
    }
    let value = certificate.value();
    assert_eq!((value["packets"].as_u64(), value["longest"].as_f64()), (Some(5), Some(5.0)));
    assert_eq!(value["lag"][2]["below_us"], 128);
}

proptest! {
    #[test]
    fn packets_cover_a_frame_once_and_in_order(
        shape in any::<(u16, u32, u16, u32, u16)>(),
        bytes in 1usize..100_000,
        lines in 1u16..1000,
    ) {
        let (between, pause, burst, gap, packet) = shape;
        let shape = Shape { lines: between % 500, pause, burst, gap, packet };
        let (mut at, mut due) = (0, Duration::ZERO);
        for planned in plan(shape, bytes, lines) {
            prop_assert!(planned.offset == at && planned.len > 0 && planned.due >= due);
            prop_assert!(planned.len + PIECE_LEN <= PACKET_MAX);
            (at, due) = (at + planned.len, planned.due);
        }
        prop_assert_eq!(at, bytes);
        let mut at = 0;
        for (from, len, _) in pdus(shape, bytes, lines) {
            prop_assert!(from == at && (1..=PDU_MAX).contains(&len));
            at += len;
        }
        prop_assert_eq!(at, bytes);
    }
}
