//! One end of a wire of the live VuNet: cells in UDP datagrams between two sockets that know only each other.
//!
//! ```text
//! cell --> [ 256 cells ] --> up to 64 cells a datagram --> connected socket
//! ```
//!
//! There is no back-pressure: a cell that finds the FIFO full is lost and counted; what the kernel loses is known from
//! the numbers of the datagrams. A datagram that is not from the other end never arrives, and one that is not made of
//! whole cells is counted.

use super::part::Clock;
use lastmeter_wire::atm::train::{CELLS_MAX, Form, TRAIN_MAX, Train};
use lastmeter_wire::atm::vunet::VunetCell;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{SocketAddrV4, UdpSocket};

/// Cells that wait where a port sends, as in the VuNet's FIFOs.
pub(super) const FIFO_CELLS: usize = 256;
/// Most datagrams taken from one socket before others have their turn: as many as a FIFO takes.
const DATAGRAMS_MAX: usize = FIFO_CELLS / CELLS_MAX;
/// What the kernel may keep for a socket, in bytes, if it lets us choose.
const KERNEL_ROOM: usize = 1 << 20;

/// Where a wire begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ends {
    pub(super) local: SocketAddrV4,
    pub(super) remote: SocketAddrV4,
}

impl Ends {
    pub(super) fn swapped(self) -> Ends {
        Ends { local: self.remote, remote: self.local }
    }
}

/// What passed an end of a wire, in cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Passed {
    pub(super) sent: u64,
    pub(super) received: u64,
    /// Datagrams sent and received.
    pub(super) datagrams: u64,
    /// They found the FIFO full.
    pub(super) full: u64,
    /// Their numbers did not arrive.
    pub(super) lost: u64,
    /// Nobody was at the other end when they were sent.
    pub(super) nobody: u64,
    /// Datagrams, or cells of an ATM network, that were damaged.
    pub(super) damaged: u64,
}

impl std::ops::AddAssign for Passed {
    fn add_assign(&mut self, other: Passed) {
        self.sent += other.sent;
        self.received += other.received;
        self.datagrams += other.datagrams;
        self.full += other.full;
        self.lost += other.lost;
        self.nobody += other.nobody;
        self.damaged += other.damaged;
    }
}

/// One end.
pub(super) struct Line {
    socket: UdpSocket,
    form: Form,
    waiting: VecDeque<VunetCell>,
    /// Of the next cell to send, and of the next to arrive, once one has.
    next: u32,
    expected: Option<u32>,
    pub(super) passed: Passed,
}

impl Line {
    pub(super) fn open(ends: Ends, form: Form) -> io::Result<Line> {
        let socket = connected(ends)?;
        let waiting = VecDeque::with_capacity(FIFO_CELLS);
        Ok(Line { socket, form, waiting, next: 0, expected: None, passed: Passed::default() })
    }

    pub(super) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Sends a cell, now or when the FIFO is flushed.
    pub(super) fn push(&mut self, cell: VunetCell) {
        if self.waiting.len() >= FIFO_CELLS {
            self.flush();
        }
        match self.waiting.len() < FIFO_CELLS {
            true => self.waiting.push_back(cell),
            false => self.passed.full += 1,
        }
    }

    /// Sends what waits, as far as the kernel takes it.
    pub(super) fn flush(&mut self) {
        while !self.waiting.is_empty() {
            let count = self.waiting.len().min(CELLS_MAX);
            let cells = &self.waiting.make_contiguous()[..count];
            let datagram = Train::emit(self.form, self.next, cells);
            let datagram = datagram.expect("no more cells than a datagram takes");
            match self.socket.send(&datagram) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // Nobody listens at the other end (now): the cells are lost, as on a wire that leads nowhere.
                Err(_) => self.passed.nobody += count as u64,
                Ok(_) => self.passed.datagrams += 1,
            }
            self.passed.sent += count as u64;
            self.next = self.next.wrapping_add(count as u32);
            self.waiting.drain(..count);
        }
    }

    /// Takes cells that have arrived; returns whether there may be more.
    pub(super) fn receive(&mut self, cells: &mut Vec<VunetCell>) -> bool {
        let mut room = [0; TRAIN_MAX + 1];
        for _ in 0..DATAGRAMS_MAX {
            let len = match self.socket.recv(&mut room) {
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                // That nobody was there when something was sent is told here, too.
                Err(_) => continue,
            };
            self.take(&room[..len], cells);
        }
        true
    }

    fn take(&mut self, datagram: &[u8], cells: &mut Vec<VunetCell>) {
        let train = match Train::parse(datagram) {
            Ok(train) if train.form == self.form => train,
            _ => return self.passed.damaged += 1,
        };
        let len = train.len() as u32;
        // A sender that has started anew counts from the beginning.
        let gap = self.expected.map_or(0, |expected| train.number.wrapping_sub(expected));
        if gap < u32::MAX / 2 {
            self.passed.lost += u64::from(gap);
        }
        self.expected = Some(train.number.wrapping_add(len));
        self.passed.received += u64::from(len);
        self.passed.datagrams += 1;
        for cell in train.cells() {
            match cell {
                Ok(cell) => cells.push(cell),
                Err(_) => self.passed.damaged += 1,
            }
        }
    }
}

/// A socket that sends to, and hears, only the other end.
pub(super) fn connected(ends: Ends) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(ends.local)?;
    socket.connect(ends.remote)?;
    socket.set_nonblocking(true)?;
    // What the kernel allows less is no error.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, KERNEL_ROOM);
    Ok(socket)
}

/// A wire with a delay and a rate, between two networks: datagrams leave when they are due.
pub(super) struct Delayed {
    clock: Clock,
    sockets: [UdpSocket; 2],
    /// Towards each side: when it is due, and the datagram.
    under_way: [VecDeque<(u64, Vec<u8>)>; 2],
    busy_until: [u64; 2],
    delay: u64,
    bytes_per_second: f64,
    pub(super) late: Lateness,
    pub(super) full: u64,
}

