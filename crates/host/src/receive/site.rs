//! Reception as an experiment describes it, built at the site of its host.

use super::division::Division;
use super::kind;
use super::reception::{Named, Options, Part, Reception, Stages};
use lastmeter_base::kind::Nested;
use lastmeter_engine::site::{Moves, Resource, Site};

/// Reception on `cpu` from this many links. If the host has a profile, `scheduled` are its receive stages: those
/// with the costs of interrupts, commands and the application replace the stages that every reception has.
pub(crate) fn reception(
    site: &mut Site<'_>,
    described: &Nested,
    (cpu, links): (&Resource, usize),
    scheduled: Option<(&Division<'_>, Vec<Part>)>,
) -> Reception {
    let (division, parts) = scheduled.unzip();
    let mut names = Stages::NAMES;
    if let Some(stage) = division.and_then(|division| division.entry) {
        names.interrupt.name = &stage.name;
    }
    if let Some(stage) = division.and_then(|division| division.kernel.first()) {
        (names.accept.name, names.protocol.name) = (&stage.name, &stage.name);
    }
    if let Some(stage) = division.and_then(|division| division.application.first()) {
        names.application.name = &stage.name;
    }
    let stages = names.map(|Named { name, role, on_cpu }| {
        site.moving(name, role, on_cpu.then_some(cpu), Moves::default())
    });
    let options = Options {
        costs: kind::costs(&described.values, division).at(&stages),
        scheduling: kind::scheduling(described),
        stages: stages.map(|stage| stage.id),
        parts: parts.unwrap_or_default(),
        kernel: division.map_or(0, |division| division.kernel.len()),
    };
    let interface = |_| {
        let mut interface = kind::interface(described, division);
        interface.transfer = stages.transfer.time(interface.transfer);
        interface
    };
    Reception::new(options, (0..links).map(interface).collect())
}
