//! BBR against its draft and the formulas that follow from it.

use crate::common::dialogue::{open, plain, play};
use crate::common::{Weather, World};
use lastmeter_base::{Bytes, Duration, Time};
use lastmeter_transport::tcp::Config;
use lastmeter_transport::tcp::control::{Bbr, Control, Kind, Mode};

/// The part of a rate that segments of 1500 bytes leave for data.
const DATA: f64 = 1448.0 / 1500.0;

fn bulk(control: Kind) -> Config {
    Config { control, acknowledge_every: 1, ..Config::modern() }
}

fn at(ms: u64) -> Time {
    Time::START + Duration::from_ms(ms)
}

/// A link with a buffer of this many bandwidth-delay products.
fn link(mbit: u64, round_trip: u64, products: f64) -> Weather {
    let rate = mbit * 1_000_000;
    let product = rate as f64 * round_trip as f64 / 1000.0 / 8.0 / 1500.0;
    Weather {
        rate: Some(rate),
        delay: Duration::from_ms(round_trip / 2),
        queue: (product * products) as usize,
        ..Weather::FAIR
    }
}

fn bbr(world: &World, end: usize) -> &Bbr {
    match world.ends[end].tcp.control() {
        Control::Bbr(bbr) => bbr,
        other => panic!("{other:?}"),
    }
}

fn bandwidth(world: &World, end: usize) -> f64 {
    bbr(world, end).bandwidth().map_or(0.0, |rate| rate.as_bits() as f64)
}

/// One connection over `weather`, which always has more to send.
fn one(weather: Weather, control: Kind) -> World {
    let mut world = World::new(weather, 1);
    world.pair(bulk(control), u64::MAX / 2);
    world
}

/// §4.2.1 and §4.2.2 of the draft: before there is a bandwidth the pace is 2/ln 2 windows in a round
/// trip, here 10,000 bytes in 100 ms, less 1 %; above 1.2 Mbit/s two segments go at once.
#[test]
fn the_first_window_is_paced() {
    let tcp = play(
        Config { control: Kind::Bbr, ..plain() },
        &open(
            "
        write 8000
        > 1:2001 ack 1 each 1000
        @ next 107              # 16,000 bits at 2.286 Mbit/s.
        > 2001:4001 ack 1 each 1000
        @ next 114
        > 4001:6001 ack 1 each 1000
        @ next 121
        > 6001:8001 ack 1 each 1000
        @ 200
        window 10000
        < ack 2001
        window 12000            # 2000 bytes in 100 ms: STARTUP adds what arrives.
    ",
        ),
    );
    let Control::Bbr(bbr) = tcp.control() else { panic!("{:?}", tcp.control()) };
    assert_eq!(bbr.bandwidth().map(|rate| rate.as_bits()), Some(160_000));
    assert_eq!(bbr.round_trip(), Some(Duration::from_ms(100)));
    assert_eq!(bbr.mode(), Mode::Startup);
}

/// §4.2.3: in the first round of recovery as much is sent as arrives, with and without SACK; after
/// recovery the window is what it was.
#[test]
fn recovery_sends_as_much_as_arrives_and_gives_the_window_back() {
    let config = Config { control: Kind::Bbr, nagle: false, ..plain() };
    let begins = "
        write 10000
        > 1:2001 ack 1 each 1000
        @ next 107
        > 2001:4001 ack 1 each 1000
        @ next 114
        > 4001:6001 ack 1 each 1000
        @ next 121
        > 6001:8001 ack 1 each 1000
        @ next 128
        > 8001:10001 ack 1 each 1000
        write 10000
        @ 200
    ";
    // STARTUP sends two for one; without RFC 3042, a duplicate lets one of them go.
    let without = "
        < ack 1
        > 10001:11001 ack 1
        @ 207
        < ack 1
        > 11001:12001 ack 1
        @ 214
        < ack 1                 # Three duplicates: 8 of 12 are on the way, and one goes again.
        > 1:1001 ack 1
        window 12000            # 9000, and 3000 that have left.
        @ 222
        < ack 1
        > 12001:13001 ack 1
        @ 230
        < ack 1
        > 13001:14001 ack 1
        window 14000            # 9000, and 5000 that have left.
    ";
    let with = "
        < ack 1 sack 1001:2001
        > 10001:11001 ack 1
        @ 207
        < ack 1 sack 1001:3001
        > 11001:12001 ack 1
        @ 214
        < ack 1 sack 1001:4001
        > 1:1001 ack 1
        window 9000
        @ 222
        < ack 1 sack 1001:5001
        > 12001:13001 ack 1
        window 9000
        @ 230
        < ack 1 sack 1001:6001
        > 13001:14001 ack 1
        window 9000
    ";
    // All that had been sent: seven more segments. 9000 bytes since 214 ms are 679 kbit/s, of which
    // 2.886 round trips are more than the previous window, 12000, and STARTUP continues.
    let ends = "
        @ 320
        < ack 12001
        window 19000
        > 14001:16001 ack 1 each 1000
    ";
    play(config.clone(), &open(&format!("{begins}{without}{ends}")));
    let opens = "
        connect
        > SYN
        @ 100
        < SYN ack 1 mss 1000 sackok
        > ack 1
    ";
    play(Config { sack: true, ..config }, &format!("{opens}{begins}{with}{ends}"));
}

