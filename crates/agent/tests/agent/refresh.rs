//! Real clients and the remaining life of what they hold: the rule behind the agent's floor.

use std::time::Duration;

use crate::support::namespace::{self, Ground};
use crate::support::refresh::fetches_of_java_1;

/// What KIAM's users met: sessions of 15 minutes, and an SDK that takes what has less left for used up.
#[test]
fn java_1_11_500_fetches_on_every_call_below_fifteen_minutes_and_never_above() {
    let ground = namespace::enter(
        "refresh::java_1_11_500_fetches_on_every_call_below_fifteen_minutes_and_never_above",
    );
    if ground != Ground::Sealed {
        return;
    }
    for (minutes, fetches) in [(8, 50), (14, 50), (16, 0), (25, 0), (60, 0)] {
        assert_eq!(
            fetches_of_java_1(50, Duration::from_secs(minutes * 60)),
            fetches,
            "{minutes} minutes left"
        );
    }
}
