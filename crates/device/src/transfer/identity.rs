//! A device's own key, and TLS 1.3 in which both ends prove theirs: raw public keys (RFC 7250), no certificates.

use lastmeter_wire::ticket::KEY_LEN;
use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring as provider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, Error, PeerMisbehaved, ServerConfig,
    SignatureScheme,
};
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

/// The longest file of a key.
const FILE_MAX: usize = 1024;
/// What precedes an Ed25519 key in DER (RFC 8410 §4).
const PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// A device's public key: by it tickets name the device.
pub type Key = [u8; KEY_LEN];

/// A key in hexadecimal digits.
pub fn text(key: &Key) -> String {
    key.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A key from its hexadecimal digits.
pub fn parse(text: &str) -> Option<Key> {
    let digits = text.len() == 2 * KEY_LEN && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let byte = |at: usize| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok();
    let mut key = [0; KEY_LEN];
    for (at, own) in key.iter_mut().enumerate() {
        *own = byte(at).filter(|_| digits)?;
    }
    Some(key)
}

/// The key within its DER.
fn inner(der: &[u8]) -> Option<Key> {
    der.strip_prefix(&PREFIX)?.try_into().ok()
}

/// The key of the other end of a connection, once it has proved it.
pub fn peer(certificates: Option<&[CertificateDer<'static>]>) -> Option<Key> {
    certificates.and_then(|all| all.first()).and_then(|der| inner(der))
}

/// A device's key pair.
pub struct Identity {
    certified: Arc<CertifiedKey>,
    /// Its public key.
    pub key: Key,
}

impl Identity {
    fn new(pkcs8: &[u8]) -> Result<Identity, String> {
        let der = PrivatePkcs8KeyDer::from(pkcs8);
        let signer = provider::sign::any_eddsa_type(&der).map_err(|error| error.to_string())?;
        let public = signer.public_key().ok_or("a key without its public part")?;
        let key = inner(&public).ok_or("not a key of Ed25519")?;
        let certificate = CertificateDer::from(public.as_ref().to_vec());
        Ok(Identity { certified: Arc::new(CertifiedKey::new(vec![certificate], signer)), key })
    }
    fn generate() -> Result<Vec<u8>, String> {
        let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
        Ok(made.map_err(|_| "the system has no random numbers")?.as_ref().to_vec())
    }
    /// A key for as long as the program runs: of a holder, who need not be known.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn ephemeral() -> Result<Identity, String> {
        Identity::new(&Identity::generate()?)
    }
    /// The key of this file, which only its owner can read; it is made if it is missing.
    ///
    /// # Errors
    /// If it cannot be read or made.
    pub fn at(path: &Path) -> Result<Identity, String> {
        let place = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        if !path.exists() {
            let mut options = std::fs::OpenOptions::new();
            let file = options.write(true).create_new(true).mode(0o600).open(path);
            let made = Identity::generate()?;
            let written = file.and_then(|mut file| file.write_all(&made).and(file.sync_all()));
            written.map_err(|error| place(&error))?;
        }
        let pkcs8 = lastmeter_linux::files::read(path, FILE_MAX)?;
        Identity::new(&pkcs8).map_err(|why| place(&why))
    }
    /// What a server needs: whoever connects proves a key, whichever it is.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn server(&self) -> Result<Arc<ServerConfig>, String> {
        let provider = Arc::new(provider::default_provider());
        let verifier = Arc::new(Pinned::new(None, &provider));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| error.to_string())?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(
                self.certified.clone(),
            )));
        // Each connection is for one transfer.
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }
    /// What a client needs for the device with this key.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn client(&self, device: Key) -> Result<Arc<ClientConfig>, String> {
        let provider = Arc::new(provider::default_provider());
        let verifier = Arc::new(Pinned::new(Some(device), &provider));
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                self.certified.clone(),
            )));
        config.enable_sni = false;
        Ok(Arc::new(config))
    }
}

/// Takes a key of Ed25519: this one, or any.
#[derive(Debug)]
struct Pinned {
    wanted: Option<Key>,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    fn new(wanted: Option<Key>, provider: &Arc<CryptoProvider>) -> Pinned {
        Pinned { wanted, provider: provider.clone() }
    }
    fn takes(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        match (inner(certificate), self.wanted) {
            (Some(_), None) => Ok(()),
            (Some(found), Some(wanted)) if found == wanted => Ok(()),
            _ => Err(Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer)),
        }
    }
    fn signed(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(certificate.as_ref());
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, signature, algorithms)
    }
}

/// There is only TLS 1.3 here.
fn older() -> Result<HandshakeSignatureValid, Error> {
    Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into())
}

/// What both sides look at in the same way: signatures of TLS 1.3 by raw keys of Ed25519, and no others.
macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            older()
        }
        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.signed(message, cert, dss)
        }
        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }
        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.takes(end_entity).map(|()| ServerCertVerified::assertion())
    }
    signatures!();
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.takes(end_entity).map(|()| ClientCertVerified::assertion())
    }
    signatures!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk.identity");
        let made = Identity::at(&path).expect("made").key;
        assert_eq!(Identity::at(&path).expect("read").key, made);
        let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(parse(&text(&made)), Some(made));
        assert_eq!(parse(&text(&made)[1..]), None);
        assert_eq!(parse(&"é".repeat(32)), None);
        std::fs::write(&path, b"nonsense").expect("written");
        assert!(Identity::at(&path).is_err());
    }
}
