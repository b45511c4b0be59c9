//! A plan: the hosts and the flows between them.

use super::traffic::{STORED_MAX, Traffic};
use super::{DRAIN_MAX, FLOWS_MAX, HOSTS_MAX};
use lastmeter_base::Duration;
use lastmeter_linux::{Result, wrong};
use std::fmt;
use std::net::IpAddr;

/// Where a host's agent is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// In the driver's own process.
    Here,
    /// At a name or address with a port: `10.0.0.1:7400`.
    Agent(String),
}

impl At {
    /// Reads `here`, or a name or address with a port; `None` if the text is neither.
    pub fn parse(text: &str) -> Option<At> {
        if text == "here" {
            return Some(At::Here);
        }
        let (name, port) = text.rsplit_once(':')?;
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        let is_name = |name: &str| {
            let good = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
            !name.is_empty() && name.chars().all(good)
        };
        let named = match bare {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => is_name(name),
        };
        let numbered = port.parse::<u16>().is_ok_and(|port| port > 0);
        (named && numbered).then(|| At::Agent(text.to_owned()))
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Here => f.write_str("here"),
            At::Agent(at) => f.write_str(at),
        }
    }
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name in flows.
    pub name: String,
    /// Its agent.
    pub at: At,
    /// The address of packets for it, if not that of its agent.
    pub data: Option<IpAddr>,
    /// Its agent's token.
    pub token: Option<String>,
}

/// A flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Its name.
    pub name: String,
    /// The host that sends, by its index.
    pub from: usize,
    /// The host that receives.
    pub to: usize,
    /// What it sends.
    pub traffic: Traffic,
}

/// Hosts and flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed of the random streams.
    pub seed: u64,
    /// How long sinks wait for packets in flight.
    pub drain: Duration,
    /// The hosts.
    pub hosts: Vec<Host>,
    /// The flows.
    pub flows: Vec<Flow>,
}

impl Plan {
    /// Rejects an invalid plan.
    ///
    /// # Errors
    /// Names the parameter, what was found and what would be right.
    pub fn check(&self) -> Result<()> {
        let count = |name, found: usize, most: usize| match (1..=most).contains(&found) {
            true => Ok(()),
            false => wrong(name, found.to_string(), format!("1 to {most} of them")),
        };
        count("host", self.hosts.len(), HOSTS_MAX)?;
        count("flow", self.flows.len(), FLOWS_MAX)?;
        if self.drain > DRAIN_MAX {
            return wrong("drain", self.drain.to_string(), format!("at most {DRAIN_MAX}"));
        }
        for flow in &self.flows {
            if flow.from.max(flow.to) >= self.hosts.len() {
                let found = format!("of {}, which is not a host of the plan", flow.name);
                return wrong("flow", found, "one of the plan's hosts");
            }
            flow.traffic.check()?;
        }
        let stored: usize = self.flows.iter().map(|flow| flow.traffic.stored.len()).sum();
        if stored > STORED_MAX {
            let right = format!("at most {STORED_MAX} of all flows");
            return wrong("flow", format!("with {stored} stored packets"), right);
        }
        Ok(())
    }

    /// The same with a tenth of each duration and packet count.
    #[must_use]
    pub fn quick(mut self) -> Plan {
        for flow in &mut self.flows {
            let traffic = &mut flow.traffic;
            traffic.start = traffic.start / 10;
            traffic.duration = traffic.duration.map(|duration| duration / 10);
            traffic.count = traffic.count.map(|count| count.div_ceil(10));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_address_is_a_name_with_a_port() {
        for right in ["10.0.0.1:7400", "lab-2.example:7400", "[::1]:1", "here"] {
            assert_eq!(At::parse(right).unwrap().to_string(), right);
        }
        for wrong in ["", "10.0.0.1", "x:", ":7400", "x:0", "x:65536", "a b:1", "::1:5", "[x]:1"] {
            assert_eq!(At::parse(wrong), None, "{wrong}");
        }
    }
}
