//! Profiles of port processors and of line cards: constants with their sources, read from
//! `profiles/ports/NAME.toml` and `profiles/links/NAME.toml`.
//!
//! ```text
//! profiles/ports/spc.toml --> Constants --> port_processor::Options --> `lastmeter run`, `lastmeter repro`
//! profiles/links/oc3.toml --> Constants --> rate and framing --> a link of an experiment
//! ```

use super::ProfileKind;
use super::constants::{Constants, PROFILE};
use super::error::Error;
use crate::experiment::LINKS;
use lastmeter_base::kind::{FRAMING_MAX, Family, Kind, Page, RATE_MIN};
use lastmeter_base::{Bytes, Duration, PerByte, Rate, here};
use lastmeter_host::port_processor::{Options, Profile};
use std::sync::Arc;

/// How long the processor's software holds the memory at a time: short compared with everything else.
const QUANTUM: Duration = Duration::from_ns(500);

/// The page of profiles of ports.
const PAGE: &Page = &Page {
    name: "port-profile",
    family: Family::Profile,
    what: "A port of a router as data, for `port-processor = { profile = ... }`: its constants.",
    ports: "",
    params: PROFILE,
    example: include_str!("../../../../profiles/ports/spc.toml"),
    ..Page::at(here!())
};

/// The page of profiles of line cards.
const LINE_CARD: &Page = &Page {
    name: "line-card-profile",
    family: Family::Profile,
    what: "A line card as data, for a link's `card`: its rate and framing.",
    ports: "",
    params: PROFILE,
    example: include_str!("../../../../profiles/links/gbe.toml"),
    ..Page::at(here!())
};

pub(super) const KIND: Kind = Kind::new(
    PAGE,
    &ProfileKind {
        folder: "ports",
        within: None,
        read: |file| match port_of(Constants::of_file(file.name, file.text, file.library)) {
            Ok(port) => Ok(Arc::new(port)),
            Err(error) => Err(error.problems(file.name)),
        },
    },
);

pub(super) const LINE_CARD_KIND: Kind = Kind::new(
    LINE_CARD,
    &ProfileKind {
        folder: LINKS,
        within: None,
        read: |file| match card_of(Constants::of_file(file.name, file.text, file.library)) {
            Ok(card) => Ok(Arc::new(card)),
            Err(error) => Err(error.problems(file.name)),
        },
    },
);

/// Reads the profile of a port; messages refer to it as `file`.
///
/// ```
/// use lastmeter_lab::library::{Builtin, Library};
/// let text = Builtin.profile("ports", "spc")?;
/// let spc = lastmeter_lab::profile::port("ports/spc.toml", &text).map_err(|e| e.to_string())?;
/// assert_eq!(spc.options.operations(), 8); // 3 reads and 5 writes (D-114).
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// All errors in it, each with its place; or the constant that is missing.
pub fn port(file: &str, text: &str) -> Result<Profile, Error> {
    port_of(Constants::of_profile(file, text))
}

fn port_of(read: Result<(Constants, String), Error>) -> Result<Profile, Error> {
    let (constants, source) = read?;
    Ok(Profile { options: options(&constants)?, source })
}

/// Reads the profile of a line card (D-08): its rate, and the overhead of a packet on the line.
///
/// ```
/// use lastmeter_base::{Bytes, Rate};
/// use lastmeter_lab::library::{Builtin, Library};
/// let text = Builtin.profile("links", "gbe")?;
/// let card = lastmeter_lab::profile::line_card("links/gbe.toml", &text).map_err(|e| e.to_string())?;
/// assert_eq!((card.rate, card.framing), (Rate::from_gbit(1), Bytes(38)));
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// All errors in it, each with its place; or the constant that is missing.
pub fn line_card(file: &str, text: &str) -> Result<LineCard, Error> {
    card_of(Constants::of_profile(file, text))
}

fn card_of(read: Result<(Constants, String), Error>) -> Result<LineCard, Error> {
    let (constants, source) = read?;
    let (rate, framing): (Rate, Bytes) = (constants.get("rate")?, constants.get("framing")?);
    match rate < RATE_MIN || framing > Bytes(FRAMING_MAX) {
        true => Err(impossible("`rate` must be at least 1 kbit/s and `framing` at most 64 KiB")),
        false => Ok(LineCard { rate, framing, source }),
    }
}

/// A line card, as used by a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineCard {
    /// The rate available to frames.
    pub rate: Rate,
    /// The overhead of a packet on the line.
    pub framing: Bytes,
    /// Where its constants come from.
    pub source: String,
}

