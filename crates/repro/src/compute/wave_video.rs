//! Wave Video (D-95 to D-105): what receivers show of a stream whose line is shared with bursts of other traffic.
//!
//! The network is that of `lastmeter run wave-video`, with the plugins and with routers in their place. How soon a
//! stream is small enough is measured at the congested link by itself, where layered multicast has been built, too.

use super::{Computed, Setting, Value, row};
use crate::Error;
use crate::sweep::formula::Val;
use lastmeter_base::Duration;
use lastmeter_lab::library::{Builtin, Library};
use lastmeter_ledger::plots::{Plot, Series};
use lastmeter_wave::layered::{Layered, Timers};
use lastmeter_wave::measure::{self, Burst, Shot, WINDOW};
use lastmeter_wave::picture::PSNR_MAX;
use lastmeter_wave::sequence::Sequence;
use lastmeter_wave::stream::{Film, HEADERS_LEN, Options};
use lastmeter_wave::study::{self, Case, LINE, Outcome, Plain, Scaler};
use lastmeter_wire::wave::{BANDS, Band};
use std::io::Read;

const NAME: &str = "wave-video";
const MODULE: &str = "../../examples/plugins/wave-scaler.wasm";
/// Frames that are sent: 20 s.
const SENT: u32 = 240;
/// Frames until a sequence repeats.
const FRAMES: u32 = 72;
/// Gain in dB from which scaling counts as better; ours.
const GAIN: f64 = 3.0;
/// A frame is as good as the original at this distance from it, in dB; ours.
const CLOSE: f64 = 10.0;

/// The receivers: their streams and how many streams cross them.
const RECEIVERS: [(&str, &str, u32); 3] =
    [("d1", "undisturbed", 0), ("d2", "beside-one", 1), ("d3", "beside-two", 2)];

fn bursts() -> [Burst; 2] {
    [(4, 8), (11, 17)].map(|(from, to)| (Duration::from_secs(from), Duration::from_secs(to)))
}

fn failed(message: impl std::fmt::Display) -> Error {
    Error::Computation { name: NAME, message: message.to_string() }
}

/// The plugin's module.
fn module() -> Result<Vec<u8>, Error> {
    let mut module = Vec::new();
    let mut file = Builtin.open(MODULE).map_err(failed)?;
    file.read_to_end(&mut module).map_err(failed)?;
    Ok(module)
}

/// What the receivers show of a sequence, in the network: plain, scaled.
struct Shown {
    video: Options,
    film: Film,
    shots: [[Vec<Shot>; 2]; 3],
    /// Frames of which something came, but not all of the lowest bands.
    broken: [[u64; 2]; 3],
    /// The same at the congested links by themselves, with one and two cross streams.
    alone: Vec<Alone>,
}

/// A congested link by itself.
struct Alone {
    cross: u32,
    plain: Outcome,
    scaled: Outcome,
    layered: Outcome,
}

impl Shown {
    fn new(setting: &Setting<'_>, sequence: Sequence) -> Result<Shown, Error> {
        let programs = setting.means.programs.ok_or_else(|| failed(crate::NO_PROGRAMS))?;
        let video = Options::new(sequence, FRAMES);
        let film = video.film();
        let given = [("sequence", Val::Text(sequence.name().to_owned()))];
        let runs = [setting.run("plain", &given)?, setting.run("scaled", &given)?];
        let report = |run: usize, (host, stream, _): (&str, &str, u32)| {
            let name = format!("{host} shows {stream}");
            let report = runs[run].outcome.elements.iter().find(|report| report.name == name);
            report.ok_or_else(|| failed(format!("nothing is called `{name}`")))
        };
        let mut shown = Shown {
            video,
            film,
            shots: Default::default(),
            broken: [[0; 2]; 3],
            alone: Vec::new(),
        };
        for (place, receiver) in RECEIVERS.into_iter().enumerate() {
            for run in 0..runs.len() {
                let report = report(run, receiver)?;
                let shots = measure::shots(&video, report);
                shown.shots[place][run] = shots.ok_or_else(|| failed("a run without frames"))?;
                let broken = report.counters.iter().find(|counter| counter.0 == "broken");
                shown.broken[place][run] = broken.map_or(0, |counter| counter.1);
            }
        }
        let module = module()?;
        let scaler = || Scaler::new(programs, &module, setting.seed).map_err(failed);
        for (.., cross) in RECEIVERS.into_iter().skip(1) {
            let case = Case { video, frames: SENT, cross, bursts: bursts().to_vec() };
            let film = &shown.film;
            shown.alone.push(Alone {
                cross,
                plain: study::run(&case, film, &mut Plain),
                scaled: study::run(&case, film, &mut scaler()?),
                layered: study::run(&case, film, &mut Layered::new(Timers::default())),
            });
        }
        Ok(shown)
    }

