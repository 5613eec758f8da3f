//! How long a lease is answered with from memory, by kind of credential.

use std::time::Duration;

use seawall_core::{Moment, Want};

use crate::settings::Settings;

/// The least life that answers of this kind carry while the cloud answers.
pub(crate) fn floor(_want: &Want, settings: &Settings) -> Duration {
    settings.floor.hard
}

/// Until when it is answered with from memory: while it is valid.
pub(crate) fn until(_want: &Want, _settings: &Settings, _issued: Moment, _lifetime: Duration) -> Moment {
    Moment::from_nanos(u64::MAX)
}
