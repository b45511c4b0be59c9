//! Reproductions end to end: selection, results, appearance, errors.

use crate::golden;
use lastmeter_repro::{Effort, Error, Options, Published, Report, Role, Shelf, Style, plan, run};
use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};
use std::thread;

const OPTIONS: Options = Options { seed: 1 };

/// Simulates for minutes; its tests are in its module.
const SLOW: &str = "qsdrr";

/// All others without plugins, which the daemon's tests run, are reproduced once, for all tests.
static ALL: OnceLock<Report> = OnceLock::new();

fn reproduce(select: &str) -> Report {
    let run = || {
        let jobs = plan(select, &Shelf::builtin()).unwrap().into_iter();
        let jobs = jobs.filter(|job| job.name() != SLOW && !job.has_plugins()).enumerate();
        // One job after the other on each of two threads.
        let (jobs, sheets) = (Mutex::new(jobs), Mutex::new(BTreeMap::new()));
        let work = || {
            while let Some((place, job)) = { jobs.lock().unwrap().next() } {
                let sheet = job.run(OPTIONS).unwrap();
                sheets.lock().unwrap().insert(place, sheet);
            }
        };
        thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
        Report { sheets: sheets.into_inner().unwrap().into_values().collect() }
    };
    if select == "all" { ALL.get_or_init(run).clone() } else { run() }
}

/// The message for the first experiment after a change of one of its files.
fn refusal(path: &str, change: impl Fn(&str) -> String) -> String {
    let text = std::fs::read_to_string(format!("../../{path}")).unwrap();
    let changed = change(&text);
    assert_ne!(text, changed, "the change must change something");
    let mut shelf = Shelf::builtin();
    shelf.insert(path, &changed);
    // All files are read; only the changed experiment is computed.
    let refused = |job: lastmeter_repro::Job| job.run(OPTIONS).map(|_| ());
    let planned = plan("all", &shelf).and_then(|jobs| {
        jobs.into_iter().filter(|job| job.name() == "cim-equations").try_for_each(refused)
    });
    planned.unwrap_err().to_string()
}

const TOML: &str = "experiments/cim-equations/repro.toml";
const CSV: &str = "experiments/cim-equations/expected.csv";

/// Rows that fail, for reasons given in their experiments' READMEs.
const SHORT: &[(&str, &str)] = &[
    ("J-57", "a stack in user space over Jetstream"),
    ("N-87", "what an Alpha's MD5 can still gain"),
    ("N-54", "TCP: ATOMIC exceeds both at its largest"),
    ("N-54", "TCP: fast Ethernet limits its hosts"),
    ("N-68", "message at which ATP passes TCP"),
    ("N-62", "gain of peer DMA in the summary"),
    ("N-62", "gain of peer DMA in the text"),
    ("N-71", "raw in packets of 512 B gains little"),
    ("N-71", "raw frames a second rise with the packet"),
    ("N-71", "with small packets sending does"),
    ("A-98", "5000/200 receive Vup"),
    ("A-98", "5000/240 receive Vup"),
    ("A-98", "5000/240 transmit Vup"),
    ("A-98", "programmed reception is slower on the faster host"),
    ("A-99", "5000/200 receive Vup1"),
    ("A-99", "5000/240 receive Vup1"),
    ("A-99", "5000/240 transmit Vup1"),
    ("A-99", "programmed reception is slower on the faster host"),
    ("A-100", "observed, receive Vup1"),
    ("A-100", "observed, transmit Vup1"),
    ("A-39", "sends an order of magnitude faster than programmed"),
    ("A-42", "the host's processing limits reception"),
    ("A-103", "CB 42: each larger t-frame is faster"),
    ("A-108", "640x480, Edge"),
    ("A-108", "320x240, Edge"),
    ("A-108", "212x160, Edge"),
    ("BBR-5", "10 % lost: goodput over what losses leave"),
    ("BBR-5", "15 % lost: goodput over what losses leave"),
    ("BBR-6", "two connections use the link"),
    ("E-89", "reserved for films"),
    ("E-92", "HQoS2: misses do not grow with best effort"),
    ("E-94", "8 TwoQ RT Pri: late"),
    ("E-94", "7 EDF FlowCtrl: missed"),
    ("E-94", "7 less policing: missed"),
    ("E-14", "CIM DMA, 2 KB transfer, by Table 5.1"),
    ("E-14", "CIM DMA, 4 KB transfer, by Table 5.1"),
    ("E-28", "the depth beyond which another gains little"),
    ("E-33", "16 KB whole, depth 2"),
    ("E-34", "saturation with 2 KB, depth 2"),
    ("E-73", "4 KB: jitter virtually unchanged from depth 1 to 4"),
    ("D-121", "a queue without backlog gets"),
    ("J-21", "longest wait, frames of up to 64 KB alone"),
    ("J-21", "longest wait for the token, asynchronous"),
    ("J-06", "a host's part of a port, 15 hosts always send"),
    ("J-62", "wait behind the longest frame, bus"),
    ("J-62", "wait behind the longest frame, space switch"),
    ("N-28", "the bridge's bus is busy"),
    ("N-29", "pictures a second with JPEG cards at both ends"),
    ("D-111", "1500 bytes: collapses around 50 kpps"),
    ("A-162", "larger buffers help"),
    ("A-162", "shorter packets lose less"),
];

