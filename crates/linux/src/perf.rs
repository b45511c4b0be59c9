//! The kernel's sampling clock: one event for each CPU, each with a ring of records that this process reads. And the
//! same events and rings for tracepoints, which [`crate::trace`] uses.
//!
//! Format: `linux/perf_event.h`, perf_event_open(2).
#![allow(unsafe_code)]

use crate::error::{Doing, Result};
use crate::files;
use crate::sys::check;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds of CPU time between two samples: near a millisecond, and a prime number of
/// microseconds, so that samples do not fall into step with the kernel's tick.
pub const PERIOD: u64 = 997_000;
/// Pages of a ring's records, a power of two: about a second of deep chains.
const PAGES: usize = 128;

/// `PERF_TYPE_SOFTWARE`, `PERF_COUNT_SW_CPU_CLOCK`.
const SOFTWARE: u32 = 1;
/// See [`SOFTWARE`].
const CPU_CLOCK: u64 = 0;
/// `PERF_TYPE_TRACEPOINT`.
const TRACEPOINT: u32 = 2;
/// Where the kernel describes its tracepoints.
const TRACEPOINTS: [&str; 2] = ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"];
/// `PERF_SAMPLE_TID`, `PERF_SAMPLE_CALLCHAIN`.
const SAMPLE: u64 = 1 << 1 | 1 << 5;
/// `disabled`, `exclude_hv`, `task` (records of forks), `exclude_callchain_user`.
const FLAGS: u64 = 1 | 1 << 6 | 1 << 13 | 1 << 22;
/// `inherit`.
const INHERIT: u64 = 1 << 1;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
/// `PERF_EVENT_IOC_ENABLE`, `PERF_EVENT_IOC_DISABLE`.
const ENABLE: libc::c_ulong = 0x2400;
/// See [`ENABLE`].
const DISABLE: libc::c_ulong = 0x2401;
/// Where `struct perf_event_mmap_page` has `data_head`; `data_tail` follows.
const DATA_HEAD: usize = 1024;

/// `PERF_EVENT_IOC_SET_OUTPUT`: the records go to another event's ring.
const SET_OUTPUT: libc::c_ulong = 0x2405;
/// `PERF_EVENT_IOC_SET_FILTER`: only events for which an expression holds.
const SET_FILTER: libc::c_ulong = 0x4008_2406;
/// `struct perf_event_attr`, its first version, which every kernel takes.
const SIZE_FIRST: u32 = 64;
/// The version with `clockid` (Linux 4.1).
const SIZE_WITH_CLOCK: u32 = 96;
/// `PERF_SAMPLE_TID`, `PERF_SAMPLE_TIME`, `PERF_SAMPLE_CPU`, `PERF_SAMPLE_RAW`.
const TRACE: u64 = 1 << 1 | 1 << 2 | 1 << 7 | 1 << 10;
/// `disabled`, `sample_id_all`, `use_clockid`.
const TRACE_FLAGS: u64 = 1 | 1 << 18 | 1 << 25;

/// `struct perf_event_attr`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    sample: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint: u32,
    address: u64,
    length: u64,
    branches: u64,
    registers: u64,
    stack: u32,
    clock: i32,
}

/// An event of a process or thread, on one CPU or (-1) on all.
fn open(attributes: &Attributes, pid: libc::pid_t, cpu: libc::c_int) -> io::Result<OwnedFd> {
    let at = &raw const *attributes;
    // SAFETY: the attributes are live and state their own size; the call keeps no pointer.
    let raw = unsafe {
        libc::syscall(libc::SYS_perf_event_open, at, pid, cpu, -1 as libc::c_int, CLOSE_ON_EXEC)
    };
    let raw = check(raw as libc::c_int)?;
    // SAFETY: the descriptor was just returned by the kernel and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// The number of a tracepoint, such as `syscalls/sys_enter_sendmsg`; `None` where there is none, or this user
/// may not read it.
pub fn tracepoint(name: &str) -> Option<u64> {
    String::from_utf8(about(name, "id", 64)?).ok()?.trim().parse().ok()
}

/// What the kernel's file of this name says about a tracepoint, if it is there and no longer than so many bytes.
pub(crate) fn about(name: &str, file: &str, most: usize) -> Option<Vec<u8>> {
    let path = |root: &&str| format!("{root}/{name}/{file}");
    TRACEPOINTS.iter().find_map(|root| files::read(path(root).as_ref(), most).ok())
}

/// Whether the kernel's descriptions of its tracepoints can be read.
pub(crate) fn are_readable() -> bool {
    TRACEPOINTS.iter().any(|root| std::fs::read_dir(root).is_ok())
}

/// How often a thread passes a tracepoint.
pub struct Passes(OwnedFd);

impl Passes {
    /// Counts from now on.
    ///
    /// # Errors
    /// Without the right to, or when the thread has ended.
    pub fn of(tracepoint: u64, thread: u32) -> io::Result<Passes> {
        let attributes = Attributes {
            kind: TRACEPOINT,
            size: SIZE_FIRST,
            config: tracepoint,
            ..Attributes::default()
        };
        open(&attributes, thread as libc::pid_t, -1).map(Passes)
    }

    /// Passes so far.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn count(&self) -> io::Result<u64> {
        let mut count = [0; 8];
        rustix::io::read(&self.0, &mut count)?;
        Ok(u64::from_ne_bytes(count))
    }
}

