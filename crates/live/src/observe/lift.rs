//! Takes a bottleneck of a running program away, for a while: options of its sockets, the cores of its
//! threads. What was there before is put back when the [`Lifted`] is dropped.
//!
//! The socket is reached through `pidfd_getfd`, which the kernel allows to those who may trace the
//! process; nothing of the program is stopped or changed but the option.

use super::processes;
use lastmeter_linux::sys;
use lastmeter_linux::{Doing, Result};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};

/// The most sockets whose options are changed.
const SOCKETS_MAX: usize = 256;
/// `SO_BUF_LOCK` of `asm-generic/socket.h`: which buffers have a size of the program's choice.
const SO_BUF_LOCK: i32 = 72;

/// What to change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// `SO_SNDBUF`, as the kernel counts it.
    SendBuffer(i32),
    /// `SO_RCVBUF`, as the kernel counts it.
    ReceiveBuffer(i32),
    /// `TCP_NODELAY`.
    NoDelay,
    /// `SO_MAX_PACING_RATE`, bytes per second.
    Pacing(i32),
    /// `TCP_CONGESTION` = `bbr`.
    Bbr,
    /// All cores that this process may use.
    Affinity,
}

/// What was changed, and its former values.
#[derive(Debug, Default)]
pub struct Lifted {
    numbers: Vec<(OwnedFd, i32, i32, i32)>,
    texts: Vec<(OwnedFd, String)>,
    affinities: Vec<(Pid, CpuSet)>,
    locks: Vec<(OwnedFd, i32)>,
}

impl Lifted {
    /// Applies `change` to the TCP sockets or threads of `root` and its descendants.
    ///
    /// # Errors
    /// When the kernel refuses it for all of them.
    pub fn apply(root: u32, change: Change) -> Result<Lifted> {
        let mut lifted = Lifted::default();
        let mut refusal = None;
        for pid in processes::tree(root) {
            let tried = match change {
                Change::Affinity => lifted.free(pid),
                _ => lifted.sockets(pid, change),
            };
            refusal = tried.err().or(refusal);
        }
        match refusal {
            Some(error) if lifted.count() == 0 => Err(error),
            _ => Ok(lifted),
        }
    }

    /// How many sockets or threads were changed.
    pub fn count(&self) -> usize {
        self.numbers.len() + self.texts.len() + self.affinities.len()
    }

    /// Leaves the changes as they are.
    pub fn keep(mut self) {
        self.numbers.clear();
        self.texts.clear();
        self.affinities.clear();
        self.locks.clear();
    }

    /// Lets every thread of `pid` run on all cores of this process.
    fn free(&mut self, pid: u32) -> Result<()> {
        let all = sched_getaffinity(None).doing("reading the allowed cores")?;
        let threads = fs::read_dir(format!("/proc/{pid}/task")).doing("listing threads")?;
        for thread in threads.flatten() {
            let id = thread.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(tid) = id.and_then(Pid::from_raw) else { continue };
            let Ok(before) = sched_getaffinity(Some(tid)) else { continue };
            if before != all {
                sched_setaffinity(Some(tid), &all).doing("freeing a thread")?;
                self.affinities.push((tid, before));
            }
        }
        Ok(())
    }