/// The same for the study of disciplines, run as `repro qsdrr` does.
const SHORT_QSDRR: &[(&str, &str)] = &[
    ("D-73", "goodput depends less on the buffer than RED's and Blue's"),
    ("D-85", "TDRR above RED under 500 packets"),
    ("D-85", "QSDRR above RED under 500 packets"),
    ("D-85", "DRR comparable to RED under 500 packets"),
    ("D-87", "three hops: more goodput than RED"),
    ("D-87", "three hops: more goodput than Blue"),
    ("D-87", "mixed: more goodput than RED"),
];

/// The same with `--full`.
const SHORT_QSDRR_FULL: &[(&str, &str)] = &[
    ("D-85", "TDRR above RED under 500 packets"),
    ("D-85", "QSDRR above RED under 500 packets"),
    ("D-85", "DRR comparable to RED under 500 packets"),
    ("D-85", "TDRR above RED of 1993 under 500 packets"),
    ("D-85", "QSDRR above RED of 1993 under 500 packets"),
    ("D-85", "DRR comparable to RED of 1993 under 500 packets"),
    ("D-86", "DRR: deviation over fair share"),
    ("D-86", "multi-queue policies: least deviation"),
    ("D-86", "Tail Drop: deviation"),
    ("D-86", "variance of RED over that of QSDRR and DRR"),
    ("D-86", "variance of Blue over that of QSDRR and DRR"),
    ("D-87", "three hops: more goodput than RED"),
    ("D-87", "three hops: more goodput than Blue"),
    ("D-87", "mixed: more goodput than RED"),
];

fn short(report: &Report) -> Vec<(&str, &str)> {
    let short = report.rows().filter(|row| !row.pass);
    short.map(|row| (row.id.as_str(), row.item.as_str())).collect()
}

#[test]
fn every_published_value_is_reproduced_but_those_that_are_known_not_to_be() {
    let report = reproduce("all");
    assert_eq!(short(&report), SHORT);
    assert_eq!(report.passes(), SHORT.is_empty(), "a failing row is reported");
}

#[test]
#[ignore = "minutes"]
fn the_study_of_disciplines_falls_short_where_it_is_known_to() {
    let run = |full| {
        let job = plan(SLOW, &Shelf::builtin()).unwrap().remove(0);
        let sheet = job.run_with(OPTIONS, Effort { full, ..Effort::PLAIN }).unwrap();
        Report { sheets: vec![sheet] }
    };
    assert_eq!(short(&run(false)), SHORT_QSDRR);
    assert_eq!(short(&run(true)), SHORT_QSDRR_FULL);
}

