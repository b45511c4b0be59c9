//! The Vidboard and its hosts: Tables 6 to 8 by simulation.

use super::super::{Computed, Setting, Value, row};
use super::{alike, wrong};
use crate::Error;
use crate::machines::vidboard::{
    Board, Capture, Host, Limit, Moment, Outcome, Picture, Shaping, Site,
};
use lastmeter_base::{Bytes, Duration, PerByte};
use lastmeter_host::profile::{Profile, StageProfile};
use lastmeter_lab::library::{Builtin, Library};
use lastmeter_lab::profile;
use lastmeter_ledger::plots::{Plot, Series};

const NAME: &str = "aurora-vidboard";
/// Seconds of video in each run.
const LENGTH: Duration = Duration::from_secs(24);
const FULL: Picture = Picture { width: 640, height: 480 };
const QUARTER: Picture = Picture { width: 320, height: 240 };
const SIXTEENTH: Picture = Picture { width: 160, height: 120 };
/// Table 6.
const BURSTS: [u64; 4] = [14, 28, 42, 56];
const LINES: [u64; 4] = [4, 16, 120, 480];

struct Study {
    /// The DEC 5000/200 with a VupBoard, and the Alpha.
    first: Host,
    alpha: Host,
    camera: Duration,
    dither: Duration,
    /// The Alpha's shaping.
    shaping: Shaping,
    interburst: [Duration; 4],
}

impl Study {
    fn read(setting: &Setting<'_>) -> Result<Study, Error> {
        let constants = setting.constants;
        let video: PerByte = constants.get("video_byte")?;
        // Half of the time per byte is spent on complete t-frames, half on display.
        let line = video.time_for(Bytes(FULL.width));
        let first = Host {
            port: constants.get("port")?,
            interrupt: constants.get("interrupt")?,
            read: constants.get("vup_cell")?,
            cell: Duration::ZERO,
            t_frame: constants.get("t_frame")?,
            frame: constants.get("frame")?,
            dither: Duration::ZERO,
        };
        let alpha = Host {
            interrupt: Duration::ZERO,
            read: Duration::ZERO,
            cell: line.scale_ceil(1, 2 * FULL.cells_per_line()),
            t_frame: Duration::ZERO,
            frame: Duration::ZERO,
            ..first
        };
        let interburst = |burst: u64| constants.get(&format!("interburst_{burst}"));
        let [a, b, c, d] = BURSTS;
        Ok(Study {
            first,
            alpha,
            camera: constants.get("camera")?,
            dither: constants.get("dither")?,
            shaping: Shaping {
                lines: constants.get("lines")?,
                burst: constants.get("burst")?,
                interburst: constants.get("interburst")?,
                interframe: Duration::ZERO,
            },
            interburst: [interburst(a)?, interburst(b)?, interburst(c)?, interburst(d)?],
        })
    }

    fn board(&self, picture: Picture, shaping: Shaping, capture: Capture) -> Board {
        let (camera, phase, dither) = (self.camera, Duration::ZERO, Duration::ZERO);
        Board { picture, camera, phase, capture, dither, shaping }
    }

    /// An entry of Table 6, from its own run.
    fn table_6(&self, burst: usize, lines: u64) -> Outcome {
        let shaping = Shaping {
            lines,
            burst: BURSTS[burst],
            interburst: self.interburst[burst],
            interframe: Duration::ZERO,
        };
        let board = self.board(FULL, shaping, Capture::Newest);
        Site::new(&[board], self.first).run(LENGTH)
    }

    /// `picture` on the Alpha, dithered by the board or not.
    fn alpha(&self, picture: Picture, dithered: bool) -> Outcome {
        let board = self.board(picture, self.shaping, Capture::Next);
        let dither = if dithered { self.dither } else { Duration::ZERO };
        Site::new(&[Board { dither, ..board }], self.showing(picture)).run(LENGTH)
    }

    /// The Alpha's costs for `picture`: displaying a frame takes as long as its cells.
    fn showing(&self, picture: Picture) -> Host {
        Host { frame: self.alpha.cell * picture.cells(), ..self.alpha }
    }
}

/// Checks that the profiles which the runs use have the interrupt and the time per byte of the experiment.
fn agrees(setting: &Setting<'_>) -> Result<(), Error> {
    let read = |name: &str| -> Result<Profile, Error> {
        let text = Builtin.profile("hosts", name).map_err(|found| wrong(NAME, found))?;
        let file = format!("hosts/{name}.toml");
        profile::host(&file, text.as_bytes(), &Builtin).map_err(Error::Problems)
    };
    let (first, alpha) = (read("dec5000-200-video")?, read("dec3000-400-video")?);
    let byte: PerByte = setting.constants.get("video_byte")?;
    let half = byte.time_for(Bytes(48)).as_ps() as f64 / 2.0;
    let near =
        |stage: &StageProfile| (stage.cost.per_packet.as_ps() as f64 / half - 1.0).abs() < 1e-3;
    match first.resources[0].interrupt == setting.constants.get("interrupt")?
        && alpha.receive.iter().all(near)
    {
        true => Ok(()),
        false => Err(wrong(NAME, "`interrupt` or `video_byte` is not what the profiles have")),
    }
}

