//! From a description to hardware: an adapter's control logic in Verilog with a test bench, and what a given clock
//! rate requires (E-130).
//!
//! `hardware.v` is the control logic: queues, stages, message numbers, memory arbitration. The engines that move
//! and send data are outside, each connected by a pair of wires. `hardware_bench.v` puts counters there that take
//! as long as the model says, and prints the mean time per message. So a run of a Verilog simulator shows whether
//! the control logic to be built does what was predicted.
//!
//! The two differ only in that passing a message to the next stage takes a cycle, and that times are whole cycles.
//!
//! Source: Indiresan 1997, §8.2: the analysis "should be combined with traditional hardware design methodology
//! to determine the feasibility and cost of actually implementing such an architecture".

use super::description::{
    BufferPlace, Description, Discipline, NetworkModel, Overload, Synchronisation, TransferMode,
};
use lastmeter_base::{Bytes, Duration};
use std::fmt::Write;

const CONTROL: &str = include_str!("hardware.v");
const BENCH: &str = include_str!("hardware_bench.v");
/// Bits of a message's length, class and due date, and of its arrival number.
const LENGTH: u64 = 32;
const CLASS: u64 = 8;
const DUE: u64 = 64;
const ARRIVAL: u64 = 64;

/// Messages that a bench sends back to back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bench {
    /// Length of each message.
    pub len: Bytes,
    /// Messages in flight at once.
    pub depth: u64,
    /// Number of messages.
    pub messages: u64,
    /// Clock period.
    pub period: Duration,
}

/// What an adapter requires of clocked hardware.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Needs {
    /// Clock period.
    pub period: Duration,
    /// Bits that the network takes per cycle; `None` if the description has no rate.
    pub bits: Option<f64>,
    /// Cycles between messages of the given length, if the network is the limit.
    pub between: f64,
    /// Cycles between messages with this control logic: whole cycles, at least one for set-up and one to send.
    pub taken: u64,
    /// Bits of state for all messages in flight.
    pub state: u64,
    /// Comparators of due dates.
    pub comparators: u64,
}

impl Needs {
    /// Requirements of a card that sends messages of `len` back to back.
    ///
    /// 64 bytes, preamble and gap are 6.72 ns at 100 Gbit/s:
    ///
    /// ```
    /// use lastmeter_base::{Bytes, Duration, Rate};
    /// use lastmeter_host::adapter::description::Description;
    /// use lastmeter_host::adapter::hardware::Needs;
    /// let mut card = Description::plain("a fast one");
    /// card.network.rate = Some(Rate::from_gbit(100));
    /// card.network.framing = Bytes(20);
    /// let needs = Needs::of(&card, Bytes(64), Duration::from_ns(4));
    /// assert_eq!((needs.bits, needs.width()), (Some(400.0), Some(512)));
    /// assert_eq!((needs.between, needs.taken), (1.68, 3));
    /// assert!((needs.share() - 0.56).abs() < 1e-9);
    /// ```
    pub fn of(card: &Description, len: Bytes, period: Duration) -> Needs {
        let network = &card.network;
        let cycle = period.as_secs_f64();
        let a_frame = (!network.per_frame.is_zero())
            .then(|| (network.frame.0 * 8) as f64 / network.per_frame.as_secs_f64());
        let rate = network.rate.map(|rate| rate.as_bits() as f64).or(a_frame);
        let (prepared, sent) = card.network_time(len);
        let message = prepared + sent;
        let disciplines = queues(card);
        let depth = card.queueing.depth;
        let number = width(depth);
        let by_due = |&(_, discipline): &(u64, Discipline)| discipline == Discipline::Edd;
        let state = disciplines.iter().map(|one| match by_due(one) {
            true => depth * (1 + CLASS + DUE + ARRIVAL),
            false => depth * one.0 * number,
        });
        let sorted = disciplines.iter().filter(|one| by_due(one)).count() as u64;
        Needs {
            period,
            bits: rate.map(|rate| rate * cycle),
            between: message.as_ps() as f64 / period.as_ps() as f64,
            taken: cycles(prepared, period) + cycles(sent, period),
            // And the list of free message numbers.
            state: state.sum::<u64>() + depth * (LENGTH + CLASS + DUE + number),
            comparators: sorted * (depth - 1),
        }
    }

    /// Width of the datapath in bits: the bits per cycle, rounded up to a power of two.
    pub fn width(&self) -> Option<u64> {
        self.bits.map(|bits| (bits.ceil() as u64).max(1).next_power_of_two())
    }

    /// The share of the network's rate that this control logic reaches with messages of this length.
    pub fn share(&self) -> f64 {
        self.between / self.taken as f64
    }

