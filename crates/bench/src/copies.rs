//! `lastmeter bench copies`: what it gains that the copies of a message overlap (N-68).
//!
//! ```text
//! sender's memory --copy, its core--> socket --copy, receiver's core--> receiver's memory
//!
//! one after the other   [ the whole message in ][ the whole message out ]
//! overlapped            [ in | in | in | in ]
//!                            [ out | out | out | out ]
//! ```
//!
//! Both ends are threads on a socket of this kernel; neither sleeps, so that no wake-up counts. The next message is
//! sent when the receiver says that it has the last, as in ATP. Each message is timed by itself, and the fastest
//! twentieth counts: those for which both threads had a core, which other programs prevent for many. So they come
//! before others where that is permitted, and who has waited for long lets others run. A message that is no longer
//! than a piece cannot overlap.

use crate::{Bench, Complaint, Measurement, Setting};
use lastmeter_linux::clock::Precedence;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(crate) const ALL: &[(&str, Bench)] = &[
    ("copies/overlapped@4096", |s| measure(s, "copies/overlapped@4096", 4 << 10)),
    ("copies/overlapped@16384", |s| measure(s, "copies/overlapped@16384", 16 << 10)),
    ("copies/overlapped@65536", |s| measure(s, "copies/overlapped@65536", 64 << 10)),
    ("copies/overlapped@131072", |s| measure(s, "copies/overlapped@131072", 128 << 10)),
];

/// A piece: ATP's packets had as much at most.
const PIECE: usize = 8 << 10;
/// How long messages are sent, in turns of both kinds.
const SECONDS: f64 = 1.2;
const SECONDS_QUICK: f64 = 0.4;
const TURNS: usize = 8;
/// Messages of a turn that are timed, at most.
const TIMED_MAX: usize = 1 << 16;
/// The share of messages that are the fastest.
const FASTEST: f64 = 0.05;
/// Longer than the other end takes if it has a core.
const SPIN: Duration = Duration::from_micros(100);
/// Without a byte for so long, the other end is gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes per second of the fastest messages, overlapped beside one after the other.
fn measure(setting: &Setting, name: &str, len: usize) -> Result<Measurement, Complaint> {
    let seconds = if setting.quick { SECONDS_QUICK } else { SECONDS };
    let [mut overlapped, mut whole] = [Vec::new(), Vec::new()];
    // Threads started from here on come before others, as far as permitted.
    let _first = Precedence::take();
    for _ in 0..TURNS {
        run(len, true, seconds / (2 * TURNS) as f64, &mut overlapped)?;
        run(len, false, seconds / (2 * TURNS) as f64, &mut whole)?;
    }
    let rate = |times: &mut Vec<f64>| {
        times.sort_unstable_by(f64::total_cmp);
        let at = (times.len() as f64 * FASTEST) as usize;
        times.get(at).map_or(0.0, |time| len as f64 / time)
    };
    let note = format!(
        "messages through a socket, copied in and out in pieces of {PIECE} B by two cores, \
         the fastest twentieth of {}",
        overlapped.len()
    );
    let mut result =
        Measurement::new(name, rate(&mut overlapped), "B/s".to_owned(), String::new(), note);
    result.beside("one after the other", rate(&mut whole));
    Ok(result)
}

/// Repeats an operation that would block until it has done something.
fn until(mut one: impl FnMut() -> std::io::Result<usize>) -> std::io::Result<usize> {
    let began = Instant::now();
    loop {
        match one() {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if began.elapsed() > PATIENCE {
                    return Err(ErrorKind::TimedOut.into());
                }
                pause(began);
            }
            done => return done,
        }
    }
}

/// Waits a moment, since `began`.
fn pause(began: Instant) {
    match began.elapsed() < SPIN {
        true => std::hint::spin_loop(),
        false => std::thread::yield_now(),
    }
}

/// Takes messages, each from when it is offered on.
fn receive(
    far: &mut UnixStream,
    len: usize,
    offered: &AtomicU64,
    taken: &AtomicU64,
) -> std::io::Result<()> {
    let mut data = vec![0; len];
    for message in 1.. {
        let began = Instant::now();
        while offered.load(Ordering::Acquire) < message {
            pause(began);
        }
        if offered.load(Ordering::Acquire) == u64::MAX {
            break;
        }
        let mut got = 0;
        while got < len {
            let most = len.min(got + PIECE);
            got += until(|| far.read(&mut data[got..most]))?;
        }
        // The last byte of a message is its number.
        if data[len - 1] != message as u8 {
            return Err(ErrorKind::InvalidData.into());
        }
        taken.store(message, Ordering::Release);
    }
    Ok(())
}

/// Sends messages for so long; the receiver begins a message at once, or when all of it is in the socket. Appends the
/// seconds that each took.
fn run(len: usize, overlaps: bool, seconds: f64, times: &mut Vec<f64>) -> Result<(), Complaint> {
    let (mut near, mut far) = UnixStream::pair()?;
    near.set_nonblocking(true)?;
    far.set_nonblocking(true)?;
    // Messages that may be read, and those that have been.
    let (offered, taken) = (AtomicU64::new(0), AtomicU64::new(0));
    let (began, mut count) = (Instant::now(), 0_u64);
    std::thread::scope(|scope| -> std::io::Result<()> {
        let receiver = scope.spawn(|| receive(&mut far, len, &offered, &taken));
        let mut data = vec![0; len];
        let mut send = || -> std::io::Result<()> {
            while began.elapsed().as_secs_f64() < seconds && !receiver.is_finished() {
                count += 1;
                data[len - 1] = count as u8;
                let from = Instant::now();
                if overlaps {
                    offered.store(count, Ordering::Release);
                }
                let mut sent = 0;
                while sent < len {
                    let most = len.min(sent + PIECE);
                    sent += until(|| near.write(&data[sent..most]))?;
                }
                offered.store(count, Ordering::Release);
                let waits = Instant::now();
                while taken.load(Ordering::Acquire) < count && !receiver.is_finished() {
                    pause(waits);
                }
                if times.len() < TURNS * TIMED_MAX {
                    times.push(from.elapsed().as_secs_f64());
                }
            }
            Ok(())
        };
        let sent = send();
        offered.store(u64::MAX, Ordering::Release);
        let received = receiver.join().unwrap_or_else(|_| Err(ErrorKind::Other.into()));
        sent.and(received)
    })?;
    Ok(())
}
