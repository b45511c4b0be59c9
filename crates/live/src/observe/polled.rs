//! What a thread waits for in poll(2), select(2) or epoll_wait(2).
//!
//! ```text
//! /proc/PID/task/TID/syscall   which call, and its arguments
//! /proc/PID/mem                the descriptors that poll and select are given
//! /proc/PID/fdinfo/EPFD        those of an epoll
//! /proc/PID/fd/FD              what each is
//! ```
//!
//! The same rights read all of them (ptrace(2), "access mode checking"). Only the lists of descriptors are read.

use super::pipes::Ends;
use super::processes::State;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// The most descriptors of a call that are looked at; of more it is not known what they are.
const DESCRIPTORS_MAX: usize = 64;
/// The most sockets whose kind is remembered.
const SOCKETS_MAX: usize = 4096;
/// `struct pollfd`: the descriptor, what is asked for, what is answered.
const POLLFD: usize = 8;
/// `POLLIN` and `EPOLLIN`, `POLLOUT` and `EPOLLOUT`.
const IN: u32 = 1;
const OUT: u32 = 4;
/// The greatest descriptor of select(2) and one.
const SETSIZE: u64 = 1024;

/// What is known of descriptors from elsewhere.
pub(super) struct Known<'a> {
    /// The ends of pipes that each process holds.
    pub(super) pipes: &'a BTreeMap<u32, Ends>,
    /// Sockets by inode, and whether they are of this host alone (`AF_UNIX`).
    pub(super) local: &'a mut BTreeMap<u32, bool>,
}

/// What one call waits for.
#[derive(Debug, Default, PartialEq)]
struct Wanted {
    /// Data or room in a pipe to another process.
    pipe: (bool, bool),
    /// Data or room in a socket of the network.
    socket: (bool, bool),
    /// Anything else.
    other: bool,
    /// It waits only until a time.
    timeout: bool,
}

impl Wanted {
    fn state(&self) -> State {
        match self {
            Wanted { pipe: (false, false), socket: (false, false), timeout: true, .. } => {
                State::Timer
            }
            Wanted { pipe: (true, false), socket: (false, false), other: false, .. } => {
                State::PipeRead
            }
            Wanted { pipe: (true, false), socket: (_, false), .. } => State::PipeOrSocket,
            Wanted { pipe: (false, true), socket: (false, false), other: false, .. } => {
                State::PipeWrite
            }
            _ => State::Poll,
        }
    }
}

/// Where a thread of `pid` sleeps whose call is `number` with these arguments; [`State::Poll`] where that is not known.
pub(super) fn state(pid: u32, number: i64, arguments: [u64; 5], known: &mut Known<'_>) -> State {
    let Some((descriptors, timeout)) = call(pid, number, arguments) else { return State::Poll };
    if descriptors.len() > DESCRIPTORS_MAX {
        return State::Poll;
    }
    let mut wanted = Wanted { timeout, ..Wanted::default() };
    for (descriptor, events) in descriptors {
        add(&mut wanted, pid, descriptor, events, known);
    }
    wanted.state()
}

