//! `lastmeter bench forward`: what forwarding a packet costs this kernel, and which share of it is IP's and which the
//! devices'.
//!
//! ```text
//! source --w0-- router --w1-- sink      each a namespace, the links veth pairs
//!    '-- samples the softirqs in its own time: they forward what it sends
//! ```
//!
//! Packets end at the sink's interface: the router knows a wrong Ethernet address of it, so no protocol takes them. The
//! sampling clock is a software one, so virtual machines have it, too; a class of functions is what
//! [`sample::Class`](lastmeter_live::sample::Class) says.
//!
//! Source of what stands beside: ANA §3.1, whose forwarder took 33 us for a packet between null devices, half of it in
//! IP, and 333 us with an Ethernet.
//!
//! Rows: A-134.

use super::Measurement;
use super::failover::{self, Homed};
use crate::{Common, Complaint, Ended, output};
use lastmeter_linux::{Doing, load, wrong};
use lastmeter_live::namespace::Isolation;
use lastmeter_live::sample::{Class, Counts, Prepared, Sampler, Share};
use lastmeter_live::site::Site;
use lastmeter_live::task::{Entry, Parent, Task};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

/// The nodes.
const SOURCE: usize = 0;
const ROUTER: usize = 1;
const SINK: usize = 2;
const MTU: u32 = 1500;
/// Datagrams of 18 bytes make frames of the least length; nobody listens at this port.
const PAYLOAD: usize = 18;
const PORT: u16 = 9;
/// How long it sends, and how many datagrams before it looks at the clock.
const LASTS: Duration = Duration::from_secs(4);
const LASTS_QUICK: Duration = Duration::from_millis(1200);
const BATCH: u64 = 256;
/// An Ethernet address that no interface here has.
const NOBODY: &str = "02:00:00:00:00:fe";
/// How long it looks for other programs.
const LOOK: Duration = Duration::from_millis(300);
/// Shares of the document: IP's of a packet with an Ethernet, half of 1/30,000 s out of 1/3,000 s.
const PUBLISHED: f64 = 0.5 / 30_000.0 * 3_000.0;

/// What the source has to know.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Job {
    to: Ipv4Addr,
    via: Ipv4Addr,
    lasts: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Sent {
    packets: u64,
    /// Samples of softirqs in its own time and outside of programs, by class.
    softirqs: Counts,
    /// Seconds that a sample stands for.
    period: f64,
    /// Why nothing could be sampled.
    refused: Option<String>,
}

/// Sending, as a helper process.
struct Sending;

impl Task for Sending {
    const NAME: &'static str = "send packets that are forwarded";
    type Job = Job;
    type Word = ();
    type Report = Sent;

    fn run(job: &Job, parent: &mut Parent<'_>) -> lastmeter_linux::Result<Sent> {
        failover::ip(&format!("route replace {}/32 via {}\n", job.to, job.via))?;
        let sampler =
            Prepared::new().and_then(|prepared| Sampler::open(prepared, &[std::process::id()]));
        let what = "sending packets to be forwarded";
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).doing(what)?;
        socket.connect((job.to, PORT)).doing(what)?;
        parent.ready()?;
        parent.hear::<Sending>()?;
        let sampler = match sampler {
            Ok(sampler) => sampler,
            Err(why) => return Ok(Sent { refused: Some(why), ..Sent::default() }),
        };
        sampler.begin()?;
        let (from, mut packets) = (Instant::now(), 0);
        while from.elapsed() < job.lasts {
            for _ in 0..BATCH {
                packets += u64::from(socket.send(&[0; PAYLOAD]).is_ok());
            }
        }
        let sampled = sampler.end()?;
        let own = sampled.groups.first().map_or(Counts::default(), |group| group.softirq);
        let softirqs = own.with(&sampled.outside);
        Ok(Sent { packets, softirqs, period: sampled.period, refused: None })
    }
}

/// For the table of a program whose helpers may do this.
pub(crate) const TASK: Entry = Entry::of::<Sending>();

/// Has packets forwarded for so long; how many arrived at the sink's interface is not asked, as the softirqs that take
/// them there are the ones that are sampled.
fn measure(lasts: Duration) -> lastmeter_linux::Result<Sent> {
    let names = ["source", "router", "sink"].map(str::to_owned);
    // Only root's namespaces may sample the kernel.
    let mut site = Site::apart_as(&names, Isolation::Root).or_else(|_| Site::apart(&names))?;
    let [_, router] = site.join(0, [SOURCE, ROUTER], MTU)?;
    let [_, sink] = site.join(1, [ROUTER, SINK], MTU)?;
    let wrong_address = format!("neigh replace {sink} lladdr {NOBODY} dev w1\n");
    site.begin::<Homed>(ROUTER, &failover::Job::routes(wrong_address))?;
    site.begin::<Sending>(SOURCE, &Job { to: sink, via: router, lasts })?;
    site.tell::<Sending>(SOURCE, &())?;
    let sent = site.report::<Sending>(SOURCE)?;
    site.tell::<Homed>(ROUTER, &failover::Word::End)?;
    site.report::<Homed>(ROUTER)?;
    match sent.packets == 0 && sent.refused.is_none() {
        true => wrong("packets", "none was sent", "a route to the sink"),
        false => Ok(sent),
    }
}

pub(super) fn bench(common: &Common) -> Result<Ended, Complaint> {
    let surroundings = load::others(LOOK)?;
    let sent = measure(if common.quick { LASTS_QUICK } else { LASTS })?;
    if let Some(why) = &sent.refused {
        return Err(Complaint(format!("{why}; `bench forward` samples the kernel")));
    }
    let busy = if surroundings.is_busy() { "; BUSY machine" } else { "" };
    let (all, packets) = (sent.softirqs.total(), sent.packets as f64);
    let cost = |samples: u64| samples as f64 * sent.period / packets;
    let per_packet = |name: &str, samples: u64, what: &str| {
        let share = Share::of(samples, all);
        let note = format!(
            "{what}: {:.1} +- {:.1} % of {all} samples, {} packets{busy}",
            100.0 * share.value,
            100.0 * share.error,
            sent.packets
        );
        Measurement::new(name, cost(samples), "s", String::new(), note).lower_is_better()
    };
    let of = |class| sent.softirqs.of(class);
    let (ip, buffers) = (of(Class::Protocol), of(Class::Memory));
    let devices = of(Class::Device);
    let rest = all - ip - buffers - devices;
    let mut results = vec![
        per_packet("forward/packet", all, "all that forwarding takes, out of the source's call"),
        per_packet("forward/ip", ip, "IP: check, route, next hop"),
        per_packet("forward/devices", devices, "devices, their queues, the softirq's loop"),
        per_packet("forward/buffers", buffers, "packets' buffers"),
        per_packet("forward/rest", rest, "locks, scheduling, what no rule knows"),
    ];
    let note = format!("of a packet's time; published of 1994 with an Ethernet{busy}");
    let share = ip as f64 / all.max(1) as f64;
    let mut share = Measurement::new("forward/ip-share", share, "share", String::new(), note);
    share.beside("ANA §3.1", PUBLISHED);
    results.push(share);
    results.iter().for_each(|result| super::show(common, result));
    if let Some(words) = load::words(surroundings) {
        output::note(&words);
    }
    Ok(Ended::Done)
}
