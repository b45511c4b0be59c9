//! What the messages add up to: memory that the device may reach, its configuration, its registers, its interrupts.
//! The registers are of a [`Function`]: of `simple-nic`, or of virtio.
//!
//! ```text
//! VERSION --> DMA_MAP ... --> GET_INFO, _REGION_INFO, _IRQ_INFO --> REGION_READ, _WRITE, SET_IRQS ... --> RESET
//! ```
//!
//! Descriptors are of any type `F`, so that tests and fuzzing need none. A request that makes no sense is answered with
//! an error and changes nothing.

use super::config::{BAR_SIZE, Config, PENDING, SIZE, TABLE};
use super::function::Function;
use super::message::{Access, DATA_MAX, Mapping, Request, Vectors, words};
use crate::device::Device;
use crate::memory::Memory;
use crate::socket::FDS_MAX;
use crate::vhost::message::Region;
use lastmeter_base::Time;
use lastmeter_linux::shared::Foreign;
use std::fmt;

/// Most ranges of memory; a guest of QEMU has about 20.
pub const MAPPINGS_MAX: usize = 256;
/// Regions of a PCI device: six BARs, ROM, configuration space, VGA.
const REGIONS: u32 = 9;
const BAR_0: u32 = 0;
pub(super) const CONFIG: u32 = 7;
/// Kinds of interrupts of a PCI device: pin, MSI, MSI-X, errors, requests.
const KINDS: u32 = 5;
const MSI_X: u32 = 2;

/// Flags of Linux's `vfio.h`.
const DEVICE_RESETS_PCI: u32 = 1 | 2;
const REGION_READ_WRITE: u32 = 1 | 2;
const IRQ_EVENTFD: u32 = 1;
const NO_DATA: u32 = 1;
const EVENTFDS: u32 = 4;
const TRIGGER: u32 = 32;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The versions do not agree, or there was none.
    Version(u16),
    /// A range of memory that cannot be used: why.
    Memory(String),
    /// A range of memory that is not there.
    Unknown(u64),
    /// More than [`MAPPINGS_MAX`] ranges.
    Full,
    /// A region or a kind of interrupts that the device does not have.
    Index(u32),
    /// Bytes that a region does not have, or more than [`DATA_MAX`].
    Access(Access),
    /// Interrupts that the device does not have, or cannot do so.
    Vectors(Vectors),
    /// Not as many descriptors as the message needs.
    Descriptors(usize),
    /// A command that was not offered.
    Command(u16),
}

const NOT_FOUND: u32 = 2;
pub(super) const INVALID: u32 = 22;
const NO_SPACE: u32 = 28;
const NOT_SUPPORTED: u32 = 95;

impl Wrong {
    /// The number of the error in Linux.
    pub fn number(&self) -> u32 {
        match self {
            Wrong::Unknown(_) => NOT_FOUND,
            Wrong::Full => NO_SPACE,
            Wrong::Command(_) => NOT_SUPPORTED,
            _ => INVALID,
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Version(major) => write!(f, "version {major} of the protocol"),
            Wrong::Memory(why) => write!(f, "a range of memory: {why}"),
            Wrong::Unknown(address) => write!(f, "no range of memory at {address:#x}"),
            Wrong::Full => write!(f, "more than {MAPPINGS_MAX} ranges of memory"),
            Wrong::Index(index) => write!(f, "number {index} of what the device has fewer"),
            Wrong::Access(Access { region, offset, count }) => {
                write!(f, "{count} bytes at {offset:#x} of region {region}")
            }
            Wrong::Vectors(Vectors { flags, index, start, count }) => {
                write!(f, "interrupts {start} and {count} more of kind {index}, flags {flags:#x}")
            }
            Wrong::Descriptors(count) => write!(f, "{count} file descriptors with a message"),
            Wrong::Command(number) => write!(f, "command {number}, which was not offered"),
        }
    }
}

impl std::error::Error for Wrong {}

/// How a range of memory and its descriptor become memory of this process.
pub type Map<'a, F> = &'a dyn Fn(&Region, &F) -> Result<Foreign, String>;

