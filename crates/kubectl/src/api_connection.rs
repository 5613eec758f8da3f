//! The connections to a chosen API server, with fresh credentials.
//!
//! This is like [`seawall_kube::transport`] of the agent, plus http, proxies, impersonation and plugins ([`crate::plugin`]). It is a
//! separate module so that the agent has none of these. The files are checked once a minute, and the plugin runs again when its credentials
//! have expired. Both happen at once after a 401.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use seawall_core::{Clock, Moment, Secret};
use tokio::net::TcpStream;
use tower_service::Service;
use tracing::warn;

use crate::kubeconfig::ResolvedContext;
use crate::plugin::PluginCredential;
use seawall_kube::ClientConfigError;
use seawall_kube::KubeError;
use seawall_kube::client_config::endpoint::KubeCredentials;
use seawall_kube::transport::{CREDENTIALS_MAX_AGE, READ_BUFFER_SIZE, tcp_connector};

/// The most idle connections, one for each of some concurrent calls, and their idle time.
const IDLE: (usize, Duration) = (8, Duration::from_secs(30));

type Pool = Client<HttpsConnector<Dial>, Full<Bytes>>;

/// The transport to the API server.
pub(crate) struct KubeconfigTransport {
    pub(crate) context: ResolvedContext,
    provider: Arc<CryptoProvider>,
    /// The time limit for a TCP connection.
    connect: Duration,
    clock: Clock,
    /// The lock stays held while files are read and a plugin runs, so that all waiting calls share one login.
    kept: tokio::sync::Mutex<Option<CachedSender>>,
}

struct CachedSender {
    read: Moment,
    credential: PluginCredential,
    way: RequestSender,
}

/// A sender of requests with current credentials. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct RequestSender {
    pool: Pool,
    headers: HeaderMap,
    /// The fingerprint of the credentials. Other credentials give another sender.
    fingerprint: u64,
}

impl KubeconfigTransport {
    /// Creates the transport. It opens no connection and runs no program.
    pub(crate) fn new(
        context: ResolvedContext,
        provider: Arc<CryptoProvider>,
        connect: Duration,
        clock: Clock,
    ) -> Self {
        Self { context, provider, connect, clock, kept: tokio::sync::Mutex::new(None) }
    }

    /// Returns a sender with current credentials. A login by the user may delay it.
    ///
    /// # Errors
    /// The credentials that could not be read.
    pub(crate) async fn sender(&self) -> Result<RequestSender, ClientConfigError> {
        let mut kept = self.kept.lock().await;
        self.renewed(&mut kept, false).await
    }

    /// Returns a sender after the server refused `refused` with 401; `None` if there are no other credentials.
    ///
    /// # Errors
    /// The same as [`Self::sender`].
    pub(crate) async fn sender_after_refusal(
        &self,
        refused: &RequestSender,
    ) -> Result<Option<RequestSender>, ClientConfigError> {
        let mut kept = self.kept.lock().await;
        // Another call may have renewed the credentials in the meantime.
        let is_known = kept.as_ref().is_some_and(|kept| kept.way.fingerprint == refused.fingerprint);
        let way = self.renewed(&mut kept, is_known).await?;
        Ok(Some(way).filter(|way| way.fingerprint != refused.fingerprint))
    }

    async fn renewed(
        &self,
        kept: &mut Option<CachedSender>,
        is_refused: bool,
    ) -> Result<RequestSender, ClientConfigError> {
        let now = self.clock.now();
        let expired = |at| self.clock.wall_time() >= at;
        if let Some(kept) = kept.as_ref() {
            let is_fresh =
                now.since(kept.read) < CREDENTIALS_MAX_AGE && !kept.credential.expires.is_some_and(expired);
            if is_fresh && !is_refused {
                return Ok(kept.way.clone());
            }
        }
        let last = kept.as_ref().map(|kept| &kept.credential);
        let last = last.filter(|last| !is_refused && !last.expires.is_some_and(expired)).cloned();
        let credential = match (&self.context.plugin, last) {
            (_, Some(last)) => last,
            (Some(plugin), None) => plugin.run(&self.clock).await.map_err(|reason| self.wrong(reason))?,
            (None, None) => PluginCredential::default(),
        };
        let way = match (self.way_by(&credential, kept.as_ref()), kept.as_ref()) {
            (Ok(way), _) => way,
            (Err(reason), Some(kept)) => {
                warn!(reason, "cannot re-read the credentials for the API server; using the previous ones");
                kept.way.clone()
            }
            (Err(reason), None) => return Err(self.wrong(reason)),
        };
        *kept = Some(CachedSender { read: now, credential, way: way.clone() });
        Ok(way)
    }

