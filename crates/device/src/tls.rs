//! TLS of devices: the server's side, with a certificate and key of its owner, and certificates by which clients say
//! who they are.
//!
//! ```text
//! certificate shown -> its fingerprint in the file?  -> that client
//!                      signed by one of `clients`?   -> the client that it names (access::Certified)
//!                      else the connection ends in the handshake
//! none shown        -> tokens, or anyone
//! ```
//!
//! Rows: N-20.

use crate::access::{Access, Certificates, Certified};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::UnixTime;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    RootCertStore, ServerConfig, ServerConnection, SignatureScheme, StreamOwned,
};
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
    /// Authorities, in PEM: a client's certificate that one of them has signed says who it is.
    pub clients: Option<PathBuf>,
}

impl Files {
    /// What clients' certificates count for, with these files or without TLS.
    pub fn certificates(files: Option<&Files>) -> Certificates {
        match files {
            None => Certificates::Absent,
            Some(Files { clients: None, .. }) => Certificates::Pinned,
            Some(Files { clients: Some(_), .. }) => Certificates::Named,
        }
    }
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

/// What a server needs; the files are in `folder`, and `access` knows whose certificates are whose.
///
/// # Errors
/// Which key of the file names what cannot be read or used.
pub fn server(files: &Files, folder: &Path, access: &Access) -> Result<Arc<ServerConfig>, String> {
    let read = |key: &str, path: &Path| {
        certificates(&folder.join(path)).map_err(|why| format!("tls.{key}: {why}"))
    };
    let chain = read("certificate", &files.certificate)?;
    let path = folder.join(&files.key);
    let place = |error: &dyn std::fmt::Display| format!("tls.key: {}: {error}", path.display());
    let key = PrivateKeyDer::from_pem_file(&path).map_err(|error| place(&error))?;
    let mut roots = RootCertStore::empty();
    if let Some(clients) = &files.clients {
        for authority in read("clients", clients)? {
            let place = |error| format!("tls.clients: {}: {error}", clients.display());
            roots.add(authority).map_err(place)?;
        }
        if access.certified.is_empty() {
            return Err(
                "tls.clients: there is no [clients.NAME] that a certificate could name".to_owned()
            );
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions =
        ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let config = versions.map_err(|error| error.to_string())?;
    let config = match access.certified.is_empty() {
        true => config.with_no_client_auth(),
        false => config.with_client_cert_verifier(Arc::new(Clients::new(access, roots, provider)?)),
    };
    let mut config = config.with_single_cert(chain, key).map_err(|error| place(&error))?;
    // Nobody resumes a session, and TigerVNC's viewer waits for ever if a ticket comes together with an answer.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// What a client needs that trusts these certificates only, and has one of its own with its key, or none.
///
/// # Errors
/// If a file cannot be read or used.
pub fn client(trusted: &Path, own: Option<(&Path, &Path)>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(trusted)? {
        roots.add(certificate).map_err(|error| format!("{}: {error}", trusted.display()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = versions.map_err(|error| error.to_string())?.with_root_certificates(roots);
    let Some((chain, path)) = own else { return Ok(Arc::new(config.with_no_client_auth())) };
    let place = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let key = PrivateKeyDer::from_pem_file(path).map_err(|error| place(&error))?;
    let config = config.with_client_auth_cert(certificates(chain)?, key);
    Ok(Arc::new(config.map_err(|error| place(&error))?))
}

/// Takes certificates that are a client's, and clients without one.
#[derive(Debug)]
struct Clients {
    certified: Certified,
    /// Verifies what an authority has signed, if there are any.
    signed: Option<Arc<dyn ClientCertVerifier>>,
    /// Whose signatures are worth showing; none if every certificate may be.
    hints: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Clients {
    fn new(
        access: &Access,
        roots: RootCertStore,
        provider: Arc<CryptoProvider>,
    ) -> Result<Clients, String> {
        let certified = access.certified.clone();
        let hints = if certified.has_pinned() { Vec::new() } else { roots.subjects() };
        let algorithms = provider.signature_verification_algorithms;
        let signed = (!roots.is_empty()).then(|| {
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()
        });
        let signed = signed.transpose().map_err(|error| format!("tls.clients: {error}"))?;
        Ok(Clients { certified, signed, hints, algorithms })
    }
}

/// Why a certificate is nobody's.
#[derive(Debug)]
struct Nobody(String);

impl std::fmt::Display for Nobody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Nobody {}

impl ClientCertVerifier for Clients {
    fn client_auth_mandatory(&self) -> bool {
        false
    }
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }
    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if self.certified.pinned(certificate).is_none() {
            let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
            let signed = self.signed.as_ref().ok_or(unknown)?;
            signed.verify_client_cert(certificate, between, now)?;
        }
        let nobody = |why| CertificateError::Other(OtherError(Arc::new(Nobody(why))));
        self.certified.client(certificate).map_err(|why| Error::InvalidCertificate(nobody(why)))?;
        Ok(ClientCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// What is wrong with a connection, in words.
pub(crate) fn words(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::Other(OtherError(why))) => why.to_string(),
        other => other.to_string(),
    }
}

/// Whose certificate the other end of a connection has shown, once it has shaken hands.
pub(crate) fn shown(tls: &ServerConnection, access: &Access) -> Result<Option<String>, String> {
    let certificate = tls.peer_certificates().and_then(|all| all.first());
    let client = certificate.map(|certificate| access.certified.client(certificate));
    Ok(client.transpose()?.map(str::to_owned))
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
    pub(crate) fn new(config: &Arc<ServerConfig>, reader: R, writer: W) -> io::Result<Self> {
        let tls = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
        Ok(Secured(Mutex::new(StreamOwned::new(tls, Joined { reader, writer }))))
    }
    /// Shakes hands; whose certificate the client has shown, if it has.
    pub(crate) fn shake(&self, access: &Access) -> io::Result<Option<String>> {
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let StreamOwned { conn, sock } = &mut *stream;
        if conn.is_handshaking() {
            conn.complete_io(sock).map_err(|error| {
                let found = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
                match found.map(words) {
                    Some(words) => io::Error::new(error.kind(), words),
                    None => error,
                }
            })?;
        }
        shown(conn, access).map_err(io::Error::other)
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
