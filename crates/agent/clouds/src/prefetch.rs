//! First credentials, fetched before a pod asks: its first container's first request is then a read of memory. Generic over the
//! cloud, called by the rooms.

use std::future::Future;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};

/// First credentials that are fetched ahead at once, of each cloud. The broker's limiter bounds the calls; this bounds how many of
/// its turns are waited for by pods that have not asked yet.
const AT_ONCE: usize = 16;

/// First credentials that wait for that. More pods are not on a node; what is beyond is left to the pod's own request.
const WAITING: usize = 4096;

/// A first credential to be fetched.
pub(super) trait FirstFetchJob: Send + 'static {
    /// Whether its pod is gone: one that is gone before its turn is let go.
    fn is_gone(&self) -> bool;

    /// Fetches the credential that every library asks for first. Once: if it fails the pod's own request is the next try.
    fn fetch(self) -> impl Future<Output = ()> + Send;
}

/// Where they are handed in. Cheap to clone.
#[derive(Debug)]
pub(super) struct Prefetcher<F>(mpsc::Sender<F>);

impl<F> Clone for Prefetcher<F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<F: FirstFetchJob> Prefetcher<F> {
    /// They are fetched on this runtime.
    pub(super) fn start(runtime: &Handle) -> Self {
        let (ahead, waiting) = mpsc::channel(WAITING);
        runtime.spawn(fetch_all(waiting));
        Self(ahead)
    }

    /// One more. Where there is no room, the pod's own request is the first.
    pub(super) fn enqueue(&self, first: F) {
        let _ = self.0.try_send(first);
    }
}

/// Fetches for one pod after another, [`AT_ONCE`] at once. A task for each pod that waits would be the largest thing that a pod
/// costs when many start together. Ends with what sends.
async fn fetch_all<F: FirstFetchJob>(mut waiting: mpsc::Receiver<F>) {
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    while let Some(first) = waiting.recv().await {
        if first.is_gone() {
            continue;
        }
        let Ok(turn) = turns.clone().acquire_owned().await else { return };
        tokio::spawn(async move {
            first.fetch().await;
            drop(turn);
        });
    }
}