#[test]
fn the_page_has_the_headline_as_it_is_printed_and_every_row_that_falls_short() {
    let page = include_str!("../../../docs/repro.md");
    for (id, item) in SHORT.iter().chain(SHORT_QSDRR) {
        assert!(page.contains(&format!("\n| {id} | {item} | ")), "{id}: {item}");
    }
    // D needs plugins and the study of disciplines, which are run elsewhere.
    let percent = |error: Option<f64>| {
        let percent = 100.0 * error.unwrap();
        if percent < 1.0 { format!("{percent:.2} %") } else { format!("{percent:.1} %") }
    };
    for all in reproduce("all").summaries() {
        if ["BBR", "D"].contains(&all.system.as_str()) {
            continue;
        }
        let errors = [all.error_median, all.error_p90, all.error_worst].map(percent).join(" | ");
        let line = format!(
            "\n| {} | {} | {} | {errors} | {} of {} | {} | {:.1} |\n",
            all.system,
            all.predicted.asked,
            all.predicted.right,
            all.shapes.right,
            all.shapes.asked,
            all.constants.fitted,
            all.predicted_per_fitted().unwrap(),
        );
        assert!(page.contains(&line), "{line}");
    }
}

/// Every network and discipline for a second, which is too short for its rows to mean anything.
#[test]
fn a_short_form_of_the_study_of_disciplines_gives_every_row_a_value() {
    let text = include_str!("../../../experiments/qsdrr/repro.toml");
    let short = ["40 s", "25 s"].iter().fold(text.to_owned(), |text, length| {
        let found = format!("value = \"{length}\"");
        assert!(text.contains(&found), "{found}");
        text.replace(&found, "value = \"1 s\"")
    });
    let mut shelf = Shelf::builtin();
    shelf.insert("experiments/qsdrr/repro.toml", &short);
    let report = run(SLOW, &shelf, OPTIONS).unwrap();
    let later = report.sheets.iter().map(|sheet| sheet.later).sum::<u64>();
    assert_eq!((report.rows().count(), later), (45, 15));
    let full = ["D-84", "D-86"];
    assert!(report.rows().all(|row| !full.contains(&row.id.as_str())), "only with --full");
    for row in report.rows() {
        assert!(row.measured.is_some(), "{}: {}", row.id, row.item);
        assert!(row.pass || row.role != Role::Given, "{}: {}", row.id, row.item);
    }
}

#[test]
fn the_rows_that_the_first_experiments_promise_are_there() {
    let report = reproduce("all");
    let promised = [
        ("E-64", 1510.0, 1509.5),
        ("E-65", 4538.0, 4537.98),
        ("E-66", 1748.0, 1748.48),
        ("E-67", 3258.0, 3257.98),
        ("E-68", 2808.0, 2807.98),
        ("E-75", 1748.0, 1748.48),
        ("A-132", 107.0, 107.0),
        ("A-133", 83.0, 83.0),
        ("J-17", 979.0, 979.0),
        ("J-18", 21.0, 21.0),
        ("J-19", 700.0, 546.466_667),
        ("J-20", 300.0, 288.0),
        ("J-21", 15.0, 15.0),
    ];
    for (id, published, measured) in promised {
        let is = |value: &Published| matches!(value, Published::Number { value, .. } if *value == published);
        let found = report
            .rows()
            .any(|row| row.id == id && is(&row.published) && row.measured == Some(measured));
        assert!(found, "{id}: {published} beside {measured}");
    }
}

#[test]
fn a_row_a_system_an_experiment_or_all_can_be_selected() {
    let ids = |select: &str| {
        let report = reproduce(select);
        let mut ids: Vec<String> = report.rows().map(|row| row.id.clone()).collect();
        ids.dedup();
        ids
    };
    assert_eq!(ids("E-64"), ["E-64"]);
    assert_eq!(ids("e-64"), ["E-64"]);
    assert_eq!(ids("link-sharing").len(), 12);
    let budgets = ["J-16", "J-17", "J-18", "J-19", "J-20", "J-21", "J-56", "J-60"];
    assert_eq!(ids("jetstream-budgets"), budgets);
    assert_eq!(ids("afterburner-stream").len(), 9);
    assert_eq!(ids("livelock-equations"), ["E-107", "E-109", "E-110", "E-112", "E-114", "E-121"]);
}

