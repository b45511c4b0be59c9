//! ATOMIC-2's services: gateways with and without peer DMA (Fig 8), the file server (Fig 11), and video with and
//! without compression (N-58 to N-62, N-71, N-78 to N-82).

use super::atomic::{ATOMIC, LARGEST, SAME, SMALL, TCP, mbit, percent, rate};
use super::{Computed, Setting, Value, row, together};
use crate::Error;
use crate::machines::forward::{Account, Forwarder, Step};
use crate::machines::switch::cells::{mesh, proven};
use lastmeter_base::{Bytes, Duration, PerByte, Rate};
use lastmeter_host::profile::StageProfile;
use lastmeter_lab::historic::Pair;
use lastmeter_lab::library::Builtin;
use lastmeter_ledger::plots::{Plot, Series};
use lastmeter_wire::aal::encapsulation::{Llc, Multiplexed};
use std::collections::{BTreeMap, BTreeSet};

/// The second gateway, and the adapters in it.
const PC: &str = "pentium-pro-200";
const CARDS: [&str; 2] = ["myrinet-pci", "adaptec-oc3c"];
/// What fast Ethernet carries.
const FAST_ETHERNET: f64 = 100e6;
/// Packets and frames of a run: all are alike, so few are enough.
const COUNT: u64 = 200;

fn failed(message: &str) -> Error {
    Error::Computation { name: "atomic2-services", message: message.to_owned() }
}

/// Figs 8 and 11, and nv's video.
pub(super) fn services(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    together(setting, &[gateway, regional, file_server, video])
}

/// A gateway whose processor stalls on its bus, and forwards one packet after another.
struct Gateway {
    /// Bus time per byte.
    bus: PerByte,
    /// Driver and IP, per packet.
    forward: Duration,
    /// Bus crossings of a packet; with peer DMA, only the header's bytes go to the host.
    crossings: u32,
    header: Bytes,
}

impl Gateway {
    /// The second gateway, from its profile and its adapter's.
    fn of(host: &str, adapter: &str, header: Bytes) -> Result<Gateway, Error> {
        let pair = Pair::read(host, adapter, &Builtin).map_err(Error::Problems)?;
        let whole = pair.host.with(&pair.adapter);
        let stages = || whole.receive.iter().chain(&whole.send);
        let crosses =
            |stage: &StageProfile| stage.buses.iter().map(|&(_, times)| times).sum::<u32>();
        let bus = whole.resources.iter().find(|one| one.name == "pci");
        Ok(Gateway {
            bus: bus.ok_or_else(|| failed("the profile has no bus"))?.per_byte,
            forward: stages().map(|stage| stage.cost.per_packet).sum(),
            crossings: stages().map(crosses).sum(),
            header,
        })
    }

    /// Forwards packets of one length at saturation.
    fn run(&self, len: Bytes, peer: bool) -> Account {
        let (bus, header) = (self.bus, self.header);
        let crossing = move |len: Bytes| bus.time_for(len);
        let mut route = vec![Step::fixed("forward", 0, self.forward)];
        for at in 0..self.crossings {
            route.push(match peer && at > 0 {
                // The packet goes from card to card; the processor sees only the header.
                true => Step::sized("bus", 1, move |_| bus.time_for(header)),
                false => Step::sized("bus", 1, crossing),
            });
        }
        let resources = vec![("processor".to_owned(), 1), ("bus".to_owned(), 1)];
        let forwarder = Forwarder { resources, routes: vec![route], window: 1 };
        forwarder.run(std::iter::repeat(len), COUNT)
    }
}

