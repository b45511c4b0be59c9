//! Aurora's hosts and adapters as profiles: valid pairs, refused pairs, and bottlenecks.

use lastmeter_base::{Bytes, Duration};
use lastmeter_engine::{Serial, VirtualClock};
use lastmeter_host::profile::{Adapter, StageProfile};
use lastmeter_host::resource::Priority;
use lastmeter_lab::build::{Changes, build};
use lastmeter_lab::document::Override;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::historic::{Pair, historic};
use lastmeter_lab::library::{Builtin, Library};
use lastmeter_lab::run::{Failure, Runner, Search, Watch, ledger};
use lastmeter_ledger::Ledger;

const DEC_5000: [&str; 2] = ["dec5000-200", "dec5000-240"];
const DEC: [&str; 4] = ["dec5000-200", "dec5000-240", "dec3000-400", "dec3000-800"];
const VUNET: [&str; 5] = ["vupboard", "vudboard", "vudboard-first-driver", "osiris", "null-device"];
/// Table 2.
const STUDY: [&str; 10] =
    ["vup", "vup1", "cop1", "cop2", "cop3", "cop4", "cop5", "cop6", "dma", "dma1"];

fn with_runner<T>(run: impl FnOnce(Runner<'_>) -> Result<T, Failure>) -> T {
    let watch = Watch::default();
    run(Runner { parallel: &Serial, threads: 1, library: &Builtin, watch: &watch }).unwrap()
}

fn transfer(host: &str, adapter: &str) -> Ledger {
    let pair = Pair::read(host, adapter, &Builtin).unwrap();
    let packet = Bytes::from_kib(4);
    let text = pair.experiment(Bytes::from_kib(4), packet, Duration::from_ms(200)).unwrap();
    let experiment = Experiment::parse("pair", text, &[], &Builtin).unwrap();
    with_runner(|runner| ledger(&experiment, runner))
}

#[test]
fn every_sensible_pair_has_a_balanced_ledger() {
    let vunet = DEC.iter().flat_map(|host| VUNET.map(|adapter| (*host, adapter)));
    let study = DEC_5000.iter().flat_map(|host| STUDY.map(|adapter| (*host, adapter)));
    let osf1 = ["florb", "null-device"].map(|adapter| ("dec3000-400-osf1", adapter));
    for (host, adapter) in vunet.chain(study).chain(osf1) {
        let ledger = transfer(host, adapter);
        assert!(ledger.goodput() > 1e6, "{host} with {adapter}: {}", ledger.goodput());
        assert_eq!(ledger.balance.packets_residual, 0, "{host} with {adapter}");
        assert_eq!(ledger.loss(), 0.0, "{host} with {adapter}");
    }
}

#[test]
fn a_pair_that_makes_no_sense_is_refused_with_the_reason() {
    let cases = [
        ("dec3000-400", "cop3", "there is no resource `instructions`"),
        ("dec3000-800", "vup", "there is no resource `bus-read`"),
        ("dec5000-200", "florb", "there is no resource `turbochannel`"),
        ("dec3000-400-osf1", "vudboard", "there is no resource `copy`"),
        ("hp9000-730", "vupboard", "there is no resource `copy`"),
        ("dec3000-800", "afterburner", "the host has no stage `send call`"),
    ];
    for (host, adapter, reason) in cases {
        let problems = Pair::read(host, adapter, &Builtin).unwrap_err();
        let found: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
        assert!(found.contains(reason), "{host} with {adapter}: {found}");
    }
    let pair = Pair::read("harts", "null-device", &Builtin).unwrap();
    let problems = pair.experiment(Bytes(1000), Bytes(1000), Duration::from_ms(1)).unwrap_err();
    assert!(problems[0].found.contains("does not give its socket buffer"));
}

#[test]
fn a_93_host_to_host_the_interrupt_for_each_page_limits() {
    let (message, packet) = (Bytes::from_kib(4), Bytes::from_kib(6));
    let ledger = with_runner(|runner| historic("dec3000-800", "vudboard", message, packet, runner));
    let verdict = ledger.verdict.unwrap();
    assert_eq!(verdict.resource.as_deref(), Some("sender.transmit-page"), "{}", verdict.words);
    let change = "sender interrupt for the page at no cost";
    let what_if = ledger.what_ifs.iter().find(|what_if| what_if.change == change).unwrap();
    assert!(what_if.gain > 0.4, "{what_if:?}");
}

#[test]
fn a_stage_that_only_crosses_a_bus_is_offered_at_no_cost() {
    let packet = Bytes::from_kib(4);
    let ledger = with_runner(|runner| historic("dec5000-240", "cop6", packet, packet, runner));
    let name = "sender load words";
    let stage = ledger.paths[0].stages.iter().find(|stage| stage.name == name).unwrap();
    assert!(stage.service_mean() == 0.0 && stage.blocked_mean() > 0.0, "{stage:?}");
    let change = format!("{name} at no cost");
    let what_if = ledger.what_ifs.iter().find(|what_if| what_if.change == change).unwrap();
    assert!(what_if.gain >= 0.0, "{what_if:?}");
}

/// Profiles that do not fit the general test: cells and frames instead of packets, or no socket buffer.
const NOT_FOR_WHY: [&str; 5] =
    ["dec5000-200-video", "dec3000-400-video", "dec3000-400-dithers", "harts", "hartos"];

#[test]
fn every_pair_of_profiles_is_modelled_or_refused_with_a_reason() {
    let (message, packet) = (Bytes::from_kib(4), Bytes(1000));
    let (mut modelled, mut refused) = (Vec::new(), 0);
    for host in Builtin.names("hosts") {
        for adapter in Builtin.names("adapters") {
            let text = Pair::read(&host, &adapter, &Builtin)
                .and_then(|pair| pair.experiment(message, packet, Duration::from_ms(100)));
            match text {
                Ok(text) => {
                    assert!(!NOT_FOR_WHY.contains(&host.as_str()), "{host} with {adapter}");
                    let experiment = Experiment::parse("pair", text, &[], &Builtin).unwrap();
                    let ledger = with_runner(|runner| ledger(&experiment, runner));
                    assert!(ledger.goodput() > 0.0, "{host} with {adapter}");
                    assert_eq!(ledger.balance.packets_residual, 0, "{host} with {adapter}");
                    modelled.push((host.clone(), adapter));
                }
                Err(problems) => {
                    refused += 1;
                    assert!(!problems.is_empty(), "{host} with {adapter}");
                    for problem in problems {
                        let says = !problem.found.is_empty() && !problem.right.is_empty();
                        assert!(says, "{host} with {adapter}: {problem}");
                    }
                }
            }
        }
    }
    let has = |pair: &(&str, &str)| {
        modelled.iter().any(|(host, adapter)| (host.as_str(), adapter.as_str()) == *pair)
    };
    let vunet = DEC.iter().flat_map(|host| VUNET.map(|adapter| (*host, adapter)));
    let study = DEC_5000.iter().flat_map(|host| STUDY.map(|adapter| (*host, adapter)));
    let others = [("dec3000-400-osf1", "florb"), ("hp9000-730", "afterburner")];
    assert!(vunet.chain(study).chain(others).all(|pair| has(&pair)), "{modelled:?}");
    assert!(refused > modelled.len(), "{refused} of {}", modelled.len());
}

/// A camera, a switch and a workstation that displays the video.
fn window(profile: &str, video: &str, length: u64) -> Ledger {
    let text = format!(
        "title = \"a window\"\nduration = \"{length} ms\"\n[nodes]\ncamera = {{ host = {{}} }}\n\
         office = {{ vunet-switch = {{ ports = 4 }} }}\n\
         alpha = {{ host = {{ profile = \"{profile}\" }} }}\n[[links]]\n\
         between = [\"camera\", \"office\", \"alpha\"]\nrate = \"500 Mbit/s\"\n\
         queue = {{ drop-tail = {{ packets = 256 }} }}\n[[traffic]]\nname = \"video\"\n\
         from = \"camera\"\nto = \"alpha\"\nvidboard = {{ timeout = \"2 s\", {video} }}\n"
    );
    let experiment = Experiment::parse("window", text, &[], &Builtin).unwrap();
    with_runner(|runner| lastmeter_lab::run::explain(&experiment, Search::Exhaustive, 0, runner))
        .ledger
}

#[test]
fn a_106_the_verdict_names_camera_and_firmware() {
    let small = "width = 160, height = 120, burst = 28, burst-delay = \"62 us\"";
    let verdict = window("dec3000-400-video", small, 400).verdict.unwrap();
    assert_eq!(verdict.resource.as_deref(), Some("camera.signal"), "{}", verdict.words);
    let dithered = format!("{small}, dither = \"5 us\"");
    let verdict = window("dec3000-400-video", &dithered, 1000).verdict.unwrap();
    assert_eq!(verdict.resource.as_deref(), Some("camera.firmware"), "{}", verdict.words);
}

#[test]
fn a_106_the_verdict_names_the_processor_and_dithering_is_what_would_help() {
    let deep = "width = 320, height = 240, depth = 24, burst = 28, burst-delay = \"62 us\"";
    let ledger = window("dec3000-400-dithers", deep, 150);
    let verdict = ledger.verdict.unwrap();
    assert_eq!(verdict.resource.as_deref(), Some("alpha.cpu"), "{}", verdict.words);
    let stages = ledger.what_ifs.iter().filter(|what_if| what_if.change.ends_with("at no cost"));
    assert_eq!(
        stages.map(|what_if| what_if.change.as_str()).next(),
        Some("alpha dither at no cost")
    );
}

#[test]
fn a_46_a_50_every_size_and_depth_is_sent_and_a_diagnosis_answered() {
    for (width, height) in [(640, 480), (320, 240), (212, 160), (160, 120)] {
        for depth in [8, 24] {
            let text = format!(
                "duration = \"150 ms\"\n[nodes]\ncamera = {{ host = {{}} }}\n\
                 office = {{ vunet-switch = {{ ports = 4 }} }}\nalpha = {{ host = {{}} }}\n[[links]]\n\
                 between = [\"camera\", \"office\", \"alpha\"]\nrate = \"500 Mbit/s\"\n\
                 queue = {{ drop-tail = {{ packets = 256 }} }}\n[[traffic]]\nname = \"video\"\n\
                 from = \"camera\"\nto = \"alpha\"\nvidboard = {{ width = {width}, height = {height}, \
                 depth = {depth}, burst-delay = \"60 us\", diagnose = true }}\n"
            );
            let experiment = Experiment::parse("sizes", text, &[], &Builtin).unwrap();
            let built = build(&experiment, &Changes::NONE, &Builtin).unwrap();
            let mut engine = built.graph.build(1).unwrap();
            engine.run_until(built.end, &mut VirtualClock::default()).unwrap();
            let outcome = engine.finish().unwrap();
            let count = |counter: &str| -> u64 {
                let counters = outcome.elements.iter().flat_map(|element| &element.counters);
                counters.filter(|(name, _)| *name == counter).map(|&(_, count)| count).sum()
            };
            let which = format!("{width}x{height}x{depth}");
            assert!(count("frames") > 0 && count("incomplete") == 0, "{which}");
            assert_eq!(count("answers"), 1, "{which}");
        }
    }
}

/// The five questions of §5.4, answered from the profiles of four interfaces.
#[test]
fn a_122_each_of_the_five_questions_has_its_place_in_a_profile() {
    let read = |host: &str, adapter: &str| Pair::read(host, adapter, &Builtin).unwrap().adapter;
    let vup = read("dec5000-240", "vupboard");
    let vud = read("dec5000-240", "vudboard");
    let osiris = read("dec5000-240", "osiris");
    let cop = read("dec5000-240", "cop6");
    let stages = |adapter: &Adapter| -> Vec<StageProfile> {
        adapter.receive.iter().map(|added| added.stage.clone()).collect()
    };
    // Division of labour: who reassembles.
    let reassembles =
        |adapter: &Adapter| stages(adapter).iter().any(|stage| stage.name == "reassemble");
    assert!(reassembles(&vup) && reassembles(&vud) && !reassembles(&osiris));
    // Method of transfer: the processor or an engine moves arriving data.
    let moves = |adapter: &Adapter| stages(adapter)[0].resource.clone();
    assert_eq!((moves(&vup).as_str(), moves(&vud).as_str()), ("cpu", "receive-dma"));
    // Role of memory: how often an incoming byte crosses it.
    let crossings = |adapter: &Adapter| -> u32 {
        let buses = stages(adapter).into_iter().flat_map(|stage| stage.buses);
        buses.filter(|(bus, _)| bus == "memory").map(|(_, times)| times).sum()
    };
    assert!(crossings(&vud) > crossings(&osiris) && crossings(&osiris) >= crossings(&cop));
    // Point of attachment: over the bus or at the registers.
    let words = |adapter: &Adapter, bus: &str| {
        stages(adapter).iter().flat_map(|stage| &stage.buses).any(|(name, _)| name == bus)
    };
    assert!(words(&read("dec5000-240", "vup1"), "bus-read") && !words(&cop, "bus-read"));
    // Synchronisation: interrupts or polling.
    let interrupts = |adapter: &Adapter| {
        stages(adapter).iter().any(|stage| stage.priority == Priority::Interrupt)
    };
    assert!(interrupts(&vup) && interrupts(&osiris) && !interrupts(&vud));
}

fn bundled(text: &'static str, length: &str) -> Ledger {
    let length = Override::parse(&format!("duration=\"{length}\"")).unwrap();
    let experiment = Experiment::parse("bundled", text, &[length], &Builtin).unwrap();
    with_runner(|runner| ledger(&experiment, runner))
}

#[test]
fn a_35_ip_between_two_vudboards_gets_what_many_pages_get() {
    let text = include_str!("../../../experiments/vunet-ip/experiment.toml");
    let ledger = bundled(text, "500 ms");
    let goodput = ledger.paths[0].totals.goodput / 1e6;
    assert!((goodput / 67.0 - 1.0).abs() < 0.03, "{goodput} Mbit/s");
    assert_eq!((ledger.loss(), ledger.balance.packets_residual), (0.0, 0));
}

#[test]
fn a_54_the_second_of_two_bundled_windows_halves_the_first_and_no_cell_is_lost() {
    let text = include_str!("../../../experiments/vidboard-windows/experiment.toml");
    let delivered = |length: &str| -> [f64; 2] {
        let ledger = bundled(text, length);
        assert_eq!(ledger.loss(), 0.0);
        ["window", "other window"].map(|class| {
            let path = ledger.paths.iter().find(|path| path.class == class).unwrap();
            path.totals.delivered.packets as f64
        })
    };
    // The second starts after half a second.
    let (alone, both) = (delivered("500 ms"), delivered("1500 ms"));
    assert_eq!(alone[1], 0.0);
    let first = (both[0] - alone[0]) / 2.0 / alone[0];
    assert!((first - 0.5).abs() < 0.1, "{first}");
    assert!((both[1] / (both[0] - alone[0]) - 1.0).abs() < 0.1, "{both:?}");
}
