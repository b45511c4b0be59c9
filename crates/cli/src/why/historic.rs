//! A transfer between two hosts of another era, modelled from their profiles; compared with this host's.

use super::{Arguments, own};
use crate::threads::Threads;
use crate::world::Disk;
use crate::{Common, Complaint, Ended, output, progress, results, run};
use lastmeter_base::{Bytes, Rate};
use lastmeter_lab::historic::{Pair, historic};
use lastmeter_lab::run::{Runner, Watch};
use lastmeter_ledger as report;
use lastmeter_ledger::Ledger;
use lastmeter_why::{beside, reach};
use std::sync::Arc;

/// Default packets and messages, from the measurements behind such profiles: 14 KB segments, and sends
/// beyond which throughput no longer rises (J-79).
const PACKET: Bytes = Bytes::from_kib(14);
const MESSAGE: Bytes = Bytes::from_kib(4);

/// Models the transfer, and with `--beside this` measures the same on this machine.
pub(super) fn explain(
    common: &Common,
    arguments: &Arguments,
    host: &str,
    adapter: &str,
) -> Result<Ended, Complaint> {
    let message = arguments.transfer.message().unwrap_or(MESSAGE);
    let threads = Threads::new(common.threads)?;
    let disk = Disk::new(None);
    // An adapter with a lower limit gets packets of that limit; problems of the pair are reported below.
    let longest =
        || Pair::read(host, adapter, &disk).map_or(PACKET, |pair| pair.adapter.packet_max);
    let packet = arguments.packet.unwrap_or_else(|| PACKET.min(longest()));
    let watch = Arc::new(Watch::default());
    let runner = Runner { parallel: &threads, threads: 1, library: &disk, watch: &watch };
    let modelled = progress::shown(&watch, || historic(host, adapter, message, packet, runner));
    let modelled = modelled.map_err(|failure| run::failed(common, failure))?;
    let beside = arguments.beside.as_ref();
    let today = beside.map(|_| own::measured(common, arguments, message)).transpose()?;
    show(common, &modelled, today.as_ref(), &format!("{host} + {adapter}"));
    results::offer(arguments.out.as_deref(), &modelled)?;
    Ok(Ended::Done)
}

/// Which hosts carry a rate (J-88).
pub(super) fn reach(common: &Common, adapter: &str, target: Rate) -> Result<Ended, Complaint> {
    let threads = Threads::new(common.threads)?;
    let disk = Disk::new(None);
    let watch = Arc::new(Watch::default());
    let runner = Runner { parallel: &threads, threads: 1, library: &disk, watch: &watch };
    let hosts = reach::hosts(adapter, target, runner);
    let hosts = hosts.map_err(|failure| run::failed(common, failure))?;
    match common.json {
        true => {
            let lines: Result<Vec<String>, _> = hosts.iter().map(serde_json::to_string).collect();
            output::print(&lines?.join("\n"));
        }
        false => output::print(reach::table(adapter, target, &hosts).trim_end()),
    }
    Ok(Ended::Done)
}

fn show(common: &Common, modelled: &Ledger, today: Option<&Ledger>, name: &str) {
    if common.json {
        output::print(&report::json::to_json(modelled));
        return;
    }
    output::print(&report::terminal::render(modelled, output::style()));
    if let Some(today) = today {
        output::print("");
        output::print(&beside::ledgers(&[(name, modelled), ("this host", today)]));
    }
}
