//! Files in which a peer's runs are kept, a line each.

use lastmeter_repro::Error;
use std::collections::BTreeMap;

/// Reads the runs of `peer`; `run` reads a line. Comments and the heading are passed over.
///
/// # Errors
/// At a line that is no run.
pub(crate) fn read<K: Ord, V>(
    text: &str,
    file: &str,
    peer: &str,
    run: impl Fn(&str) -> Option<(K, V)>,
) -> Result<BTreeMap<K, V>, Error> {
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.starts_with('#') && !line.starts_with("scenario;"));
    lines
        .map(|(at, line)| {
            let fault = || Error::file(file, at as u64 + 1, format!("no run of {peer}: `{line}`"));
            run(line).ok_or_else(fault)
        })
        .collect()
}
