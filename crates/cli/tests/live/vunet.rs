//! The live VuNet as its user starts it, on a small site: three switches in a row, and a fourth across a wide area.
//!
//! Rows: A-01, A-05, A-17, A-24, A-25, A-26, A-27, A-29, A-69, A-70, A-71, A-72, A-89.

use crate::attempts::in_time;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const SITE: &str = r#"
title = "A small VuNet"
duration = "1 s"
[nodes]
north = { vunet-switch = {} }
middle = { vunet-switch = { ports = 4 } }
south = { vunet-switch = {} }
west = { vunet-switch = { ports = 4 } }
link-1 = { vunet-link = {} }
link-2 = { vunet-link = {} }
av-1 = { avlink = {} }
carrier = { router = {} }
av-2 = { avlink = {} }
camera-n = { host = {} }
camera-s = { host = {} }
alpha = { host = {} }
beta = { host = {} }
gamma = { host = {} }
[[links]]
between = [["north", "link-1", "middle"], ["middle", "link-2", "south"], ["north", "av-1"], ["av-2", "west"]]
rate = "500 Mbit/s"
queue = { drop-tail = { packets = 256 } }
[[links]]
between = ["av-1", "carrier", "av-2"]
rate = "149.76 Mbit/s"
delay = "2 ms"
[[links]]
between = [["camera-n", "north"], ["camera-s", "south"], ["alpha", "north"], ["beta", "south"], ["gamma", "west"]]
rate = "500 Mbit/s"
queue = { drop-tail = { packets = 256 } }
[[traffic]]
name = "across the room"
from = "camera-s"
to = "alpha"
vidboard = { width = 160, height = 120, timeout = "300 ms" }
[[traffic]]
name = "far away"
from = "camera-n"
to = "gamma"
vidboard = { width = 160, height = 120, timeout = "300 ms" }
"#;

