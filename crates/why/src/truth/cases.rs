//! The made bottlenecks.

use super::Case;
use crate::cause::Cause;
use lastmeter_live::staged::{Cores, End, Pattern, Play, Side, Way, Work};

const PLAIN: Play = Play::PLAIN;
const SIDE: Side = Side::PLAIN;
/// Bits per second.
const MBIT: f64 = 1e6;

const fn case(name: &'static str, truth: Cause, play: fn(u32) -> Play) -> Case {
    Case { name, truth, from_sender: None, play }
}

/// One whose cause the sender sees only as a reader that is slow.
const fn far(name: &'static str, truth: Cause, play: fn(u32) -> Play) -> Case {
    Case { name, truth, from_sender: Some(Cause::ReceiverSlow), play }
}

/// One whose cause the sender sees only as a link that is full somewhere.
const fn queue_back(name: &'static str, truth: Cause, play: fn(u32) -> Play) -> Case {
    Case { name, truth, from_sender: Some(Cause::LinkRate), play }
}

/// A path with this round trip.
const fn path(round_trip_ms: u32) -> Play {
    let way = wire(round_trip_ms);
    Play { path: Some((way, way)), ..PLAIN }
}

const fn wire(round_trip_ms: u32) -> Way {
    Way::wire(round_trip_ms as f64 * 0.0005)
}

/// The same with a way there that differs.
const fn out(round_trip_ms: u32, out: Way) -> Play {
    Play { path: Some((out, wire(round_trip_ms))), ..PLAIN }
}

/// A link of 100 Mbit/s, halved for each severity.
fn rate(round_trip_ms: u32, s: u32) -> Way {
    Way { rate: Some(f64::from(100 >> s) * MBIT), ..wire(round_trip_ms) }
}

const fn sender(work: Work) -> Side {
    Side { work, ..SIDE }
}

fn us(each: u64, s: u32) -> u64 {
    each * u64::from(s)
}