#[test]
fn what_is_not_there_brings_what_is_nearly_called_so() {
    let near = |select: &str| match run(select, &Shelf::builtin(), OPTIONS).unwrap_err() {
        Error::Unknown { near, .. } => near,
        other => panic!("{other}"),
    };
    assert!(near("E-41").contains(&"E-14".to_owned()));
    assert_eq!(near("cim-equation"), ["cim-equations"]);
    assert!(near("jetstream").contains(&"jetstream-ring".to_owned()));
    assert!(near("budgets").contains(&"jetstream-budgets".to_owned()), "a part of a name");
    // Nothing is near: all that there is.
    assert!(near("ZZZ").is_empty());
    let message = run("ZZZ", &Shelf::builtin(), OPTIONS).unwrap_err().to_string();
    let all = "`ZZZ`, and nothing is called nearly so: the systems are A, BBR, D, E, J, N, the";
    assert!(message.contains(all) && message.contains("cim-equations, "), "{message}");
    let message = run("E-7", &Shelf::builtin(), OPTIONS).unwrap_err().to_string();
    let begins = "there is no row, system or experiment `E-7`; did you mean `E-";
    assert!(message.starts_with(begins) && message.ends_with("`?"), "{message}");
}

#[test]
fn a_summary_says_how_much_was_given_fitted_and_predicted() {
    let report = reproduce("all");
    let summaries = report.summaries();
    let systems: Vec<&str> = summaries.iter().map(|summary| summary.system.as_str()).collect();
    // The five systems, and a line for later additions.
    assert_eq!(systems, ["A", "BBR", "D", "E", "J", "N"]);
    for all in &summaries {
        let tallies = [all.given, all.fitted, all.derived, all.shapes, all.predicted];
        let rows = report.rows().filter(|row| row.id.starts_with(&format!("{}-", all.system)));
        assert_eq!(tallies.iter().map(|tally| tally.asked).sum::<u64>(), rows.count() as u64);
        // A fitted row proves nothing: at most one constant for three predicted numbers.
        let fitted = all.constants.fitted;
        assert!(3 * fitted <= all.predicted.asked, "{all:?}");
    }
    let budgets = &reproduce("jetstream-budgets").summaries()[0];
    assert_eq!((budgets.constants.assumed, budgets.constants.fitted), (5, 0));
    // A single row shows only what affects it.
    assert_eq!(reproduce("J-18").summaries()[0].contradictions, 0);
}

