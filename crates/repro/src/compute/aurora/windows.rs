//! Video between elements, as run files have it: board, switch, and
//! a workstation with a profile, cell by cell.

use super::super::vunet::{counters, run};
use super::super::{Computed, Setting, Value};
use super::{Runs, busiest, holds, row};
use crate::Error;
use lastmeter_base::Duration;
use lastmeter_host::profile::Profile;
use lastmeter_lab::library::{Builtin, Library};
use lastmeter_lab::profile;
use lastmeter_ledger::{Ledger, Resource};

const NAME: &str = "aurora-vidboard";
const LENGTH: Duration = Duration::from_ms(2400);
const RUNS: Runs<'_> = Runs { name: NAME, library: &Builtin, length: LENGTH };
/// In use for less than this share, and nothing limits but waiting for each other.
const IN_USE: f64 = 0.7;

/// What came of a run.
struct Seen {
    /// Frames a second of each window.
    rates: Vec<f64>,
    /// Requests besides one for each frame, of all windows.
    ahead: u64,
    /// Frames of which something was missing, and repeated requests.
    wrong: u64,
    ledger: Ledger,
}

/// A workstation of this profile and a window for each description of its video.
fn watch(profile: &str, windows: &[String], length: Duration) -> Result<Seen, Error> {
    let mut text = format!(
        "title = \"video\"\nduration = \"{} ps\"\n[nodes]\n\
         office = {{ vunet-switch = {{ ports = 6 }} }}\n\
         alpha = {{ host = {{ profile = \"{profile}\" }} }}\n",
        length.as_ps()
    );
    let link = |from: &str, to: &str| {
        format!(
            "[[links]]\nbetween = [\"{from}\", \"{to}\"]\nrate = \"500 Mbit/s\"\n\
             queue = {{ drop-tail = {{ packets = 256 }} }}\n"
        )
    };
    (0..windows.len()).for_each(|at| text += &format!("camera-{at} = {{ host = {{}} }}\n"));
    text += &link("office", "alpha");
    for (at, window) in windows.iter().enumerate() {
        text += &link(&format!("camera-{at}"), "office");
        text += &format!(
            "[[traffic]]\nname = \"window {at}\"\nfrom = \"camera-{at}\"\nto = \"alpha\"\n\
             vidboard = {{ timeout = \"2 s\", {window} }}\n"
        );
    }
    let experiment = RUNS.parse(text)?;
    let outcome = run(&experiment, false)?;
    let of = |counter: &str| counters(&outcome, "alpha sees", counter);
    let frames = of("frames");
    // The first command of a window asks for its video, the second for its first frame.
    let asked: u64 = of("requests").iter().sum();
    let ahead = asked - frames.iter().sum::<u64>() - windows.len() as u64;
    Ok(Seen {
        rates: frames.iter().map(|&count| count as f64 / length.as_secs_f64()).collect(),
        ahead,
        wrong: of("incomplete").iter().chain(&of("timeouts")).sum(),
        ledger: RUNS.ledger(&experiment)?,
    })
}

/// How a window describes its video, as the experiment's constants shape it for the Alpha.
fn video(
    setting: &Setting<'_>,
    (width, height, depth): (u64, u64, u64),
    dither: Duration,
) -> Result<String, Error> {
    let constants = setting.constants;
    let (lines, burst): (u64, u64) = (constants.get("lines")?, constants.get("burst")?);
    let interburst: Duration = constants.get("interburst")?;
    Ok(format!(
        "width = {width}, height = {height}, depth = {depth}, lines = {lines}, burst = {burst}, \
         burst-delay = \"{} ps\", answer = \"next\", dither = \"{} ps\"",
        interburst.as_ps(),
        dither.as_ps()
    ))
}

pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    agrees(setting)?;
    let none = Duration::ZERO;
    let dither: Duration = setting.constants.get("dither")?;
    let alpha = |picture, dither| -> Result<Seen, Error> {
        watch("dec3000-400-video", &[video(setting, picture, dither)?], LENGTH)
    };
    let full = alpha((640, 480, 8), none)?;
    let coloured = alpha((640, 480, 8), dither)?;
    let small = alpha((160, 120, 8), none)?;
    let quarter = alpha((320, 240, 8), dither)?;
    let deep = video(setting, (320, 240, 24), none)?;
    let deep = watch("dec3000-400-dithers", &[deep], LENGTH.scale_ceil(1, 4))?;
    let mut computed = Vec::new();
    for (item, seen) in [
        ("640x480, black and white", &full),
        ("640x480, dithered colour", &coloured),
        ("320x240, dithered colour", &quarter),
        ("160x120, black and white", &small),
    ] {
        let rate = Value::Number(seen.rates[0], "frames/s");
        computed.push(row("A-104", &format!("{item}, between elements"), rate));
    }
    computed.extend([
        holds(
            "A-106",
            "the ledger names the camera's signal",
            busiest(&small.ledger) == "camera-0.signal",
        ),
        holds("A-106", "the ledger names no resource at full resolution", {
            full.ledger.resources.iter().all(|resource| used(resource) < IN_USE)
        }),
        holds(
            "A-106",
            "the ledger names the firmware",
            busiest(&coloured.ledger) == "camera-0.firmware",
        ),
        holds(
            "A-106",
            "the ledger names the processor, which dithers most of the time that it works",
            busiest(&deep.ledger) == "alpha.cpu" && dithers(&deep.ledger),
        ),
    ]);
    computed.extend(windows(setting)?);
    Ok(computed)
}

fn used(resource: &Resource) -> f64 {
    resource.utilisation()
}

/// Whether the processor is in use for dithering more than for any other stage.
fn dithers(ledger: &Ledger) -> bool {
    let cpu = ledger.resources.iter().find(|resource| resource.name == "alpha.cpu");
    let most = cpu.and_then(|cpu| cpu.by_stage.iter().max_by(|a, b| a.1.total_cmp(b.1)));
    most.is_some_and(|(stage, _)| stage == "alpha dither")
}

/// One window and two on the first host.
fn windows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let delay: Duration = setting.constants.get("interburst_28")?;
    let window = |phase: u64| {
        let delay = delay.as_ps();
        format!("lines = 16, burst = 28, burst-delay = \"{delay} ps\", phase = \"{phase} ms\"")
    };
    let one = watch("dec5000-200-video", &[window(0)], LENGTH)?;
    let two = watch("dec5000-200-video", &[window(0), window(11)], LENGTH)?;
    let share = 100.0 * two.rates[0] / one.rates[0];
    Ok(vec![
        row("A-103", "CB 28, LT 16, between elements", Value::Number(one.rates[0], "frames/s")),
        row(
            "A-54",
            "second window, share of the first alone, between elements",
            Value::Number(share, "%"),
        ),
        holds("A-49", "a command cell asks for each frame, and none is asked for twice", {
            one.ahead <= 1 && two.ahead <= 2
        }),
        holds("A-48", "no frame is damaged, and no request repeated", one.wrong + two.wrong == 0),
    ])
}

/// The profiles have the constants of the experiment.
fn agrees(setting: &Setting<'_>) -> Result<(), Error> {
    let constants = setting.constants;
    let read = |name: &str| -> Result<Profile, Error> {
        let text = Builtin.profile("hosts", name).map_err(|wrong| RUNS.wrong(wrong))?;
        let file = format!("hosts/{name}.toml");
        profile::host(&file, text.as_bytes(), &Builtin).map_err(Error::Problems)
    };
    let check = |constant: &str, same: bool| match same {
        true => Ok(()),
        false => Err(RUNS.wrong(format!("`{constant}` is not what the profiles have"))),
    };
    let first = read("dec5000-200-video")?;
    check("interrupt", first.resources[0].interrupt == constants.get("interrupt")?)?;
    check("vup_cell", first.receive[0].cost.per_packet == constants.get("vup_cell")?)?;
    check("t_frame", first.receive[1].per_pdu == constants.get("t_frame")?)?;
    check("frame", first.send[0].per_pdu == constants.get("frame")?)?;
    let alpha = read("dec3000-400-video")?;
    let byte: lastmeter_base::PerByte = constants.get("video_byte")?;
    let half = byte.time_for(lastmeter_base::Bytes(48)).as_ps() as f64 / 2.0;
    let near = |stage: &lastmeter_host::profile::StageProfile| {
        (stage.cost.per_packet.as_ps() as f64 / half - 1.0).abs() < 1e-3
    };
    check("video_byte", alpha.receive.iter().all(near))
}
