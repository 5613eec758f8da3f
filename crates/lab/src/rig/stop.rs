//! The switch that ends everything at once: the load that is being offered, a rest, and all that would come after.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seawall_load::control::Control;

/// Ends what a [`LocalDriver`](crate::rig::LocalDriver) does, from any thread. Cheap to clone; there is no way back.
#[derive(Debug, Clone, Default)]
pub struct StopSwitch(Arc<Switch>);

#[derive(Debug, Default)]
struct Switch {
    /// A lock, because a load that begins and an end that comes must not miss each other; nobody holds it while anything is sent.
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stopped: bool,
    /// The load that is being offered.
    running: Option<Control>,
}

impl StopSwitch {
    /// Sends nothing more, and waits for no answer.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        if let Some(control) = &state.running {
            control.abort();
        }
        drop(state);
        self.0.changed.notify_all();
    }

    /// True if everything is to stop.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    /// This is what is being offered from now on.
    pub(super) fn set_running_load(&self, control: Control) {
        let mut state = self.lock();
        if state.stopped {
            control.abort();
        }
        state.running = Some(control);
    }

    /// Nothing is being offered any more.
    pub(super) fn clear_running_load(&self) {
        self.lock().running = None;
    }

    /// Waits so long; `false` as soon as everything is to end.
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
