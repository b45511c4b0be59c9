//! Stock Linux guests on adapters that do not exist. Without `make guest`, or without namespaces, they print `SKIP`.

use serde_json::Value;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One guest at a time: each needs a processor.
static ALONE: Mutex<()> = Mutex::new(());
/// How far what a guest measures may be from the model where the certificate says that the adapter kept up.
const TOLERANCE: f64 = 0.10;

/// Runs a command in a guest on an adapter; `None` where there are no guests.
fn live(adapter: &str, sets: &[&str], command: &str) -> Option<(Value, MutexGuard<'static, ()>)> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut program = Command::new(env!("CARGO_BIN_EXE_lastmeter"));
    program.current_dir(root).args(["--json", "live", adapter, "--guest", "--spin", "200 us"]);
    for set in sets {
        // Another option, or an override of the adapter.
        program.args(if set.starts_with("--") { vec![*set] } else { vec!["--set", *set] });
    }
    let ended = program.args(["--", "sh", "-c", command]).output().unwrap();
    let text = String::from_utf8_lossy(&ended.stdout);
    match serde_json::from_str(&text) {
        Ok(value) => Some((value, alone)),
        Err(_) => {
            let why = String::from_utf8_lossy(&ended.stderr);
            let missing = why.contains("make guest") || why.contains("namespaces");
            assert!(missing, "{:?}: {why}{text}", ended.status);
            println!("SKIP: {}", why.trim());
            None
        }
    }
}

/// Milliseconds of the pings, in order of length.
fn pings(output: &str) -> Vec<f64> {
    let times =
        output.split("time=").skip(1).filter_map(|rest| rest.split(' ').next()?.parse().ok());
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    times
}

/// Megabits a second that the receiver of iperf3 counted.
fn received(output: &str) -> Option<f64> {
    let line = output.lines().find(|line| line.ends_with("receiver"))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let unit = words.iter().position(|word| *word == "Mbits/sec")?;
    words[unit - 1].parse().ok()
}

/// Pings take at least what the model says, in ms. A few may take less: ARP and IPv6 send frames of their own, whose
/// late interrupt reports an answer that has come meanwhile.
fn never_early(pings: &[f64], least: f64) {
    assert!(pings[pings.len() / 4] >= least, "never early: {pings:?} ms of {least}");
}

fn kept_up(value: &Value) -> bool {
    value["certificate"]["kept_up"] == true
}

#[test]
fn e_44_a_slow_dma_and_late_interrupts_are_what_a_stock_guest_sees() {
    let sets = [
        "transfer.per-byte=1 us/B",
        "host-interface.coalescing=64",
        "host-interface.coalescing-time=2 ms",
    ];
    let script = "ping -c 10 -i 0.1 10.77.0.1; iperf3 -c 10.77.0.1 -t 3 -f m";
    let Some((value, _alone)) = live("profiles/devices/simple-nic.toml", &sets, script) else {
        return;
    };
    let output = value["guest"]["output"].as_str().unwrap();
    assert_eq!(value["guest"]["status"], 0, "{output}");
    let model = |of: &str, what: &str| value["guest"]["model"][of][what].as_f64().unwrap();
    let adapter = (model("ping", "out") + model("ping", "in")) * 1e3;
    // 98 us of DMA each way, and 2 ms until the interrupt.
    assert!((adapter - 2.196).abs() < 0.001, "{adapter}");
    let pings = pings(output);
    assert_eq!(pings.len(), 10, "{output}");
    // A stock guest has one interrupt for both rings: that of the request reports an answer that has come meanwhile.
    let least = model("ping", "out") * 1e3 + 2.0;
    never_early(&pings, least);
    // Of a frame of 1514 bytes, 1448 are a TCP segment's with its time stamps.
    let most = model("longest", "frames") * 1448.0 * 8e-6;
    let rate = received(output).unwrap();
    println!("ping {} ms, adapter {adapter:.3}; TCP {rate} Mbit/s of {most:.2}", pings[5]);
    assert!(rate <= most * 1.02, "never faster: {rate} of {most}");
    let stage = |path: usize, stage: usize| value["paths"][path]["stages"][stage].clone();
    assert_eq!((&stage(0, 2)["name"], &stage(1, 1)["name"]), (&"bus".into(), &"bus".into()));
    if kept_up(&value) {
        // One limits TCP: the bus.
        assert!(rate >= most * (1.0 - TOLERANCE), "{rate} of {most}");
        let resources = value["resources"].as_array().unwrap().iter();
        let busiest = resources.max_by(|a, b| {
            let busy = |one: &Value| one["busy"].as_f64().unwrap();
            busy(a).total_cmp(&busy(b))
        });
        assert_eq!(busiest.unwrap()["name"], "adapter.bus");
    } else {
        println!("undecided: {}", value["certificate"]["words"]);
    }
}

