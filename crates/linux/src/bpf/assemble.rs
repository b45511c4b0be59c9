//! Programs as instructions with labels.

use crate::port::memory::bpf_new;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// A register, 0 to 10. The result of a call is in 0, its arguments in 1 to 5; 6 to 9 outlive calls; 10 is the stack.
pub(crate) type Register = u8;

/// How wide a load or store is.
#[derive(Clone, Copy)]
pub(crate) enum Size {
    Byte = 0x10,
    Half = 0x08,
    Word = 0x00,
    Double = 0x18,
}

/// When a jump is taken: the register compared with a number.
#[derive(Clone, Copy)]
pub(crate) enum If {
    Equal = 0x15,
    NotEqual = 0x55,
    Above = 0x25,
    AtLeast = 0x35,
    AnyBit = 0x45,
    Below = 0xa5,
}

/// A place in a program.
#[derive(Clone, Copy)]
pub(crate) struct Label(usize);

/// A program under construction.
#[derive(Default)]
pub(crate) struct Program {
    words: Vec<u64>,
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

impl Program {
    fn push(&mut self, operation: u8, to: Register, from: Register, offset: i16, number: i32) {
        let registers = u64::from(from << 4 | to);
        self.words.push(
            u64::from(operation)
                | registers << 8
                | u64::from(offset as u16) << 16
                | u64::from(number as u32) << 32,
        );
    }
    /// A label that is placed later.
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }
    /// The next instruction is at this label.
    pub(crate) fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.words.len());
    }
    /// `to = memory[from + offset]`.
    pub(crate) fn load(&mut self, size: Size, to: Register, from: Register, offset: i16) {
        self.push(0x61 | size as u8, to, from, offset, 0);
    }
    /// `memory[to + offset] = from`.
    pub(crate) fn store(&mut self, size: Size, to: Register, offset: i16, from: Register) {
        self.push(0x63 | size as u8, to, from, offset, 0);
    }
    /// `memory[to + offset] = number`.
    pub(crate) fn store_number(&mut self, size: Size, to: Register, offset: i16, number: i32) {
        self.push(0x62 | size as u8, to, 0, offset, number);
    }
    /// `memory[to + offset] += from`, atomically, 64 bits.
    pub(crate) fn add_to_memory(&mut self, to: Register, offset: i16, from: Register) {
        self.push(0xdb, to, from, offset, 0);
    }
    /// `to = from`.
    pub(crate) fn copy(&mut self, to: Register, from: Register) {
        self.push(0xbf, to, from, 0, 0);
    }
    /// `to = number`.
    pub(crate) fn set(&mut self, to: Register, number: i32) {
        self.push(0xb7, to, 0, 0, number);
    }
    /// `to += number`.
    pub(crate) fn add(&mut self, to: Register, number: i32) {
        self.push(0x07, to, 0, 0, number);
    }
    /// `to += from`.
    pub(crate) fn add_register(&mut self, to: Register, from: Register) {
        self.push(0x0f, to, from, 0, 0);
    }
    /// `to -= from`.
    pub(crate) fn subtract_register(&mut self, to: Register, from: Register) {
        self.push(0x1f, to, from, 0, 0);
    }
    /// `to &= number`.
    pub(crate) fn and(&mut self, to: Register, number: i32) {
        self.push(0x57, to, 0, 0, number);
    }
    /// `to <<= number`.
    pub(crate) fn left(&mut self, to: Register, number: i32) {
        self.push(0x67, to, 0, 0, number);
    }
    /// `to >>= number`, without sign.
    pub(crate) fn right(&mut self, to: Register, number: i32) {
        self.push(0x77, to, 0, 0, number);
    }
    /// The 16 bits of `to` as network order reads them.
    pub(crate) fn swap_half(&mut self, to: Register) {
        self.push(0xdc, to, 0, 0, 16);
    }
    /// Goes to `label`.
    pub(crate) fn go(&mut self, label: Label) {
        self.jumps.push((self.words.len(), label));
        self.push(0x05, 0, 0, 0, 0);
    }
    /// Goes to `label` if the register compares so with the number.
    pub(crate) fn go_if(&mut self, register: Register, how: If, number: i32, label: Label) {
        self.jumps.push((self.words.len(), label));
        self.push(how as u8, register, 0, 0, number);
    }
    /// Goes to `label` if the register compares so with another.
    pub(crate) fn go_if_register(
        &mut self,
        register: Register,
        how: If,
        other: Register,
        label: Label,
    ) {
        self.jumps.push((self.words.len(), label));
        self.push(how as u8 | 0x08, register, other, 0, 0);
    }
    /// `to = ` a map.
    pub(crate) fn map(&mut self, to: Register, map: BorrowedFd<'_>) {
        self.push(0x18, to, 1, 0, map.as_raw_fd());
        self.words.push(0);
    }
    /// `to = ` the address of a byte in the only value of a map.
    pub(crate) fn map_value(&mut self, to: Register, map: BorrowedFd<'_>, byte: u32) {
        self.push(0x18, to, 2, 0, map.as_raw_fd());
        self.words.push(u64::from(byte) << 32);
    }
    /// Calls a helper of the kernel.
    pub(crate) fn call(&mut self, helper: i32) {
        self.push(0x85, 0, 0, 0, helper);
    }
    /// Ends with what is in register 0.
    pub(crate) fn exit(&mut self) {
        self.push(0x95, 0, 0, 0, 0);
    }
    /// The instructions, with every jump resolved.
    fn finish(&self) -> Vec<u64> {
        let mut words = self.words.clone();
        for (at, label) in &self.jumps {
            let target = self.labels[label.0].expect("every label is placed");
            let offset = i16::try_from(target as isize - *at as isize - 1).expect("a short jump");
            words[*at] = words[*at] & !0xffff_0000 | u64::from(offset as u16) << 16;
        }
        words
    }
    /// Loads it as a program that sees frames as they arrive (XDP).
    ///
    /// # Errors
    /// When the kernel refuses, with the last lines of what its verifier says.
    pub(crate) fn load_xdp(&self) -> io::Result<OwnedFd> {
        const PROGRAM_LOAD: i32 = 5;
        const PROGRAM_TYPE_XDP: u64 = 6;
        let words = self.finish();
        let licence = c"GPL";
        let head = PROGRAM_TYPE_XDP | (words.len() as u64) << 32;
        let (at, by) = (words.as_ptr() as u64, licence.as_ptr() as u64);
        bpf_new(PROGRAM_LOAD, &mut [head, at, by]).or_else(|error| {
            let mut said = vec![0u8; 1 << 20];
            let log = 1 | (said.len() as u64) << 32;
            let room = said.as_mut_ptr() as u64;
            let again = bpf_new(PROGRAM_LOAD, &mut [head, at, by, log, room]);
            again.map_err(|_| {
                let len = said.iter().position(|byte| *byte == 0).unwrap_or(0);
                let text = String::from_utf8_lossy(&said[..len]);
                let lines: Vec<&str> = text.lines().rev().take(3).collect();
                io::Error::new(error.kind(), format!("{error}: {}", lines.join(" | ")))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_laid_out_as_the_kernel_reads_them() {
        let mut program = Program::default();
        program.load(Size::Word, 2, 1, 16);
        program.exit();
        let words = program.finish();
        // r2 = *(u32 *)(r1 + 16): operation 61, registers 12, offset 0010.
        assert_eq!(words[0].to_le_bytes(), [0x61, 0x12, 0x10, 0, 0, 0, 0, 0]);
        assert_eq!(words[1].to_le_bytes(), [0x95, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn jumps_go_to_their_labels() {
        let mut program = Program::default();
        let (end, again) = (program.label(), program.label());
        program.place(again);
        program.set(0, 2);
        program.go_if(0, If::Above, 9, end);
        program.go(again);
        program.place(end);
        program.exit();
        let words = program.finish();
        assert_eq!(words[0].to_le_bytes(), [0xb7, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(words[1].to_le_bytes(), [0x25, 0, 1, 0, 9, 0, 0, 0], "over one instruction");
        assert_eq!(words[2].to_le_bytes(), [0x05, 0, 0xfd, 0xff, 0, 0, 0, 0], "three back");
    }
}
