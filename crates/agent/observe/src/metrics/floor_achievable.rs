//! Writes the metric that shows for each cloud whether the cloud's credentials can stay above their floor.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use seawall_identity::start_identity::RunningIdentityStrategy;

use super::write::write_gauge_family;

/// Writes the metric of each cloud.
///
/// # Errors
/// The encoder fails.
pub fn write(who: &RunningIdentityStrategy, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "1 if renewal can keep credentials above the floor (the promised minimum of remaining lifetime); 0 if the configuration or the cloud allows only shorter lifetimes";
    let floors = who.credential_lifetime_floor_states().into_iter().map(|(state, can_be_kept)| {
        ([("cloud", state.cloud.as_str())], f64::from(u8::from(state.was_always_kept && can_be_kept)))
    });
    write_gauge_family(out, "seawall_floor_achievable", help, floors)
}