fn gateway(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let packet: Bytes = constants.get("packet")?;
    let header: Bytes = constants.get("header")?;
    let pc = Gateway::of(PC, CARDS[0], header)?;
    if pc.forward != constants.get("forward")? {
        return Err(failed("the profile's stages do not take `forward` together"));
    }
    let atm = Gateway::of(PC, CARDS[1], header)?;
    let sun = Gateway {
        bus: constants.get("sbus")?,
        forward: constants.get("sbus_forward")?,
        crossings: 1,
        header,
    };
    let gain = |len: Bytes| pc.run(len, true).rate / pc.run(len, false).rate - 1.0;
    let first = sun.run(packet, false);
    let share = first.share("processor");
    let faster = |gateway: &Gateway| gateway.run(packet, false).rate > first.rate * (1.0 + SAME);
    let each_brings = faster(&Gateway { forward: sun.forward * 10 / 11, ..sun })
        && faster(&Gateway { bus: PerByte::from_fs(sun.bus.as_fs() * 10 / 11), ..sun });
    let (before, after) = (pc.run(packet, false), pc.run(packet, true));
    // How long the bus was busy for each packet, by how long one crossing takes.
    let crossing = pc.bus.time_for(packet).as_secs_f64();
    let crossings = after.share("bus") / after.packets / crossing;
    Ok(vec![
        row("N-58/first-gateway", mbit(first.rate)),
        row("N-58/single-bus", (0.25..0.75).contains(&share)),
        row("N-58/faster-bus", each_brings),
        row("N-58/first-gateway-fills", first.rate > FAST_ETHERNET),
        row("N-59", before.rate > first.rate * (1.0 + SAME)),
        row("N-60", atm.run(packet, false).rate > 155e6),
        row("N-61/crossings", (crossings, "crossings")),
        // What does not go from card to card goes into the host's memory.
        row("N-61/peer-dma", crossings - 1.0 < SAME),
        row("N-62/gain-peer", percent(gain(packet))),
        row("N-62/gain-peer-dma", percent(gain(packet))),
        row("N-62/gain-peer-dma-text", percent(gain(packet))),
        row("N-62/best", mbit(after.rate)),
        row("N-62/bus", percent(1.0 - crossings / f64::from(pc.crossings))),
        row("N-62/second-gateway", mbit(before.rate)),
        row("N-62/second-gateway-peer", mbit(after.rate)),
        row("N-62/peer-dma", gain(SMALL[1]) < gain(packet)),
    ])
}

/// Whether two ends of a circuit interoperate, by how each encapsulates a packet.
fn understood(sender: usize, receiver: usize, packet: &[u8]) -> bool {
    let mut pdu = Vec::new();
    match sender {
        0 => Llc::IPV4.emit(&mut pdu),
        1 => Llc::Bridged { fcs: false }.emit(&mut pdu),
        2 => Multiplexed::Routed.emit(&mut pdu),
        _ => Multiplexed::Bridged.emit(&mut pdu),
    }
    pdu.extend(packet);
    let taken = match receiver {
        0 => Llc::parse(&pdu).ok().filter(|(llc, _)| *llc == Llc::IPV4).map(|(_, rest)| rest),
        1 => Llc::parse(&pdu)
            .ok()
            .filter(|(llc, _)| *llc == Llc::Bridged { fcs: false })
            .map(|(_, rest)| rest),
        2 => Multiplexed::Routed.parse(&pdu).ok(),
        _ => Multiplexed::Bridged.parse(&pdu).ok(),
    };
    taken == Some(packet)
}

/// The circuits of the regional testbed, and what both ends must agree on (N-56, N-57).
fn regional(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let sites = setting.constants.get::<u64>("sites")? as usize;
    // Half of the sites on each of the two carriers' switches, which one link joins.
    let (scan, arc) = (sites, sites + 1);
    let mut links: Vec<(usize, usize)> =
        (0..sites).map(|site| (site, if site % 2 == 0 { scan } else { arc })).collect();
    links.push((scan, arc));
    let wrong = |message: String| failed(&message);
    let plan = mesh(sites, &links).map_err(wrong)?;
    let proven = proven(&plan, sites + 2).map_err(wrong)?;
    // A subnet of four addresses for each pair of sites, and a name for each end.
    let mut names = BTreeMap::new();
    for (pair, circuit) in plan.iter().filter(|circuit| circuit.from < circuit.to).enumerate() {
        for (end, (here, there)) in
            [(circuit.from, circuit.to), (circuit.to, circuit.from)].into_iter().enumerate()
        {
            let address = 0x0a00_0000 + pair as u32 * 4 + 1 + end as u32;
            names.insert(format!("site{there}.site{here}.scan.net"), address);
        }
    }
    let addresses: BTreeSet<u32> = names.values().copied().collect();
    let plan_holds = names.len() == plan.len()
        && addresses.len() == names.len()
        && addresses.iter().all(|address| ![0, 3].contains(&(address % 4)));
    // Bytes with which no encapsulation's header begins.
    let packet = [0x45; 40];
    let matrix = (0..4).flat_map(|sender| (0..4).map(move |receiver| (sender, receiver)));
    let working =
        matrix.filter(|&(sender, receiver)| understood(sender, receiver, &packet)).count();
    Ok(vec![
        row("N-56/circuits-pairs", (plan.len() as f64, "circuits")),
        row("N-56/cell-comes", proven),
        row("N-56/address-name", plan_holds),
        row("N-57", (working as f64, "of 16")),
    ])
}

struct Files<'a> {
    setting: &'a Setting<'a>,
    rpc: Duration,
    switch: Duration,
    disk: Duration,
    start: Duration,
}

