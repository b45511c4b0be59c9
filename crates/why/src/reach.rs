//! Which host carries a rate over an adapter: the modelled ones ([`lastmeter_lab::reach`]), and beside them
//! each calibrated host of today with what its constants predict for a plain stream, which crosses
//! no wire.

use lastmeter_base::Rate;
use lastmeter_lab::library::Library;
use lastmeter_lab::reach::{self, Carried};
use lastmeter_lab::run::{Failure, Runner};
use lastmeter_ledger::figures::rate as words;
use lastmeter_live::calibrate::Calibration;
use lastmeter_live::predict::predict;
use lastmeter_live::transfer::{Placement, Setting};

/// The folder of calibrated hosts.
const CALIBRATED: &str = "calibrated";

/// Every modelled host that takes `adapter` and every calibrated one, fastest first.
///
/// # Errors
/// There is no such adapter, or a profile is wrong.
pub fn hosts(adapter: &str, target: Rate, runner: Runner<'_>) -> Result<Vec<Carried>, Failure> {
    let library = runner.library;
    let mut carried = reach::hosts(adapter, target, runner)?;
    carried
        .extend(library.names(CALIBRATED).iter().filter_map(|name| today(name, target, library)));
    carried.sort_by(|a, b| b.goodput.total_cmp(&a.goodput));
    Ok(carried)
}

fn today(name: &str, target: Rate, library: &dyn Library) -> Option<Carried> {
    let calibration = Calibration::from_toml(&library.profile(CALIBRATED, name).ok()?).ok()?;
    let several = calibration.host.cores > 1;
    let placement = if several { Placement::OtherCore } else { Placement::SameCore };
    let prediction = predict(&calibration, &Setting { placement, ..Setting::PLAIN }).ok()?;
    let goodput = prediction.goodput;
    let times = (goodput >= target.as_bits() as f64).then_some(1.0);
    let limit = prediction.uses.first().map_or(String::new(), |most| most.resource.clone());
    Some(Carried { host: name.to_owned(), goodput, times, reached: goodput, limit })
}

/// The answer in words, one line per host.
pub fn table(adapter: &str, target: Rate, carried: &[Carried]) -> String {
    let mut out = format!(
        "WHICH HOST CARRIES {target} OVER {adapter}\n{:<26} {:>14} {:>10}  {}\n",
        "host", "carries", "faster", "then limited by"
    );
    for one in carried {
        let times = match one.times {
            Some(1.0) => "as it is".to_owned(),
            Some(times) => format!("{times:.1} x"),
            None => "never".to_owned(),
        };
        out += &format!(
            "{:<26} {:>14} {times:>10}  {}, at {}\n",
            one.host,
            words(one.goodput),
            one.limit,
            words(one.reached)
        );
    }
    out + &match carried.iter().find(|one| one.times == Some(1.0)) {
        Some(first) => format!("The first that does is {}.\n", first.host),
        None => "None does as it is.\n".to_owned(),
    }
}
