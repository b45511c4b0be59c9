//! `lastmeterd wave film`: the studies of Wave Video as a table, figures, and films of both ways side by side.
//!
//! The synthetic sequences, and a clip where there is one, over the congested link by itself: plain queueing,
//! layered multicast, the plugin in its sandbox. Beside them x264, if ffmpeg is there, at the rate that the
//! plugin lets through.

use super::draw;
use crate::model::Sandbox;
use crate::{Complaint, Report};
use lastmeter_base::{Bytes, Duration, Time};
use lastmeter_lab::library::{Builtin, Library};
use lastmeter_ledger::html::curves;
use lastmeter_wave::Picture;
use lastmeter_wave::layered::{Layered, Timers};
use lastmeter_wave::measure::Burst;
use lastmeter_wave::picture::QCIF;
use lastmeter_wave::sequence::{FRAMES_PER_SECOND, Sequence};
use lastmeter_wave::stream::{Film as Packets, HEADERS_LEN, Judge, Options};
use lastmeter_wave::study::{Case, Filter, LINE, Outcome, Plain, Scaler, Waiting, run_judged};
use serde_json::{Value, json};
use std::fmt::Write;
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Frames until a sequence repeats; 6 s.
const FRAMES: u32 = 72;
/// Frames that are sent; 20 s.
const SENT: u32 = 240;
/// Frames of a film: before, in and after the first burst.
const SHOWN: std::ops::Range<usize> = 36..132;
/// Where Debian's `opencv-doc` has a clip of people who walk past a still camera.
const CLIP: &str = "/usr/share/doc/opencv-doc/examples/data/vtest.avi";
const MODULE: &str = "../../examples/plugins/wave-scaler.wasm";

#[derive(clap::Args)]
pub(crate) struct Film {
    /// The folder of figures and films
    out: PathBuf,
    /// A clip, which ffmpeg scales to QCIF at 12 frames/s [default: vtest.avi of Debian's opencv-doc, if it is there]
    #[arg(long)]
    clip: Option<PathBuf>,
}

/// Something to be seen.
struct Source {
    name: String,
    video: Options,
    pictures: Vec<Picture>,
    film: Packets,
}

impl Source {
    fn made(sequence: Sequence) -> Source {
        let video = Options::new(sequence, FRAMES);
        let pictures: Vec<Picture> = (0..FRAMES).map(|frame| video.picture(frame)).collect();
        Source::new(sequence.name().to_owned(), video, pictures)
    }
    fn new(name: String, video: Options, pictures: Vec<Picture>) -> Source {
        let video = Options { frames: pictures.len() as u32, ..video };
        let film = video.film_of(pictures.iter().cloned());
        Source { name, video, pictures, film }
    }
    fn clip(path: &Path) -> Result<Source, Complaint> {
        let (width, height) = (u32::from(QCIF.0) * 16, u32::from(QCIF.1) * 16);
        let scale = format!("fps={FRAMES_PER_SECOND},scale={width}:{height}:flags=area");
        let mut ffmpeg = ffmpeg();
        ffmpeg.arg("-i").arg(path).args(["-vf", &scale, "-frames:v", &SENT.to_string()]);
        ffmpeg.args(["-pix_fmt", "yuv420p", "-f", "rawvideo", "-"]);
        let pictures = pictures(&output(ffmpeg, &[])?);
        if pictures.is_empty() {
            return Err(Complaint(format!("{}: ffmpeg found no pictures in it", path.display())));
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Source::new(name, Options::new(Sequence::Panning, 1), pictures))
    }
    /// Its rate in bit/s, headers of IP and UDP included.
    fn rate(&self) -> f64 {
        let bytes: usize =
            self.film.iter().flatten().map(|packet| packet.len() + HEADERS_LEN).sum();
        bytes as f64 * 8.0 / self.video.begins(self.video.frames).as_secs_f64()
    }
    fn run(&self, case: &Case, filter: &mut dyn Filter) -> Outcome {
        run_judged(case, &self.film, Judge::of(self.video, &self.pictures), filter)
    }
}

fn ffmpeg() -> Command {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-loglevel", "error"]);
    command
}

/// What a program prints of what it is given.
fn output(mut command: Command, input: &[u8]) -> Result<Vec<u8>, Complaint> {
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| Complaint(format!("{name}: {error}")))?;
    let mut stdin = child.stdin.take();
    let output = std::thread::scope(|scope| {
        // A program that has seen enough closes its input.
        scope.spawn(move || stdin.take().map(|mut stdin| stdin.write_all(input)));
        child.wait_with_output()
    })?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => {
            Err(Complaint(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim())))
        }
    }
}

