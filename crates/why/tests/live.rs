//! Explanations of real transfers.
//!
//! The helpers are this program run again, so it has its own `main`. Most of it needs network namespaces, some sampling:
//! without the rights it prints `SKIP:` and why.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "tests say what they skip")]

#[path = "../../live/tests/attempts/mod.rs"]
mod attempts;
#[path = "live/datagrams.rs"]
mod datagrams;
#[path = "live/interrupts.rs"]
mod interrupts;
#[path = "live/what_ifs.rs"]
mod what_ifs;

use lastmeter_live::namespace::Hosts;

fn main() {
    lastmeter_live::worker::enter_if_asked(&[]);
    if let Ok(name) = std::env::var("LASTMETER_WHAT_IF") {
        return what_ifs::run(&name);
    }
    let mut tests = datagrams::TESTS.to_vec();
    match interrupts::lacks() {
        None => tests.extend(interrupts::TESTS),
        Some(words) => println!("SKIP: two hosts whose CPU time is sampled: {words}"),
    }
    match Hosts::open(true) {
        Ok(_) => tests.extend(what_ifs::TESTS),
        Err(e) => println!("SKIP: what-ifs between two hosts: {e}"),
    }
    attempts::run_all(&tests);
}
