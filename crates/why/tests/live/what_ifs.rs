//! What a change brings is predicted within 15 %, and the band holds: two of the what-ifs that
//! `lastmeter why --truth --prove` scores, one changed from outside and one of the path.
//! `LASTMETER_WHAT_IF=NAME`, or `all`, runs that one once and prints its line.

use crate::attempts::in_time;
use lastmeter_why::cause::{Cause, Lift};
use lastmeter_why::truth::prove::{OFF_MAX, Proof, Sum, named, prove, row};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("twice_the_pacing_cap_is_twice_the_rate", pacing),
    ("a_link_twice_as_fast_is_twice_the_rate", link),
    ("what_cannot_be_known_has_no_prediction_and_says_why", unknown),
];

pub(crate) fn run(name: &str) {
    let all = named((name != "all").then_some(name));
    let mut proofs = Vec::new();
    for one in all {
        proofs.push(prove(one, None).unwrap());
        println!("{}", row(&proofs[proofs.len() - 1]));
    }
    println!("{}", Sum::of(&proofs).words());
}

fn once(name: &str) -> Proof {
    prove(named(Some(name))[0], None).unwrap()
}

fn is_right(proof: &Proof) -> bool {
    proof.holds == Some(true) && proof.off.is_some_and(|off| off.abs() <= OFF_MAX)
}

fn pacing() {
    let proof = once("pacing-cap");
    in_time!(is_right(&proof) && proof.said == Some(Cause::PacingCap), "{}", row(&proof));
    assert!(matches!(proof.lift, Some(Lift::Pacing(_))), "{proof:?}");
}

fn link() {
    let proof = once("faster-link-far");
    in_time!(is_right(&proof) && proof.said == Some(Cause::LinkRate), "{}", row(&proof));
    assert_eq!(proof.lift, Some(Lift::Link(2.0)));
}

fn unknown() {
    let proof = once("bbr-loss");
    // Its gain is measured all the same, and is much.
    in_time!(proof.measured.is_some_and(|gain| gain > 2.0), "{}", row(&proof));
    let why = proof.why_not.as_deref().unwrap();
    assert!(why.contains("not known until something fills it"), "{why}");
    assert_eq!((proof.gain, proof.holds), (None, None));
}