/// QCIF pictures from luma and both chromas of each.
fn pictures(bytes: &[u8]) -> Vec<Picture> {
    let empty = Picture::new(QCIF.0, QCIF.1);
    let lens = empty.samples.each_ref().map(Vec::len);
    let frames = bytes.chunks_exact(lens.iter().sum());
    let picture = |frame: &[u8]| {
        let mut picture = empty.clone();
        let mut rest = frame;
        for samples in &mut picture.samples {
            let (own, others) = rest.split_at(samples.len());
            samples.copy_from_slice(own);
            rest = others;
        }
        picture
    };
    frames.map(picture).collect()
}

fn bursts() -> Vec<Burst> {
    let burst = |from: u64, to: u64| (Duration::from_secs(from), Duration::from_secs(to));
    vec![burst(4, 8), burst(11, 17)]
}

pub(crate) fn film(arguments: &Film) -> Result<Report, Complaint> {
    let out = &arguments.out;
    std::fs::create_dir_all(out)?;
    let mut module = Vec::new();
    Builtin.open(MODULE)?.read_to_end(&mut module)?;
    let sandbox = Sandbox::default();
    let loading = Instant::now();
    let mut scaler = Scaler::new(&sandbox, &module, 1)?;
    let loaded = loading.elapsed().as_secs_f64();
    let cost = cost(&mut scaler);
    let mut text = format!(
        "the plugin: {} bytes, checked, compiled and made in {:.1} ms; a decision takes {:.0} ns, \
         one packet at a time\n",
        module.len(),
        loaded * 1e3,
        cost * 1e9
    );
    let mut json = vec![json!({ "module": module.len(), "loaded": loaded, "decision": cost })];
    let mut sources: Vec<Source> = Sequence::ALL.into_iter().map(Source::made).collect();
    match &arguments.clip {
        Some(clip) => sources.push(Source::clip(clip)?),
        None if Path::new(CLIP).exists() => sources.push(Source::clip(Path::new(CLIP))?),
        None => text += "no clip: apt-get install opencv-doc, or --clip FILE\n",
    }
    let mut plots = Vec::new();
    for source in &sources {
        let _ = writeln!(text, "{}: {:.2} Mbit/s without loss", source.name, source.rate() / 1e6);
        for cross in [1, 2] {
            let case = Case { video: source.video, frames: SENT, cross, bursts: bursts() };
            let ways = [
                ("plain", source.run(&case, &mut Plain)),
                ("layered", source.run(&case, &mut Layered::new(Timers::default()))),
                ("scaled", source.run(&case, &mut Scaler::new(&sandbox, &module, 1)?)),
            ];
            let [(_, plain), _, (_, scaled)] = &ways;
            let name = format!("{}-{cross}", source.name);
            let bands = out.join(format!("{name}-bands.png"));
            let in_burst = |frame| case.in_burst(frame);
            draw::histograms(&bands, &in_burst, &plain.shots(), &scaled.shots())?;
            draw::film(&out.join(format!("{name}-film.png")), &case, plain, scaled, SHOWN)?;
            plots.push(draw::psnr(&name, &case, &ways));
            for (way, outcome) in &ways {
                let (words, line) = row(&name, way, &case, outcome);
                text += &words;
                json.push(line);
            }
            match x264(source, &case, scaled) {
                Ok(Some((words, line))) => {
                    text += &words;
                    json.push(line);
                }
                Ok(None) => text += "  x264: nothing was dropped\n",
                Err(Complaint(words)) => {
                    let _ = writeln!(text, "  x264: {words}");
                }
            }
        }
    }
    let page = out.join("wave-video.html");
    std::fs::write(&page, curves("Wave Video: plain queueing, layers, scaling", &plots))?;
    let _ = writeln!(
        text,
        "{}: figures; beside it NAME-film.png, animated, and NAME-bands.png",
        page.display()
    );
    Ok(Report { text, json, good: true })
}

