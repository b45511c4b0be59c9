//! FLORB: two of them back to back under OSF/1, and as two ports of a router.

use super::super::{Computed, Setting, Value, row};
use super::{alike, bus, goodput, limit, mbit, receives, transfers, wrong};
use crate::Error;
use crate::machines::florb::{Card, Florb, Strobes};
use crate::machines::forward::{Account, Forwarder, Step};
use crate::machines::turbochannel::{Bus, Way};
use lastmeter_base::{Bytes, Duration, PerByte, Rate, Stream};
use lastmeter_lab::historic::Pair;
use lastmeter_lab::library::Builtin;
use lastmeter_ledger::plots::{Plot, Series};
use lastmeter_net::traffic::tcplib::{Application, Conversation, HEADERS, SHARES, length};

const NAME: &str = "aurora-florb";
const HOST: &str = "dec3000-400-osf1";

const PACKETS: u64 = 2_000;
/// How many of tcplib's conversations are counted.
const CONVERSATIONS: u64 = 20_000;
/// Packet sizes of the sweep.
const SIZES: [u64; 8] = [40, 64, 128, 256, 512, 1024, 2048, 4096];

struct Router {
    florb: Florb,
    bus: Bus,
    kernel: Duration,
}

impl Router {
    fn read(setting: &Setting<'_>) -> Result<Router, Error> {
        let constants = setting.constants;
        let florb = Florb {
            cycle: constants.get("cycle")?,
            block: constants.get("block")?,
            check: constants.get("check")?,
            packet: constants.get("packet_instructions")?,
        };
        let bus = bus(constants)?;
        let router = Router { florb, bus, kernel: constants.get("kernel")? };
        router.agrees()?;
        Ok(router)
    }

    /// Checks that the profile that `why` uses says the same.
    fn agrees(&self) -> Result<(), Error> {
        let pair = Pair::read(HOST, "florb", &Builtin).map_err(Error::Problems)?;
        let Florb { cycle, block, check, packet } = self.florb;
        let word = cycle.scale_ceil(block + check, block);
        let per_byte = PerByte::from_fs(word.as_ps() * 1000).scale_ceil(1, 4);
        let out = pair.adapter.send.iter().find(|added| added.stage.name == "sequence out");
        let cost = out.map(|added| added.stage.cost);
        if !cost
            .is_some_and(|cost| alike(cost.per_byte, per_byte) && cost.per_packet == cycle * packet)
        {
            return Err(wrong(NAME, "the profile florb does not have these constants".to_owned()));
        }
        Ok(())
    }

    /// From one FLORB over the host's bus to memory, through the x-kernel, and out through the other.
    fn forwarder(&self) -> Forwarder {
        let names = ["FLORB in", "TURBOchannel", "cpu", "FLORB out"];
        let (florb, bus) = (self.florb, self.bus);
        let steps = vec![
            Step::sized("sequence in", 0, move |len| florb.busy(len)),
            Step::sized("to memory", 1, move |len| bus.holds(len, Way::ToMemory)),
            Step::fixed("x-kernel", 2, self.kernel),
            Step::sized("from memory", 1, move |len| bus.holds(len, Way::FromMemory)),
            Step::sized("sequence out", 3, move |len| florb.busy(len)),
        ];
        let resources = names.map(|name| (name.to_owned(), 1)).to_vec();
        Forwarder { resources, routes: vec![steps], window: 16 }
    }

    /// The same with packets of one length.
    fn forward(&self, len: Bytes) -> Account {
        self.forwarder().run(std::iter::repeat(len), PACKETS)
    }
}

pub(in super::super) fn florb(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let router = Router::read(setting)?;
    let mut computed = vec![row("A-139/peak", router.florb.peak())];
    let mut card = Card::new(router.florb);
    card.fill(0, 1993);
    let wrapped = card.step(Strobes { read: 1, write: 0b11 });
    let both = (card.drain(0), card.drain(1)) == (Some(1993), Some(1993));
    let one_instruction = wrapped == Ok(Some(1993)) && both && card.instructions == 1;
    computed.push(row("A-139/read-written", one_instruction));
    computed.extend(back_to_back(setting)?);
    computed.extend(between_ports(setting, &router)?);
    computed.extend(wide_area(setting)?);
    Ok(computed)
}

/// Two FLORBs back to back under OSF/1.
fn back_to_back(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let packet: Bytes = setting.constants.get("packet")?;
    let ledger = transfers(setting, "transfers", (HOST, "florb"), packet)?;
    // Both ends limit equally; with one alone there is a verdict.
    let alone = receives(setting, "judged", (HOST, "florb"), packet, &[])?;
    let null = transfers(setting, "transfers", (HOST, "null-device"), packet)?;
    let card = ledger.resources.iter().find(|resource| resource.name == "receiver.florb");
    let busy = card.map_or(0.0, |card| 100.0 * card.busy);
    Ok(vec![
        row("A-140/back-back", mbit(goodput(&ledger))),
        row("A-140/florb-processor", (busy, "%")),
        row("A-140/host-protocols", limit(&alone) == "receiver.cpu"),
        row("A-141", goodput(&null) < 1.05 * goodput(&ledger)),
    ])
}

