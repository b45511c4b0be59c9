//! A process and its descendants in procfs: their sockets and their threads' CPU time.

use super::polled::{self, Known};
use std::collections::BTreeMap;
use std::fs;

/// The most processes followed: the command is not meant to be a build farm.
const PROCESSES_MAX: usize = 256;
/// The most threads of a process that are looked at.
const THREADS_MAX: usize = 128;
/// `USER_HZ`.
const TICKS_PER_SECOND: f64 = 100.0;

/// What a thread did at the instant of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// On a CPU, or ready for one.
    Ready,
    /// Asleep until a time of its own choice.
    Timer,
    /// Asleep in a disk or file system.
    Disk,
    /// Asleep reading a pipe, which is empty.
    PipeRead,
    /// Asleep writing a pipe, which is full.
    PipeWrite,
    /// Asleep writing to a socket.
    Send,
    /// Asleep reading from a socket.
    Receive,
    /// Asleep until one of several descriptors is ready.
    Poll,
    /// Asleep until there is data in a pipe or in a socket.
    PipeOrSocket,
    /// Asleep until a connection is made.
    Connect,
    /// Asleep until somebody connects.
    Accept,
    /// Asleep until another thread or a child does something.
    Others,
    /// Asleep in anything else.
    Other,
}

impl State {
    /// How many there are.
    pub(super) const COUNT: usize = State::Other as usize + 1;
}

/// One look at a thread. CPU times are in seconds since it started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ThreadLook {
    pub(super) pid: u32,
    pub(super) run: f64,
    pub(super) wait: f64,
    /// In user mode and in the kernel, in ticks.
    pub(super) user: f64,
    pub(super) system: f64,
    pub(super) state: State,
}

/// The process `root` and its descendants that still exist.
pub(super) fn tree(root: u32) -> Vec<u32> {
    let mut all = vec![root];
    let mut next = 0;
    while next < all.len() && all.len() < PROCESSES_MAX {
        let pid = all[next];
        next += 1;
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            all.extend(children.split_ascii_whitespace().filter_map(|w| w.parse::<u32>().ok()));
        }
    }
    all
}

/// The inodes of the sockets that `pid` holds, each with `pid`.
pub(super) fn sockets(pid: u32, into: &mut BTreeMap<u32, u32>) {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return };
    for entry in entries.flatten() {
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let inode = target
            .to_str()
            .and_then(|t| t.strip_prefix("socket:["))
            .and_then(|t| t.strip_suffix(']'))
            .and_then(|t| t.parse::<u32>().ok());
        into.extend(inode.map(|inode| (inode, pid)));
    }
}

