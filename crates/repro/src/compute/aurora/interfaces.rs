//! VuNet's host interfaces: Table 1, the receive chain, the
//! losses from late interrupts and deaf interfaces, and the gain of one copy less.

use super::super::{Computed, Setting, Value, row, together};
use super::{alike, busiest, goodput, limit, mbit, receives, transfers, wrong};
use crate::Error;
use crate::machines::virtual_buffer::{Attachment, Bursts, Counts, Options, Windows, offer};
use crate::sweep::formula::Val;
use lastmeter_base::{Bytes, Draw, Duration, PerByte, Rate, Stream};
use lastmeter_lab::historic::Pair;
use lastmeter_lab::library::Builtin;
use lastmeter_ledger::Ledger;
use lastmeter_ledger::plots::{Plot, Series};

const NAME: &str = "aurora-host-interfaces";
/// The host of Table 1's last row.
const LAST: (&str, &str) = ("dec3000-800", "vudboard");

/// Payload of a cell.
const DATA: u64 = 48;
/// Payload of a transmitted page: 128 cells.
const PAGE: Bytes = Bytes(128 * DATA);
/// Table 1: host, adapter, column.
const TABLE_1: [(&str, &str, &str); 6] = [
    ("dec5000-200", "vupboard", "DEC 5000/200, PIO"),
    ("dec5000-200", "vudboard-first-driver", "DEC 5000/200, DMA"),
    ("dec3000-400", "vupboard", "DEC 3000/400, PIO"),
    ("dec3000-400", "vudboard-first-driver", "DEC 3000/400, DMA"),
    ("dec3000-400", "vudboard", "DEC 3000/400, DMA with improved driver"),
    ("dec3000-800", "vudboard", "DEC 3000/800, DMA with improved driver"),
];

pub(in super::super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    agrees(setting)?;
    together(
        setting,
        &[
            clocks,
            table_1,
            transmission,
            reception,
            buffers,
            interrupts,
            super::functions::rows,
            super::boards::rows,
        ],
    )
}

/// Checks that the profile's page times give the published rate of many pages.
fn agrees(setting: &Setting<'_>) -> Result<(), Error> {
    let pair = Pair::read("dec3000-400", "vudboard-first-driver", &Builtin);
    let Pair { adapter, .. } = pair.map_err(Error::Problems)?;
    // Moving a page and serving its interrupt take all of its time at that rate.
    let pages = adapter.send.iter().filter(|added| added.stage.resource == "transmit-page");
    let pages = pages.map(|added| added.stage.cost.per_byte.as_fs()).sum();
    let many: Rate = setting.constants.get("many_pages")?;
    let wanted = PerByte::from_fs(many.time_for(PAGE).as_ps() * 1000 / PAGE.0);
    match alike(PerByte::from_fs(pages), wanted) {
        true => Ok(()),
        false => Err(wrong(NAME, "`many_pages` is not what the profile has")),
    }
}

fn clocks(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let hosts = [
        ("DEC 5000/200", "clock_5000_200"),
        ("DEC 5000/240", "clock_5000_240"),
        ("DEC 3000/400", "clock_3000_400"),
        ("DEC 3000/800", "clock_3000_800"),
    ];
    let clock = |(host, constant): (&str, &str)| {
        let value = Value::Number(setting.constants.get::<u64>(constant)? as f64, "MHz");
        Ok(Computed::new("A-91", host, value))
    };
    hosts.into_iter().map(clock).collect()
}

fn received(setting: &Setting<'_>, host: (&str, &str), burst: Bytes) -> Result<f64, Error> {
    let packet = if host.1 == "vupboard" { burst } else { PAGE };
    // The slowest host takes half a millisecond per packet.
    let seconds: Val = 4_u64.into();
    Ok(goodput(&receives(setting, "receives", host, packet, &[("length", seconds)])?))
}

