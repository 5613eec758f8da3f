//! The switch that ends everything at once: the running load, a pause, and all later loads.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seawall_load::control::Control;

/// Stops a [`LocalDriver`](crate::rig::LocalDriver) for good, from any thread. It is cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct StopSwitch(Arc<Switch>);

#[derive(Debug, Default)]
struct Switch {
    /// The state. A mutex ensures that a starting load sees a concurrent stop. No thread holds it while requests are sent.
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stopped: bool,
    /// The controller of the running load.
    running: Option<Control>,
}

impl StopSwitch {
    /// Ends all loads at once, without waiting for responses.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        if let Some(control) = &state.running {
            control.abort();
        }
        drop(state);
        self.0.changed.notify_all();
    }

    /// Returns true if everything is to stop.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    /// Sets the running load, and aborts it if everything is to stop.
    pub(super) fn set_running_load(&self, control: Control) {
        let mut state = self.lock();
        if state.stopped {
            control.abort();
        }
        state.running = Some(control);
    }

    /// Records that no load runs.
    pub(super) fn clear_running_load(&self) {
        self.lock().running = None;
    }

    /// Waits this long; returns false as soon as everything is to stop.
    pub(super) fn sleep(&self, time: Duration) -> bool {
        let waited = self.0.changed.wait_timeout_while(self.lock(), time, |state| !state.stopped);
        !waited.unwrap_or_else(PoisonError::into_inner).0.stopped
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_ends_when_everything_does_and_is_none_after_that() {
        let stop = StopSwitch::default();
        assert!(stop.sleep(Duration::ZERO) && !stop.is_stopped());
        let other = stop.clone();
        let resting = std::thread::spawn(move || other.sleep(Duration::from_secs(3600)));
        stop.stop();
        assert!(matches!(resting.join(), Ok(false)));
        assert!(!stop.sleep(Duration::from_secs(3600)) && stop.is_stopped());
    }
}