/// Most operations for a packet.
const OPERATIONS_MAX: u64 = 64;
/// Most words of these operations, cycles, cells and buffers: with the limits below, no time of a port overflows.
const COUNT_MAX: u64 = 65_536;
/// The longest cycle of a bus.
const CYCLE_MAX: Duration = Duration::from_us(1);
/// The longest time of a step.
const TIME_MAX: Duration = Duration::from_secs(1);
/// The longest word of a bus, and the longest packet that crosses a memory.
const LONGEST: Bytes = Bytes(FRAMING_MAX);

fn impossible(right: &str) -> Error {
    Error::Computation { name: "profile", message: right.to_owned() }
}

/// A port with these constants. Cells arrive a nanosecond apart until its line is known.
pub fn options(constants: &Constants) -> Result<Options, Error> {
    let options = Options {
        cycle: constants.get("pci_cycle")?,
        operation: constants.get("operation_cycles")?,
        wait: constants.get("operation_wait")?,
        word: constants.get("pci_word")?,
        memory: constants.get("memory")?,
        receive: constants.get("receive_words")?,
        send: constants.get("send_words")?,
        batch: constants.get("batch")?,
        fifo: constants.get("fifo")?,
        buffers: constants.get("buffers")?,
        cell_gap: Duration::from_ns(1),
        software: constants.get("software")?,
        lookup: constants.get("lookup")?,
        swap: Some(constants.get("header")?),
        clock: Some((constants.get("queueing_period")?, constants.get("queueing")?)),
        quantum: QUANTUM,
        free: [false; 2],
    };
    let (word, memory): (Bytes, PerByte) = (options.word, options.memory);
    let (period, clocked) = options.clock.unwrap_or_default();
    let words = |operations: &[u64]| {
        let sum = operations.iter().fold(0_u64, |sum, words| sum.saturating_add(*words));
        operations.len() as u64 > OPERATIONS_MAX || sum > COUNT_MAX
    };
    let counts = [options.operation, options.wait, options.batch, options.fifo, options.buffers];
    let times = [options.software, options.lookup, period, clocked];
    let wrong = [
        (
            words(&options.receive) || words(&options.send),
            "`receive_words` and `send_words` have at most 64 operations with 65,536 words in all",
        ),
        (
            counts.into_iter().any(|count| count > COUNT_MAX),
            "`operation_cycles`, `operation_wait`, `batch`, `fifo`, `buffers`: at most 65,536 each",
        ),
        (
            options.cycle > CYCLE_MAX || word > LONGEST,
            "`pci_cycle` is at most 1 us, `pci_word` at most 64 KiB",
        ),
        (
            times.into_iter().any(|time| time > TIME_MAX) || memory.time_for(LONGEST) > TIME_MAX,
            "`software`, `lookup`, `queueing_period`, `queueing`, 64 KiB of `memory`: at most 1 s",
        ),
        (
            options.batch == 0 || options.batch > options.fifo,
            "`batch` must be at least 1 and fit in `fifo`",
        ),
        (options.buffers == 0, "`buffers` must be at least 1"),
        (word.0 == 0 || options.cycle.is_zero(), "`pci_word` and `pci_cycle` must not be zero"),
        (
            memory == PerByte::ZERO || period.is_zero(),
            "`memory` and `queueing_period` must not be zero",
        ),
    ];
    match wrong.into_iter().find(|(wrong, _)| *wrong) {
        Some((_, right)) => Err(impossible(right)),
        None => Ok(options),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::{Builtin, Library};

    /// D-08: dual OC-3, OC-12 and G-Link, and the planned Ethernet card.
    #[test]
    fn the_line_cards_have_the_rates_of_the_document() {
        for (name, line, least) in
            [("oc3", 155, 149), ("oc12", 622, 599), ("g-link", 1200, 1200), ("gbe", 1000, 1000)]
        {
            let text = Builtin.profile("links", name).expect("it is bundled");
            let (constants, _) = Constants::of_profile(name, &text).expect("it is valid");
            let printed: Rate = constants.get("line").expect("it has one");
            assert_eq!(printed.as_bits() / 1_000_000, line, "{name}");
            let LineCard { rate, .. } = line_card(name, &text).expect("it is valid");
            assert!(rate <= printed && rate >= Rate::from_mbit(least), "{name}");
        }
    }

    #[test]
    fn an_impossible_profile_is_refused_with_the_reason() {
        let text = Builtin.profile("ports", "spc").expect("it is bundled");
        let short = text.replace("fifo = { value = 64", "fifo = { value = 4");
        assert_ne!(text, short);
        assert!(
            port("spc.toml", &short).expect_err("too long a burst").to_string().contains("fifo")
        );
        let without = text.replace("batch = {", "botch = {");
        let message = port("spc.toml", &without).expect_err("it is missing").to_string();
        assert!(message.contains("no constant `batch`"), "{message}");
    }
}