fn table_1(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let burst: Bytes = setting.constants.get("burst")?;
    let mut rates = Vec::new();
    for (host, adapter, item) in TABLE_1 {
        rates.push((item, received(setting, (host, adapter), burst)?));
    }
    let mut computed: Vec<Computed> =
        rates.iter().map(|&(item, rate)| Computed::new("A-95", item, mbit(rate))).collect();
    computed.push(row("A-92/vupboard-dec", mbit(rates[0].1)));
    computed.push(row("A-92/vupboard-dec-3000", mbit(rates[2].1)));
    let rises = |of: &[usize]| of.windows(2).all(|pair| rates[pair[0]].1 < rates[pair[1]].1);
    computed.push(row("A-95/step-faster", rises(&[0, 1, 3, 4, 5])));
    computed.push(row("A-95/first-interface", {
        let gain = |slow: usize, fast: usize| rates[fast].1 / rates[slow].1;
        gain(0, 2) < gain(1, 3)
    }));
    Ok(computed)
}

/// Transmission by pages.
fn transmission(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let pair = Pair::read(LAST.0, LAST.1, &Builtin).map_err(Error::Problems)?;
    let page = pair.adapter.send.iter().find(|added| added.stage.name == "page by DMA");
    let moved = page.map_or(Duration::ZERO, |page| page.stage.cost.per_byte.time_for(PAGE));
    // On the bus, a cell's 48 bytes are 64.
    let peak = (PAGE.0 / DATA * 64 * 8) as f64 / moved.as_secs_f64();
    let run = |run: &str| transfers(setting, run, LAST, PAGE);
    let many = run("transfers")?;
    let judged = run("judged_transfers")?;
    let without = run("without_interrupt")?;
    Ok(vec![
        row("A-93/transmission", mbit(peak)),
        row("A-93/transmission-many", mbit(goodput(&many))),
        row("A-93/interrupt", limit(&judged) == "sender.transmit-page"),
        row("A-93/host-processing", busiest(&without).ends_with(".copy")),
        row("A-93/sent", {
            let what_if = what_if(&judged, "sender interrupt for the page at no cost");
            what_if > 0.3 && goodput(&without) > 1.3 * goodput(&many)
        }),
    ])
}

fn what_if(ledger: &Ledger, change: &str) -> f64 {
    let found = ledger.what_ifs.iter().find(|what_if| what_if.change == change);
    found.map_or(0.0, |what_if| what_if.gain)
}

/// Reception: the chain of §4.2.2, copies, and the bottleneck.
fn reception(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let [raw, bus] = [constants.get::<Bytes>("cell")?, constants.get::<Bytes>("cell_on_bus")?];
    let delivered = received(setting, LAST, PAGE)?;
    let run =
        |run: &str, host: (&str, &str), packet: Bytes| receives(setting, run, host, packet, &[]);
    let ledger = run("judged_receives", LAST, PAGE)?;
    let per_cell = |bytes: Bytes| mbit(delivered * bytes.0 as f64 / DATA as f64);
    let stages = &ledger.paths[0].stages;
    let copies: u32 = stages.iter().filter_map(|stage| stage.copies).sum();
    let order = ["cells by DMA", "reassemble", "deliver"];
    let names: Vec<&str> =
        stages.iter().filter_map(|stage| stage.name.strip_prefix("receiver ")).collect();
    let in_order = order.iter().all(|stage| names.contains(stage));
    let (sar, copy) = (
        what_if(&ledger, "receiver reassemble at no cost"),
        what_if(&ledger, "receiver deliver at no cost"),
    );
    // Osiris in the same host, with segmentation in hardware.
    let hardware = run("receives", ("dec3000-800", "osiris"), PAGE)?;
    // The same board and driver, with an interrupt per burst instead of polling.
    let burst: Bytes = constants.get("burst")?;
    let polled = run("receives", LAST, burst)?;
    let interrupted = run("interrupted", LAST, burst)?;
    let pio = run("receives", ("dec5000-240", "vup1"), PAGE)?;
    let reads = pio.resources.iter().find(|resource| resource.name == "receiver.bus-read");
    let most = |resource: &lastmeter_ledger::Resource| {
        pio.resources.iter().filter(|r| r.kind == "bus").all(|other| other.busy <= resource.busy)
    };
    Ok(vec![
        row("A-94/delivered", mbit(delivered)),
        row("A-94/raw-atm", per_cell(raw)),
        row("A-94/bus-64", per_cell(bus)),
        row("A-94/sustained", per_cell(bus)),
        row("A-94/host-processing", limit(&ledger) == "receiver.copy"),
        row("A-66", (f64::from(copies), "copies")),
        row("A-64", in_order),
        row("A-31", goodput(&polled) > 1.2 * goodput(&interrupted)),
        row("A-124/hardware-segmentation", sar > 0.3),
        row("A-124/copy-less", (copy / sar - 1.0).abs() < 0.1),
        row("A-124/osiris-host", goodput(&hardware) > 1.3 * delivered),
        row("A-116", reads.is_some_and(most)),
    ])
}

