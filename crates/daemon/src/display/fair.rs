//! `lastmeter bench display/fair`: what viewers of unequal appetite get of a display on which text scrolls: one that
//! asks again when it has drawn, first alone; then the same beside one that pauses; then beside nine, that one and
//! eight that ask for all of the screen again and again, every other one in ZRLE, which costs most.
//!
//! Rows: N-14.

use super::bench::{Drawer, LINE, Peer, SIZE, bytes, colour, own, text};
use crate::measured::{Bench, Folder, line};
use crate::{Complaint, Report};
use lastmeter_base::Stream;
use lastmeter_device::display::viewer::Viewer;
use lastmeter_plugin::request::Rect;
use lastmeter_wire::rfb::{Message, encoding};
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Steps a second.
const STEPS: f64 = 50.0;
/// What a slow viewer does after each update.
const PAUSE: Duration = Duration::from_millis(200);
/// Requests of a greedy viewer that are always on their way.
const AHEAD: usize = 4;
/// Greedy viewers: with the slow one there are nine beside the fast one.
const GREEDY: usize = 8;
/// The corner that shows which step the screen is at.
const MARK: Rect = Rect { x: SIZE.0 - 32, y: SIZE.1 - 32, w: 32, h: 32 };
/// Colours of the mark, which come again.
const COLOURS: usize = 64;
/// A viewer that gets nothing for longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Appetite {
    /// Asks for what has changed, again when it has drawn that.
    Fast,
    /// The same, and pauses.
    Slow,
    /// Asks for all of the screen, several times before it has it.
    Greedy,
    /// The same, in an encoding that takes much of the server's time.
    Dear,
}

impl Appetite {
    fn name(self) -> &'static str {
        match self {
            Appetite::Fast => "fast",
            Appetite::Slow => "slow",
            Appetite::Greedy => "greedy",
            Appetite::Dear => "dear",
        }
    }
    fn is_greedy(self) -> bool {
        matches!(self, Appetite::Greedy | Appetite::Dear)
    }
}

/// When the last steps were drawn, the newest at the end.
type Drawn = Mutex<Vec<(usize, Instant)>>;

/// A viewer, and the server's thread for it.
struct Guest {
    appetite: Appetite,
    viewer: Viewer,
    thread: u32,
}

/// What a viewer got.
struct Got {
    appetite: Appetite,
    /// Updates a second.
    rate: f64,
    /// Bytes a second.
    bytes: f64,
    /// Seconds from drawing to the viewer's picture, in the median and of the slowest tenth.
    age: f64,
    slow: f64,
    /// The server's CPU time for it, of the time of one processor.
    cpu: f64,
}

fn threads(process: u32) -> Result<BTreeSet<u32>, Complaint> {
    let folder = std::fs::read_dir(format!("/proc/{process}/task"))?;
    Ok(folder.flatten().filter_map(|it| it.file_name().to_str()?.parse().ok()).collect())
}

/// CPU seconds of a thread, of which the kernel tells nanoseconds.
fn cpu_of(process: u32, thread: u32) -> Result<f64, Complaint> {
    let text = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/schedstat"))?;
    let nanoseconds = text.split(' ').next().ok_or("no time in schedstat")?;
    Ok(nanoseconds.parse::<f64>()? * 1e-9)
}

fn enter(peer: &Peer, appetite: Appetite) -> Result<Guest, Complaint> {
    let process = peer.child.id();
    let before = threads(process)?;
    let stream = TcpStream::connect(("127.0.0.1", peer.viewers))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut viewer = Viewer::connect(stream, None)?;
    let first = if appetite == Appetite::Dear { encoding::ZRLE } else { encoding::TIGHT };
    viewer.send(&Message::Encodings(vec![first, encoding::COPY]))?;
    viewer.update(false)?;
    let thread = threads(process)?.difference(&before).next().copied();
    Ok(Guest { appetite, viewer, thread: thread.ok_or("the display has no thread for a viewer")? })
}

/// One viewer's time; it ends with the first update after `over`.
fn look(
    guest: &mut Guest,
    process: u32,
    drawn: &Drawn,
    over: &AtomicBool,
) -> Result<Got, Complaint> {
    let Guest { appetite, viewer, thread } = guest;
    let (began, cpu, bytes) = (Instant::now(), cpu_of(process, *thread)?, viewer.bytes);
    let (mut updates, mut ages) = (0, Vec::new());
    let whole = viewer.whole();
    if appetite.is_greedy() {
        for _ in 0..AHEAD {
            viewer.send(&Message::Update { incremental: false, area: whole })?;
        }
    }
    while !over.load(Relaxed) {
        if appetite.is_greedy() {
            viewer.receive()?;
            viewer.send(&Message::Update { incremental: false, area: whole })?;
        } else {
            viewer.update(true)?;
        }
        updates += 1;
        let at = usize::from(MARK.y + MARK.h / 2) * usize::from(SIZE.0)
            + usize::from(MARK.x + MARK.w / 2);
        let seen = viewer.pixels[at];
        let known = drawn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, drawn)) = known.iter().rev().find(|(step, _)| colour(*step) == seen) {
            ages.push(drawn.elapsed().as_secs_f64());
        }
        drop(known);
        if *appetite == Appetite::Slow {
            std::thread::sleep(PAUSE);
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    ages.sort_by(f64::total_cmp);
    let age = |at: usize| ages.get(at).copied().unwrap_or(f64::NAN);
    Ok(Got {
        appetite: *appetite,
        rate: f64::from(updates) / seconds,
        bytes: (viewer.bytes - bytes) as f64 / seconds,
        age: age(ages.len() / 2),
        slow: age(ages.len() * 9 / 10),
        cpu: (cpu_of(process, *thread)? - cpu) / seconds,
    })
}

