//! A profile and a policy in one host: the books balance, overload shows the nature of each policy, and what does not
//! fit is refused.

use lastmeter_base::Duration;
use lastmeter_engine::{Outcome, VirtualClock};
use lastmeter_host::receive::equations::{interrupt, polling, processed};
use lastmeter_host::receive::{Costs, kind};
use lastmeter_lab::build::{Changes, build};
use lastmeter_lab::document::{Override, Problem};
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::{Builtin, Library};
use lastmeter_lab::profile::constants::Constants;
use std::collections::BTreeMap;

const WORKSTATION: &str = include_str!("../../../experiments/overload-workstation/experiment.toml");

/// The experiment at a rate in packets of 1500 B per second, with another change.
fn workstation(rate: u64, sets: &[&str], library: &dyn Library) -> Result<Experiment, String> {
    let rate = format!("traffic.0.constant.rate=\"{} kbit/s\"", rate * 12);
    let sets = [rate.as_str(), "duration=\"500 ms\""].into_iter().chain(sets.iter().copied());
    let sets: Vec<Override> = sets.map(|set| Override::parse(set).unwrap()).collect();
    Experiment::parse("experiment.toml", WORKSTATION, &sets, library).map_err(shown)
}

pub(crate) fn shown(problems: Vec<Problem>) -> String {
    problems.iter().map(|problem| format!("{}\n", problem.render(false))).collect()
}

pub(crate) fn run(experiment: &Experiment, changes: &Changes) -> Outcome {
    let built = build(experiment, changes, &Builtin).map_err(shown).unwrap();
    let mut engine = built.graph.build(1).unwrap();
    engine.run_until(built.end, &mut VirtualClock::default()).unwrap();
    // Fails if packets, resources or stages do not balance.
    engine.finish().unwrap()
}

/// Packets per second delivered to the application.
fn delivered(outcome: &Outcome) -> f64 {
    outcome.books.paths[0].delivered.packets as f64 / 0.5
}

fn under(way: &str, rate: u64) -> f64 {
    let way = format!("nodes.host.host.reception={{ {way} }}");
    delivered(&run(&workstation(rate, &[&way], &Builtin).unwrap(), &Changes::NONE))
}

fn near(measured: f64, expected: f64, share: f64) {
    assert!((measured / expected - 1.0).abs() <= share, "{measured} is not near {expected}");
}

#[test]
fn every_policy_balances_on_every_host_that_it_can_schedule() {
    for (host, adapter) in [
        ("hp9000-730", "afterburner"),
        ("hp9000-730-user", "afterburner-conventional"),
        ("dec3000-400", "osiris"),
        ("dec5000-200", "vup"),
        ("sparc20-71", "oc3c"),
        ("harts", "null-device"),
    ] {
        for kind in kind::KINDS {
            let profile = format!("nodes.host.host.profile=\"{host}\"");
            let adapter = format!("nodes.host.host.adapter=\"{adapter}\"");
            let way = format!("nodes.host.host.reception={{ {} = {{}} }}", kind.page.name);
            let experiment = workstation(16_000, &[&profile, &adapter, &way], &Builtin).unwrap();
            let outcome = run(&experiment, &Changes::NONE);
            let books = &outcome.books;
            assert_eq!(books.made, books.delivered + books.dropped + outcome.held);
            let cpu = outcome.resources.iter().position(|r| r.name == "host.cpu").unwrap();
            let used = books.resources[cpu].busy() + books.resources[cpu].blocked;
            assert!(used > 10_000_000_000, "{host}, {}: {used:?}", kind.page.name);
        }
    }
}

#[test]
fn under_overload_the_goodput_depends_on_the_policy() {
    // Per packet: 43 us in the kernel; for the application 3.45 ns of moves and 1 / 32.3 MB/s of copying for each byte.
    // So the host can deliver 10 569 packets/s, and at 23 256 nothing is left for the application.
    let (kernel, application) = (43e-6, 1500.0 * (3.45e-9 + 1.0 / 32.3e6));
    let left = |rate: f64| ((1.0 - rate * kernel) / application).max(0.0);
    let capacity = 1.0 / (kernel + application);
    let interrupts = |rate| under("interrupts = { early-drop = false }", rate);
    for rate in [5_000, 10_000] {
        near(interrupts(rate), rate as f64, 0.002);
    }
    for rate in [12_000, 16_000, 20_000] {
        near(interrupts(rate), left(rate as f64), 0.01);
    }
    assert_eq!(interrupts(28_000), 0.0);
    for rate in [16_000, 28_000] {
        near(under("polling = { early-drop = false }", rate), capacity, 0.002);
        near(under("lazy = {}", rate), capacity, 0.002);
        // 8 packets a tick of 2 ms.
        near(under("timed-polling = { early-drop = false }", rate), 4_000.0, 0.01);
    }
    // Softirqs have priority over the application as interrupts do, until a thread takes over their work.
    let napi = |rate| under("napi = { early-drop = false }", rate);
    near(napi(16_000), left(16_000.0), 0.01);
    assert!(napi(28_000) > 0.6 * capacity, "{}", napi(28_000));
    near(under("napi = { early-drop = false, slice = \"1 ms\" }", 28_000), capacity, 0.005);
}

