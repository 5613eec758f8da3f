//! The specification of a closed-loop trial, its stop rule and its verdict.

use std::time::Duration;

use crate::evidence::{Proportion, TrialEvidence};
use crate::goal::SearchGoal;
use crate::observation::{
    BLOCK_SECONDS, BLOCKS_PER_CHUNK, BLOCKS_PER_SECOND, BlockCounts, mean_latency, sum,
};
use crate::trial_spec::TrialPurpose;
use crate::trial_verdict::{self, FailureMode, TrialVerdict};

/// A trial with clients. Each client sends its next request when the last one has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClosedTrialSpec {
    /// The purpose of the trial.
    pub purpose: TrialPurpose,
    /// The number of clients.
    pub clients: u32,
    /// The pause of a client after a failure. Without a pause, a target that refuses requests would get a thousand times more load than one
    /// that serves them.
    pub pause_after_failure: Duration,
    /// The shortest duration, unless the trial does damage.
    pub min_duration: Duration,
    /// The longest duration.
    pub max_duration: Duration,
    /// The stop rule between the shortest and the longest duration.
    pub rule: ClosedStopRule,
    /// The criteria of the verdict.
    pub criteria: ClosedCriteria,
    /// The time to wait for outstanding requests at the end. Then they are closed.
    pub drain: Duration,
}

/// The rule that stops a trial between its shortest and longest duration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ClosedStopRule {
    /// Stops at the end, or earlier if the goal does not hold.
    FullDurationUnlessBad,
    /// Stops as soon as the verdict is clear.
    Decided,
    /// Stops as soon as this share of half a second's requests fails.
    FailingShare(f64),
}

/// The least number of ended requests that shows damage.
const FEW: f64 = 50.0;

impl ClosedTrialSpec {
    /// Returns whether to stop sending. The caller asks after each complete block.
    #[must_use]
    pub fn is_enough(&self, blocks: &[BlockCounts]) -> bool {
        let seconds = blocks.len() as f64 * BLOCK_SECONDS + BLOCK_SECONDS / 2.0;
        seconds >= self.max_duration.as_secs_f64()
            || damages(blocks)
            || self.spent(blocks)
            || seconds >= self.min_duration.as_secs_f64() && self.decided(blocks)
    }

    fn spent(&self, blocks: &[BlockCounts]) -> bool {
        let ClosedStopRule::FailingShare(share) = self.rule else { return false };
        let last = &blocks[blocks.len().saturating_sub(BLOCKS_PER_CHUNK)..];
        let (errors, ended) = (sum(last, |block| block.errors), sum(last, BlockCounts::ended_count));
        ended >= 5.0 && errors >= share * ended
    }

    fn decided(&self, blocks: &[BlockCounts]) -> bool {
        let vote = self.criteria.judge(&self.criteria.evidence(self.clients, blocks));
        match self.rule {
            ClosedStopRule::FullDurationUnlessBad => vote == TrialVerdict::Bad,
            ClosedStopRule::Decided => vote != TrialVerdict::Undecided,
            ClosedStopRule::FailingShare(_) => false,
        }
    }
}

/// Returns whether, after the first second, half of the requests that ended in the last 0.2 s failed.
fn damages(blocks: &[BlockCounts]) -> bool {
    let last = &blocks[blocks.len().saturating_sub(3)..];
    let (errors, ended) = (sum(last, |block| block.errors), sum(last, BlockCounts::ended_count));
    blocks.len() >= BLOCKS_PER_SECOND && ended >= FEW && errors > ended / 2.0
}

/// The criteria for trials of a closed loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClosedCriteria {
    /// The goal of the search. Lateness counts from the send.
    pub goal: SearchGoal,
    /// The time in seconds until the clients no longer send in step.
    pub settle: f64,
    /// The mean response time of a single client, in seconds.
    pub service_time: f64,
}

/// The number of standard deviations that is not chance, for about ten interim checks per trial; below, the one-sided 95 % quantile.
const BEYOND: f64 = 3.5;
const SURE: f64 = 1.64;
/// The number of failures or late responses below which they may be bad luck.
const LUCK: f64 = 5.0;
/// The number of rounds of all clients after which a client without a response hangs.
const ROUNDS: f64 = 4.0;

