//! `lastmeter why` on two machines: an agent on one, and on the other a transfer with it or somebody's program.

use super::program::Told;
use super::steps::Steps;
use crate::{Common, Complaint, Ended, output, results, world};
use lastmeter_engine::Control;
use lastmeter_ledger as report;
use lastmeter_ledger::Ledger;
use lastmeter_linux::token;
use lastmeter_live::observe;
use lastmeter_live::remote::{self as live, Addresses, Agent, Peer, Seen, Transfer};
use lastmeter_why::remote::{self, Both, End};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;

/// Where the token is, if not in a file.
const TOKEN: &str = "LASTMETER_TOKEN";
/// The longest file with a token.
const TOKEN_FILE_MAX: u64 = 1 << 10;
/// What `--agent --json` prints.
const SCHEMA: &str = "lastmeter.why-agent/1";

/// What is for one machine only.
const OTHERS: [&str; 7] = ["what_if", "apply", "explain", "validate", "truth", "host", "adapter"];

/// Options for two machines.
#[derive(clap::Args)]
pub(super) struct Remote {
    /// Be the other end for `why --to`, until Ctrl-C
    #[arg(long, conflicts_with_all = OTHERS, conflicts_with_all = ["to", "command"])]
    pub(super) agent: bool,
    /// Let the agent listen here [default: 127.0.0.1:7401]; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS:PORT", requires = "agent")]
    listen: Option<SocketAddr>,
    /// Explain a transfer with this agent, or the command's connections to its host, from both ends
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with_all = OTHERS)]
    pub(super) to: Option<String>,
    /// Let the agent send
    #[arg(long, requires = "to", conflicts_with = "command")]
    reverse: bool,
    /// Send data to this address of the agent's host, where --to leads through a tunnel
    #[arg(long, value_name = "HOST", requires = "to")]
    data: Option<String>,
    /// Read the shared token from this file [default: the environment's LASTMETER_TOKEN; the agent makes one]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl Remote {
    /// The token of file or environment.
    fn token(&self) -> Result<Option<String>, Complaint> {
        match &self.token_file {
            Some(path) => {
                let text = world::read(path, TOKEN_FILE_MAX, "a token")?;
                Ok(Some(String::from_utf8_lossy(&text).trim().to_owned()))
            }
            None => Ok(std::env::var(TOKEN).ok().filter(|token| !token.is_empty())),
        }
    }

    fn addresses(&self) -> Result<Addresses, Complaint> {
        let resolve = |host: &String| {
            let found = (host.as_str(), 0).to_socket_addrs();
            let found = found.map_err(|error| Complaint(format!("--data {host}: {error}")))?;
            let address = found.map(|at| at.ip()).next();
            address.ok_or_else(|| Complaint(format!("--data {host}: the name has no address")))
        };
        let data: Option<IpAddr> = self.data.as_ref().map(resolve).transpose()?;
        Ok(Addresses { to: self.to.clone().unwrap_or_default(), data })
    }

    fn connect(&self) -> Result<Peer, Complaint> {
        let token = self.token()?.ok_or_else(|| {
            Complaint(format!("--to needs the agent's token: give --token-file or set {TOKEN}"))
        })?;
        let mut peer = Peer::connect(&self.addresses()?, &token)?;
        peer.begin()?;
        Ok(peer)
    }

    /// The agent that looks at the other end of a command's connections, if the user named one.
    pub(super) fn far(&self) -> Result<Option<Far>, Complaint> {
        if self.to.is_none() {
            return Ok(None);
        }
        let mut peer = self.connect()?;
        peer.watch()?;
        Ok(Some(Far { peer, lost: None }))
    }
}

/// Runs the agent.
pub(super) fn agent(common: &Common, arguments: &Remote) -> Result<Ended, Complaint> {
    let given = arguments.token()?;
    let secret = match &given {
        Some(token) => token.clone(),
        None => token::random()?,
    };
    live::check_token(&secret)?;
    let listen = arguments.listen.unwrap_or((Ipv4Addr::LOCALHOST, live::PORT).into());
    let agent = Agent::bind(listen, Some(secret.clone()))?;
    let at = agent.address()?;
    let control = Arc::new(Control::default());
    let stopping = Arc::clone(&control);
    ctrlc::set_handler(move || stopping.stop())?;
    let made = given.is_none().then_some(secret);
    output::print(&match common.json {
        true => serde_json::json!({ "schema": SCHEMA, "address": at.to_string(), "token": made })
            .to_string(),
        false => how_to_reach(at, made.as_deref()),
    });
    output::check()?;
    live::serve(&agent, &control, &|words| output::note(words))?;
    Ok(Ended::Done)
}

