//! The specification of a trial: its load, and the rule that stops it.

use std::time::Duration;

use crate::evidence::TrialEvidence;
use crate::observation::{BLOCK_SECONDS, BLOCKS_PER_CHUNK, BLOCKS_PER_SECOND, BlockCounts, sum};
use crate::trial_verdict::{TrialCriteria, TrialVerdict};

/// The purpose of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TrialPurpose {
    /// Measures how fast the target is at very low load.
    Baseline,
    /// Doubles the rate until the target breaks.
    Ramp,
    /// Empties a token bucket, so that the next trial finds it empty. This is not a trial of a rate.
    BurstDrain,
    /// Narrows the bracket of the cliff.
    NarrowBracket,
    /// Holds the lower bound of the bracket for longer.
    Confirm,
    /// Repeats a rate after a pause, because two trials contradict each other.
    RepeatAfterIdle,
    /// Sends single requests until the target is as fast as before. This is not a trial of a rate.
    RecoveryProbe,
    /// Repeats a rate at once, because the target held it for a while and then broke.
    RepeatNow,
    /// Sends a rate above the bracket after a pause, to see whether an idle target bears more.
    AboveBracketAfterIdle,
    /// Narrows the bracket of the knee; in a closed-loop search, finds the saturation.
    LatencyBreakingRate,
    /// Sends a lower rate directly after an overload trial, to see whether the target recovers.
    Recovery,
}

/// The rule that stops a trial between its least and most duration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StopRule {
    /// Stops at the longest duration, or earlier if the trial does damage or its verdict is bad.
    FullDurationUnlessBad(TrialCriteria),
    /// Stops as soon as the verdict is clear.
    Decided(TrialCriteria),
    /// Stops as soon as this share of half a second's requests fails or hangs.
    FailingShare(f64),
    /// Stops as soon as the last three responses and the last half second were fast, within this many seconds per response.
    FastResponses(f64),
}

/// A trial at one rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialSpec {
    /// The purpose of the trial.
    pub purpose: TrialPurpose,
    /// The requests per second, spaced evenly or by the run's arrival process.
    pub rate: f64,
    /// The shortest duration, unless the trial does damage.
    pub min_duration: Duration,
    /// The longest duration.
    pub max_duration: Duration,
    /// The stop rule.
    pub rule: StopRule,
    /// The most requests in flight; a higher number counts as damage and stops the trial.
    pub in_flight_cap: f64,
    /// The time to wait for outstanding requests at the end. Then they are closed.
    pub drain: Duration,
}

/// The least number of ended requests that shows damage.
const FEW: f64 = 50.0;

impl TrialSpec {
    /// Returns whether to stop sending. The caller asks after each complete block.
    #[must_use]
    pub fn is_enough(&self, blocks: &[BlockCounts]) -> bool {
        let seconds = blocks.len() as f64 * BLOCK_SECONDS;
        if seconds + BLOCK_SECONDS / 2.0 >= self.max_duration.as_secs_f64() || self.damages(blocks) {
            return true;
        }
        seconds + BLOCK_SECONDS / 2.0 >= self.min_duration.as_secs_f64() && self.decided(blocks)
    }

    /// Returns whether the trial has emptied the token bucket.
    #[must_use]
    pub fn has_drained_burst(&self, blocks: &[BlockCounts]) -> bool {
        matches!(self.rule, StopRule::FailingShare(share) if fails(blocks, share))
    }

    /// Returns whether the trial does damage: too many requests in flight for 0.2 s, or, after the first second, half of the last
    /// 0.2 s failed.
    fn damages(&self, blocks: &[BlockCounts]) -> bool {
        // One short stall is not damage: the target serves the delayed requests afterwards.
        let last = &blocks[blocks.len().saturating_sub(3)..];
        let in_flight = last.iter().map(|block| f64::from(block.in_flight)).fold(f64::INFINITY, f64::min);
        let (errors, ended) = (sum(last, |block| block.errors), sum(last, BlockCounts::ended_count));
        // Limiters with time windows refuse all requests at the end of each window, so one second of refusals is not damage.
        let failing = blocks.len() >= BLOCKS_PER_SECOND && ended >= FEW && errors > ended / 2.0;
        in_flight > self.in_flight_cap || failing
    }

