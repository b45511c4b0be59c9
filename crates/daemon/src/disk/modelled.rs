//! A disk and its client as an experiment: what a command costs both processors, and the way between them.
//!
//! ```text
//! client --command--> [link] --> disk: wakes up where it was idle, then serves one after another
//!        <--answer--- [link] <--'        (priority "interrupt", in batches: no more wakings while there is work)
//! ```
//!
//! Hosts, link and traffic are those of every experiment (`lastmeter kinds host`, `stages`, `bulk`), and so is the
//! ledger. A bulk transfer with a window is a client with so many commands in flight. Where both ends hand over many
//! commands at once, a packet of the model is all of them: the ends then work in turn, and wake up once for each.
//!
//! Rows: N-04, N-33, N-80.

use lastmeter_engine::Serial;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::{Builtin, Library};
use lastmeter_lab::run::{self, Runner, Watch};
use lastmeter_ledger::Ledger;
use std::fmt::Write as _;

/// Commands of a run, about.
const COMMANDS: f64 = 4000.0;

/// What commands cost; times in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    /// Of the client's processor and of the disk's, for a command among others.
    pub(crate) work: [f64; 2],
    /// More where it was idle and has to be woken up.
    pub(crate) wake: [f64; 2],
    /// The way, each way.
    pub(crate) delay: f64,
}

/// A link, unless it takes no time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// Bits a second.
    pub(crate) rate: f64,
    /// Bytes of a frame that are not its content's, and the most content of a frame.
    pub(crate) framing: (u64, u64),
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// Bytes of a command, and of its answer.
    pub(crate) bytes: [u64; 2],
    /// Commands in flight.
    pub(crate) depth: u32,
    /// So many of them are handed over together, as each end does that works off all that has come before it sends.
    pub(crate) batch: u32,
}

/// What is predicted.
#[derive(Clone, Debug)]
pub(crate) struct Predicted {
    /// Commands a second.
    pub(crate) rate: f64,
    /// Seconds from a command to its answer, on average.
    pub(crate) latency: f64,
    /// Seconds of the disk's processor for a command.
    pub(crate) cpu: f64,
    /// The account of the run.
    pub(crate) ledger: Ledger,
}

/// Both hosts' profiles.
struct Profiles(Costs);

impl Library for Profiles {
    fn names(&self, folder: &str) -> Vec<String> {
        match folder {
            "hosts" => ["client", "disk"].map(str::to_owned).into(),
            _ => Builtin.names(folder),
        }
    }
    fn profile(&self, folder: &str, name: &str) -> Result<String, String> {
        let at = match (folder, name) {
            ("hosts", "client") => 0,
            ("hosts", "disk") => 1,
            _ => return Builtin.profile(folder, name),
        };
        let [work, wake] = [self.0.work[at], self.0.wake[at]].map(picoseconds);
        Ok(format!(
            "what = \"the {name}\"\nsource = \"measured here\"\n[resources]\n\
             cpu = {{ cpu = {{ interrupt = \"{wake} ps\" }} }}\n[[receive]]\nname = \"serve\"\n\
             on = \"cpu\"\nper-packet = \"{work} ps\"\npriority = \"interrupt\"\nbatch = true\n"
        ))
    }
}

fn picoseconds(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e12).round() as u64
}

fn experiment(costs: Costs, link: Option<Link>, asked: Asked) -> String {
    let Asked { bytes, depth, batch } = asked;
    let [command, answer] = bytes.map(|bytes| bytes * u64::from(batch));
    let depth = (depth / batch).max(1);
    // One at a time it takes this long, and with many no less than the slowest part does.
    let on_link = |bytes: u64| link.map_or(0.0, |own| own.content(bytes) as f64 * 8.0 / own.rate);
    let alone = costs.work.iter().chain(&costs.wake).sum::<f64>() + 2.0 * costs.delay;
    let alone = alone + on_link(command) + on_link(answer);
    let least = costs.work[0].max(costs.work[1]).max(on_link(command)).max(on_link(answer));
    let packets = (COMMANDS / f64::from(batch)).max(100.0);
    let duration = packets * (alone / f64::from(depth)).max(least) + 2.0 * alone;
    let mut text = format!(
        "title = \"A disk behind a network\"\nquestion = \"What does a command take?\"\n\
         duration = \"{} ps\"\n[nodes]\nclient = {{ host = {{ profile = \"client\" }} }}\n\
         disk = {{ host = {{ profile = \"disk\" }} }}\n\
         [[links]]\nbetween = [\"client\", \"disk\"]\ndelay = \"{} ps\"\n",
        picoseconds(duration),
        picoseconds(costs.delay),
    );
    let mut sizes = [command, answer];
    if let Some(link) = link {
        let _ = writeln!(text, "rate = \"{:.0} bit/s\"", link.rate);
        sizes = sizes.map(|bytes| link.content(bytes));
    }
    let [command, answer] = sizes;
    let _ = write!(
        text,
        "[[traffic]]\nname = \"commands\"\nfrom = \"client\"\nto = \"disk\"\n\
         bulk = {{ size = \"{command} B\", response = \"{answer} B\", window = {depth}, \
         timeout = \"100 s\" }}\n",
    );
    text
}

