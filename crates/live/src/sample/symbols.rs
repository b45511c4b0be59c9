//! The kernel's functions by address, from /proc/kallsyms.

use std::fs::File;
use std::io::Read;

/// The most bytes read: kernels with every driver built in have about 10 MB.
const BYTES_MAX: u64 = 64 << 20;
/// A function that begins further before an address than this does not contain it.
const LENGTH_MAX: u64 = 1 << 20;

/// Functions in rising order of address.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    names: String,
    /// Address, and where its name begins and ends.
    functions: Vec<(u64, u32, u32)>,
}

impl Symbols {
    /// Those of the running kernel; why not, where they cannot be read.
    pub(super) fn of_kernel() -> Result<Symbols, String> {
        let path = "/proc/kallsyms";
        let mut text = String::new();
        let file = File::open(path).map_err(|error| format!("{path}: {error}"))?;
        let read = file.take(BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| format!("{path}: {error}"))?;
        let symbols = Symbols::parse(&text);
        match symbols.functions.is_empty() {
            true => Err(format!("{path} hides the kernel's addresses from this user")),
            false => Ok(symbols),
        }
    }

    /// Lines `ADDRESS TYPE NAME [MODULE]`; others, data, and hidden addresses are skipped.
    pub(super) fn parse(text: &str) -> Symbols {
        let mut symbols = Symbols::default();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            if address == 0 || !matches!(kind, "t" | "T" | "w" | "W") {
                continue;
            }
            let from = symbols.names.len() as u32;
            symbols.names.push_str(name);
            symbols.functions.push((address, from, symbols.names.len() as u32));
        }
        symbols.functions.sort_by_key(|(address, ..)| *address);
        symbols
    }

    /// The function that contains an address.
    pub(super) fn name(&self, address: u64) -> Option<&str> {
        let after = self.functions.partition_point(|(start, ..)| *start <= address);
        let &(start, from, to) = self.functions.get(after.checked_sub(1)?)?;
        (address - start < LENGTH_MAX).then(|| &self.names[from as usize..to as usize])
    }
}

/// Any text: each address that it names is found.
pub(super) fn fuzz(bytes: &[u8]) {
    let symbols = Symbols::parse(&String::from_utf8_lossy(bytes));
    for (address, ..) in &symbols.functions {
        assert!(symbols.name(*address).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_address_belongs_to_the_function_before_it() {
        let text = "ffffffff81000200 T tcp_sendmsg\nffffffff81000100 t tcp_ack\n\
                    ffffffff81000300 D a_datum\n0000000000000000 T hidden\nnonsense\n\
                    ffffffffc0000000 t veth_xmit\t[veth]\n";
        let symbols = Symbols::parse(text);
        assert_eq!(symbols.name(0xffff_ffff_8100_0150), Some("tcp_ack"));
        assert_eq!(symbols.name(0xffff_ffff_8100_0200), Some("tcp_sendmsg"));
        assert_eq!(symbols.name(0xffff_ffff_8100_0350), Some("tcp_sendmsg"));
        assert_eq!(symbols.name(0xffff_ffff_c000_0010), Some("veth_xmit"));
        assert_eq!(symbols.name(0xffff_ffff_8100_00ff), None);
        assert_eq!(symbols.name(0xffff_ffff_9000_0000), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "[0-9a-f]{0,16} [tTD] [a-z_]{0,8}\n?") {
            fuzz(text.as_bytes());
        }
    }
}