#[test]
fn the_profile_of_the_thesis_host_obeys_its_equations_under_a_policy() {
    let harts = |way: &str, rate: u64| {
        let set = format!("nodes.host.host={{ profile = \"harts\", reception = {{ {way} }} }}");
        delivered(&run(&workstation(rate, &[&set], &Builtin).unwrap(), &Changes::NONE))
    };
    // Table 7.2 with `Load = 1`, in one piece.
    let us = Duration::from_us;
    let file = Builtin.profile("constants", "livelock").unwrap();
    let application = Constants::of_profile("livelock", &file).unwrap().0.get("application_1");
    let application = application.unwrap();
    let costs = Costs { accept: us(0), protocol: us(400), application, ..kind::DEFAULT };
    let interrupts = |rate| harts("interrupts = { early-drop = false }", rate);
    near(interrupts(1_800), 1_800.0, 0.005);
    assert_eq!(interrupt(&costs).round(), 1890.0);
    for rate in [1_950, 2_050, 2_150] {
        near(interrupts(rate), processed(&costs, rate as f64), 0.06);
    }
    assert_eq!(interrupts(2_300), 0.0);
    near(harts("polling = { quota = 1, switch = \"20 us\" }", 5_000), polling(&costs, 1), 0.01);
}

#[test]
fn what_ifs_change_the_costs_that_the_policy_schedules() {
    let experiment = workstation(16_000, &[], &Builtin).unwrap();
    let plain = delivered(&run(&experiment, &Changes::NONE));
    let faster = |name: &str| Changes {
        speed: BTreeMap::from([(name.to_owned(), (2, 1))]),
        ..Changes::NONE
    };
    let free = |stage: &str| Changes { free: [stage.to_owned()].into(), ..Changes::NONE };
    let with = |changes: Changes| delivered(&run(&experiment, &changes));
    near(with(free("host protocol in")), 16_000.0, 0.01);
    near(with(free("host copy card to memory")), 16_000.0, 0.01);
    assert!(with(faster("host.cpu")) > 2.0 * plain);
    assert!(with(faster("host.card-to-memory")) > 1.7 * plain);
    near(with(faster("host.receive-port")), plain, 0.001);
}

/// The bundled profiles, plus one host.
struct OneHost(String);

impl Library for OneHost {
    fn profile(&self, folder: &str, name: &str) -> Result<String, String> {
        match (folder, name) {
            ("hosts", "made-up") => {
                let head = "what = \"made up\"\nsource = \"for a test\"\n[resources]\n\
                            cpu = { cpu = {} }\ntwo = { cpu = { units = 2 } }\n\
                            dma = { engine = {} }\n\
                            [[send]]\nname = \"call\"\non = \"cpu\"\n";
                Ok(format!("{head}{}", self.0))
            }
            _ => Builtin.profile(folder, name),
        }
    }
    fn names(&self, folder: &str) -> Vec<String> {
        Builtin.names(folder).into_iter().chain(["made-up".to_owned()]).collect()
    }
}

#[test]
fn stages_that_no_policy_can_schedule_are_refused_with_advice() {
    let refused = |host: String, reception: &str| {
        let set =
            format!("nodes.host.host={{ profile = \"made-up\", reception = {{ {reception} }} }}");
        workstation(1_000, &[&set], &OneHost(host)).unwrap_err()
    };
    let receive = |name: &str, on: &str| format!("[[receive]]\nname = \"{name}\"\non = \"{on}\"\n");
    for (stages, reception, found, right) in [
        (
            receive("in", "cpu"),
            "napi = { protocol = \"3 us\" }",
            "the host's profile determines `protocol`",
            "leave out `protocol`, or `profile`",
        ),
        (
            receive("in", "cpu"),
            "polling = { commands = \"two\" }",
            "the host's profile determines `commands`",
            "leave out `commands`, or `profile`",
        ),
        (
            receive("in", "dma"),
            "napi = {}",
            "no receive stage of its profile runs on a processor",
            "leave out `reception`",
        ),
        (
            receive("in", "two"),
            "napi = {}",
            "`two` of its profile serves several jobs at once",
            "name a profile with one",
        ),
        (
            receive("in", "cpu") + &receive("to memory", "dma") + &receive("copy", "cpu"),
            "napi = {}",
            "`to memory` of its profile runs on `dma`",
            "put it before `in` in the profile",
        ),
    ] {
        let said = refused(stages, reception);
        assert!(said.contains(found) && said.contains(right), "{said}");
        assert!(said.contains("nodes.host"), "{said}");
    }
}

#[test]
fn a_host_sends_while_its_processor_polls_and_receives_all_that_it_can() {
    let back = "\n[[traffic]]\nname = \"back\"\nfrom = \"host\"\nto = \"source\"\n\
                constant = { rate = \"12 Mbit/s\", size = \"1500 B\" }\n";
    for way in ["interrupts", "polling", "napi", "suspension"] {
        let way_set = format!("nodes.host.host.reception={{ {way} = {{ early-drop = false }} }}");
        let sets = ["duration=\"500 ms\"", &way_set];
        let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).unwrap()).collect();
        let text = WORKSTATION.to_owned() + back;
        let experiment = Experiment::parse("experiment.toml", text, &sets, &Builtin);
        let outcome = run(&experiment.map_err(shown).unwrap(), &Changes::NONE);
        // Sending 1000 packets/s takes 116 us each: call, copy and protocol.
        assert!(outcome.books.paths[1].dropped.is_empty(), "{way}");
        near(outcome.books.paths[1].delivered.packets as f64, 500.0, 0.02);
        assert!(delivered(&outcome) > 3_500.0, "{way}: {}", delivered(&outcome));
    }
}
