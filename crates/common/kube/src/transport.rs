//! Manages the connections to the API server and the credentials for them.
//!
//! The token, the CA and the client certificate rotate. So the transport reads them again before a request if the last read was
//! at least a minute ago. After a 401, it reads them again at once. The next request uses the new token, and new connections
//! use the new certificates. If a file cannot be read, the last credentials stay in use. Some tools replace files in place, and
//! some installations remove the files after the start.
//!
//! Threads do not share a transport (`cluster/src/watch_thread.rs` explains why).

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use rustls::crypto::CryptoProvider;
use seawall_core::{Clock, Moment, disk_thread};
use tracing::warn;

use crate::client_config::endpoint::{BaseUrl, KubeEndpoint};
use crate::failure::KubeError;

/// The body of a response.
pub type ResponseBody = UnsyncBoxBody<Bytes, KubeError>;

/// A future that returns a response.
pub type ResponseFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, KubeError>> + Send + 'a>>;

/// Sends requests to an API server, or to a stub in a test.
pub trait ApiServerTransport: Send + Sync {
    /// Sends a request for a path. Returns the response even if its status is an error. The caller receives the body piece by
    /// piece as it arrives.
    fn send_request(&self, request: Request<Bytes>) -> ResponseFuture<'_>;
}

/// The maximum age of credentials from files. Source: client-go (transport/token_source.go), one minute for tokens.
pub const CREDENTIALS_MAX_AGE: Duration = Duration::from_secs(60);

/// The TCP keepalive settings: idle time before the first probe, interval between probes, and number of failed probes. With
/// these values, the client notices within 25 s that the server's machine no longer responds.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(10), Duration::from_secs(5), 3);

/// The maximum number of idle connections, and the time for which the client keeps each idle connection. A watch's connection
/// is never idle.
const IDLE: (usize, Duration) = (1, Duration::from_secs(30));

/// The size of the read buffer, in bytes. By default, hyper's buffer grows to 408 KiB per connection under load. The
/// allocator keeps that memory, which would be a tenth of the agent's memory. The client reads a larger body in pieces. The
/// longest response head fits into the buffer.
pub const READ_BUFFER_SIZE: usize = 16 * 1024;

type Pool = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Sends requests to an API server over a pool of connections.
pub(crate) struct PooledTransport {
    endpoint: Arc<KubeEndpoint>,
    provider: Arc<CryptoProvider>,
    /// The maximum wait for a TCP connection.
    connect: Duration,
    clock: Clock,
    /// The current pool. Any task can find the pool outdated and replace it, so a lock guards the pool. A task holds the lock
    /// only to copy or to replace the pool.
    kept: Mutex<CachedPool>,
}

struct CachedPool {
    read: Moment,
    /// The fingerprint of the certificates with which `way` opens connections.
    fingerprint: u64,
    way: AuthorizedPool,
}

/// Bundles a pool of connections with the `Authorization` header for its requests. Cloning is cheap.
#[derive(Clone)]
struct AuthorizedPool {
    pool: Pool,
    authorization: Option<HeaderValue>,
}

impl PooledTransport {
    /// Reads the credentials and creates the transport. Opens no connection yet.
    ///
    /// # Errors
    /// A file of the endpoint cannot be used; the error names the file.
    pub(crate) fn new(
        endpoint: KubeEndpoint,
        provider: Arc<CryptoProvider>,
        connect: Duration,
        clock: Clock,
    ) -> Result<Self, String> {
        let papers = endpoint.read_credentials()?;
        let pool = pool(&endpoint, papers.tls_config(provider.clone())?, connect);
        let way = AuthorizedPool { pool, authorization: papers.authorization()? };
        let kept = CachedPool { read: clock.now(), fingerprint: papers.tls_fingerprint(), way };
        Ok(Self { endpoint: Arc::new(endpoint), provider, connect, clock, kept: Mutex::new(kept) })
    }

    /// Returns the current pool. First reads the files again if the last read is at least `age` old.
    async fn way(&self, age: Duration) -> AuthorizedPool {
        if self.is_due(age)
            && let Err(reason) = self.renew().await
        {
            warn!(
                reason,
                "cannot read the credentials for the API server again; the last credentials stay in use"
            );
        }
        self.kept().way.clone()
    }

    /// True if the files must be read again. In that case the calling task must read them, because other tasks get `false`.
    fn is_due(&self, age: Duration) -> bool {
        let (mut kept, now) = (self.kept(), self.clock.now());
        let is_due = now.since(kept.read) >= age;
        if is_due {
            kept.read = now;
        }
        is_due
    }

