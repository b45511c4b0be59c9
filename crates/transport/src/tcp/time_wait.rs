//! What a server keeps of closed connections, and what that costs it.
//!
//! A server that closes first keeps a control block in `TIME_WAIT` for twice the life of a segment.
//! BSD's TCP kept its blocks in a list, so that each connection request walked past all of them:
//! with `r` connections a second it costs `base + scan r linger`, and the rate at which the
//! processor is full solves
//!
//! ```text
//! r (base + scan r linger) = 1,   r = (sqrt(base^2 + 4 scan linger) - base) / (2 scan linger)
//! ```
//!
//! | remedy (N-73, N-74) | who lingers | changes |
//! |---|---|---|
//! | none | the server | nothing |
//! | client closes | the client | the application: HTTP tells who closes, and the server waits |
//! | shift | the client | the client's TCP: it resets the server and lingers ([`Lingering::Shift`]) |
//! | negotiate | the client | both TCPs: an option in the SYNs ([`Lingering::Negotiate`]) |
//!
//! Source: Faber, Touch & Yue, The TIME-WAIT state in TCP and its effect on busy servers, INFOCOM
//! 1999; TIME_WAIT of four minutes and lists of blocks: RFC 793 §3.3 and BSD's `in_pcblookup`.
//!
//! ```
//! use lastmeter_base::{Bytes, Duration};
//! use lastmeter_transport::tcp::time_wait::{Costs, Remedy, Server};
//! let costs = Costs {
//!     base: Duration::from_ms(10),
//!     signal: Duration::from_us(100),
//!     scan: Duration::from_us(1),
//!     block: Bytes(300),
//! };
//! let mut server = Server::new(costs, Remedy::None, Duration::from_secs(240));
//! let connections = server.run(Duration::from_secs(1000));
//! assert!(connections < 80_000 && server.lingering() > 10_000);
//! ```
//!
//! [`Lingering::Shift`]: super::Lingering::Shift
//! [`Lingering::Negotiate`]: super::Lingering::Negotiate

use lastmeter_base::{Bytes, Duration, Time};
use std::collections::VecDeque;

/// Who is left with a closed connection's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The server, which closes first.
    None,
    /// The client, because it closes first: a request that says so.
    ClientCloses,
    /// The client, which resets the server.
    Shift,
    /// The client, as agreed in the handshake.
    Negotiate,
}

impl Remedy {
    /// Whether the server is left with a block.
    pub fn leaves_server_state(self) -> bool {
        self == Remedy::None
    }
    /// Segments or messages more than without it, that the server has to take for each connection.
    fn signals(self) -> u64 {
        match self {
            Remedy::None | Remedy::Negotiate => 0,
            Remedy::ClientCloses | Remedy::Shift => 1,
        }
    }
}

/// What connections cost a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// A connection with all its segments and its request, while the list is empty.
    pub base: Duration,
    /// One more segment or message.
    pub signal: Duration,
    /// Walking past one block.
    pub scan: Duration,
    /// The size of a block.
    pub block: Bytes,
}

/// A server whose processor is always busy with connections, one after the other.
#[derive(Clone, Debug)]
pub struct Server {
    costs: Costs,
    remedy: Remedy,
    linger: Duration,
    now: Time,
    /// When each block is freed, oldest first.
    blocks: VecDeque<Time>,
    most: usize,
}

/// More blocks than this are more than the memory of any server of the time: connections wait.
pub const BLOCKS_MAX: usize = 1 << 20;

impl Server {
    /// A server that has served nobody yet; blocks stay for `linger`.
    pub fn new(costs: Costs, remedy: Remedy, linger: Duration) -> Server {
        let (now, blocks) = (Time::START, VecDeque::new());
        Server { costs, remedy, linger, now, blocks, most: 0 }
    }

