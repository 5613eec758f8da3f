//! Waiting for a condition, never for a while. The deadline is for broken programs, not for slow machines.

use std::time::Duration;

use seawall_core::Clock;

/// Longer than anything in any test takes on a busy machine. A kubelet that starts 40 pods at once on two cores took more than a minute.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Looks again until `probe` gives something.
///
/// # Panics
/// After [`PATIENCE`].
pub fn wait_until_some<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
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
///
/// # Panics
/// After [`PATIENCE`].
pub fn wait_until_true(what: &str, mut probe: impl FnMut() -> bool) {
    wait_until_some(what, || probe().then_some(()));
}

/// Does nothing for a while, for the sake of what is observed and never of a result.
#[expect(clippy::disallowed_methods, reason = "a pause between two looks, or what a pod does for a while")]
pub fn pause(span: Duration) {
    std::thread::sleep(span);
}