    /// Returns a sender for these credentials. It keeps the connections of the previous sender if nothing has changed.
    fn way_by(
        &self,
        credential: &PluginCredential,
        last: Option<&CachedSender>,
    ) -> Result<RequestSender, String> {
        let mut papers = self.context.endpoint.read_credentials()?;
        papers.token = papers.token.or_else(|| credential.token.clone());
        papers.client_certificate_and_key =
            papers.client_certificate_and_key.or_else(|| credential.client_certificate.clone());
        let fingerprint = fingerprint(&papers);
        if let Some(last) = last.filter(|last| last.way.fingerprint == fingerprint) {
            return Ok(last.way.clone());
        }
        let mut headers: HeaderMap = HeaderMap::new();
        for (name, value) in &self.context.impersonation {
            headers.append(name, value.clone());
        }
        let authorization = self
            .context
            .basic_auth_header
            .clone()
            .map_or_else(|| papers.authorization(), |basic| Ok(Some(basic)));
        headers.extend(authorization?.map(|value| (AUTHORIZATION, value)));
        Ok(RequestSender { pool: self.pool(self.tls(&papers)?), headers, fingerprint })
    }

    fn tls(&self, papers: &KubeCredentials) -> Result<ClientConfig, String> {
        let mut config = papers.tls_config(self.provider.clone())?;
        if self.context.is_unverified {
            config.dangerous().set_certificate_verifier(Arc::new(NoVerification(self.provider.clone())));
        }
        Ok(config)
    }

    fn pool(&self, tls: ClientConfig) -> Pool {
        let tls = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let tls = match &self.context.endpoint.server_name {
            Some(name) => tls.with_server_name_resolver(FixedServerNameResolver::new(name.clone())),
            None => tls,
        };
        let tcp = tcp_connector(self.connect);
        let dial = match &self.context.proxy {
            None => Dial::Direct(tcp),
            Some(proxy) => {
                let tunnel = Tunnel::new(proxy.uri.clone(), tcp);
                Dial::ViaProxy(match &proxy.authorization {
                    Some(value) => tunnel.with_auth(value.clone()),
                    None => tunnel,
                })
            }
        };
        Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(IDLE.0)
            .pool_idle_timeout(IDLE.1)
            .http1_max_buf_size(READ_BUFFER_SIZE)
            .build(tls.enable_http1().wrap_connector(dial))
    }

    /// Sends a request and returns the response's head with any status.
    ///
    /// # Errors
    /// The connection failed or broke.
    pub(crate) async fn send(
        &self,
        way: &RequestSender,
        request: Request<Bytes>,
    ) -> Result<Response<Incoming>, KubeError> {
        let (mut head, body) = request.into_parts();
        head.uri = self.context.endpoint.base_url.url_with_scheme(self.context.scheme.clone(), &head.uri)?;
        for (name, value) in &way.headers {
            head.headers.append(name, value.clone());
        }
        let answer = way.pool.request(Request::from_parts(head, Full::new(body))).await;
        answer.map_err(|error| KubeError::unreachable(&error))
    }

    fn wrong(&self, reason: String) -> ClientConfigError {
        ClientConfigError { config_source: self.context.source_description.clone(), reason }
    }
}

/// Returns a fingerprint that only shows whether credentials have changed.
fn fingerprint(papers: &KubeCredentials) -> u64 {
    let mut hasher = DefaultHasher::new();
    (papers.tls_fingerprint(), papers.token.as_ref().map(Secret::expose)).hash(&mut hasher);
    hasher.finish()
}

/// The kind of TCP connection.
#[derive(Clone)]
enum Dial {
    Direct(HttpConnector),
    ViaProxy(Tunnel<HttpConnector>),
}

type Dialling = Pin<Box<dyn Future<Output = Result<TokioIo<TcpStream>, BoxError>> + Send>>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Service<Uri> for Dial {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Dialling;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Self::Direct(tcp) => tcp.poll_ready(context).map_err(Into::into),
            Self::ViaProxy(tunnel) => tunnel.poll_ready(context).map_err(Into::into),
        }
    }

    fn call(&mut self, to: Uri) -> Dialling {
        match self {
            Self::Direct(tcp) => {
                let dialling = tcp.call(to);
                Box::pin(async { Ok(dialling.await?) })
            }
            Self::ViaProxy(tunnel) => {
                let dialling = tunnel.call(to);
                Box::pin(async { Ok(dialling.await?) })
            }
        }
    }
}

/// Accepts any certificate, because the file says so (`insecure-skip-tls-verify`). Signatures are still checked.
#[derive(Debug)]
struct NoVerification(Arc<CryptoProvider>);

impl ServerCertVerifier for NoVerification {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
