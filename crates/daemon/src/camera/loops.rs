//! Receivers that are slowed down: the closed loop beside the open one while a control group takes half of their CPU,
//! and the Vidboard's knobs at a receiver with a small buffer.

use super::bench::{Running, camera, receiver};
use crate::Complaint;
use crate::measured::line;
use lastmeter_ledger::html::curves;
use lastmeter_ledger::plots::{Plot, Series};
use lastmeter_linux::quota::Quota;
use lastmeter_wire::camera::Command as Asked;
use serde_json::Value;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// CPU time that the slowed receiver uses for each frame: more than half a core at 30 frames/s.
const WORK_MS: f64 = 24.0;
/// What is left to it.
const HALF: f64 = 0.5;

/// A receiver in a process of its own, on one core where `taskset` is there and that is wanted.
pub(super) fn watch(
    address: SocketAddr,
    arguments: &[&str],
    core: Option<u32>,
) -> Result<Running, Complaint> {
    let own = std::env::current_exe()?;
    let mut command = match core.filter(|_| Path::new("/usr/bin/taskset").exists()) {
        Some(core) => {
            let mut command = Command::new("taskset");
            command.args(["-c", &core.to_string()]).arg(own);
            command
        }
        None => Command::new(own),
    };
    command.args(["--json", "camera", "watch", &address.to_string()]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    Ok(Running(command.spawn()?))
}

/// What it says at its end.
pub(super) fn told(running: &mut Running) -> Result<Value, Complaint> {
    let mut text = String::new();
    let out = running.0.stdout.as_mut().ok_or("the receiver has no output")?;
    out.read_to_string(&mut text)?;
    Ok(serde_json::from_str(text.lines().next().ok_or("the receiver said nothing")?)?)
}

/// What one loop brought, a third of the time at a whole core, at half of one, and at a whole one again.
struct Slowed {
    /// Frames and losses in each span.
    spans: Vec<(f64, f64)>,
    span: f64,
    /// CPU seconds for each frame.
    each: f64,
}

impl Slowed {
    fn run(address: SocketAddr, third: f64, open: bool) -> Result<Slowed, Complaint> {
        let (seconds, work) = ((third * 3.0).to_string(), WORK_MS.to_string());
        let mut arguments = vec!["--rate", "30", "--seconds", &seconds, "--work", &work];
        arguments.extend(open.then_some("--open"));
        let mut running = watch(address, &arguments, None)?;
        let began = Instant::now();
        let quota = Quota::of(running.0.id(), 1.0).map_err(|error| error.to_string())?;
        for (at, share) in [(1.0, HALF), (2.0, 1.0)] {
            let due = began + Duration::from_secs_f64(third * at);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            quota.set(Some(share)).map_err(|error| error.to_string())?;
        }
        let told = told(&mut running)?;
        let number = |value: &Value| value.as_f64().unwrap_or(0.0);
        let spans = told["spans"].as_array().cloned().unwrap_or_default();
        let spans = spans.iter().map(|pair| (number(&pair[0]), number(&pair[1]))).collect();
        let each = number(&told["cpu"]) / number(&told["frames"]).max(1.0);
        Ok(Slowed { spans, span: number(&told["span"]), each })
    }
    /// Frames and losses a second in a third, from a second after its beginning.
    fn rates(&self, third: f64, at: f64) -> (f64, f64) {
        let from = ((third * at + 1.0) / self.span) as usize;
        let to = ((third * (at + 1.0)) / self.span) as usize;
        let spans = self.spans.get(from..to.min(self.spans.len())).unwrap_or_default();
        let sum = spans.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let seconds = (spans.len() as f64 * self.span).max(1e-9);
        (sum.0 / seconds, sum.1 / seconds)
    }
    /// Of whole spans.
    fn curves(&self, third: f64, name: &str) -> [Series; 2] {
        let whole = (3.0 * third / self.span) as usize;
        let curve = |what: &str, value: fn(&(f64, f64)) -> f64| Series {
            name: format!("{name} loop: {what}"),
            points: self
                .spans
                .iter()
                .take(whole)
                .enumerate()
                .map(|(at, one)| ((at as f64 + 0.5) * self.span, value(one) / self.span))
                .collect(),
        };
        [curve("frames that came", |one| one.0), curve("frames lost", |one| one.1)]
    }
}

/// Both loops at a receiver that loses half of its CPU and gets it back.
pub(super) fn slowed(
    folder: &Path,
    seconds: f64,
    chart: Option<&Path>,
    text: &mut String,
    json: &mut Vec<Value>,
) -> Result<(), Complaint> {
    let (_camera, address) = camera(folder, "")?;
    receiver(address, Asked::default())?;
    let third = (seconds / 2.0).max(3.0);
    let closed = match Slowed::run(address, third, false) {
        Ok(closed) => closed,
        Err(error) => {
            *text += &format!(
                "camera/closed-loop SKIP: {}: it needs root and control groups\n",
                error.0
            );
            return Ok(());
        }
    };
    let open = Slowed::run(address, third, true)?;
    let [before, half, after] = [0.0, 1.0, 2.0].map(|at| closed.rates(third, at));
    let [open_before, open_half, _] = [0.0, 1.0, 2.0].map(|at| open.rates(third, at));
    // What half a core can do, at the CPU time that a frame takes.
    let most = HALF / closed.each;
    let note = format!(
        "640x480, 30 frames/s asked for, {WORK_MS} ms of CPU time for each frame; closed loop \
         {:.1}, with half a core {:.1}, then {:.1} frames/s, {:.1} lost a second; {:.0} % of what \
         half a core can do at {:.1} ms a frame; \
         open loop {:.1}, with half a core {:.1} frames/s, {:.1} and {:.1} lost a second",
        before.0,
        half.0,
        after.0,
        half.1,
        100.0 * half.0 / most,
        closed.each * 1e3,
        open_before.0,
        open_half.0,
        open_before.1,
        open_half.1,
    );
    let mut row =
        line("camera/closed-loop", half.0, "frames/s", Some(("open loop", open_half.0)), &note);
    row["lost"] = half.1.into();
    row["peer_lost"] = open_half.1.into();
    row["share_of_most"] = (half.0 / most).into();
    *text += &format!("camera/closed-loop {:.1} frames/s with half a core; {note}\n", half.0);
    json.push(row);
    if let Some(path) = chart {
        let series = [closed.curves(third, "closed"), open.curves(third, "open")].concat();
        let title = "A receiver that loses half of its CPU";
        let plot = Plot::new(title, note, ("seconds", "frames/s"), series);
        let marks = vec![(third, "half a core".to_owned()), (2.0 * third, "a core".to_owned())];
        std::fs::write(path, curves(title, &[plot.marked(marks)]))
            .map_err(|error| Complaint(format!("{}: {error}", path.display())))?;
        *text += &format!("drawn in {}\n", path.display());
    }
    Ok(())
}

/// Scan lines of a PDU, and cells of a burst with the microseconds between two, as the Vidboard was measured with them;
/// frames a second that it reached (Aurora report, table 6).
const LINES: [u16; 4] = [4, 16, 120, 480];
const BURSTS: [(u16, u32, [f64; 4]); 4] = [
    (14, 150, [7.7, 8.7, 9.1, 9.5]),
    (28, 240, [9.1, 10.0, 10.5, 11.7]),
    (42, 390, [9.0, 9.5, 10.5, 11.1]),
    (56, 510, [9.5, 10.0, 10.5, 11.1]),
];
/// What the kernel counts for a packet of 27 cells, and so for 256 cells.
const PACKET: usize = 2304;
const BUFFER: usize = PACKET * 256 / 27;
/// CPU time of the receiver for each packet: it takes 27 cells in 80 us, so that the bursts below fit.
const TOLL_US: f64 = 80.0;

/// The Vidboard's knobs at a receiver with a buffer of 256 cells.
pub(super) fn shaping(
    folder: &Path,
    seconds: f64,
    text: &mut String,
    json: &mut Vec<Value>,
) -> Result<(), Complaint> {
    let (_camera, address) = camera(folder, "colour = false\n")?;
    receiver(address, Asked::default())?;
    *text += &format!(
        "640x480 grey in cells; the receiver has a buffer of {BUFFER} bytes (256 cells), and takes \
         {TOLL_US} us for 27\n\
         lines  cells  us     frames/s  lost/s  the Vidboard's\n"
    );
    let run = |lines: u16, burst: u16, gap: u32| -> Result<(f64, f64), Complaint> {
        let [lines, burst, gap] = [lines.into(), burst.into(), gap].map(|it| it.to_string());
        let (seconds, toll) = (seconds.to_string(), TOLL_US.to_string());
        let buffer = BUFFER.to_string();
        let shape = ["--lines", &lines, "--burst", &burst, "--gap", &gap, "--toll", &toll];
        let rest = ["--format", "grey", "--cells", "--buffer", &buffer, "--seconds", &seconds];
        let mut running = watch(address, &[&shape[..], &rest].concat(), None)?;
        let told = told(&mut running)?;
        let number = |name: &str| told[name].as_f64().unwrap_or(0.0);
        Ok((number("frames") / number("seconds"), number("lost") / number("seconds")))
    };
    let mut grid = Vec::new();
    for (at, lines) in LINES.into_iter().enumerate() {
        grid.push((lines, 0, 0, None));
        grid.extend(BURSTS.map(|(cells, gap, known)| (lines, cells, gap, Some(known[at]))));
    }
    for (lines, cells, gap, known) in grid {
        // A receiver that loses every frame ends with an error: it has nothing to tell.
        let (frames, lost) = run(lines, cells, gap).unwrap_or((0.0, f64::NAN));
        let beside = known.map_or("not shaped".to_owned(), |known| format!("{known:.1}"));
        let losses = if lost.is_nan() { "all".to_owned() } else { format!("{lost:.1}") };
        *text += &format!("{lines:5}  {cells:5}  {gap:3}  {frames:11.1}  {losses:>6}  {beside}\n");
        let peer = known.map(|known| ("Vidboard", known));
        let note = format!(
            "{lines} lines a PDU, {cells} cells a burst, {gap} us; {losses} frames lost a second"
        );
        let name = format!("camera/shaping/{lines}/{cells}");
        json.push(line(&name, frames, "frames/s", peer, &note));
    }
    Ok(())
}
