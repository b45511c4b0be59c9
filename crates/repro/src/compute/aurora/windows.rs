//! The profiles of the workstations that `experiments/aurora-vidboard/repro.toml` runs have the constants of
//! the experiment.

use super::super::Setting;
use crate::Error;
use lastmeter_host::profile::Profile;
use lastmeter_lab::library::{Builtin, Library};
use lastmeter_lab::profile;

fn wrong(message: String) -> Error {
    Error::Computation { name: "aurora-vidboard", message }
}

/// Whether they do.
pub(super) fn agrees(setting: &Setting<'_>) -> Result<(), Error> {
    let constants = setting.constants;
    let read = |name: &str| -> Result<Profile, Error> {
        let text = Builtin.profile("hosts", name).map_err(wrong)?;
        let file = format!("hosts/{name}.toml");
        profile::host(&file, text.as_bytes(), &Builtin).map_err(Error::Problems)
    };
    let check = |constant: &str, same: bool| match same {
        true => Ok(()),
        false => Err(wrong(format!("`{constant}` is not what the profiles have"))),
    };
    let first = read("dec5000-200-video")?;
    check("interrupt", first.resources[0].interrupt == constants.get("interrupt")?)?;
    check("vup_cell", first.receive[0].cost.per_packet == constants.get("vup_cell")?)?;
    check("t_frame", first.receive[1].per_pdu == constants.get("t_frame")?)?;
    check("frame", first.send[0].per_pdu == constants.get("frame")?)?;
    let alpha = read("dec3000-400-video")?;
    let byte: lastmeter_base::PerByte = constants.get("video_byte")?;
    let half = byte.time_for(lastmeter_base::Bytes(48)).as_ps() as f64 / 2.0;
    let near = |stage: &lastmeter_host::profile::StageProfile| {
        (stage.cost.per_packet.as_ps() as f64 / half - 1.0).abs() < 1e-3
    };
    check("video_byte", alpha.receive.iter().all(near))
}
