//! Bounds on requests that wait for a change: they are cheap, but a pod could open them without end. Knows no dialect.

use std::sync::Arc;

use seawall_core::fair_share;
use seawall_core::shutdown::StopSignal;
use seawall_http::Refusal;

use crate::permit_counter::{Permit, PermitCounter};

/// How many may wait.
#[derive(Clone, Debug)]
pub struct LongPollLimit {
    /// Those that wait, of all pods.
    pub all: Arc<PermitCounter>,
    /// How many may, all together.
    pub most: u32,
    /// How many may of one pod.
    pub most_per_pod: u32,
    /// A drain answers them with what there is.
    pub stop: StopSignal,
}

/// The place of one long poll.
#[derive(Debug)]
pub struct LongPollPermit(#[expect(dead_code, reason = "held for its drop")] (Permit, Permit));

impl LongPollLimit {
    const FULL: Refusal =
        Refusal::new(503, "long_polls", "Too many requests are waiting for a change; try again shortly.");

    /// A place for one more of a caller that has `own`, or 503. Within its cap a caller may have as many as it leaves free
    /// ([`seawall_core::fair_share`]).
    pub fn acquire(&self, own: &Arc<PermitCounter>) -> Result<LongPollPermit, Refusal> {
        let free = self.most.saturating_sub(self.all.open());
        if !fair_share::may_take(own.open().into(), free.into()) {
            return Err(Self::FULL);
        }
        let own = own.take(self.most_per_pod).ok_or(Self::FULL)?;
        let all = self.all.take(self.most).ok_or(Self::FULL)?;
        Ok(LongPollPermit((all, own)))
    }
}
