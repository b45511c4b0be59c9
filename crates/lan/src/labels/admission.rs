//! Admission: whether the lines of a flow's ports have what it asks for (D-44).
//!
//! ```text
//! flow --> input port: reserved + rate <= share of its line? --> output port: the same --> admitted
//!               ^                                                     | no
//!               +------------- what it granted is taken back ---------+--> refused, with what is free
//! ```
//!
//! A port has two directions, each with its own account; what may be reserved is a share of its line
//! (`reservable`), so that packets without a reservation always get the rest. The line of a port is the rate to which
//! it is shaped, or else what its interface says of itself. Rates count what a packet takes on the line, framing
//! included, so that the sum of admitted rates is what the line has to carry.

use lastmeter_base::Rate;
use std::collections::BTreeMap;
use std::fmt;

/// A direction of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Packets that arrive.
    Input,
    /// Packets that leave.
    Output,
}

/// One port's account.
#[derive(Clone, Debug)]
struct Port {
    name: String,
    /// Absent if nothing is known of it.
    line: Option<Rate>,
    share: f64,
    /// Granted rates, in bits per second, by flow: input and output.
    granted: [BTreeMap<String, u64>; 2],
}

impl Port {
    fn reservable(&self) -> u64 {
        self.line.map_or(0, |line| (line.as_bits() as f64 * self.share) as u64)
    }
    fn taken(&self, side: Side) -> u64 {
        self.granted[side as usize].values().sum()
    }
}

/// What one direction of a port has granted, and has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The port.
    pub port: String,
    /// The direction.
    pub side: Side,
    /// Its line, in bits per second; 0 if nothing is known of it.
    pub line: u64,
    /// What may be reserved of it.
    pub reservable: u64,
    /// What is.
    pub taken: u64,
}

impl Account {
    /// What may still be reserved.
    pub fn free(&self) -> u64 {
        self.reservable.saturating_sub(self.taken)
    }
}

/// A port has less than a flow asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The port that refuses, without this flow.
    pub account: Account,
    /// What was asked for, in bits per second.
    pub wanted: u64,
    /// The port that had granted it before.
    pub taken_back: Option<String>,
}

fn rate(bits: u64) -> String {
    if bits == 0 { "nothing".to_owned() } else { Rate::from_bits(bits).to_string() }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Account { port, side, line, reservable, taken } = &self.account;
        let way = if *side == Side::Input { "input" } else { "output" };
        write!(f, "{way} port {port} refuses {}: ", rate(self.wanted))?;
        if *line == 0 {
            return write!(f, "nothing is known of its line; give ports.{port}.rate");
        }
        write!(
            f,
            "of the {} that may be reserved on its line of {}, {} is taken and {} is free",
            rate(*reservable),
            rate(*line),
            rate(*taken),
            rate(self.account.free()),
        )?;
        match &self.taken_back {
            Some(other) => write!(f, "; what input port {other} had granted was taken back"),
            None => Ok(()),
        }
    }
}

/// The accounts of all ports.
///
/// ```
/// use lastmeter_base::Rate;
/// use lastmeter_lan::labels::admission::Admission;
/// let line = Some(Rate::from_mbit(10));
/// let mut admission = Admission::new([("west", line, 0.8), ("east", line, 0.5)]);
/// admission.admit("film", Some(0), Some(1), Rate::from_mbit(4)).expect("room on both");
/// let refusal = admission.admit("call", Some(0), Some(1), Rate::from_mbit(2)).unwrap_err();
/// assert_eq!((refusal.account.port.as_str(), refusal.account.free()), ("east", 1_000_000));
/// // What west had granted was taken back.
/// admission.admit("call", Some(0), None, Rate::from_mbit(4)).expect("room");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Admission {
    ports: Vec<Port>,
}

