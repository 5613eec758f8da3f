//! The TLS settings of a run: client certificate, trusted issuers and session tickets.
//!
//! The code names the provider and never looks for one at run time. Trusted issuers are those of the system's bundle unless the
//! user names files. Without a bundle, compiled-in roots are used, so that the tool works in an empty image.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::input_files::InputFiles;

/// The TLS settings of connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// True to accept any certificate (`-insecure`).
    pub insecure: bool,
    /// The PEM files to use instead of the system's bundle (`-root-certs`).
    pub roots: Vec<PathBuf>,
    /// The PEM files with the certificate chain and its key, which may be the same file (`-cert` and `-key`).
    pub identity: Option<(PathBuf, PathBuf)>,
    /// True to resume sessions (`-session-tickets`).
    pub resume: bool,
    /// True to offer h2 before http/1.1 (`-http2`).
    pub http2: bool,
}

/// The reason why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsOptionsError {
    /// A PEM file cannot be read or contains nothing that can be used.
    #[error("{file}: {reason}")]
    File {
        /// The name of the file.
        file: PathBuf,
        /// The mistake in the file.
        reason: String,
    },
    /// The settings are inconsistent, for example a certificate and a key that do not belong together.
    #[error("TLS: {0}")]
    Config(#[from] rustls::Error),
}

/// The places where systems keep their bundle (Go crypto/x509 `root_linux.go`).
const BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

impl TlsOptions {
    /// Returns the configuration of the TLS library.
    ///
    /// # Errors
    /// [`TlsOptionsError`].
    pub fn config(&self) -> Result<Arc<ClientConfig>, TlsOptionsError> {
        self.config_with_files(&InputFiles::default())
    }

    /// Returns the configuration of the TLS library, with its files read through `files`. The system's bundle is read directly.
    ///
    /// # Errors
    /// [`TlsOptionsError`].
    pub fn config_with_files(&self, files: &InputFiles) -> Result<Arc<ClientConfig>, TlsOptionsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let trust = if self.insecure { Trust::Anyone } else { self.trust(&provider, files)? };
        let builder =
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Verifier { provider, trust }));
        let mut config = match &self.identity {
            Some((chain, key)) => {
                builder.with_client_auth_cert(certificates(chain, files)?, private_key(key, files)?).map_err(
                    |error| bad(key, &format!("the key does not work with {}: {error}", chain.display())),
                )?
            }
            None => builder.with_no_client_auth(),
        };
        let protocols: &[&[u8]] = if self.http2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        if !self.resume {
            config.resumption = Resumption::disabled();
        }
        Ok(Arc::new(config))
    }

    fn trust(&self, provider: &Arc<CryptoProvider>, files: &InputFiles) -> Result<Trust, TlsOptionsError> {
        let (mut store, mut named) = (RootCertStore::empty(), Vec::new());
        for file in &self.roots {
            for certificate in certificates(file, files)? {
                store.add(certificate.clone()).map_err(|error| bad(file, &error))?;
                named.push(certificate);
            }
        }
        if self.roots.is_empty() {
            let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
            let bundle = named
                .into_iter()
                .chain(BUNDLES.map(PathBuf::from))
                .find_map(|file| certificates(&file, &InputFiles::default()).ok());
            // A bundle may contain a certificate that this library does not parse; the others are still used.
            store.add_parsable_certificates(bundle.unwrap_or_default());
        }
        if store.is_empty() {
            store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        let by = WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider)).build();
        Ok(Trust::Issued { named, by: by.map_err(|error| rustls::Error::General(error.to_string()))? })
    }
}

/// Returns the configuration with these protocols and, with `insecure`, without verification of certificates. Then no sessions
/// are resumed, because their certificates were not verified.
pub(crate) fn with_alpn_and_verification(
    config: &Arc<ClientConfig>,
    protocols: Option<&[&[u8]]>,
    insecure: bool,
) -> Arc<ClientConfig> {
    let mut config = (**config).clone();
    if let Some(protocols) = protocols {
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    }
    if insecure {
        let provider = Arc::clone(config.crypto_provider());
        config.resumption = Resumption::disabled();
        let anyone = Verifier { provider, trust: Trust::Anyone };
        config.dangerous().set_certificate_verifier(Arc::new(anyone));
    }
    Arc::new(config)
}

/// Seeds the provider's random numbers on this thread: gathering entropy for the first of them takes tens of milliseconds,
/// which must not fall into the run.
pub(crate) fn seed_random(config: &ClientConfig) {
    // A provider without entropy fails at the first handshake.
    let _ = config.crypto_provider().secure_random.fill(&mut [0; 1]);
}

