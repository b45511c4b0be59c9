//! Ports of a running router: plugins exchanged while packets pass, other queues on a line, several virtual interfaces on one
//! port. Needs root, `ip`, `ping`, `python3`.
//!
//! Rows: D-17, D-20, D-79, E-133.

use super::processors::{Star, came_from, receive, received, send, sum};
use super::said;

/// Packets of one flow lose none while the plugin of another is exchanged. What the interface lost because the machine was
/// busy has its own counter; an attempt in which it lost some decides nothing.
#[test]
fn a_plugin_is_exchanged_while_packets_pass_and_other_flows_lose_none_d_17() {
    let Some(mut star) = Star::new("swap", 2) else { return };
    const COUNT: u64 = 3000;
    let plugin = |least: u64| format!("{{ expression = '(< {least} length)' }}");
    star.write(
        "[plugins.x]\nexpression = '(< 0 length)'\n[[filters]]\nplugin = 'x'\n\
         match = '@10.1.0.0/24 10.2.0.9/32 0 : 65535 0 : 65535 0x00/0x00'",
        "",
    );
    star.start();
    star.reaches(1, 2);
    // The other flow's destination: its packets pass the plugin.
    super::router::ip(&format!("-n {} addr add 10.2.0.9/24 dev e0", star.hosts[1]));
    for attempt in 1..=4 {
        let before = star.json("plugins");
        let receiver = receive(&star, 2, u64::MAX / 2, 6.0);
        let others = send(&star, 1, "10.2.0.1", [COUNT / 8, 8, 1000, 200]);
        let passing = send(&star, 1, "10.2.0.9", [COUNT / 2, 1, 500, 200]);
        let (mut exchanged, mut children) = (0, [others, passing]);
        while children.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
            said(&star.router("set", &["plugins.x", &plugin(exchanged % 50)]), 0);
            exchanged += 1;
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let told = received(receiver);
        let shown = star.json("plugins");
        let overrun = |shown: &serde_json::Value| -> u64 {
            let ports = shown["ports"].as_array().unwrap().iter();
            ports.map(|port| port["counts"]["overrun"].as_u64().unwrap_or(0)).sum()
        };
        let (came, lost) = (sum(&told["came"]), overrun(&shown) - overrun(&before));
        println!("attempt {attempt}: {came} packets, {exchanged} exchanges, {lost} overrun");
        assert!(exchanged >= 10, "{exchanged}");
        assert_eq!(sum(&told["late"]), 0, "{told}");
        // The plugin saw packets after the last exchange as well: it is the new one that runs.
        assert_eq!(shown["plugins"][0]["failures"], 0, "{shown:#}");
        if lost == 0 {
            assert_eq!(came, COUNT / 8 * 8 + COUNT / 2, "{told} {shown:#}");
            return assert_eq!(star.residual(), 0);
        }
    }
    println!("UNDECIDED: the machine was busy, packets were lost before the router took them");
}

/// How far from equal the shares of two flows may be: set before the first run.
const FAIR: f64 = 0.1;

/// On a line of 2 Mbit/s, a flow that offers four times as much as another gets no more, with today's disciplines for that.
/// Without them a second flow that offers less than half of the line loses most of it; with them it would lose none.
#[test]
fn cake_and_fq_pie_share_the_line_of_a_running_port_d_79() {
    let Some(mut star) = Star::new("cake", 3) else { return };
    star.write("", "rate = '2 Mbit/s'");
    star.start();
    for from in [1, 2] {
        star.reaches(from, 3);
    }
    for (queue, fair, rates) in [
        ("{ cake = {} }", true, [1600, 400]),
        ("{ fq-pie = {} }", true, [1600, 400]),
        // Evenly spaced packets of both keep a phase, so equal queues can favour either; sixteen times as many cannot hide.
        ("{ drop-tail = { packets = 50 } }", false, [1600, 100]),
    ] {
        said(&star.router("set", &["ports.p3.queue", queue]), 0);
        let senders = [1, 2]
            .map(|k| (k, rates[k - 1]))
            .map(|(k, rate)| send(&star, k, "10.3.0.1", [rate * 60, 1, rate, 1000]));
        // What comes counts while both send: on a busy machine one may begin seconds before the other.
        let both = |told: &serde_json::Value| [1, 2].iter().all(|&k| came_from(told, k) > 0);
        let began = std::time::Instant::now();
        while !both(&received(receive(&star, 3, u64::MAX / 2, 0.5))) {
            assert!(began.elapsed() < std::time::Duration::from_secs(20), "{queue}: nothing comes");
        }
        let told = received(receive(&star, 3, u64::MAX / 2, 4.0));
        for mut sender in senders {
            sender.kill().unwrap();
            sender.wait().unwrap();
        }
        assert_eq!(sum(&told["late"]), 0, "{told}");
        let came = [1, 2].map(|k| came_from(&told, k) as f64);
        let share = came[0] / (came[0] + came[1]);
        println!(
            "{queue}: the flow that offers {} of {} gets {share:.3}",
            rates[0],
            rates[0] + rates[1]
        );
        match fair {
            true => assert!((share - 0.5).abs() <= FAIR, "{queue}: {share}"),
            // Fair shares would be 140 and 100 of the 240 packets a second that the line takes.
            false => assert!(share > 140.0 / 240.0 + FAIR, "{queue}: {share}"),
        }
        // About 240 packets a second leave: those that were sent, and the line was the limit.
        assert!(came[0] + came[1] > 600.0, "{told}");
    }
    assert_eq!(star.residual(), 0);
}

