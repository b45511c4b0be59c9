//! The state of closed connections in a server, and its cost.
//!
//! A server that closes first keeps a control block in `TIME_WAIT` for twice the maximum segment lifetime.
//! BSD's TCP kept its blocks in a list, so that each connection request had to search all of them: at `r`
//! connections per second a connection costs `base + scan r linger`, and the rate that saturates the
//! processor solves
//!
//! ```text
//! r (base + scan r linger) = 1,   r = (sqrt(base^2 + 4 scan linger) - base) / (2 scan linger)
//! ```
//!
//! | remedy (N-73, N-74) | who lingers | changes |
//! |---|---|---|
//! | none | the server | nothing |
//! | client closes | the client | the application: HTTP says who closes, and the server waits |
//! | shift | the client | the client's TCP: it resets the server and lingers ([`Lingering::Shift`]) |
//! | negotiate | the client | both TCPs: an option in the SYNs ([`Lingering::Negotiate`]) |
//!
//! [`WebServer`] and [`WebClients`] run all four with real segments; [`rate`] is the formula.
//!
//! Source: Faber, Touch & Yue, The TIME-WAIT state in TCP and its effect on busy servers, INFOCOM
//! 1999; lists of blocks: BSD's `in_pcblookup`, which searches the newest blocks first.
//!
//! [`WebServer`]: super::WebServer
//! [`WebClients`]: super::WebClients

use super::Lingering;
use lastmeter_base::Duration;

/// Which end keeps a closed connection's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The server, which closes first.
    None,
    /// The client, because it closes first: a message that says so.
    ClientCloses,
    /// The client, which resets the server.
    Shift,
    /// The client, as agreed in the handshake.
    Negotiate,
}

impl Remedy {
    /// All of them.
    pub const ALL: [Remedy; 4] =
        [Remedy::None, Remedy::ClientCloses, Remedy::Shift, Remedy::Negotiate];

    /// Whether the server closes first.
    pub fn server_closes(self) -> bool {
        self != Remedy::ClientCloses
    }

    /// How both ends' TCP decides who lingers.
    pub fn lingering(self) -> Lingering {
        match self {
            Remedy::None | Remedy::ClientCloses => Lingering::First,
            Remedy::Shift => Lingering::Shift,
            Remedy::Negotiate => Lingering::Negotiate,
        }
    }
}

/// Connections per second that saturate a processor in the long run, where each takes `base`, plus `scan` for
/// every lingering block.
///
/// ```
/// use lastmeter_base::Duration;
/// use lastmeter_transport::tcp::time_wait::rate;
/// let (base, scan) = (Duration::from_ms(10), Duration::from_us(1));
/// assert_eq!(rate(base, scan, Duration::ZERO), 100.0);
/// assert_eq!(rate(base, scan * 2, Duration::from_secs(100)).round(), 50.0);
/// ```
pub fn rate(base: Duration, scan: Duration, linger: Duration) -> f64 {
    let (base, scan) = (base.as_secs_f64(), scan.as_secs_f64() * linger.as_secs_f64());
    match scan > 0.0 {
        true => ((base * base + 4.0 * scan).sqrt() - base) / (2.0 * scan),
        false => 1.0 / base,
    }
}
