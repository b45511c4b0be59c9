//! Writing captures, with nanosecond timestamps.

use super::pcap::{MAGIC_NS, VERSION};
use super::pcapng::{
    BLOCK_ENHANCED_PACKET, BLOCK_INTERFACE, BLOCK_OVERHEAD, BLOCK_SECTION, BYTE_ORDER_MAGIC,
    OPTION_END, OPTION_NAME, OPTION_RESOLUTION, OPTION_USER_APPLICATION, SECTION_LEN_UNKNOWN,
    VERSION_MAJOR,
};
use super::{CaptureError, LinkType, RECORD_LEN_MAX};
use lastmeter_base::{Bytes, Time};
use std::io::Write;

/// Ten to the minus nine, as encoded for an interface.
const RESOLUTION_NS: u8 = 9;
/// Picoseconds in the unit of the file, truncated.
const PS_PER_TICK: u64 = 1_000;
/// The longest interface name that is written; a longer one is truncated.
const NAME_LEN_MAX: usize = 255;

/// Writes a capture to any [`Write`], little-endian, unbuffered: wrap a file in a `BufWriter`.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
    form: Form,
    /// The snap length of each interface.
    snaps: Vec<u32>,
    block: Vec<u8>,
    records: u64,
    offset: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Pcap,
    Pcapng,
}

impl<W: Write> Writer<W> {
    /// A pcapng file; each interface must be added before its first packet.
    ///
    /// # Errors
    /// If the output fails.
    pub fn pcapng(output: W) -> Result<Writer<W>, CaptureError> {
        let mut writer = Writer::new(output, Form::Pcapng);
        writer.block.extend(BYTE_ORDER_MAGIC.to_le_bytes());
        writer.block.extend(VERSION_MAJOR.to_le_bytes());
        writer.block.extend(0u16.to_le_bytes());
        writer.block.extend(SECTION_LEN_UNKNOWN.to_le_bytes());
        writer.push_option(OPTION_USER_APPLICATION, b"lastmeter");
        writer.push_option(OPTION_END, &[]);
        writer.flush_block(BLOCK_SECTION)?;
        Ok(writer)
    }

    /// A classic pcap file with its only interface, number 0; at most `snap` bytes of each packet are kept.
    ///
    /// # Errors
    /// If the output fails.
    pub fn pcap(output: W, link_type: LinkType, snap: Bytes) -> Result<Writer<W>, CaptureError> {
        let mut writer = Writer::new(output, Form::Pcap);
        let snap = snap_len(snap);
        writer.snaps.push(snap);
        writer.block.extend(MAGIC_NS.to_le_bytes());
        writer.block.extend(VERSION.0.to_le_bytes());
        writer.block.extend(VERSION.1.to_le_bytes());
        writer.block.extend([0; 8]);
        writer.block.extend(snap.to_le_bytes());
        writer.block.extend(u32::from(link_type.0).to_le_bytes());
        writer.flush()?;
        Ok(writer)
    }

    fn new(output: W, form: Form) -> Writer<W> {
        let (snaps, block) = (Vec::new(), Vec::new());
        Writer { output, form, snaps, block, records: 0, offset: 0 }
    }

    /// Adds an interface that keeps at most `snap` bytes of each packet; returns its number.
    ///
    /// # Errors
    /// If the output fails, or for a pcap file, which has only its initial interface.
    pub fn add_interface(
        &mut self,
        link_type: LinkType,
        name: &str,
        snap: Bytes,
    ) -> Result<u32, CaptureError> {
        if self.form == Form::Pcap {
            let what = "a pcap file has one interface: write pcapng for several";
            return Err(CaptureError::Unsupported { what });
        }
        let number = self.snaps.len() as u32;
        let snap = snap_len(snap);
        self.snaps.push(snap);
        self.block.extend(link_type.0.to_le_bytes());
        self.block.extend(0u16.to_le_bytes());
        self.block.extend(snap.to_le_bytes());
        self.push_option(OPTION_NAME, &name.as_bytes()[..name.floor_char_boundary(NAME_LEN_MAX)]);
        self.push_option(OPTION_RESOLUTION, &[RESOLUTION_NS]);
        self.push_option(OPTION_END, &[]);
        self.flush_block(BLOCK_INTERFACE)?;
        Ok(number)
    }

    /// Writes one packet captured at `at`, `len_on_wire` long, of which `data` is available.
    ///
    /// # Errors
    /// If the output fails or the interface is unknown.
    pub fn write(
        &mut self,
        at: Time,
        interface: u32,
        len_on_wire: Bytes,
        data: &[u8],
    ) -> Result<(), CaptureError> {
        let Some(&snap) = self.snaps.get(interface as usize) else {
            return Err(CaptureError::Unsupported { what: "no such interface in this capture" });
        };
        let kept = &data[..data.len().min(snap as usize)];
        let wire = u32::try_from(len_on_wire.0.max(data.len() as u64)).unwrap_or(u32::MAX);
        let stamp = at.as_ps() / PS_PER_TICK;
        let (first, second) = match self.form {
            Form::Pcap => (stamp / 1_000_000_000, stamp % 1_000_000_000),
            Form::Pcapng => {
                self.block.extend(interface.to_le_bytes());
                (stamp >> 32, stamp & 0xffff_ffff)
            }
        };
        self.block.extend((first as u32).to_le_bytes());
        self.block.extend((second as u32).to_le_bytes());
        self.block.extend((kept.len() as u32).to_le_bytes());
        self.block.extend(wire.to_le_bytes());
        self.block.extend(kept);
        self.records += 1;
        match self.form {
            Form::Pcap => self.flush(),
            Form::Pcapng => self.flush_block(BLOCK_ENHANCED_PACKET),
        }
    }

    /// Flushes and returns the output.
    ///
    /// # Errors
    /// If the output fails.
    pub fn finish(mut self) -> Result<W, CaptureError> {
        let flushed = self.output.flush();
        flushed.map_err(|source| self.failed(source))?;
        Ok(self.output)
    }

    fn push_option(&mut self, code: u16, value: &[u8]) {
        self.block.extend(code.to_le_bytes());
        self.block.extend((value.len() as u16).to_le_bytes());
        self.block.extend(value);
        self.pad();
    }
    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    /// Wraps the collected bytes into a block of `kind` and writes it.
    fn flush_block(&mut self, kind: u32) -> Result<(), CaptureError> {
        self.pad();
        let len = self.block.len() as u32 + BLOCK_OVERHEAD;
        let mut head = [0; 8];
        head[..4].copy_from_slice(&kind.to_le_bytes());
        head[4..].copy_from_slice(&len.to_le_bytes());
        self.block.extend(len.to_le_bytes());
        let written = self.output.write_all(&head);
        written.map_err(|source| self.failed(source))?;
        self.offset += head.len() as u64;
        self.flush()
    }
    fn flush(&mut self) -> Result<(), CaptureError> {
        let written = self.output.write_all(&self.block);
        self.offset += self.block.len() as u64;
        self.block.clear();
        written.map_err(|source| self.failed(source))
    }
    fn failed(&self, source: std::io::Error) -> CaptureError {
        CaptureError::Io { record: self.records, offset: self.offset, source }
    }
}

fn snap_len(snap: Bytes) -> u32 {
    snap.0.min(RECORD_LEN_MAX as u64) as u32
}
