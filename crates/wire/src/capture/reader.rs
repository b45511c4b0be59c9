//! Reading captures, one record at a time.

use super::pcap::{FILE_HEADER_REST_LEN, MAGIC_NS, MAGIC_US, RECORD_HEADER_LEN, VERSION};
use super::pcapng::{
    BLOCK_ENHANCED_PACKET, BLOCK_INTERFACE, BLOCK_OLD_PACKET, BLOCK_OVERHEAD, BLOCK_SECTION,
    BLOCK_SIMPLE_PACKET, BYTE_ORDER_MAGIC, INTERFACE_FIXED_LEN, OPTION_END, OPTION_NAME,
    OPTION_OFFSET, OPTION_RESOLUTION, PACKET_FIXED_LEN, SECTION_FIXED_LEN, TICKS_DEFAULT,
    VERSION_MAJOR,
};
use super::{
    CaptureError, INTERFACES_MAX, Interface, LinkType, OPTIONS_LEN_MAX, RECORD_LEN_MAX, Record,
};
use lastmeter_base::{Bytes, Duration};
use std::io::{BufRead, BufReader, ErrorKind, Read};

/// Up to this many bytes are allocated before they have been read, since most packets are short; beyond that, the
/// buffer grows as data arrives.
const TRUSTED_LEN: usize = 16_384;

/// Reads a capture from first to last record.
///
/// After an error the iterator ends: after a corrupt length nothing can be trusted.
#[derive(Debug)]
pub struct Reader<R> {
    input: Input<R>,
    form: Form,
    interfaces: Vec<Interface>,
    /// Index of the current section's first interface: each section numbers its interfaces from 0.
    section_start: usize,
    /// Time of the first record in picoseconds of the capture's epoch.
    first: Option<i128>,
    /// Time of the last record; a record without a timestamp has the same.
    last: Duration,
    ended: bool,
    /// Records with earlier timestamps than the first, whose time was set to zero.
    pub backwards: u64,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    Pcap(Order),
    Pcapng(Order),
}

/// The byte order of the machine that wrote the file.
#[derive(Clone, Copy, Debug)]
enum Order {
    Little,
    Big,
}

impl Order {
    fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Order::Little => u16::from_le_bytes(bytes),
            Order::Big => u16::from_be_bytes(bytes),
        }
    }
    fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Order::Little => u32::from_le_bytes(bytes),
            Order::Big => u32::from_be_bytes(bytes),
        }
    }
    fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Order::Little => u64::from_le_bytes(bytes),
            Order::Big => u64::from_be_bytes(bytes),
        }
    }
    /// `N / 4` words of 32 bits.
    fn words<const N: usize, const W: usize>(self, bytes: [u8; N]) -> [u32; W] {
        let mut words = [0; W];
        let (chunks, _) = bytes.as_chunks::<4>();
        words.iter_mut().zip(chunks).for_each(|(word, &chunk)| *word = self.u32(chunk));
        words
    }
}

impl<R: Read> Reader<R> {
    /// Reads up to the first interface.
    ///
    /// # Errors
    /// If the input is not a capture, ends too early, or describes no interface.
    pub fn open(input: R) -> Result<Reader<R>, CaptureError> {
        let mut input = Input { inner: BufReader::new(input), offset: 0, item: 0, record: 1 };
        let magic: [u8; 4] = input.array()?;
        let little = u32::from_le_bytes(magic);
        let order = match little {
            MAGIC_US | MAGIC_NS => Order::Little,
            _ => Order::Big,
        };
        let form = match (little, little.swap_bytes()) {
            (BLOCK_SECTION, _) => Form::Pcapng(order),
            (MAGIC_US | MAGIC_NS, _) | (_, MAGIC_US | MAGIC_NS) => Form::Pcap(order),
            _ => return Err(CaptureError::NotACapture { magic }),
        };
        let mut reader = Reader {
            input,
            form,
            interfaces: Vec::new(),
            section_start: 0,
            first: None,
            last: Duration::ZERO,
            ended: false,
            backwards: 0,
        };
        match form {
            Form::Pcap(order) => reader.read_file_header(order, order.u32(magic) == MAGIC_NS)?,
            Form::Pcapng(_) => {
                reader.read_section()?;
                reader.read_to_first_interface()?;
            }
        }
        Ok(reader)
    }