    fn kept(&self) -> MutexGuard<'_, CachedPool> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn renew(&self) -> Result<(), String> {
        let endpoint = self.endpoint.clone();
        let papers = disk_thread::run_with_timeout(move || endpoint.read_credentials()).await??;
        let mut kept = self.kept();
        kept.way.authorization = papers.authorization()?;
        let fingerprint = papers.tls_fingerprint();
        if fingerprint != kept.fingerprint {
            kept.way.pool = pool(&self.endpoint, papers.tls_config(self.provider.clone())?, self.connect);
            kept.fingerprint = fingerprint;
        }
        Ok(())
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<ResponseBody>, KubeError> {
        let way = self.way(CREDENTIALS_MAX_AGE).await;
        let answer = way.send(&self.endpoint.base_url, request.clone()).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        // Perhaps another program has replaced the token within the last minute. Retry only once, and return a second 401 to
        // the caller.
        let renewed = self.way(Duration::ZERO).await;
        if renewed.authorization == way.authorization {
            return Ok(answer);
        }
        renewed.send(&self.endpoint.base_url, request).await
    }
}

impl ApiServerTransport for PooledTransport {
    fn send_request(&self, request: Request<Bytes>) -> ResponseFuture<'_> {
        Box::pin(self.send(request))
    }
}

impl AuthorizedPool {
    async fn send(
        &self,
        base: &BaseUrl,
        request: Request<Bytes>,
    ) -> Result<Response<ResponseBody>, KubeError> {
        let (mut head, body) = request.into_parts();
        head.uri = base.url_for(&head.uri)?;
        if let Some(authorization) = &self.authorization {
            head.headers.insert(AUTHORIZATION, authorization.clone());
        }
        let answer = self.pool.request(Request::from_parts(head, Full::new(body))).await;
        let answer = answer.map_err(|error| KubeError::unreachable(&error))?;
        Ok(answer.map(|body| body.map_err(|error| KubeError::unreachable(&error)).boxed_unsync()))
    }
}

fn pool(endpoint: &KubeEndpoint, tls: ClientConfig, connect: Duration) -> Pool {
    let tls = HttpsConnectorBuilder::new().with_tls_config(tls).https_only();
    let tls = match &endpoint.server_name {
        Some(name) => tls.with_server_name_resolver(FixedServerNameResolver::new(name.clone())),
        None => tls,
    };
    let connector = tls.enable_http1().wrap_connector(tcp_connector(connect));
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(IDLE.0)
        .pool_idle_timeout(IDLE.1)
        .http1_max_buf_size(READ_BUFFER_SIZE)
        .build(connector)
}

/// Creates the connector for TCP connections. Keepalive probes detect that the server's machine no longer responds (`KEEPALIVE`).
pub fn tcp_connector(connect: Duration) -> HttpConnector {
    let mut tcp = HttpConnector::new();
    // This connector carries TLS, so it must accept URLs other than http://.
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(connect));
    let (idle, interval, probes) = KEEPALIVE;
    tcp.set_keepalive(Some(idle));
    tcp.set_keepalive_interval(Some(interval));
    tcp.set_keepalive_retries(Some(probes));
    tcp.set_tcp_user_timeout(Some(idle + interval * probes));
    tcp
}

#[cfg(test)]
mod tests {
    use std::fs;

    use seawall_core::ManualClock;
    use seawall_testkit::closure_server::{Peer, Server as Stub};
    use seawall_testkit::tls::CertificateAuthority;
    use serde_json::{Value, json};
    use tempfile::TempDir;

    use super::*;
    use crate::client_config::ClientConfigSource;

    /// A kubeconfig and its files, an API server that accepts the token `good`, and the client's clock.
    struct World {
        folder: TempDir,
        authority: CertificateAuthority,
        stub: Stub,
        clock: Clock,
        hand: ManualClock,
    }

    /// Sets up the files and the server. With `is_mutual` the server also demands a client certificate.
    fn world(is_mutual: bool) -> World {
        let authority = CertificateAuthority::new().unwrap();
        let (clock, hand) = Clock::manual();
        let config = authority.server_config(&[], is_mutual).unwrap();
        let stub = Stub::start_tls(config, |mut peer, _| serve(&mut peer)).unwrap();
        let world = World { folder: TempDir::new().unwrap(), authority, stub, clock, hand };
        world.write("ca.crt", &world.authority.certificate());
        world.write("token", "good");
        world
    }

    fn serve(peer: &mut Peer) -> std::io::Result<()> {
        loop {
            let head = peer.read_request_head()?.to_lowercase();
            let status =
                if head.contains("authorization: bearer good") { "200 OK" } else { "401 Unauthorized" };
            peer.send(format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}").as_bytes())?;
        }
    }

    impl World {
        fn write(&self, name: &str, text: &str) {
            fs::write(self.folder.path().join(name), text).unwrap();
        }

