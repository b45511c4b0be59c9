//! Claims on which Indiresan's thesis builds, checked here: E-02, E-03, E-06 and E-09 to E-11.

use lastmeter_base::{Bytes, Duration};
use lastmeter_engine::Serial;
use lastmeter_host::adapter::cim::Cim;
use lastmeter_host::adapter::transmitter::Variation;
use lastmeter_host::adapter::{firmware, picture, pipeline};
use lastmeter_host::receive::kind;
use lastmeter_lab::document::Override;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::{Builtin, Library};
use lastmeter_lab::profile::constants::Constants;
use lastmeter_lab::profile::{self, device};
use lastmeter_lab::run::{Runner, Watch, ledger};

fn table(name: &str) -> Constants {
    Constants::of_profile(name, &Builtin.profile("constants", name).unwrap()).unwrap().0
}

fn time(table: &Constants, name: &str) -> Duration {
    table.get(name).unwrap()
}

fn table_5_1() -> Cim {
    let table = table("cim");
    Cim {
        message_overhead: time(&table, "message_overhead"),
        segment: table.get("segment").unwrap(),
        segment_overhead: time(&table, "segment_overhead"),
        small: table.get("small").unwrap(),
        per_byte_small: table.get("per_byte_small").unwrap(),
        per_byte_large: table.get("per_byte_large").unwrap(),
        frame: table.get("frame").unwrap(),
        transmit_overhead: time(&table, "transmit_overhead"),
        frame_delay: time(&table, "frame_delay"),
    }
}

/// The defaults of reception, and the interrupts of the HARTS profile, agree with Table 7.2.
#[test]
fn what_has_the_values_of_a_table_agrees_with_the_file_of_that_table() {
    let table_7_2 = table("livelock");
    let costs = kind::DEFAULT;
    let receive = time(&table_7_2, "receive");
    assert_eq!(costs.interrupt, time(&table_7_2, "interrupt"));
    assert_eq!(costs.switch, time(&table_7_2, "switch"));
    assert_eq!(costs.cache_miss, time(&table_7_2, "cache_miss"));
    assert_eq!(costs.application, time(&table_7_2, "application_1000"));
    assert_eq!(costs.accept, time(&table_7_2, "accept"));
    assert_eq!(costs.accept + costs.protocol, receive);
    let text = Builtin.profile("hosts", "harts").unwrap();
    let harts = profile::host("harts", text.as_bytes(), &Builtin).unwrap();
    let packet = |stage: usize| harts.receive[stage].cost.per_packet;
    assert_eq!(packet(0), costs.interrupt * u64::from(harts.receive[0].interrupts));
}

/// Fig 1.1: the communication subsystem of an end host, its shaded part between host and network.
#[test]
fn e_02_the_adapter_stands_between_the_host_and_the_network() {
    let drawn = picture::text(&device::read("cim", &Builtin).unwrap());
    let parts = [
        "host\n",
        "host interface",
        "transfer control",
        "queueing",
        "buffers",
        "network interface",
        "network\n",
    ];
    let mut from = 0;
    for part in parts {
        from += drawn[from..].find(part).unwrap_or_else(|| panic!("{part} after {from}:\n{drawn}"));
    }
}

/// §1.1: one description is both studied and implemented, and is not limited to networks.
#[test]
fn e_03_one_description_is_run_drawn_and_made_into_firmware() {
    for name in Builtin.names(device::FOLDER) {
        let card = device::read(&name, &Builtin).unwrap();
        let sent = pipeline::run(&card, Bytes(512), (1, 5), Variation::None, 0);
        assert!(sent.mean > Duration::ZERO && sent.latency.count() == 5, "{name} runs");
        let program = firmware::skeleton(&card);
        assert!(program.contains("void transfer_do(void)"), "{name} becomes a program");
        assert!(device::svg(&card).contains("<svg"), "{name} is drawn");
    }
}

