//! The listener: accepts, bounds, hands each request to the cloud. Knows HTTP, not what is asked.
//!
//! Its own timeouts run on the machine's clock, not on the caller's: they guard memory against silent peers, and a
//! test that moves its clock by an hour must not lose its pooled connections by it.

use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use crate::google::Cloud;

/// Connections held at one time; the next waits in the kernel's queue.
const CONNECTIONS: usize = 4096;

/// How long a head may take, the wait for the next request on a kept connection included.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// Longest head, in bytes (hyper's least is 8 KiB; a subject token travels in the body).
const HEAD_LIMIT: usize = 16 * 1024;

/// Pause after a failed accept, which is most often a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A running listener. Dropping it closes it with all of its connections.
#[derive(Debug)]
pub(crate) struct Server {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) fn start(listener: TcpListener, cloud: Arc<Cloud>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            tokio::select! {
                // The sender sent or was dropped: both mean the end.
                _ = stopped => {}
                () = accept(listener, cloud) => {}
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
async fn accept(listener: TcpListener, cloud: Arc<Cloud>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let cloud = cloud.clone();
                connections.spawn(async move {
                    serve(stream, cloud).await;
                    drop(permit);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, cloud: Arc<Cloud>) {
    // Small answers must not wait for the peer's delayed acknowledgement.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let cloud = cloud.clone();
        async move { cloud.answer(request).await }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_LIMIT);
    // A peer that breaks the protocol or goes away is its own affair.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}
