//! Switches, the cables between them, and the hosts attached to them.
//!
//! ```text
//! # a comment
//! switch s1 8            eight ports
//! switch s2 8
//! cable s1 s2 24 m       uses the first free port of both
//! host office1 s1 10 m
//! ```
//!
//! A length may be omitted and is then zero. A channel is one direction of a cable.

use lastmeter_base::Duration;
use lastmeter_base::Stream;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Most ports of a switch: as many as a route byte can distinguish.
pub const PORTS_MAX: usize = 64;
/// Most switches.
pub const SWITCHES_MAX: usize = 4096;
/// Most hosts.
pub const HOSTS_MAX: usize = 65_536;
/// Longest cable, in metres.
pub const METRES_MAX: u64 = 100_000;
const NAME_LEN_MAX: usize = 64;

/// Where a cable ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// At a port of a switch.
    Switch(usize, usize),
    /// At a host.
    Host(usize),
}

/// A cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cable {
    /// Its ends; a host is the second.
    pub ends: [End; 2],
    /// Its length.
    pub metres: u64,
}

/// Why a text is not a valid topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong and what would be right.
    pub reason: String,
}

impl std::fmt::Display for TopologyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for TopologyError {}

/// Switches, cables and hosts.
///
/// ```
/// use lastmeter_lan::wormhole::topology::Topology;
/// let topology = Topology::parse("switch s 8\nhost a s\nhost b s 10 m")?;
/// assert_eq!(topology.hosts().len(), 2);
/// assert_eq!(Topology::parse("host a s").unwrap_err().line, 1);
/// # Ok::<(), lastmeter_lan::wormhole::topology::TopologyError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    switches: Vec<(String, usize)>,
    hosts: Vec<String>,
    cables: Vec<Cable>,
    /// The cable at each port of each switch.
    ports: Vec<Vec<Option<usize>>>,
    /// The cable of each host.
    host_cables: Vec<usize>,
}

/// A direction of a cable: from its first end if even, from its second if odd.
pub type Channel = usize;

impl Topology {
    /// A random connected topology: each switch is connected to an earlier one, plus up to `more` cables if ports
    /// are left.
    pub fn random(seed: u64, switches: usize, more: usize) -> Topology {
        let mut random = Stream::new(seed, "topology");
        let mut topology = Topology::default();
        for switch in 0..switches {
            topology.add_switch(&format!("s{switch}"), 16).expect("ports are left");
            if switch > 0 {
                let other = random.below(switch as u64) as usize;
                topology.add_cable(switch, other, 5).expect("ports are left");
            }
        }
        for host in 0..switches {
            topology.add_host(&format!("h{host}"), host, 1).expect("ports are left");
        }
        // If ports are left.
        for _ in 0..more {
            let [a, b] = [0; 2].map(|_| random.below(switches as u64) as usize);
            if a != b {
                let _ = topology.add_cable(a, b, 5);
            }
        }
        topology
    }

