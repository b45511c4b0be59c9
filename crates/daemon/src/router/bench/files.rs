//! What a router of the bench is given, and the files with it: a table, filters, a plugin, destinations of packets.

use super::place::NEXT;
use crate::Complaint;
use lastmeter_net::classify::{generate, text};
use lastmeter_net::lookup::table::{self, IPV4_LENGTHS};
use lastmeter_wire::routes::Routes;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Destinations of the random traffic, and of a quick look.
const DESTINATIONS: usize = 1 << 20;
const DESTINATIONS_QUICK: usize = 1 << 16;
/// Destinations of traffic whose flows are known.
pub(super) const KNOWN: usize = 1024;
/// Prefixes of a full table of 2024, and of a quick look.
const PREFIXES: usize = 901_899;
const PREFIXES_QUICK: usize = 20_000;
/// The most bytes of a file with a table: 64 for each of 4 million prefixes.
const TABLE_MAX: u64 = 256 << 20;
/// Filters.
const FILTERS: u32 = 1000;
/// A line that is shaped, but never the limit: no router of the bench sends a tenth of it.
const LINE: &str = "40 Gbit/s";
/// Destinations, a line each: any of the table; a few.
pub(super) const RANDOM: &str = "random.txt";
pub(super) const FEW: &str = "known.txt";
/// The table as the kernel takes it.
pub(super) const BATCH: &str = "batch.txt";

/// What the router is given.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Case {
    pub(super) table: bool,
    pub(super) filters: bool,
    /// QSDRR with 1000 queues.
    pub(super) fair: bool,
    pub(super) plugin: bool,
    pub(super) fast: bool,
    /// A port processor for each port.
    pub(super) split: bool,
    /// Its lines are shaped.
    pub(super) shaped: bool,
    /// Distributed queueing; its lines have to be shaped.
    pub(super) fabric: bool,
    /// When packets are taken from ports; in the router's own way, if absent.
    pub(super) receive: Option<&'static str>,
}

/// With nothing.
pub(super) const BARE: Case = Case {
    table: false,
    filters: false,
    fair: false,
    plugin: false,
    fast: false,
    split: false,
    shaped: false,
    fabric: false,
    receive: None,
};
/// A full table, 1000 filters, QSDRR.
pub(super) const COMPLETE: Case = Case { table: true, filters: true, fair: true, ..BARE };

/// Files that all measurements share.
pub(super) struct Files {
    pub(super) folder: PathBuf,
    /// Prefixes that the router and the kernel are given.
    pub(super) prefixes: usize,
    plugin: Vec<u8>,
}

/// Whether packets may go there: not in networks of the bench itself, or addresses that nobody may have.
fn is_usable(address: u32) -> bool {
    !matches!(address >> 24, 0 | 10 | 127 | 224..)
}

/// The table of a file, or one that is made up with the lengths of a full one.
fn routes(file: Option<&Path>, quick: bool) -> Result<table::Table<u32>, Complaint> {
    let Some(file) = file else {
        return Ok(table::generate(if quick { PREFIXES_QUICK } else { PREFIXES }, IPV4_LENGTHS, 1));
    };
    let place = |error: &dyn std::fmt::Display| Complaint(format!("{}: {error}", file.display()));
    let len = std::fs::metadata(file).map_err(|error| place(&error))?.len();
    if len > TABLE_MAX {
        return Err(place(&format!("{len} B, a table has at most {TABLE_MAX}")));
    }
    let text = std::fs::read(file).map_err(|error| place(&error))?;
    let (table, _) = table::split(&Routes::parse(&text).map_err(|error| place(&error))?);
    match table.is_empty() {
        true => Err(place(&"it has no prefix of IPv4")),
        false => Ok(table),
    }
}

