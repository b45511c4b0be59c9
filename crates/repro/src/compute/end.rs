//! END's platform: the capacity of its processor, what it can emulate, and what protocol processing costs
//! on it (E-12, E-14, E-31, E-32, E-45, E-49, E-51, E-53 to E-55, E-57, E-78, E-80, E-128 to E-130).

use super::{Computed, Setting, Value, row, together};
use crate::Error;
use crate::machines::process::{Message, Options, Organisation, Processor};
use lastmeter_base::{Bytes, Duration, Rate};
use lastmeter_host::adapter::description::{Description, NetworkModel};
use lastmeter_host::adapter::emulation::{Stopwatch, over_one_bus, residual, utilisation};
use lastmeter_host::adapter::firmware;
use lastmeter_host::adapter::hardware::Needs;
use lastmeter_host::adapter::pipeline::run;
use lastmeter_host::adapter::transmitter::Variation;
use lastmeter_host::receive::control::{Adapter, Command};
use lastmeter_lab::library::Builtin;
use lastmeter_lab::profile::device;

pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let computed = together(
        setting,
        &[
            baseline, stack, processes, capacity, limits, scheduling, platform, devices, networks,
            hardware,
        ],
    )?;
    Ok(computed.into_iter().filter(|value| setting.wants(&value.id)).collect())
}

/// Table 3.1.
fn baseline(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let names = [
        ("context switching", "switch"),
        ("interrupt handling", "interrupt"),
        ("timer read", "timer"),
        ("timer resolution", "timer_resolution"),
        ("NP PIO, of a word", "np_pio"),
        ("VME PIO, of a word", "vme_pio"),
        ("VME DMA, of a word", "vme_dma"),
        ("CIM DMA, 2 KB, of a word", "cim_dma_2"),
        ("CIM DMA, 4 KB, of a word", "cim_dma_4"),
    ];
    let time = |name| setting.constants.get::<Duration>(name);
    names.into_iter().map(|(item, name)| Ok(Computed::new("E-14", item, time(name)?))).collect()
}

/// Time of a message in the protocol stack, without an adapter (Fig 3.5).
struct Stack {
    hnet: Duration,
    with_scheduler: Duration,
    slow_path: Duration,
    fragment: Duration,
    fragment_scheduler: Duration,
    size: Bytes,
}

impl Stack {
    /// The time of an unfragmented message.
    fn whole(&self, scheduler: bool) -> Duration {
        if scheduler { self.with_scheduler } else { self.hnet }
    }

    /// The time of a fragmented message: the slow path once, then each further fragment.
    fn fragmented(&self, len: Bytes, scheduler: bool) -> Duration {
        let further = len.0.div_ceil(self.size.0) - 1;
        if further == 0 {
            return self.whole(scheduler);
        }
        let each = self.fragment + if scheduler { self.fragment_scheduler } else { Duration::ZERO };
        self.whole(scheduler) + self.slow_path + each * further
    }

    fn throughput(&self, len: Bytes, scheduler: bool) -> f64 {
        len.0 as f64 / self.fragmented(len, scheduler).as_secs_f64()
    }
}

fn stack(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let stack = Stack {
        hnet: constants.get("hnet")?,
        with_scheduler: constants.get("hnet_scheduler")?,
        slow_path: constants.get("slow_path")?,
        fragment: constants.get("fragment")?,
        fragment_scheduler: constants.get("fragment_scheduler")?,
        size: constants.get("fragment_size")?,
    };
    let (switch, timer): (Duration, Duration) = (constants.get("switch")?, constants.get("timer")?);
    let cache: Duration = constants.get("scheduler_cache")?;
    let added = stack.with_scheduler - stack.hnet;
    let kib = Bytes::from_kib;
    let sizes = [2, 4, 8, 16, 32].map(kib);
    let drops = |scheduler| {
        let curve = sizes.map(|len| stack.throughput(len, scheduler));
        curve[1] < curve[0] && curve[1..].windows(2).all(|pair| pair[1] > pair[0])
    };
    let cost = |len| stack.fragmented(len, true) - stack.fragmented(len, false);
    let jump = stack.fragmented(kib(4), false) - stack.fragmented(kib(2), false);
    Ok(vec![
        row("E-31/hnet-packet", stack.whole(false)),
        row("E-31/scheduler", stack.whole(true)),
        row("E-31/scheduler-driver", added),
        row("E-31/left-queues", added.saturating_sub(cache + switch * 2 + timer)),
        row("E-31/4-kb", jump),
        row("E-31/up-2", stack.fragmented(kib(2), false) == stack.whole(false)),
        row("E-31/slow-path", jump > stack.fragment * 5),
        row("E-31/throughput", drops(false) && drops(true)),
        row("E-31/scheduler-costs", sizes.windows(2).all(|pair| cost(pair[1]) > cost(pair[0]))),
    ])
}