/// A look at every thread of `pid`, the first [`THREADS_MAX`].
pub(super) fn threads(pid: u32, known: &mut Known<'_>, into: &mut BTreeMap<u32, ThreadLook>) {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return };
    for entry in entries.flatten().take(THREADS_MAX) {
        let Some(tid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        let path = entry.path();
        let read = |name: &str| fs::read_to_string(path.join(name)).unwrap_or_default();
        let schedstat = read("schedstat");
        let mut numbers = schedstat.split_ascii_whitespace().filter_map(|w| w.parse::<u64>().ok());
        let mut seconds = || numbers.next().unwrap_or(0) as f64 * 1e-9;
        let (run, wait) = (seconds(), seconds());
        let stat = read("stat");
        let (user, system) = times_of(&stat).unwrap_or_default();
        let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        let state = match rest.as_bytes().first() {
            Some(b'D') => State::Disk,
            Some(b'S') => asleep(pid, &read("wchan"), &read("syscall"), known),
            _ => State::Ready,
        };
        into.insert(tid, ThreadLook { pid, run, wait, user, system, state });
    }
}

/// Where a thread of `pid` sleeps: by the kernel's function, and by the system call and its descriptor.
fn asleep(pid: u32, function: &str, call: &str, known: &mut Known<'_>) -> State {
    if function.contains("nanosleep") {
        return State::Timer;
    }
    match function {
        _ if function.contains("pipe_read") => return State::PipeRead,
        _ if function.contains("pipe_write") => return State::PipeWrite,
        _ if function.contains("wait_for_connect") => return State::Connect,
        _ if function.contains("csk_accept") => return State::Accept,
        _ if function.contains("futex") || function == "do_wait" => return State::Others,
        _ => {}
    }
    let mut words = call.split_ascii_whitespace();
    let Some(number) = words.next().and_then(|word| word.parse::<i64>().ok()) else {
        return if call.starts_with("running") { State::Ready } else { State::Other };
    };
    const READS: [i64; 4] =
        [libc::SYS_read, libc::SYS_readv, libc::SYS_recvfrom, libc::SYS_recvmsg];
    const WRITES: [i64; 5] = [
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_sendfile,
    ];
    const POLLS: [i64; 4] =
        [libc::SYS_ppoll, libc::SYS_pselect6, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2];
    let mut argument =
        || words.next().and_then(|w| u64::from_str_radix(w.trim_start_matches("0x"), 16).ok());
    let (reads, writes) = (READS.contains(&number), WRITES.contains(&number));
    if !reads && !writes {
        let waits =
            POLLS.contains(&number) || function.contains("poll") || function.contains("select");
        return match number {
            _ if waits => {
                let arguments = std::array::from_fn(|_| argument().unwrap_or(0));
                polled::state(pid, number, arguments, known)
            }
            libc::SYS_connect => State::Connect,
            libc::SYS_accept | libc::SYS_accept4 => State::Accept,
            libc::SYS_futex | libc::SYS_wait4 | libc::SYS_waitid => State::Others,
            _ => State::Other,
        };
    }
    let target = argument().and_then(|fd| fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok());
    match target.as_deref().and_then(std::path::Path::to_str) {
        Some(name) if name.starts_with("socket:") && reads => State::Receive,
        Some(name) if name.starts_with("socket:") => State::Send,
        Some(name) if name.starts_with("pipe:") && reads => State::PipeRead,
        Some(name) if name.starts_with("pipe:") => State::PipeWrite,
        Some(name) if name.starts_with('/') && !name.starts_with("/dev/") => State::Disk,
        _ => State::Other,
    }
}

/// What the control group of a process says of its quota.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Throttle {
    /// Seconds for which it was kept from its CPUs.
    seconds: f64,
    /// Periods, and those in which the quota was used up.
    periods: (u64, u64),
    /// CPUs' worth of time that it gets.
    quota: Option<f64>,
}

impl Throttle {
    /// The share of the time in which the quota kept it from a CPU, since `first`, `elapsed` ago. The
    /// kernel's sum of times misses threads that were not ready at the start of a period, so the
    /// periods count, too: in each that was used up, one thread could run for the quota at most.
    pub(super) fn since(&self, first: &Throttle, elapsed: f64) -> f64 {
        let by_time = (self.seconds - first.seconds) / elapsed.max(1e-3);
        let all = self.periods.0.saturating_sub(first.periods.0).max(1) as f64;
        let used_up = self.periods.1.saturating_sub(first.periods.1) as f64 / all;
        let kept = 1.0 - self.quota.unwrap_or(1.0).min(1.0);
        by_time.max(used_up * kept).clamp(0.0, 1.0)
    }
}

/// The quota of the control group of `pid`; `None` where no controller counts it.
pub(super) fn throttled(pid: u32) -> Option<Throttle> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let folder = match controllers {
            "" => format!("/sys/fs/cgroup{path}"),
            _ if controllers.split(',').any(|c| c == "cpu") => {
                format!("/sys/fs/cgroup/{controllers}{path}")
            }
            _ => return None,
        };
        let read = |name: &str| fs::read_to_string(format!("{folder}/{name}")).ok();
        let mut throttle = throttle_of(&read("cpu.stat")?)?;
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| *number > 0.0);
        let pair = match read("cpu.max") {
            Some(text) => text.split_once(' ').map(|(a, b)| (number(a), number(b))),
            None => read("cpu.cfs_quota_us")
                .zip(read("cpu.cfs_period_us"))
                .map(|(quota, period)| (number(&quota), number(&period))),
        };
        throttle.quota = pair.and_then(|(quota, period)| Some(quota? / period?));
        Some(throttle)
    })
}

