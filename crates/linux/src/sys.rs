//! System calls without a safe wrapper elsewhere, each behind a safe function.
//!
//! Everything else goes through `rustix` or `std`.
#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Room for `struct tcp_info` of future kernels; today's is 280 bytes.
pub(crate) const TCP_INFO_ROOM: usize = 512;

pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn counted(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// The control socket that the parent passed as standard input.
pub fn standard_input_socket() -> io::Result<OwnedFd> {
    rustix::io::dup(std::io::stdin().as_fd()).map_err(Into::into)
}

/// Sets a socket option to `value`, whose bytes are all initialised.
fn set<T: ?Sized>(fd: BorrowedFd<'_>, level: i32, name: i32, value: &T) -> io::Result<()> {
    let (at, len) = ((&raw const *value).cast(), size_of_val(value) as libc::socklen_t);
    // SAFETY: pointer and length are of the live value.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, at, len) })?;
    Ok(())
}

/// Reads a socket option into `value`, made of integers; returns how many bytes the kernel wrote.
fn get<T>(fd: BorrowedFd<'_>, level: i32, name: i32, value: &mut T) -> io::Result<usize> {
    let (at, mut len) = ((&raw mut *value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the pointer is to a live value and `len` is its size; the kernel writes no more.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, at, &mut len) })?;
    Ok(len as usize)
}

/// `getsockopt(TCP_INFO)`: the bytes that the kernel filled, at most [`TCP_INFO_ROOM`].
pub(crate) fn tcp_info(fd: BorrowedFd<'_>) -> io::Result<([u8; TCP_INFO_ROOM], usize)> {
    let mut buffer = [0u8; TCP_INFO_ROOM];
    let len = get(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut buffer)?;
    Ok((buffer, len))
}

/// When the kernel had the datagram that was read last from a socket, in nanoseconds of the real-time clock; `None` for
/// the first one, whose question makes the kernel keep it.
pub fn stamp(fd: BorrowedFd<'_>) -> Option<u64> {
    /// `SIOCGSTAMPNS_OLD`, with a `timespec` of the machine's words.
    const STAMP: libc::c_ulong = 0x8907;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live value of the type that this request writes.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), STAMP as _, &raw mut time) }).ok()?;
    let seconds = u64::try_from(time.tv_sec).ok().filter(|&seconds| seconds > 0)?;
    Some(seconds.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64))
}

/// Has an `epoll` poll for so many microseconds, of so many packets each, and prefer that to interrupts.
pub fn busy_poll(fd: BorrowedFd<'_>, lasts: u32, budget: u16) -> io::Result<()> {
    /// `EPIOCSPARAMS`, with a `struct epoll_params`.
    const SET: libc::c_ulong = 0x4008_8a01;
    let mut parameters = [0u8; 8];
    parameters[..4].copy_from_slice(&lasts.to_ne_bytes());
    parameters[4..6].copy_from_slice(&budget.to_ne_bytes());
    parameters[6] = 1;
    // SAFETY: the pointer is to eight live bytes, as many as this request reads.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), SET as _, parameters.as_ptr()) })?;
    Ok(())
}

/// Sets a socket option that is an `int`.
pub fn set_option(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    set(fd, level, name, &value)
}

/// Sets a socket option that is a string.
pub fn set_text(fd: BorrowedFd<'_>, level: i32, name: i32, value: &str) -> io::Result<()> {
    set(fd, level, name, value)
}

/// Sets a socket option that is a structure of words.
pub fn set_words(fd: BorrowedFd<'_>, level: i32, name: i32, words: &[u32]) -> io::Result<()> {
    set(fd, level, name, words)
}

/// Reads a socket option that is an `int`.
pub fn option(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    let mut value: i32 = 0;
    get(fd, level, name, &mut value)?;
    Ok(value)
}

