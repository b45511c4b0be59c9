//! The kernel's own times: system call, context switch, wake-up, timer, socket calls.

use super::constant::{Constant, Value};
use crate::statistics::Spread;
use crate::transfer::meter::now;
use lastmeter_linux::cores::{allowed, pinned};
use lastmeter_linux::{Doing, Error, Result};
use rustix::pipe::pipe;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const BATCHES: usize = 25;
/// System calls per batch.
const CALLS: usize = 2_000;
/// Round trips between threads per batch.
const TRIPS: usize = 200;
/// Sleeps of each kind.
const SLEEPS: usize = 40;

fn batches(mut one: impl FnMut() -> f64) -> Spread {
    one();
    Spread::of(std::iter::repeat_with(one).take(BATCHES).collect())
}

/// All constants of the kernel, by name.
pub(crate) fn measure(into: &mut Vec<(String, Constant)>) -> Result<()> {
    let cores = allowed()?;
    let (first, last) = (cores[0], cores[cores.len() - 1]);
    let call = batches(|| {
        let from = now();
        for _ in 0..CALLS {
            let _ = rustix::process::getppid();
        }
        (now() - from) / CALLS as f64
    });
    let method = "getppid, 2000 in a row, time per call";
    into.push(("system.call".to_owned(), Constant::time(call, method)));
    let same = pinned(first, || ping_pong(first))?;
    let method = "two threads on one core pass a byte back and forth through pipes; half a round \
                  trip, less a write and a read that do not block";
    into.push(("context.switch".to_owned(), Constant::time(same, method)));
    if first != last {
        let other = pinned(first, || wake_up(last))?;
        let method = "a thread sleeping on another core reads a pipe: time from before the write \
                      to after the read";
        into.push(("wake.other-core".to_owned(), Constant::time(other, method)));
        pinned(first, || super::notice::measure(last, into))?;
    }
    into.push(("timer.late".to_owned(), timer()?));
    socket_calls(into)
}

/// Half a round trip between two threads on one core, without the cost of the calls.
fn ping_pong(core: usize) -> Result<Spread> {
    let what = "opening a pipe";
    let ((there_out, there_in), (back_out, back_in)) = (pipe().doing(what)?, pipe().doing(what)?);
    let trips = |output: &OwnedFd| {
        batches(|| {
            let from = now();
            for _ in 0..TRIPS {
                let _ = rustix::io::write(&there_in, &[1]);
                let _ = rustix::io::read(output, &mut [0]);
            }
            (now() - from) / TRIPS as f64
        })
    };
    // A pipe's buffer has room for a byte, so neither blocks.
    let calls = trips(&there_out);
    let echo = move || -> Result<()> {
        lastmeter_linux::cores::pin(Some(core))?;
        while rustix::io::read(&there_out, &mut [0]).is_ok_and(|n| n > 0) {
            let _ = rustix::io::write(&back_in, &[1]);
        }
        Ok(())
    };
    let thread = thread::spawn(echo);
    let trips = trips(&back_out);
    drop(there_in);
    thread.join().unwrap_or_else(|_| Err(gone()))?;
    let less = |trip: f64| (trip / 2.0 - calls.low).max(0.0);
    Ok(Spread {
        median: less(trips.median),
        low: less(trips.low),
        high: less(trips.high),
        samples: trips.samples,
    })
}

fn gone() -> Error {
    Error::Worker { doing: "answer".to_owned(), found: "its thread panicked".to_owned() }
}

/// From before the write to after the read, with the reader asleep on another core.
fn wake_up(core: usize) -> Result<Spread> {
    const WAKES: usize = 300;
    let (out, input): (OwnedFd, OwnedFd) = pipe().doing("opening a pipe")?;
    let woken = AtomicU64::new(0);
    let mut latencies = Vec::with_capacity(WAKES);
    thread::scope(|scope| -> Result<()> {
        let reader = scope.spawn(|| -> Result<()> {
            lastmeter_linux::cores::pin(Some(core))?;
            let out = out;
            while rustix::io::read(&out, &mut [0]).is_ok_and(|n| n > 0) {
                woken.store(now().to_bits(), Ordering::Release);
            }
            Ok(())
        });
        for _ in 0..WAKES {
            // Long enough to fall asleep, short of the deepest idle states.
            let until = now() + 60e-6;
            while now() < until {
                std::hint::spin_loop();
            }
            woken.store(0, Ordering::Release);
            let from = now();
            let _ = rustix::io::write(&input, &[1]);
            let at = loop {
                let bits = woken.load(Ordering::Acquire);
                if bits != 0 {
                    break f64::from_bits(bits);
                }
                std::hint::spin_loop();
            };
            latencies.push(at - from);
        }
        drop(input);
        reader.join().unwrap_or_else(|_| Err(gone()))
    })?;
    Ok(Spread::of(latencies))
}

/// Lateness of a wake-up from sleep.
fn timer() -> Result<Constant> {
    let asked = Duration::from_micros(200);
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let one = || {
        let from = now();
        thread::sleep(asked);
        now() - from - asked.as_secs_f64()
    };
    let late = Spread::of(std::iter::repeat_with(one).take(SLEEPS).collect());
    Ok(Constant::time(late, "sleeps of 200 us with minimal timer slack: lateness of their end"))
}

/// `write` and `read` on a UNIX socket at several sizes, on one thread: a line through the times
/// gives the cost per call and per byte, copies in and out together.
fn socket_calls(into: &mut Vec<(String, Constant)>) -> Result<()> {
    const SIZES: [usize; 5] = [1, 1 << 10, 4 << 10, 16 << 10, 32 << 10];
    const ROUNDS: usize = 100;
    let what = "a UNIX socket pair";
    let (mut a, mut b) = UnixStream::pair().doing(what)?;
    let mut points = Vec::new();
    let mut spreads = Vec::new();
    for size in SIZES {
        let data = vec![1u8; size];
        let mut room = vec![0u8; size];
        let mut failed = None;
        let spread = batches(|| {
            let from = now();
            for _ in 0..ROUNDS {
                let done = a.write_all(&data).and_then(|()| b.read_exact(&mut room));
                failed = failed.take().or(done.err());
            }
            (now() - from) / ROUNDS as f64
        });
        if let Some(e) = failed {
            return Err(e).doing(what);
        }
        points.push((size as f64, spread.low));
        spreads.push(spread.relative());
    }
    let rows: Vec<Vec<f64>> = points.iter().map(|(size, _)| vec![1.0, *size]).collect();
    let times: Vec<f64> = points.iter().map(|(_, time)| *time).collect();
    let fit = crate::fit::relative(&rows, &times);
    let method = "write and read of 1 B to 32 KiB on a UNIX socket by one thread; a line through \
                  the times";
    for (name, value) in
        [("per-call", Value::Time(fit.factors[0])), ("per-byte", Value::PerByte(fit.factors[1]))]
    {
        let constant = Constant::new(value, fit.error, BATCHES * SIZES.len(), method);
        into.push((format!("socket.unix.{name}"), constant));
    }
    Ok(())
}
