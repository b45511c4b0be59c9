//! The description of a benchmark, so that every crate can define its own without reading a clock.
//!
//! A case prepares its input once and then repeats the same work; the caller (the `lastmeter bench`
//! command, or a test on small input) has the clock. The hash of the result prevents the work from being
//! optimised away and shows that two runs did the same.

/// One benchmark.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name on the command line: `wire/aal5`.
    pub name: &'static str,
    /// The unit, as printed before "/s": `packet-hops`, `B`, `lookups`.
    pub unit: &'static str,
    /// One sentence: what is done, on what input.
    pub what: &'static str,
    /// Builds the input, small when `quick`, and returns the work itself.
    pub prepare: fn(quick: bool) -> Box<dyn FnMut() -> Work>,
}

/// The result of one round of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Number of [`Case::unit`]s.
    pub units: u64,
    /// A hash of the result: the same for every round and every machine.
    pub hash: u64,
}
