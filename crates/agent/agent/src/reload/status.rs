//! Stores the state of the configuration for reports: the digest, the time when the configuration came into force, and a refused
//! file. The state never contains the content of a file.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use prometheus_client::encoding::DescriptorEncoder;
use serde_json::{Value, json};

use super::digest::Digest;
use seawall_observe::metrics::write::{write_counter_family, write_gauge, write_gauge_family};

/// The outcome of reading a changed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReloadOutcome {
    /// The file is in force.
    Applied,
    /// The file has a mistake, or cannot be read.
    Invalid,
    /// The file changes a key that needs a restart.
    NeedsRestart,
    /// The file needs a resource of this machine, and the agent cannot use this resource.
    ApplyFailed,
    /// No credential could be fetched with the file in the place of those that pods have.
    FetchesFailed,
}

impl ReloadOutcome {
    const ALL: [Self; 5] =
        [Self::Applied, Self::Invalid, Self::NeedsRestart, Self::ApplyFailed, Self::FetchesFailed];

    fn name(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Invalid => "invalid",
            Self::NeedsRestart => "needs_restart",
            Self::ApplyFailed => "apply_failed",
            Self::FetchesFailed => "fetches_failed",
        }
    }
}

/// A configuration file that the agent refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RefusedConfig {
    pub(super) digest: Digest,
    pub(super) refused_at: SystemTime,
    /// The reason for the refusal, without the content of the file.
    pub(super) reason: String,
}

/// The reported state. The reloader writes this state, and the admin port reads it.
#[derive(Debug)]
pub(crate) struct ReloadStatus(Mutex<State>);

#[derive(Debug)]
struct State {
    digest: Digest,
    since: SystemTime,
    refused: Option<RefusedConfig>,
    outcomes: [u64; ReloadOutcome::ALL.len()],
}

impl ReloadStatus {
    /// Returns the status of the configuration that was loaded at the start.
    pub(crate) fn new(digest: Digest, since: SystemTime) -> Self {
        Self(Mutex::new(State { digest, since, refused: None, outcomes: [0; _] }))
    }

    /// Records that this configuration is in force.
    pub(super) fn record_applied(&self, digest: Digest, now: SystemTime) {
        let mut state = self.state();
        (state.digest, state.since, state.refused) = (digest, now, None);
        state.outcomes[ReloadOutcome::Applied as usize] += 1;
    }

    /// Records that the agent refused this file.
    pub(super) fn record_refused(&self, outcome: ReloadOutcome, refused: RefusedConfig) {
        let mut state = self.state();
        state.refused = Some(refused);
        state.outcomes[outcome as usize] += 1;
    }

    /// Records that the file again contains the configuration in force.
    pub(super) fn clear_refusal(&self) {
        self.state().refused = None;
    }

    /// Returns a warning for operators if the agent refused the last file.
    pub(crate) fn remark(&self) -> Option<String> {
        let state = self.state();
        let refused = state.refused.as_ref()?;
        Some(format!(
            "the agent refused the changed configuration at {}; the configuration of {} stays in force: {}",
            format_time(refused.refused_at),
            format_time(state.since),
            refused.reason
        ))
    }

    /// Returns the status as JSON, for `/debug/pods` and `status`.
    pub(crate) fn to_json(&self) -> Value {
        let state = self.state();
        let refused = state.refused.as_ref().map(|refused| {
            json!({ "sha256": refused.digest.short_hex(), "refused_at": format_time(refused.refused_at), "reason": refused.reason })
        });
        json!({ "sha256": state.digest.short_hex(), "applied_at": format_time(state.since), "refused": refused })
    }

    /// Writes the metrics for Prometheus.
    pub(crate) fn write_metrics(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (digest, since, is_good, outcomes) = {
            let state = self.state();
            (state.digest.short_hex(), state.since, state.refused.is_none(), state.outcomes)
        };
        let help = "1 if the configuration file is in force, 0 if the agent refused it";
        write_gauge(out, "seawall_config_last_reload_successful", help, f64::from(u8::from(is_good)))?;
        let help = "Time at which the configuration came into force, in seconds since 1970";
        let seconds = since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        write_gauge(
            out,
            "seawall_config_last_reload_success_timestamp_seconds",
            help,
            seconds.as_secs_f64(),
        )?;
        let help = "The configuration in force, by the first characters of its file's SHA-256";
        write_gauge_family(out, "seawall_config_info", help, [([("sha256", digest.as_str())], 1.0)])?;
        let help = "Changed configuration files that the running agent read, by outcome";
        let outcomes =
            ReloadOutcome::ALL.map(|outcome| ([("outcome", outcome.name())], outcomes[outcome as usize]));
        write_counter_family(out, "seawall_config_reloads", help, outcomes)
    }

    /// Locks the state. A scrape copies several related values under one lock, so that the values match.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Formats a time for users and tools. The resolution is one second.
pub(super) fn format_time(at: SystemTime) -> String {
    let at = jiff::Timestamp::try_from(at).unwrap_or_default();
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
