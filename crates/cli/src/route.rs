//! A routing table from a file, and the path of a lookup in it, as text and JSON.
//!
//! ```
//! use lastmeter::route::Tables;
//! let tables = Tables::read(b"10.0.0.0/8 1\n10.1.0.0/16 2\n")?;
//! let answer = tables.explain("10.1.2.3".parse()?);
//! assert_eq!((answer.prefix.as_deref(), answer.next_hop), (Some("10.1.0.0/16"), Some(2)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use lastmeter_net::lookup::explain::{Explanation, Step};
use lastmeter_net::lookup::table::{load, split};
use lastmeter_net::lookup::{Full, Key, NextHop, Options, Prefix, TreeBitmap};
use lastmeter_wire::routes::{self, Routes};
use serde::Serialize;
use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The schema of the JSON answer.
pub const SCHEMA: &str = "lastmeter.lookup/1";

/// Both families' tables of a file.
#[derive(Debug)]
pub struct Tables {
    /// IPv4.
    pub v4: TreeBitmap<u32>,
    /// IPv6.
    pub v6: TreeBitmap<u128>,
    next_hops: Vec<IpAddr>,
}

/// Why a file has no tables.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The file is wrong.
    File(routes::Error),
    /// It has more routes than fit.
    Full(Full),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::File(error) => error.fmt(f),
            Error::Full(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl Tables {
    /// Reads a file, text or MRT, all of it or nothing.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn read(file: &[u8]) -> Result<Tables, Error> {
        let routes = Routes::parse(file).map_err(Error::File)?;
        let (v4, v6) = split(&routes);
        let v4 = load(&v4, Options::IPV4).map_err(Error::Full)?;
        let v6 = load(&v6, Options::IPV6).map_err(Error::Full)?;
        Ok(Tables { v4, v6, next_hops: routes.next_hops })
    }
    /// The nodes that a lookup of `address` visits, and its answer.
    pub fn explain(&self, address: IpAddr) -> Answer {
        match address {
            IpAddr::V4(ip) => {
                let explained = self.v4.explain(ip.to_bits());
                let prefix = |prefix: Prefix<u32>| {
                    format!("{}/{}", Ipv4Addr::from_bits(prefix.key()), prefix.len())
                };
                self.answer(address, &explained, prefix, self.v4.options())
            }
            IpAddr::V6(ip) => {
                let explained = self.v6.explain(ip.to_bits());
                let prefix = |prefix: Prefix<u128>| {
                    format!("{}/{}", Ipv6Addr::from_bits(prefix.key()), prefix.len())
                };
                self.answer(address, &explained, prefix, self.v6.options())
            }
        }
    }
    fn answer<K: Key>(
        &self,
        address: IpAddr,
        explained: &Explanation<K>,
        prefix: impl Fn(Prefix<K>) -> String,
        options: Options,
    ) -> Answer {
        let gateway = |hop: NextHop| self.next_hops.get(hop.get() as usize - 1).copied();
        Answer {
            schema: SCHEMA,
            address,
            prefix: explained.longest.map(|(longest, _)| prefix(longest)),
            next_hop: explained.longest.map(|(_, hop)| hop.get()),
            gateway: explained.longest.and_then(|(_, hop)| gateway(hop)),
            entry: explained.entry.map(|entry| Entry {
                bits: entry.bits,
                number: entry.number,
                next_hop: entry.next_hop.map(NextHop::get),
            }),
            nodes: explained.steps.iter().map(|step| Node::of(step, options.stride)).collect(),
        }
    }
}

/// The nodes that a lookup visited, and its answer.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The address looked up.
    pub address: IpAddr,
    /// The longest prefix that matches.
    pub prefix: Option<String>,
    /// Its next hop.
    pub next_hop: Option<u32>,
    /// The next hop's address, where the file has addresses.
    pub gateway: Option<IpAddr>,
    /// The last array's entry.
    pub entry: Option<Entry>,
    /// The nodes, from the first on.
    pub nodes: Vec<Node>,
}

/// An entry of the arrays in which a search starts.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// How many bits chose it.
    pub bits: u8,
    /// Which entry.
    pub number: u32,
    /// The best next hop within these bits.
    pub next_hop: Option<u32>,
}

/// A node of the tree.
#[derive(Clone, Debug, Serialize)]
pub struct Node {
    /// The first bit that it examines.
    pub depth: u32,
    /// The index of its pair of words.
    pub address: u32,
    /// The address bits that it examines.
    pub bits: String,
    /// Its internal prefix bitmap, by level.
    pub internal: String,
    /// Its extending paths bitmap, or an end node's longest prefixes.
    pub external: String,
    /// Whether it is an end node.
    pub end: bool,
    /// The length of the longest prefix that matches inside.
    pub matched: Option<u32>,
    /// The index of its next hop among the node's.
    pub rank: Option<u32>,
    /// Its next hop.
    pub next_hop: Option<u32>,
    /// The index of the child in which the search continues.
    pub child: Option<u32>,
}

impl Node {
    fn of(step: &Step, stride: u8) -> Node {
        debug_assert_eq!(step.bits.len(), usize::from(stride));
        Node {
            depth: step.depth,
            address: step.address,
            bits: step.bits.clone(),
            internal: step.internal.clone(),
            external: step.external.clone(),
            end: step.end,
            matched: step.matched.map(|(len, ..)| len),
            rank: step.matched.map(|(_, rank, _)| rank),
            next_hop: step.matched.map(|(_, _, hop)| hop.get()),
            child: step.child,
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hop = |hop: Option<u32>| hop.map_or("none".to_owned(), |hop| hop.to_string());
        writeln!(f, "{}", self.address)?;
        if let Some(Entry { bits, number, next_hop }) = &self.entry {
            let next_hop = hop(*next_hop);
            writeln!(f, "  bits 0-{:<4} entry {number}: next hop {next_hop}", bits - 1)?;
        }
        for node in &self.nodes {
            let last = node.depth as usize + node.bits.len() - 1;
            let mut what = String::new();
            if let (Some(matched), Some(rank)) = (node.matched, node.rank) {
                let next_hop = hop(node.next_hop);
                let _ = write!(what, "/{matched} matches, next hop {next_hop} at place {rank}");
            }
            if let Some(child) = node.child {
                let comma = if what.is_empty() { "" } else { ", " };
                let _ = write!(what, "{comma}child {child}");
            }
            let what = if what.is_empty() { "nothing matches" } else { &what };
            let (depth, end) = (node.depth, if node.end { "end node" } else { "node" });
            let span = format!("{depth}-{last}");
            writeln!(f, "  bits {span:<6} {} {end} {}: {what}", node.bits, node.address)?;
            writeln!(f, "       internal {}", node.internal)?;
            writeln!(f, "       external {}", node.external)?;
        }
        let gateway = self.gateway.map_or(String::new(), |gateway| format!(" ({gateway})"));
        match &self.prefix {
            Some(prefix) => writeln!(f, "  -> {prefix}, next hop {}{gateway}", hop(self.next_hop)),
            None => writeln!(f, "  -> no route"),
        }
    }
}
