//! SIGINT and SIGTERM: the first stops the load at once, and what is known is told; the second ends the program.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use anyhow::Context as _;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::emulate_default_handler;

/// The termination signal that the run has received.
pub(crate) struct TerminationSignals(Arc<AtomicI32>);

impl TerminationSignals {
    /// Starts the thread that listens, until the program ends. The drafts are removed where that is by the second signal.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn listen(stop: Box<dyn Fn() + Send>, drafts: Vec<PathBuf>) -> anyhow::Result<Self> {
        let mut signals =
            signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).context("cannot listen to signals")?;
        let first = Arc::new(AtomicI32::new(0));
        let noted = Arc::clone(&first);
        let listen = move || {
            for signal in signals.forever() {
                if noted.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                    stop();
                } else {
                    // Who insists wants no answer, and no half of one. What has come to its place in the meantime has no draft any more. If the system refuses even this, the first signal has stopped the load.
                    drafts.iter().for_each(|draft| _ = std::fs::remove_file(draft));
                    let _ = emulate_default_handler(signal);
                }
            }
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(listen)
            .context("cannot listen to signals")?;
        Ok(Self(first))
    }

    /// The first signal, if one came.
    pub(crate) fn first_signal(&self) -> Option<i32> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&signal| signal != 0)
    }
}