impl<'a> Files<'a> {
    fn of(setting: &'a Setting<'a>) -> Result<Files<'a>, Error> {
        let time = |name: &str| setting.constants.get::<Duration>(name);
        let more = |name: &str| setting.constants.get::<u64>(name).map(|gain| 100 + gain);
        let (rpc, start) = (time("rpc")?, time("start")?);
        // Derived from both gains: the time a biod adds, and a disk that leaves the published gain.
        let biod = rpc.scale_ceil(more("gain_protocol")?, 100);
        let disk = biod.scale_ceil(100, more("gain_disk")?);
        Ok(Files { setting, rpc, switch: biod - rpc, disk, start })
    }

    /// Write throughput in bits per second, with this window and these times per write at client and server.
    fn writes(&self, client: Duration, server: Duration, window: u64) -> Result<f64, Error> {
        let given = [
            ("client", client.as_secs_f64().into()),
            ("server", server.as_secs_f64().into()),
            ("window", window.into()),
        ];
        Ok(self.setting.ledger("writes", &given)?.paths[0].totals.goodput)
    }

    /// Block daemons with one outstanding request each, against this server.
    fn biods(&self, count: u64, server: Duration) -> Result<f64, Error> {
        self.writes(self.rpc + self.switch, server, count)
    }

    fn pipelined(&self, server: Duration) -> Result<f64, Error> {
        self.writes(self.rpc, server, 16)
    }

    /// Throughput of a whole file in bits per second, if its blocks go at `rate` and the file costs `start`.
    fn file(&self, len: Bytes, rate: f64) -> f64 {
        let bits = len.0 as f64 * 8.0;
        bits / (self.start.as_secs_f64() + bits / rate)
    }
}

fn file_server(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let files = Files::of(setting)?;
    let slow: Duration = setting.constants.get("slow_disk")?;
    let (one, four, many) = (
        files.biods(1, Duration::ZERO)?,
        files.biods(4, Duration::ZERO)?,
        files.biods(16, Duration::ZERO)?,
    );
    let protocol = files.pipelined(Duration::ZERO)? / four - 1.0;
    let (old, new) = (files.biods(4, files.disk)?, files.pipelined(files.disk)?);
    let on_disk = files.pipelined(slow)? / files.biods(4, slow)? - 1.0;
    let hundred = Bytes::from_kib(100);
    let gain = |len| files.file(len, new) / files.file(len, old) - 1.0;
    let (whole, small) = (new / old - 1.0, gain(hundred));
    // Supercomputer files; an everyday file should gain "much" of what these gain.
    let bulk = [10, 100].map(|mib| gain(Bytes::from_mib(mib)));
    let tcp = tcp_file(setting)?;
    let little = Bytes::from_kib(8);
    Ok(vec![
        row("N-78", on_disk < whole / 3.0),
        row("N-79", one < four * 0.9),
        row("N-80/gain-pipelined", percent(protocol)),
        row("N-80/gain-pipelined-rpc", percent(whole)),
        row("N-44", bulk.into_iter().all(|bulk| small > bulk / 3.0 && small < bulk)),
        row("N-81/gain-files", small > whole / 3.0),
        row("N-81/small-files", tcp(little) > files.file(little, new).max(files.file(little, old))),
        row("N-82", (many / four - 1.0).abs() < SAME),
    ])
}

/// Throughput in bits per second of a file over a TCP connection of its own.
fn tcp_file(setting: &Setting<'_>) -> Result<impl Fn(Bytes) -> f64, Error> {
    let connect: Duration = setting.constants.get("connect")?;
    let rate = rate(setting, "transfer", (TCP, ATOMIC), LARGEST, &[])?;
    Ok(move |len: Bytes| {
        let bits = len.0 as f64 * 8.0;
        bits / (connect.as_secs_f64() + bits / rate)
    })
}

/// nv on one processor: grabs a frame, optionally compresses it, and sends it in packets.
struct Video {
    grab: Duration,
    compress: Duration,
    packet: Duration,
    per_byte: PerByte,
    frame: Bytes,
}

impl Video {
    fn of(setting: &Setting<'_>) -> Result<Video, Error> {
        let constants = setting.constants;
        let second = |name: &str| constants.get::<u64>(name);
        let (raw, compressed) = (second("raw_frames")?, second("compressed_frames")?);
        let rate: Rate = constants.get("raw_rate")?;
        let none = Video {
            grab: Duration::ZERO,
            compress: Duration::ZERO,
            packet: constants.get("udp_packet")?,
            per_byte: constants.get("send_byte")?,
            frame: Bytes(rate.as_bits() / 8 / raw),
        };
        // Grabbing and compressing get what sending leaves of a frame's time.
        let left = |frames: u64, sending: Duration| Duration::from_secs(1) / frames - sending;
        let grab = left(raw, none.send(none.frame, LARGEST));
        let small = Bytes(none.frame.0 / second("ratio")?);
        let compress = left(compressed, grab + none.send(small, SMALL[1]));
        Ok(Video { grab, compress, ..none })
    }

