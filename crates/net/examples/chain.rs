//! scratch
use lastmeter_base::*;
use lastmeter_engine::*;
use lastmeter_net::{queue::*, server::*, source::*, *};
use std::time::Instant;
fn main() {
    for collecting in [true, false, true, false] {
        let copies: usize = std::env::args().nth(1).map_or(1, |a| a.parse().unwrap());
        let mut g = Graph::new(1);
        g.collecting = collecting;
        let mut k = 0;
        for c in 0..copies {
            let path = g.path(format!("p{c}"), "cbr");
            let line = Service::Line { rate: Rate::from_gbit(1), framing: Bytes(0) };
            let ms = Duration::from_ms(1);
            let routers: Vec<_> = (0..10)
                .map(|i| {
                    let mut t = vec![None; 50];
                    for d in 0..50 {
                        t[d] = Some(PortId(if i == 9 { d as u16 } else { 0 }));
                    }
                    g.add(format!("c{c}r{i}"), forwarder::Forwarder::new(t)).unwrap()
                })
                .collect();
            let mut egress = |g: &mut Graph,
                              name: String,
                              stage: StageId,
                              wire: StageId,
                              from,
                              port,
                              to| {
                let r = g.resource(ResourceInfo {
                    name: name.clone(),
                    kind: ResourceKind::Wire,
                    units: 1,
                });
                let e = g
                    .add(
                        name,
                        Server::new(DropTail::new(200, Bytes(u64::MAX)), line.clone(), stage, r),
                    )
                    .unwrap();
                g.connect(from, port, e, PortId(0)).unwrap();
                g.connect_after(e, PortId(0), to, PortId(0), ms, Some(wire)).unwrap();
                k += 1;
            };
            let st = |g: &mut Graph, n: String| {
                g.stage(StageInfo { name: n, resource: None, copies: 0, touches: 0, memory: 0 })
            };
            let (sa, sw, ta, tw) = (
                st(&mut g, "a".into()),
                st(&mut g, "aw".into()),
                st(&mut g, "b".into()),
                st(&mut g, "bw".into()),
            );
            for f in 0..50u32 {
                let s = g
                    .add(
                        format!("c{c}s{f}"),
                        Source::new(
                            Flow { path, flow: FlowId(f), destination: NodeId(f) },
                            Pattern::Gaps {
                                gap: Draw::Constant(Rate::from_mbit(18).time_for(Bytes(1500))),
                                sizes: Sizes::Constant(Bytes(1500)),
                            },
                            Span { random_phase: true, ..Span::ALWAYS },
                        ),
                    )
                    .unwrap();
                egress(&mut g, format!("c{c}sa{f}"), sa, sw, s, PortId(0), routers[0]);
                let d = g.add(format!("c{c}d{f}"), sink::Sink::default()).unwrap();
                egress(&mut g, format!("c{c}da{f}"), ta, tw, routers[9], PortId(f as u16), d);
            }
            for i in 0..9 {
                let (a, b) = (st(&mut g, format!("t{i}")), st(&mut g, format!("w{i}")));
                egress(&mut g, format!("c{c}t{i}"), a, b, routers[i], PortId(0), routers[i + 1]);
            }
        }
        let parts: usize = std::env::args().nth(2).map_or(1, |a| a.parse().unwrap());
        let mut e = g.build(parts).unwrap();
        let t = Instant::now();
        struct T;
        impl Parallel for T {
            fn run(&self, tasks: &mut [&mut (dyn FnMut() + Send)]) {
                std::thread::scope(|s| {
                    for t in tasks {
                        s.spawn(move || t());
                    }
                })
            }
        }
        e.run_parallel(Time::START + Duration::from_secs(2), &Default::default(), &T).unwrap();
        let s = t.elapsed().as_secs_f64();
        let o = e.finish().unwrap();
        let hops: u64 = o
            .elements
            .iter()
            .map(|r| r.counters.iter().filter(|c| c.0 == "served").map(|c| c.1).sum::<u64>())
            .sum();
        println!(
            "collect {collecting} parts {parts}: {hops} hops {s:.3} s {:.2} M hops/s handled {:.1} M/s, delivered {} mean {}",
            hops as f64 / s / 1e6,
            o.handled as f64 / s / 1e6,
            o.books.delivered,
            o.books.paths[0].latency.mean()
        );
    }
}