    fn psnr(&self, place: usize, way: usize) -> f64 {
        measure::psnr_in_bursts(&self.video, &bursts(), &self.shots[place][way])
    }
    fn gain(&self, place: usize) -> f64 {
        self.psnr(place, 1) - self.psnr(place, 0)
    }
    /// Frames of a burst, from the frame of this number after its beginning.
    fn within(&self, place: usize, way: usize, burst: Burst, from: u32) -> Vec<Shot> {
        let begins = |frame: u32| self.video.begins(frame);
        let frames = self.shots[place][way].iter().copied();
        frames
            .filter(|shot| {
                begins(shot.frame) >= burst.0 + begins(from) && begins(shot.frame) < burst.1
            })
            .collect()
    }
    /// The rate of the film in bit/s, headers included.
    fn rate(&self) -> f64 {
        let packets = self.film.iter().flatten();
        let bytes: usize = packets.map(|packet| packet.len() + HEADERS_LEN).sum();
        bytes as f64 * 8.0 / self.video.begins(FRAMES).as_secs_f64()
    }
}

impl Alone {
    fn settled(&self, outcome: &Outcome) -> Vec<Duration> {
        let share = 1.0 / f64::from(1 + self.cross);
        bursts().into_iter().map(|burst| outcome.settled(burst, share)).collect()
    }
    /// The rate that arrives from a second after the beginning of the last burst, in Mbit/s.
    fn rate(&self, outcome: &Outcome) -> f64 {
        let (from, to) = bursts()[1];
        outcome.arrival_rate(from + Duration::from_secs(1), to) / 1e6
    }
    fn granted(&self) -> f64 {
        LINE.as_bits() as f64 / 1e6 / f64::from(1 + self.cross)
    }
}

/// The share of each band's rows that came in bursts, after their first second.
fn arrived(outcome: &Outcome, video: &Options) -> Vec<f64> {
    let second = Duration::from_secs(1);
    let late = bursts().map(|(from, to)| (from + second, to));
    let frames = outcome.frames.iter();
    let frames: Vec<_> =
        frames.filter(|frame| measure::in_burst(video, &late, frame.shown.frame)).collect();
    let (width, height) = video.size;
    let share = |(priority, band): (usize, Band)| {
        let rows: u64 = frames.iter().map(|frame| u64::from(frame.shown.rows[priority])).sum();
        rows as f64 / (band.size(width, height).1 * frames.len()) as f64
    };
    Band::all().enumerate().map(share).collect()
}

/// Whether what came are the first bands, without gaps.
fn is_prefix(shot: &Shot) -> bool {
    (shot.bands + 1).is_power_of_two()
}

pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let head = Shown::new(setting, Sequence::TalkingHead)?;
    let street = Shown::new(setting, Sequence::Panning)?;
    let mbit = |value: f64| Value::Number(value, "Mbit/s");
    // The sequence that does not fit beside one stream, nor beside two.
    let all = || street.alone.iter().chain(&head.alone);
    let settled = all().flat_map(|alone| alone.settled(&alone.scaled)).max().unwrap_or_default();
    let too_much = |alone: &&Alone| alone.plain.dropped > 0;
    let layered = all().filter(too_much).flat_map(|alone| alone.settled(&alone.layered)).min();
    let scaled = all().filter(too_much).all(|alone| {
        let rate = alone.rate(&alone.scaled);
        rate <= alone.granted() && rate > 0.5 * alone.granted()
    });
    let d2 = 1;
    let last_second = |(_, to): Burst| (to - Duration::from_secs(1), to);
    let suffers = bursts().into_iter().all(|burst| {
        let frames = street.within(d2, 0, last_second(burst), 0);
        let mean = frames.iter().map(|shot| shot.psnr).sum::<f64>() / frames.len() as f64;
        mean < PSNR_MAX - CLOSE
    });
    let recovers = bursts()
        .into_iter()
        .all(|burst| street.within(d2, 1, burst, 3).iter().all(|shot| shot.bands & 1 == 1));
    let plain = arrived(&street.alone[0].plain, &street.video);
    let mean = plain.iter().sum::<f64>() / BANDS as f64;
    let (least, most) = (
        plain.iter().copied().fold(f64::INFINITY, f64::min),
        plain.iter().copied().fold(0.0, f64::max),
    );
    let windows = measure::histogram(&street.shots[d2][1]);
    let whole = street.shots[0][1].len() as u64 >= u64::from(SENT) - 1
        && [&head, &street]
            .iter()
            .all(|shown| shown.shots[0][1].iter().all(|s| s.psnr >= PSNR_MAX));
    let low = [&head, &street].iter().all(|shown| shown.broken[1][1] + shown.broken[2][1] == 0);
    let remark = |place: usize| {
        format!(
            "{:.1} and {:.1} dB; by itself {:.1} and {:.1} dB",
            street.psnr(place, 0),
            street.psnr(place, 1),
            by_itself(&street, place, |alone| &alone.plain),
            by_itself(&street, place, |alone| &alone.scaled),
        )
    };
    Ok(vec![
        row("D-95/bands", Value::Number(BANDS as f64, "sub-bands")),
        row("D-95/scaled", scaled),
        row("D-97/low", low),
        row("D-98/reaction", settled),
        row("D-98/layered", layered.unwrap_or_default()),
        row("D-99/share-one", mbit(street.alone[0].rate(&street.alone[0].plain))),
        row("D-99/share-two", mbit(street.alone[1].rate(&street.alone[1].plain))),
        row("D-99/undisturbed", whole),
        row("D-100/little", mbit(head.rate() / 1e6)),
        row("D-100/more", mbit(street.rate() / 1e6)),
        row("D-103/better-one", street.gain(1) >= GAIN).with_remark(remark(1)),
        row("D-103/better-two", street.gain(2) >= GAIN && head.gain(2) >= GAIN)
            .with_remark(remark(2)),
        row("D-104/plain-burst", suffers),
        row("D-104/recovers", recovers),
        row("D-105/random", least > mean / 2.0 && most < mean * 2.0).with_remark(format!(
            "of the rows of a band {:.0} to {:.0} % arrive, on average {:.0} %",
            least * 100.0,
            most * 100.0,
            mean * 100.0
        )),
        row("D-105/black", windows.iter().all(|counts| usize::from(counts[0]) == WINDOW)),
        row("D-105/prefix", street.shots[d2][1].iter().all(is_prefix)),
    ])
}

