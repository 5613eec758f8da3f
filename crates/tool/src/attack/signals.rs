//! SIGINT and SIGTERM: the first drains the run, the second ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use anyhow::Context as _;
use seawall_load::control::Control;
use signal_hook::consts::{SIGINT, SIGTERM};

/// Listens until the program ends.
pub(crate) struct Signals(Arc<Received>);

#[derive(Default)]
struct Received {
    /// The first signal, or 0.
    first: AtomicI32,
    again: AtomicBool,
}

impl Signals {
    /// Starts the thread that listens.
    pub(crate) fn listen(control: Control) -> anyhow::Result<Self> {
        let received = Arc::new(Received::default());
        let noted = Arc::clone(&received);
        let mut signals =
            signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).context("cannot listen to signals")?;
        let listen = move || {
            for signal in signals.forever() {
                if noted.first.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                    control.drain();
                } else {
                    noted.again.store(true, Ordering::Relaxed);
                    control.abort();
                }
            }
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(listen)
            .context("cannot listen to signals")?;
        Ok(Self(received))
    }

    /// The first signal, if one came.
    pub(crate) fn received(&self) -> Option<i32> {
        Some(self.0.first.load(Ordering::Relaxed)).filter(|&signal| signal != 0)
    }

    /// Whether another one followed, so that the run was not drained.
    pub(crate) fn insisted(&self) -> bool {
        self.0.again.load(Ordering::Relaxed)
    }
}
