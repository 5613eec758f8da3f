//! A listener that keeps every line that is logged, at every level.

use std::sync::{Arc, LazyLock, Mutex};

use tracing::Dispatch;

/// Keeps every line that is logged.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<String>>>);

/// A second listener that no test reads. While a process has but one listener, `tracing` asks the thread that comes to a line first
/// whether that line is of interest, and keeps the answer for all threads. With two listeners it asks both.
static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Lines::default()));

impl Lines {
    /// Returns every line of this thread while `done` runs, beside tests that log without a listener.
    pub(crate) fn of<T>(done: impl FnOnce() -> T) -> (T, Vec<String>) {
        LazyLock::force(&ANOTHER);
        let lines = Self::default();
        let result = tracing::subscriber::with_default(lines.clone(), done);
        (result, lines.all())
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl tracing::Subscriber for Lines {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = String::new();
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            line += &format!("{field}={value:?} ");
        });
        self.0.lock().unwrap().push(line);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}