    /// As text, one line each.
    pub fn lines(&self, len: Bytes) -> Vec<String> {
        let mut lines = Vec::new();
        if let (Some(bits), Some(width)) = (self.bits, self.width()) {
            lines.push(format!("{bits:.1} bits per cycle: a datapath of {width}"));
        }
        if self.between > 0.0 {
            let (between, taken, share) = (self.between, self.taken, 100.0 * self.share());
            lines.push(format!(
                "a message of {len} every {between:.2} cycles; with this control every {taken}, \
                 {share:.0} % of the rate"
            ));
        }
        let (state, comparators) = (self.state, self.comparators);
        lines.push(format!("{state} bits of state, {comparators} comparators of due dates"));
        lines
    }
}

/// The control logic of a card, and a bench in which the network is always available.
///
/// ```
/// use lastmeter_base::{Bytes, Duration};
/// use lastmeter_host::adapter::description::Description;
/// use lastmeter_host::adapter::hardware::{Bench, verilog};
/// let bench =
///     Bench { len: Bytes(4096), depth: 2, messages: 20, period: Duration::from_ns(4) };
/// let text = verilog(&Description::plain("a card"), &bench).unwrap();
/// assert!(text.contains("module card (") && text.contains("module bench_card"));
/// ```
///
/// # Errors
/// If the description has something that `hardware.v` does not implement.
pub fn verilog(card: &Description, bench: &Bench) -> Result<String, String> {
    let missing = [
        (card.buffers.place == BufferPlace::PerConnection, "separate buffers for each connection"),
        (
            card.buffers.overload == Overload::Priority,
            "displacing a less important message from its buffer",
        ),
        (card.transfer.urgent_first, "transfers that interrupt others"),
    ];
    if let Some((_, what)) = missing.iter().find(|(wanted, _)| *wanted) {
        return Err(format!("not implemented in hardware: {what}"));
    }
    let mut text = format!("// {}: from its description.\n\n{CONTROL}\n", one_line(&card.what));
    text += &instance(card, bench.depth);
    if card.network.model == NetworkModel::PointToPoint {
        let _ = write!(text, "\n{BENCH}\n{}", run(card, bench));
    }
    Ok(text)
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// Duration of an activity in whole cycles.
fn cycles(time: Duration, period: Duration) -> u64 {
    time.as_ps().div_ceil(period.as_ps()).max(1)
}

/// Bits needed for a number below `count`.
fn width(count: u64) -> u64 {
    u64::from(count.max(2).next_power_of_two().trailing_zeros())
}

/// The queues in front of interface, transfer and network, as in [`super::transmitter`].
fn queues(card: &Description) -> [(u64, Discipline); 3] {
    let (host, queueing) = (&card.host, &card.queueing);
    let interface = if host.queues > 1 { Discipline::Priority } else { Discipline::Fifo };
    let at_network = queueing.at_network.unwrap_or(queueing.discipline);
    let all = [
        (host.queues, interface),
        (queueing.queues, queueing.discipline),
        (queueing.queues, at_network),
    ];
    if host.qos { all } else { [(1, Discipline::Fifo); 3] }
}

/// The card: the control logic with the description's parameters.
fn instance(card: &Description, depth: u64) -> String {
    let transfer = &card.transfer;
    let processor = match transfer.mode {
        TransferMode::Dma => 0,
        TransferMode::Hybrid => transfer.pio_max.0.min(u64::from(u32::MAX)),
        TransferMode::Pio => u64::from(u32::MAX),
    };
    let polls = card.network.synchronisation == Synchronisation::Poll;
    let mut parameters = vec![
        ("DEPTH", depth.to_string()),
        ("WIDTH", width(depth).to_string()),
        ("MEMORY", format!("64'd{}", card.buffers.memory.0)),
        ("DROPS", u64::from(card.buffers.overload == Overload::Drop).to_string()),
        ("STAGES", card.queueing.stages.to_string()),
        ("IN_TURN", u64::from(polls || card.queueing.stages < 2).to_string()),
        ("BANKS", card.buffers.banks.to_string()),
        ("PREEMPTIBLE", u64::from(transfer.preemptible).to_string()),
        ("PROCESSOR_MAX", format!("32'd{processor}")),
    ];
    let names = [
        ("INTERFACE_QUEUES", "INTERFACE_DISCIPLINE"),
        ("TRANSFER_QUEUES", "TRANSFER_DISCIPLINE"),
        ("NETWORK_QUEUES", "NETWORK_DISCIPLINE"),
    ];
    for ((count, discipline), (queues, disciplines)) in queues(card).into_iter().zip(names) {
        let number = match discipline {
            Discipline::Fifo => 0,
            Discipline::Priority => 1,
            Discipline::Edd => 2,
        };
        parameters.push((queues, count.to_string()));
        parameters.push((disciplines, number.to_string()));
    }
    let ports = [
        "input wire clock",
        "input wire reset",
        "input wire submit",
        "input wire [31:0] length",
        "input wire [7:0] class_in",
        "input wire [63:0] due",
        "output wire full",
        "output wire dropped",
        "output wire write_ack",
        "output wire address_ack",
        "output wire transmit_ack",
        "input wire may_send",
        "output wire nothing_to_send",
        "output wire interface_go",
        "input wire interface_done",
        "output wire transfer_go",
        "output wire [31:0] transfer_length",
        "input wire transfer_done",
        "output wire setup_go",
        "input wire setup_done",
        "output wire send_go",
        "output wire [31:0] send_length",
        "input wire send_done",
    ];
    let joined = ports.iter().map(|port| {
        let name = port.rsplit(' ').next().unwrap_or(port);
        format!("        .{name}({name})")
    });
    format!(
        "module card (\n    {}\n);\n    adapter #(\n{}\n    ) control (\n{}\n    );\nendmodule\n",
        ports.join(",\n    "),
        listed(&parameters),
        joined.collect::<Vec<_>>().join(",\n")
    )
}

/// The bench, with the durations that the model gives for each activity.
fn run(card: &Description, bench: &Bench) -> String {
    let cycles = |time: Duration| format!("64'd{}", cycles(time, bench.period));
    let (prepared, sent) = card.network_time(bench.len);
    let parameters = [
        ("PERIOD", format!("64'd{}", bench.period.as_ps())),
        ("MESSAGES", bench.messages.to_string()),
        ("LENGTH", format!("32'd{}", bench.len.0)),
        ("INTERFACE_CYCLES", cycles(card.host.per_message + card.gathering_time(bench.len))),
        ("TRANSFER_CYCLES", cycles(card.transfer_time(bench.len))),
        ("SETUP_CYCLES", cycles(prepared)),
        ("SEND_CYCLES", cycles(sent)),
    ];
    format!(
        "module bench_card;\n    bench #(\n{}\n    ) bench ();\nendmodule\n",
        listed(&parameters)
    )
}

fn listed(parameters: &[(&str, String)]) -> String {
    let one = |(name, value): &(&str, String)| format!("        .{name}({value})");
    parameters.iter().map(one).collect::<Vec<_>>().join(",\n")
}

#[cfg(test)]
mod tests {
    use super::super::description::cim;
    use super::*;

    const AT_32_MHZ: Duration = Duration::from_ps(31_250);

    #[test]
    fn e_130_a_32_mhz_clock_needs_8_bits_per_cycle_at_205_mbit_per_second() {
        // 16384 bits in 79.75 us, which is 2552 cycles.
        let needs = Needs::of(&cim(), Bytes(44), AT_32_MHZ);
        assert!(needs.bits.is_some_and(|bits| (bits - 16_384.0 / 2552.0).abs() < 1e-9));
        assert_eq!((needs.width(), needs.comparators), (Some(8), 0));
        assert_eq!((needs.between, needs.taken), (45_752.0, 45_752));
        // Two messages: three queues and a free list, one bit per number; 32 + 8 + 64 bits of each message.
        assert_eq!(needs.state, 2 * (4 + 104));
    }

    #[test]
    fn due_dates_need_a_comparator_for_each_place_but_one_of_each_queue() {
        let mut card = cim();
        card.host.qos = true;
        card.queueing.discipline = Discipline::Edd;
        card.queueing.depth = 8;
        assert_eq!(Needs::of(&card, Bytes(44), AT_32_MHZ).comparators, 14);
        card.queueing.at_network = Some(Discipline::Fifo);
        assert_eq!(Needs::of(&card, Bytes(44), AT_32_MHZ).comparators, 7);
    }

    #[test]
    fn features_without_hardware_are_refused() {
        let bench = Bench { len: Bytes(64), depth: 1, messages: 1, period: AT_32_MHZ };
        let mut card = cim();
        card.transfer.urgent_first = true;
        let said = verilog(&card, &bench).unwrap_err();
        assert!(said.contains("transfers that interrupt others"), "{said}");
        let mut token = cim();
        let ms = Duration::from_ms;
        token.network.model = NetworkModel::Intermittent { rotation: ms(10), holding: ms(1) };
        let text = verilog(&token, &bench).unwrap_or_default();
        assert!(text.contains("module card") && !text.contains("module bench"));
    }

    #[test]
    fn every_module_ends_and_every_port_is_connected() {
        let bench = Bench { len: Bytes(4096), depth: 2, messages: 10, period: AT_32_MHZ };
        let text = verilog(&cim(), &bench).unwrap_or_default();
        let begins = text.lines().filter(|line| line.starts_with("module ")).count();
        assert_eq!(begins, text.lines().filter(|line| *line == "endmodule").count());
        assert!(text.contains(".INTERFACE_CYCLES(64'd40960)") && text.contains(".PREEMPTIBLE(1)"));
        for port in ["submit", "may_send", "send_done", "nothing_to_send"] {
            assert!(text.contains(&format!("        .{port}({port})")), "{port}");
        }
    }
}
