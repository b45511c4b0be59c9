//! Real-time channels between processes in network namespaces: the document's experiment on sockets (E-34 to E-36),
//! with its set-up (§3.5.1) and best effort beyond what the link carries. Each packet passes the three queues of two
//! links, with two packets in each adapter (E-22, E-23, E-25).

use crate::attempts::in_time;
use lastmeter_rtc::plan::{Flow, Line, Plan, Policy, What};
use lastmeter_rtc::{session, simulation};

const MS: u64 = 1_000_000_000;

/// A link of 500 packets a second; three hosts, so that one forwards; two seconds.
fn plan(third: u64) -> Plan {
    let line = |ends, rate| Line {
        ends,
        rate,
        per_packet: 0,
        packet_max: 2048,
        delay: 0,
        horizon: 0,
        outstanding: 2,
        exact: false,
    };
    let channel = |name: &str, start: u64, burst, times: u64| Flow {
        name: name.to_owned(),
        from: 0,
        to: 2,
        start: start * MS,
        stop: u64::MAX,
        gap: 50 * MS / times,
        what: What::Channel {
            message: 8192,
            interval: 50 * MS,
            burst,
            packet: 2048,
            deadline: 50 * MS,
            excess: Policy::Drop,
            bursty: burst > 1,
        },
    };
    let mail = Flow {
        name: "mail".to_owned(),
        from: 0,
        to: 2,
        start: 0,
        stop: u64::MAX,
        // Ten times what the link carries.
        gap: MS / 5,
        what: What::Effort { len: 2048, random: true },
    };
    Plan {
        nodes: ["a", "b", "c"].map(str::to_owned).to_vec(),
        links: vec![line([0, 1], 8_192_000), line([1, 2], 100_000_000)],
        flows: vec![
            channel("periodic", 0, 1, 1),
            channel("bursty", 17, 6, 1),
            channel("third", 31, 1, third),
            mail,
        ],
        room: 50,
        seed: 1,
        length: 2000 * MS,
    }
}

/// E-35: all within their bounds.
pub(crate) fn well_behaved() {
    let plan = plan(1);
    let model = simulation::run(&plan);
    let live = session::run(&plan, &|| false).unwrap();
    for (mine, theirs) in live.flows.iter().zip(&model).take(3) {
        assert!(mine.sent.established && theirs.sent.established, "{}", mine.sent.refusal);
        assert_eq!((theirs.received.missed, theirs.sent.refused), (0, 0), "in the model");
        assert_eq!(mine.sent.made, theirs.sent.made, "the same sources");
        assert_eq!((mine.received.damaged, mine.sent.refused), (0, 0));
        assert_eq!(mine.received.messages, mine.sent.made, "nothing is lost");
        let missed = mine.received.missed;
        in_time!(missed == 0, "{missed} deadlines missed, {:?}", mine.received);
    }
    let carried = live.flows[3].received.messages;
    assert!(live.flows[3].sent.made > 5 * carried && carried > 0, "mail gets what is left");
    assert!(live.hosts[0].drops[1] > 0, "the rest of it is dropped at its source");
}

/// E-24: with a horizon an idle link sends early packets, as in the model; without, they wait for their time.
pub(crate) fn horizon() {
    let run = |horizon| {
        let mut plan = plan(1);
        plan.flows.truncate(1);
        plan.length = 1000 * MS;
        plan.links.iter_mut().for_each(|line| line.horizon = horizon);
        let live = session::run(&plan, &|| false).unwrap().flows.remove(0);
        assert_eq!(live.received.messages, live.sent.made);
        (live.received.median, simulation::run(&plan)[0].received.median)
    };
    let ((waits, model_waits), (goes, model_goes)) = (run(0), run(100 * MS));
    assert!(model_goes < model_waits / 2.0, "{model_goes} s, {model_waits} s in the model");
    assert!(waits >= model_waits * 0.98, "never early: {waits} s, {model_waits} s in the model");
    in_time!(goes < waits / 2.0, "{goes} s with a horizon, {waits} s without");
}

/// E-36: one channel at twice its rate loses its own excess, and nobody else anything.
pub(crate) fn ill_behaved() {
    let plan = plan(2);
    let live = session::run(&plan, &|| false).unwrap();
    for flow in &live.flows[..2] {
        assert_eq!(flow.received.messages, flow.sent.made);
        assert_eq!((flow.received.damaged, flow.sent.refused), (0, 0));
        let missed = flow.received.missed;
        in_time!(missed == 0, "{missed} deadlines of others missed, {:?}", flow.received);
    }
    let third = &live.flows[2];
    assert!(third.sent.made > third.received.messages, "its excess is dropped");
    assert!(live.hosts[0].drops[0] > 0);
    let missed = third.received.missed;
    in_time!(missed == 0, "{missed} of its delivered messages are late, {:?}", third.received);
}

/// E-19, E-20: what no link can guarantee is refused by the managers on its way, and the others stand.
pub(crate) fn refused() {
    let mut plan = plan(1);
    plan.length = 100 * MS;
    // Each takes a third of the link, and two are what it can guarantee.
    for flow in &mut plan.flows[..3] {
        if let What::Channel { message, .. } = &mut flow.what {
            *message = 16_384;
        }
    }
    let live = session::run(&plan, &|| false).unwrap();
    let established: Vec<bool> = live.flows.iter().map(|flow| flow.sent.established).collect();
    assert_eq!(established, [true, true, false, true]);
    assert!(live.flows[2].sent.refusal.contains("cannot guarantee"));
    assert!(simulation::run(&plan).iter().map(|flow| flow.sent.established).eq(established));
}
