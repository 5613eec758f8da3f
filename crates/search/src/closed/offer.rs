//! So many clients, when that was long enough, and which way it points.

use std::time::Duration;

use crate::evidence::{Proportion, TrialEvidence};
use crate::goal::SearchGoal;
use crate::offer::TrialPurpose;
use crate::seen::{BLOCK_SECONDS, BLOCKS_PER_CHUNK, BLOCKS_PER_SECOND, BlockCounts, mean_latency, sum};
use crate::vote::{self, FailureMode, TrialVerdict};

/// Clients, each of which sends its next request when its last one ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClosedTrialSpec {
    /// What for.
    pub purpose: TrialPurpose,
    /// How many.
    pub clients: u32,
    /// How long a client waits after a failure: one that asked again at once would load a target that refuses a thousand times more
    /// than one that answers.
    pub pause: Duration,
    /// No shorter, unless it does damage.
    pub least: Duration,
    /// No longer.
    pub most: Duration,
    /// When it is enough, between the two.
    pub rule: ClosedStopRule,
    /// What it is held to.
    pub standard: ClosedCriteria,
    /// How long to wait for what is outstanding at its end; then it is closed.
    pub drain: Duration,
}

/// When an offer was long enough, between its least and its most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ClosedStopRule {
    /// At its end, unless the goal does not hold.
    Whole,
    /// As soon as it is decided.
    Decided,
    /// As soon as this share of half a second's requests fails.
    Fails(f64),
}

/// Answers of which a share is told from chance: fewer do no damage that counts.
const FEW: f64 = 50.0;

impl ClosedTrialSpec {
    /// Whether to stop sending now. Asked whenever a block is complete.
    #[must_use]
    pub fn is_enough(&self, blocks: &[BlockCounts]) -> bool {
        let seconds = blocks.len() as f64 * BLOCK_SECONDS + BLOCK_SECONDS / 2.0;
        seconds >= self.most.as_secs_f64()
            || damages(blocks)
            || self.spent(blocks)
            || seconds >= self.least.as_secs_f64() && self.decided(blocks)
    }

    fn spent(&self, blocks: &[BlockCounts]) -> bool {
        let ClosedStopRule::Fails(share) = self.rule else { return false };
        let last = &blocks[blocks.len().saturating_sub(BLOCKS_PER_CHUNK)..];
        let (errors, ended) = (sum(last, |block| block.errors), sum(last, BlockCounts::ended));
        ended >= 5.0 && errors >= share * ended
    }

    fn decided(&self, blocks: &[BlockCounts]) -> bool {
        let vote = self.standard.judge(&self.standard.evidence(self.clients, blocks));
        match self.rule {
            ClosedStopRule::Whole => vote == TrialVerdict::Bad,
            ClosedStopRule::Decided => vote != TrialVerdict::Undecided,
            ClosedStopRule::Fails(_) => false,
        }
    }
}

/// Half of what ended in the last 0.2 s failed, when a second is over.
fn damages(blocks: &[BlockCounts]) -> bool {
    let last = &blocks[blocks.len().saturating_sub(3)..];
    let (errors, ended) = (sum(last, |block| block.errors), sum(last, BlockCounts::ended));
    blocks.len() >= BLOCKS_PER_SECOND && ended >= FEW && errors > ended / 2.0
}

/// What trials of a closed loop are held to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClosedCriteria {
    /// The search's goal; its lateness is from the send.
    pub goal: SearchGoal,
    /// Time until clients are spread out as they stay, in seconds.
    pub settle: f64,
    /// Mean response time of a single client, in seconds.
    pub service: f64,
}

/// Standard deviations that are no chance, at some ten looks a trial; and one-sided, 95 %.
const BEYOND: f64 = 3.5;
const SURE: f64 = 1.64;
/// Failures or late answers fewer than these are bad luck.
const LUCK: f64 = 5.0;
/// Rounds of all clients after which those that had no answer hang.
const ROUNDS: f64 = 4.0;

