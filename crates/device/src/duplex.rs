//! TLS over a connection whose directions are used by two threads: one waits for the other side's bytes while another
//! writes, as with a plain connection.

use crate::access::Access;
use crate::link::Stream;
use crate::tls;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The first byte of TLS.
const HANDSHAKE: u8 = 22;

/// Whether a client begins TLS; waits for its first byte.
///
/// # Errors
/// If none comes in time.
pub(crate) fn begins(stream: &TcpStream, patience: Duration) -> io::Result<bool> {
    let mut first = [0];
    stream.set_read_timeout(Some(patience))?;
    let peeked = stream.peek(&mut first);
    stream.set_read_timeout(None)?;
    Ok(peeked? > 0 && first[0] == HANDSHAKE)
}

/// The client's side, for one thread; the server has to be the one of this name.
///
/// # Errors
/// If it is no name.
pub fn connect(
    config: Arc<ClientConfig>,
    name: &str,
    stream: TcpStream,
) -> Result<impl Read + Write + Send + use<>, String> {
    let name = ServerName::try_from(name.to_owned()).map_err(|error| error.to_string())?;
    let tls = ClientConnection::new(config, name).map_err(|error| error.to_string())?;
    Ok(StreamOwned::new(tls, stream))
}

struct Shared {
    socket: TcpStream,
    tls: Mutex<ServerConnection>,
    /// How long a reader waits.
    patience: Mutex<Option<Duration>>,
}

/// The server's side. Its clones are the same connection.
#[derive(Clone)]
pub(crate) struct Duplex(Arc<Shared>);

impl Duplex {
    /// The handshake comes with the first reading.
    pub(crate) fn new(config: &Arc<ServerConfig>, socket: TcpStream) -> io::Result<Duplex> {
        let tls = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
        let (tls, patience) = (Mutex::new(tls), Mutex::default());
        Ok(Duplex(Arc::new(Shared { socket, tls, patience })))
    }
    fn tls(&self) -> MutexGuard<'_, ServerConnection> {
        self.0.tls.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Whose certificate the client has shown, once it has said anything.
    pub(crate) fn shown(&self, access: &Access) -> Result<Option<String>, String> {
        tls::shown(&self.tls(), access)
    }
    /// Sends what is encrypted.
    fn send(&self, tls: &mut ServerConnection) -> io::Result<()> {
        while tls.wants_write() {
            tls.write_tls(&mut &self.0.socket)?;
        }
        Ok(())
    }
    /// Waits for bytes, while others may write.
    fn wait(&self) -> io::Result<()> {
        let patience = *self.0.patience.lock().unwrap_or_else(PoisonError::into_inner);
        let until = patience.map(|patience| Instant::now() + patience);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let timeout = left.map(|left| Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            });
            let mut socket = [PollFd::new(&self.0.socket, PollFlags::IN)];
            match poll(&mut socket, timeout.as_ref()) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Read for Duplex {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.tls().reader().read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Commands say how long they are, so one that is cut off is noticed.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                done => return done,
            }
            self.wait()?;
            let mut tls = self.tls();
            tls.read_tls(&mut &self.0.socket)?;
            let done = tls.process_new_packets();
            // Also what is wrong is told to the other side.
            let sent = self.send(&mut tls);
            done.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, tls::words(&error)))?;
            sent?;
        }
    }
}

impl Write for Duplex {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut tls = self.tls();
        let count = tls.writer().write(bytes)?;
        self.send(&mut tls)?;
        Ok(count)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.send(&mut self.tls())
    }
}

impl Stream for Duplex {
    fn set_timeouts(&self, after: Option<Duration>) -> io::Result<()> {
        *self.0.patience.lock().unwrap_or_else(PoisonError::into_inner) = after;
        self.0.socket.set_write_timeout(after)
    }
    fn is_local(&self) -> bool {
        self.0.socket.is_local()
    }
}
