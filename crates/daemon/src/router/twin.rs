//! `lastmeter run router.toml`: what a router would do on this machine, beside what it does.

use super::bench::twin::{Placed, calibrate, others};
use super::read;
use crate::{Complaint, Report};
use lastmeter::cached;
use lastmeter_base::Rate;
use lastmeter_ledger::json::to_json;
use lastmeter_ledger::terminal::{Style, render};
use lastmeter_linux::load;
use lastmeter_live::calibrate::Calibration;
use lastmeter_router::twin::cost::Costs;
use lastmeter_router::twin::{LOADS, Sizes, Twin as Model, Way};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Where the constants are kept.
const KEPT: &str = "router-calibration.toml";
/// Bytes of frames by default: the shortest, one of three parts, the longest.
const LENGTHS: [u64; 3] = [60, 512, 1514];
/// Seconds of each run of a calibration, and of a measurement beside.
const SECONDS: f64 = 1.0;
const SECONDS_QUICK: f64 = 0.4;

#[derive(clap::Args)]
pub(crate) struct Twin {
    /// The router's file
    file: PathBuf,
    /// The port where packets arrive [default: the last]
    #[arg(long)]
    from: Option<String>,
    /// The port where they leave [default: the first]
    #[arg(long)]
    to: Option<String>,
    /// Bytes of a frame; may be given several times [default: 60, 512, 1514]
    #[arg(long = "len", value_parser = clap::value_parser!(u64).range(60..=1514))]
    lengths: Vec<u64>,
    /// Measure it as well, in network namespaces of its own (needs root)
    #[arg(long)]
    beside: bool,
    /// Measure this machine's constants again, although there are some (needs root)
    #[arg(long)]
    calibrate: bool,
    /// The constants of a file instead of this machine's
    #[arg(long, value_name = "FILE", conflicts_with = "calibrate")]
    calibration: Option<PathBuf>,
}

/// Constants, and where they come from.
fn constants(arguments: &Twin, quick: bool) -> Result<(Calibration, String), Complaint> {
    let read = |path: &Path| -> Result<Calibration, Complaint> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| Complaint(format!("{}: {error}", path.display())))?;
        let place = |error| Complaint(format!("{}: {error}", path.display()));
        Calibration::from_toml(&text).map_err(place)
    };
    if let Some(path) = &arguments.calibration {
        return Ok((read(path)?, path.display().to_string()));
    }
    let kept = cached::path(KEPT);
    if let (Some(path), false) = (&kept, arguments.calibrate)
        && let Ok(calibration) = read(path)
        && calibration.host.is_here()?
        // Of an older program, it lacks some.
        && Costs::of_calibration(&calibration).is_ok()
    {
        return Ok((calibration, path.display().to_string()));
    }
    let calibration = calibrate(if quick { SECONDS_QUICK } else { SECONDS }, quick)?;
    let mut words = "measured now".to_owned();
    if let Some(path) = kept {
        cached::keep(&path, &calibration).map_err(|error| Complaint(error.0))?;
        let _ = write!(words, ", kept in {}", path.display());
    }
    Ok((calibration, words))
}

