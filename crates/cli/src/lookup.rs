//! `lastmeter lookup`: what a longest-prefix match visits, node by node.

use crate::route::Tables;
use crate::{Common, Complaint, Ended, output, world};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Look up addresses in a routing table, and show how each answer was found.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The table: one `PREFIX NEXT-HOP` per line, or an MRT dump (TABLE_DUMP_V2)
    file: PathBuf,
    /// Addresses to look up [default: print the table's size]
    addresses: Vec<IpAddr>,
}

const EXAMPLES: &str = "\
Examples:
  lastmeter lookup table.txt 128.252.153.160
  lastmeter lookup rib.20260101.0000 2001:db8::1 192.0.2.1 --json
  lastmeter lookup table.txt                     prefixes, and bytes per prefix";

/// The largest file read as a table, in bytes: a full dump of all peers is a few hundred megabytes.
const FILE_MAX: u64 = 4 << 30;

/// Reads a table from a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Complaint> {
    world::read(path, FILE_MAX, "a table")
}

pub(crate) fn lookup(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    let file = read(&arguments.file)?;
    let tables = Tables::read(&file)
        .map_err(|error| Complaint(format!("`{}`, {error}", arguments.file.display())))?;
    if arguments.addresses.is_empty() {
        let line = |family: &str, count: u64, bytes: u64| match (common.json, count) {
            (true, _) => {
                format!(r#"{{"family": "{family}", "prefixes": {count}, "bytes": {bytes}}}"#)
            }
            (false, 0) => format!("{family}: no prefixes"),
            (false, _) => {
                let each = bytes as f64 / count as f64;
                format!("{family}: {count} prefixes, {bytes} bytes, {each:.1} per prefix")
            }
        };
        output::print(&line("IPv4", tables.v4.len(), tables.v4.memory().total()));
        output::print(&line("IPv6", tables.v6.len(), tables.v6.memory().total()));
    }
    for &address in &arguments.addresses {
        let answer = tables.explain(address);
        match common.json {
            true => output::print(&serde_json::to_string(&answer).unwrap_or_default()),
            false => output::print(&answer.to_string()),
        }
    }
    Ok(Ended::Done)
}
