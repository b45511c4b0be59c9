//! The program `lastmeter`: the one place that opens files, reads clocks and starts threads for
//! models. What the Python package needs of it is public.
//!
//! Exit status: 0 done; 1 ran, but the result fell short; 2 bad input. `why -- COMMAND` exits with the
//! command's own status.

mod bench;
pub mod blast;
pub mod cached;
mod calibrate;
mod capture;
mod compare;
mod daemon;
mod dq;
pub mod emulate;
pub mod fuzz;
mod init;
mod judges;
mod kinds;
mod live;
mod lookup;
mod media;
mod output;
mod progress;
pub mod published;
mod repro;
pub mod results;
pub mod route;
mod run;
mod serve;
mod shell;
pub mod sweep;
pub mod threads;
mod why;
pub mod world;

use clap::{Parser, Subcommand};
use std::ffi::OsString;

/// Where does the time go between one application's send() and its peer's recv(), and what would a change buy?
#[derive(Parser)]
#[command(version, after_help = EXAMPLES)]
struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  lastmeter why                                explain a transfer on this machine
  lastmeter run first-path                     explain the bundled path between two hosts
  lastmeter init --from-host server.example    write an experiment of your own path to a server
  lastmeter run my.toml --set duration='5 s'   run an experiment of your own
  lastmeter run transfer.pcapng --rate '100 Mbit/s'
                                               replay a capture over a path
  lastmeter sweep mm1 --over traffic.customers.poisson.rate='1 Gbit/s,4 Gbit/s' --seeds 5
                                               the same with other values, all cores
  lastmeter serve                              the same in a browser: change a number, press Run
  lastmeter kinds drop-tail                    the parameters of a queue
  lastmeter repro E                            reproduce what one document publishes
  lastmeter bench engine                       how fast the models run";

/// Options of all commands.
#[derive(clap::Args)]
struct Common {
    /// Print only a machine-readable result on standard output
    #[arg(long, global = true)]
    json: bool,
    /// Use this seed instead of the experiment's own
    #[arg(long, global = true, value_name = "N")]
    seed: Option<u64>,
    /// Do less: a tenth of the simulated time, no what-ifs, small benchmarks
    #[arg(long, global = true)]
    quick: bool,
    /// Number of threads [default: number of cores]
    #[arg(long, global = true, value_name = "N")]
    threads: Option<usize>,
    /// Print results and errors only: no progress, no notes
    #[arg(long, global = true)]
    quiet: bool,
    /// What the program was started with, for the program that it may start instead.
    #[arg(skip)]
    given: Vec<OsString>,
    /// Runs plugins in models; only `lastmeterd` has it.
    #[arg(skip)]
    programs: Option<world::Sandbox>,
}

impl Common {
    /// # Errors
    /// Nothing follows the `--` that begins somebody's command, perhaps because a variable of a script is empty.
    fn check_command(&self, command: &Command) -> Result<(), Complaint> {
        let like = match command {
            Command::Why(_) => "why -- curl -O URL",
            Command::Live(_) => "live emulated-link -- ping -c 5 10.77.0.2",
            _ => return Ok(()),
        };
        match self.given.iter().position(|word| word == "--") {
            Some(at) if at + 1 == self.given.len() => Err(Complaint(format!(
                "there is no command after `--`: write one, as in `lastmeter {like}`, or leave out \
                 `--`"
            ))),
            _ => Ok(()),
        }
    }
}

#[derive(Subcommand)]
enum Command {
    /// Explain a transfer on this machine, predict what would help, apply it and measure
    Why(why::Arguments),
    /// Measure this host and write its constants as a profile
    Calibrate(calibrate::Arguments),
    /// Run an experiment, or replay a capture, and print its ledger
    Run(run::Arguments),
    /// Write a first experiment with this machine's interfaces, route and calibrated profile
    Init(init::Arguments),
    /// Run programs behind a modelled network, in real time, and certify that it kept up
    Live(live::Arguments),
    /// Send and count traffic between hosts, following a plan
    Blast(blast::Arguments),
    /// Run an experiment many times, with different values and seeds
    Sweep(sweep::Arguments),
    /// Compare two ledgers side by side
    Compare(compare::Arguments),
    /// Reproduce published tables and figures, ours beside theirs
    Repro(repro::Arguments),
    /// Open a page in the browser that edits, runs and compares experiments
    Serve(serve::Arguments),
    /// Print the reference for experiment files: every kind and its parameters
    Kinds(kinds::Arguments),
    /// Look up addresses in a routing table, and show how each answer was found
    Lookup(lookup::Arguments),
    /// Run the stress load of distributed queueing on threads, and plot the reported backlogs
    Dq(dq::Arguments),
    /// Make, check, sign, fetch and measure plugins: owners' programs for their devices
    Plugin(daemon::Arguments),
    /// Serve a disk over iSCSI and NBD, with its owner's policies in front of every command
    Disk(daemon::Arguments),
    /// Serve a screen to viewers (VNC) and programs, each in its part of it
    Display(daemon::Arguments),
    /// Serve frames to receivers that set the pace, and to viewers with HTTP and RTSP
    Camera(daemon::Arguments),
    /// Serve a speaker and a microphone, to which programs send and listen by RTSP and RTP
    Audio(daemon::Arguments),
    /// Forward packets between interfaces, with filters, plugins, queues and routes that change while it runs
    Router(daemon::Arguments),
    /// Find people, pages, stories, jokes and goals in pictures: needs the Python package
    Media(media::Arguments),
    /// Print the completions of a shell
    Completions(shell::Completions),
    /// Write the manual pages of the program and of each command
    Man(shell::Man),
    /// Run benchmarks, and compare with peers such as ns-3 and DPDK where installed
    Bench(bench::Arguments),
}