#[test]
fn a_row_in_json_has_the_promised_keys() {
    let lines = reproduce("J-19").json_lines().unwrap();
    let (row, last) = lines.split_once('\n').unwrap();
    let [row, last]: [serde_json::Value; 2] = [row, last].map(|l| serde_json::from_str(l).unwrap());
    let counts = serde_json::json!({
        "predicted": 0, "median": null, "p90": null, "worst": null,
        "shapes": 1, "shapes_right": 1, "fitted": 0,
    });
    assert_eq!(last["summary"]["J"], counts);
    assert_eq!(row["schema"], "lastmeter.repro/2");
    assert_eq!(row["id"], "J-19");
    assert_eq!(row["item"], "T_overrun");
    assert_eq!(row["published"], 700.0);
    assert_eq!(row["measured"], 546.466667);
    assert_eq!(row["error"], serde_json::Value::Null);
    assert_eq!(row["tolerance"], "<");
    assert_eq!(row["pass"], true);
    assert!(row["note"].as_str().unwrap().contains("546"));
    assert_eq!((&row["unit"], &row["role"]), (&"us".into(), &"shape".into()));
    let range = reproduce("A-134").json_lines().unwrap();
    assert!(range.contains(r#""published":[50.0,200.0],"measured":80.0,"error":null"#), "{range}");
}

#[test]
fn a_value_that_falls_short_fails_and_says_by_how_much() {
    const FRAME_DELAY: &str = "at = \"devices/cim: network.per-frame\"";
    let mut shelf = Shelf::builtin();
    let profile = include_str!("../../../profiles/constants/cim.toml");
    shelf.insert("profiles/constants/cim.toml", &profile.replace(FRAME_DELAY, "value = \"80 us\""));
    let report = run("E-64", &shelf, OPTIONS).unwrap();
    assert!(!report.passes());
    let row = report.rows().nth(3).unwrap();
    // 32 frames x 0.25 us more than 3902.
    assert_eq!((row.measured, row.error, row.pass), (Some(3910.0), Some(8.0 / 3902.0), false));
    assert!(report.table(Style { width: 80, colour: false }).contains("FAIL E-64"));
}

#[test]
fn a_published_value_that_nothing_computes_fails() {
    let mut shelf = Shelf::builtin();
    let row = "J-22,never computed,1,us,exact,predicted,§3.1,,\n";
    let path = "experiments/jetstream-budgets/expected.csv";
    let csv = include_str!("../../../experiments/jetstream-budgets/expected.csv");
    shelf.insert(path, &format!("{csv}{row}"));
    let report = run("J-22", &shelf, OPTIONS).unwrap();
    let row = report.rows().next().unwrap();
    assert_eq!((row.measured, row.error, row.pass, row.role), (None, None, false, Role::Predicted));
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_line() {
    let cases = [
        (
            CSV,
            ",exact,given,Table 5.1,,m_overhead\nE-63,D_segsize",
            ",near,given,Table 5.1,,m_overhead\nE-63,D_segsize",
            "experiments/cim-equations/expected.csv:2:1: `near` is not a tolerance",
        ),
        (
            CSV,
            "E-64,\"T_FC, 1 KB\",1429.75,us",
            "E-64,\"T_FC, 1 KB\",1429.75,B",
            "expected.csv:12:1: E-64, T_FC, 1 KB: the computed value has no `B`; it can be in ps, ns, us",
        ),
        (
            CSV,
            "E-64,\"T_FC, 1 KB\",",
            "E-64,\"T_FC, 2 KB\",",
            "there is no published value `E-64, T_FC, 1 KB`; did you mean `E-64, T_FC, 2 KB`",
        ),
        (CSV, "E-64,\"T_FC, 4 KB\"", "E-64,\"T_FC, 1 KB\"", "this id and item already have a row"),
        (CSV, "E-64,\"T_FC, 1 KB\",1429.75", "E-64,\"T_FC, 1 KB\",fast", "`fast` is not a number"),
        (CSV, "E-64,\"T_FC, 1 KB\",1429.75", "E-64,\"T_FC, 1 KB\",1..2", "does not suit"),
        (CSV, "E-64,\"T_FC, 1 KB\"", "F-64,\"T_FC, 1 KB\"", "ids begin with `E-`"),
        (CSV, "exact,given", "exact,guessed", "guessed"),
        (TOML, "\"cim-equations\"", "\"cim-equation\"", "did you mean `cim-equations`?"),
        (
            TOML,
            "title",
            "titel",
            "repro.toml:1:1: titel: a reproduction has no `titel`; did you mean `title`?",
        ),
        (
            TOML,
            "\"44 B\"",
            "44",
            "repro.toml:8:27: constants.small_message.value: `44` has no unit",
        ),
        (
            TOML,
            "source = \"§5.1.3.1\"",
            "source = \"\"",
            "repro.toml:8:1: constants.small_message: its origin is not given",
        ),
        (
            TOML,
            "small_message =",
            "small =",
            "constants.small: the profile has this constant already",
        ),
        (TOML, "small_message =", "smal_message =", "did you mean `smal_message`"),
        (
            TOML,
            "constants/cim",
            "constants/cin",
            "profiles/constants/cin.toml:1:1: there is no such",
        ),
        (TOML, "rows = [\"E-75\"]", "rows = [\"E-76\"]", "a contradiction names `E-76`"),
    ];
    let mut wrong = Vec::new();
    for (path, from, to, message) in cases {
        let found = refusal(path, |text| text.replacen(from, to, 1));
        wrong.extend((!found.contains(message)).then(|| format!("{from} -> {to}: {found}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// `crates/repro/tests/reproduction`, with its `repro.toml` changed.
fn sweep(from: &str, to: &str) -> Shelf {
    let toml = include_str!("reproduction/repro.toml");
    assert!(toml.contains(from), "{from}");
    let mut shelf = Shelf::builtin();
    for (file, text) in [
        ("README.md", include_str!("reproduction/README.md")),
        ("expected.csv", include_str!("reproduction/expected.csv")),
        ("repro.toml", &toml.replacen(from, to, 1)),
    ] {
        shelf.insert(&format!("experiments/one-server/{file}"), text);
    }
    shelf
}

#[test]
fn three_files_make_a_reproduction_without_code() {
    let report = run("one-server", &sweep("", ""), OPTIONS).unwrap();
    assert!(report.passes(), "{}", report.table(Style { width: 100, colour: false }));
    let half = report.rows().next().unwrap();
    assert_eq!(
        (report.rows().count(), half.unit.as_str(), half.note.as_str()),
        (3, "us", "1 / (1 - 0.5)")
    );
    assert_eq!(run("X-2", &sweep("", ""), OPTIONS).unwrap().rows().count(), 1);
    let jobs = plan("one-server", &sweep("", "")).unwrap();
    let plots = jobs[0].plots(OPTIONS, Effort::PLAIN).unwrap();
    assert_eq!(
        plots[0].series[0].points,
        [(0.5, half.measured.unwrap()), (0.8, report.rows().nth(1).unwrap().measured.unwrap())]
    );
}

#[test]
fn means_over_seeds_say_how_far_these_lie_apart() {
    let report =
        run("one-server", &sweep("[constants]", "seeds = [2, 3]\n[constants]"), OPTIONS).unwrap();
    let one = run("one-server", &sweep("", ""), OPTIONS).unwrap();
    let other = run("one-server", &sweep("", ""), Options { seed: OPTIONS.seed + 1 }).unwrap();
    let first = |report: &Report| report.rows().next().unwrap().measured.unwrap();
    assert_eq!(first(&report), (first(&one) + first(&other)) / 2.0);
    let note = &report.rows().next().unwrap().note;
    assert!(note.contains("; mean of 2 seeds: "), "{note}");
}

#[test]
fn what_is_wrong_with_a_sweep_is_said_with_line_and_key() {
    let cases = [
        ("rising(queue.time)", "rising(queue.tim)", ":25:7: rows.X-2: there is no formula `tim`"),
        ("rising(queue.time)", "rising(queue.time", ":25:25: rows.X-2: `,` is missing"),
        ("rising(queue.time)", "rise(queue.time)", "there is no function `rise`"),
        ("rising(queue.time)", "rising(queu.time)", "did you mean `queue`?"),
        ("rising(queue.time)", "queue.time", "is not a number"),
        ("X-2 =", "X-3 =", "there is no published value `X-3/`"),
        (
            "$service s",
            "$servic s",
            "runs.queue.set: there is no constant, variable or formula `servic`",
        ),
        (
            "experiment = \"mm1\"",
            "transfer = { host = \"harts\" }",
            "runs.queue.transfer: `adapter` is missing",
        ),
        ("value = \"1 us\"", "at = \"hosts/harts: send.x\"", "harts.toml has no `send.x`"),
        ("\"mm1\"", "\"mm2\"", ":13:14: runs.queue: there is no `mm2` in the folder"),
        ("\"stages\"", "\"stage\"", "did you mean `stages`?"),
        ("station.service", "station.servic", "did you mean `service`?"),
        ("[runs.queue]", "[runs.queue]\nlike = \"queue\"", "`queue` is like itself"),
        ("'paths/customers/", "'paths/customer/", "the ledger has no `customer`"),
        ("service = {", "servic = {", "did you mean `servic`?"),
        ("x = \"load\"", "like = \"times\"", "plots.time: it cannot be like this one"),
    ];
    let mut wrong = Vec::new();
    for (from, to, message) in cases {
        let found = run("one-server", &sweep(from, to), OPTIONS).unwrap_err().to_string();
        wrong.extend((!found.contains(message)).then(|| format!("{from} -> {to}: {found}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_table_fits_its_width_and_loses_nothing() {
    let report = reproduce("all");
    for width in [80, 100, 120] {
        let table = report.table(Style { width, colour: false });
        let longest = table.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(width), "{longest:?} columns of {width}\n{table}");
        let coloured = report.table(Style { width, colour: true });
        let colours = ["\x1b[1;31m", "\x1b[32m", "\x1b[2m", "\x1b[1m", "\x1b[0m"];
        let stripped = colours.iter().fold(coloured, |text, code| text.replace(code, ""));
        assert_eq!(stripped, table);
    }
    // One experiment with every sort of row, so that the picture changes only with the format.
    let report = reproduce("atomic2-authentication");
    for width in [80, 120] {
        let table = report.table(Style { width, colour: false });
        golden::check(&format!("tests/goldens/repro-{width}.txt"), &table);
    }
}
