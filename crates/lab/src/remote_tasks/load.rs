//! The result of a finished load.

use std::borrow::Cow;

use seawall_load::clock::Nanos;
use seawall_load::control::RunStopReason;
use seawall_load::interval::{CompactInterval, IntervalStats};
use seawall_probe::{FindingGrade, MachineFinding};
use serde::{Deserialize, Serialize, Serializer};

use crate::generator_verdict::VerdictReason;
use crate::running_trial::TrialResult;

/// The result of one generator's part of a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadPartResult {
    /// All figures at full resolution, from the start until the last response.
    #[serde(serialize_with = "whole")]
    pub total: IntervalStats,
    /// The requests that the schedule made due for its shard; none in a closed loop.
    pub scheduled: Option<u64>,
    /// The time during which requests counted.
    pub scheduled_for: Nanos,
    /// The time from the start to the last response.
    pub elapsed: Nanos,
    /// The number of sending threads.
    pub threads: usize,
    /// The reason why the load ended before its schedule, if it did.
    pub early: Option<RunStopReason>,
    /// The findings against this generator.
    pub findings: Vec<VerdictReason>,
    /// All checks of its machine, including the passed ones.
    pub machine: Vec<MachineCheckResult>,
    /// The number of records that the generator wrote.
    pub records: u64,
    /// The errors of writing or reading, in words.
    pub mistakes: Vec<String>,
}

/// A check of a machine, from a [`MachineFinding`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineCheckResult {
    /// The stable name of the check.
    pub id: Cow<'static, str>,
    /// The result of the check, such as `ok`.
    pub status: Cow<'static, str>,
    /// A sentence with the numbers.
    pub text: String,
}

impl From<&MachineFinding> for MachineCheckResult {
    fn from(finding: &MachineFinding) -> Self {
        let status = match finding.grade {
            FindingGrade::Ok => "ok",
            FindingGrade::Info => "info",
            FindingGrade::Unknown => "unknown",
            FindingGrade::Degraded => "degraded",
            FindingGrade::Invalid => "invalid",
        };
        Self { id: finding.id.into(), status: status.into(), text: finding.text.clone() }
    }
}

impl From<TrialResult> for LoadPartResult {
    fn from(carried: TrialResult) -> Self {
        let TrialResult { outcome, judgement, .. } = carried;
        let (records, unwritten) = match outcome.records_written {
            Ok(records) => (records, None),
            Err(error) => (0, Some(format!("cannot write the results: {error}"))),
        };
        let unread = outcome.input_error.map(|mistake| mistake.to_string());
        Self {
            total: IntervalStats { from: 0, to: outcome.elapsed_after_warm_up, stats: outcome.total_stats },
            scheduled: outcome.scheduled_count,
            scheduled_for: outcome.counted_duration,
            elapsed: outcome.elapsed_after_warm_up,
            threads: outcome.threads,
            early: outcome.stop_reason,
            findings: judgement.reasons,
            machine: judgement.machine_findings.iter().map(MachineCheckResult::from).collect(),
            records,
            mistakes: unwritten.into_iter().chain(unread).collect(),
        }
    }
}

fn whole<S: Serializer>(total: &IntervalStats, serializer: S) -> Result<S::Ok, S::Error> {
    CompactInterval::exact(total).serialize(serializer)
}