/// Messages of several channels at once: context switches, and when each message was done.
fn processed(
    options: Options,
    messages: impl Iterator<Item = Message>,
) -> (u64, Vec<(u64, Duration)>) {
    let mut cpu = Processor::new(options);
    messages.for_each(|message| cpu.submit(lastmeter_base::Time::START, message));
    let mut done = Vec::new();
    while let Some(now) = cpu.ready_at() {
        cpu.advance(now);
        done.extend(cpu.done().map(|(id, at)| (id, at.since_start())));
    }
    (cpu.switches(), done)
}

fn options(setting: &Setting<'_>, organisation: Organisation) -> Result<Options, Error> {
    Ok(Options {
        organisation,
        switch: setting.constants.get("switch")?,
        per_message: Duration::ZERO,
        per_packet: setting.constants.get("best_effort")?,
        granularity: setting.constants.get("granularity")?,
    })
}

fn processes(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let options = |organisation| options(setting, organisation);
    let layers = constants.get("layers")?;
    let single =
        |count: u64| (0..count).map(|id| Message { id, channel: id as u32 % 4, packets: 1 });
    let of = |organisation| Ok(processed(options(organisation)?, single(100)));
    let (by_message, _) = of(Organisation::PerMessage)?;
    let (by_protocol, _) = of(Organisation::PerProtocol(layers))?;
    let (by_channel, _) = of(Organisation::PerChannel)?;
    // A long message, and a short one of another channel just after it.
    let pair = [(0, 0, 15), (1, 1, 1)]
        .map(|(id, channel, packets)| Message { id, channel, packets })
        .into_iter();
    let handlers = options(Organisation::PerChannel)?;
    let (_, done) = processed(handlers, pair);
    let short = done.iter().find(|&&(id, _)| id == 1).map_or(Duration::ZERO, |&(_, at)| at);
    let before = (short.saturating_sub(handlers.switch * 2)).as_secs_f64()
        / handlers.per_packet.as_secs_f64()
        - 1.0;
    Ok(vec![
        row("E-12/context-switches", (by_message as f64 / 100.0, "switches")),
        row("E-12/fewer-process", by_message < by_protocol),
        row("E-80/packets-another", (before, "packets")),
        row("E-80/handlers-channels", by_channel < by_message),
    ])
}

/// §4.4.1.
fn capacity(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let number = |name| -> Result<f64, Error> { Ok(constants.get::<u64>(name)? as f64) };
    let (single, many) = (number("best_effort_single")?, number("best_effort_many")?);
    let (real_time, beside) = (number("real_time")?, number("best_effort_beside")?);
    let packet = constants.get::<Bytes>("packet_max")?.0 as f64 / 1024.0;
    let us = |seconds: f64| Value::Number(seconds * 1e6, "us");
    let kilobytes = |value| Value::Number(value, "KB/s");
    // An adapter that costs only its own processing, and a link that takes no time.
    let limit = |name| -> Result<Value, Error> {
        let mut card = Description::plain("END's processor");
        card.network.processing = constants.get(name)?;
        let outcome = run(&card, Bytes(4096), (2, 2000), Variation::None, setting.seed);
        Ok(Value::Number(1.0 / outcome.mean.as_secs_f64(), "packets/s"))
    };
    let masked = |whole, overlapped| -> Result<Duration, Error> {
        Ok(constants.get::<Duration>(whole)? - constants.get(overlapped)?)
    };
    let best_effort = 1.0 / many;
    Ok(vec![
        row("E-53/throughput", kilobytes(single * packet)),
        row("E-53/throughput-messages", kilobytes(many * packet)),
        row("E-53/cpu-cost", us(best_effort)),
        row("E-53/cpu-cost-real", us((1.0 - beside * best_effort) / real_time)),
        row("E-53/best-effort", limit("fifo")?),
        row("E-53/real-time", limit("heap")?),
        row("E-53/masked-fifo", masked("fifo", "fifo_overlapped")?),
        row("E-53/masked-heaps", masked("heap", "heap_overlapped")?),
    ])
}