/// Fig 2.1: the time of single messages of 4 KB, by the equation, by the machine, and by elements in a graph, as
/// they also run on a wall clock.
#[test]
fn e_06_an_equation_a_machine_and_a_network_agree() {
    let cim = device::read("cim", &Builtin).unwrap();
    // Eq 5.2.
    let by_equation = table_5_1().time_alone(Bytes(4096)).as_secs_f64();
    let machine = pipeline::run(&cim, Bytes(4096), (1, 50), Variation::None, 0);
    let by_machine = machine.mean.as_secs_f64();
    let text = lastmeter_host::adapter::element::PAGE.example;
    let sets = ["nodes.card.adapter.depth=1", "duration=2 s"];
    let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).unwrap()).collect();
    let experiment = Experiment::parse("x.toml", text, &sets, &Builtin).unwrap();
    let sent = delivered(&experiment, &Builtin);
    let by_network = 2.0 / sent as f64;
    assert_eq!(by_equation, by_machine, "to the picosecond");
    assert!((by_network / by_equation - 1.0).abs() < 0.01, "{by_network} s beside {by_equation} s");
}

/// The HARTS of `profiles/hosts`, with its application on a processor of its own.
struct TwoProcessors;

impl Library for TwoProcessors {
    fn profile(&self, folder: &str, name: &str) -> Result<String, String> {
        let text = Builtin.profile(folder, name)?;
        let two = text
            .replace(
                "[resources]\n",
                "[resources]\nap = { cpu = {}, source = \"section 3.1.1\" }\n",
            )
            .replace("name = \"application\"\non = \"cpu\"", "name = \"application\"\non = \"ap\"");
        assert!(folder != "hosts" || two.matches("\"ap\"").count() == 1, "{two}");
        Ok(two)
    }
}

fn delivered(experiment: &Experiment, library: &dyn Library) -> u64 {
    let watch = Watch::default();
    let runner = Runner { parallel: &Serial, threads: 1, library, watch: &watch };
    let ledger = ledger(experiment, runner).unwrap();
    ledger.paths.iter().map(|path| path.totals.delivered.packets).sum()
}

/// §3.1.1: "applications execute on APs while communication protocols execute on the NP". 4000 packets/s exceed
/// the capacity of the network processor (2193), and leave no time for an application on it.
#[test]
fn e_09_e_10_a_processor_for_the_network_leaves_the_application_its_own() {
    let harts = Builtin.profile("hosts", "harts").unwrap();
    assert!(harts.contains("25 MHz MC68040") && harts.contains("HARTS"), "E-09: Fig 3.1");
    let text = "duration = \"1 s\"\n[nodes]\na = { host = {} }\nb = { host = { profile = \"harts\" } }\n\
                [[links]]\nbetween = [\"a\", \"b\"]\nrate = \"100 Mbit/s\"\n\
                [[traffic]]\nname = \"all\"\nfrom = \"a\"\nto = \"b\"\n\
                constant = { rate = \"32 Mbit/s\", size = \"1000 B\" }\n";
    let of = |library: &dyn Library| {
        delivered(&Experiment::parse("x.toml", text, &[], library).unwrap(), library)
    };
    let (one, two) = (of(&Builtin), of(&TwoProcessors));
    assert!(one < 200, "{one}: one processor for both is busy with interrupts");
    assert!(two > 1000, "{two}: the application processes what the network processor passes on");
}

/// Fig 3.2: a ledger has a line for each HARTOS protocol that a message passes, in order, and a fragment of a
/// 16 KB message takes what section 3.4.2.1 says: 90 + 200 us and an eighth of 400 us.
#[test]
fn e_11_a_ledger_shows_the_protocols_of_hartos() {
    let text = include_str!("../../../experiments/hartos-stack/experiment.toml");
    let experiment = Experiment::parse("x.toml", text, &[], &Builtin).unwrap();
    let watch = Watch::default();
    let runner = Runner { parallel: &Serial, threads: 1, library: &Builtin, watch: &watch };
    let ledger = ledger(&experiment, runner).unwrap();
    let path = &ledger.paths[0];
    let names: Vec<&str> = path.stages.iter().map(|stage| stage.name.as_str()).collect();
    let order = ["HARTOS API", "NMP", "FRAG", "HNET", "link scheduler", "HNET in", "FRAG in"];
    let mut from = 0;
    for part in order {
        let at = names[from..].iter().position(|name| name.ends_with(part));
        from += at.unwrap_or_else(|| panic!("{part} after stage {from} of {names:?}")) + 1;
    }
    let of = |stage: &str| {
        let is = |name: &str| name == format!("source {stage}");
        path.stages.iter().find(|one| is(&one.name)).unwrap().service_mean()
    };
    let sent: f64 = ["FRAG", "HNET", "link scheduler"].into_iter().map(of).sum();
    assert!((sent / 340e-6 - 1.0).abs() < 0.01, "{sent} s a fragment");
    assert_eq!(ledger.balance.packets_residual, 0);
}
