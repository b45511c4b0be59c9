//! A process and its descendants in procfs: their sockets and their threads' CPU time.

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
    /// Asleep reading or writing a pipe.
    Pipe,
    /// Asleep writing to a socket.
    Send,
    /// Asleep reading from a socket.
    Receive,
    /// Asleep until one of several descriptors is ready.
    Poll,
    /// Asleep in anything else: a lock, a child.
    Other,
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
pub(super) fn threads(pid: u32, into: &mut BTreeMap<u32, ThreadLook>) {
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
            Some(b'S') => asleep(pid, &read("wchan"), &read("syscall")),
            _ => State::Ready,
        };
        into.insert(tid, ThreadLook { pid, run, wait, user, system, state });
    }
}

/// Where a thread of `pid` sleeps: by the kernel's function, and by the system call and its descriptor.
fn asleep(pid: u32, function: &str, call: &str) -> State {
    if function.contains("nanosleep") {
        return State::Timer;
    }
    if function.contains("pipe") {
        return State::Pipe;
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
    // One that is asked to wait for no descriptor at all is a timer.
    const POLLS: [i64; 4] =
        [libc::SYS_ppoll, libc::SYS_pselect6, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2];
    let argument =
        words.next().and_then(|w| u64::from_str_radix(w.trim_start_matches("0x"), 16).ok());
    let (reads, writes) = (READS.contains(&number), WRITES.contains(&number));
    if !reads && !writes {
        let waits =
            POLLS.contains(&number) || function.contains("poll") || function.contains("select");
        return if waits { State::Poll } else { State::Other };
    }
    let target = argument.and_then(|fd| fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok());
    match target.as_deref().and_then(std::path::Path::to_str) {
        Some(name) if name.starts_with("socket:") && reads => State::Receive,
        Some(name) if name.starts_with("socket:") => State::Send,
        Some(name) if name.starts_with("pipe:") => State::Pipe,
        Some(name) if name.starts_with('/') && !name.starts_with("/dev/") => State::Disk,
        _ => State::Other,
    }
}

/// Seconds for which the control group of `pid` was kept from its CPUs by its quota; `None` where no
/// controller counts them.
pub(super) fn throttled(pid: u32) -> Option<f64> {
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
        let text = fs::read_to_string(format!("{folder}/cpu.stat")).ok()?;
        text.lines().find_map(|line| match line.split_once(' ')? {
            ("throttled_usec", count) => count.parse::<f64>().ok().map(|us| us * 1e-6),
            ("throttled_time", count) => count.parse::<f64>().ok().map(|ns| ns * 1e-9),
            _ => None,
        })
    })
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

    #[test]
    fn sees_itself() {
        let pid = std::process::id();
        assert_eq!(tree(pid)[0], pid);
        let mut times = BTreeMap::new();
        threads(pid, &mut times);
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
        threads(std::process::id(), &mut looks);
        assert!(looks.values().any(|look| look.state == State::Timer), "{looks:?}");
        sleeper.join().unwrap();
    }

    #[test]
    fn the_call_and_its_descriptor_tell_pipes_from_sockets() {
        let pid = std::process::id();
        assert_eq!(asleep(pid, "hrtimer_nanosleep", ""), State::Timer);
        assert_eq!(asleep(pid, "anon_pipe_read", ""), State::Pipe);
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
        let call = |number: i64| format!("{number} {fd:#x} 0x0 0x0");
        assert_eq!(asleep(pid, "wait_woken", &call(libc::SYS_sendto)), State::Send);
        assert_eq!(asleep(pid, "wait_woken", &call(libc::SYS_recvfrom)), State::Receive);
        assert_eq!(asleep(pid, "do_wait", "61 0xffffffff"), State::Other);
        assert_eq!(asleep(pid, "0", "no number"), State::Other);
    }

    #[test]
    fn an_exited_process_has_no_sockets_or_times() {
        let mut inodes = BTreeMap::new();
        sockets(u32::MAX, &mut inodes);
        assert!(inodes.is_empty() && user_system(u32::MAX).is_none());
    }
}