/// Text scrolls for so long, and each viewer looks.
fn run(peer: &mut Peer, guests: &mut [Guest], seconds: f64) -> Result<Vec<Got>, Complaint> {
    let (drawn, over) = (Drawn::default(), AtomicBool::new(false));
    let process = peer.child.id();
    let mut random = Stream::new(1, "pictures");
    let lines: Vec<Vec<u8>> =
        (0..40).map(|_| bytes(&text(&mut random, SIZE.0, LINE, 0x00d0_d0d0, 0))).collect();
    std::thread::scope(|scope| {
        let (drawn, over) = (&drawn, &over);
        let all: Vec<_> = guests
            .iter_mut()
            .map(|guest| scope.spawn(move || look(guest, process, drawn, over)))
            .collect();
        let scrolled = scroll(&mut *peer.drawer, &lines, drawn, seconds);
        over.store(true, Relaxed);
        // Those that wait for a change get one.
        let last = scroll(&mut *peer.drawer, &lines, drawn, 0.0);
        let all: Result<Vec<Got>, Complaint> =
            all.into_iter().map(|one| one.join().map_err(|_| "a viewer failed")?).collect();
        scrolled.and(last)?;
        all
    })
}

fn scroll(
    drawer: &mut dyn Drawer,
    lines: &[Vec<u8>],
    drawn: &Drawn,
    seconds: f64,
) -> Result<(), Complaint> {
    let (began, (w, h)) = (Instant::now(), SIZE);
    loop {
        let step = {
            let mut drawn = drawn.lock().unwrap_or_else(PoisonError::into_inner);
            let step = drawn.last().map_or(0, |(step, _)| step + 1);
            if drawn.len() == COLOURS {
                drawn.remove(0);
            }
            drawn.push((step, Instant::now()));
            step
        };
        drawer.copy(Rect { x: 0, y: 0, w, h: h - LINE }, (0, LINE))?;
        drawer.put(Rect { x: 0, y: h - LINE, w, h: LINE }, &lines[step % lines.len()])?;
        let mark = vec![colour(step); usize::from(MARK.w) * usize::from(MARK.h)];
        drawer.put(MARK, &bytes(&mark))?;
        drawer.end()?;
        let next = began + Duration::from_secs_f64(step as f64 / STEPS);
        if began.elapsed().as_secs_f64() >= seconds {
            return Ok(());
        }
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

pub(super) fn bench(arguments: &Bench, quick: bool) -> Result<Report, Complaint> {
    let seconds = if quick { 1.0 } else { arguments.seconds };
    let folder = Folder::new(&std::env::temp_dir(), "display-fair")?;
    let mut peer = own(folder.path())?;
    let mut guests = vec![enter(&peer, Appetite::Fast)?];
    let alone = run(&mut peer, &mut guests, seconds)?;
    guests.push(enter(&peer, Appetite::Slow)?);
    let beside = run(&mut peer, &mut guests, seconds)?;
    for number in 0..GREEDY {
        let appetite = if number % 2 == 0 { Appetite::Greedy } else { Appetite::Dear };
        guests.push(enter(&peer, appetite)?);
    }
    let together = run(&mut peer, &mut guests, seconds)?;
    let mut text = format!("{:26}", "viewer");
    let columns = ["updates/s", "share", "kB/s", "ms", "slow tenth", "CPU %"];
    columns.iter().for_each(|column| {
        let _ = write!(text, " {column:>11}");
    });
    text.push('\n');
    let mut json = Vec::new();
    let phases = [("alone", &alone), ("beside", &beside), ("together", &together)];
    let most = alone.first().map_or(f64::NAN, |fast| fast.rate);
    for (phase, got) in
        phases.into_iter().flat_map(|(phase, all)| all.iter().map(move |it| (phase, it)))
    {
        let name = format!("display/fair {phase} {}", got.appetite.name());
        let (ms, slow, cpu) = (got.age * 1e3, got.slow * 1e3, got.cpu * 100.0);
        let kilobytes = got.bytes / 1e3;
        let _ = writeln!(
            text,
            "{name:26} {:>11.1} {:>11.2} {kilobytes:>11.0} {ms:>11.2} {slow:>11.2} {cpu:>11.1}",
            got.rate,
            got.rate / most
        );
        let note = format!("{cpu:.1} % of a processor, {ms:.2} ms from drawing to the viewer");
        let mut told = line(&name, got.rate, "updates/s", None, &note);
        told["phase"] = phase.into();
        told["viewer"] = got.appetite.name().into();
        told["share"] = (got.rate / most).into();
        told["cpu"] = got.cpu.into();
        told["age_ms"] = json!({ "median": ms, "slow_tenth": slow });
        json.push(told);
    }
    Ok(Report { text, json, good: true })
}
