//! A counter of 24 bits that counts this machine's clock (E-49): END's time device, whose StopWatch counts 25 ns and
//! wraps around after 0.42 s (Indiresan 1997, §4.3.3).

use crate::attempts::in_time;
use lastmeter_base::Duration;
use lastmeter_host::adapter::emulation::Stopwatch;
use std::time::Instant;

const TICK_NS: u64 = 25;
const BITS: u32 = 24;
/// Three times around, and a little.
const LASTS: std::time::Duration = std::time::Duration::from_millis(1400);

/// The times by the counter and by the clock, read after each pause.
fn read_every(pause: std::time::Duration) -> (Vec<(u64, u64)>, std::time::Duration) {
    let mut watch = Stopwatch::new(Duration::from_ns(TICK_NS), BITS);
    let (began, mut readings, mut longest) = (Instant::now(), Vec::new(), pause);
    let mut last = began;
    while began.elapsed() < LASTS {
        std::thread::sleep(pause);
        let now = Instant::now();
        longest = longest.max(now - last);
        last = now;
        let clock = (now - began).as_nanos() as u64;
        // What the device's register shows: its low bits alone.
        let register = (clock / TICK_NS) & ((1 << BITS) - 1);
        readings.push((watch.read(register).as_ps() / 1000, clock));
    }
    (readings, longest)
}

pub(crate) fn e_49_a_counter_that_wraps_around_keeps_the_time_where_it_is_read_within_a_round() {
    let round = Stopwatch::new(Duration::from_ns(TICK_NS), BITS).wraps_after();
    assert_eq!(round.as_ps() / 1000, TICK_NS << BITS, "0.42 s");
    let round = std::time::Duration::from_nanos(TICK_NS << BITS);
    let (readings, longest) = read_every(std::time::Duration::from_millis(40));
    in_time!(longest < round, "nothing was read for {longest:?}, a round is {round:?}");
    let wraps = readings.last().unwrap().1 / (TICK_NS << BITS);
    assert!(wraps >= 3, "{wraps} rounds");
    for (counter, clock) in &readings {
        assert!((0..TICK_NS).contains(&(clock - counter)), "{counter} beside {clock} ns");
    }
    // Read less often, rounds are missed, and whole ones only.
    let (readings, _) = read_every(std::time::Duration::from_millis(500));
    let (counter, clock) = *readings.last().unwrap();
    let missed = clock - counter;
    assert!(missed >= TICK_NS << BITS, "{counter} beside {clock} ns");
    assert!(missed % (TICK_NS << BITS) < TICK_NS, "{missed} ns are no whole rounds");
}
