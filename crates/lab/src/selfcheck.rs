//! Judges the generator by the figures of a trial.
//!
//! These reasons never count against the target. [`seawall_probe`] judges the machine (CPU, throttling, ports), and
//! [`crate::trial_judgement`] joins both.
//!
//! The thresholds for the send lag are those of Treadmill and Lancet: a p99 above one millisecond, or above 5 % of the median
//! response time, distorts the measured tail.

use std::time::Duration;

use seawall_load::clock::{Nanos, SECOND, nanos};
use seawall_load::interval::IntervalStats;
use seawall_load::plan::DEFAULT_LATE_SEND_TIME_AFTER_END;
use seawall_load::request_failure_reason::{OutcomeClass, RequestFault};
use seawall_load::run_outcome::RunOutcome;
use seawall_load::stats::{LatencyHistogram, LoadStats};

use crate::generator_verdict::{GeneratorVerdict, VerdictReason};

/// The least lag that can matter.
const LEAST_LAG: Nanos = SECOND / 1000;

/// Returns the reasons in the run's own figures against the generator.
#[must_use]
pub fn reasons_against_run(outcome: &RunOutcome) -> Vec<VerdictReason> {
    [send_lag(outcome), not_sent(outcome), output_blocked(outcome), records_dropped(outcome)]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns the reasons against the generator in a part of a run, in words. `threads` is the number of sending threads.
#[must_use]
pub fn reasons_against_interval(stretch: &IntervalStats, threads: usize) -> Vec<String> {
    let IntervalStats { from, to, stats } = stretch;
    let all = to.saturating_sub(*from).saturating_mul(threads as u64);
    let stood = stats.output_blocked_time > all / 100;
    let stood = stood.then(|| {
        let stalled = Duration::from_nanos(stats.output_blocked_time);
        format!("sending threads waited {stalled:.2?} for a slow reader of the results; the limit is 1 % of the time")
    });
    lagged(stats).into_iter().chain(stood).collect()
}

/// Returns the lag above which the measured times are distorted. Only good responses count, because a timed-out request takes as
/// long as its timeout.
fn bound(good: &LatencyHistogram) -> Nanos {
    LEAST_LAG.max(good.quantile(0.5) / 20)
}

fn send_lag(outcome: &RunOutcome) -> Option<VerdictReason> {
    lagged(&outcome.total_stats)
        .map(|measured| VerdictReason::new("send-lag", GeneratorVerdict::Degraded, measured))
}

/// Returns a description of the send lag if it matters.
fn lagged(stats: &LoadStats) -> Option<String> {
    // With fewer requests, the 99th percentile is the largest lag, so one late request would count for all.
    let (share, name) = if stats.generator_lag.count() < 100 { (0.5, "median") } else { (0.99, "p99") };
    let own = stats.generator_lag.quantile(share);
    let bound = bound(&stats.times_of_class(OutcomeClass::Good).response_time);
    (own > bound).then(|| {
        let [own, bound] = [own, bound].map(Duration::from_nanos);
        format!("the generator's {name} send lag is {own:.2?}; the limit is {bound:.2?}")
    })
}

/// Returns the requests that were due and not sent, if they are more than 1 %. Requests that were dropped for lack of room or
/// time count, too.
fn missed(outcome: &RunOutcome) -> Option<u64> {
    let given_up = [RequestFault::Dropped, RequestFault::DeadlineBeforeSend]
        .map(|fault| outcome.total_stats.fault_count(fault));
    let unsent = outcome.unsent_at_end().saturating_sub(cut_off(outcome));
    let missed = unsent.saturating_add(given_up.iter().sum());
    outcome.scheduled_count.filter(|scheduled| missed > scheduled / 100).map(|_| missed)
}

/// Returns the requests that were due within the grace period before an early stop. At the regular end of its schedule, the
/// generator would have sent them. In half a second, two requests are more than 1 %.
fn cut_off(outcome: &RunOutcome) -> u64 {
    let (Some(_), Some(scheduled)) = (outcome.stop_reason, outcome.scheduled_count) else { return 0 };
    let share = u128::from(nanos(DEFAULT_LATE_SEND_TIME_AFTER_END).min(outcome.counted_duration))
        * u128::from(scheduled);
    let hits = share.div_ceil(u128::from(outcome.counted_duration.max(1)));
    u64::try_from(hits).unwrap_or(u64::MAX)
}

/// Returns true if more than 1 % of the due requests were not sent. The findings about the machine say whether this machine was
/// the cause.
#[must_use]
pub fn has_missed_sends(outcome: &RunOutcome) -> bool {
    missed(outcome).is_some()
}

/// Returns the reason if requests were not sent although the limit in flight left room, or if the generator was late for its own
/// clock. A late generator also reaches the limit in flight, because it reads responses late.
fn not_sent(outcome: &RunOutcome) -> Option<VerdictReason> {
    let scheduled = outcome.scheduled_count?;
    let missed = missed(outcome)?;
    // The response time is long if requests wait for room.
    let bound = bound(&outcome.total_stats.times_of_class(OutcomeClass::Good).service_time);
    let late = outcome.total_stats.scheduler_lag.quantile(0.5);
    let was_late = late > bound;
    let had_room = outcome.total_stats.saturated_time
        <= (outcome.counted_duration / 100).saturating_mul(outcome.threads as u64);
    let unsent = outcome.unsent_at_end().saturating_sub(cut_off(outcome)) > scheduled / 100 && had_room;
    (was_late || unsent).then(|| {
        let [late, bound] = [late, bound].map(Duration::from_nanos);
        let clock =
            format!("; the median delay of the sending threads is {late:.2?}, and its limit is {bound:.2?}");
        let clock = if was_late { clock } else { String::new() };
        let measured =
            format!("{missed} of {scheduled} requests were not sent in time; the limit is 1 %{clock}");
        VerdictReason::new("not-sent", GeneratorVerdict::GeneratorLimited, measured)
    })
}

fn output_blocked(outcome: &RunOutcome) -> Option<VerdictReason> {
    let stalled = outcome.total_stats.output_blocked_time;
    let all = outcome.counted_duration.saturating_mul(outcome.threads as u64);
    (stalled > all / 100).then(|| {
        let measured = format!(
            "sending threads waited {stalled} ns for a slow reader of the results; the limit is 1 % of the run"
        );
        VerdictReason::new("results", GeneratorVerdict::GeneratorLimited, measured)
    })
}

fn records_dropped(outcome: &RunOutcome) -> Option<VerdictReason> {
    let lost = outcome.total_stats.records_dropped;
    (lost > 0).then(|| {
        VerdictReason::new(
            "results",
            GeneratorVerdict::Degraded,
            format!("{lost} results were dropped because the reader of the results was slow"),
        )
    })
}

#[cfg(test)]
mod tests {
    use seawall_load::control::RunStopReason;
    use seawall_load::stats::FinishedRequest;

    use super::*;
    use crate::generator_verdict::worst;

    fn outcome(total: LoadStats) -> RunOutcome {
        RunOutcome { scheduled_count: Some(1000), ..RunOutcome::from_stats(total, SECOND) }
    }

    fn checks(total: LoadStats) -> Vec<String> {
        reasons_against_run(&outcome(total)).iter().map(|reason| reason.check.to_string()).collect()
    }

    #[test]
    fn a_run_that_kept_up_has_nothing_against_it() {
        let mut total = LoadStats { sent: 1000, ..LoadStats::default() };
        total.generator_lag.record(900_000);
        assert_eq!(checks(total), [""; 0]);
    }

    #[test]
    fn a_burst_without_end_overflowed_the_share_of_hits_not_sent() {
        let endless = |saturated| RunOutcome {
            scheduled_count: Some(u64::MAX),
            ..outcome(LoadStats {
                sent: 1000,
                output_blocked_time: u64::MAX / 2,
                saturated_time: saturated,
                ..LoadStats::default()
            })
        };
        let verdicts = |saturated| {
            reasons_against_run(&endless(saturated))
                .iter()
                .map(|reason| reason.check.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(verdicts(0), ["not-sent", "results"]);
        assert_eq!(verdicts(SECOND / 2), ["results"]);
    }

    #[test]
    fn lag_counts_when_it_is_the_generators() {
        let mut total = LoadStats { sent: 1000, ..LoadStats::default() };
        total.send_lag.record(SECOND);
        assert_eq!(checks(total.clone()), [""; 0], "hits waited for room, which is the target's doing");
        total.generator_lag.record(2_000_000);
        assert_eq!(checks(total), ["send-lag"]);
    }

    #[test]
    fn one_late_send_of_five_does_not_speak_for_all() {
        let mut total = LoadStats { sent: 1000, ..LoadStats::default() };
        (0..4).for_each(|_| total.generator_lag.record(1_000));
        total.generator_lag.record(SECOND);
        assert_eq!(checks(total.clone()), [""; 0]);
        (0..5).for_each(|_| total.generator_lag.record(SECOND));
        assert_eq!(checks(total), ["send-lag"], "most are late");
    }

    /// Regression: a generator limited to 50m of CPU sent a third of the requests, and 1 % of the time at the limit in flight
    /// excused that.
    #[test]
    fn a_bound_in_flight_excuses_no_generator_that_was_late_for_its_own_clock() {
        let missed = |scheduler_lag: Nanos, dropped: u64| {
            let mut total = LoadStats { sent: 300, saturated_time: SECOND * 9 / 10, ..LoadStats::default() };
            (0..10).for_each(|_| total.scheduler_lag.record(scheduler_lag));
            total.failures[RequestFault::Dropped.kind_index()] = dropped;
            checks(total)
        };
        for dropped in [0, 700] {
            assert_eq!(missed(SECOND / 20, dropped), ["not-sent"]);
            assert_eq!(missed(100_000, dropped), [""; 0], "the target's doing");
        }
    }

    #[test]
    fn requests_that_were_given_up_made_any_lag_seem_little() {
        let mut total = LoadStats { sent: 1000, ..LoadStats::default() };
        total.generator_lag.record(SECOND);
        let timeout = FinishedRequest {
            target_index: 0,
            outcome: Err(RequestFault::Timeout),
            due: 0,
            sent_at: Some(0),
            first_response_byte_at: None,
            end: 30 * SECOND,
            bytes_in: 0,
            bytes_out: 0,
        };
        (0..1000).for_each(|_| total.record_finished(&timeout));
        assert_eq!(checks(total), ["send-lag"]);
    }

    #[test]
    fn a_run_that_was_ended_is_not_blamed_for_what_it_would_have_sent_a_moment_later() {
        let ended = |sent, early| {
            let total = LoadStats { sent, ..LoadStats::default() };
            let outcome = RunOutcome {
                scheduled_count: Some(160),
                stop_reason: early,
                ..RunOutcome::from_stats(total, SECOND / 2)
            };
            worst(&reasons_against_run(&outcome))
        };
        let early = Some(RunStopReason::Commanded);
        assert_eq!(ended(158, early), GeneratorVerdict::Valid);
        assert_eq!(ended(158, None), GeneratorVerdict::GeneratorLimited, "it had its grace");
        assert_eq!(
            ended(100, early),
            GeneratorVerdict::GeneratorLimited,
            "of half a second, a fifth is a tenth of a second"
        );
    }

    #[test]
    fn hits_not_sent_are_the_generators_fault_unless_the_bound_was_reached() {
        let total = LoadStats { sent: 900, ..LoadStats::default() };
        assert_eq!(worst(&reasons_against_run(&outcome(total.clone()))), GeneratorVerdict::GeneratorLimited);
        assert_eq!(checks(LoadStats { saturated_time: SECOND / 2, ..total }), [""; 0]);
    }
}
