//! Formulas that a connection must follow.

use crate::common::{Weather, World};
use lastmeter_base::{Bytes, Duration, Time};
use lastmeter_transport::tcp::control::{Acknowledged, Control, Cubic, Dctcp, Kind, Window};
use lastmeter_transport::tcp::{Config, Rtt, State};

fn bulk() -> Config {
    Config { acknowledge_every: 1, ..Config::modern() }
}

fn secs(seconds: u64) -> Time {
    Time::START + Duration::from_secs(seconds)
}

/// Mathis, Semke, Mahdavi & Ott, CCR 27(3), 1997, equation 3: with one loss in every 1/p segments
/// and an acknowledgement for each, the rate is MSS / RTT * sqrt(3/2) / sqrt(p).
#[test]
fn the_rate_follows_the_square_root_of_the_loss() {
    let mut rates = Vec::new();
    for (every, seconds) in [(400, 400), (1600, 800), (6400, 1600)] {
        let mut world = World::new(Weather::FAIR, 1);
        world.pair(bulk(), u64::MAX / 2);
        let (mut highest, mut count) = (None::<u32>, 0);
        world.loses = Box::new(move |_, segment| {
            let new = highest.is_none_or(|highest| segment.seq.wrapping_sub(highest) as i32 > 0);
            if segment.len == 0 || !new {
                return false;
            }
            highest = Some(segment.seq);
            count += 1;
            count % every == 0
        });
        world.run(secs(seconds));
        let tcp = &world.ends[0].tcp;
        let rate = world.ends[1].received as f64 / seconds as f64;
        let formula = 1448.0 / 0.1 * (1.5 * every as f64).sqrt();
        let error = rate / formula - 1.0;
        // The formula leaves out the round trip of each recovery, in which the window does not grow.
        assert!(error.abs() < 0.12, "p = 1/{every}: {rate:.0} B/s, formula {formula:.0}");
        rates.push(rate);
        assert_eq!(tcp.counters().timeouts, 0, "one loss at a time needs no timeout");
    }
    let ratio = rates[2] / rates[1];
    assert!((ratio / 2.0 - 1.0).abs() < 0.05, "a quarter of the losses: {ratio:.3} times the rate");
}

/// RFC 5681 §3.1: without losses and with an acknowledgement for each segment the window doubles in
/// each round trip.
#[test]
fn slow_start_doubles_the_window_in_each_round_trip() {
    let mut world = World::new(Weather::FAIR, 1);
    world.pair(Config { initial_window: 2, ..bulk() }, u64::MAX / 2);
    for trip in 1..8 {
        // The handshake takes the first round trip.
        world.run(Time::START + Duration::from_ms(100 * trip + 50));
        let tcp = &world.ends[0].tcp;
        assert_eq!(tcp.window().congestion, (2 << (trip - 1)) * tcp.segment_size());
    }
}

/// Chiu & Jain 1989: additive increase and multiplicative decrease lead to equal shares, whoever
/// came first.
#[test]
fn two_connections_come_to_share_a_link() {
    let weather = Weather {
        rate: Some(10_000_000),
        queue: 60,
        loss: 0.0005,
        delay: Duration::from_ms(20),
        ..Weather::FAIR
    };
    for kind in [Kind::Reno, Kind::Cubic] {
        let mut world = World::new(weather, 3);
        let config = Config { control: kind, ..bulk() };
        world.pair(config.clone(), u64::MAX / 2);
        world.run(secs(20));
        world.pair(config, u64::MAX / 2);
        world.run(secs(60));
        let before = [1, 3].map(|end: usize| world.ends[end].received);
        world.run(secs(260));
        let [a, b] = [0, 1].map(|i| (world.ends[2 * i + 1].received - before[i]) as f64);
        let (share, rate) = (a / (a + b), (a + b) * 8.0 / 200.0);
        assert!((share - 0.5).abs() < 0.05, "{kind:?}: {share:.3} for the first");
        assert!(rate > 0.9 * 10e6, "{kind:?}: {rate:.0} bit/s of both");
    }
}

/// Drives a control for `seconds` with acknowledgements as on a path of 100 ms; returns its windows.
fn driven(control: &mut Control, window: &mut Window, config: &Config, seconds: u64) -> Vec<f64> {
    let mut rtt = Rtt::new(config);
    rtt.sample(config, Duration::from_ms(100));
    let mut windows = Vec::new();
    for trip in 0..seconds * 10 {
        let begun = Time::START + Duration::from_ms(100 * trip);
        let count = window.congestion / window.mss;
        for number in 0..count {
            let now = begun + Duration::from_us(100_000 * number / count);
            let acked = Acknowledged { now, bytes: window.mss, rtt: &rtt, config };
            control.acknowledged(window, acked);
        }
        windows.push(window.congestion as f64 / window.mss as f64);
    }
    windows
}