/// A burst at the bus's rate, at the host of Table 1's last row.
struct Bench {
    options: Options,
    gap: Duration,
    seed: u64,
}

impl Bench {
    fn read(setting: &Setting<'_>) -> Result<Bench, Error> {
        let constants = setting.constants;
        let peak: Rate = constants.get("bus_peak")?;
        let copy: PerByte = constants.get("copy_3000_800")?;
        let transfer = peak.time_for(constants.get("cell_on_bus")?);
        let options = Options {
            port: constants.get("port")?,
            host: constants.get::<Bytes>("kernel_buffer")?.0 / 64,
            attachment: Attachment::Memory { deaf: Windows::ALWAYS },
            transfer,
            process: copy.scale_ceil(2, 1).time_for(Bytes(DATA)),
            slices: Windows::ALWAYS,
        };
        Ok(Bench { options, gap: transfer, seed: setting.seed })
    }

    fn offer(&self, options: Options, bursts: Bursts, count: u64) -> Counts {
        offer(options, bursts, count, Stream::new(self.seed, NAME))
    }
}

/// Bursts, deafness and time slices.
fn buffers(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let bench = Bench::read(setting)?;
    let burst: Bytes = constants.get("peak_burst")?;
    let link: Rate = constants.get("link")?;
    let Bench { options, gap, .. } = &bench;
    // A cell is 64 bytes on the bus.
    let cells = burst.0 / 64;
    let one = Bursts { cells, gap: *gap, period: Duration::from_secs(1) };
    let lost = |options: &Options, bursts, count| bench.offer(options.clone(), bursts, count).lost;
    let endless = Bursts { cells: 100 * cells, ..one };
    // How long may the interface be deaf, if cells arrive at the link's rate?
    let at_link =
        Bursts { cells: 2000, gap: link.time_for(Bytes(56)), period: gap.scale_ceil(8000, 1) };
    let deaf = |time: Duration| {
        let deaf = Windows { period: at_link.period, closed: time };
        // A host that accepts everything: only deafness loses cells.
        let (host, transfer) = (u64::MAX, at_link.gap);
        let options =
            Options { host, transfer, attachment: Attachment::Memory { deaf }, ..options.clone() };
        lost(&options, at_link, 3) == 0
    };
    let (mut low, mut high) = (Duration::ZERO, at_link.period);
    while (high - low).as_ps() > 1_000_000 {
        let middle = Duration::from_ps((low.as_ps() + high.as_ps()) / 2);
        if deaf(middle) { low = middle } else { high = middle }
    }
    let instruction = Duration::from_ps(1_000_000 / constants.get::<u64>("clock_3000_800")?);
    let tens = instruction * constants.get::<u64>("deaf_instructions")?;
    let slices = Windows {
        period: constants.get("time_slices")?,
        closed: constants.get::<Duration>("time_slices")?.scale_ceil(1, 2),
    };
    // Half of the processor's capacity: the application's share of the time slices.
    let slow = Bursts {
        cells: 20_000,
        gap: options.process.scale_ceil(5, 2),
        period: Duration::from_secs(1),
    };
    let sliced = |attachment: Attachment| {
        let host = u64::MAX;
        lost(&Options { host, slices, attachment, ..options.clone() }, slow, 1)
    };
    let whole = Options { attachment: Attachment::Registers, ..options.clone() };
    Ok(vec![
        row("A-94/burst-512", lost(options, one, 1) == 0),
        row("A-94/232-mbit", lost(options, endless, 1) > 0),
        row("A-65/longest-interface", low),
        row("A-65/tens-instructions", deaf(tens)),
        row("A-115", {
            let counts = bench.offer(options.clone(), one, 1);
            counts.lost == 0 && counts.most > options.port
        }),
        row("A-126/registers", sliced(Attachment::Registers) > slow.cells / 10),
        row("A-126/memory-absorbs", sliced(Attachment::Memory { deaf: Windows::ALWAYS }) == 0),
        row("A-126/task-alone", lost(&whole, slow, 1) == 0),
    ])
}

