//! The cost of forwarding an IP packet.

use super::{Computed, Setting, Value, row};
use crate::Error;
use crate::machines::instructions::{Budget, Cycles, Step};
use crate::machines::instructions::{bytes_carried, packet_min, packets_per_second};
use lastmeter_base::Rate;

/// The steps of §3.1, in its order.
const STEPS: [&str; 5] = ["check", "checksum", "time_to_live", "route", "header"];

pub(super) fn cycles(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let step = |name: &str| {
        let (what, instructions) = (constants.what(name)?.to_owned(), constants.get(name)?);
        Ok(Step { what, instructions })
    };
    let budget = Budget {
        steps: STEPS.into_iter().map(step).collect::<Result<_, Error>>()?,
        memory_share: (1, constants.get("instructions_per_reference")?),
        cycle: constants.get("cycle")?,
    };
    let link: Rate = constants.get("link")?;
    let rounded = Cycles::whole(budget.cycles().rounded()).times(budget.cycle);
    let exact = budget.cycles().times(budget.cycle);
    let instructions = Value::Number(budget.instructions() as f64, "instructions");
    let whole = Value::Number(budget.cycles().rounded() as f64, "cycles");
    let rate = Value::Number(packets_per_second(rounded), "packets/s");
    let least = Value::Number(bytes_carried(link, rounded), "B");
    let mut computed: Vec<Computed> = budget
        .steps
        .iter()
        .map(|step| {
            let value = Value::Number(step.instructions as f64, "instructions");
            Computed::new("A-132", step.what.clone(), value)
        })
        .collect();
    computed.extend([
        row("A-132/instructions", instructions),
        row("A-132/cycles-per", whole),
        row("A-133/packet-rate", rate),
        row("A-133/smallest-packet", least),
        row("A-133/smallest-packet-106", packet_min(link, exact)),
        row("A-134", instructions),
    ]);
    Ok(computed)
}
