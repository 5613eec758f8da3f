//! The listener: it accepts connections, enforces limits and passes each request to a service. It knows HTTP, but not the services.
//!
//! Its timeouts use the machine's clock rather than the caller's. They protect the memory against silent clients, and a test that advances
//! its clock by an hour must not lose its pooled connections.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{JoinHandle, JoinSet};

/// The most connections at one time; further ones wait in the kernel's queue.
const CONNECTIONS: usize = 4096;

/// The time limit for a head, including the wait for the next request on an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// The longest head in bytes (hyper's minimum is 8 KiB; a subject token is in the body).
const HEAD_LIMIT: usize = 16 * 1024;

/// The pause after a failed accept, which usually means a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A handler of requests.
pub(crate) trait RequestHandler: Send + Sync + 'static {
    /// Answers a request.
    ///
    /// # Errors
    /// There is no response: the server closes the connection.
    fn answer(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Full<Bytes>>, CloseConnection>> + Send;
}

/// The error that closes a connection without a response, because of a fault.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the emulator closed the connection without a response, because a fault is configured")]
pub(crate) struct CloseConnection;

/// A running listener. Dropping it closes it with all of its connections.
#[derive(Debug)]
pub(crate) struct EmulatorServer {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl EmulatorServer {
    pub(crate) fn start<S: RequestHandler>(listener: TcpListener, service: Arc<S>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            tokio::select! {
                // The sender sent or was dropped; both end the server.
                _ = stopped => {}
                () = accept(listener, service) => {}
            }
        });
        Self { stop, task }
    }

    pub(crate) async fn shutdown(self) {
        drop(self.stop);
        // The task ends because of the line above; its result does not matter.
        let _ = self.task.await;
    }
}

/// Accepts connections and never returns. Dropping it closes every connection, because the set owns them.
async fn accept<S: RequestHandler>(listener: TcpListener, service: Arc<S>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let service = service.clone();
                connections.spawn(async move {
                    serve(stream, service).await;
                    drop(permit);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn serve<S: RequestHandler>(stream: TcpStream, service: Arc<S>) {
    // Small responses must not wait for the peer's delayed acknowledgement.
    let _ = stream.set_nodelay(true);
    let answer = service_fn(move |request| {
        let service = service.clone();
        async move { service.answer(request).await }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_LIMIT);
    // A client may break the protocol or go away; the server ignores that.
    let _ = http.serve_connection(TokioIo::new(stream), answer).await;
}