    fn decided(&self, blocks: &[BlockCounts]) -> bool {
        match self.rule {
            StopRule::Decided(standard) => {
                standard.judge(&TrialEvidence::of(self.rate, blocks, &standard)) != TrialVerdict::Undecided
            }
            StopRule::FullDurationUnlessBad(standard) => {
                standard.judge(&TrialEvidence::of(self.rate, blocks, &standard)) == TrialVerdict::Bad
            }
            StopRule::FailingShare(share) => fails(blocks, share),
            StopRule::FastResponses(within) => calm(blocks, within),
        }
    }
}

/// Returns whether this share of the last half second's requests failed or has no response.
fn fails(blocks: &[BlockCounts], share: f64) -> bool {
    let last = &blocks[blocks.len().saturating_sub(BLOCKS_PER_CHUNK)..];
    let (sent, errors) = (sum(last, |block| block.sent), sum(last, |block| block.errors));
    let before =
        blocks.len().checked_sub(BLOCKS_PER_CHUNK + 1).map_or(0.0, |at| f64::from(blocks[at].in_flight));
    let grown = last.last().map_or(0.0, |block| f64::from(block.in_flight)) - before;
    sent >= 5.0 && (errors >= share * sent || grown >= share * sent)
}

/// The longest wait for a single request, in blocks. A later one may hang and then says nothing about the requests after it. If those are
/// missing, too, the target is still busy.
const PATIENCE: usize = 5 * BLOCKS_PER_SECOND;

/// Returns whether the target is calm: the last three responses and all of the last half second were quick, and few requests are
/// outstanding. The last condition finds a busy server among several that gets few requests.
fn calm(blocks: &[BlockCounts], within: f64) -> bool {
    if is_missed(&blocks[blocks.len().saturating_sub(PATIENCE)..], within) {
        return false;
    }
    let mut answers = 0.0;
    for (at, block) in blocks.iter().rev().enumerate() {
        if block.errors > 0 || block.slowest > within {
            return false;
        }
        answers += f64::from(block.good);
        // Between two responses of a slow server there may be three of the others.
        if answers >= 3.0 && at + 1 >= BLOCKS_PER_CHUNK {
            return true;
        }
    }
    false
}

fn is_missed(blocks: &[BlockCounts], within: f64) -> bool {
    // Responses of a busy server are not a measure of the usual requests in flight.
    let took = blocks.iter().map(|block| block.slowest.min(within)).fold(0.0, f64::max);
    let sent = sum(blocks, |block| block.sent);
    let rate = sent / (blocks.len().max(1) as f64 * BLOCK_SECONDS);
    // With even spacing, the requests in flight are those sent during one response time, plus the one just sent.
    sent - sum(blocks, BlockCounts::ended_count) > rate * took + 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a block with these counts and this slowest response.
    fn block(sent: u32, good: u32, slowest: f64) -> BlockCounts {
        BlockCounts { sent, good, slowest, ..BlockCounts::default() }
    }

    /// Regression: one of five servers was still busy for four seconds, but the other four responded at once.
    #[test]
    fn a_target_is_not_itself_again_while_one_answer_is_missing_that_was_due() {
        let each_third = [block(1, 1, 0.05), block(0, 0, 0.0), block(0, 0, 0.0)];
        let quick = each_third.repeat(4);
        let sent = |times| vec![block(1, 0, 0.0); times];
        assert!(calm(&quick, 1.0));
        assert!(!calm(&[&sent(2)[..], &quick].concat(), 1.0));
        assert!(calm(&[&quick[..], &sent(1)].concat(), 1.0), "just sent");
    }

    #[test]
    fn nor_while_one_server_answers_after_seconds_between_others_that_answer_at_once() {
        // The rate is 15/s, and every fifth response takes 3 s.
        let of_one = |at: usize| match at % 5 {
            2 => block(1, u32::from(at >= 45), if at >= 45 { 3.0 } else { 0.0 }),
            _ => block(1, 1, 0.05),
        };
        let blocks: Vec<_> = (0..PATIENCE + 60).map(of_one).collect();
        for end in 60..blocks.len() {
            assert!(!calm(&blocks[..end], 0.15), "{end}");
        }
    }

    #[test]
    fn an_answer_that_never_comes_is_not_waited_for_unless_those_after_it_do_not_come_either() {
        let quick = vec![block(1, 1, 0.05); PATIENCE];
        assert!(calm(&[&[block(1, 0, 0.0)][..], &quick].concat(), 1.0));
        let fifth =
            [block(1, 1, 0.05), block(1, 1, 0.05), block(1, 0, 0.0), block(1, 1, 0.05), block(1, 1, 0.05)];
        assert!(!calm(&fifth.repeat(PATIENCE), 1.0), "one of five servers has a line of ten seconds");
    }
}
