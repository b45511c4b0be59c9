//! The setting of a transfer: the knobs that `why` turns.

use lastmeter_base::{Bytes, Duration, Rate};
use lastmeter_linux::link::check_mtu;
use lastmeter_linux::{Doing, Result, wrong};
use serde::{Deserialize, Serialize};

/// The longest message: it is allocated at once on both sides.
pub const MESSAGE_MAX: Bytes = Bytes::from_mib(64);
/// The most streams: a thread each on both sides.
pub const STREAMS_MAX: u32 = 64;

/// What the two applications do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Workload {
    /// The sender sends message after message; TCP may merge them (Nagle's algorithm is on).
    Stream,
    /// The sender waits for a reply of the same size before it sends the next message.
    RequestResponse,
    /// As `Stream`, with each message sent at once (`TCP_NODELAY`).
    SmallMessages,
}

/// How the message gets into the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyIn {
    /// `send`: the kernel copies.
    Copy,
    /// `send` with `MSG_ZEROCOPY`. Between hosts of one machine the kernel copies after all when
    /// the packet changes sides; the measurement says how often.
    ZeroCopy,
    /// `sendfile` from memory: pages are referenced and never copied in.
    SendFile,
}

/// On which cores the two applications run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// All on one, scheduled as batch programs: otherwise it depends on history whether waking the receiver
    /// preempts the sender, and throughput has two stable values, up to three times apart, chosen by
    /// chance.
    SameCore,
    /// Senders on one, receivers on another.
    OtherCore,
    /// Where the scheduler likes.
    Free,
}

impl Placement {
    /// Pins the calling thread to `core`, if any, with this placement's scheduling.
    pub(crate) fn take(self, core: Option<usize>) -> Result<()> {
        lastmeter_linux::cores::pin(core)?;
        if self == Placement::SameCore {
            lastmeter_linux::sys::schedule_as_batch().doing("scheduling as a batch program")?;
        }
        Ok(())
    }
}

/// The application's own work, once per message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pause {
    /// Nothing.
    None,
    /// Sleeps, as if it waited for a disk.
    Sleep(#[serde(with = "crate::text")] Duration),
    /// Computes, as if it generated or used the data.
    Work(#[serde(with = "crate::text")] Duration),
}

/// The relay between the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relay {
    /// One-way delay, in both directions.
    #[serde(with = "crate::text")]
    pub delay: Duration,
    /// Token bucket, in both directions.
    #[serde(with = "crate::text::optional", default)]
    pub rate: Option<Rate>,
}

/// A transfer between two processes on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// What the applications do.
    pub workload: Workload,
    /// Bytes per send, and at most per receive.
    #[serde(with = "crate::text")]
    pub message: Bytes,
    /// Bytes of an IP packet, 576 to 65,535.
    pub mtu: u32,
    /// `SO_SNDBUF` as requested; the kernel doubles it. `None` leaves it to the kernel.
    #[serde(with = "crate::text::optional", default)]
    pub send_buffer: Option<Bytes>,
    /// `SO_RCVBUF` as requested; the kernel doubles it. `None` leaves it to the kernel.
    #[serde(with = "crate::text::optional", default)]
    pub receive_buffer: Option<Bytes>,
    /// Segments travel in batches (TSO and GSO); without it every packet travels alone.
    pub offload: bool,
    /// Processors compute TCP's checksums: nothing that an adapter does without reading the data is left to it.
    #[serde(default)]
    pub own_checksums: bool,
    /// Connections, each with a thread on both sides.
    pub streams: u32,
    /// On which cores.
    pub placement: Placement,
    /// How data enters the socket.
    pub copy_in: CopyIn,
    /// Whether the receiver copies data out; without, it discards it in the kernel (`MSG_TRUNC`).
    pub copy_out: bool,
    /// The sending application's own delay per message.
    pub sender_pause: Pause,
    /// The receiving application's own delay per message.
    pub receiver_pause: Pause,
    /// The sending application paces itself to this rate, over all streams.
    #[serde(with = "crate::text::optional", default)]
    pub sender_rate: Option<Rate>,
    /// A busy loop shares the receiver's core.
    pub competitor: bool,
    /// The relay between the hosts.
    #[serde(default)]
    pub relay: Option<Relay>,
    /// Warm-up, not measured.
    #[serde(with = "crate::text")]
    pub warm_up: Duration,
    /// Measured.
    #[serde(with = "crate::text")]
    pub duration: Duration,
}

impl Setting {
    /// A stream of 64 KiB messages in Ethernet-sized packets with the system's defaults.
    pub const PLAIN: Setting = Setting {
        workload: Workload::Stream,
        message: Bytes::from_kib(64),
        mtu: 1500,
        send_buffer: None,
        receive_buffer: None,
        offload: true,
        own_checksums: false,
        streams: 1,
        placement: Placement::OtherCore,
        copy_in: CopyIn::Copy,
        copy_out: true,
        sender_pause: Pause::None,
        receiver_pause: Pause::None,
        sender_rate: None,
        competitor: false,
        relay: None,
        warm_up: Duration::from_ms(100),
        duration: Duration::from_ms(1000),
    };

    /// Rejects an impossible setting before anything is started.
    ///
    /// # Errors
    /// Names the parameter, what was found and what would be right.
    pub fn check(&self) -> Result<()> {
        check_mtu(self.mtu)?;
        if self.message == Bytes::ZERO || self.message > MESSAGE_MAX {
            return wrong("message", self.message.to_string(), format!("1 B to {MESSAGE_MAX}"));
        }
        if self.streams == 0 || self.streams > STREAMS_MAX {
            return wrong("streams", self.streams.to_string(), format!("1 to {STREAMS_MAX}"));
        }
        if self.duration < Duration::from_ms(50) || self.duration > Duration::from_secs(3600) {
            return wrong("duration", self.duration.to_string(), "50 ms to 1 h");
        }
        let buffers = [("send_buffer", self.send_buffer), ("receive_buffer", self.receive_buffer)];
        for (name, buffer) in buffers {
            if let Some(size) = buffer
                && (size < Bytes::from_kib(2) || size > Bytes::from_mib(1024))
            {
                return wrong(name, size.to_string(), "2 KiB to 1 GiB");
            }
        }
        if self.workload == Workload::RequestResponse && !self.copy_out {
            let found = "false with request/response";
            return wrong("copy_out", found, "true: the reply must be read");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_round_trips() {
        let setting = Setting {
            send_buffer: Some(Bytes(123_457)),
            relay: Some(Relay { delay: Duration::from_ms(20), rate: Some(Rate::from_mbit(7)) }),
            sender_pause: Pause::Work(Duration::from_ps(1_234_567)),
            ..Setting::PLAIN
        };
        let json = serde_json::to_string(&setting).unwrap();
        assert!(json.contains(r#""message":"64 KiB""#), "{json}");
        assert_eq!(serde_json::from_str::<Setting>(&json).unwrap(), setting);
    }

    #[test]
    fn an_error_gives_the_valid_range() {
        let error = Setting { mtu: 9, ..Setting::PLAIN }.check().unwrap_err().to_string();
        assert_eq!(error, "`mtu` is 9 B; it must be between 576 B and 65535 B");
    }
}
