//! The models' TCP before the kernel's, with real segments: what repairs losses (A-165), and who keeps the state of
//! closed connections (N-74).
//!
//! ```text
//! own-tcp/recovery/newreno    our sender --10 Mbit/s, 30 ms, four of a window lost--> the kernel's receiver
//! own-tcp/time-wait  our client --request--> the kernel's server, which closes first; our client may take over
//! ```
//!
//! Each mechanism is a switch of [`Config`]: the same code that runs in experiments. The changed client of SunOS that
//! N-74 names is [`Lingering::Shift`]: when its last FIN is acknowledged it resets the server, which forgets the
//! connection, and lingers itself.

mod line;
mod serve;

pub(crate) use serve::TASK;

use crate::far::Far;
use crate::{Bench, Complaint, Measurement, Setting};
use lastmeter_base::{Duration, Time};
use lastmeter_linux::clock::Epoch;
use lastmeter_linux::load;
use lastmeter_transport::tcp::{Config, Connection, Ended, Lingering, Recovery, State};
use line::{BYTES, Sender, Sent};
use serve::{Job, PORT, Serving};
use std::collections::BTreeMap;
use std::time::Duration as Wait;

pub(crate) const ALL: &[(&str, Bench)] = &[
    ("own-tcp/recovery/reno", |_| recovery("own-tcp/recovery/reno", Recovery::Reno)),
    ("own-tcp/recovery/newreno", |_| recovery("own-tcp/recovery/newreno", Recovery::NewReno)),
    ("own-tcp/time-wait/server", |setting| {
        closed(setting, "own-tcp/time-wait/server", Lingering::First, true)
    }),
    ("own-tcp/time-wait/shift", |setting| {
        closed(setting, "own-tcp/time-wait/shift", Lingering::Shift, true)
    }),
    ("own-tcp/time-wait/client", |setting| {
        closed(setting, "own-tcp/time-wait/client", Lingering::First, false)
    }),
];

/// How long it looks for other programs.
const LOOK: Wait = Wait::from_millis(100);
/// Longest sleep.
const SLEEP_MAX: Duration = Duration::from_ms(100);
/// Until a stream must have been acknowledged, and one connection closed.
const STREAM_MAX: Duration = Duration::from_secs(30);
const CONNECTION_MAX: Duration = Duration::from_secs(10);
/// The first port of our host.
const FIRST: u16 = 10_000;
/// Connections in all, and at once.
const COUNT: u16 = 400;
const COUNT_QUICK: u16 = 100;
const TOGETHER: usize = 8;

fn busy() -> Result<&'static str, Complaint> {
    Ok(if load::others(LOOK)?.is_busy() { "; BUSY machine" } else { "" })
}

fn sleep(far: &Far, now: Time, next: Option<Time>) -> Result<(), Complaint> {
    let left = next.map_or(SLEEP_MAX, |next| next.saturating_since(now)).min(SLEEP_MAX);
    far.wait(Wait::from_nanos(left.as_ps() / 1000))
}

/// A stream that loses four of a window, into the kernel.
fn stream(recovery: Recovery) -> Result<Sent, Complaint> {
    let mut far = Far::open()?;
    far.site.begin::<Serving>(0, &Job::Stream)?;
    let mut sender = Sender::new(recovery);
    let epoch = Epoch::start();
    let sent = loop {
        let now = epoch.now();
        far.take(&mut |arrived| sender.comes_back(now, arrived.segment))?;
        sender.step(now);
        while let Some((segment, payload)) = sender.leaves(now) {
            let frame = far.segment((FIRST, PORT), &segment, &payload)?;
            far.send_all(&[frame])?;
        }
        if let Some(sent) = sender.sent() {
            break sent;
        }
        if now.since_start() > STREAM_MAX {
            return Err(Complaint(format!("not all was acknowledged in {STREAM_MAX}")));
        }
        sleep(&far, now, sender.next())?;
    };
    // The FIN is still on the line.
    while let Some(next) = sender.next().filter(|next| next.since_start() < STREAM_MAX) {
        let now = epoch.now();
        while let Some((segment, payload)) = sender.leaves(now) {
            let frame = far.segment((FIRST, PORT), &segment, &payload)?;
            far.send_all(&[frame])?;
        }
        let mut over = false;
        far.take(&mut |arrived| over |= arrived.segment.ack > BYTES as u32 + 2)?;
        if over {
            break;
        }
        sleep(&far, now, Some(next))?;
    }
    far.site.tell::<Serving>(0, &())?;
    let served = far.site.report::<Serving>(0)?;
    match served.done == BYTES {
        true => Ok(sent),
        false => Err(Complaint(format!("of {BYTES} B the server read {} as sent", served.done))),
    }
}

