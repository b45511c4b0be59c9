//! `lastmeterd router`: runs a router, queries and changes a running one.

mod bench;
mod copies;
mod drawing;
mod flows;
mod labels;
mod ledger;
mod show;
mod twin;
mod watch;

use crate::sandbox::Ticking;
use crate::{Complaint, Report};
use lastmeter_lab::library::Builtin;
use lastmeter_linux::control::{self, Control as Socket};
use lastmeter_plugin::host::Limits;
use lastmeter_router::Start;
use lastmeter_router::config::Config;
use lastmeter_router::control::Control;
use lastmeter_router::port_processor::housekeeper;
use serde_json::{Value, json};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Run a router as its file says; ends with the control processor, and packets are forwarded on until `router end`
    Run(Run),
    /// Say whether a router's file is right, and if not, what is wrong in which line
    Check(File),
    /// Show a running router: ports, routes, flows, labels, neighbours, processors, drawing, plugins, ledger, boot,
    /// metrics, configuration, `route ADDRESS`
    Show(Show),
    /// Show what passes through one or several routers, each second, until interrupted: also as a page, or for
    /// Prometheus
    Watch(watch::Watch),
    /// Change a value of a running router: `set router.toml ports.east.rate "10 Mbit/s"`
    Set(Set),
    /// A value of a running router's configuration
    Get(Get),
    /// Read the file again
    Reload(File),
    /// Take back the last change, or the last N
    Rollback(Rollback),
    /// Reserve a share of the lines for a flow, give it a route or functions of its own
    Reserve(Box<flows::Reserve>),
    /// Keep a flow for as long again as it was set up for
    Refresh(flows::Named),
    /// End a flow's reservation, route and functions
    Release(flows::Named),
    /// Packets that rules said should be copied, as a capture
    Copies(copies::Copies),
    /// Stop one of several port processors: its ports are down, the others forward
    Stop(Stop),
    /// End a running router, its port processor too
    End(File),
    /// Measure it beside the kernel, in network namespaces of its own
    Bench(bench::Bench),
    /// Predict what it would forward on this machine, how long packets would wait, and what would limit it
    Twin(twin::Twin),
    /// Frames for a benchmark, as `bench` makes them
    #[command(hide = true)]
    Generate(bench::Generate),
    /// What handles frames in a driver for a benchmark
    #[command(hide = true)]
    Stand(bench::Stand),
    /// The port processor of a router, as `run` starts it
    #[command(hide = true)]
    PortProcessor(File),
}

#[derive(clap::Args)]
pub(crate) struct File {
    /// The router's file
    file: PathBuf,
    /// The folder of its sockets and logs [default: /run/lastmeter/NAME]
    #[arg(long)]
    run: Option<PathBuf>,
}

impl File {
    fn run(&self) -> PathBuf {
        self.run.clone().unwrap_or_else(|| {
            let name = self.file.file_stem().unwrap_or_default();
            Path::new("/run/lastmeter").join(name)
        })
    }
    fn ask(&self, question: &Value) -> Result<Value, Complaint> {
        Ok(control::ask(&self.run().join("control.sock"), question)?)
    }
}

#[derive(clap::Args)]
pub(crate) struct Run {
    #[command(flatten)]
    file: File,
    /// End after so many seconds
    #[arg(long)]
    seconds: Option<f64>,
    /// Leave the port processor forwarding when this ends
    #[arg(long)]
    leave: bool,
}

#[derive(clap::Args)]
pub(crate) struct Show {
    #[command(flatten)]
    file: File,
    /// What to show
    #[arg(default_value = "ports")]
    what: Vec<String>,
}

#[derive(clap::Args)]
pub(crate) struct Set {
    #[command(flatten)]
    file: File,
    /// Which value: ports.east.rate
    key: String,
    /// The new value
    value: String,
}

#[derive(clap::Args)]
pub(crate) struct Get {
    #[command(flatten)]
    file: File,
    /// Which value: ports.east
    #[arg(default_value = "")]
    key: String,
}

#[derive(clap::Args)]
pub(crate) struct Rollback {
    #[command(flatten)]
    file: File,
    /// How many changes
    #[arg(default_value_t = 1)]
    steps: u64,
}

#[derive(clap::Args)]
pub(crate) struct Stop {
    #[command(flatten)]
    file: File,
    /// Which port processor
    processor: String,
    /// Have it fail, as a mistake in the program would make it
    #[arg(long)]
    fail: bool,
}

