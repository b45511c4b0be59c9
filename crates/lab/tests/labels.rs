//! Routers of a model that reserve their links by RSVP and forward by labels (D-43).

use super::reception::{run, shown};
use lastmeter_engine::Outcome;
use lastmeter_engine::site::Changes;
use lastmeter_lab::document::Override;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::Builtin;

const ROW: &str = include_str!("../../../experiments/label-routers/experiment.toml");

fn parsed(text: &str, sets: &[&str]) -> Result<Experiment, String> {
    let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).unwrap()).collect();
    Experiment::parse("experiment.toml", text, &sets, &Builtin).map_err(shown)
}
fn outcome(text: &str, sets: &[&str]) -> Outcome {
    run(&parsed(text, sets).unwrap(), &Changes::NONE)
}
fn count(outcome: &Outcome, element: &str, counter: &str) -> u64 {
    let known = outcome.elements.iter().find(|one| one.name == element).expect(element);
    known.counters.iter().find(|(name, _)| *name == counter).expect(counter).1
}
/// A path: offered and delivered packets, and the longest latency in milliseconds.
fn path(outcome: &Outcome, class: &str) -> (u64, u64, f64) {
    let at = outcome.paths.iter().position(|path| path.class == class).expect(class);
    let book = &outcome.books.paths[at];
    let longest = book.latency.max().as_secs_f64() * 1e3;
    (book.offered.packets, book.delivered.packets, longest)
}
/// Packets that were dropped for a reason, but for messages.
fn dropped(outcome: &Outcome, reason: &str) -> u64 {
    let all = outcome.paths.iter().zip(&outcome.books.paths);
    let all = all.filter(|(path, _)| path.class != "rsvp").flat_map(|(_, book)| &book.dropped);
    all.filter(|(key, _)| key.reason == reason).map(|(_, count)| count.packets).sum()
}

/// `experiments/label-routers/README.md` has these figures.
#[test]
fn a_reserved_flow_keeps_its_rate_and_delay_and_what_does_not_fit_is_refused_d_43() {
    let outcome = outcome(ROW, &[]);
    let all = ["film", "film without", "guest", "late", "crowd"];
    let delivered = all.map(|class| path(&outcome, class).1);
    assert_eq!(delivered, [11_054, 2_627, 13_594, 12_221, 16_848]);
    // The same film by the tunnel and without it.
    let (offered, delivered, longest) = path(&outcome, "film");
    assert!(offered - delivered < 15, "only those on their way: {delivered} of {offered}");
    assert!(longest < 5.5, "{longest} ms, of which 4 on the way");
    let (offered, delivered, longest) = path(&outcome, "film without");
    assert!(delivered * 3 < offered && longest > 200.0, "{delivered} of {offered}, {longest} ms");
    for (router, counter) in [("west", "pushed"), ("east", "popped")] {
        assert!(count(&outcome, router, counter) > 11_000);
    }
    // All three want 110 Mbit/s of 80: at the link of r3, which is asked first on the way back.
    assert_eq!(count(&outcome, "r3", "refused"), count(&outcome, "lane", "denied"));
    assert!(count(&outcome, "lane", "denied") > 3);
    // What the guest had is free when it is silent; r1 misses it, the others are told.
    let expired = |name: &str| count(&outcome, name, "expired");
    assert_eq!(["r1", "r2", "r3", "east"].map(expired), [1, 0, 0, 0]);
    assert_eq!(["west", "gate", "lane"].map(|name| count(&outcome, name, "ups")), [1, 1, 1]);
    let (pushed, forwarded) =
        (count(&outcome, "lane", "pushed"), count(&outcome, "lane", "forwarded"));
    // Silent from 3 s on; it is free 5.25 refreshes of 0.2 s after the last one, and asked for again within 0.3 s.
    let up = 1.1 + forwarded as f64 * 1200.0 * 8.0 / 36e6;
    assert!((3.0 + 0.75..3.0 + 1.05 + 0.4).contains(&up), "{up} s");
    assert_eq!(pushed + forwarded, path(&outcome, "late").0);
    for name in ["r1", "r2", "r3", "east"] {
        assert_eq!((count(&outcome, name, "paths"), count(&outcome, name, "reserved")), (2, 2));
        assert_eq!(count(&outcome, name, "wrong"), 0);
    }
    assert_eq!(dropped(&outcome, "label"), 0);
}

