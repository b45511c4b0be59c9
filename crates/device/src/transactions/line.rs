//! How datagrams come and leave: those that are there together by one call, and whoever was soon served stays awake.

use super::SHORT;
use lastmeter_linux::datagrams::{self, BYTES_MAX, Received, TOGETHER_MAX};
use std::io::{self, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How many threads look for datagrams instead of sleeping, and how many may.
pub(crate) struct Awake {
    now: AtomicUsize,
    most: usize,
}

impl Awake {
    pub(crate) fn at_most(most: usize) -> Awake {
        Awake { now: AtomicUsize::new(0), most }
    }
    /// Looks until there is something or the time is over.
    fn look<T>(&self, until: Instant, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let fits = self.now.fetch_add(1, Ordering::Relaxed) < self.most;
        let mut found = None;
        while fits && found.is_none() && Instant::now() < until {
            found = look();
            if found.is_none() {
                std::thread::yield_now();
            }
        }
        self.now.fetch_sub(1, Ordering::Relaxed);
        found
    }
}

/// Receives, awake for a while where the last wait was that short, else asleep.
pub(super) struct Ear {
    awake: Arc<Awake>,
    limit: Duration,
    soon: bool,
}

impl Ear {
    pub(super) fn new(awake: Arc<Awake>, limit: Duration) -> Ear {
        Ear { awake, limit, soon: false }
    }
    pub(super) fn stay_awake(&mut self, limit: Duration) {
        self.limit = limit;
    }
    pub(super) fn receive(
        &mut self,
        socket: &UdpSocket,
        buffer: &mut [u8],
    ) -> io::Result<Received> {
        let began = Instant::now();
        if self.soon {
            let look = || match datagrams::receive(socket.as_fd(), buffer, false) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
                other => Some(other),
            };
            if let Some(found) = self.awake.look(began + self.limit, look) {
                return found;
            }
        }
        let received = datagrams::receive(socket.as_fd(), buffer, true);
        self.soon = received.is_ok() && began.elapsed() < self.limit;
        received
    }
}

/// How many of these can leave together: of equal length but for a shorter last one, and no more than fit.
fn together(datagrams: &[IoSlice<'_>]) -> usize {
    let most = datagrams.first().map_or(0, |first| first.len());
    let (mut bytes, mut count) = (0, 0);
    for datagram in datagrams.iter().take(TOGETHER_MAX) {
        bytes += datagram.len();
        if datagram.len() > most || bytes > BYTES_MAX {
            break;
        }
        count += 1;
        if datagram.len() < most {
            break;
        }
    }
    count.max(1)
}

/// Sends datagrams to an address, or where the socket is connected to. What is lost here is asked for again.
pub(super) fn send(
    socket: &UdpSocket,
    datagrams: &[IoSlice<'_>],
    to: Option<SocketAddr>,
    is_local: bool,
) {
    let alone = |datagram: &[u8]| match to {
        Some(to) => socket.send_to(datagram, to),
        None => socket.send(datagram),
    };
    let mut rest = datagrams;
    while let Some(first) = rest.first() {
        // Elsewhere a long one is cut on its way, which the kernel does not do for several.
        let whole = is_local || first.len() <= SHORT;
        let (now, after) = rest.split_at(if whole { together(rest) } else { 1 });
        let segment = u16::try_from(first.len()).unwrap_or(u16::MAX);
        if !whole || datagrams::send(socket.as_fd(), now, segment, to.as_ref()).is_err() {
            now.iter().for_each(|datagram| drop(alone(datagram)));
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_one_length_leave_together_and_a_shorter_one_ends_them() {
        let count = |lens: &[usize]| {
            let all: Vec<Vec<u8>> = lens.iter().map(|len| vec![0; *len]).collect();
            let all: Vec<IoSlice<'_>> = all.iter().map(|data| IoSlice::new(data)).collect();
            together(&all)
        };
        assert_eq!(count(&[40, 40, 40]), 3);
        assert_eq!(count(&[40, 40, 12, 12]), 3);
        assert_eq!(count(&[40, 41, 40]), 1);
        assert_eq!(count(&[32_796, 32_796]), 1);
        assert_eq!(count(&[4124; 20]), 15);
        assert_eq!(count(&[40; 100]), TOGETHER_MAX);
    }
}