/// §3.4.2.2: how FIFO threads and early messages delay other channels.
fn scheduling(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let options = |organisation| options(setting, organisation);
    // `early` messages of 4 packets arrive at once on channel 0, then a current one on channel 1.
    let waits = |organisation, early: u64, packets: u64| -> Result<f64, Error> {
        let options = options(organisation)?;
        let burst = (0..early).map(|id| Message { id, channel: 0, packets });
        let current = Message { id: early, channel: 1, packets: 1 };
        let (_, done) = processed(options, burst.chain([current]));
        let at = done.iter().find(|&&(id, _)| id == early).map_or(Duration::ZERO, |&(_, at)| at);
        // Whole packets of others: the switches sum to less than one.
        Ok((at.as_secs_f64() / options.per_packet.as_secs_f64() - 1.0).floor())
    };
    let fifo = |early, packets| waits(Organisation::PerMessage, early, packets);
    let slots: u64 = constants.get("slots")?;
    let (burst, packets) = (constants.get::<u64>("burst")?, 4);
    let wasted = (burst * packets).saturating_sub(slots);
    let number = |value| Value::Number(value, "packets");
    let lengths = [1, 4, 15].map(|packets| fifo(1, packets));
    let lengths = lengths.into_iter().collect::<Result<Vec<f64>, Error>>()?;
    Ok(vec![
        row("E-32/fifo-threads", number(fifo(1, 15)?)),
        row("E-32/fifo-threads-longer", lengths.windows(2).all(|pair| pair[1] > pair[0])),
        row("E-32/early-burst", number(wasted as f64)),
        row(
            "E-32/current-message",
            fifo(burst, packets)? >= (burst * packets) as f64
                && waits(Organisation::PerChannel, burst, packets)? < 5.0,
        ),
    ])
}

/// §4.3.3 and §4.3.6: the boards of an emulation, and the clock of its timer device.
fn platform(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let (tick, bits): (Duration, u64) = (constants.get("tick")?, constants.get("tick_bits")?);
    let watch = || Stopwatch::new(tick, bits as u32);
    // Three seconds, read this often.
    let measured = |every: Duration| {
        let mut watch = watch();
        let mut read = Duration::ZERO;
        for look in 1..=Duration::from_secs(3).as_ps() / every.as_ps() {
            read = watch.read((every * look).as_ps() / tick.as_ps());
        }
        Duration::from_secs(3).saturating_sub(read) < tick + every
    };
    // A host and an END for each node; all share one timer device.
    let boards = |nodes: u64| 2 * nodes + 1;
    let word: Duration = constants.get("vme_dma")?;
    let header: Bytes = constants.get("header")?;
    let on_bus = |len: Bytes| word * len.0.div_ceil(4);
    let (whole, head) = (on_bus(Bytes(4096)), on_bus(header));
    let left = residual(head, whole).unwrap_or_default();
    let alone = over_one_bus(1, head, left, 500);
    let keeps_up =
        |nodes: usize| over_one_bus(nodes, head, left, 500 * nodes as u64) / alone > 0.99;
    let nodes = (1..=80).take_while(|&nodes| keeps_up(nodes)).last().unwrap_or(0);
    Ok(vec![
        row("E-45", (boards(2) as f64, "boards")),
        row("E-49/resolution", tick),
        row("E-49/wraps-around", watch().wraps_after()),
        row(
            "E-49/time-right",
            measured(Duration::from_ms(400)) && !measured(Duration::from_ms(500)),
        ),
        row("E-57/nodes-bus", (nodes as f64, "nodes")),
        row("E-57/network-faster", residual(head, head / 2).is_none()),
    ])
}

fn card(name: &str) -> Result<Description, Error> {
    let failed = |message| Error::Computation { name: "end-platform", message };
    device::read(name, &Builtin).map_err(failed)
}