/// A session with one client.
#[derive(Debug)]
pub struct Session<F> {
    /// The version is agreed on.
    agreed: bool,
    memory: Memory,
    config: Config,
    function: Function,
    vectors: Vec<Option<F>>,
}

impl<F> Session<F> {
    /// Before the first message.
    pub fn new(function: Function) -> Session<F> {
        Session {
            agreed: false,
            memory: Memory::new(),
            config: function.config(),
            vectors: (0..function.vectors()).map(|_| None).collect(),
            function,
        }
    }

    /// Handles a request; returns the payload of its reply.
    ///
    /// # Errors
    /// It makes no sense.
    pub fn handle(
        &mut self,
        now: Time,
        request: &Request,
        descriptors: Vec<F>,
        map: Map<'_, F>,
        device: &mut Device,
    ) -> Result<Vec<u8>, Wrong> {
        if !self.agreed && !matches!(request, Request::Version { .. }) {
            return Err(Wrong::Version(0));
        }
        if !matches!(request, Request::Map(_) | Request::SetIrqs(_)) && !descriptors.is_empty() {
            return Err(Wrong::Descriptors(descriptors.len()));
        }
        device.advance(now, &self.memory);
        match request {
            Request::Version { major, .. } if self.agreed || *major != 0 => {
                Err(Wrong::Version(*major))
            }
            Request::Version { .. } => {
                self.agreed = true;
                Ok(version())
            }
            Request::Map(mapping) => self.map(mapping, &descriptors, map).map(|()| Vec::new()),
            &Request::Unmap { address, size, all } => {
                if !self.memory.remove(address, if all { u64::MAX } else { size }) && !all {
                    return Err(Wrong::Unknown(address));
                }
                Ok(request.emit().1)
            }
            Request::Info => Ok(words(&[16, DEVICE_RESETS_PCI, REGIONS, KINDS])),
            &Request::RegionInfo(index) if index < REGIONS => {
                let size = size_of(index);
                let flags = if size > 0 { REGION_READ_WRITE } else { 0 };
                Ok(words(&[32, flags, index, 0, size, 0, 0, 0]))
            }
            &Request::IrqInfo(index) if index < KINDS => {
                let (flags, count) = match index {
                    MSI_X => (IRQ_EVENTFD, self.vectors.len() as u32),
                    _ => (0, 0),
                };
                Ok(words(&[16, flags, index, count]))
            }
            &Request::RegionInfo(index) | &Request::IrqInfo(index) => Err(Wrong::Index(index)),
            Request::SetIrqs(vectors) => self.set_irqs(vectors, descriptors).map(|()| Vec::new()),
            Request::Read(access) => self.read(access, device),
            Request::Write(access, data) => {
                self.write(now, access, data, device)?;
                Ok(access.emit())
            }
            Request::Reset => {
                self.config = self.function.config();
                self.function.reset(device);
                Ok(Vec::new())
            }
            Request::Other(number) => Err(Wrong::Command(*number)),
        }
    }

    /// The memory that the device may reach.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Where a ring's interrupt, which is due, is reported.
    pub fn interrupt(&mut self, ring: usize) -> Option<&F> {
        let vector = self.function.interrupt(ring, &self.config)?;
        self.vectors.get(vector)?.as_ref()
    }

    /// Where it is reported that the device needs a reset, if it has come to that since the last call.
    pub fn trouble(&mut self, device: &Device) -> Option<&F> {
        let vector = self.function.trouble(device)?;
        self.vectors.get(vector)?.as_ref()
    }

    /// Ends all that runs.
    pub fn end(&mut self, device: &mut Device) {
        self.function.reset(device);
        self.agreed = false;
        self.memory = Memory::new();
        self.config = self.function.config();
        self.vectors.fill_with(|| None);
    }

