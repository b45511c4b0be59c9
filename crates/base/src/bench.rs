//! What a benchmark is, so that every crate can describe its own without reading a clock.
//!
//! A case prepares its input once and then does the same work again and again; whoever runs it
//! (the `lastmeter bench` command, or a test on small input) brings the clock. The hash of the
//! result keeps the work from being optimised away and shows that two runs did the same.

/// One benchmark.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name on the command line: `wire/aal5`.
    pub name: &'static str,
    /// What is counted, as printed after "a second": `packet-hops`, `B`, `lookups`.
    pub unit: &'static str,
    /// One sentence: what is done, on what input.
    pub what: &'static str,
    /// Builds the input, small when `quick`, and returns the work itself.
    pub prepare: fn(quick: bool) -> Box<dyn FnMut() -> Work>,
}

/// What one round of a case did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// How many units of [`Case::unit`].
    pub units: u64,
    /// A hash of the result: the same for every round and every machine.
    pub hash: u64,
}