/// The descriptors that a call waits for, each with what it asks of it, and whether it waits only until a time.
fn call(pid: u32, number: i64, arguments: [u64; 5]) -> Option<(Vec<(i32, u32)>, bool)> {
    let [first, second, third, fourth, fifth] = arguments;
    let milliseconds = |timeout: u64| timeout as i32 >= 0;
    match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll => Some((polled(pid, first, second)?, milliseconds(third))),
        libc::SYS_ppoll => Some((polled(pid, first, second)?, third != 0)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_select => Some((selected(pid, first, second, third)?, fifth != 0)),
        libc::SYS_pselect6 => Some((selected(pid, first, second, third)?, fifth != 0)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => Some((registered(pid, first)?, milliseconds(fourth))),
        libc::SYS_epoll_pwait => Some((registered(pid, first)?, milliseconds(fourth))),
        libc::SYS_epoll_pwait2 => Some((registered(pid, first)?, fourth != 0)),
        _ => None,
    }
}

fn memory(pid: u32, from: u64, bytes: usize) -> Option<Vec<u8>> {
    let mut read = vec![0; bytes];
    if bytes > 0 {
        File::open(format!("/proc/{pid}/mem")).ok()?.read_exact_at(&mut read, from).ok()?;
    }
    Some(read)
}

fn polled(pid: u32, from: u64, count: u64) -> Option<Vec<(i32, u32)>> {
    let count = usize::try_from(count).ok().filter(|&count| count <= DESCRIPTORS_MAX)?;
    Some(pollfds(&memory(pid, from, count * POLLFD)?))
}

fn pollfds(bytes: &[u8]) -> Vec<(i32, u32)> {
    let of = |[a, b, c, d, low, high, ..]: &[u8; POLLFD]| {
        (i32::from_ne_bytes([*a, *b, *c, *d]), u32::from(u16::from_ne_bytes([*low, *high])))
    };
    bytes.as_chunks().0.iter().map(of).filter(|(descriptor, _)| *descriptor >= 0).collect()
}

fn selected(pid: u32, count: u64, read: u64, write: u64) -> Option<Vec<(i32, u32)>> {
    let bytes = count.min(SETSIZE).div_ceil(64) as usize * 8;
    let set = |from: u64| if from == 0 { Some(Vec::new()) } else { memory(pid, from, bytes) };
    Some(bits(&set(read)?, IN).chain(bits(&set(write)?, OUT)).collect())
}

/// The descriptors whose bits are set.
fn bits(set: &[u8], events: u32) -> impl Iterator<Item = (i32, u32)> {
    let bit = move |place: usize| set[place / 8] >> (place % 8) & 1 == 1;
    let places: Vec<usize> = (0..8 * set.len()).filter(|&place| bit(place)).collect();
    places.into_iter().map(move |place| (place as i32, events))
}

fn registered(pid: u32, epoll: u64) -> Option<Vec<(i32, u32)>> {
    Some(targets(&fs::read_to_string(format!("/proc/{pid}/fdinfo/{epoll}")).ok()?))
}

/// Lines `tfd: 5 events: 19 data: ...`, the events in hexadecimal.
fn targets(text: &str) -> Vec<(i32, u32)> {
    let of = |line: &str| {
        let mut words = line.strip_prefix("tfd:")?.split_ascii_whitespace();
        let descriptor = words.next()?.parse().ok()?;
        let events = words.next().filter(|word| *word == "events:").and_then(|_| words.next())?;
        Some((descriptor, u32::from_str_radix(events, 16).ok()?))
    };
    text.lines().filter_map(of).take(DESCRIPTORS_MAX + 1).collect()
}

fn add(wanted: &mut Wanted, pid: u32, descriptor: i32, events: u32, known: &mut Known<'_>) {
    let (reads, writes) = (events & IN != 0, events & OUT != 0);
    let target = fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).unwrap_or_default();
    let target = target.to_str().unwrap_or_default();
    let inode = |kind: &str| target.strip_prefix(kind)?.strip_suffix(']')?.parse::<u32>().ok();
    let both = |of: &mut (bool, bool)| *of = (of.0 || reads, of.1 || writes);
    if let Some(inode) = inode("pipe:[") {
        // Its own, with which one of its threads wakes another.
        match known.pipes.get(&pid).is_some_and(|ends| ends.is_own(inode.into())) {
            true => wanted.other = true,
            false => both(&mut wanted.pipe),
        }
    } else if let Some(inode) = inode("socket:[") {
        match is_local(pid, inode, known.local) {
            true => wanted.other = true,
            false => both(&mut wanted.socket),
        }
    } else {
        wanted.other = true;
    }
}

/// Whether a socket is of this host alone; one that nobody knows is of the network.
fn is_local(pid: u32, inode: u32, known: &mut BTreeMap<u32, bool>) -> bool {
    if let Some(&is) = known.get(&inode) {
        return is;
    }
    // The seventh word of a line is the inode.
    let of = |line: &str| line.split_ascii_whitespace().nth(6).and_then(|word| word.parse().ok());
    let all = fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap_or_default();
    let is = all.lines().any(|line| of(line) == Some(inode));
    if known.len() >= SOCKETS_MAX {
        known.clear();
    }
    known.insert(inode, is);
    is
}

/// Any bytes as what a process or procfs says: no more descriptors than there are places for.
pub(crate) fn fuzz(bytes: &[u8]) {
    let most = 8 * bytes.len();
    assert!(pollfds(bytes).len() <= most && bits(bytes, IN).count() <= most);
    assert!(targets(&String::from_utf8_lossy(bytes)).len() <= DESCRIPTORS_MAX + 1);
}