/// §4.2.3: a timeout leaves one segment, and recovery gives the window back.
#[test]
fn a_timeout_leaves_a_window_of_one_until_it_is_repaired() {
    let script = "
        write 2000
        > 1:2001 ack 1 each 1000
        @ next 400              # 100 ms, and 100 ms and four times half of that.
        window 1000
        > 1:1001 ack 1
        @ 500
        < ack 1001
        > 1001:2001 ack 1
        window 4000             # No less than four segments once something is acknowledged.
        @ 600
        < ack 2001
        window 11000            # What it was, and what has arrived.
    ";
    play(Config { control: Kind::Bbr, ..plain() }, &open(script));
}

/// §4.2.1: 2/ln 2 is the gain that doubles the delivery rate in each round of STARTUP. The first
/// rounds are a few quanta long, and the pace is 1 % less.
#[test]
fn startup_doubles_the_rate_in_each_round() {
    let mut world = World::new(Weather::FAIR, 1);
    let room = Bytes(16 << 20);
    world.pair(Config { send_buffer: room, receive_buffer: room, ..bulk(Kind::Bbr) }, u64::MAX / 2);
    let mut rates = Vec::new();
    for round in 2..10 {
        while bbr(&world, 0).rounds() < round {
            let now = world.now + Duration::from_ms(1);
            world.run(now);
        }
        rates.push(bandwidth(&world, 0));
    }
    assert_eq!(bbr(&world, 0).mode(), Mode::Startup);
    let each = (rates[7] / rates[2]).powf(0.2);
    assert!((each - 2.0).abs() < 0.06, "{each:.3} a round: {rates:?}");
    let slowest = rates.windows(2).map(|pair| pair[1] / pair[0]).fold(9.0, f64::min);
    assert!(slowest > 1.5, "none near the quarter that ends STARTUP: {rates:?}");
}

/// ACM Queue 14(5): it operates where the link is full and nothing queues, whatever the buffer.
///
/// Half a bandwidth-delay product has room for the quarter that probing queues. At most what §4.2.3
/// adds for hosts stays queued: 3 quanta of two segments, rounded up to an even number, 8 of 83.
#[test]
fn one_connection_fills_the_link_and_leaves_the_queue_empty_whatever_the_buffer() {
    for products in [0.5, 1.0, 5.0, 100.0] {
        let mut world = one(link(20, 50, products), Kind::Bbr);
        world.run(at(4000));
        let (before, drops) = (world.ends[1].received, world.drops);
        let (mut round_trips, mut count, mut longest) = (0.0, 0, 0.0_f64);
        for ms in (4000..9000).step_by(2) {
            world.run(at(ms));
            let round_trip = 50.0 + world.waiting().as_secs_f64() * 1000.0;
            longest = longest.max(round_trip);
            if matches!(bbr(&world, 0).mode(), Mode::ProbeBw(2..)) {
                round_trips += round_trip;
                count += 1;
            }
        }
        let rate = (world.ends[1].received - before) as f64 * 8.0 / 5.0;
        let mean = round_trips / f64::from(count);
        let told = format!("{products} products: {rate:.0} bit/s, {mean:.1} ms, {longest:.1} ms");
        assert!(rate > 0.95 * DATA * 20e6, "{told}");
        assert!(mean < 50.0 * (1.0 + 9.0 / 83.0), "{told}");
        assert!(longest < 50.0 * (1.25 + 12.0 / 83.0), "{told}");
        assert_eq!(world.drops - drops, 0, "{told}");
    }
}

