//! `lastmeter bench channels`: flows told apart by the number of a channel, in a table of 32768 (J-49).
//!
//! ```text
//! this program --frames: channel, number--> veth | eth0: [ table: open? ] --open--> AF_XDP's ring --> a program
//!                                                                          --closed--> dropped, counted
//! ```
//!
//! First a frame goes to each channel, of which some are open: the program must get those of open channels and no
//! other. Then all frames go to open ones. A veth pair hands a frame over within the sender's call, so the table's work
//! is in the sender's CPU time; the program's own is added. Each window's last frame asks for an answer.
//!
//! Source: HPL-93-37, §3.4: a table of 15 bits in RAM, so a look costs the same whatever is open; 2^15 / 2^4 circuits
//! for each of 16 hosts.
//!
//! Rows: J-49.

use crate::far::Far;
use crate::{Bench, Complaint, Measurement, Setting};
use lastmeter_linux::clock::thread_cpu;
use lastmeter_linux::port::{CHANNELS, Channels, Counts, Port, Xdp};
use lastmeter_linux::{Doing, cores, link, load};
use lastmeter_live::receive;
use lastmeter_live::site;
use lastmeter_live::task::{Entry, Parent, Task};
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

pub(crate) const ALL: &[(&str, Bench)] = &[
    ("channels/open@1", |setting| bench(setting, 1)),
    ("channels/open@500", |setting| bench(setting, 500)),
    ("channels/open@2048", |setting| bench(setting, 2048)),
    ("channels/open@32768", |setting| bench(setting, CHANNELS)),
];

/// A type for local experiments (IEEE 802-2014 §9.2.4), and the bytes of a frame: those of a cell and its number.
const TYPE: u16 = 0x88b5;
const FRAME: usize = 64;
/// Frames sent by one call.
const WINDOW: u32 = 32;
const FRAMES: u32 = 40_000;
const FRAMES_QUICK: u32 = 8_000;
const TURNS: usize = 3;
/// Where a payload has its channel, its number, and whether an answer is wanted.
const ASKS_AT: usize = 6;
const DATA_LEN: usize = 7;
/// Nothing has come for so long.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(100);

/// The open channels are spread evenly.
fn channel(at: u32, open: u32) -> u16 {
    (at % open * (CHANNELS / open)) as u16
}

fn is_open(channel: u16, open: u32) -> bool {
    let apart = CHANNELS / open;
    let channel = u32::from(channel);
    channel % apart == 0 && channel / apart < open
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Job {
    /// How many are open.
    open: u32,
    /// Frames that will reach the program.
    frames: u32,
    core: usize,
}

/// What the program got.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Got {
    frames: u32,
    /// Of these, frames of channels that are closed.
    strangers: u32,
    /// Channels of which a frame came.
    channels: u32,
    /// Frames that the table dropped.
    refused: u64,
    /// Seconds of CPU time.
    cpu: f64,
}

struct Telling;

impl Task for Telling {
    const NAME: &'static str = "tell channels apart";
    type Job = Job;
    type Word = ();
    type Report = Got;

    fn run(job: &Job, parent: &mut Parent<'_>) -> lastmeter_linux::Result<Got> {
        cores::pinned(job.core, || tell(job, parent))
    }
}

/// For the table of a program whose helpers may do this.
pub(crate) const TASK: Entry = Entry::of::<Telling>();

fn tell(job: &Job, parent: &mut Parent<'_>) -> lastmeter_linux::Result<Got> {
    let what = "opening a table of channels";
    let index = link::index_of(site::INTERFACE)?;
    let (table, fd, link) = Channels::before(index, TYPE).doing(what)?;
    let mut port = Xdp::new(fd, link, index, false).doing(what)?;
    for at in 0..job.open {
        table.set(channel(at, job.open), true).doing(what)?;
    }
    parent.ready()?;
    let what = "receiving from a ring";
    let (began, mut counts, mut got) = (thread_cpu(), Counts::default(), Got::default());
    let mut seen = vec![false; CHANNELS as usize];
    let mut last = Instant::now();
    while got.frames < job.frames {
        receive::wait([port.fd()].into_iter(), LOOK)?;
        let mut asked = None;
        let taken = port.receive(WINDOW as usize, &mut counts, &mut |arrival| {
            let Some((header, data)) = arrival.parts[0].split_at_checked(14) else { return };
            let Some(&[c0, c1, n0, n1, n2, n3, asks]) = data.first_chunk::<DATA_LEN>() else {
                return;
            };
            let channel = u16::from_be_bytes([c0, c1]);
            got.frames += 1;
            got.strangers += u32::from(!is_open(channel, job.open));
            if let Some(seen) = seen.get_mut(usize::from(channel)) {
                *seen = true;
            }
            if asks == 1 {
                asked = Some([&header[6..12], &header[..6], &[n0, n1, n2, n3]].concat());
            }
        });
        if taken.doing(what)? > 0 {
            last = Instant::now();
        }
        if let Some(asked) = asked {
            let (addresses, number) = asked.split_at(12);
            let mut answer = [addresses, &TYPE.to_be_bytes(), number].concat();
            answer.resize(FRAME, 0);
            port.send(&[answer], &mut counts).doing(what)?;
        }
        if last.elapsed() > PATIENCE {
            return Err(io::Error::from(ErrorKind::TimedOut)).doing(what);
        }
    }
    got.cpu = thread_cpu() - began;
    got.channels = seen.iter().filter(|seen| **seen).count() as u32;
    got.refused = table.refused();
    Ok(got)
}