impl Link {
    /// Bytes on the line for so many bytes.
    fn content(&self, bytes: u64) -> u64 {
        let (framing, most) = self.framing;
        bytes + framing * bytes.div_ceil(most)
    }
}

/// Runs the experiment.
///
/// # Errors
/// If it cannot run.
pub(crate) fn predict(costs: Costs, link: Option<Link>, asked: Asked) -> Result<Predicted, String> {
    let batch = f64::from(asked.batch);
    let costs = Costs { work: costs.work.map(|work| work * batch), ..costs };
    let text = experiment(costs, link, asked);
    let library = Profiles(costs);
    let experiment = Experiment::parse("disk-model", text.as_bytes(), &[], &library)
        .map_err(|problems| format!("the model: {}", run::Failure::Problems(problems)))?;
    let watch = Watch::default();
    let runner = Runner { parallel: &Serial, threads: 1, library: &library, watch: &watch };
    let ledger = run::ledger(&experiment, runner).map_err(|why| format!("the model: {why}"))?;
    let answers = ledger.paths.iter().filter(|path| path.name.starts_with("disk->"));
    let commands: u64 = answers.map(|path| path.totals.delivered.packets).sum();
    let latencies = ledger.paths.iter().filter_map(|path| path.totals.latency.as_ref());
    let latency = latencies.map(|latency| latency.mean).sum();
    let seconds = experiment.duration.as_secs_f64();
    let busy =
        ledger.resources.iter().find(|one| one.name == "disk.cpu").map_or(0.0, |one| one.busy);
    let rate = batch * commands as f64 / seconds;
    Ok(Predicted { rate, latency, cpu: busy / rate.max(f64::MIN_POSITIVE), ledger })
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: f64 = 1e-6;

    fn predicted(costs: Costs, depth: u32) -> Predicted {
        predict(costs, None, Asked { bytes: [28, 4112], depth, batch: 1 }).expect("it runs")
    }

    /// One at a time: all parts after each other, wakings included; many: the slower processor, which never sleeps.
    #[test]
    fn one_command_waits_for_all_parts_and_many_for_the_slowest_n_33() {
        let costs = Costs { work: [5.0 * US, 10.0 * US], wake: [3.0 * US, 4.0 * US], delay: US };
        let one = predicted(costs, 1);
        assert!((one.latency / (24.0 * US) - 1.0).abs() < 0.01, "{}", one.latency);
        assert!((one.rate * 24.0 * US - 1.0).abs() < 0.01, "{}", one.rate);
        assert!((one.cpu / (14.0 * US) - 1.0).abs() < 0.01, "{}", one.cpu);
        let many = predicted(costs, 32);
        assert!((many.rate * 10.0 * US - 1.0).abs() < 0.02, "{}", many.rate);
        assert!((many.cpu / (10.0 * US) - 1.0).abs() < 0.02, "{}", many.cpu);
        assert!((many.latency / (320.0 * US) - 1.0).abs() < 0.03, "{}", many.latency);
        assert_eq!(many.ledger.balance.packets_residual, 0);
    }

    /// Handed over together, they take turns at both ends, and wake each up once.
    #[test]
    fn a_batch_keeps_one_end_busy_at_a_time_n_33() {
        let costs = Costs { work: [5.0 * US, 10.0 * US], wake: [3.0 * US, 4.0 * US], delay: US };
        let asked = Asked { bytes: [28, 4112], depth: 32, batch: 32 };
        let many = predict(costs, None, asked).expect("it runs");
        let cycle = (32.0 * 15.0 + 7.0 + 2.0) * US;
        assert!((many.rate * cycle / 32.0 - 1.0).abs() < 0.02, "{}", many.rate);
        assert!((many.latency / cycle - 1.0).abs() < 0.01, "{}", many.latency);
        assert!((many.cpu / (10.0 * US + 4.0 * US / 32.0) - 1.0).abs() < 0.02, "{}", many.cpu);
    }

    /// A link's rate bounds many, its delay one.
    #[test]
    fn a_link_takes_its_time_n_80() {
        let costs = Costs { work: [US; 2], wake: [0.0; 2], delay: 500.0 * US };
        let link = Link { rate: 640e6, framing: (78, 1448) };
        let asked = |depth| Asked { bytes: [28, 8208], depth, batch: 1 };
        let on_line = (8208.0 + 6.0 * 78.0) * 8.0 / 640e6;
        let one = predict(costs, Some(link), asked(1)).expect("it runs");
        let alone = 1002.0 * US + on_line + (28.0 + 78.0) * 8.0 / 640e6;
        assert!((one.latency / alone - 1.0).abs() < 0.01, "{} {alone}", one.latency);
        let many = predict(costs, Some(link), asked(64)).expect("it runs");
        assert!((many.rate * on_line - 1.0).abs() < 0.02, "{}", many.rate);
    }
}
