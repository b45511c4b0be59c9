//! What the benchmark puts beside the fast path: a program of XDP that asks the kernel, and a sink that drops in its
//! driver. Needs root, `ip`, `ethtool`, two cores.
//!
//! Rows: D-94, D-110.

use super::router_bench;

#[test]
fn known_flows_and_a_lookup_of_the_kernel_are_forwarded_in_the_driver_d_94() {
    let Some(lines) = router_bench("router/fast@60") else { return };
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&line["bench"], &line["peer"]), (&"router/fast@60".into(), &"XDP".into()));
    let [own, peer] = ["value", "peer_value"].map(|name| line[name].as_f64().unwrap());
    assert!(own > 0.0 && peer > 0.0, "both forward: {line}");
}