impl Admission {
    /// Nothing is granted yet. For each port: its name, its line, the share of it that may be reserved.
    pub fn new<'a>(ports: impl IntoIterator<Item = (&'a str, Option<Rate>, f64)>) -> Admission {
        let ports = ports.into_iter().map(|(name, line, share)| Port {
            name: name.to_owned(),
            line,
            share,
            granted: Default::default(),
        });
        Admission { ports: ports.collect() }
    }
    /// What a direction of a port has granted.
    pub fn account(&self, port: u16, side: Side) -> Account {
        let own = &self.ports[usize::from(port)];
        Account {
            port: own.name.clone(),
            side,
            line: own.line.map_or(0, Rate::as_bits),
            reservable: own.reservable(),
            taken: own.taken(side),
        }
    }
    fn grant(&mut self, flow: &str, port: u16, side: Side, rate: Rate) -> Result<(), Refusal> {
        let (wanted, account) = (rate.as_bits(), self.account(port, side));
        if wanted > account.free() {
            return Err(Refusal { account, wanted, taken_back: None });
        }
        let granted = &mut self.ports[usize::from(port)].granted[side as usize];
        *granted.entry(flow.to_owned()).or_default() += wanted;
        Ok(())
    }
    /// Admits a flow at both of its ports, or at neither.
    ///
    /// # Errors
    /// Which port refuses, and what it has left.
    pub fn admit(
        &mut self,
        flow: &str,
        input: Option<u16>,
        output: Option<u16>,
        rate: Rate,
    ) -> Result<(), Refusal> {
        if let Some(port) = input {
            self.grant(flow, port, Side::Input, rate)?;
        }
        let Some(port) = output else { return Ok(()) };
        let granted = self.grant(flow, port, Side::Output, rate);
        let (Err(refusal), Some(input)) = (&granted, input) else { return granted };
        self.ports[usize::from(input)].granted[Side::Input as usize].remove(flow);
        let taken_back = Some(self.ports[usize::from(input)].name.clone());
        Err(Refusal { taken_back, ..refusal.clone() })
    }
    /// A flow has ended.
    pub fn release(&mut self, flow: &str) {
        for port in &mut self.ports {
            for granted in &mut port.granted {
                granted.remove(flow);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMES: [&str; 3] = ["a", "b", "c"];

    fn three() -> Admission {
        Admission::new(NAMES.map(|name| (name, Some(Rate::from_mbit(100)), 0.8)))
    }

    #[test]
    fn the_port_that_refuses_says_what_it_has_left_d_44() {
        let mut admission = three();
        admission.admit("x", Some(0), Some(1), Rate::from_mbit(60)).expect("room");
        let refusal = admission.admit("y", Some(2), Some(1), Rate::from_mbit(40)).unwrap_err();
        let told = refusal.to_string();
        assert!(
            told.contains("output port b refuses 40 Mbit/s") && told.contains("20 Mbit/s is free"),
            "{told}"
        );
        assert!(told.contains("input port c had granted was taken back"), "{told}");
        assert_eq!(admission.account(2, Side::Input).taken, 0);
        let unknown =
            Admission::new([("a", None, 0.8)]).admit("x", Some(0), None, Rate::from_bits(1));
        assert!(unknown.unwrap_err().to_string().contains("give ports.a.rate"));
    }

    proptest! {
        /// However flows come and go, no port promises more than it may, and a refusal leaves no trace.
        #[test]
        fn no_port_promises_more_than_it_has(
            steps in prop::collection::vec((0..20u8, 0..3u16, 0..3u16, 1..60u64), 1..200)
        ) {
            let mut admission = three();
            let mut held: BTreeMap<String, (u16, u16, u64)> = BTreeMap::new();
            for (flow, input, output, mbit) in steps {
                let name = flow.to_string();
                if held.remove(&name).is_some() {
                    admission.release(&name);
                } else if admission
                    .admit(&name, Some(input), Some(output), Rate::from_mbit(mbit))
                    .is_ok()
                {
                    held.insert(name, (input, output, mbit * 1_000_000));
                }
                for port in 0..3 {
                    let of = |side: Side| admission.account(port, side);
                    let sum = |which: &dyn Fn(&(u16, u16, u64)) -> u16| -> u64 {
                        held.values().filter(|one| which(one) == port).map(|one| one.2).sum()
                    };
                    prop_assert_eq!(of(Side::Input).taken, sum(&|one| one.0));
                    prop_assert_eq!(of(Side::Output).taken, sum(&|one| one.1));
                    prop_assert!(of(Side::Output).taken <= of(Side::Output).reservable);
                }
            }
        }
    }
}