fn bad(file: &Path, reason: &dyn std::fmt::Display) -> TlsOptionsError {
    TlsOptionsError::File { file: file.to_owned(), reason: reason.to_string() }
}

fn certificates(file: &Path, files: &InputFiles) -> Result<Vec<CertificateDer<'static>>, TlsOptionsError> {
    let text = files.read(file).map_err(|error| bad(file, &pem::Error::Io(error)))?;
    let read = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let certificates = read.map_err(|error| bad(file, &error))?;
    if certificates.is_empty() { Err(bad(file, &"the file has no certificate")) } else { Ok(certificates) }
}

fn private_key(file: &Path, files: &InputFiles) -> Result<PrivateKeyDer<'static>, TlsOptionsError> {
    let text = files.read(file).map_err(|error| bad(file, &pem::Error::Io(error)))?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        pem::Error::NoItemsFound => {
            bad(file, &"the file has no private key; give the file of the key with --key")
        }
        error => bad(file, &error),
    })
}

/// Verifies the server's certificate. Signatures are checked even with `-insecure`, because a measurement must not be faster than
/// a real connection.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    trust: Trust,
}

#[derive(Debug)]
enum Trust {
    /// Accepts any certificate (`-insecure`).
    Anyone,
    /// Accepts certificates of trusted issuers, and those that the user names: a self-signed certificate in `-root-certs` is
    /// valid itself, as in Go (crypto/x509 `Certificate.Verify`), while webpki requires an issuer.
    Issued { named: Vec<CertificateDer<'static>>, by: Arc<WebPkiServerVerifier> },
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match &self.trust {
            Trust::Anyone => Ok(ServerCertVerified::assertion()),
            Trust::Issued { named, .. } if named.iter().any(|named| named == certificate) => {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            Trust::Issued { by, .. } => by.verify_server_cert(certificate, chain, name, ocsp, now),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_certificates_are_named() {
        let missing = TlsOptions { roots: vec!["/does/not/exist".into()], ..TlsOptions::default() };
        assert!(missing.config().unwrap_err().to_string().starts_with("/does/not/exist: "));
        let empty = tempfile::NamedTempFile::new().unwrap();
        let empty = TlsOptions { roots: vec![empty.path().to_owned()], ..TlsOptions::default() };
        assert!(empty.config().unwrap_err().to_string().ends_with(": the file has no certificate"));
    }

    #[test]
    fn a_key_of_another_certificate_is_named() {
        let file = |text: &str| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
            file
        };
        let identity =
            || seawall_testkit::tls::CertificateAuthority::new().unwrap().sign_client_identity().unwrap();
        let (chain, key) = (file(&identity().certificate_pem), file(&identity().key_pem));
        let identity = Some((chain.path().to_owned(), key.path().to_owned()));
        let said = TlsOptions { identity, insecure: true, ..TlsOptions::default() }
            .config()
            .unwrap_err()
            .to_string();
        let expected =
            format!("{}: the key does not work with {}: ", key.path().display(), chain.path().display());
        assert!(said.starts_with(&expected), "{said}");
    }

    /// The error for a certificate without `--key` used to be that the file has no items.
    #[test]
    fn where_there_is_no_key_the_flag_that_names_it_is() {
        let mut chain = tempfile::NamedTempFile::new().unwrap();
        let identity =
            seawall_testkit::tls::CertificateAuthority::new().unwrap().sign_client_identity().unwrap();
        std::io::Write::write_all(&mut chain, identity.certificate_pem.as_bytes()).unwrap();
        let identity = Some((chain.path().to_owned(), chain.path().to_owned()));
        let said = TlsOptions { identity, insecure: true, ..TlsOptions::default() }
            .config()
            .unwrap_err()
            .to_string();
        assert!(
            said.ends_with(": the file has no private key; give the file of the key with --key"),
            "{said}"
        );
    }

    #[test]
    fn h2_is_offered_first_and_only_if_wanted() {
        let offered = |http2| {
            TlsOptions { http2, insecure: true, ..TlsOptions::default() }
                .config()
                .unwrap()
                .alpn_protocols
                .clone()
        };
        assert_eq!(offered(true), [b"h2".to_vec(), b"http/1.1".to_vec()]);
        assert_eq!(offered(false), [b"http/1.1".to_vec()]);
    }
}