#[test]
fn without_a_reservation_the_same_flow_suffers_like_the_others_d_43() {
    let never = "nodes.west.label-router.asked=[[\"7 s\", \"8 s\"]]";
    let outcome = outcome(ROW, &[never, "duration=\"2 s\""]);
    let (offered, delivered, longest) = path(&outcome, "film");
    assert!(delivered * 2 < offered && longest > 100.0, "{delivered} of {offered}, {longest} ms");
    assert_eq!((count(&outcome, "west", "pushed"), count(&outcome, "west", "ups")), (0, 0));
}

#[test]
fn what_a_link_has_not_is_refused_at_once_or_further_on_and_goes_without_d_43() {
    // The guest stays, so that there is never room; the film's own router has not what it asks for.
    let greedy = "nodes.west.label-router.rate=\"90 Mbit/s\"";
    let outcome = outcome(ROW, &["nodes.gate.label-router.down=[[\"7 s\", \"8 s\"]]", greedy]);
    assert!(count(&outcome, "west", "refused") > 4, "it tries again each second");
    assert_eq!((count(&outcome, "west", "ups"), count(&outcome, "west", "reserved")), (0, 0));
    // Without the film, 50 and 40 are still more than 80.
    assert_eq!((count(&outcome, "lane", "ups"), count(&outcome, "lane", "pushed")), (0, 0));
    assert!(count(&outcome, "r3", "refused") > 10);
    assert_eq!(count(&outcome, "lane", "denied"), count(&outcome, "r3", "refused"));
    // No router holds anything for it, and its packets arrive as far as there is room.
    for name in ["r1", "r2", "r3"] {
        assert_eq!((count(&outcome, name, "paths"), count(&outcome, name, "reserved")), (2, 1));
    }
    let (offered, delivered, _) = path(&outcome, "late");
    assert!(delivered > 0 && delivered * 2 < offered, "{delivered} of {offered}");
}

/// Three routers, of which the second link can be cut, and a way around it.
const RING: &str = r#"
duration = "10 s"
[nodes]
alice = { host = {} }
one = { label-router = { to = "bob", rate = "4 Mbit/s", refresh = "200 ms" } }
two = { label-router = { refresh = "200 ms" } }
three = { label-router = { refresh = "200 ms" } }
cable = { partition = { windows = [["20 s", "21 s"]] } }
detour = { label-router = { refresh = "200 ms" } }
bob = { host = {} }
[[links]]
between = ["alice", "one", "two", "cable", "three", "bob"]
rate = "10 Mbit/s"
delay = "1 ms"
[[links]]
between = ["one", "detour", "three"]
rate = "10 Mbit/s"
delay = "1 ms"
cost = 5
[[traffic]]
name = "film"
from = "alice"
to = "bob"
constant = { rate = "3 Mbit/s", size = "1000 B" }
"#;

#[test]
fn a_tunnel_that_is_not_asked_for_any_more_is_torn_down_at_once_d_43() {
    let outcome = outcome(RING, &["nodes.one.label-router.asked=[[\"1 s\", \"3 s\"]]"]);
    for name in ["one", "two", "three"] {
        let all = ["paths", "reserved", "expired", "wrong"];
        assert_eq!(all.map(|counter| count(&outcome, name, counter)), [0; 4], "{name}");
    }
    let pushed = count(&outcome, "one", "pushed");
    // 375 packets a second; it takes 8 ms until it is up.
    assert!((740..=750).contains(&pushed), "{pushed}");
    assert_eq!(count(&outcome, "three", "popped"), pushed);
    let (offered, delivered, _) = path(&outcome, "film");
    assert!(offered - delivered < 5);
}