pub(in super::super) fn tables(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let study = Study::read(setting)?;
    let mut computed = Vec::new();
    if setting.wants("A-103") || setting.wants("A-52") {
        computed.extend(table_6(&study));
    }
    computed.extend(table_7(&study));
    computed.extend(table_8(setting, &study)?);
    computed.extend(aggregate(setting, &study)?);
    agrees(setting)?;
    Ok(computed)
}

fn rate(value: f64) -> Value {
    Value::Number(value, "frames/s")
}

fn table_6(study: &Study) -> Vec<Computed> {
    let mut computed = Vec::new();
    let mut grid = [[0.0; 4]; 4];
    let (mut lost, mut busiest) = (0, Limit::Processor);
    for (at, burst) in BURSTS.into_iter().enumerate() {
        for (column, lines) in LINES.into_iter().enumerate() {
            let outcome = study.table_6(at, lines);
            lost += outcome.lost;
            grid[at][column] = outcome.rate(0);
            if outcome.limit() != Limit::Processor {
                busiest = outcome.limit();
            }
            computed.push(Computed::new(
                "A-103",
                format!("CB {burst}, LT {lines}"),
                rate(grid[at][column]),
            ));
        }
    }
    let column_rises = |column: usize| grid[1][column] > grid[0][column];
    let longer = grid.iter().all(|row| row.windows(2).all(|pair| pair[1] >= pair[0]));
    let rises = |row: &[f64; 4]| row.windows(2).all(|pair| pair[1] > pair[0]);
    let gain = |from: usize| grid[from + 1].iter().sum::<f64>() - grid[from].iter().sum::<f64>();
    computed.extend([
        row("A-103/larger-t-42", rises(&grid[2])),
        row("A-103/larger-t", longer),
        row("A-103/two-lines", (0..4).all(column_rises)),
        row("A-103/larger-burst", gain(0) > gain(1).max(gain(2))),
        row("A-52/these-delays", lost == 0),
        row("A-103/host-processor", busiest == Limit::Processor),
    ]);
    // The handler's time per burst: the interburst delay must not be shorter.
    let Host { interrupt, read, .. } = study.first;
    computed.extend(BURSTS.into_iter().map(|burst| {
        let least: Duration = interrupt + read * burst;
        Computed::new("A-52", format!("handler, CB {burst}, within the interburst delay"), least)
    }));
    computed
}

fn table_7(study: &Study) -> Vec<Computed> {
    let mut computed = Vec::new();
    let mut limits = Vec::new();
    for (picture, name) in [(FULL, "640x480"), (QUARTER, "320x240"), (SIXTEENTH, "160x120")] {
        for (dithered, kind) in [(false, "black and white"), (true, "dithered colour")] {
            let outcome = study.alpha(picture, dithered);
            let frames = outcome.rate(0);
            let data = frames * (picture.pixels() * 8) as f64 / 1e6;
            let cells = frames * (picture.cells() * 56 * 8) as f64 / 1e6;
            // 23 Mbit/s of 320x240 counts whole cells; all others count pixels.
            let counted = if (name, dithered) == ("320x240", false) { cells } else { data };
            computed.push(Computed::new("A-104", format!("{name}, {kind}"), rate(frames)));
            let counted = Value::Number(counted, "Mbit/s");
            computed.push(Computed::new("A-104", format!("{name}, {kind}, bits"), counted));
            limits.push(((name, dithered), outcome.limit()));
        }
    }
    let limit = |wanted| limits.iter().find(|&&(of, _)| of == wanted).map(|&(_, limit)| limit);
    let camera = limit(("320x240", false)) == Some(Limit::Camera)
        && limit(("160x120", false)) == Some(Limit::Camera);
    computed.extend([
        row("A-106/small-pictures", camera),
        row("A-106/full-resolution", limit(("640x480", false)) == Some(Limit::RoundTrip)),
        row("A-106/eight-bits", limit(("640x480", true)) == Some(Limit::Firmware)),
    ]);
    computed
}

/// Pictures in which the Alpha detects edges before it displays them.
fn table_8(setting: &Setting<'_>, study: &Study) -> Result<Vec<Computed>, Error> {
    let edge: Duration = setting.constants.get("edge")?;
    let pictures = [FULL, QUARTER, Picture { width: 212, height: 160 }, SIXTEENTH];
    let row = |picture: Picture| {
        let (showing, pixels) = (study.showing(picture), picture.pixels());
        let frame = showing.frame + edge.scale_ceil(pixels, QUARTER.pixels());
        let board = study.board(picture, study.shaping, Capture::Next);
        let shown = Site::new(&[board], Host { frame, ..showing }).run(LENGTH).rate(0);
        let Picture { width, height } = picture;
        Computed::new("A-108", format!("{width}x{height}, Edge"), rate(shown))
    };
    Ok(pictures.map(row).into())
}

