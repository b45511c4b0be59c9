//! Which program runs where: parses `--in HOST -- CMD` and `-- COMMAND`.
//!
//! Everything after the first `--` comes as one list. Each further `--` in it begins another
//! program; a program belongs to the host named by the `--in` right before its `--`, else to the
//! first. A program whose own arguments contain a `--` must run in a shell: `sh -c '...'`.

use super::Arguments;
use crate::emulate::Started;
use crate::{Common, Complaint};
use std::io::IsTerminal;

/// The programs of a run; it ends with the first host's. Without any, at a terminal, that is a shell.
pub(super) fn programs(
    common: &Common,
    arguments: &Arguments,
    shell: bool,
) -> Result<Vec<Started>, Complaint> {
    let found = split(arguments.host.first().cloned(), &arguments.command)?;
    if arguments.host.len() > 1 || (arguments.command.is_empty() && !arguments.host.is_empty()) {
        let right = "write --in HOST -- CMD, and repeat --in after CMD for the next one";
        return Err(Complaint(format!(
            "each --in must be followed by `--` and a command: {right}"
        )));
    }
    let mut started: Vec<Started> = found
        .into_iter()
        // What the programs print must not mix with the machine-readable result.
        .map(|(host, words)| Started { leads: host.is_none(), host, words, silent: common.json })
        .collect();
    if started.is_empty() && shell && std::io::stdin().is_terminal() {
        let words = vec![std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned())];
        started.push(Started { host: None, words, leads: true, silent: false });
    }
    // Servers start before clients.
    started.sort_by_key(|one| one.leads);
    if started.iter().filter(|one| one.leads).count() > 1 {
        return Err(Complaint(
            "there are two commands for the first host: join them with sh -c".into(),
        ));
    }
    Ok(started)
}

/// A host, or none for the first, and the words of a program.
type Found = (Option<String>, Vec<String>);

fn split(first: Option<String>, words: &[String]) -> Result<Vec<Found>, Complaint> {
    if words.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    let mut host = first;
    let parts: Vec<&[String]> = words.split(|word| word == "--").collect();
    for (place, part) in parts.iter().enumerate() {
        let last = place + 1 == parts.len();
        let (words, next) = match part {
            [words @ .., flag, name] if !last && flag == "--in" => (words, Some(name.clone())),
            words => (*words, None),
        };
        // An `--in` alone between two `--` is a mistake.
        if words.is_empty() {
            return Err(Complaint("there is no command between two `--`".into()));
        }
        found.push((host.take(), words.to_vec()));
        host = next;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(first: Option<&str>, line: &str) -> Vec<(Option<String>, String)> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let found = split(first.map(str::to_owned), &words).ok().unwrap();
        found.into_iter().map(|(host, words)| (host, words.join(" "))).collect()
    }

    #[test]
    fn each_program_belongs_to_the_host_named_before_it() {
        assert_eq!(parts(None, "ping -c 5 b"), [(None, "ping -c 5 b".to_owned())]);
        let three = parts(Some("bob"), "iperf3 -s --in carol -- sleep 9 -- iperf3 -c bob");
        assert_eq!(
            three,
            [
                (Some("bob".to_owned()), "iperf3 -s".to_owned()),
                (Some("carol".to_owned()), "sleep 9".to_owned()),
                (None, "iperf3 -c bob".to_owned()),
            ]
        );
        assert_eq!(parts(None, "a --in b")[0].1, "a --in b");
    }

    #[test]
    fn a_missing_command_is_refused() {
        let words = ["a", "--", "--", "b"].map(str::to_owned);
        assert!(split(None, &words).is_err());
    }
}