impl ClosedCriteria {
    /// What these blocks say of so many clients, whose number stands where a rate would.
    #[must_use]
    pub fn evidence(&self, clients: u32, blocks: &[BlockCounts]) -> ClosedEvidence {
        let Self { goal, settle, service } = *self;
        let open =
            vote::TrialCriteria { goal, tolerance: 1.0, settle, least: 1.0, service, slowest: f64::INFINITY };
        let clients = f64::from(clients);
        let evidence = TrialEvidence { rate: clients, ..TrialEvidence::of(clients, blocks, &open) };
        match self.stuck(clients, blocks) {
            // Who hangs has failed, though nobody has told it yet.
            Some(stuck) => {
                let errors = Proportion { count: stuck, of: clients, inflation: 2.0 };
                ClosedEvidence { evidence: TrialEvidence { errors, ..evidence }, hangs: true }
            }
            None => ClosedEvidence { evidence, hangs: false },
        }
    }

    /// How many clients hang, if most of them do: those that Little's law (1961) does not find among the answers.
    fn stuck(&self, clients: f64, blocks: &[BlockCounts]) -> Option<f64> {
        let rest = &blocks[blocks.len() / 3..];
        let seconds = rest.len() as f64 * BLOCK_SECONDS;
        let ended = sum(rest, BlockCounts::ended);
        let response = mean_latency(rest).unwrap_or(self.service);
        let busy = ended / seconds.max(BLOCK_SECONDS) * response.max(self.service);
        let long = seconds >= (ROUNDS * response.max(self.service)).max(1.0);
        (long && busy < clients / 2.0 && sum(rest, |block| block.errors) <= ended / 2.0)
            .then_some(clients - busy)
    }

    /// Which way it points.
    #[must_use]
    pub fn judge(&self, ClosedEvidence { evidence, hangs }: &ClosedEvidence) -> TrialVerdict {
        let (errors, late) = (self.failing(evidence), self.late(evidence));
        if *hangs || errors > BEYOND || late > BEYOND {
            TrialVerdict::Bad
        } else if evidence.seconds > 0.0 && errors <= 0.5 && late < -SURE {
            TrialVerdict::Good
        } else {
            TrialVerdict::Undecided
        }
    }

    /// Standard deviations by which failures are more than the goal allows.
    fn failing(&self, evidence: &TrialEvidence) -> f64 {
        told(evidence.errors, self.goal.errors)
    }

    /// The same of late answers; less than nothing where nothing is said of them.
    fn late(&self, evidence: &TrialEvidence) -> f64 {
        self.goal.late.map_or(f64::NEG_INFINITY, |late| told(evidence.late, late.share))
    }

    /// Whether too many failed, and whether too many were late.
    #[must_use]
    pub fn breaks(&self, ClosedEvidence { evidence, hangs }: &ClosedEvidence) -> (bool, bool) {
        (*hangs || self.failing(evidence) > BEYOND, self.late(evidence) > BEYOND)
    }

    /// How the target failed in a trial that was bad.
    #[must_use]
    pub fn failure_mode(&self, finding: &ClosedEvidence) -> FailureMode {
        let (failing, _) = self.breaks(finding);
        let latency = finding.evidence.latency;
        let quick = latency.is_none_or(|latency| latency < 3.0 * self.service + 0.005);
        match (finding.hangs, failing, quick) {
            (true, ..) => FailureMode::Hanging,
            (false, true, true) => FailureMode::Rejecting,
            (false, true, false) => FailureMode::BoundedQueue,
            (false, false, _) => FailureMode::Queueing,
        }
    }
}

/// A trial reduced to what it says.
#[derive(Debug, Clone, PartialEq)]
pub struct ClosedEvidence {
    /// Its errors are clients, not answers, where most of them hang.
    pub evidence: TrialEvidence,
    /// Whether they do.
    pub hangs: bool,
}

/// By how many standard deviations a share is above a bound; a few are bad luck, however rare they should be.
fn told(share: Proportion, bound: f64) -> f64 {
    let above = share.deviations_above(bound);
    if share.count < LUCK { above.min(BEYOND) } else { above }
}