/// Reads a socket option that is a short string.
pub fn text(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<String> {
    let mut bytes = [0u8; 64];
    let len = get(fd, level, name, &mut bytes)?;
    let text = bytes[..len.min(bytes.len())].split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// Reads a socket option of at most `N` words; returns how many the kernel wrote.
pub fn words<const N: usize>(
    fd: BorrowedFd<'_>,
    level: i32,
    name: i32,
) -> io::Result<([u32; N], usize)> {
    let mut words = [0u32; N];
    let len = get(fd, level, name, &mut words)?;
    Ok((words, len / size_of::<u32>()))
}

/// A socket of this kind that no program inherits.
pub(crate) fn socket(domain: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let raw = check(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: the descriptor was just returned by `socket` and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Binds a socket to an address of its family.
pub(crate) fn bind<T>(fd: BorrowedFd<'_>, address: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length are of the live address.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const *address).cast(), len) })?;
    Ok(())
}

/// A request about the interface of this name.
pub(crate) fn about(interface: &str) -> libc::ifreq {
    assert!(interface.len() < libc::IFNAMSIZ, "interface name `{interface}` is too long");
    // SAFETY: `ifreq` is plain data for which all-zero is a valid value.
    let mut request: libc::ifreq = unsafe { zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

/// `struct ethtool_value` of `linux/ethtool.h`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// One `SIOCETHTOOL` command with a single number.
pub(crate) fn ethtool(
    fd: BorrowedFd<'_>,
    interface: &str,
    command: u32,
    data: u32,
) -> io::Result<u32> {
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    let mut value = EthtoolValue { command, data };
    let mut request = about(interface);
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request and the value it points to live across the call; the single-number
    // commands read and write exactly one `ethtool_value`.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), SIOCETHTOOL as _, &mut request) })?;
    Ok(value.data)
}

/// A packet socket that sees every frame arriving at `index` and no departing one.
pub fn packet_socket(index: u32) -> io::Result<OwnedFd> {
    packet_socket_of(index, libc::ETH_P_ALL as u16)
}

/// A packet socket that sees the frames with this type of payload arriving at `index`.
pub(crate) fn packet_socket_of(index: u32, ethertype: u16) -> io::Result<OwnedFd> {
    /// `PACKET_IGNORE_OUTGOING` of `linux/if_packet.h`.
    const PACKET_IGNORE_OUTGOING: i32 = 23;
    let protocol = ethertype.to_be();
    let fd = socket(libc::AF_PACKET, libc::SOCK_RAW, protocol.into())?;
    set_option(fd.as_fd(), libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
    // SAFETY: `sockaddr_ll` is plain data for which all-zero is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol;
    address.sll_ifindex = index as i32;
    bind(fd.as_fd(), &address)?;
    Ok(fd)
}

/// CPU usage of the calling thread so far.
#[derive(Clone, Copy, Debug)]
pub struct ThreadUsage {
    /// Seconds in user mode.
    pub user: f64,
    /// Seconds in the kernel.
    pub system: f64,
    /// Voluntary context switches.
    pub voluntary: u64,
    /// Involuntary context switches.
    pub involuntary: u64,
}

/// `getrusage(RUSAGE_THREAD)`.
pub fn thread_usage() -> io::Result<ThreadUsage> {
    // SAFETY: `rusage` is plain data for which all-zero is a valid value.
    let mut usage: libc::rusage = unsafe { zeroed() };
    // SAFETY: the pointer is to a live `rusage`.
    check(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) })?;
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
    Ok(ThreadUsage {
        user: seconds(usage.ru_utime),
        system: seconds(usage.ru_stime),
        voluntary: usage.ru_nvcsw as u64,
        involuntary: usage.ru_nivcsw as u64,
    })
}

/// `recv(MSG_TRUNC)`: takes up to `len` bytes off a TCP socket without copying them anywhere.
pub fn receive_discard(fd: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
    // SAFETY: TCP with MSG_TRUNC never writes to the buffer (tcp(7)), so null is allowed.
    counted(unsafe { libc::recv(fd.as_raw_fd(), std::ptr::null_mut(), len, libc::MSG_TRUNC) })
}

/// `send(MSG_ZEROCOPY)`: the pages of `data` are referenced, not copied, until completion.
pub fn send_zero_copy(fd: BorrowedFd<'_>, data: &'static [u8]) -> io::Result<usize> {
    // SAFETY: the data is never freed or changed (`'static`), so it stays valid however long the
    // kernel refers to it.
    counted(unsafe {
        let flags = libc::MSG_ZEROCOPY | libc::MSG_NOSIGNAL;
        libc::send(fd.as_raw_fd(), data.as_ptr().cast(), data.len(), flags)
    })
}

/// The kernel's notification of finished zero-copy sends.
#[derive(Clone, Copy, Debug, Default)]
pub struct ZeroCopyDone {
    /// Sends reported finished.
    pub sends: u64,
    /// Of these, those whose data the kernel copied after all.
    pub copied: u64,
}

/// Takes one notification off the error queue, if there is one.
pub fn zero_copy_done(fd: BorrowedFd<'_>) -> io::Result<Option<ZeroCopyDone>> {
    /// `SO_EE_CODE_ZEROCOPY_COPIED` of `linux/errqueue.h`.
    const COPIED: u8 = 1;
    let mut control = [0u64; 32];
    // SAFETY: `msghdr` is plain data for which all-zero is a valid value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the header describes the live control buffer and no data buffer.
    let n = unsafe {
        libc::recvmsg(fd.as_raw_fd(), &mut message, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
    };
    if n < 0 {
        let error = io::Error::last_os_error();
        let nothing = error.kind() == io::ErrorKind::WouldBlock;
        return if nothing { Ok(None) } else { Err(error) };
    }
    // SAFETY: the kernel filled the header; CMSG_FIRSTHDR checks that a whole header is there.
    let header = unsafe { libc::CMSG_FIRSTHDR(&message) };
    if header.is_null() {
        return Ok(None);
    }
    // SAFETY: the first control message of an error queue is a `sock_extended_err` (ip(7)), and
    // the control buffer has room for it; it is read unaligned.
    let error =
        unsafe { libc::CMSG_DATA(header).cast::<libc::sock_extended_err>().read_unaligned() };
    let sends = u64::from(error.ee_data.wrapping_sub(error.ee_info)) + 1;
    Ok(Some(ZeroCopyDone { sends, copied: if error.ee_code == COPIED { sends } else { 0 } }))
}

/// `unshare`, for namespaces only.
pub fn unshare(flags: rustix::thread::UnshareFlags) -> io::Result<()> {
    use rustix::thread::UnshareFlags;
    assert!(
        (UnshareFlags::NEWUSER | UnshareFlags::NEWNET | UnshareFlags::NEWNS).contains(flags),
        "only namespaces: sharing of files or memory must stay as Rust expects it"
    );
    // SAFETY: with namespace flags alone no descriptor table and no memory becomes unshared.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(Into::into)
}

/// `SCHED_BATCH` for the calling thread: its wake-ups preempt nobody. Those of an idle thread do not either, and
/// without a right it may not leave its class (sched(7)).
pub fn schedule_as_batch() -> io::Result<()> {
    // SAFETY: takes no pointer.
    if unsafe { libc::sched_getscheduler(0) } == libc::SCHED_IDLE {
        return Ok(());
    }
    schedule(libc::SCHED_BATCH)
}

/// `SCHED_RR` at its lowest priority for the calling thread, before all that share cores in fair parts; or
/// `SCHED_OTHER` again. The first needs a right (sched(7)).
pub fn schedule_in_real_time(real_time: bool) -> io::Result<()> {
    match real_time {
        true => schedule_with(libc::SCHED_RR, 1),
        false => schedule(libc::SCHED_OTHER),
    }
}

/// A policy that takes no parameter, for the calling thread.
fn schedule(policy: libc::c_int) -> io::Result<()> {
    schedule_with(policy, 0)
}

fn schedule_with(policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    // SAFETY: `sched_param` is plain data for which all-zero is a valid value.
    let mut parameter: libc::sched_param = unsafe { zeroed() };
    parameter.sched_priority = priority;
    // SAFETY: the pointer is to a live `sched_param`; process id 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) })?;
    Ok(())
}

/// Maps `pages` fresh pages of `size` bytes and returns how long one write to each took.
pub fn touch_fresh_pages(pages: usize, size: usize) -> io::Result<std::time::Duration> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    let len = pages * size;
    // SAFETY: a new private mapping at an address of the kernel's choice overlaps nothing.
    let start = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    }?;
    // SAFETY: the range is the mapping; this advice changes no contents. A refusal means a kernel
    // without huge pages, where there is nothing to forbid.
    let _ = unsafe { madvise(start, len, Advice::LinuxNoHugepage) };
    let from = std::time::Instant::now();
    for page in 0..pages {
        // SAFETY: the byte lies within the mapping, which is writable and not referenced elsewhere.
        unsafe { start.cast::<u8>().add(page * size).write_volatile(1) };
    }
    let took = from.elapsed();
    // SAFETY: the mapping was made above and no pointer into it survives.
    unsafe { munmap(start, len) }?;
    Ok(took)
}

/// Makes the C library reserve the heap's next gibibyte at once, and requests huge pages there. It is only
/// address space until written. From then on the heap stays in one piece: memory freed at its end is
/// kept, and allocations up to 32 MiB come from it (the library's limit).
///
/// The library's own option, `glibc.malloc.hugetlb`, must be in the environment before a program starts.
#[cfg(target_env = "gnu")]
pub(crate) fn heap_in_huge_pages() -> io::Result<()> {
    use rustix::mm::{Advice, madvise};
    const ROOM: usize = 1 << 30;
    /// The default growth of a heap (`M_TOP_PAD` in mallopt(3)).
    const ROOM_USUAL: usize = 128 << 10;
    // SAFETY: no pointers; these options say how the library asks for memory, not where anything is.
    let set = |option, value: usize| unsafe { libc::mallopt(option, value as libc::c_int) };
    set(libc::M_MMAP_THRESHOLD, 32 << 20);
    set(libc::M_TRIM_THRESHOLD, usize::MAX);
    set(libc::M_TOP_PAD, ROOM);
    // More than a new heap has left, so that it grows; the new memory follows directly.
    let mut last: Vec<u8> = Vec::new();
    let grown = last.try_reserve_exact(8 * ROOM_USUAL);
    set(libc::M_TOP_PAD, ROOM_USUAL);
    grown.map_err(io::Error::other)?;
    let page = rustix::param::page_size();
    let start = last.as_mut_ptr().map_addr(|address| address.next_multiple_of(page));
    // SAFETY: this advice changes no contents, of whatever lies there.
    unsafe { madvise(start.cast(), ROOM, Advice::LinuxHugepage) }.map_err(Into::into)
}

/// Requests huge pages for whole pages of a block of memory.
pub(crate) fn request_huge_pages(block: *mut u8, len: usize) -> io::Result<()> {
    use rustix::mm::{Advice, madvise};
    let page = rustix::param::page_size();
    let start = block.map_addr(|address| address.next_multiple_of(page));
    let len = len.saturating_sub(start.addr() - block.addr()) / page * page;
    // SAFETY: this advice changes no contents, of whatever lies there.
    unsafe { madvise(start.cast(), len, Advice::LinuxHugepage) }.map_err(Into::into)
}

/// A set of cores in the kernel's form; made before `fork` because it may allocate.
fn core_set(cores: &[usize]) -> rustix::thread::CpuSet {
    let mut set = rustix::thread::CpuSet::new();
    cores.iter().for_each(|&core| set.set(core));
    set
}

/// Makes `command` run in the namespaces behind `joined`, in their order, on these cores, and end
/// with this process.
pub fn run_inside(command: &mut std::process::Command, joined: Vec<OwnedFd>, cores: &[usize]) {
    use std::os::unix::process::CommandExt;
    let set = core_set(cores);
    let enter = move || {
        rustix::thread::sched_setaffinity(None, &set)?;
        for fd in &joined {
            // SAFETY: no pointers; the process has one thread after `fork`.
            check(unsafe { libc::setns(fd.as_raw_fd(), 0) })?;
        }
        let kill = libc::SIGKILL as libc::c_ulong;
        // SAFETY: no pointers. It comes last because new credentials clear it.
        check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, kill, 0, 0, 0) })?;
        Ok(())
    };
    // SAFETY: between `fork` and `exec` the closure only makes system calls; it neither allocates
    // nor takes locks.
    unsafe { command.pre_exec(enter) };
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn an_idle_thread_stays_what_it_is() {
        let idle = std::thread::spawn(|| {
            schedule(libc::SCHED_IDLE).unwrap();
            schedule_as_batch().unwrap();
            // SAFETY: takes no pointer.
            unsafe { libc::sched_getscheduler(0) }
        });
        assert_eq!(idle.join().unwrap(), libc::SCHED_IDLE);
    }
}