    /// Serves connections for `span` more; gives how many.
    pub fn run(&mut self, span: Duration) -> u64 {
        let end = self.now + span;
        let mut connections = 0;
        loop {
            self.free();
            if self.blocks.len() >= BLOCKS_MAX {
                self.now = self.now.max(self.blocks[0]);
                self.free();
            }
            let scan = self.costs.scan * self.blocks.len() as u64;
            let signals = self.costs.signal * self.remedy.signals();
            let cost = self.costs.base + scan + signals;
            if cost.is_zero() || self.now + cost > end {
                self.now = end;
                self.free();
                return connections;
            }
            self.now += cost;
            connections += 1;
            if self.remedy.leaves_server_state() {
                self.blocks.push_back(self.now + self.linger);
                self.most = self.most.max(self.blocks.len());
            }
        }
    }

    fn free(&mut self) {
        while self.blocks.front().is_some_and(|&at| at <= self.now) {
            self.blocks.pop_front();
        }
    }

    /// Blocks in `TIME_WAIT` now. (N-72)
    pub fn lingering(&self) -> usize {
        self.blocks.len()
    }

    /// The memory of the most blocks that there were at once.
    pub fn memory_most(&self) -> Bytes {
        Bytes(self.costs.block.0 * self.most as u64)
    }
}

/// Connections per second that fill the processor in the long run, by the formula above.
pub fn rate(costs: &Costs, remedy: Remedy, linger: Duration) -> f64 {
    let base = costs.base + costs.signal * remedy.signals();
    let (base, scan) = (base.as_secs_f64(), costs.scan.as_secs_f64() * linger.as_secs_f64());
    match remedy.leaves_server_state() && scan > 0.0 {
        true => ((base * base + 4.0 * scan).sqrt() - base) / (2.0 * scan),
        false => 1.0 / base,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs {
        base: Duration::from_ms(10),
        signal: Duration::from_us(100),
        scan: Duration::from_us(1),
        block: Bytes(300),
    };
    const LINGER: Duration = Duration::from_secs(240);
    const REMEDIES: [Remedy; 4] =
        [Remedy::None, Remedy::ClientCloses, Remedy::Shift, Remedy::Negotiate];

    /// N-72: state accumulates and lowers the rate; the run ends where the formula says.
    #[test]
    fn the_rate_settles_where_the_processor_is_full() {
        for remedy in REMEDIES {
            let mut server = Server::new(COSTS, remedy, LINGER);
            server.run(Duration::from_secs(2_000));
            let found = server.run(Duration::from_secs(1_000)) as f64 / 1_000.0;
            let formula = rate(&COSTS, remedy, LINGER);
            assert!((found / formula - 1.0).abs() < 0.01, "{remedy:?}: {found}, {formula}");
        }
    }

    /// N-73, Fig 10: each remedy leaves no state at the server and gives more connections; those in
    /// TCP that need no further message give most.
    #[test]
    fn every_remedy_frees_the_server_and_gives_more_connections() {
        let rates = REMEDIES.map(|remedy| {
            let mut server = Server::new(COSTS, remedy, LINGER);
            let connections = server.run(Duration::from_secs(1_000));
            assert_eq!(server.lingering() == 0, remedy != Remedy::None, "{remedy:?}");
            connections
        });
        let [none, closes, shift, negotiate] = rates;
        assert!(closes > none && shift > none && negotiate >= closes, "{rates:?}");
    }

    #[test]
    fn thousands_of_blocks_in_a_list_cost_two_fifths_of_the_connections() {
        let costs = Costs { scan: Duration::from_us(2), ..COSTS };
        let mut server = Server::new(costs, Remedy::None, LINGER);
        let free = server.run(Duration::from_secs(1));
        server.run(Duration::from_secs(2_000));
        assert!(server.lingering() > 1000 && server.memory_most() > Bytes(300_000));
        let full = server.run(Duration::from_secs(100)) as f64 / 100.0;
        assert!(full < 0.6 * free as f64, "{full} of {free} connections a second");
    }
}
