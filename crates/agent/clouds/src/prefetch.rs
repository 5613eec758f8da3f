//! Prefetches a pod's first credential, so that the agent answers the first request of the pod's first container from the cache.
//!
//! Each cloud's folder calls this code.

use std::future::Future;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};

/// The maximum number of concurrent prefetches per cloud.
///
/// The broker's limiter limits the upstream calls. This constant limits how many prefetches wait for that limiter at once.
/// Without this limit, prefetches would delay credentials that pods have already requested.
const AT_ONCE: usize = 16;

/// The capacity of the prefetch queue. A node has fewer pods than this number.
const WAITING: usize = 4096;

/// A job that fetches a pod's first credential.
pub(super) trait FirstFetchJob: Send + 'static {
    /// True if the pod was deleted. The queue drops such a job.
    fn is_gone(&self) -> bool;

    /// Fetches the credential that every library requests first. Tries only once. After a failure, the pod's own request causes
    /// the next try.
    fn fetch(self) -> impl Future<Output = ()> + Send;
}

/// The sending end of the prefetch queue. Cloning is cheap.
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

/// Runs the jobs in order, at most [`AT_ONCE`] at a time. The function returns when the last sender is dropped.
///
/// A job becomes a task only when one of the [`AT_ONCE`] permits is free. A task per queued job would be the largest cost of each
/// pod when many pods start together.
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
