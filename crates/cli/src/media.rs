//! `lastmeter media ...` runs `lastmeter.media` of the Python package, as its own program does: pictures are decoded by
//! FFmpeg and compared by OpenCV there.

use crate::{Common, Complaint, Ended};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::{Command, Stdio};

/// Says which Python runs the package; the package sets it for its own.
const PYTHON: &str = "LASTMETER_PYTHON";

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// What the command of the package takes; `lastmeter media --help` lists it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    rest: Vec<OsString>,
}

/// Runs the package's command, and ends as it does.
pub(crate) fn run(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    let python = std::env::var_os(PYTHON).unwrap_or_else(|| "python3".into());
    let missing = || {
        Complaint(format!(
            "the Python package with its extra `media` is missing from {}: \
             `pip install 'lastmeter[media]'`, or from a clone `pip install './python[media]'`",
            python.to_string_lossy()
        ))
    };
    let complain = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => missing(),
        _ => Complaint(format!("{}: {error}", python.to_string_lossy())),
    };
    let found = Command::new(&python)
        .args(["-c", "import av, cv2, lastmeter.media"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(complain)?;
    if !found.success() {
        return Err(missing());
    }
    let mut child = Command::new(&python);
    child.args(["-m", "lastmeter.media"]).args(&arguments.rest);
    if common.json {
        child.arg("--json");
    }
    let status = child.status().map_err(complain)?;
    Ok(Ended::Status(status.code().unwrap_or(2).try_into().unwrap_or(2)))
}