/// Most datagrams under way in each direction.
const UNDER_WAY_MAX: usize = 4096;

impl Delayed {
    pub(super) fn open(
        clock: Clock,
        ends: [Ends; 2],
        delay: u64,
        rate: f64,
    ) -> io::Result<Delayed> {
        let [a, b] = ends.map(connected);
        Ok(Delayed {
            clock,
            sockets: [a?, b?],
            under_way: Default::default(),
            busy_until: [0; 2],
            delay,
            bytes_per_second: rate / 8.0,
            late: Lateness::default(),
            full: 0,
        })
    }

    pub(super) fn sockets(&self) -> &[UdpSocket; 2] {
        &self.sockets
    }

    /// Takes what has arrived, and sends what is due; returns when it has to be called again.
    pub(super) fn turn(&mut self) -> Option<u64> {
        let mut room = [0; TRAIN_MAX + 1];
        for (from, to) in [(0, 1), (1, 0)] {
            for _ in 0..DATAGRAMS_MAX {
                let len = match self.sockets[from].recv(&mut room) {
                    Ok(len) => len,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => continue,
                };
                if self.under_way[to].len() >= UNDER_WAY_MAX {
                    self.full += 1;
                    continue;
                }
                let lasts = (len as f64 / self.bytes_per_second * 1e9) as u64;
                self.busy_until[to] = self.busy_until[to].max(self.clock.now()) + lasts;
                let due = self.busy_until[to] + self.delay;
                self.under_way[to].push_back((due, room[..len].to_vec()));
            }
        }
        for (queue, socket) in self.under_way.iter_mut().zip(&self.sockets) {
            let clock = self.clock;
            while let Some((due, datagram)) = queue.pop_front_if(|(due, _)| *due <= clock.now()) {
                // What nobody takes is lost, and missing where it is counted.
                let _ = socket.send(&datagram);
                self.late.add(clock.now() - due);
            }
        }
        self.under_way.iter().filter_map(|queue| queue.front().map(|(due, _)| *due)).min()
    }
}

/// How late departures were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lateness {
    /// Departures in each of [`STEPS`].
    pub(super) steps: [u64; STEPS.len()],
    /// The longest, in ns.
    pub(super) worst: u64,
}

/// Upper bounds of the steps, in ns; the last has none.
pub(super) const STEPS: [u64; 7] =
    [10_000, 20_000, 100_000, 1_000_000, 10_000_000, 100_000_000, u64::MAX];

impl Lateness {
    pub(super) fn add(&mut self, late: u64) {
        let step = STEPS.iter().position(|&most| late <= most);
        self.steps[step.expect("the last step has no bound")] += 1;
        self.worst = self.worst.max(late);
    }
    pub(super) fn count(&self) -> u64 {
        self.steps.iter().sum()
    }
    /// The share of departures at most this late, which is one of the steps.
    pub(super) fn within(&self, most: u64) -> f64 {
        let within: u64 =
            STEPS.iter().zip(&self.steps).filter(|(step, _)| **step <= most).map(|(_, n)| n).sum();
        within as f64 / self.count().max(1) as f64
    }
}

impl std::ops::AddAssign<&Lateness> for Lateness {
    fn add_assign(&mut self, other: &Lateness) {
        self.steps.iter_mut().zip(other.steps).for_each(|(mine, theirs)| *mine += theirs);
        self.worst = self.worst.max(other.worst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_lan::vunet::data_cell;
    use std::net::Ipv4Addr;

    fn pair() -> (Line, Line) {
        let free =
            || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let at = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let ends = Ends { local: at(free()), remote: at(free()) };
        let open = |ends| Line::open(ends, Form::Vunet).unwrap();
        (open(ends), open(ends.swapped()))
    }

    fn all(line: &mut Line) -> Vec<VunetCell> {
        let mut cells = Vec::new();
        for _ in 0..200 {
            line.receive(&mut cells);
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        cells
    }

    #[test]
    fn cells_arrive_in_order_in_few_datagrams_and_the_missing_are_counted() {
        let (mut a, mut b) = pair();
        let cell = |n: u16| data_cell(32 + n, 0, false, &[0; 48]);
        (0..100).for_each(|n| a.push(cell(n)));
        a.flush();
        let arrived = all(&mut b);
        assert_eq!(arrived, (0..100).map(cell).collect::<Vec<_>>());
        assert_eq!((a.passed.datagrams, b.passed.lost), (2, 0));
        // As if 26 cells had been lost by the kernel.
        a.next += 26;
        a.push(cell(7));
        a.flush();
        assert_eq!(all(&mut b).len(), 1);
        assert_eq!(b.passed.lost, 26);
        // A sender that starts anew has lost nothing.
        a.next = 0;
        a.push(cell(8));
        a.flush();
        assert_eq!((all(&mut b).len(), b.passed.lost), (1, 26));
    }

    #[test]
    fn what_is_not_from_the_other_end_or_not_made_of_cells_changes_nothing() {
        let (a, mut b) = pair();
        let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let cells = [data_cell(40, 0, false, &[0; 48])];
        let datagram = Train::emit(Form::Vunet, 0, &cells).unwrap();
        stranger.send_to(&datagram, b.socket.local_addr().unwrap()).unwrap();
        a.socket.send(&datagram[..datagram.len() - 1]).unwrap();
        a.socket.send(&Train::emit(Form::Atm, 0, &cells).unwrap()).unwrap();
        assert!(all(&mut b).is_empty());
        assert_eq!((b.passed.damaged, b.passed.received), (2, 0));
    }
}
