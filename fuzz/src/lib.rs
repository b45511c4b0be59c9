//! Every fuzz entry point of the crates.

use lastmeter_wire::fuzz::Target;

/// All of them.
pub fn targets() -> impl Iterator<Item = &'static Target> {
    let all = lastmeter_wire::fuzz::TARGETS.iter().chain(lastmeter_net::fuzz::TARGETS);
    let all = all.chain(lastmeter_lan::fuzz::TARGETS).chain(lastmeter_repro::fuzz::TARGETS);
    let all = all.chain(lastmeter_live::fuzz::TARGETS).chain(lastmeter_lab::fuzz::TARGETS);
    let all = all.chain(lastmeter::fuzz::TARGETS).chain(lastmeter_plugin::fuzz::TARGETS);
    let all = all.chain(lastmeter_router::fuzz::TARGETS).chain(lastmeter_rtc::fuzz::TARGETS);
    all.chain(lastmeter_guest::fuzz::TARGETS)
}
