//! A thread that uses real CPU time, one job after another.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::NanosSinceStart;
use super::agenda::PendingRequest;
use super::poller::PollerWaker;

/// The handle to the thread. The thread ends when the handle is dropped and the server stops.
#[derive(Debug)]
pub(super) struct ComputeThread {
    /// The jobs. The fault's `queue` bounds their number.
    jobs: Sender<(PendingRequest, NanosSinceStart)>,
    done: Receiver<PendingRequest>,
}

impl ComputeThread {
    pub(super) fn start(caller: PollerWaker, stop: Arc<AtomicBool>) -> io::Result<Self> {
        let (jobs, waiting) = channel::<(PendingRequest, NanosSinceStart)>();
        let (finished, done) = channel();
        let compute = move || {
            while let Ok((flight, work)) = waiting.recv() {
                burn(Duration::from_nanos(work), &stop);
                // A job that was interrupted has no result.
                if stop.load(Ordering::Relaxed) || finished.send(flight).is_err() {
                    return;
                }
                caller.wake();
            }
        };
        std::thread::Builder::new().name("compute".to_owned()).spawn(compute)?;
        Ok(Self { jobs, done })
    }

    pub(super) fn submit(&self, flight: PendingRequest, work: NanosSinceStart) {
        // The thread lives as long as this handle.
        let _ = self.jobs.send((flight, work));
    }

    pub(super) fn take_finished(&self) -> Option<PendingRequest> {
        self.done.try_recv().ok()
    }
}

/// Uses this much CPU time of this thread, however long other programs hold the core. It stops early when the server stops.
fn burn(work: Duration, stop: &AtomicBool) {
    let (begun, mut state) = (thread_time(), 0_u64);
    while thread_time().saturating_sub(begun) < work && !stop.load(Ordering::Relaxed) {
        for _ in 0..200 {
            state = std::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

/// Returns the CPU time that this thread has used, which `core::Clock` does not offer.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
