//! A thread with its own async runtime for the API server, for callers that block.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The async runtime. It ends with all its tasks when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct ApiRuntime {
    handle: Handle,
    _end: Arc<oneshot::Sender<()>>,
}

/// The interval at which a blocked call checks whether the caller still wants to wait.
const LOOK: Duration = Duration::from_millis(100);

/// The caller stopped waiting, or the runtime has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub struct WaitInterrupted;

impl ApiRuntime {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let drive = move || {
            // The sender is never used, only dropped.
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        };
        thread::Builder::new().name("fleet".into()).spawn(drive)?;
        Ok(Self { handle, _end: Arc::new(end) })
    }

    /// Runs a task in the background.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        drop(self.handle.spawn(work));
    }

    /// Runs a task and waits for it as long as `waits` returns true.
    ///
    /// # Errors
    /// [`WaitInterrupted`] if the wait ended first; the task is then cancelled.
    pub fn call<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
        mut waits: impl FnMut() -> bool,
    ) -> Result<T, WaitInterrupted> {
        let (tell, told) = channel();
        let task = self.handle.spawn(async move {
            // No caller waits any more.
            let _ = tell.send(work.await);
        });
        loop {
            match told.recv_timeout(LOOK) {
                Ok(done) => return Ok(done),
                Err(RecvTimeoutError::Timeout) if waits() => {}
                Err(_) => {
                    task.abort();
                    return Err(WaitInterrupted);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_waited_for_until_somebody_does_not_want_to() {
        let runtime = ApiRuntime::start().unwrap();
        assert_eq!(runtime.call(async { 5 }, || true), Ok(5));
        assert_eq!(runtime.call(std::future::pending::<()>(), || false), Err(WaitInterrupted));
        assert_eq!(
            runtime.call(async { panic!("work that panics") }, || true),
            Err::<(), _>(WaitInterrupted)
        );
    }
}