/// §4.3.4: eight phases of a round trip, of which the first queues a quarter of the product, plus
/// the quanta of §4.2.3, and the second drains it.
#[test]
fn a_cycle_queues_a_quarter_of_the_product_for_a_round_trip() {
    let mut world = one(link(40, 100, 1.0), Kind::Bbr);
    world.run(at(5000));
    let mut phases: Vec<(u8, u64, f64)> = Vec::new();
    for ms in 5000..8000 {
        world.run(at(ms));
        let Mode::ProbeBw(phase) = bbr(&world, 0).mode() else { panic!("not in PROBE_BW") };
        let queue = world.waiting().as_secs_f64() / 0.1;
        match phases.last_mut() {
            Some((last, lasts, most)) if *last == phase => {
                *lasts += 1;
                *most = most.max(queue);
            }
            _ => phases.push((phase, 1, queue)),
        }
    }
    // The first and the last are incomplete.
    phases.remove(0);
    phases.pop();
    assert!(phases.len() > 24 - 4, "{phases:?}");
    assert!(phases.windows(2).all(|p| p[1].0 == (p[0].0 + 1) % 8), "{phases:?}");
    // 333 segments; three quanta of 3, rounded up, and two for probing.
    let quanta = 12.0 / 333.0;
    for &(phase, lasts, queue) in &phases {
        let told = format!("phase {phase}: {lasts} ms, {queue:.3} products in {phases:?}");
        match phase {
            0 => {
                assert!(queue > 0.25 - quanta && queue < 0.25 + 2.0 * quanta, "{told}");
                assert!((100..=150).contains(&lasts), "{told}");
            }
            1 => assert!((80..=125).contains(&lasts), "{told}"),
            _ => {
                assert!(queue < 2.0 * quanta, "{told}");
                assert!((95..=110).contains(&lasts), "{told}");
            }
        }
    }
}

/// §4.3.5: without a shorter round trip in 10 s, four segments for 200 ms and a round.
#[test]
fn every_ten_seconds_four_segments_show_the_round_trip() {
    let mut world = one(link(5, 40, 2.0), Kind::Bbr);
    let mut visits: Vec<(u64, u64, u64)> = Vec::new();
    let mut probing = false;
    for ms in (0..34_000).step_by(4) {
        world.run(at(ms));
        let now = bbr(&world, 0).mode() == Mode::ProbeRtt;
        let flight = world.ends[0].tcp.outstanding() / world.ends[0].tcp.segment_size();
        match visits.last_mut() {
            Some((_, lasts, least)) if now && probing => {
                *lasts += 4;
                *least = flight.min(*least);
            }
            _ if now => visits.push((ms, 0, flight)),
            _ => {}
        }
        probing = now;
    }
    assert_eq!(visits.len(), 3, "{visits:?}");
    for pair in visits.windows(2) {
        // From the end of one, which measures the round trip anew, to the next.
        let apart = pair[1].0 - pair[0].0 - pair[0].1;
        assert!((9_950..=10_100).contains(&apart), "{visits:?}");
    }
    for &(_, lasts, least) in &visits {
        // A round trip until four are left, 200 ms, and one more round.
        assert!((200 + 40..=200 + 3 * 60).contains(&lasts), "{visits:?}");
        assert_eq!(least, 4, "{visits:?}");
    }
    let rtprop = bbr(&world, 0).round_trip().map_or(0.0, Duration::as_secs_f64);
    assert!((rtprop - 0.0424).abs() < 0.0005, "40 ms and a segment at 5 Mbit/s: {rtprop}");
}

/// draft-cheng-iccrg-delivery-rate-estimation-00 §2.2: application-limited samples are no
/// estimate of the path.
#[test]
fn an_application_that_sends_little_does_not_lower_the_estimate() {
    let mut world = one(link(10, 40, 2.0), Kind::Bbr);
    world.run(at(3000));
    let before = bandwidth(&world, 0);
    assert!((before / (DATA * 10e6) - 1.0).abs() < 0.02, "{before}");
    world.ends[0].closes = false;
    world.ends[0].left = 0;
    world.run(at(6000));
    // A segment and a half every 50 ms: a fortieth of the link, for a hundred round trips.
    for ms in (6000..10_000).step_by(50) {
        world.ends[0].left = 2172;
        world.run(at(ms));
    }
    let after = bandwidth(&world, 0);
    assert!((after / before - 1.0).abs() < 0.02, "{before} before, {after} after");
    // Bulk data after that fills the link at once.
    world.ends[0].left = u64::MAX / 2;
    let received = world.ends[1].received;
    world.run(at(10_400));
    world.run(at(11_400));
    let rate = (world.ends[1].received - received) as f64 * 8.0 / 1.4;
    assert!(rate > 0.85 * DATA * 10e6, "{rate:.0} bit/s");
}