    fn map(&mut self, mapping: &Mapping, fds: &[F], map: Map<'_, F>) -> Result<(), Wrong> {
        let &Mapping { writable, offset, address, size } = mapping;
        let wrong = |what: &str| Wrong::Memory(what.to_owned());
        if size == 0 || address.checked_add(size).is_none() {
            return Err(wrong("no bytes, or more than there are addresses"));
        }
        if self.memory.overlaps(address, size) {
            return Err(wrong("some of it is mapped already"));
        }
        if self.memory.count() >= MAPPINGS_MAX {
            return Err(Wrong::Full);
        }
        let region = Region { guest: address, size, user: 0, offset };
        match fds {
            // A ROM, or what can only be reached by messages: the device does without.
            [] => self.memory.reserve(region),
            [_] if !writable => self.memory.reserve(region),
            [descriptor] => {
                let mapped = map(&region, descriptor).map_err(Wrong::Memory)?;
                if !self.memory.add(region, mapped) {
                    return Err(wrong("another length than stated"));
                }
            }
            more => return Err(Wrong::Descriptors(more.len())),
        }
        Ok(())
    }

    fn set_irqs(&mut self, vectors: &Vectors, fds: Vec<F>) -> Result<(), Wrong> {
        let &Vectors { flags, index, start, count } = vectors;
        if index >= KINDS {
            return Err(Wrong::Index(index));
        }
        let there = if index == MSI_X { self.vectors.len() as u64 } else { 0 };
        let fits = u64::from(start) + u64::from(count) <= there;
        let given = fds.len();
        match flags {
            // All are taken away.
            _ if flags == NO_DATA | TRIGGER && count == 0 && given == 0 => {
                if index == MSI_X {
                    self.vectors.fill_with(|| None);
                }
            }
            _ if flags == EVENTFDS | TRIGGER && fits => {
                if given != 0 && given != count as usize {
                    return Err(Wrong::Descriptors(given));
                }
                let mut fds = fds.into_iter();
                let chosen = self.vectors.iter_mut().skip(start as usize).take(count as usize);
                chosen.for_each(|vector| *vector = fds.next());
            }
            _ => return Err(Wrong::Vectors(*vectors)),
        }
        Ok(())
    }

    fn read(&mut self, access: &Access, device: &Device) -> Result<Vec<u8>, Wrong> {
        let &Access { region, offset, count } = access;
        check(access)?;
        let through = self.function.window(&self.config, access);
        let data = match (region, through) {
            (CONFIG, None) => {
                let bytes = self.config.read(offset, count as usize);
                bytes.ok_or(Wrong::Access(*access))?.to_vec()
            }
            (_, through) => self.function.read(through.unwrap_or(offset), count as usize, device),
        };
        Ok([access.emit(), data].concat())
    }

    fn write(
        &mut self,
        now: Time,
        access: &Access,
        data: &[u8],
        device: &mut Device,
    ) -> Result<(), Wrong> {
        check(access)?;
        let master = self.config.is_master();
        let through = self.function.window(&self.config, access);
        if let (CONFIG, None) = (access.region, through) {
            self.config.write(access.offset, data).ok_or(Wrong::Access(*access))?;
            if master && !self.config.is_master() {
                self.function.halt(device);
            }
            return Ok(());
        }
        let offset = through.unwrap_or(access.offset);
        // A table of MSI-X is the client's: interrupts are reported where it says.
        if (u64::from(TABLE)..u64::from(PENDING) * 2).contains(&offset) {
            return Ok(());
        }
        let done = self.function.write(now, (offset, data), master, device, &self.memory);
        if done { Ok(()) } else { Err(Wrong::Access(*access)) }
    }
}

/// What the device can do, as JSON that ends in a zero.
fn version() -> Vec<u8> {
    let limits = format!(
        "{{\"capabilities\":{{\"max_msg_fds\":{FDS_MAX},\"max_data_xfer_size\":{DATA_MAX},\
         \"max_dma_maps\":{MAPPINGS_MAX}}}}}\0"
    );
    [&[0; 4], limits.as_bytes()].concat()
}

fn size_of(region: u32) -> u32 {
    match region {
        BAR_0 => BAR_SIZE,
        CONFIG => SIZE as u32,
        _ => 0,
    }
}

/// Whether the region has these bytes.
fn check(access: &Access) -> Result<(), Wrong> {
    let &Access { region, offset, count } = access;
    let end = offset.checked_add(count.into());
    let inside = end.is_some_and(|end| end <= size_of(region).into());
    if inside && count as usize <= DATA_MAX { Ok(()) } else { Err(Wrong::Access(*access)) }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
