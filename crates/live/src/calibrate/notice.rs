//! How a receiver learns that a packet has come: the kernel wakes it (interrupts), or it looks all the time (polling).
//!
//! Both configurations receive the same datagrams over the loopback interface, far enough apart that a receiver
//! that is to be woken has fallen asleep.
//!
//! Rows: A-38.

use super::constant::{Constant, Value};
use crate::statistics::Spread;
use crate::transfer::meter::now;
use lastmeter_linux::clock::thread_cpu;
use lastmeter_linux::{Doing, Error, Result};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

/// Datagrams of each configuration.
const DATAGRAMS: usize = 400;
/// Seconds from one to the next.
const APART: f64 = 100e-6;
/// Bytes of a datagram, of which the first eight say when it was sent.
const LEN: usize = 64;
/// Until a receiver gives up what was lost.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a configuration was like.
struct Noticed {
    /// Seconds from before the send until the receiver had it.
    latency: Spread,
    /// The receiver's CPU seconds for each.
    cpu: f64,
    /// Its voluntary switches of context for each.
    switches: f64,
}

/// How often this thread went to sleep.
fn switches() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Receives on `core`; `polls` if it never sleeps.
fn receive(socket: &UdpSocket, core: usize, polls: bool) -> Result<Noticed> {
    let what = "receiving datagrams";
    lastmeter_linux::cores::pin(Some(core))?;
    socket.set_nonblocking(polls).doing(what)?;
    socket.set_read_timeout(Some(PATIENCE)).doing(what)?;
    let (mut latencies, mut buffer) = (Vec::with_capacity(DATAGRAMS), [0; LEN]);
    let (spent, slept, mut heard) = (thread_cpu(), switches(), now());
    while latencies.len() < DATAGRAMS {
        match socket.recv(&mut buffer) {
            Ok(LEN) => {
                heard = now();
                let sent = buffer.first_chunk().map_or(heard, |sent| f64::from_le_bytes(*sent));
                latencies.push(heard - sent);
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if now() - heard > PATIENCE.as_secs_f64() {
                    break;
                }
            }
            Err(error) => return Err(error).doing(what),
        }
    }
    let count = latencies.len().max(1) as f64;
    Ok(Noticed {
        cpu: (thread_cpu() - spent) / count,
        switches: (switches() - slept) as f64 / count,
        latency: Spread::of(latencies),
    })
}

/// A sender on this thread's core, a receiver on another.
fn run(core: usize, polls: bool) -> Result<Noticed> {
    let what = "sending datagrams";
    let there = UdpSocket::bind("127.0.0.1:0").doing(what)?;
    let here = UdpSocket::bind("127.0.0.1:0").doing(what)?;
    here.connect(there.local_addr().doing(what)?).doing(what)?;
    thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&there, core, polls));
        let (mut data, mut next) = ([0; LEN], now() + 10.0 * APART);
        for _ in 0..DATAGRAMS {
            while now() < next {
                std::hint::spin_loop();
            }
            next = now() + APART;
            data[..8].copy_from_slice(&now().to_le_bytes());
            here.send(&data).doing(what)?;
        }
        receiver.join().unwrap_or_else(|_| {
            let found = "its thread panicked".to_owned();
            Err(Error::Worker { doing: "receive".to_owned(), found })
        })
    })
}

/// The constants of both configurations; `core` is the receiver's, and not the one that this thread runs on.
pub(super) fn measure(core: usize, into: &mut Vec<(String, Constant)>) -> Result<()> {
    for (name, polls) in [("woken", false), ("polled", true)] {
        let Noticed { latency, cpu, switches } = run(core, polls)?;
        let how = match polls {
            true => "a receiver that looks at its socket all the time",
            false => "a receiver that sleeps in recv",
        };
        let rest =
            format!("on another core, a datagram each 100 us, {switches:.2} sleeps for each");
        let method = format!("{how}, {rest}: from before the send to after the receive");
        into.push((format!("receive.{name}"), Constant::time(latency, &method)));
        let method = format!("{how}, {rest}: its CPU time for each");
        let (value, spread) = (Value::Time(cpu), latency.relative());
        into.push((
            format!("receive.{name}.cpu"),
            Constant::new(value, spread, latency.samples, method),
        ));
    }
    Ok(())
}
