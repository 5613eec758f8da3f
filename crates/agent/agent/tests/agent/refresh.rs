//! Real clients and the remaining life of what they hold: the rule behind the agent's floor.

use std::time::Duration;

use seawall_testkit::aws_sdk_models::JAVA_1_11;
use seawall_testkit::aws_sdk_models::rotating_session_server::fetches_for_consecutive_calls;

use crate::support::namespace::{self, Ground};
use crate::support::refresh::fetches_of_java_1;

/// What KIAM's users met: sessions of 15 minutes, and an SDK that takes what has less left for used up. The model of it, which the agent is
/// held to for days (`observe/src/tests/aws_sdks.rs`), does as the real one does.
#[test]
fn java_1_11_500_fetches_on_every_call_below_fifteen_minutes_and_never_above() {
    let ground = namespace::enter(
        "refresh::java_1_11_500_fetches_on_every_call_below_fifteen_minutes_and_never_above",
    );
    if ground != Ground::Sealed {
        return;
    }
    for (minutes, fetches) in [(8, 50), (14, 50), (16, 0), (25, 0), (60, 0)] {
        let left = Duration::from_secs(minutes * 60);
        assert_eq!(fetches_of_java_1(50, left), fetches, "{minutes} minutes left");
        // Of the model the first one counts, too.
        let modelled = fetches_for_consecutive_calls(&JAVA_1_11, left.as_secs() as i64, 51);
        assert_eq!(u64::from(modelled), 1 + fetches, "the model, {minutes} minutes left");
    }
}