impl Files {
    /// Writes them: the table of a file or one made up, destinations in it, filters.
    pub(super) fn write(
        folder: &Path,
        table: Option<&Path>,
        quick: bool,
        plugin: Vec<u8>,
    ) -> Result<Files, Complaint> {
        let table = self::routes(table, quick)?;
        let (mut routes, mut batch, mut prefixes) = (String::new(), String::new(), 0);
        for (prefix, _) in &table {
            let (key, len): (u32, u8) = (prefix.key(), prefix.len());
            let address = std::net::Ipv4Addr::from(key);
            if is_usable(key) {
                prefixes += 1;
                let _ = writeln!(routes, "{address}/{len} {NEXT}");
                let _ = writeln!(batch, "route add {address}/{len} via {NEXT} dev r1");
            }
        }
        std::fs::write(folder.join("table.txt"), routes)?;
        std::fs::write(folder.join(BATCH), batch)?;
        let all = table::addresses(&table, DESTINATIONS, 2);
        let list = |count: usize| {
            let some = all.iter().filter(|key| is_usable(**key)).take(count);
            some.map(|key| format!("{}\n", std::net::Ipv4Addr::from(*key))).collect::<String>()
        };
        let count = if quick { DESTINATIONS_QUICK } else { DESTINATIONS };
        std::fs::write(folder.join(RANDOM), list(count))?;
        std::fs::write(folder.join(FEW), list(KNOWN))?;
        let rules = generate::rules(&generate::ACCESS_LIST, FILTERS, 1);
        std::fs::write(
            folder.join("rules.txt"),
            text::emit(rules.iter().map(|rule| &rule.filter)),
        )?;
        Ok(Files { folder: folder.to_owned(), prefixes, plugin })
    }
    /// The router's file for a case.
    pub(super) fn router(&self, case: Case) -> Result<PathBuf, Complaint> {
        let mut text = String::new();
        if case.table {
            text += "table = 'table.txt'\n";
        }
        if case.filters {
            text += "rules = 'rules.txt'\n";
        }
        if case.fast {
            text += "fast = true\n";
        }
        if let Some(receive) = case.receive {
            let _ = writeln!(text, "receive = '{receive}'");
        }
        text += match case.split {
            false => "core = 1\n",
            true => {
                "[processors.west]\nports = ['west']\ncore = 1\n\
                 [processors.east]\nports = ['east']\ncore = 0\n"
            }
        };
        let line = if case.shaped { format!("rate = '{LINE}'\n") } else { String::new() };
        let _ = write!(text, "[ports.west]\ninterface = 'r0'\n{line}");
        if case.plugin {
            text += "plugins = ['count']\n";
        }
        let _ = write!(text, "[ports.east]\ninterface = 'r1'\n{line}");
        if case.fair {
            text += "queue = { qsdrr = { queues = 1000, packets = 4000 } }\nflows = 1000\n";
        }
        if case.fabric {
            text += "[fabric]\n";
        }
        if case.plugin {
            std::fs::write(self.folder.join("count.wasm"), &self.plugin)?;
            text += "[plugins.count]\nmodule = 'count.wasm'\n";
        }
        if !case.table {
            let _ = write!(text, "[[routes]]\nprefix = '0.0.0.0/0'\nvia = '{NEXT}'\n");
        }
        let path = self.folder.join("router.toml");
        std::fs::write(&path, text)?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_lab::library::Builtin;
    use lastmeter_router::config::Config;

    #[test]
    fn every_case_is_a_router_s_file_and_both_sides_have_the_same_table() {
        let folder = tempfile::tempdir().expect("a folder");
        let table = folder.path().join("own.txt");
        std::fs::write(&table, "10.3.0.0/16 1\n192.0.2.0/24 2\n198.51.100.0/25 1\n").expect("text");
        let files = Files::write(folder.path(), Some(&table), true, vec![0]);
        let files = files.map_err(|wrong| wrong.0).expect("files");
        assert_eq!(files.prefixes, 2, "one is the bench's own network");
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("a file");
        assert_eq!(read("table.txt").lines().count(), 2);
        assert_eq!(read(BATCH).lines().count(), 2);
        assert!(read(RANDOM).lines().all(|to| to.starts_with("192.") || to.starts_with("198.")));
        for case in [
            BARE,
            COMPLETE,
            Case { split: true, receive: Some("polling"), ..COMPLETE },
            Case { plugin: true, shaped: true, fabric: true, ..COMPLETE },
        ] {
            let file = files.router(case).map_err(|wrong| wrong.0).expect("a file");
            let text = std::fs::read(file).expect("written");
            let config = Config::parse("router.toml", &text, &Builtin).expect("a router's file");
            assert_eq!(config.fabric.is_some(), case.fabric);
            assert_eq!(config.ports.iter().all(|port| port.rate.is_some()), case.shaped);
            assert_eq!(config.table.is_some(), case.table);
        }
        let none = folder.path().join("none.txt");
        std::fs::write(&none, "2001:db8::/32 1\n").expect("text");
        assert!(Files::write(folder.path(), Some(&none), true, vec![0]).is_err());
    }
}
