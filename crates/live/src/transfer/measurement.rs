//! Combines the samples of both ends into one account of the transfer.

use super::{End, Sample, Setting, Thread, date, kernel};
use crate::namespace::Isolation;
use crate::relay::Relayed;
use crate::sample::Sampled;
use crate::statistics::{Spread, quantile};
use lastmeter_linux::counters::{CounterChange, CpuTime};
use lastmeter_linux::tcp_info::TcpInfo;
use lastmeter_linux::{Error, Result};
use serde::{Deserialize, Serialize};

/// Windows into which the measured part is cut.
const WINDOWS: usize = 25;
/// A window in which other programs took more than this share of the CPU is left out.
const QUIET: f64 = 0.03;
/// The least fraction of windows that a result may rest on.
const QUIET_MIN: usize = 5;

/// The measurements of a transfer, in seconds, bytes and bits per second.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measurement {
    /// The setting.
    pub setting: Setting,
    /// How the hosts were isolated.
    pub isolation: Isolation,
    /// The kernel's release.
    pub kernel: String,
    /// Seconds since 1970.
    pub date: u64,
    /// Seconds that were measured.
    pub elapsed: f64,
    /// Data through the receiver's socket.
    pub goodput: Goodput,
    /// Messages per second that the receiver finished.
    pub message_rate: f64,
    /// The sending process.
    pub sender: Side,
    /// The receiving process.
    pub receiver: Side,
    /// From request to reply, for request/response.
    pub latency: Option<Latency>,
    /// The machine's counters.
    pub counters: CounterChange,
    /// The relay, if there was one.
    pub relay: Option<Relayed>,
    /// Share of the busier side's CPU taken by other programs, before quiet windows were chosen.
    pub foreign: f64,
    /// Load of other programs while it ran, in CPUs, whether or not on our cores: they also use cache, and keep
    /// cores from sleeping. Resolution: a tick over the duration.
    pub others: f64,
    /// Other threads ready to run just before and just after, mean: while they wait, no core sleeps and every
    /// switch goes to them and back.
    pub crowd: f64,
    /// What both ends' CPU time went into, the sender's first, where sampling was asked for.
    #[serde(default)]
    pub sampled: Option<Sampled>,
    /// Notes on this run.
    pub notes: Vec<String>,
}

/// Bits per second over the least disturbed windows of the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goodput {
    /// Median and quartiles over the windows used.
    pub windows: Spread,
    /// All bytes over all time.
    pub mean: f64,
    /// Number of windows left out because other programs used the CPU.
    pub disturbed: usize,
}

/// Quantiles of a latency in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
    /// Number of values.
    pub count: usize,
}

/// One end of the transfer, its threads added up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Side {
    /// How the threads spent the measured time.
    pub activity: Activity,
    /// Fraction of the measured time in the application's own delays, asleep or computing.
    pub application: f64,
    /// Seconds in user mode over the whole run.
    pub user: f64,
    /// Seconds in the kernel over the whole run.
    pub system: f64,
    /// Voluntary context switches, over the whole run.
    pub voluntary: u64,
    /// Involuntary context switches, over the whole run.
    pub involuntary: u64,
    /// System calls that moved data, in the measured part.
    pub calls: u64,
    /// Bytes moved in the measured part.
    pub bytes: u64,
    /// The buffer that the kernel granted, bytes of memory.
    pub buffer: u64,
    /// The connections, in the measured part.
    pub tcp: TcpChange,
    /// Of its zero-copy sends, the fraction that the kernel copied after all.
    pub zero_copy_copied: Option<f64>,
    /// Seconds run on a CPU per byte, median over the windows used.
    pub run_per_byte: Spread,
    /// The threads themselves.
    pub threads: Vec<Thread>,
}

/// Fractions of the measured time, mean over the threads; they add up to one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// On a CPU, own computing included.
    pub run: f64,
    /// Ready, while something else ran.
    pub wait: f64,
    /// Asleep in the socket: in `send` for room, in `recv` for data.
    pub blocked: f64,
    /// Asleep or computing for itself: the delays of the setting.
    pub paused: f64,
}