/// RFC 9438 §4.2, equation 1: W(t) = C (t - K)^3 + W_max.
#[test]
fn cubic_follows_its_window_function() {
    let config = bulk();
    let mut window = Window { congestion: 200_000, threshold: 200_000, mss: 1000 };
    let mut control = Control::new(Kind::Cubic);
    window.threshold = control.lost(Time::START, &window, 200_000);
    window.congestion = window.threshold;
    assert_eq!(window.congestion, 140_000, "beta is 0.7 (section 4.6)");
    let k = Cubic::k(200.0, 140.0);
    assert!((k - (60.0_f64 / 0.4).cbrt()).abs() < 1e-12, "equation 2");
    for (trip, found) in driven(&mut control, &mut window, &config, 9).into_iter().enumerate() {
        let t = (trip + 1) as f64 * 0.1;
        let formula = 0.4 * (t - k).powi(3) + 200.0;
        assert!((found / formula - 1.0).abs() < 0.015, "{t:.1} s: {found}, formula {formula:.1}");
    }
}

/// RFC 9438 §4.3: where Reno would be faster, it grows by alpha segments in each round trip.
#[test]
fn cubic_is_no_slower_than_reno_on_short_paths() {
    let config = bulk();
    let mut window = Window { congestion: 10_000, threshold: 10_000, mss: 1000 };
    let mut control = Control::new(Kind::Cubic);
    window.threshold = control.lost(Time::START, &window, 10_000);
    window.congestion = window.threshold;
    let windows = driven(&mut control, &mut window, &config, 1);
    let alpha = 3.0 * 0.3 / 1.7;
    let formula = 7.0 + alpha * 5.0;
    assert!((windows[4] - formula).abs() < 0.5, "{} segments, formula {formula:.2}", windows[4]);
}

/// RFC 8257 §3.3: alpha follows the share of marked bytes, and half of it is given up.
#[test]
fn dctcp_answers_marks_in_proportion() {
    let mut dctcp = Dctcp::default();
    let window = Window { congestion: 100_000, threshold: 100_000, mss: 1000 };
    assert_eq!(dctcp.marked(&window), 50_000, "the first mark is answered like a loss");
    let mut una = 0;
    for _ in 0..200 {
        for number in 0..8 {
            una += 1000;
            dctcp.observed(una, una + 8000, 1000, number < 2);
        }
    }
    assert!((dctcp.alpha - 0.25).abs() < 0.05, "{}", dctcp.alpha);
    let left = dctcp.marked(&window) as f64;
    assert!((left / 100_000.0 - (1.0 - dctcp.alpha / 2.0)).abs() < 1e-4);
}

/// Alizadeh et al., SIGCOMM 2010, §3.4: marking above K > C RTT / 7 keeps the link full.
#[test]
fn dctcp_keeps_a_link_full_without_a_drop() {
    // 100 Mbit/s and 4 ms hold 33 segments of 1500 bytes; a seventh of that is five.
    let weather = Weather {
        rate: Some(100_000_000),
        queue: 400,
        mark_above: 10,
        delay: Duration::from_ms(2),
        ..Weather::FAIR
    };
    let mut world = World::new(weather, 1);
    world.pair(Config { ecn: true, control: Kind::Dctcp, ..bulk() }, u64::MAX / 2);
    world.run(secs(1));
    let before = world.ends[1].received;
    world.run(secs(3));
    let rate = (world.ends[1].received - before) as f64 * 8.0 / 2.0;
    assert!(rate > 0.95 * 1448.0 / 1500.0 * 100e6, "{rate:.0} bit/s");
    assert!(world.marks > 100 && world.drops == 0, "{} marks, {} drops", world.marks, world.drops);
}

/// On 10 Mbit/s and 100 ms with 30 packets of buffer, slow start loses tens of segments; with Hoe's
/// estimate of the path, at most two are lost.
#[test]
fn the_estimate_at_the_start_saves_the_first_losses() {
    let drops = |estimates_start| {
        let weather = Weather { rate: Some(10_000_000), queue: 30, ..Weather::FAIR };
        let mut world = World::new(weather, 1);
        world.pair(
            Config { estimates_start, initial_window: 2, growth_max: 1, ..Config::modern() },
            1_500_000,
        );
        world.run(secs(2));
        world.drops
    };
    let (without, with) = (drops(false), drops(true));
    assert!(without >= 20, "{without} drops without");
    assert!(with <= 2, "{with} drops with the estimate, {without} without");
}

/// Five losses in one window: with Reno the timer expires, NewReno needs a round trip for each and
/// no timeout, SACK needs fewer.
#[test]
fn newreno_survives_five_losses_in_a_window_without_a_timeout() {
    use lastmeter_transport::tcp::Recovery;
    let run = |recovery, sack| {
        let mut world = World::new(Weather::FAIR, 1);
        let config = Config {
            recovery,
            sack,
            initial_window: 20,
            initial_threshold: Some(Bytes(20 * 1448)),
            ..bulk()
        };
        world.pair(config, 400_000);
        let mut number = 0;
        world.loses = Box::new(move |who, segment| {
            number += u32::from(who == 0 && segment.len > 0);
            who == 0 && segment.len > 0 && [3, 6, 9, 12, 15].contains(&number)
        });
        world.run(secs(100));
        assert_eq!(world.ends[1].received, 400_000);
        assert!(matches!(world.ends[0].tcp.state(), State::TimeWait | State::Closed));
        world.ends[0].tcp.counters().timeouts
    };
    assert!(run(Recovery::Reno, false) >= 1, "Reno waits for the timer");
    assert_eq!(run(Recovery::NewReno, false), 0);
    assert_eq!(run(Recovery::NewReno, true), 0);
}
