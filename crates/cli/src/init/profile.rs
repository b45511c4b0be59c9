//! This host as a profile of experiments, from its calibration.

use crate::Complaint;
use crate::why::cache;
use lastmeter_live::calibrate::Calibration;

/// The profile's name, and its file in `profiles/hosts`.
pub(super) const NAME: &str = "this-host";
pub(super) const FILE: &str = "this-host.toml";

/// Bytes of data in a packet of an Ethernet with TCP's timestamps, and in a batch (`GSO_MAX_SIZE`).
const SEGMENT: f64 = 1448.0;
const BATCH: f64 = 65_536.0;

/// The text of the profile. A packet of an experiment is a segment of a batch, so it bears its share of a batch's
/// costs: the system call, and the handover through the stack and to the other thread.
///
/// # Errors
/// A constant is missing.
pub(super) fn text(calibration: &Calibration) -> Result<String, Complaint> {
    let share = SEGMENT / BATCH;
    let stage = |side: &str, name: &str, list: &str| -> Result<String, Complaint> {
        let of = |what: &str| calibration.si(&format!("path.other-core.{side}.{what}"));
        let per_packet = (of("per-call")? + of("per-handover")?) * share;
        let per_byte = of("per-byte")?;
        Ok(format!(
            "[[{list}]]\nname = \"{name}\"\non = \"cpu\"\n\
             per-packet = \"{:.1} ns\"\nper-byte = \"{:.2} ps/B\"\ncopies = 1\n\
             source = \"calibration, path.other-core.{side}: per-call and per-handover of a \
             64 KiB batch, shared by its segments; per-byte\"\n",
            per_packet * 1e9,
            per_byte * 1e12,
        ))
    };
    let words = cache::words(calibration).replace(['"', '\\', '\n'], " ");
    Ok(format!(
        "# Written by `lastmeter init` from a calibration; TCP with segmentation offload.\n\n\
         what = \"{words}, as calibrated\"\n\
         source = \"lastmeter calibrate on this machine\"\n\n\
         [resources]\n\
         cpu = {{ cpu = {{}}, source = \"one core: the sender's thread or the receiver's\" }}\n\n\
         {}\n{}",
        stage("sender", "send", "send")?,
        stage("receiver", "receive", "receive")?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_lab::document::Override;
    use lastmeter_lab::experiment::Experiment;
    use lastmeter_lab::library::{Builtin, Library};

    struct WithProfile(String);

    impl Library for WithProfile {
        fn profile(&self, folder: &str, name: &str) -> Result<String, String> {
            match (folder, name) {
                ("hosts", NAME) => Ok(self.0.clone()),
                _ => Builtin.profile(folder, name),
            }
        }
        fn open(&self, path: &str) -> Result<Box<dyn std::io::Read + Send>, String> {
            Builtin.open(path)
        }
        fn names(&self, folder: &str) -> Vec<String> {
            let own = (folder == "hosts").then(|| NAME.to_owned());
            Builtin.names(folder).into_iter().chain(own).collect()
        }
    }

    #[test]
    fn a_calibrated_host_is_a_profile_that_experiments_accept() {
        let calibrated = include_str!("../../../../profiles/calibrated/epyc-2-cores.toml");
        let text = text(&Calibration::from_toml(calibrated).unwrap());
        let library = WithProfile(text.map_err(|error| error.0).unwrap());
        let change = Override::parse("nodes.alice.host.profile=this-host").unwrap();
        let first = lastmeter_lab::library::experiment("first-path").unwrap();
        let parsed = Experiment::parse("first-path", first, &[change], &library);
        parsed.unwrap_or_else(|problems| panic!("{}", problems[0].render(false)));
    }
}
