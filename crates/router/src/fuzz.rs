//! Entry points for fuzzing: what people write in `router.toml`, and what neighbours send.

use crate::config::{Config, FLOWS_MAX, POLICIES_MAX, ROUTE_MAX, TABLES_MAX, first_bits};
use crate::in_band;
use crate::lldp;
use crate::port_processor::parse::{ETHERNET, parse};
use crate::rsvp::message::{LEN_MAX, Message, NAME_MAX, STEPS_MAX};
use lastmeter_lab::fuzz::refused;
use lastmeter_lab::library::Builtin;
use lastmeter_wire::fuzz::Target;

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "fuzz_router_file", run: file },
    Target { name: "fuzz_router_lldp", run: neighbour },
    Target { name: "fuzz_router_in_band", run: asks },
    Target { name: "fuzz_router_rsvp", run: signal },
];

/// A router's file: rejected at a place, or within every limit.
fn file(bytes: &[u8]) {
    match Config::parse("router.toml", bytes, &Builtin) {
        Err(problems) => refused("router.toml", &problems),
        Ok(config) => {
            assert!(!config.ports.is_empty() && config.flows.len() <= FLOWS_MAX);
            assert!(config.policies.len() <= POLICIES_MAX && config.tables.len() <= TABLES_MAX);
            for flow in &config.flows {
                assert!(flow.route.len() <= ROUTE_MAX && flow.queue > 0);
                assert!(flow.from.is_none_or(|port| usize::from(port) < config.ports.len()));
                assert!(flow.functions.iter().all(|name| config.plugins.contains_key(name)));
                assert!(flow.route.iter().all(|name| config.nodes.contains_key(name)));
            }
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = first_bits(text);
    }
}

/// What follows the Ethernet header of a frame of LLDP: no text of it disturbs a terminal or fills memory.
fn neighbour(bytes: &[u8]) {
    if let Ok(heard) = lldp::parse(bytes) {
        let texts = [Some(heard.chassis), Some(heard.port), heard.description, heard.system];
        for text in texts.into_iter().flatten() {
            assert!(text.len() <= 2 * 511 && !text.contains(char::is_control), "{text:?}");
        }
    }
}

/// A frame that may ask for a reservation: what it asks can be written again, and its name is a key of `router.toml`.
fn asks(bytes: &[u8]) {
    let Ok(seen) = parse(bytes) else { return };
    let Some(asked) = in_band::parse(&bytes[ETHERNET..], &seen) else { return };
    let name = asked.flow.name();
    assert!(name.len() < 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'));
    let refusal = asked.refusal(asked.flow.src, asked.flow.dst);
    assert!(refusal.len() < 64 && asked.option().len() == in_band::OPTION_LEN);
}

/// What follows the header of IP of a message of RSVP: what is read has bounds, and is read again as it is written.
fn signal(bytes: &[u8]) {
    // Mutations would end at the checksum: the second time there is none.
    let mut bytes = bytes.to_vec();
    for _ in 0..2 {
        if let Ok(read) = Message::parse(&bytes) {
            assert!(read.route.as_ref().is_none_or(|route| route.len() <= STEPS_MAX));
            let name = read.name.as_deref().unwrap_or_default();
            assert!(name.len() <= NAME_MAX && name.chars().all(|c| c.is_ascii_graphic()));
            let written = read.emit();
            assert!(written.len() <= LEN_MAX);
            assert_eq!(Message::parse(&written), Ok(read));
        }
        if let Some(sum) = bytes.get_mut(2..4) {
            sum.fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Mutations of each; `LASTMETER_MUTATIONS` asks for another number.
    const COUNT: u64 = 1000;

    #[test]
    fn no_target_fails_on_mutations_of_its_corpus() {
        let count = std::env::var("LASTMETER_MUTATIONS").ok().and_then(|count| count.parse().ok());
        for target in TARGETS {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
            let files = std::fs::read_dir(folder.join(target.name)).expect("a corpus");
            let read = |entry: std::io::Result<std::fs::DirEntry>| {
                std::fs::read(entry.expect("a file").path()).expect("readable")
            };
            let corpus: Vec<Vec<u8>> = files.map(read).collect();
            assert!(!corpus.is_empty(), "{} has no corpus", target.name);
            target.try_mutations(&corpus, count.unwrap_or(COUNT));
        }
    }
}
