//! A tap: writes passing packets into a capture, and changes nothing.
//!
//! ```text
//! in 0 --> out 0
//!      '-> pcapng, raw IP or Ethernet, nanoseconds of the run's own time
//! ```
//!
//! A modelled packet has a length and no bytes: the capture has headers of the right length ([`imagine`]), of which
//! the first bytes are kept. Packets with bytes of their own are written as they are: in a live run they are Ethernet
//! frames, and the others get an Ethernet header without addresses.

use lastmeter_base::{Bytes, Packet};
use lastmeter_engine::{Context, Element, PortId, Report};
use lastmeter_net::imagine::imagine;
use lastmeter_wire::capture::{CaptureError, LinkType, Writer};
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// The number of bytes kept of a packet: the synthetic headers, sequence number and tag.
const SNAP: Bytes = Bytes(128);
/// An Ethernet header without addresses before an IPv4 packet.
const ETHERNET: [u8; 14] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x08, 0x00];

/// Where captures are written.
pub type Output = Box<dyn Write + Send>;

/// Writes passing packets.
pub struct Tap {
    tape: Tape,
    written: u64,
    bytes: Vec<u8>,
}

/// A capture being written, shared with the code that closes it after the run.
#[derive(Clone)]
pub struct Tape {
    state: Arc<Mutex<State>>,
    link_type: LinkType,
}

enum State {
    Writing(Writer<Output>),
    Failed(CaptureError),
    Ended,
}

impl Tape {
    /// A capture with one interface, called `name`: raw IP, or Ethernet where packets have bytes of
    /// their own.
    ///
    /// # Errors
    /// If nothing can be written.
    pub fn begin(output: Output, name: &str, link_type: LinkType) -> Result<Tape, CaptureError> {
        let mut writer = Writer::pcapng(output)?;
        writer.add_interface(link_type, name, SNAP)?;
        Ok(Tape { state: Arc::new(Mutex::new(State::Writing(writer))), link_type })
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// What went wrong while it was written.
    pub fn end(&self) -> Result<(), CaptureError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, State::Ended) {
            State::Writing(writer) => writer.finish().map(|_| ()),
            State::Failed(error) => Err(error),
            State::Ended => Ok(()),
        }
    }

    fn write(&self, cx: &Context<'_>, len: Bytes, data: &[u8]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Writing(writer) = &mut *state
            && let Err(error) = writer.write(cx.now(), 0, len, data)
        {
            *state = State::Failed(error);
        }
    }
}

impl Tap {
    /// A tap that writes to `tape`.
    pub fn new(tape: Tape) -> Tap {
        Tap { tape, written: 0, bytes: Vec::new() }
    }
}

impl Element for Tap {
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        match packet.content.is_empty() {
            true => {
                self.bytes.clear();
                if self.tape.link_type == LinkType::ETHERNET {
                    self.bytes.extend(ETHERNET);
                }
                imagine(&packet, &mut self.bytes);
                self.tape.write(cx, packet.len, &self.bytes);
            }
            false => self.tape.write(cx, packet.len, &packet.content),
        }
        self.written += 1;
        cx.send(PortId(0), packet);
    }
    fn timers(&self) -> u32 {
        0
    }
    fn report(&self, out: &mut Report) {
        out.count("captured", self.written);
    }
}