/// §8.2: what clocked hardware needs to implement a description.
fn hardware(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let period = |name| setting.constants.get::<Duration>(name);
    let (then, now) = (period("cycle_then")?, period("cycle_now")?);
    let cim = Needs::of(&card("cim")?, Bytes(44), then);
    let fast = Needs::of(&card("pcie4")?, setting.constants.get("shortest")?, now);
    let by_due = Needs::of(&card("disk")?, Bytes(8192), now);
    let number = Value::Number;
    let bits = |needs: &Needs| number(needs.width().unwrap_or(0) as f64, "bits");
    Ok(vec![
        row("E-130/cim-32", bits(&cim)),
        row("E-130/cim-32-mhz", number(cim.between, "cycles")),
        row("E-130/100-gbit", bits(&fast)),
        row("E-130/100-gbit-s", number(fast.between, "cycles")),
        row("E-130/control", number(fast.taken as f64, "cycles")),
        row("E-130/share-rate", number(100.0 * fast.share(), "%")),
        row("E-130/requests-disk", number(by_due.comparators as f64, "comparators")),
    ])
}

/// §5.3 and §8.2: a traffic source, the firmware skeleton, and a device that is not an adapter.
fn devices(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let (cim, disk) = (card("cim")?, card("disk")?);
    let skeleton = firmware::skeleton(&cim);
    let mut source = Adapter::default();
    source.control(Command::CreatePeriodic(Duration::from_us(500), Bytes(1024)));
    let made = source.traffic().is_some();
    source.control(Command::ClearPeriodic);
    let gone = source.traffic().is_none();
    let random = run(&disk, Bytes(8192), (1, 100), Variation::None, setting.seed).mean;
    Ok(vec![
        row(
            "E-78/stages-firmware",
            (skeleton.matches("_done(struct message *message)").count() as f64, "stages"),
        ),
        row("E-78/delay-stands", skeleton.matches("delay(message").count() == 3),
        row("E-78/command-makes", made && gone),
        row("E-129", random),
    ])
}

/// §8.2: a statistical network.
fn networks(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let mut card = Description::plain("a cable that others share");
    let (slot, collisions) = (setting.constants.get("slot")?, setting.constants.get("collisions")?);
    card.network.model = NetworkModel::Statistical { slot, collisions };
    card.network.rate = Some(setting.constants.get("cable")?);
    let len = Bytes(1250);
    let waits =
        |card: &Description| run(card, len, (1, 20_000), Variation::None, setting.seed).mean;
    let busy = waits(&card);
    card.network.model = NetworkModel::PointToPoint;
    Ok(vec![row("E-128", busy - waits(&card))])
}

/// §4.3.5 and §4.4.2.
fn limits(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let rate: Rate = constants.get("shared_network")?;
    let processing: Duration = constants.get("fifo_overlapped")?;
    let about: Duration = constants.get("packet_about")?;
    let speed_up: u64 = constants.get("speed_up")?;
    let word: Duration = constants.get("vme_dma")?;
    let header: Bytes = constants.get("header")?;
    let percent = |share: f64| Value::Number(100.0 * share, "%");
    let packet = Bytes(4096);
    let mut card = Description::plain("a shared network");
    card.network.processing = processing;
    card.network.rate = Some(rate);
    let ran = |speed_up| {
        let card = card.with_faster_processors(speed_up);
        let mean = run(&card, packet, (2, 2000), Variation::None, setting.seed).mean;
        rate.time_for(packet).as_secs_f64() / mean.as_secs_f64()
    };
    // A network as fast as the bus: 4 KB of data words, and the header's.
    let on_bus = |len: Bytes| word * len.0.div_ceil(4);
    let (whole, head) = (on_bus(packet), on_bus(header));
    let left = residual(head, whole);
    let alone = over_one_bus(1, whole, Duration::ZERO, 1000);
    let whole_of_4 = over_one_bus(4, whole, Duration::ZERO, 4000) / alone;
    let heads_of_4 = left.map_or(0.0, |left| over_one_bus(4, head, left, 4000) / alone);
    Ok(vec![
        row("E-55/eq-4_1", percent(utilisation(processing, about, 1.0))),
        row("E-55/eq-4_2", percent(utilisation(processing, about, speed_up as f64))),
        row("E-55/4-kb", percent(ran(1))),
        row("E-55/4-kb-1", percent(ran(speed_up))),
        row("E-54", left.is_some_and(|left| head + left == whole)),
        row("E-51/4-nodes", (whole_of_4 - 0.25).abs() < 0.01),
        row("E-51/4-nodes-headers", (heads_of_4 - 1.0).abs() < 0.01),
    ])
}