pub(crate) fn run(command: Command, quick: bool, json: bool) -> Result<Report, Complaint> {
    match command {
        Command::Run(arguments) => start(&arguments),
        Command::Check(file) => check(&file),
        Command::Show(arguments) => show::show(&arguments),
        Command::Watch(arguments) => watch::watch(&arguments, json),
        Command::Set(Set { file, key, value }) => {
            said(&file, &json!({ "set": key, "to": value }), &format!("{key} = {value}"))
        }
        Command::Get(Get { file, key }) => {
            let value = file.ask(&json!({ "get": key }))?;
            let text = match &value {
                Value::String(text) => format!("{text}\n"),
                other => format!("{other:#}\n"),
            };
            Ok(Report { text, json: vec![value], good: true })
        }
        Command::Reload(file) => said(&file, &json!({ "reload": true }), "read again"),
        Command::Rollback(Rollback { file, steps }) => {
            said(&file, &json!({ "rollback": steps }), "rolled back")
        }
        Command::End(file) => said(&file, &json!({ "end": true }), "ended"),
        Command::Reserve(arguments) => flows::reserve(&arguments),
        Command::Refresh(flows::Named { file, name }) => {
            said(&file, &json!({ "refresh": name }), &format!("{name} is refreshed"))
        }
        Command::Release(flows::Named { file, name }) => {
            said(&file, &json!({ "release": name }), &format!("{name} is released"))
        }
        Command::Stop(Stop { file, processor, fail }) => {
            let question = json!({ "stop": processor, "fail": fail });
            said(&file, &question, &format!("{processor} is stopped"))
        }
        Command::Copies(arguments) => copies::copies(&arguments),
        Command::Bench(arguments) => bench::bench(&arguments, quick),
        Command::Twin(arguments) => twin::twin(&arguments, quick),
        Command::Generate(arguments) => bench::generate(&arguments),
        Command::Stand(arguments) => bench::stand(&arguments),
        Command::PortProcessor(file) => port_processor(&file),
    }
}

fn said(file: &File, question: &Value, text: &str) -> Result<Report, Complaint> {
    let answer = file.ask(question)?;
    Ok(Report { text: format!("{text}\n"), json: vec![answer], good: true })
}

fn check(file: &File) -> Result<Report, Complaint> {
    let config = read(&file.file)?;
    let text = format!(
        "{}: {} ports, {} routes, {} filters, {} flows, {} plugins\n",
        file.file.display(),
        config.ports.len(),
        config.routes.len(),
        config.filters.len(),
        config.flows.len(),
        config.plugins.len()
    );
    Ok(Report { text, json: vec![json!({ "good": true })], good: true })
}

fn read(path: &Path) -> Result<Config, Complaint> {
    let place = |error| Complaint(format!("{}: {error}", path.display()));
    let text = std::fs::read(path).map_err(place)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Config::parse(&name, &text, &Builtin).map_err(|problems| {
        let shown: Vec<String> = problems.iter().map(|problem| problem.render(false)).collect();
        Complaint(shown.join("\n"))
    })
}

fn start(arguments: &Run) -> Result<Report, Complaint> {
    let file = &arguments.file;
    let run = file.run();
    // Whoever reaches its sockets decides where packets go.
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&run);
    made.map_err(|error| Complaint(format!("{}: {error}", run.display())))?;
    let program = std::env::current_exe()?;
    let (path, folder) = (std::fs::canonicalize(&file.file), run.clone());
    let path = path.map_err(|error| Complaint(format!("{}: {error}", file.file.display())))?;
    let begin: Start = Box::new({
        let path = path.clone();
        move || {
            let mut command = std::process::Command::new(&program);
            command.args(["router", "port-processor"]).arg(&path).arg("--run").arg(&folder);
            command
        }
    });
    let functions = Box::new(flows::Server);
    let control = Control::boot(&path, &run, Arc::new(Builtin), functions, &begin)?;
    control.serve_fpm()?;
    control.follow_kernel();
    control.serve_in_band();
    control.serve_rsvp();
    let socket = {
        let control = control.clone();
        Socket::serve(&run.join("control.sock"), move |question| control.answer(question))?
    };
    let ended = crate::signals()?;
    {
        let control = control.clone();
        let until = arguments
            .seconds
            .map(|s| std::time::Instant::now() + std::time::Duration::from_secs_f64(s));
        std::thread::spawn(move || {
            while !control.ended() {
                let over = until.is_some_and(|until| std::time::Instant::now() >= until);
                if over || ended.load(std::sync::atomic::Ordering::Relaxed) {
                    control.end(false);
                }
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        });
    }
    let boot = control.answer(&json!({ "show": "boot" }))?;
    let printed = crate::print(&show::boot(&boot));
    if printed.is_ok() {
        control.supervise(&begin);
    }
    let last = control.answer(&json!({ "show": "ports" })).unwrap_or(Value::Null);
    if printed.is_err() || !arguments.leave {
        control.end(true);
    }
    drop(socket);
    printed?;
    let text = if last.is_null() { String::new() } else { show::text("ports", &last)? };
    Ok(Report { text, json: vec![last], good: true })
}

fn port_processor(file: &File) -> Result<Report, Complaint> {
    let config = read(&file.file)?;
    let sandbox = Ticking::new(Limits::default())?;
    let folder = file.file.parent().unwrap_or(Path::new("."));
    let socket = file.run().join("data.sock");
    housekeeper::run(config, folder, &socket, sandbox.host.clone(), Arc::new(Builtin))?;
    Ok(Report { text: String::new(), json: Vec::new(), good: true })
}