/// A ping over a DMA of 1 us a byte and interrupts 2 ms late is never early, and TCP never faster than the adapter:
/// its rate and the highest, in Mbit/s.
fn never_ahead(value: &Value, output: &str) -> (f64, f64) {
    let model = |of: &str, what: &str| value["guest"]["model"][of][what].as_f64().unwrap();
    let adapter = (model("ping", "out") + model("ping", "in")) * 1e3;
    assert!((adapter - 2.196).abs() < 0.001, "{adapter}");
    let pings = pings(output);
    assert_eq!(pings.len(), 12, "{output}");
    // The interrupt of the request says nothing of an answer that has come meanwhile: all of both ways.
    never_early(&pings, adapter);
    let most = model("longest", "frames") * 1448.0 * 8e-6;
    let rate = received(output).unwrap();
    println!("ping {} ms, adapter {adapter:.3}; TCP {rate} Mbit/s of {most:.2}", pings[6]);
    assert!(rate <= most * 1.02, "never faster: {rate} of {most}");
    (rate, most)
}

#[test]
fn a_34_a_guest_runs_an_adapter_by_registers_with_an_interrupt_for_each_ring() {
    let sets = [
        "--bus=vfio",
        "transfer.per-byte=1 us/B",
        "host-interface.coalescing=64",
        "host-interface.coalescing-time=2 ms",
    ];
    // While TCP fills the adapter, its registers say so to the guest.
    let script = "ping -c 10 -i 0.1 10.77.0.1; (sleep 1.5; \
                  echo in flight: $(cat /sys/class/net/eth0/device/in_flight)) & \
                  iperf3 -c 10.77.0.1 -t 3 -f m && wait && \
                  iperf3 -c 10.77.0.1 -t 1 -R && ip link set eth0 down && ip link set eth0 up && \
                  ping -c 2 10.77.0.1 && grep lastmeter_nic /proc/interrupts";
    let Some((value, _alone)) = live("simple-nic", &sets, script) else { return };
    let output = value["guest"]["output"].as_str().unwrap();
    assert_eq!(value["guest"]["status"], 0, "{output}");
    let (rate, most) = never_ahead(&value, output);
    let state = output.lines().find_map(|line| line.strip_prefix("in flight: ")).unwrap();
    assert!(state.parse::<u64>().unwrap() > 0, "{output}");
    for vector in ["lastmeter_nic-rx", "lastmeter_nic-tx"] {
        let line = output.lines().find(|line| line.contains(vector)).unwrap();
        let count: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(count > 10, "{line}");
    }
    if kept_up(&value) {
        assert!(rate >= most * (1.0 - TOLERANCE), "{rate} of {most}");
    } else {
        println!("undecided: {}", value["certificate"]["words"]);
    }
}

#[test]
fn e_60_a_stock_guest_receives_by_the_commands_of_fig_5_2() {
    let Some((value, _alone)) = live("cim", &[], "ping -c 3 -i 0.1 10.77.0.1") else { return };
    let output = value["guest"]["output"].as_str().unwrap();
    assert_eq!(value["guest"]["status"], 0, "{output}");
    let commands = value["guest"]["reception"].as_array().unwrap();
    let first: Vec<_> = commands.iter().filter(|command| command["frame"] == 0).collect();
    let said: Vec<&str> = first.iter().map(|said| said["command"].as_str().unwrap()).collect();
    assert_eq!(said, ["read", "read ack", "address", "address ack", "read end"]);
    let sides: Vec<&str> = first.iter().map(|said| said["side"].as_str().unwrap()).collect();
    assert_eq!(sides, ["adapter", "host", "host", "adapter", "adapter"]);
    let at = |of: usize| first[of]["at"].as_f64().unwrap() - first[0]["at"].as_f64().unwrap();
    assert!((at(1) - 1280e-6).abs() < 1e-9 && at(4) > at(1), "M_overhead of Table 5.1: {}", at(1));
    let adapter = ["out", "in"].map(|way| value["guest"]["model"]["ping"][way].as_f64().unwrap());
    let adapter = adapter.iter().sum::<f64>() * 1e3;
    // 1280 + 0.42 x 98 + 1.76 + 1350 + 79.75 us out, 79.75 + 1280 + 0.42 x 98 + 1.76 us in.
    assert!((adapter - 4.155).abs() < 0.001, "{adapter}");
    let pings = pings(output);
    println!("ping {pings:?} ms, adapter {adapter:.3}");
    assert!(pings.len() == 3 && pings[0] >= adapter, "never early: {pings:?}");
}

#[test]
fn two_stock_guests_on_two_adapters_reach_each_other_over_a_long_cable() {
    let options = ["--two-guests", "--propagation=5 ms", "queueing.depth=4"];
    let script = "ping -c 5 -i 0.1 10.77.0.1; iperf3 -c 10.77.0.1 -t 2 -f m";
    let Some((value, _alone)) = live("cim", &options, script) else { return };
    let output = value["guest"]["output"].as_str().unwrap();
    assert_eq!(value["guest"]["status"], 0, "{output}");
    let model = |what: &str| value["guest"]["model"]["ping"][what].as_f64().unwrap() * 1e3;
    // Out of one adapter, 5 ms, into the other, and back. A frame's time on the wire counts once.
    let wire = 0.07975;
    let least = 2.0 * (model("out") + 5.0 + model("in") - wire);
    let pings = pings(output);
    println!("ping {pings:?} ms of {least:.3}; TCP {:?} Mbit/s", received(output));
    assert!(pings.len() == 5 && pings[0] >= least, "never early: {pings:?} of {least}");
    assert!(received(output).is_some_and(|rate| rate > 0.5), "{output}");
    let notes = value["notes"].to_string();
    assert!(notes.contains("The peer's adapter"), "{notes}");
}

