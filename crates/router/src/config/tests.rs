//! A router's file: what is read of it, and what is refused.

use super::*;
use crate::port_processor::structure::Structure;
use lastmeter_lab::library::Builtin;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse("router.toml", text.as_bytes(), &Builtin)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

const TWO: &str = "[ports.west]\ninterface = 'eth0'\n[ports.east]\ninterface = 'eth1'\n";

#[test]
fn ports_are_in_the_order_of_their_names() {
    let config = parse(TWO).expect("a router");
    assert_eq!((config.port("east"), config.port("west")), (Some(0), Some(1)));
    assert_eq!(config.ports[1].interface, "eth0");
    assert_eq!((config.ports[0].flows, config.lookup), (1024, Lookup::Auto));
    let config = parse(&format!("lookup = 'direct'\n{TWO}")).expect("a router");
    assert_eq!(config.lookup, Lookup::Fixed(Structure::Direct));
}

#[test]
fn each_mistake_is_told_at_its_line() {
    let wrong = |text: &str| parse(&format!("{TWO}{text}")).expect_err("a mistake");
    let told = parse(&format!("lookup = 'dir'\n{TWO}")).expect_err("a mistake");
    assert!(told.contains("router.toml:1:10: lookup") && told.contains("tree-bitmap"), "{told}");
    let told = wrong("rat = '1 Gbit/s'");
    assert!(told.contains("router.toml:5:1") && told.contains("did you mean `rate`"), "{told}");
    let told = wrong("[[routes]]\nprefix = '192.0.2.0/33'");
    assert!(told.contains("router.toml:6:10: routes.prefix"), "{told}");
    let told = wrong("plugins = ['dscq']\n[plugins.dscp]\nmodule = 'dscp.wasm'");
    assert!(told.contains("did you mean `dscp`"), "{told}");
    let told = wrong("[[filters]]\nmatch = 'all'");
    assert!(told.contains("filters.match") && told.contains("source ports"), "{told}");
    let open = parse(&format!("fpm = '0.0.0.0:2620'\n{TWO}")).expect_err("open to all");
    assert!(open.contains("no authentication") && open.contains("1:7"), "{open}");
    let told = wrong("[plugins.x]\nconfig = 'a'");
    assert!(told.contains("a module, an expression"), "{told}");
    assert!(parse("").expect_err("no ports").contains("has 0"));
    assert!(wrong("queue = { qsdr = {} }").contains("qsdrr"));
}

#[test]
fn each_port_has_one_processor_and_a_fabric_needs_rates() {
    let config = parse(&format!("core = 1\n{TWO}")).expect("a router");
    let one = &config.processors[0];
    assert_eq!((config.processors.len(), one.core, &one.ports[..]), (1, Some(1), &[0, 1][..]));
    let both = "[processors.b]\nports = ['east']\ncore = 3\n[processors.a]\nports = ['west']\n";
    let config = parse(&format!("start = 'in-turn'\n{TWO}{both}")).expect("a router");
    let names: Vec<&str> = config.processors.iter().map(|one| one.name.as_str()).collect();
    assert_eq!((names, config.owners(), config.in_turn), (vec!["a", "b"], vec![1, 0], true));
    assert_eq!(config.processors[1].core, Some(3));
    let wrong = |text: &str| parse(text).expect_err("a mistake");
    for (text, told) in [
        (format!("core = 1\n{TWO}{both}"), "1:8: core: there are several"),
        (format!("{TWO}[processors.a]\nports = ['west']"), "no port processor serves port `east`"),
        (format!("{TWO}{both}[processors.c]\nports = ['east']"), "is served by `b`"),
        (format!("{TWO}{both}[processors.c]"), "it serves no port"),
        (format!("{TWO}[processors.a]\nports = ['wset']"), "did you mean `west`"),
        (format!("{TWO}{both}[fabric]\nspeed-up = 2.0"), "port `east` has no rate"),
    ] {
        let found = wrong(&text);
        assert!(found.contains(told), "{text}: {found}");
    }
    let rates = TWO.replace("'\n", "'\nrate = '10 Mbit/s'\n");
    let config = parse(&format!("{rates}{both}[fabric]\nspeed-up = 2.0")).expect("a router");
    let fabric = config.fabric.expect("a fabric");
    assert_eq!((fabric.speed_up, fabric.responsive, fabric.room), (2.0, true, ROOM));
    let told = wrong(&format!("{rates}{both}[fabric]\nperiod = '1 us'"));
    assert!(told.contains("fabric.period"), "{told}");
}

