//! Limits long polls. One long poll costs little, but without a limit a pod could open any number of them. The module does not
//! depend on a dialect.

use std::sync::Arc;

use seawall_core::fair_share;
use seawall_core::shutdown::StopSignal;
use seawall_http::Refusal;

use crate::connection_permits::{Permit, PermitCounter};

/// The limits on waiting long polls.
#[derive(Clone, Debug)]
pub struct LongPollLimit {
    /// Counts the waiting long polls of all pods.
    pub total_counter: Arc<PermitCounter>,
    /// The maximum number of long polls of all pods together.
    pub max_total: u32,
    /// The maximum number of long polls of one pod.
    pub max_per_pod: u32,
    /// The stop signal of the agent. The signal ends all long polls, so that they do not delay the drain.
    pub stop_signal: StopSignal,
}

/// The permit of one long poll.
#[derive(Debug)]
pub struct LongPollPermit(
    #[expect(dead_code, reason = "dropping this field releases the permits")] (Permit, Permit),
);

impl LongPollLimit {
    const FULL: Refusal = Refusal::new(
        503,
        "too_many_long_polls",
        "Too many requests are waiting for a change; try again shortly.",
    );

    /// Takes a permit for a client, or returns a refusal with status 503. `own` counts the client's permits.
    /// A client can have at most `max_per_pod` long polls, and at most as many as then remain free
    /// ([`seawall_core::fair_share`]).
    pub fn try_acquire(&self, own: &Arc<PermitCounter>) -> Result<LongPollPermit, Refusal> {
        let free = self.max_total.saturating_sub(self.total_counter.open_count());
        if !fair_share::may_take(own.open_count().into(), free.into()) {
            return Err(Self::FULL);
        }
        let own = own.take(self.max_per_pod).ok_or(Self::FULL)?;
        let all = self.total_counter.take(self.max_total).ok_or(Self::FULL)?;
        Ok(LongPollPermit((all, own)))
    }
}
