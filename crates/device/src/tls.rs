//! TLS of devices: the server's side, with a certificate and key of its owner.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
