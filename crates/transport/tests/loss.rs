//! Whatever the network does, every byte is delivered once and in order, and connections end.

use crate::common::{Weather, World};
use lastmeter_base::{Bytes, Duration, Stream, Time};
use lastmeter_transport::tcp::control::Kind;
use lastmeter_transport::tcp::{Config, Recovery};
use std::ops::Range;

fn draw_config(random: &mut Stream) -> Config {
    let kinds = [Kind::Reno, Kind::Cubic, Kind::Dctcp];
    let recoveries = [Recovery::Tahoe, Recovery::Reno, Recovery::NewReno];
    Config {
        mss: [536, 1460, 4000][random.below(3) as usize],
        control: kinds[random.below(3) as usize],
        recovery: recoveries[random.below(3) as usize],
        sack: random.chance(0.5),
        proportional: random.chance(0.5),
        timestamps: random.chance(0.5),
        scaling: random.chance(0.5),
        ecn: random.chance(0.5),
        send_buffer: Bytes(1 + random.below(100_000)),
        receive_buffer: Bytes(1 + random.below(100_000)),
        initial_window: 1 + random.below(10) as u32,
        acknowledge_every: 1 + random.below(3) as u8,
        limited_transmit: random.chance(0.5),
        nagle: random.chance(0.5),
        one_for_two: random.chance(0.3),
        burst_max: random.chance(0.3).then_some(4),
        estimates_start: random.chance(0.3),
        content: true,
        retries: 30,
        retries_opening: 30,
        ..Config::modern()
    }
}

#[test]
fn of_1000_random_loss_patterns_each_delivers_every_byte_once_in_order_and_ends() {
    plays(0..1000, |_| {});
}

#[test]
fn of_1000_random_loss_patterns_bbr_delivers_every_byte_once_in_order_and_ends() {
    plays(0..1000, |config| config.control = Kind::Bbr);
}

fn plays(seeds: Range<u64>, change: impl Fn(&mut Config)) {
    for seed in seeds {
        let mut random = Stream::new(seed, "pattern");
        let mut config = draw_config(&mut random);
        change(&mut config);
        let weather = Weather {
            loss: random.unit() * 0.25,
            repeat: random.unit() * 0.2,
            reorder: random.unit() * 0.3,
            delay: Duration::from_ms(random.below(60)),
            mark_above: 3,
            rate: random.chance(0.5).then_some(2_000_000),
            queue: 2 + random.below(30) as usize,
        };
        let bytes = 1 + random.below(60_000);
        let mut world = World::new(weather, seed);
        world.pair(config.clone(), bytes);
        world.ends[1].left = random.below(20_000);
        let back = world.ends[1].left;
        world.run(Time::START + Duration::from_secs(100_000));
        let told = format!("seed {seed}, {weather:?}, {config:?}");
        let states: Vec<_> = world.ends.iter().map(|e| (e.tcp.state(), e.tcp.ended())).collect();
        assert!(world.all_closed(), "{states:?} after {}: {told}", world.now);
        for (end, expected) in [(1, bytes), (0, back)] {
            let got = &world.ends[end].got;
            assert_eq!(got.len() as u64, expected, "end {end} {states:?}: {told}");
            let right = got.iter().enumerate().all(|(at, &b)| b == World::byte(at as u64));
            assert!(right, "end {end} got other bytes: {told}");
        }
    }
}
