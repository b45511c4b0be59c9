//! Messages sent back to back, with a limit on those in flight: what an adapter can achieve (E-65 to E-76).
//!
//! ```text
//! message --> [adapter] --> done, next message
//!     '---- at most `depth` ----'
//! ```
//!
//! Source: Indiresan 1997, §3.3.1 and §5.1.3: the test application sends "as fast as possible, while
//! limiting the number of outstanding packet transmissions".

use super::description::{Description, Side};
use super::transmitter::{Order, Phase, Transmitter, Variation, What};
use lastmeter_base::{Bytes, Duration, Time};
use lastmeter_engine::Distribution;
use std::collections::BTreeMap;

/// What is recorded of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Mean time between messages, over those after the warm-up.
    pub mean: Duration,
    /// Latency, from the start of a message until it is done.
    pub latency: Distribution,
    /// Standard deviation of the latency of messages after the warm-up, in seconds.
    pub deviation: f64,
    /// Phases of the first messages: message, phase, start, end (Fig 5.6).
    pub timeline: Vec<(u64, Phase, Time, Time)>,
    /// Commands of the first message, in order (Fig 5.1).
    pub commands: Vec<(Time, Side, &'static str)>,
    /// Utilisation of the host, the transfer and the network.
    pub busy: [f64; 3],
}

/// Sends `messages` of `len`, at most `depth` at a time. A message that finds no buffer, or collides too often, is
/// lost and replaced by another; nothing is sent on a network that never becomes available.
///
/// Panics if `messages` or `depth` is zero, or if a message is longer than the adapter's memory.
pub fn run(
    card: &Description,
    len: Bytes,
    (depth, messages): (u64, usize),
    variation: Variation,
    seed: u64,
) -> Outcome {
    assert!(depth > 0 && messages > 0, "nothing to send");
    assert!(len <= card.buffers.memory, "a message is longer than the adapter's memory");
    let mut described = card.clone();
    described.queueing.depth = depth;
    let mut adapter = Transmitter::varying(described, variation, seed);
    let mut outcome = Outcome::default();
    let mut begun = BTreeMap::new();
    let mut done = Vec::with_capacity(messages);
    let mut delays = Vec::with_capacity(messages);
    let (mut id, mut now) = (0, Time::START);
    loop {
        while (begun.len() as u64) < depth && adapter.submit(now, Order::new(id, len)).is_ok() {
            if id == 0 {
                say(card, &mut outcome, now, &["write"]);
            }
            begun.insert(id, now);
            id += 1;
        }
        let Some(due) = adapter.ready_at().filter(|_| done.len() < messages) else { break };
        now = due;
        adapter.advance(now);
        for event in adapter.events() {
            if event.order.id == 0 {
                let words: &[&str] = match event.what {
                    What::WriteAck => &["write ack", "address list"],
                    What::AddressAck => &["address ack"],
                    What::TransmitAck => &["transmit ack"],
                    What::Dropped | What::GivenUp => &[],
                };
                say(card, &mut outcome, now, words);
            }
            let lost = matches!(event.what, What::Dropped | What::GivenUp);
            if lost || event.what == What::TransmitAck {
                let from = begun.remove(&event.order.id);
                if let (false, Some(from)) = (lost, from) {
                    done.push(now);
                    outcome.latency.record(now - from);
                    delays.push((now - from).as_secs_f64());
                }
            }
        }
    }
    if done.is_empty() {
        return outcome;
    }
    outcome.deviation = deviation(&delays[(delays.len() - 1) / 5..]);
    close(&adapter, &done, outcome)
}

/// Standard deviation of some values.
fn deviation(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt()
}

/// Those of these commands that the interface has.
fn say(card: &Description, outcome: &mut Outcome, now: Time, words: &[&str]) {
    let said = card.transmission().into_iter().filter(|(_, word)| words.contains(word));
    outcome.commands.extend(said.map(|(side, word)| (now, side, word)));
}

fn close(adapter: &Transmitter, done: &[Time], mut outcome: Outcome) -> Outcome {
    let last = done.len() - 1;
    let first = last / 5;
    outcome.mean = match (last - first) as u64 {
        0 => done[last] - Time::START,
        between => (done[last] - done[first]) / between,
    };
    let elapsed = (done[last] - Time::START).as_secs_f64();
    let spent = |phase: Phase| adapter.served(phase).as_secs_f64() / elapsed;
    outcome.busy = [Phase::Host, Phase::Transfer, Phase::Network].map(spent);
    outcome.busy[2] += spent(Phase::Setup);
    outcome.timeline = adapter.timeline().to_vec();
    outcome
}

