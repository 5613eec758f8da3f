//! SIGINT and SIGTERM: the first drains the run, the second ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use anyhow::Context as _;
use seawall_load::control::Control;
use signal_hook::consts::{SIGINT, SIGTERM};

/// Listens until the program ends.
pub(crate) struct Signals(Arc<AtomicI32>);

impl Signals {
    /// Starts the thread that listens.
    pub(crate) fn listen(control: Control) -> anyhow::Result<Self> {
        let first = Arc::new(AtomicI32::new(0));
        let noted = Arc::clone(&first);
        let mut signals =
            signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).context("cannot listen to signals")?;
        let listen = move || {
            for signal in signals.forever() {
                if noted.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                    control.drain();
                } else {
                    control.abort();
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
    pub(crate) fn received(&self) -> Option<i32> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&signal| signal != 0)
    }
}
