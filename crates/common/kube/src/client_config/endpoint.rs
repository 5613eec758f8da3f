//! Describes an API server's address and the sources of the client's credentials, and reads the credentials.
//!
//! A [`KubeEndpoint`] contains the address and the sources. [`KubeCredentials`] contains the credentials at one moment. The
//! reader of a kubeconfig creates an endpoint, and the transport reads the endpoint's credentials.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Uri};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use seawall_core::{Secret, file};

/// The maximum size of a credential file, in bytes. All public root certificates together take a quarter of this size.
pub const MAX_CREDENTIAL_FILE_BYTES: usize = 1024 * 1024;

/// The folder with a pod's token and CA. Source: Kubernetes documentation, "Accessing the Kubernetes API from a Pod".
pub const SERVICE_ACCOUNT_FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// An API server's address, and the sources of the client's credentials for that server.
#[derive(Clone, Debug)]
pub struct KubeEndpoint {
    /// The base URL of the API server.
    pub base_url: BaseUrl,
    /// The name in the server's certificate, if it differs from the host in the URL.
    pub server_name: Option<ServerName<'static>>,
    /// The certificates to trust; with `None`, the client trusts the public roots.
    pub root_certificates_source: Option<CredentialSource>,
    /// The source of the bearer token.
    pub token_source: Option<CredentialSource>,
    /// The sources of the client's certificate and its key.
    pub client_certificate_and_key_sources: Option<(CredentialSource, CredentialSource)>,
}

/// The source of a credential: a given text, or a file whose content can change.
#[derive(Clone, Debug)]
pub enum CredentialSource {
    /// The text itself.
    Given(Secret<String>),
    /// The path of a file. Each [`read`](Self::read) reads the file again.
    File(PathBuf),
}

/// The credentials of an endpoint at one moment.
#[derive(Debug)]
pub struct KubeCredentials {
    /// The certificates to trust; with `None`, the client trusts the public roots.
    pub roots: Option<Secret<String>>,
    /// The bearer token.
    pub token: Option<Secret<String>>,
    /// The client's certificate and key.
    pub client_certificate_and_key: Option<(Secret<String>, Secret<String>)>,
}

/// The part of the URL that precedes the path of every request.
#[derive(Clone, Debug, PartialEq)]
pub struct BaseUrl {
    authority: Authority,
    /// The first part of the path, without a trailing slash.
    prefix: String,
}

impl KubeEndpoint {
    /// Creates the endpoint from the environment and the files of a pod.
    ///
    /// # Errors
    /// An environment variable is missing, or the variables do not form a host and a port.
    pub fn in_cluster(variable: impl Fn(&str) -> Option<String>, files: &Path) -> Result<Self, String> {
        let said = |name| variable(name).ok_or_else(|| format!("the environment variable {name} is not set"));
        let (host, port) = (said("KUBERNETES_SERVICE_HOST")?, said("KUBERNETES_SERVICE_PORT")?);
        // The variable contains an IPv6 address without brackets.
        let host = if host.parse::<Ipv6Addr>().is_ok() { format!("[{host}]") } else { host };
        let base = BaseUrl::parse(&format!("https://{host}:{port}"))
            .ok_or("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not a host and a port")?;
        let file = |name| Some(CredentialSource::File(files.join(name)));
        Ok(Self {
            base_url: base,
            server_name: None,
            root_certificates_source: file("ca.crt"),
            token_source: file("token"),
            client_certificate_and_key_sources: None,
        })
    }

    /// Reads all credentials.
    ///
    /// # Errors
    /// A file cannot be read; the error names the file and the reason.
    pub fn read_credentials(&self) -> Result<KubeCredentials, String> {
        let read =
            |source: &Option<CredentialSource>| source.as_ref().map(CredentialSource::read).transpose();
        let identity = self
            .client_certificate_and_key_sources
            .as_ref()
            .map(|(chain, key)| Ok::<_, String>((chain.read()?, key.read()?)));
        Ok(KubeCredentials {
            roots: read(&self.root_certificates_source)?,
            token: read(&self.token_source)?,
            client_certificate_and_key: identity.transpose()?,
        })
    }
}

impl CredentialSource {
    /// Reads the credential.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self) -> Result<Secret<String>, String> {
        match self {
            Self::Given(text) => Ok(text.clone()),
            Self::File(path) => file::read_text(path, MAX_CREDENTIAL_FILE_BYTES)
                .map_err(|reason| format!("cannot read {}: {reason}", path.display())),
        }
    }
}

impl KubeCredentials {
    /// Returns the `Authorization` header with the bearer token; `None` without a token.
    ///
    /// # Errors
    /// The token is empty or cannot be sent in a header.
    pub fn authorization(&self) -> Result<Option<HeaderValue>, String> {
        let Some(token) = &self.token else { return Ok(None) };
        let token = token.expose().trim();
        if token.is_empty() {
            return Err("the token is empty".into());
        }
        let text = Secret::new(format!("Bearer {token}"));
        let mut value = HeaderValue::from_str(text.expose())
            .map_err(|_| "the token contains characters that an HTTP header cannot hold")?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Returns a hash of the certificates and keys. Use the hash only to detect a replaced certificate or key.
    pub fn tls_fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let identity =
            self.client_certificate_and_key.as_ref().map(|(chain, key)| (chain.expose(), key.expose()));
        (self.roots.as_ref().map(Secret::expose), identity).hash(&mut hasher);
        hasher.finish()
    }