#[test]
fn state_behind_a_cut_link_expires_on_both_sides_and_comes_back_d_43() {
    let cut = |until: &str| {
        outcome(RING, &[&format!("nodes.cable.partition.windows=[[\"2 s\", \"{until}\"]]")])
    };
    let lasting = cut("20 s");
    // The second misses reservations, the third the path.
    assert_eq!(["one", "two", "three"].map(|name| count(&lasting, name, "expired")), [0, 1, 1]);
    assert_eq!(["one", "two", "three"].map(|name| count(&lasting, name, "reserved")), [1, 0, 0]);
    assert_eq!((count(&lasting, "one", "ups"), count(&lasting, "three", "paths")), (1, 0));
    let healed = cut("6 s");
    assert_eq!((count(&healed, "one", "ups"), count(&healed, "three", "reserved")), (2, 1));
    let (offered, delivered, _) = path(&healed, "film");
    assert!((offered - delivered).abs_diff(4 * 375) < 5, "4 s of them: {delivered} of {offered}");
}

#[test]
fn a_router_that_comes_back_learns_all_from_refreshes_and_tells_other_labels_d_43() {
    let outcome = outcome(RING, &["nodes.two.label-router.down=[[\"2 s\", \"2500 ms\"]]"]);
    // It is back before anybody misses it; until it has told its new label, packets have the old one.
    let (down, label) = (dropped(&outcome, "down"), dropped(&outcome, "label"));
    assert!((180..=200).contains(&down), "{down}");
    assert!((1..250).contains(&label), "{label}");
    assert_eq!(count(&outcome, "one", "expired"), 0);
    let (offered, delivered, _) = path(&outcome, "film");
    assert!(offered - delivered - down - label < 5);
    for name in ["one", "two", "three"] {
        assert_eq!(count(&outcome, name, "reserved"), 1, "{name}");
    }
}

#[test]
fn a_tunnel_may_visit_a_router_that_no_route_leads_to_d_43() {
    let outcome = outcome(RING, &["nodes.one.label-router.via=[\"detour\"]"]);
    assert_eq!((count(&outcome, "one", "ups"), count(&outcome, "two", "swapped")), (1, 0));
    let swapped = count(&outcome, "detour", "swapped");
    assert!(swapped > 3700, "{swapped}");
    let (offered, delivered, _) = path(&outcome, "film");
    assert!(offered - delivered < 5);
}

#[test]
fn messages_that_are_lost_or_changed_delay_a_tunnel_and_do_no_harm_d_43() {
    for (kind, rest) in [("loss", ""), ("corruption", ", bits = 3"), ("duplication", "")] {
        let noise = format!("cable = {{ {kind} = {{ probability = 0.3{rest} }} }}");
        let text =
            RING.replace("cable = { partition = { windows = [[\"20 s\", \"21 s\"]] } }", &noise);
        assert_ne!(text, RING);
        let outcome = outcome(&text, &["duration=\"60 s\""]);
        let (ups, swapped) = (count(&outcome, "one", "ups"), count(&outcome, "two", "swapped"));
        assert!(ups > 0 && swapped > 5000, "{kind}: {ups} {swapped}");
        let (label, wrong) = (dropped(&outcome, "label"), count(&outcome, "three", "wrong"));
        match kind {
            // Some labels are changed, and the checksum covers messages.
            "corruption" => assert!(label > 0 && wrong > 0, "{label} {wrong}"),
            "duplication" => assert_eq!((label, wrong), (0, 0)),
            // What is not refreshed for long enough expires; it comes back.
            _ => assert!(label * 20 < swapped, "{label} of {swapped}"),
        }
    }
}

#[test]
fn what_does_not_fit_its_place_is_refused_with_the_reason() {
    let refused = |sets: &[&str]| {
        let experiment = parsed(RING, sets).unwrap();
        let built = lastmeter_lab::build::build(&experiment, &Changes::NONE, &Builtin);
        shown(built.err().unwrap())
    };
    for (set, why) in [
        ("nodes.three.label-router.to=\"bob\"", "no `rate` to reserve"),
        ("nodes.one.label-router.to=\"carol\"", "there is no node `carol`"),
        ("nodes.one.label-router.to=\"alice\"", "no traffic leaves it towards `alice`"),
        ("nodes.one.label-router.via=[\"cable\"]", "`cable` in `via` is no label-router"),
    ] {
        let said = refused(&[set]);
        assert!(said.contains(why), "{set}: {said}");
    }
    let last = refused(&[
        "nodes.three.label-router.to=\"bob\"",
        "nodes.three.label-router.rate=\"1 Mbit/s\"",
    ]);
    assert!(last.contains("no other label-router is on the way to `bob`"), "{last}");
}