/// Changes in the connections, summed over the streams; levels are means over samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpChange {
    /// Fraction of time with data to send or in flight.
    pub busy: f64,
    /// Fraction of time in which the receiver's window was the limit.
    pub receiver_window_limited: f64,
    /// Fraction of time in which the send buffer was the limit.
    pub send_buffer_limited: f64,
    /// Fraction of samples in which all data was in flight and the windows allowed more.
    pub all_in_flight: f64,
    /// Mean smoothed round-trip time.
    pub rtt: f64,
    /// Least round-trip time.
    pub rtt_min: f64,
    /// Mean delivery rate.
    pub delivery_rate: f64,
    /// Fraction of samples in which the application limited that rate.
    pub application_limited: f64,
    /// Mean bytes in the send buffer that were never sent.
    pub not_sent: f64,
    /// Mean segments in flight.
    pub unacked: f64,
    /// Mean congestion window in segments.
    pub congestion_window: f64,
    /// Mean window advertised by the peer, in bytes.
    pub send_window: f64,
    /// Payload of a segment, bytes.
    pub segment: u32,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Segments sent.
    pub segments_out: u64,
    /// Segments received.
    pub segments_in: u64,
    /// Segments with data sent.
    pub data_segments_out: u64,
}

/// The time that both sides measured: from the end of the warm-up to the sender's end.
#[derive(Clone, Copy)]
struct Part {
    from: f64,
    to: f64,
}

pub(super) fn summarise(
    setting: &Setting,
    isolation: Isolation,
    sender: End,
    receiver: End,
    counters: CounterChange,
    relay: Option<Relayed>,
) -> Result<Measurement> {
    let part = measured_part(setting, &sender)?;
    let (shares, foreign) = disturbance(part, &[&sender, &receiver], setting);
    let used = quiet_windows(&shares);
    let goodput = goodput(part, &receiver, &used, WINDOWS - used.len());
    let latency = latency(&sender, part);
    let mut notes = Vec::new();
    if isolation == Isolation::Loopback {
        notes.push("no namespaces: MTU and offloads are those of the loopback interface".into());
    }
    if foreign > QUIET {
        notes.push(format!(
            "other programs took {:.0} % of the CPU; {} of {WINDOWS} windows were left out",
            foreign * 100.0,
            goodput.disturbed
        ));
    }
    let elapsed = part.to - part.from;
    let ours: f64 = [&sender, &receiver]
        .into_iter()
        .flat_map(|end| &end.threads)
        .map(|t| part.rate(t, |s| s.run))
        .sum();
    let others = others(&counters, ours / elapsed, setting);
    let sender = side(part, sender, &used);
    let receiver = side(part, receiver, &used);
    let messages: f64 = receiver.threads.iter().map(|t| part.rate(t, |s| s.messages as f64)).sum();
    Ok(Measurement {
        setting: setting.clone(),
        isolation,
        kernel: kernel()?,
        date: date(),
        elapsed,
        goodput,
        message_rate: messages / elapsed,
        sender,
        receiver,
        latency,
        counters,
        relay,
        foreign,
        others,
        crowd: 0.0,
        sampled: None,
        notes,
    })
}

/// CPU time neither idle nor ours, in CPUs.
fn others(counters: &CounterChange, ours: f64, setting: &Setting) -> f64 {
    let busy = |cpu: &CpuTime| cpu.user + cpu.system + cpu.interrupt + cpu.softirq + cpu.steal;
    let all: f64 = counters.cpus.iter().map(busy).sum::<f64>() / setting.duration.as_secs_f64();
    let competitor = if setting.competitor { 1.0 } else { 0.0 };
    (all - ours - competitor).max(0.0)
}

fn measured_part(setting: &Setting, sender: &End) -> Result<Part> {
    let first = |t: &Thread| t.samples.first().map_or(f64::INFINITY, |s| s.at);
    let last = |t: &Thread| t.samples.last().map_or(0.0, |s| s.at);
    let from = sender.threads.iter().map(first).fold(0.0, f64::max);
    let from = from + setting.warm_up.as_secs_f64();
    let to = sender.threads.iter().map(last).fold(f64::INFINITY, f64::min);
    // It ends as planned: data that drains afterwards was sent under a different load.
    let to = to.min(from + setting.duration.as_secs_f64());
    let fewest = sender.threads.iter().map(|t| t.samples.len()).min().unwrap_or(0);
    if to <= from || fewest < 3 {
        let wanted = "an account of the transfer".to_owned();
        return Err(Error::TooFewSamples { wanted, found: fewest, needed: 3 });
    }
    Ok(Part { from, to })
}

impl Part {
    fn window(self, i: usize) -> Part {
        let len = (self.to - self.from) / WINDOWS as f64;
        Part { from: self.from + len * i as f64, to: self.from + len * (i + 1) as f64 }
    }

