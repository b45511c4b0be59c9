//! Connections of clients: each has a thread while there is a place, and those that take too long are closed.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Unpredictable bytes, for challenges.
///
/// # Errors
/// If the system gives none.
pub fn unpredictable() -> Result<[u8; 16], String> {
    let mut bytes = [0; 16];
    let file = std::fs::File::open("/dev/urandom");
    file.and_then(|mut file| file.read_exact(&mut bytes)).map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// One of the places that clients take; free again when this is dropped, also by a panic.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(taken: &Arc<AtomicUsize>, most: usize) -> Option<Place> {
        let place = Place(taken.clone());
        (taken.fetch_add(1, Ordering::Relaxed) < most).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves a client on a thread of its own, unless `most` are being served; `taken` counts them.
pub fn serve(
    taken: &Arc<AtomicUsize>,
    most: usize,
    stack: usize,
    client: impl FnOnce() + Send + 'static,
) {
    let Some(place) = Place::take(taken, most) else { return };
    let run = move || {
        let _place = place;
        client();
    };
    // Without a thread the connection is closed.
    let _ = std::thread::Builder::new().stack_size(stack).spawn(run);
}

/// A connection that can give up.
pub(crate) trait Stream: Read + Write + Send + 'static {
    /// Reads and writes end with an error after so long; never, if absent.
    fn set_timeouts(&self, after: Option<Duration>) -> io::Result<()>;
    /// Whether the other end is on this host.
    fn is_local(&self) -> bool;
}

impl Stream for TcpStream {
    fn set_timeouts(&self, after: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(after)?;
        self.set_write_timeout(after)
    }
    fn is_local(&self) -> bool {
        self.peer_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback())
    }
}

impl Stream for UnixStream {
    fn set_timeouts(&self, after: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(after)?;
        self.set_write_timeout(after)
    }
    fn is_local(&self) -> bool {
        true
    }
}

/// The reading half of a connection whose client has until an instant to say who it is, however it spreads its bytes.
pub(crate) struct Patient<S> {
    stream: S,
    until: Option<Instant>,
    chosen: Arc<AtomicBool>,
}

impl<S> Patient<S> {
    /// `chosen` becomes true when the client has said all that it must.
    pub(crate) fn new(stream: S, until: Instant, chosen: Arc<AtomicBool>) -> Patient<S> {
        Patient { stream, until: Some(until), chosen }
    }
}

impl<S: Stream> Read for Patient<S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if let Some(until) = self.until {
            let left = until.saturating_duration_since(Instant::now());
            let chosen = self.chosen.load(Ordering::Relaxed);
            match (chosen, left.is_zero()) {
                (true, _) => self.until = None,
                (false, true) => return Err(io::ErrorKind::TimedOut.into()),
                (false, false) => {}
            }
            self.stream.set_timeouts((!chosen).then_some(left))?;
        }
        self.stream.read(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_whose_thread_panics_gives_its_place_back() {
        const MOST: usize = 3;
        let taken = Arc::<AtomicUsize>::default();
        let (told, served) = std::sync::mpsc::channel();
        for number in 0..10 {
            let told = told.clone();
            serve(&taken, MOST, 64 << 10, move || {
                told.send(number).expect("the test waits");
                // No message of a panic, which would look like one of a test.
                std::panic::resume_unwind(Box::new(number));
            });
            assert_eq!(served.recv_timeout(Duration::from_secs(10)), Ok(number));
            while taken.load(Ordering::Relaxed) > 0 {
                std::thread::yield_now();
            }
        }
        let all: Vec<Place> = (0..MOST).filter_map(|_| Place::take(&taken, MOST)).collect();
        serve(&taken, MOST, 64 << 10, || panic!("there is no place"));
        assert_eq!((all.len(), taken.load(Ordering::Relaxed)), (MOST, MOST));
    }

    /// A client that sends a byte now and then is given up when its time is over, not when it pauses.
    #[test]
    fn a_client_that_dawdles_is_given_up() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let (chosen, now) = (Arc::<AtomicBool>::default(), Instant::now());
        let until = now + Duration::from_millis(100);
        let mut patient = Patient::new(ours, until, chosen.clone());
        let dawdler = std::thread::spawn(move || {
            while theirs.write_all(&[0]).is_ok() && now.elapsed() < Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let mut byte = [0];
        while patient.read(&mut byte).is_ok() {
            assert!(now.elapsed() < Duration::from_secs(2), "it is never given up");
        }
        assert!(now.elapsed() >= Duration::from_millis(100));
        // Once it has chosen, it may pause as long as it likes.
        chosen.store(true, Ordering::Relaxed);
        assert!(patient.read(&mut byte).is_ok() && patient.until.is_none());
        drop(patient);
        dawdler.join().expect("ended");
    }
}