/// All of them: first those of the sender's program, then the receiver's, buffers, the path, messages,
/// CPUs, and what is no single connection.
pub const CASES: &[Case] = &[
    case("sender-sleeps", Cause::SenderSleeps, |s| Play {
        sender: sender(Work::Sleep(us(2000, s))),
        ..PLAIN
    }),
    case("sender-sleeps-far", Cause::SenderSleeps, |s| Play {
        sender: sender(Work::Sleep(us(20_000, s))),
        ..path(10)
    }),
    case("sender-sleeps-small", Cause::SenderSleeps, |s| Play {
        sender: sender(Work::Sleep(us(1000, s))),
        message: 4096,
        ..PLAIN
    }),
    case("sender-computes", Cause::SenderComputes, |s| Play {
        sender: sender(Work::Compute(us(1000, s))),
        ..PLAIN
    }),
    case("sender-computes-far", Cause::SenderComputes, |s| Play {
        sender: sender(Work::Compute(us(20_000, s))),
        ..path(10)
    }),
    case("sender-disk", Cause::SenderDisk, |s| Play {
        sender: sender(Work::Disk(16 * s as usize)),
        ..PLAIN
    }),
    case("sender-pipe", Cause::SenderPipe, |s| Play {
        sender: sender(Work::Pipe(us(3000, s))),
        ..PLAIN
    }),
    case("sender-encrypts", Cause::SenderComputes, |s| Play {
        sender: sender(Work::Cipher(4 * s)),
        ..PLAIN
    }),
    far("receiver-sleeps", Cause::ReceiverSleeps, |s| Play {
        receiver: sender(Work::Sleep(us(2000, s))),
        ..PLAIN
    }),
    far("receiver-sleeps-far", Cause::ReceiverSleeps, |s| Play {
        receiver: sender(Work::Sleep(us(20_000, s))),
        ..path(10)
    }),
    far("receiver-computes", Cause::ReceiverComputes, |s| Play {
        receiver: sender(Work::Compute(us(1000, s))),
        ..PLAIN
    }),
    far("receiver-computes-far", Cause::ReceiverComputes, |s| Play {
        receiver: sender(Work::Compute(us(20_000, s))),
        ..path(10)
    }),
    far("receiver-disk", Cause::ReceiverDisk, |s| Play {
        receiver: sender(Work::Disk(4 * s as usize)),
        ..PLAIN
    }),
    far("receiver-pipe", Cause::ReceiverPipe, |s| Play {
        receiver: sender(Work::Pipe(us(3000, s))),
        ..PLAIN
    }),
    far("receiver-decrypts", Cause::ReceiverComputes, |s| Play {
        receiver: sender(Work::Cipher(4 * s)),
        ..PLAIN
    }),
    case("send-buffer", Cause::SendBuffer, |s| Play {
        sender: Side { buffer: Some((64 << 10) >> s), ..SIDE },
        ..path(20)
    }),
    case("send-buffer-long", Cause::SendBuffer, |s| Play {
        sender: Side { buffer: Some((64 << 10) >> s), ..SIDE },
        ..path(80)
    }),
    case("receive-buffer", Cause::ReceiveBuffer, |s| Play {
        receiver: Side { buffer: Some((64 << 10) >> s), ..SIDE },
        ..path(20)
    }),
    case("receive-buffer-long", Cause::ReceiveBuffer, |s| Play {
        receiver: Side { buffer: Some((64 << 10) >> s), ..SIDE },
        ..path(80)
    }),
    case("pacing-cap", Cause::PacingCap, |s| Play {
        sender: Side { pacing: Some(64_000_000 >> s), ..SIDE },
        ..path(10)
    }),
    case("link", Cause::LinkRate, |s| out(2, rate(2, s))),
    case("link-far", Cause::LinkRate, |s| out(20, rate(20, s))),
    case("link-bbr", Cause::LinkRate, |s| Play { bbr: true, ..out(20, rate(20, s)) }),
    case("link-many", Cause::LinkRate, |s| Play { connections: 4, ..out(10, rate(10, s)) }),
    case("link-crowd", Cause::LinkRate, |s| Play { connections: 64, ..out(10, rate(10, s)) }),
    case("queue", Cause::LinkRate, |s| out(10, Way { queue: 1 << 20, ..rate(10, s) })),
    case("delay", Cause::CongestionWindow, |s| path(200 + 100 * s)),
    case("slow-start", Cause::CongestionWindow, |s| Play {
        pattern: Pattern::Connect,
        message: 2 << 20,
        ..path(30 * s)
    }),
    case("loss", Cause::Loss, |s| out(20, Way { loss: 0.005 * f64::from(s), ..wire(20) })),
    case("loss-far", Cause::Loss, |s| out(60, Way { loss: 0.003 * f64::from(s), ..wire(60) })),
    // Today's TCP learns how far segments overtake each other, and then only its buffer limits.
    case("reordering", Cause::Reordering, |s| Play {
        rigid: true,
        ..out(20, Way { late: 0.02 * f64::from(s), ..wire(20) })
    }),
    case("policer", Cause::Policer, |s| {
        let policer = Some((f64::from(80 >> s) * MBIT, 60e3));
        out(20, Way { policer, ..wire(20) })
    }),
    case("policer-bbr", Cause::Policer, |s| {
        let policer = Some((f64::from(80 >> s) * MBIT, 60e3));
        Play { bbr: true, ..out(20, Way { policer, ..wire(20) }) }
    }),
    queue_back("ack-path", Cause::AckPath, |s| {
        let back = Way { rate: Some(0.4 * MBIT / f64::from(s)), queue: 6000, ..wire(20) };
        Play { path: Some((wire(20), back)), ..PLAIN }
    }),
    case("round-trips", Cause::RoundTrips, |s| Play {
        pattern: Pattern::Request { reply: 256 },
        message: 256,
        ..path(10 * s)
    }),
    case("round-trips-large", Cause::RoundTrips, |s| Play {
        pattern: Pattern::Request { reply: 8192 },
        message: 8192,
        ..path(10 * s)
    }),
    case("nagle", Cause::Nagle, |s| Play {
        pattern: Pattern::TwoWrites,
        message: 512,
        ..path(2 * s)
    }),
    case("small-messages", Cause::SmallMessages, |s| Play {
        sender: Side { no_delay: true, ..SIDE },
        message: 256 >> s,
        ..PLAIN
    }),
    case("sender-cpu", Cause::SenderCpu, |s| Play { offload: false, mtu: 3000 - 500 * s, ..PLAIN }),
    far("receiver-cpu", Cause::ReceiverCpu, |s| Play {
        receiver: Side { piece: Some(512 >> s), ..SIDE },
        ..PLAIN
    }),
    case("one-core", Cause::SharedCpu, |s| Play {
        cores: Cores::One,
        message: (128 << 10) >> s,
        ..PLAIN
    }),
    case("sender-hog", Cause::SharedCpu, |s| Play {
        hog: Some(End::Sender),
        sender: sender(Work::Compute(us(200, s))),
        ..PLAIN
    }),
    far("receiver-hog", Cause::SharedCpu, |s| Play {
        hog: Some(End::Receiver),
        receiver: sender(Work::Compute(us(200, s))),
        ..PLAIN
    }),
    case("sender-quota", Cause::Throttled, |s| Play {
        quota: Some((End::Sender, 0.6 / f64::from(s))),
        sender: sender(Work::Compute(500)),
        ..PLAIN
    }),
    far("receiver-quota", Cause::Throttled, |s| Play {
        quota: Some((End::Receiver, 0.6 / f64::from(s))),
        receiver: sender(Work::Compute(500)),
        ..PLAIN
    }),
    case("softirq", Cause::Softirq, |s| Play {
        cores: Cores::Steered,
        mtu: 1500 - 300 * s,
        ..PLAIN
    }),
    far("proxy-sleeps", Cause::Proxy, |s| Play { proxy: Some(Work::Sleep(us(3000, s))), ..PLAIN }),
    far("proxy-computes", Cause::Proxy, |s| Play {
        proxy: Some(Work::Compute(us(2000, s))),
        ..path(4)
    }),
    case("names", Cause::NameLookUp, |s| Play {
        pattern: Pattern::LookUp { us: us(30_000, s) },
        message: 2048,
        ..path(4)
    }),
    case("connections", Cause::ConnectionSetUp, |s| Play {
        pattern: Pattern::Connect,
        message: 2048,
        ..path(20 * s)
    }),
    // Its sender sees that it computes as fast as it can, and nothing else.
    Case {
        from_sender: Some(Cause::SenderComputes),
        ..case("datagrams-unread", Cause::DatagramOverflow, |s| Play {
            pattern: Pattern::Udp,
            message: 1000,
            sender: sender(Work::Compute(50)),
            receiver: sender(Work::Sleep(us(200, s))),
            ..PLAIN
        })
    },
    case("datagrams-compute", Cause::SenderComputes, |s| Play {
        pattern: Pattern::Udp,
        message: 1000,
        sender: sender(Work::Compute(us(200, s))),
        ..PLAIN
    }),
    case("datagrams-sleep", Cause::SenderSleeps, |s| Play {
        pattern: Pattern::Udp,
        message: 1000,
        sender: sender(Work::Sleep(us(2000, s))),
        ..PLAIN
    }),
    case("no-network", Cause::NoNetwork, |s| Play {
        pattern: Pattern::Alone,
        sender: sender(Work::Compute(us(1000, s))),
        receiver: sender(Work::Sleep(us(1000, s))),
        ..PLAIN
    }),
];