#[test]
fn mistakes_in_flows_and_policies_are_told_at_their_lines() {
    let wrong = |text: &str| parse(&format!("{TWO}{text}")).expect_err("a mistake");
    let all = "match = '@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00'";
    for (text, told) in [
        (format!("[flows.a]\n{all}\nfrom = 'wset'"), "7:8: flows.a.from: there is no port"),
        (format!("[flows.a]\n{all}\nfunctions = ['x']"), "7:14: flows.a.functions"),
        (format!("[flows.a]\n{all}\nroute = ['b']"), "there is no node `b`"),
        (format!("[flows.a]\n{all}\nrate = 5"), "7:8: flows.a.rate"),
        ("[flows.a]\nrate = '1 Mbit/s'".to_owned(), "lacks `match`"),
        (format!("[flows.a]\n{all}\nlabel = 99"), "7:9: flows.a.label: it has both"),
        ("[flows.a]\nlabel = 99".to_owned(), "say where it arrives"),
        ("[flows.a]\nlabel = 9\nfrom = 'west'".to_owned(), "6:9: flows.a.label"),
        ("[flows.a]\nlabel = 99\nfrom = 'west'".to_owned(), "port `west` takes no labels"),
        (format!("[flows.a]\n{all}\nnext-label = 99"), "flows.a.next-label"),
        (format!("[flows.a]\n{all}\nnext-label = 5\nvia = '10.2.0.9'"), "no label"),
        (format!("[flows.a]\n{all}\nrsvp = '10.3.0.1'"), "RSVP reserves a rate"),
        (format!("[flows.a]\n{all}\nrsvp = 'b'\nrate = '1 Mbit/s'"), "7:8: rsvp"),
        (format!("[flows.a]\n{all}\nrsvp = '10.3.0.1'\nrate = '1 Mbit/s'"), "no port takes labels"),
        (
            format!(
                "[flows.a]\n{all}\nrsvp = '10.3.0.1'\nroute = ['b']\n[nodes.b]\naddress = '::2'"
            ),
            "has an address of IPv6",
        ),
        ("[[filters]]\nprefix = '10.0.0.0/8 1.1.1.1'".to_owned(), "6:10: filters.prefix"),
        (format!("[[filters]]\n{all}\nflow = 'b'"), "7:8: filters.flow: there is no flow"),
        ("[[policies]]\nfrom = '10.0.0.0/8'".to_owned(), "either `via` or `table`"),
        ("[[policies]]\ntable = 'x'".to_owned(), "6:9: policies.table"),
        ("[[policies]]\ndscp = 64\nvia = '10.0.0.1'".to_owned(), "6:8: policies.dscp"),
        ("[nodes.b]\naddress = 'x'".to_owned(), "6:11"),
        ("[plugins.x]\nserver = 'ftp://y'".to_owned(), "6:10: plugins.x.server"),
        ("[plugins.x]\nserver = 'http://y'".to_owned(), "nobody's signature"),
    ] {
        let found = wrong(&text);
        assert!(found.contains(told), "{text}: {found}");
    }
}

#[test]
fn a_flow_has_what_its_file_says() {
    let text = format!(
        "[flows.film]\nmatch = '@10.1.0.1/32 10.2.0.2/32 0 : 65535 80 : 80 0x11/0xFF'\n\
         from = 'west'\nrate = '2 Mbit/s'\nroute = ['b', 'c']\nttl = '30 s'\n\
         [nodes]\nb = {{ address = '10.2.0.9' }}\nc = {{ address = '10.3.0.9' }}\n\
         [[routes]]\nprefix = '0.0.0.0/0'\nvia = '10.2.0.9'\ntable = 'other'\n\
         [[policies]]\nfrom = '10.1.0.0/16'\ndscp = 46\ntable = 'other'\n{TWO}"
    );
    let config = parse(&text).expect("a router");
    let flow = &config.flows[0];
    assert_eq!((flow.from, flow.rate), (Some(1), Some(Rate::from_mbit(2))));
    assert_eq!((flow.burst, flow.queue, flow.route.len()), (Bytes(15_000), 256, 2));
    let policy = &config.policies[0];
    assert_eq!((policy.dscp, policy.to), (Some(46), PolicyTo::Table(0)));
    assert_eq!(config.routes[0].table.as_deref(), Some("other"));
}

#[test]
fn prefixes_lose_the_bits_beyond_their_length() {
    assert_eq!(prefix("192.0.2.9/24"), Some(("192.0.2.0".parse().expect("an address"), 24)));
    assert_eq!(prefix("2001:db8::1/129"), None);
}