pub(crate) fn twin(arguments: &Twin, quick: bool) -> Result<Report, Complaint> {
    let config = read(&arguments.file)?;
    let text = std::fs::read_to_string(&arguments.file)?;
    let folder = arguments.file.parent().unwrap_or(Path::new("."));
    let port = |name: &Option<String>, usual: usize| match name {
        None => Ok(usual),
        Some(name) => {
            let known = config.port(name).map(usize::from);
            known.ok_or_else(|| Complaint(format!("no port is called {name:?}")))
        }
    };
    let last = config.ports.len().saturating_sub(1);
    let way = Way { from: port(&arguments.from, last)?, to: port(&arguments.to, 0)? };
    if way.from == way.to {
        return Err(Complaint(
            "packets come by one port and leave by another: --from, --to".into(),
        ));
    }
    let sizes = Sizes::of(&config, folder)?;
    let (calibration, whence) = constants(arguments, quick)?;
    let costs = Costs::of_calibration(&calibration)?;
    let model = Model::new(&config, &text, sizes, way, costs)?;
    let usual = if quick { &LENGTHS[..1] } else { &LENGTHS };
    let lengths = if arguments.lengths.is_empty() { usual } else { &arguments.lengths };
    let names = [way.from, way.to].map(|at| config.ports[at].name.as_str());
    let placed = match arguments.beside {
        true => Some(Placed::new(&text, folder, names)?),
        false => None,
    };
    let mut out = heading(&calibration, &whence, names, sizes);
    let mut json = Vec::new();
    let mut account = None;
    for len in lengths {
        let told = model.predict(*len)?;
        let seconds = if quick { SECONDS_QUICK } else { SECONDS };
        let beside = placed.as_ref().map(|placed| placed.measure(*len as usize, seconds));
        let beside = beside.transpose()?;
        let by_line = model.line(*len) < 1.0 / model.work(*len);
        let measured = beside.as_ref().map(|own| Measured {
            rate: if by_line { own.rate } else { own.per_cpu },
            decided: by_line || own.decided,
            trips: &own.trips,
        });
        let _ = write!(out, "{len:>6}  {}", rate(told.rate, *len));
        if let Some(own) = &measured {
            let _ = write!(out, "  {}  {:>5.2}", rate(own.rate, *len), told.rate / own.rate);
        }
        out.push_str("   ");
        for (at, trip) in told.trips.iter().enumerate() {
            let _ = write!(out, " {:>8.1}", trip.median * 1e6);
            if let Some(own) = &measured {
                let found = own.trips[at].map_or("-".to_owned(), |s| format!("{:.1}", s * 1e6));
                let _ = write!(out, " ({found:>7})");
            }
        }
        out.push('\n');
        let trips = told.trips.iter().enumerate().map(|(at, trip)| {
            let found = measured.as_ref().and_then(|own| own.trips[at]);
            json!({ "load": trip.load, "predicted": trip.median, "measured": found })
        });
        let trips: Vec<Value> = trips.collect();
        let ledger: Value = serde_json::from_str(&to_json(&told.ledger))?;
        json.push(json!({
            "len": len,
            "predicted": told.rate,
            "measured": measured.as_ref().map(|own| own.rate),
            "decided": measured.as_ref().map(|own| own.decided),
            "round-trips": trips,
            "ledger": ledger,
        }));
        if measured.is_some_and(|own| !own.decided) {
            let _ = writeln!(out, "        UNDECIDED: the router had less than its core");
        }
        account = account.or(Some(told.ledger));
    }
    if let Some(words) = arguments.beside.then(others).transpose()?.and_then(load::words) {
        let _ = writeln!(out, "{words}");
    }
    if let Some(ledger) = account {
        let _ = write!(out, "\nMore is offered than it forwards, {} B:\n", lengths[0]);
        out += &render(&ledger, Style { width: 100, color: false, unicode: true });
    }
    Ok(Report { text: out, json, good: true })
}

struct Measured<'a> {
    rate: f64,
    decided: bool,
    trips: &'a [Option<f64>],
}

fn rate(rate: f64, len: u64) -> String {
    let bits = Rate::from_bits((rate * len as f64 * 8.0) as u64).as_bits() as f64 / 1e9;
    format!("{:>7.3} M/s {bits:>6.2} Gbit/s", rate / 1e6)
}

fn heading(calibration: &Calibration, whence: &str, [from, to]: [&str; 2], sizes: Sizes) -> String {
    let host = &calibration.host;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let age = now.map_or(0, |since| since.as_secs().saturating_sub(host.date)) / 3600;
    let loads: Vec<String> = LOADS.iter().map(|load| format!("{:.0} %", load * 100.0)).collect();
    format!(
        "{from} to {to}; prefixes: {}, filters: {}\n\
         constants {age} h old of {}, {} cores, Linux {}; others used {:.1} CPUs ({whence})\n\n\
         The most that a core forwards, and round trips through the router in us, idle and at \
         {} of that;\n\
         measured ones in the second column and in brackets.\n\n\
         {:>6}  {:>25}\n",
        sizes.prefixes,
        sizes.filters,
        host.model,
        host.cores,
        host.kernel,
        host.others,
        loads.join(", "),
        "bytes",
        "a core forwards",
    )
}
