//! An emulator in this process, on a thread of its own that ends with the value.

use std::future::Future;
use std::ops::Deref;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

/// A running emulator.
pub(crate) struct Hosted<R> {
    running: Option<R>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl<R> Hosted<R> {
    /// What this starts.
    pub(crate) fn start(start: impl Future<Output = std::io::Result<R>>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let running = runtime.block_on(start).unwrap();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let _ = runtime.block_on(stopped);
        });
        Self { running: Some(running), stop: Some(stop), thread: Some(thread) }
    }
}

impl<R> Deref for Hosted<R> {
    type Target = R;

    fn deref(&self) -> &R {
        self.running.as_ref().expect("runs until it is dropped")
    }
}

impl<R> Drop for Hosted<R> {
    fn drop(&mut self) {
        drop(self.running.take());
        drop(self.stop.take());
        // A panic of the emulator shows in the test's own output.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