/// Whose time is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Everybody's on this CPU.
    Machine,
    /// That of this process and what it starts later.
    Process(u32),
}

/// An event on one CPU and its ring.
pub struct Event {
    fd: OwnedFd,
    ring: Ring,
}

impl Event {
    /// Opens it, not yet counting.
    pub fn open(whose: Whose, cpu: usize) -> io::Result<Event> {
        let (pid, more) = match whose {
            Whose::Machine => (-1, 0),
            Whose::Process(pid) => (pid as libc::pid_t, INHERIT),
        };
        let attributes = Attributes {
            kind: SOFTWARE,
            size: SIZE_FIRST,
            config: CPU_CLOCK,
            period: PERIOD,
            sample: SAMPLE,
            flags: FLAGS | more,
            ..Attributes::default()
        };
        let fd = open(&attributes, pid, cpu as libc::c_int)?;
        let ring = Ring::of(&fd, PAGES)?;
        Ok(Event { fd, ring })
    }

    /// Starts or stops counting.
    pub fn count(&self, on: bool) -> Result<()> {
        count(&self.fd, on).doing("switching the sampling clock")
    }

    /// Appends what the kernel has written since the last call to `into`: whole records.
    pub fn drain(&mut self, into: &mut Vec<u8>) {
        self.ring.drain(into);
    }
}

/// Starts or stops an event.
fn count(fd: &OwnedFd, on: bool) -> io::Result<()> {
    let request = if on { ENABLE } else { DISABLE };
    // SAFETY: these requests take no pointer.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request as _, 0) }).map(|_| ())
}

/// Each pass of a tracepoint as a record, with its time by the monotonic clock.
pub(crate) struct Traced(OwnedFd);

impl Traced {
    /// Opens it, not yet recording: of everybody on a CPU, or of the calling thread.
    pub(crate) fn open(tracepoint: u64, cpu: Option<usize>) -> io::Result<Traced> {
        let attributes = Attributes {
            kind: TRACEPOINT,
            size: SIZE_WITH_CLOCK,
            config: tracepoint,
            period: 1,
            sample: TRACE,
            flags: TRACE_FLAGS,
            clock: libc::CLOCK_MONOTONIC,
            ..Attributes::default()
        };
        let (pid, cpu) = cpu.map_or((0, -1), |cpu| (-1, cpu as libc::c_int));
        open(&attributes, pid, cpu).map(Traced)
    }

    /// Its own ring, of so many pages: a power of two.
    pub(crate) fn ring(&self, pages: usize) -> io::Result<Ring> {
        Ring::of(&self.0, pages)
    }

    /// Has it write to the ring of another of the same CPU.
    pub(crate) fn write_to(&self, other: &Traced) -> io::Result<()> {
        let other = other.0.as_raw_fd();
        // SAFETY: this request takes a descriptor, no pointer.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), SET_OUTPUT as _, other) }).map(|_| ())
    }

    /// Only what an expression of its fields holds for (the kernel's `Documentation/trace/events.rst`).
    pub(crate) fn filter(&self, expression: &CStr) -> io::Result<()> {
        let text = expression.as_ptr();
        // SAFETY: the text ends with a zero and lives across the call, which keeps no pointer.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), SET_FILTER as _, text) }).map(|_| ())
    }

    /// Starts or stops recording.
    pub(crate) fn count(&self, on: bool) -> io::Result<()> {
        count(&self.0, on)
    }
}

/// Records that the kernel writes and this process reads.
pub(crate) struct Ring {
    /// A page with the positions, then the records.
    at: *mut u8,
    len: usize,
    page: usize,
}

// SAFETY: the mapping belongs to this value alone, which is used by one thread at a time.
unsafe impl Send for Ring {}

impl Ring {
    /// That of an event, with so many pages of records.
    fn of(fd: &OwnedFd, pages: usize) -> io::Result<Ring> {
        let page = rustix::param::page_size();
        let len = (1 + pages) * page;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let at =
            unsafe { mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, fd.as_fd(), 0) }?;
        Ok(Ring { at: at.cast(), len, page })
    }

    fn position(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the first page of the ring has aligned 64-bit positions there, which live as long
        // as the mapping and are shared with the kernel, hence atomic.
        unsafe { AtomicU64::from_ptr(self.at.add(at).cast()) }
    }

    /// Appends what the kernel has written since the last call to `into`: whole records.
    pub(crate) fn drain(&mut self, into: &mut Vec<u8>) {
        let head = self.position(DATA_HEAD).load(Ordering::Acquire);
        let tail = self.position(DATA_HEAD + 8).load(Ordering::Relaxed);
        let room = self.len - self.page;
        let count = (head.wrapping_sub(tail) as usize).min(room);
        let from = tail as usize % room;
        let first = count.min(room - from);
        for (from, count) in [(from, first), (0, count - first)] {
            // SAFETY: the range lies within the records of the mapping, and the kernel writes none of
            // it before `data_tail` has passed.
            into.extend_from_slice(unsafe {
                std::slice::from_raw_parts(self.at.add(self.page + from), count)
            });
        }
        self.position(DATA_HEAD + 8).store(head, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `of` and no reference into it survives.
        let _ = unsafe { munmap(self.at.cast(), self.len) };
    }
}