    /// The time to send `len` in packets.
    fn send(&self, len: Bytes, packet: Bytes) -> Duration {
        self.packet * len.0.div_ceil(packet.0) + self.per_byte.time_for(len)
    }

    /// Frame rate, and which step dominates the processor.
    fn run(&self, compressed: Option<u64>, packet: Bytes) -> Account {
        let len = Bytes(self.frame.0 / compressed.unwrap_or(1));
        let mut route = vec![Step::fixed("grab", 0, self.grab)];
        if compressed.is_some() {
            route.push(Step::fixed("compress", 0, self.compress));
        }
        route.push(Step::fixed("send", 0, self.send(len, packet)));
        let resources = vec![("processor".to_owned(), 1)];
        let forwarder = Forwarder { resources, routes: vec![route], window: 1 };
        forwarder.run(std::iter::repeat(len), COUNT)
    }
}

/// Compressed and raw video (N-71).
fn video(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let video = Video::of(setting)?;
    let ratio: u64 = setting.constants.get("ratio")?;
    let (usual, raw) = (video.run(Some(ratio), SMALL[1]), video.run(None, LARGEST));
    let wide = video.run(None, SMALL[1]);
    let fps = |account: &Account| Value::Number(account.packets, "frames/s");
    let compressing = usual.step("compress") > usual.step("grab").max(usual.step("send"));
    let sending = wide.step("send") > wide.step("grab");
    let by_packet: Vec<f64> =
        [512, 1024, 2048, 4096, 8192].map(|len| video.run(None, Bytes(len)).packets).into();
    Ok(vec![
        row("N-71/compressed", fps(&usual)),
        row("N-71/compressed-rate", mbit(usual.rate)),
        row("N-71/raw-packets", fps(&raw)),
        row("N-71/raw-rate", mbit(raw.rate)),
        row("N-71/raw-packets-512", wide.packets < 1.25 * usual.packets),
        row("N-71/raw-frames", by_packet.windows(2).all(|pair| pair[1] > pair[0] * (1.0 + SAME))),
        row("N-71/compression", compressing),
        row("N-71/small-packets", sending),
    ])
}

/// Figs 8 and 11, and video rate by packet size.
pub(super) fn plots(setting: &Setting<'_>) -> Result<Vec<Plot>, Error> {
    let pc = Gateway::of(PC, CARDS[0], setting.constants.get("header")?)?;
    let sizes: Vec<Bytes> =
        [64, 256, 512, 1024, 1460, 2048, 3072, 4096, 6144, 8192].map(Bytes).into();
    let series = |name: &str, of: &dyn Fn(Bytes) -> f64| {
        let points = sizes.iter().map(|&size| (size.0 as f64 / 1024.0, of(size)));
        Series { name: name.to_owned(), points: points.collect() }
    };
    let files = Files::of(setting)?;
    let (old, new) = (files.biods(4, files.disk)?, files.pipelined(files.disk)?);
    let tcp = tcp_file(setting)?;
    let lengths: Vec<Bytes> =
        [4, 8, 16, 32, 64, 100, 200, 400, 700, 1000].map(Bytes::from_kib).into();
    let by_file = |name: &str, of: &dyn Fn(Bytes) -> f64| {
        let points = lengths.iter().map(|&len| (len.0 as f64 / 1024.0, of(len) / 1e6));
        Series { name: name.to_owned(), points: points.collect() }
    };
    let video = Video::of(setting)?;
    let compressed = video.run(Some(setting.constants.get("ratio")?), SMALL[1]).packets;
    Ok(vec![
        Plot::new(
            "Fig 8: peer DMA in a gateway",
            "A 200 MHz Pentium Pro that stalls on PCI: two crossings per packet, or one and a \
             header's.",
            ("packet, KB", "forwarded, Mbit/s"),
            vec![
                series("through memory", &|size| pc.run(size, false).rate / 1e6),
                series("peer DMA", &|size| pc.run(size, true).rate / 1e6),
            ],
        ),
        Plot::new(
            "Fig 11: files by NFS and by TCP",
            "Pipelined RPC brings 20 % with large files; for small ones TCP stays ahead.",
            ("file, KB", "throughput, Mbit/s"),
            vec![
                by_file("NFS", &|len| files.file(len, old)),
                by_file("NFS, pipelined", &|len| files.file(len, new)),
                by_file("TCP", &tcp),
            ],
        ),
        Plot::new(
            "Video without compression, by packet (N-71)",
            "nv on a SPARC: raw frames pay where packets are large.",
            ("packet, KB", "frames a second"),
            vec![
                series("raw", &|size| video.run(None, size).packets),
                series("compressed", &|_| compressed),
            ],
        ),
    ])
}
