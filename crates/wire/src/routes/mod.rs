//! Routing tables in files: text with one line per prefix, and MRT dumps of a router's table.
//!
//! A table is read completely or not at all. An error names the line or the offset, what was found and what would
//! be right. Memory is at most a few times the file's length, and at most [`ROUTES_MAX`] routes.
//!
//! ```
//! use lastmeter_wire::routes::Routes;
//! let routes = Routes::parse(b"10.0.0.0/8 1\n2001:db8::/32 2\n")?;
//! assert_eq!(routes.routes.len(), 2);
//! let wrong = Routes::parse(b"10.0.0.0/8 1\n10.0.0.1/24 2\n").expect_err("bits beyond the length");
//! assert!(wrong.to_string().starts_with("line 2: `10.0.0.1/24`"));
//! # Ok::<(), lastmeter_wire::routes::Error>(())
//! ```

pub mod mrt;
pub mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The most routes of a table: several times as many as the Internet has.
pub const ROUTES_MAX: usize = 1 << 24;

/// The first `len` bits of an address; the others are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

impl Prefix {
    /// A prefix, or `None` if it is longer than the address or bits beyond it are not zero.
    pub fn new(address: IpAddr, len: u8) -> Option<Prefix> {
        let (bits, width) = left(address);
        let beyond = bits.checked_shl(len.into()).unwrap_or(0);
        (len <= width && beyond == 0).then_some(Prefix { address, len })
    }
    /// The address of the prefix: its bits, followed by zeros.
    pub fn address(self) -> IpAddr {
        self.address
    }
    /// Length in bits.
    #[expect(clippy::len_without_is_empty, reason = "no prefix is a container")]
    pub fn len(self) -> u8 {
        self.len
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

/// The bits of an address, first one at the top, and their number.
fn left(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

/// The address with these first bytes, followed by zeros.
fn address(bytes: &[u8], v6: bool) -> Option<IpAddr> {
    let mut all = [0; 16];
    all.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let [a, b, c, d, ..] = all;
    Some(match v6 {
        true => IpAddr::V6(Ipv6Addr::from(all)),
        false => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
    })
}

/// A prefix with the number of its next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The destinations of the route.
    pub prefix: Prefix,
    /// Never zero. If the table has addresses, this is the position of one of them, from 1.
    pub next_hop: u32,
}

/// A table, in the order of the file; no prefix occurs twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    /// The routes.
    pub routes: Vec<Route>,
    /// The addresses of the next hops; empty if the file has numbers.
    pub next_hops: Vec<IpAddr>,
}

impl Routes {
    /// Parses a table in either format.
    ///
    /// # Errors
    /// If it is in neither format, is compressed, ends early, or anything in it is wrong.
    pub fn parse(file: &[u8]) -> Result<Routes, Error> {
        const COMPRESSED: [(&[u8], &str); 4] = [
            (b"\x1f\x8b", "gzip"),
            (b"BZh", "bzip2"),
            (b"\xfd7zXZ", "xz"),
            (b"\x28\xb5\x2f\xfd", "zstd"),
        ];
        if let Some((_, with)) = COMPRESSED.iter().find(|(magic, _)| file.starts_with(magic)) {
            return Err(Error::at_offset(
                0,
                format!("compressed with {with}: decompress it first"),
            ));
        }
        // The header of a record contains zeros, in the length if nowhere else; text does not.
        match file.iter().take(mrt::HEADER_LEN).any(|&byte| byte == 0) {
            true => mrt::parse(file),
            false => text::parse(file),
        }
    }
}

/// A table under construction, with the numbers given to next hops.
#[derive(Default)]
struct Builder {
    routes: Routes,
    numbers: BTreeMap<IpAddr, u32>,
    places: Vec<u64>,
}

impl Builder {
    fn number(&mut self, address: IpAddr) -> u32 {
        let next_hops = &mut self.routes.next_hops;
        *self.numbers.entry(address).or_insert_with(|| {
            next_hops.push(address);
            next_hops.len() as u32
        })
    }
    fn push(&mut self, route: Route, place: u64) -> Result<(), String> {
        if self.places.len() >= ROUTES_MAX {
            return Err(format!("more than {ROUTES_MAX} routes"));
        }
        self.routes.routes.push(route);
        self.places.push(place);
        Ok(())
    }
    /// The table, or the position of the first repeated prefix and the error.
    fn finish(self) -> Result<Routes, (u64, String)> {
        let prefixes = self.routes.routes.iter().map(|route| route.prefix);
        let mut sorted: Vec<(Prefix, u64)> = prefixes.zip(self.places).collect();
        sorted.sort_unstable();
        let twice = sorted.windows(2).filter(|pair| pair[0].0 == pair[1].0);
        let again = twice.map(|pair| (pair[1].1, pair[0])).min();
        match again {
            Some((place, (prefix, first))) => {
                Err((place, format!("`{prefix}` appears again, first at {first}")))
            }
            None => Ok(self.routes),
        }
    }
}

/// Why a file is not a table, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The line of a text, from 1.
    pub line: Option<u64>,
    /// The byte offset in an MRT file.
    pub offset: Option<u64>,
    /// What was found and what would be right.
    pub reason: String,
}

impl Error {
    fn at_line(line: u64, reason: String) -> Error {
        Error { line: Some(line), offset: None, reason }
    }
    fn at_offset(offset: u64, reason: String) -> Error {
        Error { line: None, offset: Some(offset), reason }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.offset) {
            (Some(line), _) => write!(f, "line {line}: {}", self.reason),
            (_, Some(offset)) => write!(f, "offset {offset}: {}", self.reason),
            _ => f.write_str(&self.reason),
        }
    }
}

impl std::error::Error for Error {}