    /// The interfaces read so far; a pcap file has exactly one.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }
    /// Link type of the first interface. Others may differ: see [`Reader::interfaces`].
    pub fn link_type(&self) -> LinkType {
        self.interfaces[0].link_type
    }
    /// Records read so far.
    pub fn records(&self) -> u64 {
        self.input.record - 1
    }

    /// Reads the next record into `record`, reusing its memory. Returns `false` at the end of the file.
    ///
    /// # Errors
    /// If the file is malformed here; reading cannot continue.
    pub fn read(&mut self, record: &mut Record) -> Result<bool, CaptureError> {
        if self.ended {
            return Ok(false);
        }
        let read = match self.form {
            Form::Pcap(order) => self.read_pcap(order, record),
            Form::Pcapng(_) => self.read_pcapng(record),
        };
        match read {
            Ok(true) => self.input.record += 1,
            Ok(false) | Err(_) => self.ended = true,
        }
        read
    }

    fn read_file_header(&mut self, order: Order, nanoseconds: bool) -> Result<(), CaptureError> {
        let [version, _zone, _figures, _snap, link] =
            order.words::<FILE_HEADER_REST_LEN, 5>(self.input.array()?);
        let (major, minor) = match order {
            Order::Little => (version & 0xffff, version >> 16),
            Order::Big => (version >> 16, version & 0xffff),
        };
        if major != u32::from(VERSION.0) {
            return Err(self.input.malformed("the major version must be 2", major));
        }
        if minor > u32::from(VERSION.1) {
            return Err(self.input.malformed("the minor version must be at most 4", minor));
        }
        self.interfaces.push(Interface {
            // The upper half indicates a frame check sequence, which no record here has.
            link_type: LinkType((link & 0xffff) as u16),
            name: None,
            ticks_per_second: if nanoseconds { 1_000_000_000 } else { 1_000_000 },
            offset: 0,
        });
        Ok(())
    }

    fn read_pcap(&mut self, order: Order, record: &mut Record) -> Result<bool, CaptureError> {
        if self.input.is_at_end()? {
            return Ok(false);
        }
        let [seconds, fraction, captured, wire] =
            order.words::<RECORD_HEADER_LEN, 4>(self.input.array()?);
        let ticks = self.interfaces[0].ticks_per_second;
        // Fractions of a second or more occur in old files, and are taken literally.
        let stamp = u64::from(seconds) * ticks + u64::from(fraction);
        self.read_data(captured, record)?;
        self.stamp(record, 0, stamp)?;
        record.len_on_wire = Bytes(wire.max(captured).into());
        Ok(true)
    }