    /// Parses a topology.
    ///
    /// # Errors
    /// The first line that is wrong, and what would be right.
    pub fn parse(text: &str) -> Result<Topology, TopologyError> {
        let mut topology = Topology::default();
        let mut names: BTreeMap<String, End> = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let fail = |reason: String| TopologyError { line: number + 1, reason };
            let line = line.split('#').next().unwrap_or("");
            let words: Vec<&str> = line.split_whitespace().collect();
            topology.read(&words, &mut names).map_err(fail)?;
        }
        Ok(topology)
    }

    fn read(&mut self, words: &[&str], names: &mut BTreeMap<String, End>) -> Result<(), String> {
        let fresh = |names: &BTreeMap<String, End>, name: &str| match names.contains_key(name) {
            _ if name.len() > NAME_LEN_MAX => Err("a name has at most 64 letters".to_owned()),
            true => Err(format!("`{name}` exists already")),
            false => Ok(()),
        };
        let switch = |names: &BTreeMap<String, End>, name: &str| match names.get(name) {
            Some(&End::Switch(switch, _)) => Ok(switch),
            _ => Err(format!("there is no switch `{}`", name.escape_debug())),
        };
        match *words {
            [] => Ok(()),
            ["switch", name, ports] => {
                fresh(names, name)?;
                let count = ports.parse().ok().filter(|count| (1..=PORTS_MAX).contains(count));
                let count = count.ok_or(format!("a switch has 1 to {PORTS_MAX} ports"))?;
                names.insert(name.to_owned(), End::Switch(self.switches.len(), 0));
                self.add_switch(name, count)
            }
            ["cable", a, b, ref rest @ ..] => {
                let (a, b) = (switch(names, a)?, switch(names, b)?);
                self.add_cable(a, b, metres(rest)?)
            }
            ["host", name, at, ref rest @ ..] => {
                fresh(names, name)?;
                let at = switch(names, at)?;
                names.insert(name.to_owned(), End::Host(self.hosts.len()));
                self.add_host(name, at, metres(rest)?)
            }
            _ => Err("write `switch NAME PORTS`, `cable SWITCH SWITCH 24 m` or `host NAME SWITCH \
                      24 m`"
                .to_owned()),
        }
    }

    /// Adds a switch.
    ///
    /// # Errors
    /// If there are too many.
    pub fn add_switch(&mut self, name: &str, ports: usize) -> Result<(), String> {
        if self.switches.len() >= SWITCHES_MAX {
            return Err(format!("at most {SWITCHES_MAX} switches are allowed"));
        }
        self.switches.push((name.to_owned(), ports));
        self.ports.push(vec![None; ports]);
        Ok(())
    }

    /// Connects two switches at their first free ports.
    ///
    /// # Errors
    /// If one of them has no free port.
    pub fn add_cable(&mut self, a: usize, b: usize, metres: u64) -> Result<(), String> {
        let cable = self.cables.len();
        let first = self.free_port(a)?;
        self.ports[a][first] = Some(cable);
        let second = self.free_port(b).inspect_err(|_| self.ports[a][first] = None)?;
        self.ports[b][second] = Some(cable);
        let ends = [End::Switch(a, first), End::Switch(b, second)];
        self.cables.push(Cable { ends, metres });
        Ok(())
    }

    /// Adds a host at a switch's first free port.
    ///
    /// # Errors
    /// If it has none.
    pub fn add_host(&mut self, name: &str, at: usize, metres: u64) -> Result<(), String> {
        if self.hosts.len() >= HOSTS_MAX {
            return Err(format!("at most {HOSTS_MAX} hosts are allowed"));
        }
        let port = self.free_port(at)?;
        self.ports[at][port] = Some(self.cables.len());
        self.host_cables.push(self.cables.len());
        let ends = [End::Switch(at, port), End::Host(self.hosts.len())];
        self.cables.push(Cable { ends, metres });
        self.hosts.push(name.to_owned());
        Ok(())
    }

    fn free_port(&self, switch: usize) -> Result<usize, String> {
        let free = self.ports[switch].iter().position(Option::is_none);
        free.ok_or_else(|| format!("switch `{}` has no free port", self.switches[switch].0))
    }

    /// The topology as text that parses to the same.
    pub fn emit(&self) -> String {
        let mut text = String::new();
        for (name, ports) in &self.switches {
            let _ = writeln!(text, "switch {name} {ports}");
        }
        for cable in &self.cables {
            let name = |end: End| match end {
                End::Switch(switch, _) => self.switches[switch].0.as_str(),
                End::Host(host) => self.hosts[host].as_str(),
            };
            let [a, b] = cable.ends.map(name);
            let _ = match cable.ends[1] {
                End::Host(_) => writeln!(text, "host {b} {a} {} m", cable.metres),
                End::Switch(..) => writeln!(text, "cable {a} {b} {} m", cable.metres),
            };
        }
        text
    }

    /// Names of the hosts.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }
    /// Names and numbers of ports of the switches.
    pub fn switches(&self) -> &[(String, usize)] {
        &self.switches
    }
    /// All cables, including those of hosts.
    pub fn cables(&self) -> &[Cable] {
        &self.cables
    }
    /// Number of channels.
    pub fn channels(&self) -> usize {
        2 * self.cables.len()
    }
    /// The end of a channel.
    pub fn to(&self, channel: Channel) -> End {
        self.cables[channel / 2].ends[1 - channel % 2]
    }
    /// The start of a channel.
    pub fn from(&self, channel: Channel) -> End {
        self.cables[channel / 2].ends[channel % 2]
    }
    /// Propagation delay of a channel's cable, at 5 ns per metre.
    pub fn propagation(&self, channel: Channel) -> Duration {
        Duration::from_ns(5 * self.cables[channel / 2].metres)
    }
    /// The channel out of a host.
    pub fn out_of_host(&self, host: usize) -> Channel {
        2 * self.host_cables[host] + 1
    }
    /// The channel to a host.
    pub fn to_host(&self, host: usize) -> Channel {
        2 * self.host_cables[host]
    }
    /// The switch of a host.
    pub fn switch_of(&self, host: usize) -> usize {
        match self.to(self.out_of_host(host)) {
            End::Switch(switch, _) => switch,
            End::Host(_) => unreachable!("a host's cable leads to a switch"),
        }
    }
    /// The channels out of a switch to other switches, by port.
    pub fn out_of_switch(&self, switch: usize) -> impl Iterator<Item = (Channel, usize)> + '_ {
        self.ports[switch].iter().enumerate().filter_map(move |(port, cable)| {
            let cable = (*cable)?;
            let first = self.cables[cable].ends[0] == End::Switch(switch, port);
            let channel = 2 * cable + usize::from(!first);
            match self.to(channel) {
                End::Switch(next, _) => Some((channel, next)),
                End::Host(_) => None,
            }
        })
    }

    /// Switches in levels, each with as many cables up as down, and a host at each port of the lowest level: a
    /// `radix`-ary tree with this many levels, whose hosts are numbered from left to right.
    ///
    /// # Errors
    /// If it is too large.
    pub fn tree(radix: usize, levels: usize) -> Result<Topology, String> {
        let width = radix.checked_pow(levels.saturating_sub(1) as u32).unwrap_or(usize::MAX);
        if radix < 2 || levels == 0 || 2 * radix > PORTS_MAX || width > SWITCHES_MAX / levels {
            return Err("a tree has at least 2 branches, and at most 4096 switches".to_owned());
        }
        let mut tree = Topology::default();
        for level in 0..levels {
            for at in 0..width {
                let ports = if level + 1 == levels { radix } else { 2 * radix };
                tree.add_switch(&format!("s{level}.{at}"), ports)?;
            }
        }
        for host in 0..width * radix {
            tree.add_host(&format!("h{host}"), host / radix, 0)?;
        }
        // A switch's number has one digit per level; a cable changes the digit of its own level.
        for level in 0..levels.saturating_sub(1) {
            let weight = radix.pow(level as u32);
            for at in 0..width {
                for digit in 0..radix {
                    let above = at - at / weight % radix * weight + digit * weight;
                    tree.add_cable(level * width + at, (level + 1) * width + above, 0)?;
                }
            }
        }
        Ok(tree)
    }
}

