//! The calibration of this host: from the cache while it is valid, else measured again, and why.

use crate::cached::keep;
use crate::{Complaint, output};
use lastmeter_live::calibrate::{self, Calibration};
use lastmeter_live::namespace::Hosts;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds for which a calibration is valid: kernels and machines are patched about monthly.
const AGE_MAX: u64 = 30 * 24 * 3600;
/// Load of other programs, in CPUs, beyond which constants are not the host's own; as for predictions.
const BUSY: f64 = 0.5;

/// Where the calibration is cached.
pub(crate) fn path() -> Option<PathBuf> {
    crate::cached::path("calibration.toml")
}

/// A calibration, and how it came about.
pub(crate) struct HostCalibration {
    pub(crate) calibration: Calibration,
    /// As a message for the user.
    pub(crate) words: String,
    /// Whether it was measured just now.
    pub(crate) new: bool,
}

/// The cached calibration, or why it is not valid.
fn cached(path: &Path) -> Result<HostCalibration, String> {
    let text = fs::read_to_string(path).map_err(|_| "there is none yet".to_owned())?;
    let calibration = Calibration::from_toml(&text).map_err(|error| error.to_string())?;
    if !calibration.host.is_here().map_err(|error| error.to_string())? {
        return Err("the last one is of another machine or kernel".to_owned());
    }
    if calibration.references.is_empty() {
        return Err("the last one has no reference transfers".to_owned());
    }
    let age = now().saturating_sub(calibration.host.date);
    if age > AGE_MAX {
        return Err(format!("the last one is {} days old", age / 86_400));
    }
    if calibration.host.others > BUSY {
        return Err("the machine was busy during the last one".to_owned());
    }
    let age = match age {
        0..7_200 => format!("{} min", age / 60),
        7_200..172_800 => format!("{} h", age / 3600),
        _ => format!("{} days", age / 86_400),
    };
    let words = format!("Calibration from {age} ago ({}).", path.display());
    Ok(HostCalibration { calibration, words, new: false })
}

/// Whether the next run will calibrate.
pub(crate) fn is_cold() -> bool {
    path().is_none_or(|path| cached(&path).is_err())
}

/// The valid calibration, or a new one, which is cached.
pub(crate) fn calibration() -> Result<HostCalibration, Complaint> {
    let place = path();
    let why = match place.as_deref().map(cached) {
        Some(Ok(held)) => return Ok(held),
        Some(Err(why)) => why,
        None => "there is no home directory to keep one in".to_owned(),
    };
    let calibration = calibrate::run()?;
    let kept = place.as_deref().map(|path| keep(path, &calibration));
    let kept = match (kept, place) {
        (Some(Ok(())), Some(path)) => format!("saved in {}", path.display()),
        (Some(Err(Complaint(error))), _) => format!("not saved: {error}"),
        _ => "not saved".to_owned(),
    };
    let words = format!("Calibrated this host, because {why}; {kept}.");
    Ok(HostCalibration { calibration, words, new: true })
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The host's name, for headings.
pub(crate) fn words(calibration: &Calibration) -> String {
    let host = &calibration.host;
    format!("{}, {} cores, Linux {}", host.model, host.cores, host.kernel)
}

/// A cached calibration scaled to the machine's present speed; a new one is left as it is.
pub(crate) fn refreshed(
    mut held: HostCalibration,
    hosts: &mut Hosts,
) -> Result<HostCalibration, Complaint> {
    if !held.new {
        let change = calibrate::refresh(hosts, &mut held.calibration)?;
        let percent = change * 100.0;
        held.words += &format!(
            " Ten reference transfers, repeated now, differ by up to {percent:.0} %; the others \
             are scaled accordingly."
        );
    }
    Ok(held)
}

/// Prints how a calibration came about, on standard error.
pub(crate) fn say(held: &HostCalibration) {
    output::note(&held.words);
}