impl ClosedCriteria {
    /// Returns the evidence of these blocks. The number of clients takes the place of the rate.
    #[must_use]
    pub fn evidence(&self, clients: u32, blocks: &[BlockCounts]) -> ClosedEvidence {
        let Self { goal, settle, service_time: service } = *self;
        let open = trial_verdict::TrialCriteria {
            goal,
            growth_tolerance: 1.0,
            settle,
            min_settled_seconds_for_good: 1.0,
            service_time: service,
            baseline_slowest: f64::INFINITY,
        };
        let clients = f64::from(clients);
        let evidence = TrialEvidence { rate: clients, ..TrialEvidence::of(clients, blocks, &open) };
        match self.stuck(clients, blocks) {
            // A hanging client counts as failed, although its request has not ended.
            Some(stuck) => {
                let errors = Proportion { count: stuck, total: clients, inflation: 2.0 };
                ClosedEvidence { evidence: TrialEvidence { errors, ..evidence }, most_clients_hang: true }
            }
            None => ClosedEvidence { evidence, most_clients_hang: false },
        }
    }

    /// Returns the number of hanging clients if most clients hang: by Little's law (1961), the clients that the responses do not
    /// account for.
    fn stuck(&self, clients: f64, blocks: &[BlockCounts]) -> Option<f64> {
        let rest = &blocks[blocks.len() / 3..];
        let seconds = rest.len() as f64 * BLOCK_SECONDS;
        let ended = sum(rest, BlockCounts::ended_count);
        let response = mean_latency(rest).unwrap_or(self.service_time);
        let busy = ended / seconds.max(BLOCK_SECONDS) * response.max(self.service_time);
        let long = seconds >= (ROUNDS * response.max(self.service_time)).max(1.0);
        (long && busy < clients / 2.0 && sum(rest, |block| block.errors) <= ended / 2.0)
            .then_some(clients - busy)
    }

    /// Judges the evidence.
    #[must_use]
    pub fn judge(
        &self,
        ClosedEvidence { evidence, most_clients_hang: hangs }: &ClosedEvidence,
    ) -> TrialVerdict {
        let (errors, late) = (self.failing(evidence), self.late(evidence));
        if *hangs || errors > BEYOND || late > BEYOND {
            TrialVerdict::Bad
        } else if evidence.seconds_after_settling > 0.0 && errors <= 0.5 && late < -SURE {
            TrialVerdict::Good
        } else {
            TrialVerdict::Undecided
        }
    }

    /// Returns the number of standard deviations by which failures exceed the goal.
    fn failing(&self, evidence: &TrialEvidence) -> f64 {
        told(evidence.errors, self.goal.max_error_share)
    }

    /// Returns the number of standard deviations by which late responses exceed the goal; negative infinity without a latency
    /// goal.
    fn late(&self, evidence: &TrialEvidence) -> f64 {
        self.goal.latency_goal.map_or(f64::NEG_INFINITY, |late| told(evidence.late, late.max_late_share))
    }

    /// Returns whether failures exceed the goal, and whether late responses do.
    #[must_use]
    pub fn errors_and_lateness_exceed_goal(
        &self,
        ClosedEvidence { evidence, most_clients_hang: hangs }: &ClosedEvidence,
    ) -> (bool, bool) {
        (*hangs || self.failing(evidence) > BEYOND, self.late(evidence) > BEYOND)
    }

    /// Returns the failure mode of a bad trial.
    #[must_use]
    pub fn failure_mode(&self, finding: &ClosedEvidence) -> FailureMode {
        let (failing, _) = self.errors_and_lateness_exceed_goal(finding);
        let latency = finding.evidence.mean_latency_at_end;
        let quick = latency.is_none_or(|latency| latency < 3.0 * self.service_time + 0.005);
        match (finding.most_clients_hang, failing, quick) {
            (true, ..) => FailureMode::Hanging,
            (false, true, true) => FailureMode::Rejecting,
            (false, true, false) => FailureMode::BoundedQueue,
            (false, false, _) => FailureMode::Queueing,
        }
    }
}

/// The evidence of a closed-loop trial.
#[derive(Debug, Clone, PartialEq)]
pub struct ClosedEvidence {
    /// The evidence. If most clients hang, its errors count clients instead of responses.
    pub evidence: TrialEvidence,
    /// True if most clients hang.
    pub most_clients_hang: bool,
}

/// Returns the number of standard deviations by which a share exceeds a bound. A few events count as bad luck.
fn told(share: Proportion, bound: f64) -> f64 {
    let above = share.deviations_above(bound);
    if share.count < LUCK { above.min(BEYOND) } else { above }
}