    /// How much `what` grew in this time, linear between samples.
    fn rate(self, thread: &Thread, what: impl Fn(&Sample) -> f64) -> f64 {
        at(&thread.samples, self.to, &what) - at(&thread.samples, self.from, &what)
    }

    fn samples(self, thread: &Thread) -> impl Iterator<Item = &Sample> {
        thread.samples.iter().filter(move |s| (self.from..=self.to).contains(&s.at))
    }
}

/// The value of `what` at `time`, linear between the samples around it.
fn at(samples: &[Sample], time: f64, what: impl Fn(&Sample) -> f64) -> f64 {
    let after = samples.partition_point(|s| s.at < time);
    match (after.checked_sub(1).map(|i| &samples[i]), samples.get(after)) {
        (Some(a), Some(b)) if b.at > a.at => {
            what(a) + (what(b) - what(a)) * (time - a.at) / (b.at - a.at)
        }
        (_, Some(s)) | (Some(s), None) => what(s),
        (None, None) => 0.0,
    }
}

/// Per window, the share of our busiest core taken by other programs; and its mean.
fn disturbance(part: Part, ends: &[&End], setting: &Setting) -> (Vec<f64>, f64) {
    let share = |window: Part| {
        let len = window.to - window.from;
        let threads = ends.iter().flat_map(|end| &end.threads);
        let mut by_core = std::collections::BTreeMap::<usize, (f64, f64)>::new();
        for thread in threads {
            let sums = by_core.entry(thread.core).or_default();
            sums.0 += window.rate(thread, |s| s.run);
            sums.1 += window.rate(thread, |s| s.wait);
        }
        // Our own threads wait for each other too; time in which some waited and none of them
        // ran was used by others.
        let taken = |(run, wait): &(f64, f64)| wait.min(len - run).max(0.0) / len;
        by_core.values().map(taken).fold(0.0, f64::max)
    };
    if setting.competitor {
        return (vec![0.0; WINDOWS], 0.0);
    }
    let shares: Vec<f64> = (0..WINDOWS).map(|i| share(part.window(i))).collect();
    let mean = shares.iter().sum::<f64>() / WINDOWS as f64;
    (shares, mean)
}

/// The windows used: the undisturbed ones, or the least disturbed if there are too few.
fn quiet_windows(shares: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by(|&a, &b| shares[a].total_cmp(&shares[b]));
    let quiet = order.iter().take_while(|&&i| shares[i] <= QUIET).count();
    order.truncate(quiet.max(QUIET_MIN));
    order.sort_unstable();
    order
}

fn goodput(part: Part, receiver: &End, used: &[usize], disturbed: usize) -> Goodput {
    let bits = |part: Part| {
        let bytes = |t: &Thread| part.rate(t, |s| s.bytes as f64);
        receiver.threads.iter().map(bytes).sum::<f64>() * 8.0 / (part.to - part.from)
    };
    let windows = Spread::of(used.iter().map(|&i| bits(part.window(i))).collect());
    Goodput { windows, mean: bits(part), disturbed }
}

fn latency(sender: &End, part: Part) -> Option<Latency> {
    let mut all = Vec::new();
    for thread in &sender.threads {
        // Messages count when answered, so those before the part belong to the warm-up.
        let skip = at(&thread.samples, part.from, |s| s.messages as f64) as usize;
        all.extend(thread.latencies.iter().skip(skip));
    }
    all.sort_by(f64::total_cmp);
    (!all.is_empty()).then(|| Latency {
        mean: all.iter().sum::<f64>() / all.len() as f64,
        p50: quantile(&all, 0.5),
        p90: quantile(&all, 0.9),
        p99: quantile(&all, 0.99),
        max: all[all.len() - 1],
        count: all.len(),
    })
}

fn side(part: Part, end: End, used: &[usize]) -> Side {
    let threads = &end.threads;
    let sum =
        |what: &dyn Fn(&Sample) -> f64| -> f64 { threads.iter().map(|t| part.rate(t, what)).sum() };
    let per_byte = |&i: &usize| {
        let window = part.window(i);
        let run: f64 = threads.iter().map(|t| window.rate(t, |s| s.run)).sum();
        let bytes: f64 = threads.iter().map(|t| window.rate(t, |s| s.bytes as f64)).sum();
        run / bytes.max(1.0)
    };
    let copied: Vec<f64> = threads.iter().filter_map(|t| t.zero_copy_copied).collect();
    Side {
        activity: activity(part, threads),
        application: (sum(&|s| s.paused) / ((part.to - part.from) * threads.len().max(1) as f64))
            .clamp(0.0, 1.0),
        user: threads.iter().map(|t| t.user).sum(),
        system: threads.iter().map(|t| t.system).sum(),
        voluntary: threads.iter().map(|t| t.voluntary).sum(),
        involuntary: threads.iter().map(|t| t.involuntary).sum(),
        calls: sum(&|s| s.calls as f64) as u64,
        bytes: sum(&|s| s.bytes as f64) as u64,
        buffer: end.buffer,
        tcp: tcp_change(part, threads),
        zero_copy_copied: (!copied.is_empty())
            .then(|| copied.iter().sum::<f64>() / copied.len() as f64),
        run_per_byte: Spread::of(used.iter().map(per_byte).collect()),
        threads: end.threads,
    }
}