/// Runs it; its result, and whether the status says that it fell short.
fn run(folder: &Path) -> (Value, bool) {
    let file = folder.join("site.toml");
    std::fs::write(&file, SITE).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lastmeter"));
    let output = command.arg("live").arg(&file).args(["--json", "--quick"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let status = output.status.code();
    assert!(matches!(status, Some(0 | 1)), "{status:?} {errors}");
    (serde_json::from_slice(&output.stdout).expect(&errors), status == Some(1))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is a number"))
}

/// Cells on real sockets, between namespaces: everything that the model of the same file does.
pub(crate) fn a_small_site_discovers_opens_watches_and_repairs_itself() {
    let folder = tempfile::tempdir().unwrap();
    let (result, short) = run(folder.path());
    let vunet = &result["vunet"];
    // Every host has found every port of every switch, and the wide area's link (A-72).
    in_time!(vunet["discovery"]["right"] == true, "{:#}", vunet["discovery"]);
    assert_eq!(vunet["discovery"]["switches"], 4);
    // One answer behind no link, one, two, and across the wide area (A-69, A-29).
    let set_up = vunet["set_up"].as_array().unwrap();
    let places: Vec<_> = set_up.iter().map(|one| (&one["links"], &one["wide"])).collect();
    assert_eq!(places.len(), 3, "{places:?}");
    for one in set_up {
        in_time!(one["failed"] == 0, "{one}");
        let application = number(&one["application"]["answered"]);
        let hops = number(&one["hop_by_hop"]["answered"]);
        // The wide area delays each direction by 4 ms, and the data behind the control cells by no more than them;
        // a path that is reserved hop by hop carries data after a round trip more.
        let (soon, late) =
            (number(&one["application"]["data"]), number(&one["hop_by_hop"]["data"]));
        match one["wide"].as_bool() {
            Some(true) => {
                assert!(
                    application >= 8e-3 && hops >= 8e-3 && soon >= 4e-3 && late >= 12e-3,
                    "{one}"
                );
            }
            _ => assert!(number(&one["application"]["model"]) < application, "{one}"),
        }
        in_time!(soon < late, "data follows control cells at once: {one}");
    }
    // Both viewers see frames, one of them across the wide area with the same program (A-01, A-25, A-89).
    for (view, links) in vunet["video"].as_array().unwrap().iter().zip([2, 1]) {
        assert_eq!(view["links"], links);
        in_time!(number(&view["frames"]["here"]) >= 1.0, "{view}");
        assert!(number(&view["frames"]["model"]) > 1.0);
    }
    // No application wrote another's entry (A-70), and cells were mapped at every half (A-26, A-27).
    let of = |name: &'static str| {
        let all = result["counters"].as_array().unwrap().iter();
        all.filter(move |one| one["name"] == name).map(|one| number(&one["value"]))
    };
    assert!(of("refused").all(|count| count == 0.0) && of("mapped").all(|count| count > 0.0));
    // Half a link was killed: the refresher wrote it again (A-71).
    let restart = &vunet["restart"];
    in_time!(restart["repaired"] == true, "{restart}");
    assert!(number(&restart["lost"]) >= 100.0 && number(&restart["written"]) >= 1.0, "{restart}");
    // The switch alone moved cells (A-17, A-24).
    assert!(vunet["switch"].as_array().unwrap().iter().all(|one| number(&one["rate"]) > 1000.0));
    assert_eq!(vunet["cells"]["damaged"], 0);
    // The status says what the certificate says.
    assert_eq!(vunet["good"] == true, !short);
}

/// Pictures of the film that cameras see: each pixel of each is its own.
const FILM: (usize, usize) = (160 * 120, 400);

fn picture(number: usize) -> Vec<u8> {
    (0..FILM.0).map(|at| (at * 7 + at / 160 * 31 + number * 13 + number / 20 * at) as u8).collect()
}

/// A program that knows nothing of cells reads a camera at the other edge of the network (A-05): its pictures are those
/// of the film, byte for byte, and came through every switch on the way and no other.
pub(crate) fn a_program_gets_its_pictures_through_the_switches() {
    let has = |program: &str| Command::new(program).arg("-version").output().is_ok();
    if !has("ffmpeg") {
        println!("SKIP: ffmpeg is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (site, film) = (folder.path().join("site.toml"), folder.path().join("film.y4m"));
    std::fs::write(&site, SITE).unwrap();
    let mut bytes = b"YUV4MPEG2 W160 H120 F30:1 Ip A1:1 Cmono\n".to_vec();
    for number in 0..FILM.1 {
        bytes.extend_from_slice(b"FRAME\n");
        bytes.extend(picture(number));
    }
    std::fs::write(&film, bytes).unwrap();
    let run = |more: &[&str], program: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lastmeter"));
        command.args(["live", "--json", "--film"]).arg(format!("camera-s={}", film.display()));
        command.arg(&site).args(more).arg("--").args(program).current_dir(&folder);
        command.output().unwrap()
    };
    const WANTED: usize = 12;
    let program = ["-nostdin", "-loglevel", "error", "-i", "vunet:camera-s", "-frames:v", "12"];
    let program = [&["ffmpeg"], &program[..], &["-f", "rawvideo", "seen.raw"]].concat();
    let output = run(&[], &program);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{:?} {errors}", output.status);
    let result: Value = serde_json::from_slice(&output.stdout).expect(&errors);
    let vunet = &result["vunet"];
    assert_eq!(vunet["programs"][0]["status"], 0, "{vunet:#}");
    assert_eq!(
        (&vunet["programs"][0]["host"], &vunet["shown"][0]["links"]),
        (&"alpha".into(), &2.into())
    );
    let seen = std::fs::read(folder.path().join("seen.raw")).unwrap();
    assert_eq!(seen.len(), WANTED * FILM.0);
    let mut next = 0;
    for one in seen.chunks(FILM.0) {
        let found = (next..FILM.1).find(|&number| picture(number) == one);
        next = found.expect("a later picture of the film, whole and unchanged") + 1;
    }
    // A cell carries 48 bytes.
    let given = number(&vunet["shown"][0]["given"]);
    let least = given * (FILM.0 / 48) as f64;
    assert!(given >= WANTED as f64 && number(&vunet["shown"][0]["cells"]) >= least, "{vunet:#}");
    for switch in vunet["crossed"].as_array().unwrap() {
        let (name, cells) = (&switch["name"], number(&switch["cells"]));
        assert!((cells >= least) == (name != "west"), "{name}: {cells} of {least}");
        assert!(cells == 0.0 || name != "west", "nothing goes there: {cells}");
    }
    // The program's status is the run's; a camera or a host that is none is said before anything runs.
    assert_eq!(
        run(&["--in", "beta"], &["sh", "-c", "exit 3", "--", "sh", "-c", "exit 7"]).status.code(),
        Some(7)
    );
    for (more, program, says) in [
        (&[][..], &["true", "vunet:camera-x"][..], "there are cameras camera-s, camera-n"),
        (&["--in", "camera-n"], &["true"], "a host that is no camera"),
        (&["--film", "alpha=film.y4m"], &["true"], "`alpha` is no camera"),
        (&["--film", "camera-n=none"], &["true"], "none"),
    ] {
        let output = run(more, program);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && errors.contains(says), "{errors}");
    }
}

/// What a live VuNet cannot do is refused with what would be right.
pub(crate) fn other_traffic_and_other_options_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("site.toml");
    let refuse = |text: &str, more: &[&str]| {
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_lastmeter"));
        let output = command.arg("live").arg(&file).args(more).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let words = refuse(SITE, &["--twin"]);
    assert!(words.contains("is a VuNet") && words.contains("--set and --out"), "{words}");
    let twice = SITE.replace("to = \"gamma\"", "to = \"alpha\"");
    assert!(refuse(&twice, &[]).contains("watches another camera already"));
}
