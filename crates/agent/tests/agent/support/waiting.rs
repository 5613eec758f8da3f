//! Waiting for a condition, never for a while. How long at most is each test program's own to say.

use std::time::Duration;

use seawall_core::Clock;

use super::PATIENCE;

/// Looks again until `probe` gives something.
pub(crate) fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let clock = Clock::system();
    let deadline = clock.now() + PATIENCE;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(clock.now() < deadline, "waited {PATIENCE:?} in vain for: {what}");
        pause(Duration::from_millis(5));
    }
}

/// Looks again until `probe` says yes.
pub(crate) fn until_true(what: &str, mut probe: impl FnMut() -> bool) {
    until(what, || probe().then_some(()));
}

#[expect(clippy::disallowed_methods, reason = "a pause between two looks, or what a pod does for a while")]
pub(crate) fn pause(span: Duration) {
    std::thread::sleep(span);
}