fn activity(part: Part, threads: &[Thread]) -> Activity {
    let time = (part.to - part.from) * threads.len().max(1) as f64;
    let sum = |what: fn(&Sample) -> f64| -> f64 {
        threads.iter().map(|t| part.rate(t, what)).sum::<f64>() / time
    };
    let run = sum(|s| s.run).clamp(0.0, 1.0);
    let wait = sum(|s| s.wait).clamp(0.0, 1.0 - run);
    // A computing delay is already counted as on the CPU; only sleep is a part of its own.
    let paused = sum(|s| s.paused).clamp(0.0, 1.0 - run - wait);
    Activity { run, wait, paused, blocked: 1.0 - run - wait - paused }
}

fn tcp_change(part: Part, threads: &[Thread]) -> TcpChange {
    let mut total = TcpChange { rtt_min: f64::INFINITY, ..TcpChange::default() };
    let count = threads.len().max(1) as f64;
    for thread in threads {
        let time = part.to - part.from;
        let fraction = |what: fn(&TcpInfo) -> f64| part.rate(thread, |s| what(&s.tcp)) / time;
        total.busy += fraction(|t| t.busy) / count;
        total.receiver_window_limited += fraction(|t| t.receiver_window_limited) / count;
        total.send_buffer_limited += fraction(|t| t.send_buffer_limited) / count;
        let samples: Vec<&TcpInfo> = part.samples(thread).map(|s| &s.tcp).collect();
        let mean = |what: fn(&TcpInfo) -> f64| {
            samples.iter().map(|t| what(t)).sum::<f64>() / samples.len().max(1) as f64
        };
        total.rtt += mean(|t| t.rtt) / count;
        total.delivery_rate += mean(|t| t.delivery_rate);
        total.application_limited += mean(|t| f64::from(u8::from(t.application_limited))) / count;
        total.all_in_flight += mean(|t| f64::from(u8::from(t.all_in_flight()))) / count;
        total.not_sent += mean(|t| t.not_sent.into());
        total.unacked += mean(|t| t.unacked.into());
        total.congestion_window += mean(|t| t.congestion_window.into());
        total.send_window += mean(|t| t.send_window.into());
        let Some(last) = thread.samples.last().map(|s| &s.tcp) else { continue };
        total.rtt_min = total.rtt_min.min(last.rtt_min);
        total.segment = last.segment;
        let grown = |what: fn(&TcpInfo) -> u32| part.rate(thread, |s| what(&s.tcp).into()) as u64;
        total.retransmits += grown(|t| t.retransmits);
        total.segments_out += grown(|t| t.segments_out);
        total.segments_in += grown(|t| t.segments_in);
        total.data_segments_out += grown(|t| t.data_segments_out);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefers_undisturbed_windows() {
        let mut shares = vec![0.5; 25];
        shares[7..15].fill(0.01);
        assert_eq!(quiet_windows(&shares), (7..15).collect::<Vec<_>>());
    }

    #[test]
    fn takes_the_least_disturbed_windows_when_none_is_quiet() {
        let shares: Vec<f64> = (0..25).map(|i| 0.9 - 0.02 * f64::from(i)).collect();
        assert_eq!(quiet_windows(&shares), vec![20, 21, 22, 23, 24]);
    }

    #[test]
    fn interpolates_between_samples() {
        let sample = |at: f64, bytes| Sample { at, bytes, ..Sample::default() };
        let samples = [sample(1.0, 0), sample(2.0, 100), sample(3.0, 100)];
        assert_eq!(at(&samples, 1.25, |s| s.bytes as f64), 25.0);
        assert_eq!(at(&samples, 9.0, |s| s.bytes as f64), 100.0);
        assert_eq!(at(&samples, 0.0, |s| s.bytes as f64), 0.0);
    }
}
