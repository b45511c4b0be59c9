//! `lastmeter run capture.pcapng`: a capture replayed over a path of two hosts and a link.

use crate::world::{self, Found};
use crate::{Complaint, output};
use lastmeter_base::{Duration, Quantity, Rate};
use lastmeter_wire::capture::{Reader, Record};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// The link of a path that no option describes: the commonest one on desks, across a building.
const RATE: &str = "1 Gbit/s";
const DELAY: &str = "100 us";
/// Preamble, check sequence and gap of Ethernet: what a captured frame costs the line in addition.
const FRAMING: &str = "24 B";
/// Run time after the last captured packet, so that it arrives.
const AFTER: Duration = Duration::from_ps(1_000_000_000_000);

/// Options of the path that a capture is replayed over.
#[derive(clap::Args)]
pub(crate) struct PathOptions {
    /// Of a capture: the rate of the link that it is replayed over [default: 1 Gbit/s]
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// Of a capture: the delay of that link [default: 100 us]
    #[arg(long, value_name = "TIME")]
    delay: Option<String>,
    /// Of a capture: the profile of both hosts [default: hosts that cost nothing]
    #[arg(long, value_name = "PROFILE")]
    host: Option<String>,
}

impl PathOptions {
    fn is_given(&self) -> bool {
        self.rate.is_some() || self.delay.is_some() || self.host.is_some()
    }
}

/// Whether a name is that of a capture.
fn is_capture(named: &str) -> bool {
    let end = Path::new(named).extension().and_then(|end| end.to_str()).unwrap_or_default();
    ["pcap", "pcapng", "cap"].iter().any(|known| end.eq_ignore_ascii_case(known))
        && !Path::new(named).is_dir()
}

/// The experiment that was named; if that is a capture, one that replays it.
///
/// # Errors
/// As [`world::experiment`], or options of a path without a capture, or a capture that cannot be read.
pub(crate) fn experiment(named: &str, options: &PathOptions) -> Result<Found, Complaint> {
    if !is_capture(named) {
        if options.is_given() {
            let hint = "change an experiment with --set, as in --set links.0.rate='10 Gbit/s'";
            return Err(Complaint(format!(
                "--rate, --delay and --host describe the path of a capture (.pcap, .pcapng): {hint}"
            )));
        }
        return world::experiment(named);
    }
    let path = Path::new(named);
    let length = length(path)?;
    let rate = checked::<Rate>("--rate", options.rate.as_deref().unwrap_or(RATE))?;
    let delay = checked::<Duration>("--delay", options.delay.as_deref().unwrap_or(DELAY))?;
    let host = match &options.host {
        Some(profile) => format!("{{ host = {{ profile = {} }} }}", quoted(profile)),
        None => "{ host = {} }".to_owned(),
    };
    let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let duration = length + AFTER;
    let text = format!(
        "title = {}\n\
         question = \"What limits these packets on this path?\"\n\
         duration = \"{duration}\"\n\n\
         [nodes]\nsender = {host}\nreceiver = {host}\n\n\
         [[links]]\nbetween = [\"sender\", \"receiver\"]\nrate = \"{rate}\"\n\
         delay = \"{delay}\"\nframing = \"{FRAMING}\"\n\n\
         [[traffic]]\nname = \"capture\"\nfrom = \"sender\"\nto = \"receiver\"\n\
         replay = {{ capture = {} }}\n",
        quoted(&format!("{file}, replayed over {rate} and {delay}")),
        quoted(&file),
    );
    output::note(&format!(
        "Replaying {named} from a host to another over {rate} and {delay}; --rate, --delay and \
         --host choose another path."
    ));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = Some(folder.unwrap_or(Path::new(".")).to_owned());
    Ok(Found { name: format!("{named} (as an experiment)"), text: text.into(), folder })
}

/// The time from the first to the last packet.
fn length(path: &Path) -> Result<Duration, Complaint> {
    let complain = |error: &dyn std::fmt::Display| {
        Complaint(format!("cannot replay `{}`: {error}", path.display()))
    };
    let file = File::open(path).map_err(|error| complain(&error))?;
    let mut reader = Reader::open(BufReader::new(file)).map_err(|error| complain(&error))?;
    let (mut record, mut last) = (Record::default(), Duration::ZERO);
    while reader.read(&mut record).map_err(|error| complain(&error))? {
        last = last.max(record.since_first);
    }
    match reader.records() {
        0 => Err(complain(&"it has no packets")),
        _ => Ok(last),
    }
}

/// A quantity of an option, as an experiment writes it.
fn checked<T: Quantity + std::fmt::Display>(option: &str, text: &str) -> Result<T, Complaint> {
    T::parse(text).map_err(|error| Complaint(format!("{option} {text}: {error}")))
}

/// As a string of TOML.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