/// Losses from late interrupts, and remedies.
fn interrupts(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let bench = Bench::read(setting)?;
    let read: Duration = constants.get("vup_cell")?;
    let prompt: Duration = constants.get("interrupt_5000_200")?;
    let late: Duration = constants.get("late_interrupt")?;
    let (one_in, hundred) = (constants.get::<u64>("late_share")?, 100.0);
    let copy: PerByte = constants.get("copy_5000_200")?;
    let process = copy.scale_ceil(4, 1).time_for(Bytes(DATA));
    // Scan lines at the pace of a 640 x 480 frame per 250 ms, for a tenth of a second.
    let interburst: Duration = constants.get("interburst")?;
    let bursts = Bursts { cells: 14, gap: Duration::from_us(1), period: interburst };
    let count = 5000;
    let run = |attachment: Attachment, transfer: Duration| {
        let host = u64::MAX;
        let options = Options { host, transfer, process, attachment, ..bench.options.clone() };
        bench.offer(options, bursts, count).lost
    };
    let share = 1.0 - one_in as f64 / hundred;
    let sometimes_late = || Attachment::Interrupt { latency: Draw::Either(share, prompt, late) };
    let lost = run(sometimes_late(), read);
    Ok(vec![
        row("A-92/late-interrupts", lost > 0),
        row("A-92/reads-twice", run(sometimes_late(), read.scale_ceil(1, 2)) > 0),
        row(
            "A-92/prompt-interrupts",
            run(Attachment::Interrupt { latency: Draw::Constant(prompt) }, read) == 0,
        ),
        row("A-125", run(Attachment::Memory { deaf: Windows::ALWAYS }, bench.gap) == 0),
    ])
}

/// The chain of reception of §4.2.2, from the bus to the application.
pub(in super::super) fn plots(setting: &Setting<'_>) -> Result<Vec<Plot>, Error> {
    let constants = setting.constants;
    let [raw, bus] = [constants.get::<Bytes>("cell")?, constants.get::<Bytes>("cell_on_bus")?];
    let peak: Rate = constants.get("bus_peak")?;
    let delivered = received(setting, LAST, PAGE)? / 1e6;
    let of_cell = |bytes: Bytes| delivered * bytes.0 as f64 / DATA as f64;
    let links = [
        ("burst", peak.as_bits() as f64 / 1e6, 232.0),
        ("bus", of_cell(bus), 134.0),
        ("sustained", of_cell(bus), 131.0),
        ("raw cells", of_cell(raw), 111.0),
        ("delivered", delivered, 100.7),
    ];
    let series = |name: &str, value: fn(&(&str, f64, f64)) -> f64| Series {
        name: name.to_owned(),
        points: links
            .iter()
            .enumerate()
            .flat_map(|(at, link)| [at, at + 1].map(|end| (end as f64, value(link))))
            .collect(),
    };
    Ok(vec![
        Plot::new(
            "§4.2.2: from the bus to the application",
            "The burst rate on the bus; the sustained rate on the bus, 64 bytes per cell, while \
             the application receives at its maximum; the rate in cells of 53 bytes; and in their \
             payload. The burst rate is given, the delivered rate was fitted, and 134 and 111 \
             follow from the lengths of a cell. The document has 131 and 134 for one bus.",
            ("from the bus to the application", "Mbit/s"),
            vec![series("ours", |link| link.1), series("published", |link| link.2)],
        )
        .marked(
            links
                .iter()
                .enumerate()
                .map(|(at, link)| (at as f64 + 0.5, link.0.to_owned()))
                .collect(),
        ),
    ])
}