/// ACM Queue 14(5): losses without congestion do not slow it, whereas Reno's window follows Mathis's
/// formula, MSS / RTT * sqrt(3/2 / p), and so does CUBIC's where it is that small (RFC 9438
/// §4.3).
#[test]
fn one_loss_in_a_hundred_leaves_nine_tenths_of_the_link() {
    let rate = |kind| {
        let weather = Weather { loss: 0.01, ..link(20, 40, 1.0) };
        let mut world = one(weather, kind);
        world.run(at(2000));
        let before = world.ends[1].received;
        world.run(at(10_000));
        (world.ends[1].received - before) as f64 * 8.0 / 8.0
    };
    let [bbr, reno, cubic] = [Kind::Bbr, Kind::Reno, Kind::Cubic].map(rate);
    assert!(bbr > 0.9 * DATA * 20e6, "BBR {bbr:.0} bit/s");
    let formula = 1448.0 * 8.0 / 0.04 * (1.5_f64 / 0.01).sqrt();
    for (name, found) in [("Reno", reno), ("CUBIC", cubic)] {
        assert!((found / formula - 1.0).abs() < 0.3, "{name} {found:.0}, formula {formula:.0}");
    }
}

/// §4.3.4: a gain of 5/4 outruns losses of a fifth: (1 - 1/5) 5/4 = 1. Below that the rate is what
/// losses leave of the link.
#[test]
fn losses_of_a_tenth_leave_nine_tenths_of_what_is_sent() {
    let weather = Weather { loss: 0.1, ..link(10, 40, 1.0) };
    let mut world = one(weather, Kind::Bbr);
    world.run(at(3000));
    let before = world.ends[1].received;
    world.run(at(9500));
    let rate = (world.ends[1].received - before) as f64 * 8.0 / 6.5;
    assert!(rate > 0.8 * 0.9 * DATA * 10e6, "{rate:.0} bit/s");
}

/// ACM Queue 14(5), "Bottleneck bandwidth sharing": probing and PROBE_RTT lead to equal shares,
/// whoever came first. A probe that finds the other cruising takes 5/4 of 9/4: an equal share is
/// off by no more than 5/9 - 1/2.
#[test]
fn a_latecomer_gets_an_equal_share() {
    for (products, seed) in [(1.0, 1), (1.0, 2), (4.0, 1), (4.0, 2)] {
        let mut world = World::new(link(10, 40, products), seed);
        world.pair(bulk(Kind::Bbr), u64::MAX / 2);
        world.run(at(5000));
        world.pair(bulk(Kind::Bbr), u64::MAX / 2);
        world.run(at(35_000));
        let before = [1, 3].map(|end: usize| world.ends[end].received);
        world.run(at(65_000));
        let [a, b] = [0, 1].map(|i| (world.ends[2 * i + 1].received - before[i]) as f64);
        let (share, rate) = (a / (a + b), (a + b) * 8.0 / 30.0);
        let told = format!("{products} products: {share:.3} for the first, {rate:.0} bit/s");
        assert!((share - 0.5).abs() < 5.0 / 9.0 - 0.5, "{told}");
        assert!(rate > 0.9 * DATA * 10e6, "{told}");
    }
}

/// A full send buffer does not make the sender application-limited: STARTUP finds the pipe full,
/// and the bandwidth is what the buffer lets through.
#[test]
fn a_small_send_buffer_does_not_keep_it_in_startup() {
    let mut world = World::new(link(20, 40, 4.0), 1);
    world.pair(Config { send_buffer: Bytes(40_000), ..bulk(Kind::Bbr) }, u64::MAX / 2);
    world.run(at(3000));
    assert!(matches!(bbr(&world, 0).mode(), Mode::ProbeBw(_)), "{:?}", bbr(&world, 0).mode());
    let formula = 40_000.0 * 8.0 / 0.0406;
    let found = bandwidth(&world, 0);
    assert!((found / formula - 1.0).abs() < 0.1, "{found:.0}, formula {formula:.0}");
}