    fn sockets(&mut self, pid: u32, change: Change) -> Result<()> {
        let what = || format!("reaching the sockets of process {pid}");
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process has an id");
        let process = pidfd_open(process, PidfdFlags::empty()).doing(what)?;
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).doing(what)?.flatten() {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            let is_socket = target.to_str().is_some_and(|t| t.starts_with("socket:["));
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(number) = number.filter(|_| is_socket && self.count() < SOCKETS_MAX) else {
                continue;
            };
            let socket =
                pidfd_getfd(process.as_fd(), number, PidfdGetfdFlags::empty()).doing(what)?;
            // Only TCP has a congestion control; connections of other kinds are left alone.
            if let Ok(control) = sys::text(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_CONGESTION)
            {
                self.set(socket, change, control)?;
            }
        }
        Ok(())
    }

    fn set(&mut self, socket: OwnedFd, change: Change, control: String) -> Result<()> {
        let what = || format!("changing an option of a socket to {change:?}");
        let (level, name, value) = match change {
            Change::SendBuffer(size) => (libc::SOL_SOCKET, libc::SO_SNDBUF, size / 2),
            Change::ReceiveBuffer(size) => (libc::SOL_SOCKET, libc::SO_RCVBUF, size / 2),
            Change::NoDelay => (libc::IPPROTO_TCP, libc::TCP_NODELAY, 1),
            Change::Pacing(rate) => (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, rate),
            Change::Bbr => {
                sys::set_text(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_CONGESTION, "bbr")
                    .doing(what)?;
                self.texts.push((socket, control));
                return Ok(());
            }
            Change::Affinity => return Ok(()),
        };
        let mut before = sys::option(socket.as_fd(), level, name).doing(what)?;
        if let Change::SendBuffer(_) | Change::ReceiveBuffer(_) = change {
            // The kernel doubles what it is given, and keeps it from then on.
            before /= 2;
            let lock = sys::option(socket.as_fd(), libc::SOL_SOCKET, SO_BUF_LOCK);
            let copy = socket.try_clone().doing(what)?;
            self.locks.extend(lock.ok().map(|lock| (copy, lock)));
        }
        sys::set_option(socket.as_fd(), level, name, value).doing(what)?;
        if let Change::ReceiveBuffer(size) = change {
            // The window has a limit of its own, which the first size set.
            let _ =
                sys::set_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, size);
        }
        self.numbers.push((socket, level, name, before));
        Ok(())
    }
}

impl Drop for Lifted {
    fn drop(&mut self) {
        // A program that has ended meanwhile needs nothing back.
        for (socket, level, name, value) in &self.numbers {
            let _ = sys::set_option(socket.as_fd(), *level, *name, *value);
        }
        for (socket, control) in &self.texts {
            let _ = sys::set_text(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_CONGESTION, control);
        }
        for (socket, lock) in &self.locks {
            let _ = sys::set_option(socket.as_fd(), libc::SOL_SOCKET, SO_BUF_LOCK, *lock);
        }
        for (thread, cores) in &self.affinities {
            let _ = sched_setaffinity(Some(*thread), cores);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    /// The option of our own socket, before, during and after.
    fn three(name: i32, change: Change) -> [i32; 3] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let level = if name == libc::TCP_NODELAY { libc::IPPROTO_TCP } else { libc::SOL_SOCKET };
        let read = || sys::option(stream.as_fd(), level, name).unwrap();
        let before = read();
        let copy = stream.as_fd().try_clone_to_owned().unwrap();
        let mut lifted = Lifted::default();
        lifted.set(copy, change, "cubic".to_owned()).unwrap();
        let during = read();
        assert_eq!(lifted.count(), 1);
        drop(lifted);
        [before, during, read()]
    }

    #[test]
    fn what_was_there_is_put_back() {
        assert_eq!(three(libc::TCP_NODELAY, Change::NoDelay), [0, 1, 0]);
        let [before, during, after] = three(libc::SO_SNDBUF, Change::SendBuffer(20_000));
        assert_eq!((during, after), (20_000, before));
    }

    #[test]
    fn another_process_is_reached() {
        // A child holds a socket that it inherits as its standard input.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let inherited = OwnedFd::from(stream.try_clone().unwrap());
        let mut child =
            std::process::Command::new("sleep").arg("10").stdin(inherited).spawn().unwrap();
        let lifted = Lifted::apply(child.id(), Change::NoDelay);
        let during = stream.nodelay().unwrap();
        let count = lifted.as_ref().map_or(0, Lifted::count);
        drop(lifted);
        let after = stream.nodelay().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((count, during, after), (1, true, false));
    }
}