#[test]
fn e_51_e_54_two_guests_ping_by_headers_alone_and_the_whole_ping_takes_its_time() {
    let options = ["--two-guests", "--headers=128", "transfer.per-byte=1 us/B"];
    let script = "ping -c 10 -i 0.1 -s 1400 10.77.0.1";
    let Some((value, _alone)) = live("simple-nic", &options, script) else { return };
    let output = value["guest"]["output"].as_str().unwrap();
    assert_eq!(value["guest"]["status"], 0, "{output}");
    // 1442 bytes of 1 us each, over four buses.
    let least = 4.0 * 1.442;
    let pings = pings(output);
    println!("ping {pings:?} ms of {least:.3}");
    assert!(pings.len() == 10 && pings[0] >= least, "never early: {pings:?}");
    let notes = value["notes"].to_string();
    let words = notes.split("Of ").nth(1).unwrap();
    let numbers: Vec<u64> = words.split(' ').filter_map(|word| word.parse().ok()).take(2).collect();
    let [all, copied] = numbers[..] else { panic!("{notes}") };
    // Twenty frames of 1442 bytes, of which 128 each; a few short ones are whole.
    assert!(all >= 20 * 1442 && copied >= 20 * 128 && copied <= all - 20 * (1442 - 128), "{words}");
}

#[test]
fn e_55_a_guest_sees_a_stretched_adapter_and_the_ledger_the_adapters_own_time() {
    let sets = ["--slower=8", "transfer.per-byte=1 us/B"];
    let Some((value, _alone)) = live("simple-nic", &sets, "ping -c 10 -i 0.1 10.77.0.1") else {
        return;
    };
    let output = value["guest"]["output"].as_str().unwrap();
    assert_eq!(value["guest"]["status"], 0, "{output}");
    let model = |what: &str| value["guest"]["model"]["ping"][what].as_f64().unwrap();
    let adapter = (model("out") + model("in")) * 1e3;
    assert!((adapter - 0.196).abs() < 0.002, "98 us of DMA each way: {adapter}");
    let pings = pings(output);
    assert_eq!(pings.len(), 10, "{output}");
    assert!(pings[0] >= 8.0 * adapter, "eight times as long: {} of {adapter}", pings[0]);
    println!("ping {} ms of at least {:.3}", pings[5], 8.0 * adapter);
    // Frames of at most 98 bytes, unless others are sent besides.
    let bus = value["paths"][0]["stages"][2]["service"]["mean"].as_f64().unwrap();
    assert!(bus < 2.0 * 98e-6, "of the adapter's own time: {bus}");
}

#[test]
fn a_03_a_stock_guest_runs_virtio_by_vfio_user_with_an_interrupt_for_each_ring() {
    let sets = [
        "--bus=vfio",
        "host-interface.driver=virtio",
        "transfer.per-byte=1 us/B",
        "host-interface.coalescing=64",
        "host-interface.coalescing-time=2 ms",
    ];
    // The driver goes and comes back, which resets the device.
    let script = "echo driver $(basename $(readlink /sys/class/net/eth0/device/driver)); \
                  echo pci $(cat /sys/class/net/eth0/device/../vendor /sys/class/net/eth0/device/../device); \
                  ping -c 10 -i 0.1 10.77.0.1; iperf3 -c 10.77.0.1 -t 3 -f m && \
                  iperf3 -c 10.77.0.1 -t 1 -R && grep virtio0 /proc/interrupts && \
                  rmmod virtio_net && insmod /lib/modules/virtio_net.ko && \
                  ip addr add 10.77.0.2/24 dev eth0 && ip link set eth0 up && ping -c 2 10.77.0.1";
    let Some((value, _alone)) = live("simple-nic", &sets, script) else { return };
    let output = value["guest"]["output"].as_str().unwrap();
    assert_eq!(value["guest"]["status"], 0, "{output}");
    assert!(output.starts_with("driver virtio_net\npci 0x1af4 0x1041\n"), "{output}");
    let (rate, most) = never_ahead(&value, output);
    for vector in ["virtio0-input.0", "virtio0-output.0"] {
        let line = output.lines().find(|line| line.contains(vector)).unwrap();
        let count: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(count > 10, "{line}");
    }
    if kept_up(&value) {
        assert!(rate >= most * (1.0 - TOLERANCE), "{rate} of {most}");
    } else {
        println!("undecided: {}", value["certificate"]["words"]);
    }
}