        /// Creates the transport, with these additions to the entries of the cluster and the user.
        fn server(&self, cluster: Value, user: Value) -> Result<PooledTransport, String> {
            let with = |mut entry: Value, more: Value| {
                if let Value::Object(more) = more {
                    more.into_iter().for_each(|(key, value)| entry[key] = value);
                }
                entry
            };
            let url = format!("https://{}", self.stub.address());
            let cluster = with(json!({"server": url, "certificate-authority": "ca.crt"}), cluster);
            let user = with(json!({"tokenFile": "token"}), user);
            let text = json!({
                "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
                "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "c", "user": user}],
            });
            self.write("kubeconfig", &text.to_string());
            let endpoint = KubeEndpoint::from_config_source(&ClientConfigSource::Kubeconfig(
                self.folder.path().join("kubeconfig"),
            ))?;
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            PooledTransport::new(endpoint, provider, Duration::from_secs(10), self.clock.clone())
        }
    }

    async fn ask(server: &PooledTransport) -> Result<u16, KubeError> {
        let request = Request::get("/api").body(Bytes::new()).unwrap();
        Ok(server.send_request(request).await?.status().as_u16())
    }

    #[tokio::test]
    async fn a_token_is_read_again_after_a_minute() {
        let world = world(false);
        let server = world.server(json!({}), json!({})).unwrap();
        assert_eq!(ask(&server).await, Ok(200));
        // The server still accepts the old token, and the files are not read again.
        world.write("token", "bad");
        world.hand.advance(Duration::from_secs(59));
        assert_eq!(ask(&server).await, Ok(200));
        world.hand.advance(Duration::from_secs(1));
        assert_eq!(ask(&server).await, Ok(401));
    }

    #[tokio::test]
    async fn a_token_is_read_again_at_once_when_it_is_refused() {
        let world = world(false);
        world.write("token", "bad");
        let server = world.server(json!({}), json!({})).unwrap();
        assert_eq!(ask(&server).await, Ok(401));
        world.write("token", "good\n");
        assert_eq!(ask(&server).await, Ok(200));
    }

    #[tokio::test]
    async fn what_cannot_be_read_again_leaves_the_last_in_use() {
        let world = world(false);
        let server = world.server(json!({}), json!({})).unwrap();
        fs::remove_file(world.folder.path().join("token")).unwrap();
        world.write("ca.crt", "nonsense");
        for _ in 0..2 {
            world.hand.advance(CREDENTIALS_MAX_AGE);
            assert_eq!(ask(&server).await, Ok(200));
        }
        let reason = world.server(json!({}), json!({})).err().unwrap();
        assert!(reason.contains("token"), "{reason}");
    }

    #[tokio::test]
    async fn a_server_of_another_authority_is_not_spoken_to_until_that_authority_is_ours() {
        let world = world(false);
        world.write("ca.crt", &CertificateAuthority::new().unwrap().certificate());
        let server = world.server(json!({}), json!({})).unwrap();
        assert!(
            matches!(ask(&server).await, Err(KubeError::Unreachable(reason)) if reason.contains("certificate"))
        );
        world.write("ca.crt", &world.authority.certificate());
        assert!(ask(&server).await.is_err());
        world.hand.advance(CREDENTIALS_MAX_AGE);
        assert_eq!(ask(&server).await, Ok(200));
    }

    #[tokio::test]
    async fn the_name_in_the_certificate_may_be_another_than_that_in_the_url() {
        let world = world(false);
        let named = |name: &str| world.server(json!({"tls-server-name": name}), json!({})).unwrap();
        assert_eq!(ask(&named("localhost")).await, Ok(200));
        assert!(ask(&named("kubernetes")).await.is_err());
    }

    #[tokio::test]
    async fn a_client_may_have_a_certificate_of_its_own() {
        let world = world(true);
        assert!(ask(&world.server(json!({}), json!({})).unwrap()).await.is_err());
        let client = world.authority.sign_client_identity().unwrap();
        world.write("client.crt", &client.certificate_pem);
        world.write("client.key", &client.key_pem);
        let user = json!({"client-certificate": "client.crt", "client-key": "client.key"});
        assert_eq!(ask(&world.server(json!({}), user.clone()).unwrap()).await, Ok(200));
        world.write("client.key", "nonsense");
        let reason = world.server(json!({}), user).err().unwrap();
        assert!(reason.contains("private key") && !reason.contains("nonsense"), "{reason}");
    }

    #[tokio::test]
    async fn nothing_of_a_broken_connection_says_who_asked() {
        let world = world(false);
        let server = Arc::new(world.server(json!({}), json!({})).unwrap());
        drop(world.stub);
        let failure = ask(&server).await.unwrap_err();
        assert!(failure.is_unreachable() && !failure.to_string().contains("good"), "{failure}");
    }
}