/// Sends a frame to each of these channels, a window at a time; CPU seconds of the calls that send. The last of each
/// window goes to an open channel and asks for an answer.
fn send(far: &mut Far, to: &[u16], asks: u16) -> Result<f64, Complaint> {
    let mut spent = 0.0;
    for (round, window) in to.chunks(WINDOW as usize - 1).enumerate() {
        let number = (round as u32).to_be_bytes();
        let frame = |channel: u16, asks: u8| {
            let mut data = [&channel.to_be_bytes()[..], &number].concat();
            data.resize(FRAME - 14, 0);
            data[ASKS_AT] = asks;
            far.framed(TYPE, &data)
        };
        let mut batch =
            window.iter().map(|&channel| frame(channel, 0)).collect::<Result<Vec<_>, _>>()?;
        batch.push(frame(asks, 1)?);
        let before = thread_cpu();
        far.send_all(&batch)?;
        spent += thread_cpu() - before;
        let (began, mut answered) = (Instant::now(), false);
        while !answered {
            far.wait(LOOK)?;
            far.take_frames(&mut |kind, data| {
                answered |= kind == TYPE && data.starts_with(&number)
            })?;
            if began.elapsed() > PATIENCE {
                return Err(Complaint(format!("window {round} was not answered")));
            }
        }
    }
    Ok(spent)
}

/// A frame to each of these channels: CPU seconds of the sending calls, what the program got, and how many frames it
/// should have got and the table dropped.
fn pass(to: &[u16], open: u32) -> Result<(f64, Got), Complaint> {
    let windows = to.len().div_ceil(WINDOW as usize - 1) as u32;
    let wanted = to.iter().filter(|&&channel| is_open(channel, open)).count() as u32;
    let core = cores::allowed()?.last().copied().unwrap_or(0);
    let mut far = Far::by_wire()?;
    let frames = wanted + windows;
    far.site.begin::<Telling>(0, &Job { open, frames, core })?;
    let mut complaint = None;
    let spent = cores::pinned(core, || {
        let sent = send(&mut far, to, channel(0, open));
        Ok(sent.map_err(|wrong| complaint = Some(wrong)).unwrap_or(0.0))
    })?;
    if let Some(wrong) = complaint {
        return Err(wrong);
    }
    let got = far.site.report::<Telling>(0)?;
    let refused = to.len() as u64 - u64::from(wanted);
    match got.frames == frames && got.strangers == 0 && got.refused == refused {
        true => Ok((spent, got)),
        false => Err(Complaint(format!("of {frames} frames, {refused} refused: {got:?}"))),
    }
}

fn bench(setting: &Setting, open: u32) -> Result<Measurement, Complaint> {
    let busy = if load::others(LOOK)?.is_busy() { "; BUSY machine" } else { "" };
    let each: Vec<u16> = (0..CHANNELS as u16).collect();
    let (_, got) = pass(&each, open)?;
    if got.channels != open {
        return Err(Complaint(format!("of {open} open channels {} got a frame", got.channels)));
    }
    let frames = if setting.quick { FRAMES_QUICK } else { FRAMES };
    // A step that has no factor in common with their number: neighbours are not used after each other.
    let to: Vec<u16> = (0..frames).map(|at| channel(at.wrapping_mul(12_347), open)).collect();
    let mut best = f64::INFINITY;
    for _ in 0..TURNS {
        let (spent, got) = pass(&to, open)?;
        best = best.min((spent + got.cpu) / f64::from(got.frames));
    }
    let note = format!(
        "CPU time of a frame, table and program; of a frame to each of {CHANNELS} channels the {} \
         of open ones came, and {} were refused{busy}",
        got.channels, got.refused
    );
    let name = format!("channels/open@{open}");
    Ok(Measurement::new(name, best, "s", String::new(), note).lower_is_better())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_channels_are_open_as_were_opened_j_49() {
        for open in [1, 500, 2048, CHANNELS] {
            let all = (0..CHANNELS as u16).filter(|&channel| is_open(channel, open));
            assert_eq!(all.count() as u32, open);
            assert!((0..open).all(|at| is_open(channel(at, open), open)));
        }
    }
}