/// The x-kernel's router with a traffic mix, and with packets of one size.
fn between_ports(setting: &Setting<'_>, router: &Router) -> Result<Vec<Computed>, Error> {
    let segment = Bytes(setting.constants.get::<Bytes>("packet")?.0 - HEADERS.0);
    let mixing = |router: &Router| {
        let mut stream = Stream::new(setting.seed, NAME);
        let packets = std::iter::repeat_with(|| length(segment, &mut stream));
        router.forwarder().run(packets, PACKETS)
    };
    let mixed = mixing(router);
    let granted = Router { bus: Bus { write: 0, read: 0, ..router.bus }, ..*router };
    let sweep: Vec<Account> = SIZES.map(|size| router.forward(Bytes(size))).to_vec();
    let florb = |account: &Account| account.share("FLORB in").max(account.share("FLORB out"));
    let rises = sweep.windows(2).all(|pair| pair[1].rate > pair[0].rate);
    let never =
        sweep.iter().all(|account| florb(account) < 0.95 && !account.limit().starts_with("FLORB"));
    Ok(vec![
        row("A-142/router-mix", mbit(mixed.rate)),
        row("A-142/turbochannel", mbit(mixing(&granted).rate)),
        row("A-142/florbs-processors", (100.0 * florb(&mixed), "%")),
        row("A-143", mixed.limit() == "TURBOchannel"),
        row("A-144/packets-cost", never),
        row("A-144/throughput", rises),
        row("A-144/very-small", sweep[1].rate < 0.5 * mixed.rate),
    ])
}

/// Throughput of the router and utilisation of its parts, by packet length.
pub(in super::super) fn plots(setting: &Setting<'_>) -> Result<Vec<Plot>, Error> {
    let router = Router::read(setting)?;
    let granted = Router { bus: Bus { write: 0, read: 0, ..router.bus }, ..router };
    let sweep = |router: &Router| SIZES.map(|size| (size, router.forward(Bytes(size))));
    let (real, ideal) = (sweep(&router), sweep(&granted));
    let curve = |name: &str, accounts: &[(u64, Account)], value: &dyn Fn(&Account) -> f64| {
        let point = |(size, account): &(u64, Account)| (*size as f64, value(account));
        Series { name: name.to_owned(), points: accounts.iter().map(point).collect() }
    };
    let plot = |title: &str, caption: &str, y: &str, series: Vec<Series>| {
        Plot::new(title, caption, ("bytes of a packet", y), series)
    };
    let megabits = |account: &Account| account.rate / 1e6;
    let share = |name: &'static str| move |account: &Account| 100.0 * account.share(name);
    Ok(vec![
        plot(
            "ANA §3.9: the router by packet length",
            "Every word crosses TURBOchannel twice. The more often a burst arbitrates for the bus, \
             the less is left; below 200 bytes the x-kernel takes longer than the bus.",
            "Mbit/s",
            vec![
                curve("as modelled", &real, &megabits),
                curve("if TURBOchannel were granted at once", &ideal, &megabits),
            ],
        ),
        plot(
            "ANA §3.9: what limits it",
            "FLORB's processors never do.",
            "% in use",
            vec![
                curve("TURBOchannel", &real, &share("TURBOchannel")),
                curve("FLORB, in", &real, &share("FLORB in")),
                curve("x-kernel", &real, &share("cpu")),
            ],
        ),
    ])
}

/// Packet statistics of whole conversations from tcplib.
fn wide_area(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let segment: Bytes = setting.constants.get("wide_area_segment")?;
    if SHARES[0] != (Application::Telnet, setting.constants.get("telnet_share")?) {
        return Err(wrong(NAME, "`telnet_share` is not what the traffic kind has".to_owned()));
    }
    let mut stream = Stream::new(setting.seed, NAME);
    // Counts of packets, bytes, packets of fewer than ten bytes (typed), and bulk data packets.
    let mut seen = [[0u64; 3]; 2];
    for _ in 0..CONVERSATIONS {
        let mut conversation = Conversation::begin(&mut stream);
        let of = usize::from(conversation.application != Application::Telnet);
        let rate = Rate::from_mbit(10);
        while let Some((_, data)) = conversation.packet(segment, rate, &mut stream) {
            seen[of][0] += 1;
            seen[of][1] += (data + HEADERS).0;
            seen[of][2] += u64::from(data < Bytes(10));
        }
    }
    let percent = |part: u64, all: u64| Value::Number(100.0 * part as f64 / all as f64, "%");
    let [typed, bulk] = seen;
    Ok(vec![
        row("A-145/packets-bulk", percent(bulk[0], bulk[0] + typed[0])),
        row("A-145/bytes-bulk", percent(bulk[1], bulk[1] + typed[1])),
        row("A-145/interactive", percent(typed[2], typed[0])),
    ])
}
