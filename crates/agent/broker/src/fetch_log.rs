//! Writes the log lines of the broker, which contain no credential. The broker limits the rate of the lines.
//! Without a limit, a pod could cause any number of lines and fill the disk, which all programs of the node share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seawall_core::{Gcra, Moment};

use crate::failure::ExchangeError;
use crate::principal::Principal;

/// The maximum number of log lines per second. The burst (`LINES_AT_ONCE`) allows one line per pod when a full node starts (110
/// pods by default).
const LINES_PER_SECOND: u32 = 5;
const LINES_AT_ONCE: u32 = 150;

#[derive(Debug)]
pub(crate) struct FetchLog {
    cloud: &'static str,
    limit: Gcra,
    suppressed_lines: AtomicU64,
}

impl FetchLog {
    pub(crate) fn new(cloud: &'static str) -> Self {
        Self { cloud, limit: Gcra::new(LINES_PER_SECOND, LINES_AT_ONCE), suppressed_lines: AtomicU64::new(0) }
    }

    pub(crate) fn log_issued(
        &self,
        now: Moment,
        principal: &impl Principal,
        lifetime: Duration,
        renewal: bool,
    ) {
        let Some(suppressed_lines) = self.may_say(now) else { return };
        tracing::info!(
            cloud = self.cloud,
            workload = %principal.workload(),
            account = principal.throttle_key().account_name().unwrap_or("-"),
            lifetime_seconds = lifetime.as_secs(),
            renewal,
            suppressed_lines,
            "credential issued"
        );
    }

    pub(crate) fn log_shortened_lifetime(
        &self,
        now: Moment,
        principal: &impl Principal,
        asked: Duration,
        lifetime: Duration,
    ) {
        let Some(suppressed_lines) = self.may_say(now) else { return };
        tracing::warn!(
            cloud = self.cloud,
            workload = %principal.workload(),
            asked_seconds = asked.as_secs(),
            lifetime_seconds = lifetime.as_secs(),
            suppressed_lines,
            "the cloud issued credentials with a shorter lifetime than requested"
        );
    }

    pub(crate) fn log_short_lived(&self, now: Moment, principal: &impl Principal, lifetime: Duration) {
        let Some(suppressed_lines) = self.may_say(now) else { return };
        tracing::warn!(
            cloud = self.cloud,
            workload = %principal.workload(),
            lifetime_seconds = lifetime.as_secs(),
            suppressed_lines,
            "the cloud's credentials are too short-lived to keep the remaining lifetime in responses above the floor"
        );
    }

    pub(crate) fn log_failed(&self, now: Moment, principal: &impl Principal, error: &ExchangeError) {
        let Some(suppressed_lines) = self.may_say(now) else { return };
        let (cloud, workload, fault) = (self.cloud, principal.workload(), error.fault.name());
        tracing::warn!(cloud, %workload, fault, %error, suppressed_lines, "cannot fetch a credential");
    }

    /// Returns the number of lines omitted since the last written line, or `None` if this line must be omitted, too.
    fn may_say(&self, now: Moment) -> Option<u64> {
        if self.limit.take(now).is_err() {
            self.suppressed_lines.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.suppressed_lines.swap(0, Ordering::Relaxed))
    }
}