fn metres(words: &[&str]) -> Result<u64, String> {
    match *words {
        [] => Ok(0),
        [count, "m"] => {
            let count = count.parse().ok().filter(|&count| count <= METRES_MAX);
            count.ok_or(format!("a length is a whole number of metres up to {METRES_MAX}"))
        }
        _ => Err("write the length as `24 m`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# two\nswitch s 4\nswitch t 4\ncable s t 24 m\nhost a s\nhost b t 3 m\n";

    #[test]
    fn an_emitted_topology_parses_to_the_same() {
        let topology = Topology::parse(TEXT).unwrap();
        assert_eq!(Topology::parse(&topology.emit()), Ok(topology.clone()));
        assert_eq!(topology.to(topology.to_host(1)), End::Host(1));
        assert_eq!(topology.from(topology.out_of_host(1)), End::Host(1));
        assert_eq!(topology.switch_of(1), 1);
        assert_eq!(topology.out_of_switch(1).collect::<Vec<_>>(), [(1, 0)]);
        assert_eq!(topology.propagation(0), Duration::from_ns(120));
    }

    #[test]
    fn errors_name_the_line_and_the_reason() {
        let cases = [
            ("switch s 0", 1, "1 to 64 ports"),
            ("switch s 8\nswitch s 8", 2, "exists already"),
            ("switch s 2\n\nhost a s\nhost b s\nhost c s", 5, "no free port"),
            ("switch s 2\ncable s t", 2, "no switch `t`"),
            ("switch s 2\nhost a s 3 ft", 2, "as `24 m`"),
            ("swich s 2", 1, "write `switch"),
            ("switch s 2\ncable s s\nhost a s", 3, "no free port"),
        ];
        for (text, line, reason) in cases {
            let error = Topology::parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(error.reason.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_tree_has_its_switches_and_hosts() {
        let tree = Topology::tree(4, 3).unwrap();
        assert_eq!((tree.switches().len(), tree.hosts().len()), (48, 64));
        assert_eq!(tree.cables().len(), 64 + 2 * 64);
        assert_eq!(tree.switch_of(17), 4);
        assert!(Topology::tree(40, 2).is_err());
    }
}