fn recovery(name: &str, recovery: Recovery) -> Result<Measurement, Complaint> {
    let busy = busy()?;
    let model = line::model(recovery).ok_or("the model does not end")?;
    let sent = stream(recovery)?;
    let note = format!(
        "{BYTES} B into this kernel at 10 Mbit/s, 60 ms there and back, four of a window lost: \
         {} timeouts, {} sent again, repaired in {:.1} round trips; model {}, {}, {:.1}{busy}",
        sent.timeouts, sent.again, sent.trips, model.timeouts, model.again, model.trips
    );
    let result = Measurement::new(name, sent.seconds, "s", String::new(), note);
    let mut result = result.lower_is_better();
    result.beside("model", model.seconds);
    Ok(result)
}

/// One request of our client.
struct Client {
    tcp: Connection,
    began: Time,
    answer: Vec<u8>,
    server_closes: bool,
}

impl Client {
    fn new(now: Time, number: u16, lingering: Lingering, server_closes: bool) -> Client {
        let config = Config { lingering, content: true, ..Config::modern() };
        let mut tcp = Connection::connect(now, config, u32::from(number) << 16);
        tcp.write(b"GET / HTTP/1.0\r\n\r\n");
        Client { tcp, began: now, answer: Vec::new(), server_closes }
    }

    /// Reads, and closes when it is this end's turn.
    fn act(&mut self) {
        let mut bytes = [0; 1024];
        loop {
            let len = self.tcp.read(&mut bytes);
            if len == 0 {
                break;
            }
            self.answer.extend(&bytes[..len]);
        }
        let closes = if self.server_closes { self.tcp.at_end() } else { whole(&self.answer) };
        if closes && self.tcp.state() != State::Closed {
            self.tcp.close();
        }
    }

    /// Whether it is over, and how.
    fn over(&self) -> Option<Over> {
        match self.tcp.state() {
            State::TimeWait if whole(&self.answer) => Some(Over::Lingers),
            State::Closed if self.tcp.ended() == Some(Ended::Done) && whole(&self.answer) => {
                Some(Over::Gone)
            }
            State::TimeWait | State::Closed => Some(Over::Failed),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    /// This end keeps the state.
    Lingers,
    Gone,
    Failed,
}

/// Whether an answer has all the bytes that its header promises.
fn whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((header, content)) = text.split_once("\r\n\r\n") else { return false };
    let len = header.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    len.and_then(|len| len.parse().ok()) == Some(content.len())
}

/// Requests of our client, each on its own connection.
fn closed(
    setting: &Setting,
    name: &str,
    lingering: Lingering,
    server_closes: bool,
) -> Result<Measurement, Complaint> {
    let busy = busy()?;
    let mut far = Far::open()?;
    far.site.begin::<Serving>(0, &Job::Requests { closes_first: server_closes })?;
    let count = if setting.quick { COUNT_QUICK } else { COUNT };
    let mut open: BTreeMap<u16, Client> = BTreeMap::new();
    let (mut begun, mut lingers, mut gone, mut failed) = (0, 0_u64, 0_u64, 0_u64);
    let epoch = Epoch::start();
    while begun < count || !open.is_empty() {
        let now = epoch.now();
        while open.len() < TOGETHER && begun < count {
            open.insert(FIRST + begun, Client::new(now, begun, lingering, server_closes));
            begun += 1;
        }
        far.take(&mut |arrived| {
            if let Some(client) = open.get_mut(&arrived.port) {
                client.tcp.receive(now, &arrived.segment, &arrived.payload);
            }
        })?;
        for (&port, client) in &mut open {
            if client.tcp.ready_at().is_some_and(|due| due <= now) {
                client.tcp.expire(now);
            }
            client.act();
            while let Some(segment) = client.tcp.transmit(now) {
                let mut payload = Vec::new();
                client.tcp.payload(&segment, &mut payload);
                let frame = far.segment((port, PORT), &segment, &payload)?;
                far.send_all(&[frame])?;
            }
        }
        open.retain(|_, client| {
            let late = now.saturating_since(client.began) > CONNECTION_MAX;
            match client.over() {
                Some(Over::Lingers) => lingers += 1,
                Some(Over::Gone) => gone += 1,
                Some(Over::Failed) => failed += 1,
                None if late => failed += 1,
                None => return true,
            }
            false
        });
        if open.len() == TOGETHER || begun == count {
            sleep(&far, now, open.values().filter_map(|client| client.tcp.ready_at()).min())?;
        }
    }
    let seconds = epoch.now().since_start().as_secs_f64();
    far.site.tell::<Serving>(0, &())?;
    let served = far.site.report::<Serving>(0)?;
    let (done, who) = (
        lingers + gone,
        match (server_closes, lingering) {
            (true, Lingering::Shift) => {
                "the server closes first, our client resets it and takes over"
            }
            (true, _) => "the server closes first",
            (false, _) => "our client closes first, by the answer's length",
        },
    );
    let share = |state: u64| 100.0 * state as f64 / done.max(1) as f64;
    let note = format!(
        "{who}; our TCP before this kernel's; of 100 connections {:.0} are in TIME_WAIT \
         at the server, {:.0} at the client, {failed} failed, {} answered{busy}",
        share(served.time_wait),
        share(lingers),
        served.done
    );
    Ok(Measurement::new(name, done as f64 / seconds, "connections/s", String::new(), note))
}