fn row(name: &str, way: &str, case: &Case, outcome: &Outcome) -> (String, Value) {
    let last = case.bursts[case.bursts.len() - 1];
    let (from, to) = last;
    let settled = outcome.settled(last, 1.0 / f64::from(1 + case.cross));
    let psnr = outcome.psnr_in_bursts(case);
    let rate = outcome.arrival_rate(from + Duration::from_secs(1), to);
    let words = format!(
        "  {} cross, {way:8} {psnr:6.2} dB in bursts, least {:5.2} dB; {:.2} Mbit/s arrive; \
         {} of {} frames broken; settled after {:.0} ms; {} dropped by the queue\n",
        case.cross,
        outcome.judge.least,
        rate / 1e6,
        outcome.judge.broken,
        outcome.judge.frames,
        settled.as_secs_f64() * 1e3,
        outcome.dropped,
    );
    let line = json!({
        "name": name, "way": way, "psnr": psnr, "least": outcome.judge.least, "rate": rate,
        "broken": outcome.judge.broken, "frames": outcome.judge.frames,
        "settled": settled.as_secs_f64(), "dropped": outcome.dropped,
    });
    (words, line)
}

/// x264 at the rate at which the scaled stream arrives in the last burst: with prediction from frame to frame, and with
/// every frame by itself, as ours are. Nothing of it is lost, which is more than it would get.
fn x264(
    source: &Source,
    case: &Case,
    scaled: &Outcome,
) -> Result<Option<(String, Value)>, Complaint> {
    if scaled.denied == 0 {
        return Ok(None);
    }
    let (from, to) = case.bursts[case.bursts.len() - 1];
    let rate = scaled.arrival_rate(from + Duration::from_secs(1), to);
    let ways = [("predicted", "250"), ("each by itself", "1")];
    let mut psnr = Vec::new();
    for (_, group) in ways {
        psnr.push(x264_psnr(source, rate, group)?);
    }
    let words = format!(
        "  {} cross, x264     {:6.2} dB at {:.2} Mbit/s, nothing lost; with each frame \
         by itself {:.2} dB\n",
        case.cross,
        psnr[0],
        rate / 1e6,
        psnr[1]
    );
    let name = format!("{}-{}", source.name, case.cross);
    let line =
        json!({ "name": name, "way": "x264", "rate": rate, "psnr": psnr[0], "intra": psnr[1] });
    Ok(Some((words, line)))
}

fn x264_psnr(source: &Source, rate: f64, group: &str) -> Result<f64, Complaint> {
    let raw: Vec<u8> = source
        .pictures
        .iter()
        .flat_map(|picture| picture.samples.iter().flatten())
        .copied()
        .collect();
    let (size, fps) =
        (format!("{}x{}", u32::from(QCIF.0) * 16, u32::from(QCIF.1) * 16), FRAMES_PER_SECOND);
    let rate = format!("{rate:.0}");
    let mut encode = ffmpeg_of_pipe(&["-f", "rawvideo", "-pix_fmt", "yuv420p", "-s", &size]);
    encode.args(["-r", &fps.to_string(), "-i", "-", "-c:v", "libx264", "-preset", "medium"]);
    encode.args(["-b:v", &rate, "-maxrate", &rate, "-bufsize", &rate, "-g", group]);
    encode.args(["-tune", "psnr", "-f", "h264", "-"]);
    let coded = output(encode, &raw)?;
    let mut decode = ffmpeg_of_pipe(&["-f", "h264", "-i", "-"]);
    decode.args(["-f", "rawvideo", "-pix_fmt", "yuv420p", "-"]);
    let shown = pictures(&output(decode, &coded)?);
    let pairs = source.pictures.iter().zip(&shown);
    Ok(pairs.map(|(ours, theirs)| ours.psnr(theirs)).sum::<f64>() / shown.len().max(1) as f64)
}

fn ffmpeg_of_pipe(arguments: &[&str]) -> Command {
    let mut command = Command::new("ffmpeg");
    command.args(["-loglevel", "error"]).args(arguments);
    command
}

/// What a decision costs in seconds, one packet at a time, the way into the sandbox and back included.
fn cost(scaler: &mut Scaler) -> f64 {
    const ROUNDS: u32 = 200;
    let film = Options::new(Sequence::Panning, 1).film();
    let packet = |payload: &Vec<u8>| {
        let address = std::net::Ipv4Addr::new(10, 0, 0, 1);
        let mut bytes = Vec::new();
        lastmeter_wave::stream::emit(address, address, 1, payload, &mut bytes);
        bytes
    };
    let packets: Vec<Vec<u8>> = film[0].iter().map(packet).collect();
    let waiting = Waiting { len: Bytes(0), share: 500_000, rate: LINE };
    let round = |scaler: &mut Scaler| {
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            for packet in &packets {
                scaler.passes(Time::START, packet, &waiting);
            }
        }
        begun.elapsed().as_secs_f64() / (f64::from(ROUNDS) * packets.len() as f64)
    };
    (0..20).map(|_| round(scaler)).fold(f64::INFINITY, f64::min)
}