#[cfg(test)]
mod tests {
    use super::super::cim::table_5_1;
    use super::super::description::{NetworkModel, Overload, cim};
    use super::*;

    const SIZES: [u64; 6] = [44, 1024, 4096, 8192, 16_384, 65_536];

    fn mean(card: &Description, len: u64, depth: u64) -> Duration {
        run(card, Bytes(len), (depth, 400), Variation::None, 1).mean
    }

    #[test]
    fn a_message_without_a_buffer_is_lost_and_the_run_ends() {
        let mut card = cim();
        card.buffers.memory = Bytes(5000);
        for overload in [Overload::Drop, Overload::Priority, Overload::Block] {
            card.buffers.overload = overload;
            let sent = run(&card, Bytes(4096), (2, 3), Variation::None, 0);
            assert_eq!(sent.latency.count(), 3, "{overload:?}: one message at a time has a buffer");
        }
    }

    #[test]
    fn a_token_with_no_holding_time_left_does_not_return() {
        let mut card = Description::plain("a picosecond per day");
        card.network.setup = Duration::from_secs(1);
        let (rotation, holding) = (Duration::from_secs(86_400), Duration::from_ps(1));
        card.network.model = NetworkModel::Intermittent { rotation, holding };
        let sent = run(&card, Bytes(4096), (2, 3), Variation::None, 0);
        assert_eq!(sent.latency.count(), 1, "a second too long is never worked off");
    }

    #[test]
    fn e_65_depth_1_takes_exactly_the_time_of_eq_5_2() {
        for len in SIZES {
            assert_eq!(mean(&cim(), len, 1), table_5_1().time_alone(Bytes(len)), "{len}");
        }
    }

    #[test]
    fn e_68_depth_2_follows_eq_5_5_if_two_messages_keep_the_memory_busy() {
        for len in [4096, 8192, 16_384, 65_536] {
            assert_eq!(mean(&cim(), len, 2), table_5_1().time_overlapped(Bytes(len)), "{len}");
        }
        // Below that, two messages cannot achieve what the equation promises.
        assert!(mean(&cim(), 1024, 2) > table_5_1().time_overlapped(Bytes(1024)));
    }

    #[test]
    fn e_75_two_banks_follow_eq_5_6_or_take_half_a_round() {
        let two = cim().with_two_banks();
        for len in SIZES {
            let len = Bytes(len);
            let bound = table_5_1().time_two_banks(len).max(table_5_1().time_least_of_two(len));
            assert_eq!(mean(&two, len.0, 2), bound, "{len}");
        }
        assert_eq!(mean(&two, 4096, 1), mean(&cim(), 4096, 1), "no gain at depth 1");
    }

    #[test]
    fn e_73_a_single_message_varies_as_its_host_does() {
        // Exponential: the standard deviation equals the mean, 1280 us.
        let outcome = run(&cim(), Bytes(4096), (1, 20_000), Variation::Exponential, 1);
        assert!((outcome.deviation / 1280e-6 - 1.0).abs() < 0.04, "{}", outcome.deviation);
        let certain = run(&cim(), Bytes(4096), (1, 100), Variation::None, 1).deviation;
        assert!(certain < 1e-12, "{certain}");
    }

    #[test]
    fn e_59_the_commands_come_in_the_order_of_fig_5_1() {
        let outcome = run(&cim(), Bytes(4096), (1, 1), Variation::None, 1);
        let words: Vec<&str> = outcome.commands.iter().map(|&(.., word)| word).collect();
        let fig_5_1 = ["write", "write ack", "address list", "address ack", "transmit ack"];
        assert_eq!(words, fig_5_1);
        let at: Vec<f64> = outcome.commands.iter().map(|c| c.0.as_ps() as f64 / 1e6).collect();
        assert_eq!(at, [0.0, 1280.0, 1280.0, 3028.48, 4537.98]);
    }

    #[test]
    fn e_70_a_transfer_is_split_by_the_previous_message() {
        let outcome = run(&cim(), Bytes(4096), (2, 4), Variation::None, 1);
        let of = |id, phase| {
            let found = outcome.timeline.iter().find(|row| (row.0, row.1) == (id, phase));
            found.map(|&(.., from, to)| (from, to)).expect("the first messages are recorded")
        };
        let (transfer, network) = (of(1, Phase::Transfer), of(0, Phase::Network));
        assert!(transfer.0 < network.0 && network.1 < transfer.1, "message 2, case 2");
        let len = transfer.1 - transfer.0;
        assert_eq!(len, cim().transfer_time(Bytes(4096)) + (network.1 - network.0));
    }
}