/// `cpu.stat` of either version; `None` without a count of throttling.
fn throttle_of(text: &str) -> Option<Throttle> {
    let count = |name: &str| {
        let of = |line: &str| line.split_once(' ').filter(|(key, _)| *key == name)?.1.parse().ok();
        text.lines().find_map(of)
    };
    let seconds = count("throttled_usec")
        .map(|us: u64| us as f64 * 1e-6)
        .or_else(|| count("throttled_time").map(|ns| ns as f64 * 1e-9))?;
    let periods = (count("nr_periods").unwrap_or(0), count("nr_throttled").unwrap_or(0));
    Some(Throttle { seconds, periods, quota: None })
}

/// The identity of the network namespace of `pid`.
pub(super) fn network(pid: u32) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(format!("/proc/{pid}/ns/net")).ok().map(|file| file.ino())
}

/// Seconds of `pid` in user mode and in the kernel, in ticks of 10 ms.
pub(super) fn user_system(pid: u32) -> Option<(f64, f64)> {
    times_of(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn times_of(stat: &str) -> Option<(f64, f64)> {
    // The name may hold spaces and brackets; the fields after its last bracket are plain.
    let rest = stat.rsplit_once(')')?.1;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut seconds = || fields.next()?.parse::<u64>().ok().map(|t| t as f64 / TICKS_PER_SECOND);
    Some((seconds()?, seconds()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_nothing_known<T>(does: impl FnOnce(&mut Known<'_>) -> T) -> T {
        does(&mut Known { pipes: &BTreeMap::new(), local: &mut BTreeMap::new() })
    }

    #[test]
    fn sees_itself() {
        let pid = std::process::id();
        assert_eq!(tree(pid)[0], pid);
        let mut times = BTreeMap::new();
        with_nothing_known(|known| threads(pid, known, &mut times));
        assert!(times.values().any(|t| t.run > 0.0));
        assert!(user_system(pid).is_some());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut inodes = BTreeMap::new();
        sockets(pid, &mut inodes);
        assert!(!inodes.is_empty());
        drop(listener);
    }

    #[test]
    fn a_thread_that_sleeps_says_where() {
        let sleeper = std::thread::spawn(|| std::thread::sleep(std::time::Duration::from_secs(1)));
        std::thread::sleep(std::time::Duration::from_millis(300));
        let mut looks = BTreeMap::new();
        with_nothing_known(|known| threads(std::process::id(), known, &mut looks));
        assert!(looks.values().any(|look| look.state == State::Timer), "{looks:?}");
        sleeper.join().unwrap();
    }

    #[test]
    fn the_call_and_its_descriptor_tell_pipes_from_sockets() {
        let pid = std::process::id();
        let asleep = |pid, function: &str, call: &str| {
            with_nothing_known(|known| super::asleep(pid, function, call, known))
        };
        assert_eq!(asleep(pid, "hrtimer_nanosleep", ""), State::Timer);
        assert_eq!(asleep(pid, "anon_pipe_read", ""), State::PipeRead);
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
        let call = |number: i64| format!("{number} {fd:#x} 0x0 0x0");
        assert_eq!(asleep(pid, "wait_woken", &call(libc::SYS_sendto)), State::Send);
        assert_eq!(asleep(pid, "wait_woken", &call(libc::SYS_recvfrom)), State::Receive);
        assert_eq!(asleep(pid, "do_wait", "61 0xffffffff"), State::Others);
        assert_eq!(asleep(pid, "0", "no number"), State::Other);
    }

    #[test]
    fn a_quota_that_is_used_up_counts_by_time_and_by_periods() {
        let first = throttle_of("nr_periods 10\nnr_throttled 1\nthrottled_time 0\n").unwrap();
        let text = "nr_periods 20\nnr_throttled 11\nthrottled_time 100000000\n";
        let last = throttle_of(text).unwrap();
        assert_eq!(last.since(&first, 1.0), 0.1);
        assert_eq!(Throttle { quota: Some(0.25), ..last }.since(&first, 1.0), 0.75);
        assert_eq!(throttle_of("usage_usec 5\n"), None);
    }

    #[test]
    fn an_exited_process_has_no_sockets_or_times() {
        let mut inodes = BTreeMap::new();
        sockets(u32::MAX, &mut inodes);
        assert!(inodes.is_empty() && user_system(u32::MAX).is_none());
    }
}