/// What to type on the other machine.
fn how_to_reach(at: SocketAddr, made: Option<&str>) -> String {
    let token = match made {
        Some(token) => format!("{TOKEN}={token} "),
        None => String::new(),
    };
    let given = if made.is_some() { "" } else { " --token-file FILE" };
    let (port, first) = (at.port(), format!("The agent listens on {at}. Press Ctrl-C to stop."));
    match at.ip().is_loopback() {
        true => format!(
            "{first}\nOn the other machine, with this one's name for HOST:\n  \
             ssh -N -L {port}:{at} HOST &\n  \
             {token}lastmeter why --to 127.0.0.1:{port} --data HOST{given}"
        ),
        false => format!(
            "{first}\nOn the other machine (what it measures is not encrypted):\n  \
             {token}lastmeter why --to {at}{given}"
        ),
    }
}

/// Explains a transfer with an agent.
pub(super) fn transfer(common: &Common, arguments: &super::Arguments) -> Result<Ended, Complaint> {
    let Remote { reverse, .. } = arguments.remote;
    let setting = arguments.transfer.between(common.quick)?;
    let steps = Steps::new(3);
    steps.next("comparing clocks");
    let mut peer = arguments.remote.connect()?;
    let control = Arc::new(Control::default());
    let stopping = Arc::clone(&control);
    ctrlc::set_handler(move || stopping.stop())?;
    let asked = Transfer { setting, reverse, sample: !arguments.no_sampling };
    steps.next("measuring the transfer");
    let [ours, theirs] = peer.transfer(&asked, &control)?;
    steps.next("comparing clocks again");
    let clocks = peer.clocks()?;
    drop(steps);
    let (name, machine) = (peer.own_name(), observe::host()?);
    let [from, to] = match reverse {
        true => [&peer.name, &name],
        false => [&name, &peer.name],
    };
    let title =
        format!("{} from {from} to {to}, seen from both ends", remote::words(&asked.setting));
    let ours = End { name: &name, machine: &machine, seen: &ours };
    let theirs = End { name: &peer.name, machine: &peer.machine, seen: &theirs };
    let ledger = remote::ledger(&Both { title, ours, theirs, clocks: &clocks });
    let ledger = ledger.map_err(Complaint)?;
    match common.json {
        true => output::print(&report::json::to_line(&ledger)),
        false => output::print(&report::terminal::render(&ledger, output::style())),
    }
    results::offer(arguments.out.as_deref(), &ledger)?;
    Ok(Ended::Done)
}

/// An agent while a command is followed here.
pub(super) struct Far {
    peer: Peer,
    /// Why it is gone.
    lost: Option<String>,
}

impl Far {
    /// Shows it that the command still runs; once it is gone it is left alone.
    pub(super) fn keep(&mut self) {
        if self.lost.is_none()
            && let Err(error) = self.peer.alive()
        {
            self.lost = Some(error.to_string());
        }
    }

    /// The ledger of both ends, or that of ours with the reason why.
    pub(super) fn join(mut self, mut own: Ledger, told: &Told<'_>, ours: &Seen) -> Ledger {
        match self.both(told, ours) {
            Ok(ledger) => ledger,
            Err(why) => {
                own.notes.insert(0, format!("Seen from this end only: {why}."));
                own
            }
        }
    }

    fn both(&mut self, told: &Told<'_>, ours: &Seen) -> Result<Ledger, String> {
        if let Some(lost) = self.lost.take() {
            return Err(lost);
        }
        let theirs = self.peer.report(&ours.observation).map_err(|error| error.to_string())?;
        let clocks = self.peer.clocks().map_err(|error| error.to_string())?;
        let name = self.peer.own_name();
        remote::ledger(&Both {
            title: format!("What limited `{}`, seen from both ends", told.words),
            ours: End { name: &name, machine: &told.host, seen: ours },
            theirs: End { name: &self.peer.name, machine: &self.peer.machine, seen: &theirs },
            clocks: &clocks,
        })
    }
}
