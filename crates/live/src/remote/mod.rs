//! Both ends of a connection, each observed on its own host: an agent on one, a driver on the other.
//!
//! ```text
//! driver                                              agent
//!   <------------------------------ challenge {nonce}
//!   hello {nonce, proof} -------------------------->    has the driver the token?
//!   <------------------- hello {proof, name, machine}   has the agent it?
//!   clock {} -------------------------------------->    several times: how far apart the clocks are
//!   <------------------------------- clock {at, wall}
//!
//!   transfer {setting, sends, at} ----------------->    a transfer of our own: the agent listens,
//!   <-------------------------- listening {port, key}   the driver connects, both look
//!   stop {} --------------------------------------->
//!   <---------------------------- seen {observation}
//!
//!   watch {from} ---------------------------------->    somebody's program: looks at the sockets whose
//!   <----------------------------------- watching {}    other end is at the driver's addresses
//!   clock {} ... ---------------------------------->
//!   report {pairs} -------------------------------->    of these, those of the program
//!   <---------------------------- seen {observation}
//! ```
//!
//! One JSON object a line over TCP. Lines have a greatest length and a timeout; anything out of turn ends the session.
//!
//! **Access.** Whoever has the token can make the agent's host take part in transfers of at most
//! [`DURATION_MAX`] and see the counters of its sockets with hosts that the driver names. Each side shows that it has
//! the token by an HMAC of two random numbers, so it is never told, but nothing is encrypted or protected after that,
//! least of all the data of a transfer: between hosts that do not trust their network, ssh carries the control
//! connection.
//!
//! | limit | |
//! |---|---|
//! | sessions | as for every [`Agent`]; one transfer at a time |
//! | a line | 4 KiB before the token is known to be right, then 1 MiB |
//! | first message | 5 s |
//! | silence | 60 s |
//! | a transfer | 60 s and as much warm-up, 256 MiB of messages |
//! | a look at connections | 24 h |

mod agent;
mod driver;
mod ends;
mod message;
mod offset;
#[cfg(test)]
mod tests;
mod watch;

pub use crate::agent::Agent;
pub use agent::serve;
pub use driver::{Addresses, Peer, Transfer};
pub(crate) use ends::{Job, play};
pub(crate) use message::fuzz;
pub use message::{DURATION_MAX, Seen, VERSION};
pub use offset::{Clocks, Offset};

use lastmeter_linux::{Result, wrong};

/// Where an agent listens unless it is told otherwise, and where a driver looks for it.
pub const PORT: u16 = 7401;
/// The shortest token: one that cannot be guessed from what crosses the network.
pub const TOKEN_LEN_MIN: usize = 16;
/// Characters of the key with which a connection of a transfer begins.
pub(crate) const KEY_LEN: usize = 2 * lastmeter_linux::token::LEN;

/// Rejects a token that could be guessed.
///
/// # Errors
/// It is too short, or malformed.
pub fn check_token(token: &str) -> Result<()> {
    crate::agent::check_token(token)?;
    match token.len() < TOKEN_LEN_MIN {
        true => wrong(
            "token",
            format!("{} characters", token.len()),
            format!("{TOKEN_LEN_MIN} or more, which nobody guesses"),
        ),
        false => Ok(()),
    }
}

/// What a side proves that it has the token with.
fn proof(token: &str, side: &str, first: &str, second: &str) -> String {
    lastmeter_linux::token::proof(
        token,
        &format!("lastmeter why {VERSION} {side} {first} {second}"),
    )
}
