//! The options that describe the transfer.

use crate::Complaint;
use clap::Parser;
use lastmeter_base::{Bytes, Duration, Quantity, Rate};
use lastmeter_live::transfer::{Placement, Relay, Setting, Workload};

/// A sampled transfer is so many times as long: shares of the samples then have an error of half a percent.
const SAMPLED_TIMES: u64 = 4;

/// One between two machines is so many times as long: its slow start is over, and there is an answer after three
/// seconds.
const BETWEEN_TIMES: u64 = 2;

/// A transfer; defaults: a stream of 64 KiB messages, MTU 1500.
#[derive(clap::Args, PartialEq)]
pub(super) struct Transfer {
    /// What the applications do
    #[arg(long, value_enum, default_value_t = Work::Stream)]
    workload: Work,
    /// Size of each send [default: 64 KiB; request 64 B; small 256 B]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    message: Option<Bytes>,
    /// Size of IP packets, 576 to 65535
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,
    /// SO_SNDBUF [default: the kernel chooses]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    send_buffer: Option<Bytes>,
    /// SO_RCVBUF [default: the kernel chooses]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    receive_buffer: Option<Bytes>,
    /// No GSO, no GRO: each packet by itself
    #[arg(long)]
    no_offload: bool,
    /// Checksums of TCP by the processors, as without an adapter that computes them; no GSO
    #[arg(long)]
    no_checksum_offload: bool,
    /// A link of this rate between the two ends, in the program's own relay [default: none]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    link: Option<Rate>,
    /// Number of parallel connections
    #[arg(long, value_name = "N", default_value_t = 1)]
    streams: u32,
    /// Both ends on one core
    #[arg(long, conflicts_with = "other_core")]
    same_core: bool,
    /// Ends on different cores, the default where there are two
    #[arg(long)]
    other_core: bool,
    /// How long to measure the transfer [default: 4 s with sampling, 2 s with --to, else 1 s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    duration: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Work {
    /// Message after message; TCP may merge them
    Stream,
    /// Each message waits for a reply
    Request,
    /// Each message is sent at once (TCP_NODELAY)
    Small,
}

pub(super) fn size(text: &str) -> Result<Bytes, String> {
    Bytes::parse(text).map_err(|error| error.to_string())
}

pub(super) fn rate(text: &str) -> Result<Rate, String> {
    Rate::parse(text).map_err(|error| error.to_string())
}

fn time(text: &str) -> Result<Duration, String> {
    Duration::parse(text).map_err(|error| error.to_string())
}

/// A command line without options for the transfer.
#[derive(clap::Parser)]
struct NoOptions {
    #[command(flatten)]
    transfer: Transfer,
}

impl Transfer {
    /// Whether the user set none of it.
    pub(super) fn is_default(&self) -> bool {
        NoOptions::try_parse_from(["why"]).is_ok_and(|none| none.transfer == *self)
    }

    /// The size of each send, where the user set one.
    pub(super) fn message(&self) -> Option<Bytes> {
        self.message
    }

    /// The setting for a transfer that is sampled: longer, unless the user says how long.
    pub(super) fn sampled(&self, setting: &Setting) -> Setting {
        let times = if self.duration.is_none() { SAMPLED_TIMES } else { 1 };
        Setting { duration: setting.duration * times, ..setting.clone() }
    }

    /// The setting of a transfer between two machines, whose path is as it is.
    pub(super) fn between(&self, quick: bool) -> Result<Setting, Complaint> {
        let of_the_path = self.mtu.is_some() || self.no_offload || self.no_checksum_offload;
        if of_the_path || self.link.is_some() || self.same_core || self.other_core {
            let wrong = "--mtu, --no-offload, --no-checksum-offload, --link, --same-core and \
                         --other-core set up two ends on one machine";
            return Err(Complaint(format!("{wrong}: leave them out with --to")));
        }
        let setting = self.setting(quick)?;
        let times = if self.duration.is_none() { BETWEEN_TIMES } else { 1 };
        let setting = Setting { placement: Placement::Free, ..setting };
        Ok(Setting { duration: setting.duration * times, ..setting })
    }

    /// The setting, checked.
    pub(super) fn setting(&self, quick: bool) -> Result<Setting, Complaint> {
        let (workload, message) = match self.workload {
            Work::Stream => (Workload::Stream, Setting::PLAIN.message),
            Work::Request => (Workload::RequestResponse, Bytes(64)),
            Work::Small => (Workload::SmallMessages, Bytes(256)),
        };
        let several = lastmeter_linux::cores::allowed()?.len() > 1;
        let same = self.same_core || (!several && !self.other_core);
        let setting = Setting {
            workload,
            message: self.message.unwrap_or(message),
            mtu: self.mtu.unwrap_or(Setting::PLAIN.mtu),
            send_buffer: self.send_buffer,
            receive_buffer: self.receive_buffer,
            offload: !self.no_offload,
            own_checksums: self.no_checksum_offload,
            relay: self.link.map(|rate| Relay { delay: Duration::ZERO, rate: Some(rate) }),
            streams: self.streams,
            placement: if same { Placement::SameCore } else { Placement::OtherCore },
            duration: self.duration.unwrap_or(Setting::PLAIN.duration),
            ..Setting::PLAIN
        };
        let setting = match quick {
            true => Setting { duration: setting.duration / 4, ..setting },
            false => setting,
        };
        setting.check()?;
        if !several && !same {
            let right = "leave out --other-core";
            return Err(Complaint(format!("there is only one core: {right}")));
        }
        Ok(setting)
    }
}
