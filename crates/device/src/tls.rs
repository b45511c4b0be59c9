//! TLS of devices: the server's side, with a certificate and key of its owner.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde::Deserialize;
use std::io::{self, IoSlice, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The part of a device's file that has its certificate.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// The certificate, and those that lead to one that clients know, in PEM.
    pub certificate: PathBuf,
    /// Its key, in PEM.
    pub key: PathBuf,
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let place = |error: rustls::pki_types::pem::Error| format!("{}: {error}", path.display());
    let found = CertificateDer::pem_file_iter(path).map_err(place)?;
    let found = found.collect::<Result<Vec<_>, _>>().map_err(place)?;
    if found.is_empty() {
        return Err(format!("{}: no certificate in it", path.display()));
    }
    Ok(found)
}

/// What a server needs; the files are in `folder`.
///
/// # Errors
/// Which file cannot be read or used.
pub fn server(files: &Files, folder: &Path) -> Result<Arc<ServerConfig>, String> {
    let chain = certificates(&folder.join(&files.certificate))?;
    let path = folder.join(&files.key);
    let place = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let key = PrivateKeyDer::from_pem_file(&path).map_err(|error| place(&error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = versions.map_err(|error| error.to_string())?.with_no_client_auth();
    let mut config = config.with_single_cert(chain, key).map_err(|error| place(&error))?;
    // Nobody resumes a session, and TigerVNC's viewer waits for ever if a ticket comes together with an answer.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// What a client needs that trusts these certificates only.
///
/// # Errors
/// If the file cannot be read or used.
pub fn client(trusted: &Path) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(trusted)? {
        roots.add(certificate).map_err(|error| format!("{}: {error}", trusted.display()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = versions.map_err(|error| error.to_string())?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

/// A connection's two halves, which TLS joins: what it reads may make it write.
struct Joined<R, W> {
    reader: R,
    writer: W,
}

impl<R: Read, W> Read for Joined<R, W> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.reader.read(bytes)
    }
}

impl<R, W: Write> Write for Joined<R, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }
    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        for part in parts {
            self.writer.write_all(part)?;
        }
        self.writer.flush()?;
        Ok(parts.iter().map(|part| part.len()).sum())
    }
    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// The server's side of TLS over a connection of two halves, used by one thread.
pub(crate) struct Secured<R: Read, W: Write>(Mutex<StreamOwned<ServerConnection, Joined<R, W>>>);

impl<R: Read, W: Write> Secured<R, W> {
    /// The handshake comes with the first reading or writing.
    pub(crate) fn new(config: &Arc<ServerConfig>, reader: R, writer: W) -> io::Result<Self> {
        let tls = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
        Ok(Secured(Mutex::new(StreamOwned::new(tls, Joined { reader, writer }))))
    }
    /// Reads what is encrypted.
    pub(crate) fn reader(&self) -> Half<'_, R, W> {
        Half(self)
    }
    /// Writes what is to be encrypted.
    pub(crate) fn writer(&self) -> Half<'_, R, W> {
        Half(self)
    }
}

/// One of the two.
pub(crate) struct Half<'a, R: Read, W: Write>(&'a Secured<R, W>);

impl<R: Read, W: Write> Read for Half<'_, R, W> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).read(bytes)
    }
}

impl<R: Read, W: Write> Write for Half<'_, R, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}
