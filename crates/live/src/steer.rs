//! Receive packet steering (RPS): which cores process what a host's interface receives.
//!
//! By default, the thread that writes a frame into a TAP or a veth pair also runs the receiver's protocol
//! stack, up to the socket, and is late for the next frame. With RPS the kernel queues the frame for
//! another core instead. Source: the kernel's `Documentation/networking/scaling.rst`, RPS.

use lastmeter_linux::{Doing, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{self, File};
use std::os::fd::AsFd;

/// Runs in a helper of its own as root, which the kernel requires: it enters the network namespace of
/// process `pid`, sees its interfaces through a mount of its own, and sets the mask.
///
/// # Errors
/// When privileges are missing, or the kernel has no RPS.
pub(crate) fn steer(pid: u32, interface: &str, cores: &[usize]) -> Result<()> {
    let path = format!("/proc/{pid}/ns/net");
    let namespace = File::open(&path).doing(|| format!("opening {path}"))?;
    let what = || format!("entering the network of process {pid}");
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).doing(what)?;
    crate::namespace::see_interfaces()?;
    let path = format!("/sys/class/net/{interface}/queues/rx-0/rps_cpus");
    fs::write(&path, mask(cores)).doing(|| format!("writing {path}"))
}

/// A core mask in the kernel's form: hexadecimal words of 32 bits, highest first.
pub(crate) fn mask(cores: &[usize]) -> String {
    let words = cores.iter().max().map_or(1, |last| last / 32 + 1);
    let word = |word: usize| {
        let here = cores.iter().filter(|&&core| core / 32 == word);
        here.fold(0_u32, |mask, core| mask | 1 << (core % 32))
    };
    let words: Vec<String> = (0..words).rev().map(|index| format!("{:08x}", word(index))).collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::mask;

    #[test]
    fn masks_are_32_bit_words_highest_first() {
        assert_eq!(mask(&[0]), "00000001");
        assert_eq!(mask(&[1, 3, 31]), "8000000a");
        assert_eq!(mask(&[0, 33]), "00000002,00000001");
        assert_eq!(mask(&[]), "00000000");
    }
}