#[cfg(test)]
mod tests {
    use super::super::processes;
    use super::*;
    use proptest::prelude::*;
    use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
    use std::os::fd::OwnedFd;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Where a thread sleeps that does this.
    fn asleep(does: impl FnOnce() + Send + 'static) -> State {
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            does();
        });
        let thread = told.recv().unwrap();
        let pid = std::process::id();
        let begun = std::time::Instant::now();
        loop {
            let mut looks = BTreeMap::new();
            // As if another process held the other ends.
            let (pipes, mut local) = (BTreeMap::new(), BTreeMap::new());
            let mut known = Known { pipes: &pipes, local: &mut local };
            processes::threads(pid, &mut known, &mut looks);
            match looks.get(&thread).map(|look| look.state) {
                Some(State::Ready | State::Other) | None
                    if begun.elapsed() < Duration::from_secs(5) =>
                {
                    std::thread::sleep(Duration::from_millis(10));
                }
                found => return found.unwrap(),
            }
        }
    }

    fn polls(what: Vec<(OwnedFd, PollFlags)>, timeout: Option<i64>) -> State {
        asleep(move || {
            let mut all: Vec<_> = what.iter().map(|(fd, of)| PollFd::new(fd, *of)).collect();
            let timeout = timeout.map(|tv_sec| Timespec { tv_sec, tv_nsec: 0 });
            let _ = poll(&mut all, timeout.as_ref());
        })
    }

    #[test]
    fn a_poll_waits_for_what_its_descriptors_are() {
        let (empty, writer) = rustix::pipe::pipe().unwrap();
        let (unix, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let again = |fd: &dyn std::os::fd::AsFd| fd.as_fd().try_clone_to_owned().unwrap();
        let reads = PollFlags::IN;
        assert_eq!(polls(vec![(again(&empty), reads)], None), State::PipeRead);
        let both = vec![(again(&empty), reads), (again(&stream), reads)];
        assert_eq!(polls(both, None), State::PipeOrSocket);
        assert_eq!(polls(vec![(again(&stream), reads)], Some(3)), State::Poll);
        // A socket of its own wakes it, and the network does not.
        assert_eq!(polls(vec![(again(&unix), reads)], Some(3)), State::Timer);
        assert_eq!(polls(vec![(again(&unix), reads)], None), State::Poll);
        // One of too many may be anything.
        let many = || (0..=DESCRIPTORS_MAX).map(|_| (again(&unix), reads)).collect();
        assert_eq!(polls(many(), Some(3)), State::Poll);
        drop(writer);
    }

    #[test]
    fn an_epoll_waits_for_what_it_was_given() {
        let (empty, writer) = rustix::pipe::pipe().unwrap();
        let state = asleep(move || {
            let all = epoll::create(epoll::CreateFlags::empty()).unwrap();
            let data = epoll::EventData::new_u64(7);
            epoll::add(&all, &empty, data, epoll::EventFlags::IN).unwrap();
            let mut events = Vec::with_capacity(1);
            let timeout = Timespec { tv_sec: 3, tv_nsec: 0 };
            let _ = epoll::wait(&all, rustix::buffer::spare_capacity(&mut events), Some(&timeout));
        });
        assert_eq!(state, State::PipeRead);
        drop(writer);
    }

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        let text = "pos:\t0\nflags:\t02\ntfd:        5 events:       19 data: 7  pos:0 ino:1 sdev:8\ntfd: x\n";
        assert_eq!(targets(text), [(5, 0x19)]);
        let mut set = [0; 16];
        (set[0], set[9]) = (0b1000_0001, 0b10);
        assert_eq!(bits(&set, IN).map(|(fd, _)| fd).collect::<Vec<_>>(), [0, 7, 73]);
        let entry =
            |fd: i32, events: i16| [&fd.to_ne_bytes()[..], &events.to_ne_bytes(), &[0; 2]].concat();
        assert_eq!(pollfds(&[entry(3, 1), entry(-1, 1), entry(4, 4)].concat()), [(3, 1), (4, 4)]);
    }

    proptest! {
        #[test]
        fn any_list_is_read_without_panic(
            text in "(tfd: *[0-9-]{0,12} events: *[0-9a-z]{0,9}\n?){0,3}",
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            fuzz(text.as_bytes());
            fuzz(&bytes);
        }

        #[test]
        fn any_call_of_any_process_is_read_without_panic(number in 0..450i64, arguments: [u64; 5]) {
            let (pipes, mut local) = (BTreeMap::new(), BTreeMap::new());
            let mut known = Known { pipes: &pipes, local: &mut local };
            state(std::process::id(), number, arguments, &mut known);
        }
    }
}
