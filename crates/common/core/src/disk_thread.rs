//! Runs disk work on a separate thread, so the calling thread can serve other requests in the meantime.
//!
//! If a disk or network file system hangs, the thread that uses it stays blocked in the kernel, and no timeout can end the
//! blocked call. Therefore [`run_with_timeout`] stops waiting after [`WORK_TIMEOUT`], and the process has at most [`MAX_THREADS`]
//! such threads. The module does not use tokio's blocking threads, because DNS lookups need those threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

/// The longest wait for the result of the work.
pub const WORK_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of threads that work or hang at the same time.
pub const MAX_THREADS: usize = 4;

static BUSY: AtomicUsize = AtomicUsize::new(0);

/// The permit of one disk thread. At most [`MAX_THREADS`] permits exist at the same time.
struct ThreadPermit;

impl ThreadPermit {
    fn take() -> Option<Self> {
        let more = |busy: usize| (busy < MAX_THREADS).then_some(busy + 1);
        // The permit is created only if the count was raised. Otherwise dropping a refused permit would lower the count.
        BUSY.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self)
    }
}

impl Drop for ThreadPermit {
    fn drop(&mut self) {
        BUSY.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs `work` on a separate thread and waits for at most [`WORK_TIMEOUT`].
///
/// # Errors
/// The work takes longer than [`WORK_TIMEOUT`] (its thread continues), [`MAX_THREADS`] threads already work or hang, the thread
/// cannot start, or the work panics.
pub async fn run_with_timeout<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let permit = ThreadPermit::take()
        .ok_or_else(|| format!("{MAX_THREADS} threads already wait for the disk (the maximum)"))?;
    let (done, is_done) = oneshot::channel();
    let body = move || {
        let _permit = permit;
        // Sending fails if the caller has stopped waiting, which is harmless.
        let _ = done.send(work());
    };
    let thread = std::thread::Builder::new().name("disk".into());
    thread.spawn(body).map_err(|error| format!("cannot start a thread: {error}"))?;
    match tokio::time::timeout(WORK_TIMEOUT, is_done).await {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(_)) => Err("the disk thread panicked".into()),
        Err(_) => Err(format!("the disk did not answer within {} s", WORK_TIMEOUT.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// There is only one test, because [`BUSY`] counts the threads of the whole process.
    #[tokio::test(start_paused = true)]
    async fn a_hung_disk_holds_up_the_work_and_nobody_else() {
        let (ends, hangs) = mpsc::channel::<()>();
        let hangs = std::sync::Arc::new(std::sync::Mutex::new(hangs));
        for _ in 0..MAX_THREADS {
            let hangs = hangs.clone();
            let work = move || drop(hangs.lock().map(|hangs| hangs.recv()));
            let error = run_with_timeout(work).await.unwrap_err();
            assert!(error.contains("within 5 s"), "{error}");
        }
        for _ in 0..2 * MAX_THREADS {
            let error = run_with_timeout(|| ()).await.unwrap_err();
            assert!(error.contains("already wait"), "{error}");
        }
        assert_eq!(BUSY.load(Ordering::Relaxed), MAX_THREADS, "a refusal changes no count");
        drop(ends);
        while BUSY.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        tokio::time::resume();
        assert_eq!(run_with_timeout(|| 7).await, Ok(7));
    }
}