/// Several boards at one host, and dithering by the host.
fn aggregate(setting: &Setting<'_>, study: &Study) -> Result<Vec<Computed>, Error> {
    let board = study.board(FULL, study.shaping, Capture::Next);
    let third = study.camera.scale_ceil(1, 3);
    let boards: Vec<Board> = (0..3).map(|at| Board { phase: third * at, ..board }).collect();
    let together = Site::new(&boards, study.showing(FULL)).run(LENGTH);
    let bits = together.total() * (FULL.pixels() * 8) as f64 / 1e6;
    let host_dither: Duration = setting.constants.get("host_dither")?;
    let full_colour = Host { dither: host_dither, ..study.showing(FULL) };
    let coloured = Site::new(&[board], full_colour).run(LENGTH);
    // Two windows on the first host, which a single one saturates.
    let shaping =
        Shaping { lines: 480, burst: 28, interburst: study.interburst[1], ..study.shaping };
    let window = study.board(FULL, shaping, Capture::Newest);
    let one = Site::new(&[window], study.first).run(LENGTH).rate(0);
    let other = Board { phase: third, ..window };
    let two = Site::new(&[window, other], study.first).run(LENGTH);
    let fair = (two.rate(0) / two.rate(1) - 1.0).abs() < 0.1;
    // Table 9's WindowSink only displays: its time per byte.
    let window_sink: Duration = setting.constants.get("window_sink")?;
    let shown = PerByte::from_fs(window_sink.as_ps() * 1000 / QUARTER.pixels());
    let video: PerByte = setting.constants.get("video_byte")?;
    Ok(vec![
        row("A-105/streams-together", (bits, "Mbit/s")),
        row("A-105/frames-640x480", rate(together.total())),
        row("A-105/host-processor", together.limit() == Limit::Processor),
        row("A-105/byte-takes", alike_within(shown, video, 0.01)),
        row("A-106/24-bits", coloured.limit() == Limit::HostDither),
        row("A-54/second-window", (100.0 * two.rate(0) / one, "%")),
        row("A-54/both-windows", fair),
    ])
}

fn alike_within(a: PerByte, b: PerByte, share: f64) -> bool {
    alike(a, b) || (a.as_fs() as f64 / b.as_fs() as f64 - 1.0).abs() < share
}

/// The pipeline of one frame and the start of the next, for two shapings of Table 6.
pub(in super::super) fn plots(setting: &Setting<'_>) -> Result<Vec<Plot>, Error> {
    let study = Study::read(setting)?;
    let plot = |burst: usize, lines: u64, length: Duration, caption: &str| {
        let shaping = Shaping {
            lines,
            burst: BURSTS[burst],
            interburst: study.interburst[burst],
            interframe: Duration::ZERO,
        };
        let board = study.board(FULL, shaping, Capture::Newest);
        let moments = Site::new(&[board], study.first).watched(length);
        // Nothing happens between two events.
        let curve = |name: &str, value: fn(&Moment) -> u64| {
            let mut points = vec![(0.0, 0.0)];
            for moment in &moments {
                let at = moment.at.since_start().as_secs_f64() * 1e3;
                let (before, after) = (points[points.len() - 1].1, value(moment) as f64);
                if before != after {
                    points.extend([(at, before), (at, after)]);
                }
            }
            let last = points[points.len() - 1].1;
            points.push((length.as_secs_f64() * 1e3, last));
            Series { name: name.to_owned(), points }
        };
        Plot::new(
            format!("Table 6: progress of a frame, CB {}, LT {lines}", BURSTS[burst]),
            caption,
            ("ms", "cells, since the beginning"),
            vec![
                curve("sent in bursts", |moment| moment.sent),
                curve("read by the handler", |moment| moment.read),
                curve("in t-frames", |moment| moment.reassembled),
                curve("shown", |moment| moment.shown),
            ],
        )
        .over_time()
    };
    let frames = Duration::from_ms(180);
    Ok(vec![
        plot(
            3,
            16,
            Duration::from_us(6500),
            "Four scan lines arrive at once and an interrupt reads them cell by cell. After \
             sixteen, the processor reassembles them in the time that the handler leaves.",
        ),
        plot(
            0,
            4,
            frames,
            "An interrupt for each scan line, work for every fourth: the processor has no time but \
             for the handler, and puts the t-frames together when the last burst is read.",
        ),
        plot(
            3,
            480,
            frames,
            "Four scan lines in a burst and one t-frame: the board's interburst delay takes all of \
             a frame's time, except its display.",
        ),
    ])
}
