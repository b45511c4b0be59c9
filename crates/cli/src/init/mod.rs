//! `lastmeter init`: a first experiment, of this machine's own path.

mod network;
mod profile;

use crate::why::cache;
use crate::{Common, Complaint, Ended, output};
use network::{Interface, Route};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Write a first experiment with this machine's interfaces, route and calibrated profile.
///
/// Makes a folder with an experiment.toml, whose every value says where it was read from or that it is assumed, and the
/// profile of this host in profiles/hosts. Sends nothing: the rest of the path is for you to fill in.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The folder to make
    #[arg(default_value = "my-path")]
    folder: PathBuf,
    /// Describe the path from this host to this one, by name or address [default: as far as the first router]
    #[arg(long, value_name = "PEER")]
    from_host: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  lastmeter init                                  my-path, as far as the first router
  lastmeter init lab --from-host server.example   the path to a server
  lastmeter run lab                               explain it
  lastmeter init quick --quick                    without measuring this host (15 s, monthly)";

pub(crate) fn init(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    let folder = &arguments.folder;
    let file = folder.join("experiment.toml");
    // Checked before the host is measured.
    if fs::symlink_metadata(&file).is_ok() {
        return Err(Complaint(format!(
            "`{}` exists, and nothing is overwritten: name another folder, `lastmeter init FOLDER`",
            file.display()
        )));
    }
    let peer = arguments.from_host.as_deref();
    let (interfaces, route) = (network::interfaces(), network::route(peer)?);
    let held = (!common.quick).then(cache::calibration).transpose();
    let held = held.unwrap_or_else(|Complaint(words)| {
        output::note(&format!("This host was not calibrated: {words}"));
        None
    });
    if let Some(held) = &held {
        cache::say(held);
        let text = profile::text(&held.calibration)?;
        save(&folder.join("profiles/hosts").join(profile::FILE), &text)?;
    }
    save(&file, &experiment(&interfaces, &route, held.is_some()))?;
    let named = folder.display();
    output::note(&format!("Written to {named}; explain it with `lastmeter run {named}`"));
    Ok(Ended::Done)
}

/// Writes a new file.
fn save(path: &Path, text: &str) -> Result<(), Complaint> {
    let complain =
        |error: std::io::Error| Complaint(format!("cannot write `{}`: {error}", path.display()));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(complain)?;
    }
    let mut file = File::create_new(path).map_err(complain)?;
    file.write_all(text.as_bytes()).map_err(complain)
}

/// The text of the experiment.
fn experiment(interfaces: &[Interface], route: &Route, has_profile: bool) -> String {
    let own = interfaces.iter().find(|one| one.name == route.interface);
    let others = interfaces.iter().map(Interface::words).collect::<Vec<_>>().join("\n# ");
    let (rate, rate_source) = match own.and_then(|one| one.megabits) {
        Some(megabits) => (format!("{megabits} Mbit/s"), "as the interface says"),
        None if route.interface == "lo" => {
            ("100 Gbit/s".to_owned(), "assumed: it is as fast as memory, and the hosts limit")
        }
        None => ("1 Gbit/s".to_owned(), "assumed: the interface does not say"),
    };
    let mtu = own.and_then(|one| one.mtu).unwrap_or(1500);
    let host = match has_profile {
        true => format!("{{ host = {{ profile = \"{}\" }} }}", profile::NAME),
        false => "{ host = {} }  # costs nothing: `lastmeter init` without --quick measures it"
            .to_owned(),
    };
    let peer = &route.peer;
    let (router, between, there) = match &route.gateway {
        Some(gateway) => (
            format!("router = {{ router = {{}} }}  # {gateway}, the next hop\n"),
            "[\"this-host\", \"router\", \"peer\"]",
            "the hops of one entry are alike: give each its own entry if they differ",
        ),
        None => (String::new(), "[\"this-host\", \"peer\"]", "directly connected"),
    };
    let size = mtu.min(PACKET_MAX);
    format!(
        "title = \"From this host to {peer}\"\n\
         question = \"What limits a transfer from this host to {peer}?\"\n\
         duration = \"200 ms\"\n\n\
         # The interfaces of this machine:\n# {others}\n\n\
         [nodes]\n\
         this-host = {host}\n\
         {router}\
         peer = {{ host = {{}} }}  # costs nothing: give it a profile, as measured there\n\n\
         # {there}\n\
         [[links]]\n\
         between = {between}\n\
         rate = \"{rate}\"  # of {}: {rate_source}\n\
         delay = \"100 us\"  # assumed: half of what `ping {peer}` says, divided by the hops\n\
         framing = \"38 B\"  # Ethernet: header, check sequence, preamble and gap\n\
         queue = {{ drop-tail = {{ packets = 1000 }} }}  # assumed: Linux's txqueuelen\n\n\
         [[traffic]]\n\
         name = \"transfer\"\n\
         from = \"this-host\"\n\
         to = \"peer\"\n\
         bulk = {{ size = \"{size} B\", window = 64 }}  # the interface's MTU is {mtu} B\n",
        route.interface,
    )
}

/// The largest packet of a host in a first experiment: that of jumbo frames; loopback's MTU is no packet's size.
const PACKET_MAX: u64 = 9000;