/// The mean PSNR in bursts at a congested link by itself.
fn by_itself(shown: &Shown, place: usize, way: fn(&Alone) -> &Outcome) -> f64 {
    let outcome = way(&shown.alone[place - 1]);
    measure::psnr_in_bursts(&shown.video, &bursts(), &outcome.shots())
}

/// PSNR over time (study 3, study 4), and how many of 8 frames had a band (Fig 8).
pub(super) fn plots(setting: &Setting<'_>) -> Result<Vec<Plot>, Error> {
    let mut plots = Vec::new();
    for sequence in Sequence::ALL {
        let shown = Shown::new(setting, sequence)?;
        let marks = || {
            let ends = bursts().into_iter().flat_map(|(from, to)| [(from, "burst"), (to, "end")]);
            ends.map(|(at, what)| (at.as_secs_f64(), what.to_owned())).collect::<Vec<_>>()
        };
        for (place, (host, _, cross)) in RECEIVERS.into_iter().enumerate().skip(1) {
            let layered = shown.alone[place - 1].layered.shots();
            let [plain, scaled] = &shown.shots[place];
            let curve = |name: &str, shots: &[Shot]| Series {
                name: name.to_owned(),
                points: shots
                    .iter()
                    .map(|shot| (shown.video.begins(shot.frame).as_secs_f64(), shot.psnr))
                    .collect(),
            };
            let curves = vec![
                curve("plain queueing", plain),
                curve("active", scaled),
                curve("layered multicast", &layered),
            ];
            let title = format!("{}, {host}: quality, cross streams: {cross}", sequence.name());
            let caption = "PSNR of luma of each frame, with two bursts of cross traffic.";
            let plot = Plot::new(title, caption, ("s", "dB"), curves).over_time().marked(marks());
            plots.push(plot);
        }
        // Beside one stream, all of the talking head fits.
        let place = if sequence == Sequence::TalkingHead { 2 } else { 1 };
        plots.push(share_of_bands(&shown, sequence, place));
    }
    Ok(plots)
}

/// Fig 8 as shares: in which part of the frames of bursts each band came whole.
fn share_of_bands(shown: &Shown, sequence: Sequence, place: usize) -> Plot {
    let ([plain, scaled], (host, ..)) = (&shown.shots[place], RECEIVERS[place]);
    let curve = |name: &str, shots: &[Shot]| {
        let within = |shot: &&Shot| measure::in_burst(&shown.video, &bursts(), shot.frame);
        let frames: Vec<&Shot> = shots.iter().filter(within).collect();
        let share = |band: usize| {
            let there = frames.iter().filter(|shot| shot.bands >> band & 1 == 1).count();
            (band as f64, 100.0 * there as f64 / frames.len().max(1) as f64)
        };
        Series { name: name.to_owned(), points: (0..BANDS).map(share).collect() }
    };
    let title = format!("{}, {host}: which sub-bands arrive whole in bursts", sequence.name());
    let caption = "Sub-bands by priority, from the lowest; Fig 8 has them in windows of 8 frames.";
    let curves = vec![curve("plain queueing", plain), curve("active", scaled)];
    Plot::new(title, caption, ("sub-band", "% of frames"), curves)
}
