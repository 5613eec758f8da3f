//! The listener: accepts, bounds, hands each request to a service. Knows HTTP, not what is asked.
//!
//! Its own timeouts run on the machine's clock, not on the caller's: they guard memory against silent peers, and a
//! test that moves its clock by an hour must not lose its pooled connections by it.

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

/// Connections held at one time; the next waits in the kernel's queue.
const CONNECTIONS: usize = 4096;

/// How long a head may take, the wait for the next request on a kept connection included.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// Longest head, in bytes (hyper's least is 8 KiB; a subject token travels in the body).
const HEAD_LIMIT: usize = 16 * 1024;

/// Pause after a failed accept, which is most often a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What answers requests.
pub(crate) trait RequestHandler: Send + Sync + 'static {
    /// The answer to a request.
    ///
    /// # Errors
    /// There is none: the connection is closed.
    fn answer(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Full<Bytes>>, CloseConnection>> + Send;
}

/// The connection is closed without an answer, because a fault says so.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("closed the connection without a response, as configured")]
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
                // The sender sent or was dropped: both mean the end.
                _ = stopped => {}
                () = accept(listener, service) => {}
            }
        });
        Self { stop, task }
    }

    pub(crate) async fn shutdown(self) {
        drop(self.stop);
        // It ends by the line above; how does not matter.
        let _ = self.task.await;
    }
}

/// Never returns; dropping it ends every connection, because the set owns them.
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
    // Small answers must not wait for the peer's delayed acknowledgement.
    let _ = stream.set_nodelay(true);
    let answer = service_fn(move |request| {
        let service = service.clone();
        async move { service.answer(request).await }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_LIMIT);
    // A peer that breaks the protocol or goes away is its own affair.
    let _ = http.serve_connection(TokioIo::new(stream), answer).await;
}