    fn read_pcapng(&mut self, record: &mut Record) -> Result<bool, CaptureError> {
        while !self.input.is_at_end()? {
            let kind: [u8; 4] = self.input.array()?;
            if u32::from_le_bytes(kind) == BLOCK_SECTION {
                self.read_section()?;
                continue;
            }
            let order = self.order();
            let len = self.read_block_len(order)?;
            let body = len - BLOCK_OVERHEAD;
            match order.u32(kind) {
                BLOCK_INTERFACE => self.read_interface(order, body)?,
                BLOCK_ENHANCED_PACKET => self.read_packet(order, body, false, record)?,
                BLOCK_OLD_PACKET => self.read_packet(order, body, true, record)?,
                BLOCK_SIMPLE_PACKET => self.read_simple_packet(order, body, record)?,
                _ => self.input.skip(body.into())?,
            }
            self.read_block_end(order, len)?;
            let packets = [BLOCK_ENHANCED_PACKET, BLOCK_OLD_PACKET, BLOCK_SIMPLE_PACKET];
            if packets.contains(&order.u32(kind)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads blocks until one describes an interface, so that the link type is known from the start.
    fn read_to_first_interface(&mut self) -> Result<(), CaptureError> {
        while self.interfaces.is_empty() {
            if self.input.is_at_end()? {
                return Err(self.input.malformed("a capture must describe an interface", 0u8));
            }
            let kind: [u8; 4] = self.input.array()?;
            if u32::from_le_bytes(kind) == BLOCK_SECTION {
                self.read_section()?;
                continue;
            }
            let order = self.order();
            let len = self.read_block_len(order)?;
            match order.u32(kind) {
                BLOCK_INTERFACE => self.read_interface(order, len - BLOCK_OVERHEAD)?,
                BLOCK_ENHANCED_PACKET | BLOCK_OLD_PACKET | BLOCK_SIMPLE_PACKET => {
                    let what = "an interface must be described before its first packet";
                    return Err(self.input.malformed(what, order.u32(kind)));
                }
                _ => self.input.skip((len - BLOCK_OVERHEAD).into())?,
            }
            self.read_block_end(order, len)?;
        }
        Ok(())
    }

    fn order(&self) -> Order {
        match self.form {
            Form::Pcap(order) | Form::Pcapng(order) => order,
        }
    }

    /// Reads the rest of a section header, whose type has been read.
    fn read_section(&mut self) -> Result<(), CaptureError> {
        let len: [u8; 4] = self.input.array()?;
        let magic: [u8; 4] = self.input.array()?;
        let order = match (u32::from_le_bytes(magic), u32::from_be_bytes(magic)) {
            (BYTE_ORDER_MAGIC, _) => Order::Little,
            (_, BYTE_ORDER_MAGIC) => Order::Big,
            (other, _) => {
                return Err(self.input.malformed("the byte-order magic is wrong", other));
            }
        };
        let len = self.check_block_len(order.u32(len))?;
        let Some(options) = (len - BLOCK_OVERHEAD).checked_sub(SECTION_FIXED_LEN as u32) else {
            return Err(self.input.malformed("a section header must be 28 bytes or more", len));
        };
        let [m0, m1, ..]: [u8; SECTION_FIXED_LEN - 4] = self.input.array()?;
        let major = order.u16([m0, m1]);
        if major != VERSION_MAJOR {
            return Err(self.input.malformed("the major version must be 1", major));
        }
        self.input.skip(options.into())?;
        self.form = Form::Pcapng(order);
        self.section_start = self.interfaces.len();
        self.read_block_end(order, len)
    }

    fn read_block_len(&mut self, order: Order) -> Result<u32, CaptureError> {
        let len = order.u32(self.input.array()?);
        self.check_block_len(len)
    }
    fn check_block_len(&self, len: u32) -> Result<u32, CaptureError> {
        if !len.is_multiple_of(4) {
            return Err(self.input.malformed("a block must be a multiple of 4 bytes long", len));
        }
        if len < BLOCK_OVERHEAD {
            return Err(self.input.malformed("a block must be 12 bytes or more", len));
        }
        Ok(len)
    }
    fn read_block_end(&mut self, order: Order, len: u32) -> Result<(), CaptureError> {
        let again = order.u32(self.input.array()?);
        if again != len {
            let what = "a block's trailing length must equal its leading one";
            return Err(self.input.malformed(what, again));
        }
        Ok(())
    }

    fn read_interface(&mut self, order: Order, body: u32) -> Result<(), CaptureError> {
        if self.interfaces.len() >= INTERFACES_MAX {
            let what = "a capture may describe at most 4096 interfaces";
            return Err(self.input.malformed(what, INTERFACES_MAX as u64 + 1));
        }
        let Some(options_len) = (body as usize).checked_sub(INTERFACE_FIXED_LEN) else {
            return Err(self.input.malformed("an interface must be 20 bytes or more", body));
        };
        if options_len > OPTIONS_LEN_MAX {
            return Err(self.input.too_long(options_len as u64, OPTIONS_LEN_MAX));
        }
        let [l0, l1, ..]: [u8; INTERFACE_FIXED_LEN] = self.input.array()?;
        let mut options = Vec::new();
        self.input.fill(&mut options, options_len)?;
        let mut interface = Interface {
            link_type: LinkType(order.u16([l0, l1])),
            name: None,
            ticks_per_second: TICKS_DEFAULT,
            offset: 0,
        };
        self.read_options(order, &options, &mut interface)?;
        self.interfaces.push(interface);
        Ok(())
    }

    fn read_options(
        &self,
        order: Order,
        mut rest: &[u8],
        interface: &mut Interface,
    ) -> Result<(), CaptureError> {
        while let Some((&[c0, c1, l0, l1], after)) = rest.split_first_chunk::<4>() {
            let (code, len) = (order.u16([c0, c1]), usize::from(order.u16([l0, l1])));
            let Some(value) = after.get(..len) else {
                return Err(self.input.malformed("an option runs past its block", len as u32));
            };
            match (code, value) {
                (OPTION_END, _) => break,
                (OPTION_NAME, name) => {
                    interface.name = Some(String::from_utf8_lossy(name).into_owned());
                }
                (OPTION_RESOLUTION, &[resolution, ..]) => {
                    interface.ticks_per_second = ticks_per_second(resolution).ok_or_else(|| {
                        let what = "a clock may have at most 10^19 or 2^63 ticks per second";
                        self.input.malformed(what, resolution)
                    })?;
                }
                (OPTION_OFFSET, value) => {
                    if let Some(&offset) = value.first_chunk::<8>() {
                        interface.offset = order.u64(offset).cast_signed();
                    }
                }
                _ => {}
            }
            // The padding of the last option may be missing if nothing follows.
            rest = after.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        }
        Ok(())
    }

    fn read_packet(
        &mut self,
        order: Order,
        body: u32,
        old: bool,
        record: &mut Record,
    ) -> Result<(), CaptureError> {
        if (body as usize) < PACKET_FIXED_LEN {
            return Err(self.input.malformed("a packet block must be 32 bytes or more", body));
        }
        let fixed: [u8; PACKET_FIXED_LEN] = self.input.array()?;
        let [interface, high, low, captured, wire] = order.words::<PACKET_FIXED_LEN, 5>(fixed);
        // The old form has a drop count in the second half of the field.
        let number = if old { order.u16([fixed[0], fixed[1]]).into() } else { interface };
        let index = self.interface_index(number)?;
        self.read_packet_data(captured, body - PACKET_FIXED_LEN as u32, record)?;
        self.stamp(record, index, u64::from(high) << 32 | u64::from(low))?;
        record.len_on_wire = Bytes(wire.max(captured).into());
        Ok(())
    }

    fn read_simple_packet(
        &mut self,
        order: Order,
        body: u32,
        record: &mut Record,
    ) -> Result<(), CaptureError> {
        let index = self.interface_index(0)?;
        let Some(room) = body.checked_sub(4) else {
            return Err(self.input.malformed("a simple packet must be 16 bytes or more", body));
        };
        let wire = order.u32(self.input.array()?);
        // The captured length is not stated: it is the whole packet or as much as the block contains.
        self.read_packet_data(wire.min(room), room, record)?;
        record.interface = index;
        record.since_first = self.last;
        record.len_on_wire = Bytes(wire.into());
        Ok(())
    }

    /// Reads `captured` bytes, then skips padding and options up to `left`.
    fn read_packet_data(
        &mut self,
        captured: u32,
        left: u32,
        record: &mut Record,
    ) -> Result<(), CaptureError> {
        let Some(after) = left.checked_sub(captured) else {
            return Err(self.input.malformed("a packet is longer than its block", captured));
        };
        self.read_data(captured, record)?;
        self.input.skip(after.into())
    }

    fn read_data(&mut self, captured: u32, record: &mut Record) -> Result<(), CaptureError> {
        if captured as usize > RECORD_LEN_MAX {
            return Err(self.input.too_long(captured.into(), RECORD_LEN_MAX));
        }
        self.input.fill(&mut record.data, captured as usize)
    }

    fn interface_index(&self, number: u32) -> Result<u32, CaptureError> {
        let known = self.interfaces.len() - self.section_start;
        if number as usize >= known {
            return Err(self.input.malformed("a packet names an unknown interface", number));
        }
        Ok(self.section_start as u32 + number)
    }

    fn stamp(&mut self, record: &mut Record, index: u32, stamp: u64) -> Result<(), CaptureError> {
        let at = self.interfaces[index as usize].picoseconds(stamp);
        let first = *self.first.get_or_insert(at);
        if at < first {
            self.backwards += 1;
        }
        let Ok(since) = u64::try_from((at - first).max(0)) else {
            let what = "a record must lie within 213 days of the first; its clock reads";
            return Err(self.input.malformed(what, stamp));
        };
        record.interface = index;
        record.since_first = Duration::from_ps(since);
        self.last = record.since_first;
        Ok(())
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record, CaptureError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut record = Record::default();
        self.read(&mut record).map(|found| found.then_some(record)).transpose()
    }
}

/// The value of an `if_tsresol` option, unless it is too fine for 64 bits.
fn ticks_per_second(resolution: u8) -> Option<u64> {
    const BASE_TWO: u8 = 0x80;
    let exponent = u32::from(resolution & !BASE_TWO);
    if resolution & BASE_TWO == 0 {
        10u64.checked_pow(exponent)
    } else {
        1u64.checked_shl(exponent)
    }
}

/// The bytes of the file, with the position for errors.
#[derive(Debug)]
struct Input<R> {
    inner: BufReader<R>,
    /// Bytes consumed.
    offset: u64,
    /// Where the current record or block started.
    item: u64,
    /// The record being read, from 1.
    record: u64,
}

impl<R: Read> Input<R> {
    /// Whether the file ends here, between items; otherwise a new item starts.
    fn is_at_end(&mut self) -> Result<bool, CaptureError> {
        self.item = self.offset;
        loop {
            match self.inner.fill_buf() {
                Ok(bytes) => return Ok(bytes.is_empty()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CaptureError> {
        let mut bytes = [0; N];
        self.inner.read_exact(&mut bytes).map_err(|error| self.failed(error))?;
        self.offset += N as u64;
        Ok(bytes)
    }

    /// Reads the next `len` bytes into `data`; the caller has checked `len` against its limit.
    fn fill(&mut self, data: &mut Vec<u8>, len: usize) -> Result<(), CaptureError> {
        data.clear();
        if len <= TRUSTED_LEN {
            data.resize(len, 0);
            self.inner.read_exact(data).map_err(|error| self.failed(error))?;
        } else {
            let read = (&mut self.inner).take(len as u64).read_to_end(data);
            if read.map_err(|error| self.failed(error))? < len {
                return Err(CaptureError::Truncated { record: self.record, offset: self.item });
            }
        }
        self.offset += len as u64;
        Ok(())
    }

    /// Skips `len` bytes without storing them.
    fn skip(&mut self, len: u64) -> Result<(), CaptureError> {
        let passed = std::io::copy(&mut (&mut self.inner).take(len), &mut std::io::sink());
        let passed = passed.map_err(|error| self.failed(error))?;
        self.offset += passed;
        if passed < len {
            return Err(CaptureError::Truncated { record: self.record, offset: self.item });
        }
        Ok(())
    }

    fn failed(&self, source: std::io::Error) -> CaptureError {
        let (record, offset) = (self.record, self.item);
        match source.kind() {
            ErrorKind::UnexpectedEof => CaptureError::Truncated { record, offset },
            _ => CaptureError::Io { record, offset, source },
        }
    }
    fn malformed(&self, what: &'static str, found: impl Into<u64>) -> CaptureError {
        let (record, offset) = (self.record, self.item);
        CaptureError::Malformed { record, offset, what, found: found.into() }
    }
    fn too_long(&self, len: u64, limit: usize) -> CaptureError {
        let (record, offset) = (self.record, self.item);
        CaptureError::TooLong { record, offset, len, limit: limit as u64 }
    }
}