/// How a command ended.
enum Ended {
    /// All is well.
    Done,
    /// It ran, but the result fell short.
    Short,
    /// A command was run for the user, and exited with this status.
    Status(u8),
}

/// Bad input or a fault, as a message for the user.
#[derive(Debug)]
pub struct Complaint(pub String);

impl<T: std::fmt::Display> From<T> for Complaint {
    fn from(error: T) -> Complaint {
        Complaint(error.to_string())
    }
}

/// Turns this process into a helper if it was started as one; then it never returns.
///
/// Call it first in `main`, before any thread is started.
pub fn enter_if_asked() {
    let [own_tcp, units, delivery, channels, tune] = lastmeter_bench::TASKS;
    lastmeter_live::worker::enter_if_asked(&[
        lastmeter_rtc::part::TASK,
        bench::failover::TASK,
        bench::forward::TASK,
        own_tcp,
        units,
        delivery,
        channels,
        tune,
    ]);
    live::vunet::part::enter_if_asked();
}

/// Runs the program with these arguments, its name first; returns its exit status.
pub fn program(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    program_with(arguments, None)
}

/// The same with a sandbox for the plugins of models.
pub fn program_with(
    arguments: impl IntoIterator<Item = OsString>,
    programs: Option<world::Sandbox>,
) -> u8 {
    let given: Vec<OsString> = arguments.into_iter().collect();
    let Arguments { common, command } = match Arguments::try_parse_from(&given) {
        Ok(Arguments { common, command }) => {
            Arguments { common: Common { given, programs, ..common }, command }
        }
        Err(error) => {
            output::remember(error.print());
            return ended(Ok(Ended::Status(error.exit_code().try_into().unwrap_or(2))));
        }
    };
    if common.quiet {
        output::hush();
    }
    let checked = threads::check(common.threads).and_then(|()| common.check_command(&command));
    if let Err(complaint) = checked {
        return ended(Err(complaint));
    }
    ended(match command {
        Command::Calibrate(arguments) => calibrate::calibrate(&common, &arguments),
        Command::Why(arguments) => why::why(&common, &arguments),
        Command::Run(arguments) => run::run(&common, &arguments),
        Command::Init(arguments) => init::init(&common, &arguments),
        Command::Completions(arguments) => shell::completions(&arguments),
        Command::Man(arguments) => shell::man(&arguments),
        Command::Sweep(arguments) => sweep::sweep(&common, &arguments),
        Command::Compare(arguments) => compare::compare(&common, &arguments),
        Command::Live(arguments) => live::live(&common, &arguments),
        Command::Blast(arguments) => blast::blast(&common, &arguments),
        Command::Repro(arguments) => repro::repro(&common, &arguments),
        Command::Serve(arguments) => serve::serve(&common, &arguments),
        Command::Kinds(arguments) => kinds::kinds(&common, &arguments),
        Command::Lookup(arguments) => lookup::lookup(&common, &arguments),
        Command::Dq(arguments) => dq::dq(&common, &arguments),
        Command::Plugin(arguments) => daemon::run(&common, "plugin", &arguments),
        Command::Disk(arguments) => daemon::run(&common, "disk", &arguments),
        Command::Display(arguments) => daemon::run(&common, "display", &arguments),
        Command::Camera(arguments) => daemon::run(&common, "camera", &arguments),
        Command::Audio(arguments) => daemon::run(&common, "audio", &arguments),
        Command::Router(arguments) => daemon::run(&common, "router", &arguments),
        Command::Media(arguments) => media::run(&common, &arguments),
        Command::Bench(arguments) => bench::bench(&common, &arguments),
    })
}

/// The exit status; what is wrong is printed.
fn ended(ended: Result<Ended, Complaint>) -> u8 {
    let ended = ended.and_then(|ended| match output::failure() {
        None => Ok(ended),
        Some(error) => Err(Complaint(output::unwritten(&error))),
    });
    match ended {
        Ok(Ended::Done) => 0,
        Ok(Ended::Short) => 1,
        Ok(Ended::Status(status)) => status,
        Err(Complaint(words)) => {
            output::complain(words.trim_end());
            2
        }
    }
}
