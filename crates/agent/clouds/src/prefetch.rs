//! Prefetch of a pod's first credential: the first request of its first container is then a read of memory.
//!
//! The code is generic over the cloud, and each cloud's folder calls it.

use std::future::Future;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};

/// Maximum number of concurrent prefetches, for each cloud.
///
/// The broker's limiter bounds the upstream calls. This limit bounds how many prefetches wait for that limiter, because their pods have
/// not asked yet.
const AT_ONCE: usize = 16;

/// Capacity of the prefetch queue. A node has fewer pods. Beyond it, the pod's own request fetches the credential.
const WAITING: usize = 4096;

/// A job that fetches a pod's first credential.
pub(super) trait FirstFetchJob: Send + 'static {
    /// True if the job's pod is gone. The queue drops such a job.
    fn is_gone(&self) -> bool;

    /// Fetches the credential that every library asks for first. Tries once: after a failure the pod's own request is the next try.
    fn fetch(self) -> impl Future<Output = ()> + Send;
}

/// The sending end of the prefetch queue. It is cheap to clone.
#[derive(Debug)]
pub(super) struct Prefetcher<F>(mpsc::Sender<F>);

impl<F> Clone for Prefetcher<F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<F: FirstFetchJob> Prefetcher<F> {
    /// Starts the queue. The jobs run on this runtime.
    pub(super) fn start(runtime: &Handle) -> Self {
        let (ahead, waiting) = mpsc::channel(WAITING);
        runtime.spawn(fetch_all(waiting));
        Self(ahead)
    }

    /// Adds a job. If the queue is full, the pod's own request fetches the credential.
    pub(super) fn enqueue(&self, first: F) {
        let _ = self.0.try_send(first);
    }
}

/// Runs the jobs in order, at most [`AT_ONCE`] at once, and ends when the last sender is dropped.
///
/// A task for each waiting pod would be the largest cost of a pod when many pods start together.
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
