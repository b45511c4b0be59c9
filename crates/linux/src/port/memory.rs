//! Memory shared with the kernel, and the few system calls of ports, each behind a safe function.
#![allow(unsafe_code)]

use crate::sys::{self, check};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A mapping that the kernel reads and writes concurrently.
///
/// Words that both sides change are accessed as atomics. Bytes are only handed out while a word of the
/// ring says that they are ours, which the caller must ensure.
#[derive(Debug)]
pub(crate) struct Memory {
    start: *mut u8,
    len: usize,
    mapping: Arc<Mapping>,
}

/// What is mapped, until nobody uses it.
#[derive(Debug)]
struct Mapping {
    start: *mut u8,
    len: usize,
}

// SAFETY: the pointer is not tied to a thread. Where a mapping is shared, each byte is used by one thread at a time, as
// `Memory::share` demands.
unsafe impl Send for Memory {}
// SAFETY: nothing is reached through it but its removal.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Memory {
    /// Maps `len` bytes of a socket at `offset`, which names the ring.
    pub(crate) fn of_socket(fd: BorrowedFd<'_>, len: usize, offset: u64) -> io::Result<Memory> {
        Memory::map(len, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset)
    }

    /// Maps `len` bytes of a file at `offset`, which others may write, too.
    pub(crate) fn of_file(fd: BorrowedFd<'_>, len: usize, offset: u64) -> io::Result<Memory> {
        Memory::map(len, libc::MAP_SHARED, fd.as_raw_fd(), offset)
    }

    /// `len` bytes of fresh memory.
    pub(crate) fn anonymous(len: usize) -> io::Result<Memory> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        Memory::map(len, flags, -1, 0)
    }

    fn map(len: usize, flags: i32, fd: i32, offset: u64) -> io::Result<Memory> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, offset as libc::off_t)
        };
        match start == libc::MAP_FAILED {
            true => Err(io::Error::last_os_error()),
            false => {
                let start: *mut u8 = start.cast();
                Ok(Memory { start, len, mapping: Arc::new(Mapping { start, len }) })
            }
        }
    }

    /// The same memory for another thread. Both must agree on who uses which bytes: those that one hands over, by a
    /// channel or another means that orders memory, it does not use again until it gets them back.
    pub(crate) fn share(&self) -> Memory {
        Memory { start: self.start, len: self.len, mapping: self.mapping.clone() }
    }

    fn check(&self, at: usize, len: usize) {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len), "beyond the mapping");
    }

    /// Where a range begins.
    pub(crate) fn at(&self, at: usize, len: usize) -> *mut u8 {
        self.check(at, len);
        // SAFETY: the range lies within the mapping.
        unsafe { self.start.add(at) }
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        self.check(at, size_of::<u32>());
        assert!(at.is_multiple_of(size_of::<u32>()), "an atomic word is aligned");
        // SAFETY: the word lies within the mapping, is aligned because mappings begin at a page,
        // and is only ever reached as an atomic while it is shared.
        unsafe { AtomicU32::from_ptr(self.start.add(at).cast()) }
    }

    /// Reads a word that the kernel writes last (acquire): its earlier writes are visible afterwards.
    #[inline]
    pub(crate) fn acquire(&self, at: usize) -> u32 {
        self.word(at).load(Ordering::Acquire)
    }

    /// Writes a word that the kernel reads first (release): it sees our earlier writes.
    #[inline]
    pub(crate) fn release(&self, at: usize, value: u32) {
        self.word(at).store(value, Ordering::Release);
    }

    /// Bytes that the kernel has handed to us.
    #[inline]
    pub(crate) fn bytes(&self, at: usize, len: usize) -> &[u8] {
        self.check(at, len);
        // SAFETY: the range lies within the mapping; the ring's words, read with `acquire`, say
        // that the kernel does not write there until they are released.
        unsafe { std::slice::from_raw_parts(self.start.add(at), len) }
    }

    /// Bytes that the kernel has handed to us, to be changed.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        self.check(at, len);
        // SAFETY: as for `bytes`; `self` is borrowed alone, so no other reference of ours overlaps.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at), len) }
    }

    /// Copies into a range that the kernel does not use at present.
    #[inline]
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) {
        self.check(at, bytes.len());
        // SAFETY: the range lies within the mapping and `bytes` is not part of it, because `self`
        // is borrowed alone.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(at), bytes.len()) };
    }

    /// Its start address, to be given to the kernel.
    pub(crate) fn address(&self) -> u64 {
        self.start as u64
    }
    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map`, and no reference into it outlives the last `Memory`.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

/// Room for the headers of one call of `sendmmsg`.
pub struct Headers {
    vectors: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers inside are only read during `send_all`, which sets them anew.
unsafe impl Send for Headers {}

impl Headers {
    /// Room for `most` frames.
    pub fn new(most: usize) -> Headers {
        // SAFETY: both are plain data for which all-zero is a valid value.
        let (vector, message): (libc::iovec, libc::mmsghdr) = unsafe { (zeroed(), zeroed()) };
        Headers { vectors: vec![vector; most], messages: vec![message; most] }
    }

    /// `sendmmsg`: returns how many frames the kernel accepted.
    pub fn send_all(&mut self, fd: BorrowedFd<'_>, frames: &[Vec<u8>]) -> io::Result<usize> {
        let most = frames.len().min(self.vectors.len());
        let slots = self.vectors.iter_mut().zip(&mut self.messages);
        for ((vector, message), frame) in slots.zip(&frames[..most]) {
            vector.iov_base = frame.as_ptr().cast_mut().cast();
            vector.iov_len = frame.len();
            message.msg_hdr.msg_iov = vector;
            message.msg_hdr.msg_iovlen = 1;
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the first `most` headers were just made to describe live frames, which the kernel
        // only reads.
        let sent = check(unsafe {
            let messages = self.messages.as_mut_ptr();
            libc::sendmmsg(fd.as_raw_fd(), messages, most as u32, flags as _)
        })?;
        Ok(sent as usize)
    }
}

/// Room for the packets of one call of `recvmmsg`.
pub struct Incoming {
    buffers: Vec<Vec<u8>>,
    vectors: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers inside are only used during `receive`, which sets them anew.
unsafe impl Send for Incoming {}

impl Incoming {
    /// Room for `most` packets of `len` bytes; longer ones are cut.
    pub fn new(most: usize, len: usize) -> Incoming {
        // SAFETY: both are plain data for which all-zero is a valid value.
        let (vector, message): (libc::iovec, libc::mmsghdr) = unsafe { (zeroed(), zeroed()) };
        let buffers = vec![vec![0; len]; most];
        Incoming { buffers, vectors: vec![vector; most], messages: vec![message; most] }
    }

    /// `recvmmsg`: waits for the first packet up to the socket's timeout, and takes all available ones.
    /// Returns their number.
    pub fn receive(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let slots = self.vectors.iter_mut().zip(&mut self.messages);
        for ((vector, message), buffer) in slots.zip(&mut self.buffers) {
            vector.iov_base = buffer.as_mut_ptr().cast();
            vector.iov_len = buffer.len();
            message.msg_hdr.msg_iov = vector;
            message.msg_hdr.msg_iovlen = 1;
        }
        let (messages, most) = (self.messages.as_mut_ptr(), self.messages.len() as u32);
        // SAFETY: the headers were just made to describe live buffers, of which the kernel writes no
        // more than their lengths.
        let count = check(unsafe {
            let flags = libc::MSG_WAITFORONE;
            libc::recvmmsg(fd.as_raw_fd(), messages, most, flags as _, std::ptr::null_mut())
        })?;
        Ok(count as usize)
    }

    /// Packet `at` of the last call.
    pub fn packet(&self, at: usize) -> &[u8] {
        let len = self.messages[at].msg_len as usize;
        &self.buffers[at][..len.min(self.buffers[at].len())]
    }
}

/// `SIOCSIFFLAGS`-like requests of TAP: an `ifreq` with a name and 16 bits of flags.
pub(crate) fn tap_request(fd: BorrowedFd<'_>, name: &str, flags: u16) -> io::Result<()> {
    const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
    let mut request = sys::about(name);
    request.ifr_ifru.ifru_flags = flags as i16;
    // SAFETY: the request lives across the call, which reads and writes one `ifreq`.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETIFF as _, &mut request) })?;
    Ok(())
}

/// `TUNSETVNETHDRSZ`: bytes of the offload header.
pub(crate) fn tap_header_size(fd: BorrowedFd<'_>, size: i32) -> io::Result<()> {
    const TUNSETVNETHDRSZ: libc::c_ulong = 0x4004_54d8;
    // SAFETY: the pointer is to a live `int`, which the call reads.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETVNETHDRSZ as _, &raw const size) })?;
    Ok(())
}

/// `TUNSETOFFLOAD`: the offloads allowed in the frames that the interface gives us.
pub(crate) fn tap_offloads(fd: BorrowedFd<'_>, flags: libc::c_ulong) -> io::Result<()> {
    const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
    // SAFETY: the argument is a number, not a pointer.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETOFFLOAD as _, flags) })?;
    Ok(())
}

/// Binds an AF_XDP socket to queue 0 of interface `index`, in one of its modes; with the memory of `other`, if that
/// is its mode.
pub(crate) fn bind_xdp(
    fd: BorrowedFd<'_>,
    index: u32,
    mode: u16,
    other: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: mode,
        sxdp_ifindex: index,
        sxdp_queue_id: 0,
        sxdp_shared_umem_fd: other.map_or(0, |other| other.as_raw_fd() as u32),
    };
    sys::bind(fd, &address)
}

/// Makes a packet socket see every frame on `index`, whoever it is for.
pub(crate) fn promiscuous(fd: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    const PACKET_ADD_MEMBERSHIP: i32 = 1;
    const PACKET_MR_PROMISC: u16 = 1;
    // `struct packet_mreq`: index, type and address length in one word, eight bytes of address.
    let [low, high] = PACKET_MR_PROMISC.to_ne_bytes();
    let kind = u32::from_ne_bytes([low, high, 0, 0]);
    sys::set_words(fd, libc::SOL_PACKET, PACKET_ADD_MEMBERSHIP, &[index, kind, 0, 0])
}

/// A packet socket bound to `index`, as for the relay.
pub(crate) fn packet_socket(index: u32) -> io::Result<OwnedFd> {
    let fd = sys::packet_socket(index)?;
    promiscuous(fd.as_fd(), index)?;
    Ok(fd)
}

/// `bpf(2)` with an attribute of `N` 64-bit words; returns its result.
fn bpf<const N: usize>(command: i32, attribute: &mut [u64; N]) -> io::Result<i32> {
    let len = size_of_val(attribute);
    // SAFETY: pointer and length are of the live attribute; the pointers in it are of data that the
    // callers keep alive across the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attribute.as_mut_ptr(), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

/// `bpf(2)` for the commands that change something and return nothing.
pub(crate) fn bpf_change<const N: usize>(command: i32, attribute: &mut [u64; N]) -> io::Result<()> {
    bpf(command, attribute).map(|_| ())
}

/// `bpf(2)` for the commands that return a new descriptor.
pub(crate) fn bpf_new<const N: usize>(
    command: i32,
    attribute: &mut [u64; N],
) -> io::Result<OwnedFd> {
    let raw = bpf(command, attribute)?;
    // SAFETY: the commands used with this return a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}
