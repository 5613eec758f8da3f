//! Certificates for one test: an authority, and what it signs for `localhost`, 127.0.0.1 and a client.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// An authority that lives as long as a test.
pub struct CertificateAuthority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate.
    pub certificate_pem: String,
    /// Its key.
    pub key_pem: String,
}

/// An error while making certificates.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A server whose certificate for this name signed itself, as `openssl req -x509` makes them, and that certificate in PEM.
///
/// # Errors
/// A name that cannot be in a certificate.
pub fn self_signed_server_config(name: &str) -> Result<(Arc<ServerConfig>, String), Error> {
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let private = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes())?;
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)?;
    Ok((Arc::new(config), certificate.pem()))
}

impl CertificateAuthority {
    /// A new one.
    ///
    /// # Errors
    /// The cryptographic library refuses.
    pub fn new() -> Result<Self, Error> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// Its own certificate, in PEM.
    pub fn certificate(&self) -> String {
        self.0.pem()
    }

    /// A certificate for these names.
    ///
    /// # Errors
    /// A name that cannot be in a certificate.
    pub fn sign_identity(&self, names: &[&str], purpose: ExtendedKeyUsagePurpose) -> Result<Identity, Error> {
        let mut params =
            CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())?;
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.0)?;
        Ok(Identity { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }

    /// A client's certificate.
    ///
    /// # Errors
    /// The cryptographic library refuses.
    pub fn sign_client_identity(&self) -> Result<Identity, Error> {
        self.sign_identity(&["client"], ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// A server for loopback that speaks these protocols, and asks clients for a certificate of this authority if
    /// `mutual`.
    ///
    /// # Errors
    /// The cryptographic library refuses.
    pub fn server_config(&self, protocols: &[&[u8]], mutual: bool) -> Result<Arc<ServerConfig>, Error> {
        let identity =
            self.sign_identity(&["localhost", "127.0.0.1"], ExtendedKeyUsagePurpose::ServerAuth)?;
        let chain = vec![CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes())?];
        let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = if mutual {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(self.certificate().as_bytes())?)?;
            builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?,
            )
        } else {
            builder.with_no_client_auth()
        };
        let mut config = builder.with_single_cert(chain, key)?;
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Arc::new(config))
    }
}
