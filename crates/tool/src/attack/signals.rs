//! SIGINT and SIGTERM: the first drains the run, the second ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use anyhow::Context as _;
use seawall_load::control::Control;
use signal_hook::consts::{SIGINT, SIGTERM};

/// Signals that no longer end the program by themselves: what comes before somebody [listens](PendingSignals::listen) is kept for him.
pub(crate) struct PendingSignals(signal_hook::iterator::Signals);

impl PendingSignals {
    /// From here on the signals wait. Before a trial begins, because one that it outran would cut it off.
    pub(crate) fn catch() -> anyhow::Result<Self> {
        let signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]);
        Ok(Self(signals.context("cannot listen to signals")?))
    }

    /// A signal that has come, which nobody else hears of then.
    pub(crate) fn take_next(&mut self) -> Option<i32> {
        self.0.pending().next()
    }

    /// Starts the thread that listens, until the program ends.
    pub(crate) fn listen(mut self, control: Control) -> anyhow::Result<ReceivedSignals> {
        let received = Arc::new(Received::default());
        let noted = Arc::clone(&received);
        let listen = move || {
            for signal in self.0.forever() {
                if noted.first.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                    control.drain();
                } else {
                    noted.repeated.store(true, Ordering::Relaxed);
                    control.abort();
                }
            }
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(listen)
            .context("cannot listen to signals")?;
        Ok(ReceivedSignals(received))
    }
}

/// The signals that an attack has received.
pub(crate) struct ReceivedSignals(Arc<Received>);

#[derive(Default)]
struct Received {
    /// The first signal, or 0.
    first: AtomicI32,
    repeated: AtomicBool,
}

impl ReceivedSignals {
    /// The first signal, if one came.
    pub(crate) fn first_signal(&self) -> Option<i32> {
        Some(self.0.first.load(Ordering::Relaxed)).filter(|&signal| signal != 0)
    }

    /// Returns true if a second signal followed, so that the run was aborted.
    pub(crate) fn was_repeated(&self) -> bool {
        self.0.repeated.load(Ordering::Relaxed)
    }
}