/// Every policy of reception forwards all that a line takes, is changed while packets pass, and changed back.
#[test]
fn every_policy_of_reception_forwards_e_133() {
    let Some(mut star) = Star::new("receive", 2) else { return };
    star.write("receive = 'interrupts'", "");
    star.start();
    star.reaches(1, 2);
    const COUNT: u64 = 1000;
    let overrun = || -> u64 {
        let ports = star.json("ports");
        let ports = ports["ports"].as_array().unwrap().iter();
        ports.map(|port| port["counts"]["overrun"].as_u64().unwrap_or(0)).sum()
    };
    for policy in ["interrupts", "polling", "timed", "explicit", "backoff", "mixed"] {
        said(&star.router("set", &["receive", policy]), 0);
        let before = overrun();
        let receiver = receive(&star, 2, COUNT, 40.0);
        let sender = send(&star, 1, "10.2.0.1", [COUNT / 4, 4, 2000, 200]);
        assert!(sender.wait_with_output().unwrap().status.success());
        let told = received(receiver);
        let (came, lost) = (sum(&told["came"]), overrun() - before);
        println!("{policy}: {came} packets, {lost} overrun");
        assert_eq!(sum(&told["late"]), 0, "{policy}: {told}");
        // A machine that is busy for a moment makes the interface lose some.
        assert!(came + lost >= COUNT && came > 0, "{policy}: {told}");
    }
    let wrong = said(&star.router("set", &["receive", "sometimes"]), 2);
    assert!(wrong.contains("mixed"), "{wrong}");
    said(&star.router("rollback", &["3"]), 0);
    assert_eq!(said(&star.router("get", &["receive"]), 0).trim(), "timed");
    assert!(star.pings(1, 2));
    assert_eq!(star.residual(), 0);
}

/// Two virtual interfaces on one port, each a port of the router with its own network, filters and line.
#[test]
fn a_port_has_several_virtual_interfaces_d_20() {
    let Some(mut star) = Star::new("virtual", 2) else { return };
    let (router, host) = (star.router.clone(), star.hosts[1].clone());
    super::router::ip(&format!("-n {router} addr flush dev p2"));
    for v in 1..=2 {
        let add = format!("-n {router} link add v{v} link p2 type macvlan mode bridge");
        let made = std::process::Command::new("ip").args(add.split_whitespace()).output().unwrap();
        if !made.status.success() {
            return println!("SKIP: no macvlan: {}", String::from_utf8_lossy(&made.stderr));
        }
        super::router::ip(&format!("-n {router} addr add 10.2{v}.0.2/24 dev v{v}"));
        super::router::ip(&format!("-n {router} link set v{v} up"));
        super::router::ip(&format!("-n {host} addr add 10.2{v}.0.1/24 dev e0"));
    }
    super::router::ip(&format!("-n {host} route replace default via 10.21.0.2"));
    let text = "[ports.p1]\ninterface = 'p1'\n[ports.v1]\ninterface = 'v1'\n\
                [ports.v2]\ninterface = 'v2'\nrate = '1 Mbit/s'\n";
    std::fs::write(star.folder.path().join("router.toml"), text).unwrap();
    star.start();
    let ping = |to: &str| {
        let ping = ["ping", "-n", "-i", "0.05", "-W", "1", "-c", "3", to];
        star.at(1, &ping).output().unwrap().status.success()
    };
    let began = std::time::Instant::now();
    while !(ping("10.21.0.1") && ping("10.22.0.1")) {
        assert!(began.elapsed() < std::time::Duration::from_secs(10), "{:#}", star.json("ports"));
    }
    let sent = |port: usize| star.json("ports")["ports"][port]["counts"]["sent"].as_u64().unwrap();
    assert!(sent(1) >= 3 && sent(2) >= 3, "each has its own counts");
    // A filter of the one does not touch the other.
    let deny =
        "[{ match = '@0.0.0.0/0 10.22.0.0/24 0 : 65535 0 : 65535 0x01/0xFF', action = 'deny' }]";
    said(&star.router("set", &["filters", deny]), 0);
    assert!(ping("10.21.0.1") && !ping("10.22.0.1"));
    assert_eq!(star.residual(), 0);
}
