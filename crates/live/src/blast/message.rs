//! The protocol between driver and agents: one JSON object per line, over TCP.
//!
//! ```text
//! driver                                            agent
//!   hello {version, token} ---------------------->    check token
//!   <--------------------------- hello {clock, now}
//!   prepare {run, sinks} ------------------------>    open sockets
//!   <------------------------------ prepared {ports}
//!   aim {sources} ------------------------------->    probe each sink: it must reply
//!   <------------------------------------- aimed {}
//!   begin {at | after} -------------------------->    send and count
//!   <--------------- progress {sent, received} ...    four times a second
//!   stop {} ------------------------------------->    (on Ctrl-C) sources end
//!   <-------------------------------- sent {sources}
//!   finish {drain} ------------------------------>    sinks wait for packets in flight
//!   <--------------------- received {sinks, leaving}
//! ```
//!
//! Anything else, or out of turn, is answered by `refused {why}`, and the connection is closed. Reports of
//! [`super::FLOWS_MAX`] flows, or plans with many sizes, stay below the longest line (module `lines`).

use super::report::{SinkReport, SourceReport};
use super::traffic::{Format, Traffic};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

pub(crate) use crate::lines::{
    LINE_FIRST_MAX, LINE_MAX, Lines, Received, emit, parse, send, shown,
};

/// The protocol version, the same on both sides.
pub const VERSION: u32 = 3;

/// A driver's request to an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Opens the session.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The agent's token, if it requires one.
        #[serde(default)]
        token: Option<String>,
    },
    /// Open the sinks' sockets.
    Prepare {
        /// The run's own number.
        run: u64,
        /// One for each flow to this host.
        sinks: Vec<SinkJob>,
    },
    /// Probe the sinks.
    Aim {
        /// One for each flow from this host.
        sources: Vec<SourceJob>,
    },
    /// Send.
    Begin {
        /// When, in nanoseconds of the clock that driver and agent share.
        #[serde(default)]
        at: Option<u64>,
        /// Otherwise, the delay after receipt of this, in nanoseconds.
        after: u64,
    },
    /// Stop sending.
    Stop {},
    /// Stop counting.
    Finish {
        /// After this many nanoseconds without a packet.
        drain: u64,
    },
}

/// An agent's reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Reply {
    /// To hello.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The identity of its clock: the same text, the same clock.
        clock: String,
        /// The time on that clock, in nanoseconds.
        now: u64,
    },
    /// To prepare.
    Prepared {
        /// The UDP port of each sink.
        ports: Vec<u16>,
    },
    /// To aim.
    Aimed {},
    /// While it sends and counts.
    Progress {
        /// Packets of each of its sources.
        sent: Vec<u64>,
        /// Packets of each of its sinks.
        received: Vec<u64>,
    },
    /// Its sources have ended.
    Sent {
        /// What they did.
        sources: Vec<SourceReport>,
    },
    /// Its sinks have ended.
    Received {
        /// What they counted.
        sinks: Vec<SinkReport>,
        /// Whether they ended early because the agent was stopped.
        leaving: bool,
    },
    /// It refuses the request.
    Refused {
        /// Why not.
        why: String,
    },
}

/// A flow to receive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SinkJob {
    /// The flow, by its index in the plan.
    pub flow: u16,
    /// What is in its packets.
    pub format: Format,
    /// The greatest size.
    pub size_max: u32,
    /// The version of IP.
    pub ipv6: bool,
    /// Where to receive it; where the driver reaches the agent if not given.
    #[serde(default)]
    pub at: Option<IpAddr>,
    /// Whether its source shares the clock.
    pub same_clock: bool,
}

/// A flow to send.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceJob {
    /// The flow, by its index in the plan.
    pub flow: u16,
    /// Its name, which selects its random stream.
    pub name: String,
    /// The seed of the random streams.
    pub seed: u64,
    /// Where to.
    pub to: SocketAddr,
    /// What.
    pub traffic: Traffic,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_message_is_a_line() {
        let line = emit(&Request::Begin { at: None, after: 5 }).unwrap();
        let text = String::from_utf8(line.clone()).unwrap();
        assert_eq!(text, "{\"ask\":\"begin\",\"at\":null,\"after\":5}\n");
        assert_eq!(parse::<Request>(&line), Ok(Request::Begin { at: None, after: 5 }));
        let error = parse::<Request>(b"{\"ask\":\"begin\",\"after\":5,\"x\":1}").unwrap_err();
        assert!(error.contains("unknown field"), "{error}");
        assert!(parse::<Request>(b"GET / HTTP/1.1").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            crate::fuzz::fuzz_blast_control(&bytes);
        }
    }
}