    /// Creates the TLS configuration from these credentials.
    ///
    /// # Errors
    /// A certificate or key is invalid; the error names the certificate or the key.
    pub fn tls_config(&self, provider: Arc<CryptoProvider>) -> Result<ClientConfig, String> {
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("cannot set up TLS: {error}"))?
            .with_root_certificates(self.roots()?);
        let Some((chain, key)) = &self.client_certificate_and_key else {
            return Ok(builder.with_no_client_auth());
        };
        let key = PrivateKeyDer::from_pem_slice(key.expose().as_bytes())
            .map_err(|_| "the client's key is not a private key in PEM")?;
        builder
            .with_client_auth_cert(certificates(chain, "the client's certificate")?, key)
            .map_err(|error| format!("cannot use the client's certificate: {error}"))
    }

    fn roots(&self) -> Result<RootCertStore, String> {
        let Some(roots) = &self.roots else {
            return Ok(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() });
        };
        let mut store = RootCertStore::empty();
        for certificate in certificates(roots, "the certificate authority")? {
            store.add(certificate).map_err(|error| format!("the certificate authority: {error}"))?;
        }
        Ok(store)
    }
}

/// Parses the certificates in a PEM text, which must contain at least one. `whose` describes the certificates in the error.
fn certificates(pem: &Secret<String>, whose: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.expose().as_bytes()).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or_else(|| format!("{whose} is not a certificate in PEM"))
}

impl BaseUrl {
    /// Returns host and port.
    pub fn authority(&self) -> &str {
        self.authority.as_str()
    }

    /// Returns the host alone.
    pub fn host(&self) -> &str {
        self.authority.host()
    }

    /// Parses an https URL, with or without a path. Rejects http, because every request carries a token.
    pub fn parse(url: &str) -> Option<Self> {
        Self::parse_requiring_scheme(url, &Scheme::HTTPS)
    }

    /// Parses a URL of this scheme, with or without a path.
    pub fn parse_requiring_scheme(url: &str, scheme: &Scheme) -> Option<Self> {
        let url: Uri = url.parse().ok()?;
        let authority = url.authority().filter(|authority| !authority.as_str().contains('@'))?;
        if url.scheme() != Some(scheme) || url.query().is_some() {
            return None;
        }
        Some(Self { authority: authority.clone(), prefix: url.path().trim_end_matches('/').to_owned() })
    }

    /// Returns the full https URL of a request for this path.
    ///
    /// # Errors
    /// The prefix and the path together are too long for a URL.
    pub fn url_for(&self, request: &Uri) -> Result<Uri, http::Error> {
        self.url_with_scheme(Scheme::HTTPS, request)
    }

    /// Returns the full URL of a request for this path, with this scheme.
    pub fn url_with_scheme(&self, scheme: Scheme, request: &Uri) -> Result<Uri, http::Error> {
        let path = request.path_and_query().map_or("/", PathAndQuery::as_str);
        let whole = format!("{}{path}", self.prefix);
        Uri::builder().scheme(scheme).authority(self.authority.clone()).path_and_query(whole).build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_told_by_environment_and_files() {
        let folder = tempfile::tempdir().unwrap();
        let found = |host: &str, port: &str| {
            let said = |name: &str| Some(if name.ends_with("HOST") { host } else { port }.to_owned());
            KubeEndpoint::in_cluster(said, folder.path())
        };
        for (host, port, url) in [
            ("10.96.0.1", "443", "https://10.96.0.1:443/api"),
            ("fd00::1", "6443", "https://[fd00::1]:6443/api"),
            ("kubernetes.default", "443", "https://kubernetes.default:443/api"),
        ] {
            let base = found(host, port).unwrap().base_url;
            assert_eq!(base.url_for(&Uri::from_static("/api")).unwrap(), url);
        }
        assert!(found("10.96.0.1", "tcp://10.96.0.1:443").is_err());
        let missing = KubeEndpoint::in_cluster(|_| None, folder.path()).unwrap_err();
        assert!(missing.contains("KUBERNETES_SERVICE_HOST"), "{missing}");
        let unread = found("10.96.0.1", "443").unwrap().read_credentials().unwrap_err();
        assert!(unread.contains("ca.crt"), "{unread}");
    }

    #[test]
    fn a_servers_url_is_https_and_may_have_a_path() {
        let at = |url: &str| BaseUrl::parse(url)?.url_for(&Uri::from_static("/api/v1/pods?watch=true")).ok();
        assert_eq!(at("https://h:6443").unwrap(), "https://h:6443/api/v1/pods?watch=true");
        assert_eq!(at("https://h:6443/").unwrap(), "https://h:6443/api/v1/pods?watch=true");
        assert_eq!(at("https://h/k8s/c-1/").unwrap(), "https://h/k8s/c-1/api/v1/pods?watch=true");
        for wrong in ["http://h", "h:6443", "", "https://", "https://me:secret@h", "https://h/?q=1", "/api"] {
            assert!(at(wrong).is_none(), "{wrong}");
        }
    }

    fn with_token(token: &str) -> KubeCredentials {
        KubeCredentials {
            roots: None,
            token: Some(Secret::new(token.into())),
            client_certificate_and_key: None,
        }
    }

    #[test]
    fn a_token_is_a_header_that_nobody_prints() {
        let header = with_token(" abc\n").authorization().unwrap().unwrap();
        assert_eq!(header, "Bearer abc");
        assert!(!format!("{header:?}").contains("abc"));
        for wrong in ["", "\n", "se\ncret", "se\0cret"] {
            let reason = with_token(wrong).authorization().unwrap_err();
            assert!(!reason.contains("cret"), "{reason}");
        }
    }

    #[test]
    fn a_file_without_a_certificate_is_no_authority() {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        for text in ["", "nonsense", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"] {
            let papers = KubeCredentials {
                roots: Some(Secret::new(text.into())),
                token: None,
                client_certificate_and_key: None,
            };
            assert!(papers.tls_config(provider.clone()).unwrap_err().contains("authority"), "{text}");
        }
    }
}
