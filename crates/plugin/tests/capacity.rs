//! Many instances at once.

use lastmeter_base::Time;
use lastmeter_plugin::expression::Expression;
use lastmeter_plugin::host::{Host, Limits};
use lastmeter_plugin::instance::{Fail, Instance};
use lastmeter_plugin::request::{Answers, Body, Policy, Request};
use lastmeter_plugin::{Kind, Verdict};

/// As many as a router has flows with a plugin of their own.
const INSTANCES: u32 = 10_000;

/// Bytes of memory that this process has in use.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn ten_thousand_instances_are_resident_and_each_answers() {
    let limits = Limits { instances: INSTANCES, memory: 1 << 20, ..Limits::default() };
    let host = Host::new(limits).unwrap();
    let text = "(< length 100)";
    let module = Expression::new("small", Kind::Packet, text).unwrap().compile();
    let class = host.load("small", &module, Some(Kind::Packet)).unwrap();
    let now = Time::from_ps(0);
    let before = resident();
    let new = |_| Instance::new(class.clone(), "small", b"", Fail::Closed, 1, now).unwrap();
    let mut instances: Vec<Instance> = (0..INSTANCES - 1).map(new).collect();
    let body = Body::Packet { interface: 0 };
    let mut answers = Answers::default();
    for (number, instance) in instances.iter_mut().enumerate() {
        let length = if number % 2 == 0 { 99 } else { 100 };
        let request = Request { body, flow: 0, arrival: now, mark: 0, length, data: &[] };
        instance.process(now, &[request], &mut answers);
        let verdict = if number % 2 == 0 { Verdict::Allow } else { Verdict::Deny { code: 0 } };
        assert_eq!(answers.answers[0].verdict, verdict);
    }
    let each = (resident() - before) / u64::from(INSTANCES - 1);
    println!("{each} bytes resident for each instance");
    assert!(each < 64 << 10, "{each} bytes for each instance");
}

#[test]
fn one_instance_too_many_is_refused_and_harms_none() {
    let host = Host::new(Limits { instances: 3, ..Limits::default() }).unwrap();
    let module = Expression::new("e", Kind::Packet, "(allow)").unwrap().compile();
    let class = host.load("e", &module, None).unwrap();
    let now = Time::from_ps(0);
    let new = || Instance::new(class.clone(), "e", b"", Fail::Closed, 1, now);
    let kept: Vec<Instance> = (0..3).map(|_| new().unwrap()).collect();
    assert!(new().is_err());
    drop(kept);
    assert!(new().is_ok());
}
