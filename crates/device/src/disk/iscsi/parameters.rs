//! How a session works, as both ends agree (RFC 7143, section 13).

use lastmeter_wire::iscsi::{DATA_MAX, text};

/// The most data that a PDU to us may have.
pub const RECEIVE_MAX: u32 = 256 << 10;
/// The most data of a sequence.
pub(super) const BURST_MAX: u32 = 1 << 20;
/// The most data that an initiator may send before it is asked.
pub(super) const FIRST_BURST_MAX: u32 = 256 << 10;
/// The least that any of these may be.
const LEAST: u32 = 512;

/// What was agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Headers have digests.
    pub header_digest: bool,
    /// Data have digests.
    pub data_digest: bool,
    /// The most data that a PDU to the initiator may have.
    pub send_max: u32,
    /// The most data of a sequence.
    pub burst: u32,
    /// The most data before the first request for data.
    pub first_burst: u32,
    /// Data that follow a command must be asked for.
    pub asks_first: bool,
    /// A command may have data.
    pub immediate: bool,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            header_digest: false,
            data_digest: false,
            send_max: 8192,
            burst: 262_144,
            first_burst: 65_536,
            asks_first: true,
            immediate: true,
        }
    }
}

impl Parameters {
    /// Takes what the initiator offers; the answer, if the key has one. `Err` if this ends the login.
    pub(super) fn offer(&mut self, key: &str, value: &str) -> Result<Option<String>, ()> {
        let number = || text::number(value).ok_or(());
        let yes = || match value {
            "Yes" => Ok(true),
            "No" => Ok(false),
            _ => Err(()),
        };
        let said = |yes: bool| Ok(Some(if yes { "Yes" } else { "No" }.to_owned()));
        let bounded = |most: u32| number().map(|offered| offered.clamp(LEAST, most));
        match key {
            "HeaderDigest" | "DataDigest" => {
                let known = value.split(',').find(|name| matches!(*name, "None" | "CRC32C"));
                let chosen = known.unwrap_or("Reject");
                let used = chosen == "CRC32C";
                match key {
                    "HeaderDigest" => self.header_digest = used,
                    _ => self.data_digest = used,
                }
                Ok(Some(chosen.to_owned()))
            }
            "MaxRecvDataSegmentLength" => {
                self.send_max = bounded(DATA_MAX)?;
                Ok(None)
            }
            "MaxBurstLength" => {
                self.burst = bounded(BURST_MAX)?;
                self.first_burst = self.first_burst.min(self.burst);
                Ok(Some(self.burst.to_string()))
            }
            "FirstBurstLength" => {
                self.first_burst = bounded(FIRST_BURST_MAX)?.min(self.burst);
                Ok(Some(self.first_burst.to_string()))
            }
            "InitialR2T" => {
                self.asks_first = yes()?;
                said(self.asks_first)
            }
            "ImmediateData" => {
                self.immediate = yes()?;
                said(self.immediate)
            }
            "MaxConnections" | "MaxOutstandingR2T" => number().map(|_| Some("1".to_owned())),
            "ErrorRecoveryLevel" | "DefaultTime2Retain" => number().map(|_| Some("0".to_owned())),
            "DefaultTime2Wait" => number().map(|wait| Some(wait.min(3600).to_string())),
            "DataPDUInOrder" | "DataSequenceInOrder" => yes().and_then(|_| said(true)),
            "IFMarker" | "OFMarker" => yes().and_then(|_| said(false)),
            "IFMarkInt" | "OFMarkInt" => Ok(Some("Reject".to_owned())),
            "iSCSIProtocolLevel" => number().map(|level| Some(level.min(1).to_string())),
            "TaskReporting" => Ok(Some("RFC3720".to_owned())),
            // They are declared.
            "InitiatorName" | "InitiatorAlias" | "TargetName" | "SessionType" => Ok(None),
            _ => Ok(Some("NotUnderstood".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_get_what_both_can() {
        let mut parameters = Parameters::default();
        let mut offer = |key: &str, value: &str| parameters.offer(key, value).expect("answered");
        assert_eq!(offer("HeaderDigest", "CRC32C,None").as_deref(), Some("CRC32C"));
        assert_eq!(offer("DataDigest", "X,None").as_deref(), Some("None"));
        assert_eq!(offer("DataDigest", "X").as_deref(), Some("Reject"));
        assert_eq!(offer("MaxBurstLength", "65536").as_deref(), Some("65536"));
        assert_eq!(offer("FirstBurstLength", "0x7fffffff").as_deref(), Some("65536"));
        assert_eq!(offer("MaxConnections", "8").as_deref(), Some("1"));
        assert_eq!(offer("InitialR2T", "No").as_deref(), Some("No"));
        assert_eq!(offer("MaxRecvDataSegmentLength", "1"), None);
        assert_eq!(offer("X-com.example.a", "1").as_deref(), Some("NotUnderstood"));
        assert_eq!(parameters.send_max, LEAST);
        assert!(parameters.header_digest && !parameters.data_digest && !parameters.asks_first);
        assert_eq!(parameters.offer("InitialR2T", "maybe"), Err(()));
    }
}
