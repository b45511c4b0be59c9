//! A Linux driver, in C, for an adapter with rings and registers, from its description (E-77).
//!
//! The driver is `guest/driver/lastmeter_nic.c`, which a guest's kernel loads; what depends on the adapter is in a few
//! definitions between two marks, and they are written here.
//!
//! | definition    | from                                                                  |
//! |---------------|-----------------------------------------------------------------------|
//! | `MODE`        | `synchronisation`: interrupts, NAPI for "mixed", a clock for "poll"   |
//! | `DESCRIPTORS` | `depth`, rounded up to a power of two between 64 and 4096             |
//! | `DOORBELL`    | `doorbell-batch`                                                      |

use lastmeter_host::adapter::description::{Description, Synchronisation};

/// The driver of `simple-nic`.
pub const SIMPLE: &str = include_str!("../../../../guest/driver/lastmeter_nic.c");
const BEGIN: &str = "/* description */\n";
const END: &str = "/* end of description */\n";
/// Descriptors of a ring: enough that a kernel is not called for each packet, and little memory.
const DESCRIPTORS: (u64, u64) = (64, 4096);

/// The driver of an adapter with this name.
///
/// ```
/// use lastmeter_guest::registers::program::program;
/// use lastmeter_host::adapter::description::Description;
/// let program = program("mine", &Description::plain("a card"));
/// assert!(program.contains("#define ADAPTER \"mine\"\n#define MODE \"interrupt\""));
/// ```
pub fn program(name: &str, card: &Description) -> String {
    let (before, rest) = SIMPLE.split_once(BEGIN).unwrap_or((SIMPLE, ""));
    let after = rest.split_once(END).map_or("", |(_, after)| after);
    let (mode, word) = match card.host.synchronisation {
        Synchronisation::Interrupt => ("interrupt", "interrupt"),
        Synchronisation::Mixed => ("napi", "mixed"),
        Synchronisation::Poll => ("timed", "poll"),
    };
    let depth = card.queueing.depth;
    let descriptors = depth.min(DESCRIPTORS.1).next_power_of_two().max(DESCRIPTORS.0);
    let doorbell = card.host.batch.doorbell.clamp(1, descriptors / 2);
    let batch = card.host.batch.doorbell;
    let plain = |c: &char| c.is_ascii_alphanumeric() || "-._".contains(*c);
    let name: String = name.chars().filter(plain).collect();
    format!(
        "{before}{BEGIN}#define ADAPTER \"{name}\"\n\
         #define MODE \"{mode}\" /* synchronisation = \"{word}\" */\n\
         #define DESCRIPTORS {descriptors} /* of each ring; depth = {depth} */\n\
         #define DOORBELL {doorbell} /* packets for each; doorbell-batch = {batch} */\n{END}{after}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_that_guests_load_is_the_one_of_simple_nic() {
        use lastmeter_lab::{library::Builtin, profile::device::read};
        let card = read("simple-nic", &Builtin).unwrap();
        assert_eq!(program("simple-nic", &card), SIMPLE);
    }

    #[test]
    fn it_has_the_registers_of_this_crate() {
        use crate::registers::{ARM, BASE, BUFFERED, CONTROL, ENABLE, ID, IN_FLIGHT};
        use crate::registers::{LENGTH, LOST, MAC, MAGIC, RINGS, TAIL};
        use crate::vfio::config::{DEVICE, VENDOR};
        let value = |name: &str| {
            let lines = SIMPLE.lines().filter_map(|line| line.strip_prefix("#define "));
            let mut found = lines.filter_map(|line| line.split_once(' '));
            let (_, text) = found.find(|(known, _)| *known == name).unwrap();
            let text = text.split(' ').next().unwrap();
            let hex = text.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16));
            hex.unwrap_or_else(|| text.parse()).unwrap()
        };
        for (name, wanted) in [
            ("ID", ID),
            ("CONTROL", CONTROL),
            ("MAC", MAC),
            ("BUFFERED", BUFFERED),
            ("IN_FLIGHT", IN_FLIGHT),
            ("LOST", LOST),
            ("MAGIC", MAGIC.into()),
            ("RINGS", RINGS[0]),
            ("RING_SIZE", RINGS[1] - RINGS[0]),
            ("BASE", BASE),
            ("LENGTH", LENGTH),
            ("ENABLE", ENABLE),
            ("TAIL", TAIL),
            ("ARM", ARM),
            ("DONE", crate::registers::ring::DONE.into()),
            ("VENDOR", VENDOR.into()),
            ("DEVICE", DEVICE.into()),
        ] {
            assert_eq!(value(name), wanted, "{name}");
        }
    }

    #[test]
    fn what_differs_between_adapters_is_four_lines() {
        let mut card = Description::plain("a card");
        card.host.synchronisation = Synchronisation::Mixed;
        (card.queueing.depth, card.host.batch.doorbell) = (1000, 8);
        let program = program("a \"card\"\n", &card);
        for line in [
            "#define ADAPTER \"acard\"\n",
            "#define MODE \"napi\"",
            "#define DESCRIPTORS 1024 ",
            "#define DOORBELL 8 ",
        ] {
            assert!(program.contains(line), "{line}");
        }
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let (ours, simple) = (lines(&program), lines(SIMPLE));
        assert_eq!(ours.len(), simple.len());
        let changed = ours.iter().zip(&simple).filter(|(a, b)| a != b).count();
        assert!(changed <= 4, "{changed} lines");
    }
}
