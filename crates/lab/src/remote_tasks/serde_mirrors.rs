//! Serialised forms of types from crates without serde (<https://serde.rs/remote-derive.html>).

use std::time::Duration;

use seawall_cause::experiment::{self, Experiment, Variation};
use seawall_cause::observed_requests::{ObservedOutcome, ObservedRequest, RequestConnection};
use seawall_isolate::segment::{Segment, VariantOrder};
use seawall_search::goal::{LatencyGoal, SearchGoal};
use seawall_search::observation::BlockCounts;
use seawall_search::trial_spec::{StopRule, TrialPurpose, TrialSpec};
use seawall_search::trial_verdict::TrialCriteria;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(remote = "TrialPurpose", rename_all = "kebab-case")]
enum PurposeMirror {
    Baseline,
    Ramp,
    BurstDrain,
    NarrowBracket,
    Confirm,
    RepeatAfterIdle,
    RecoveryProbe,
    RepeatNow,
    AboveBracketAfterIdle,
    LatencyBreakingRate,
    Recovery,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "LatencyGoal", deny_unknown_fields)]
struct LatenessMirror {
    max_late_share: f64,
    latency_limit: Duration,
}

#[derive(Serialize, Deserialize)]
struct Late(#[serde(with = "LatenessMirror")] LatencyGoal);

#[derive(Serialize, Deserialize)]
#[serde(remote = "SearchGoal", deny_unknown_fields)]
struct GoalMirror {
    max_error_share: f64,
    #[serde(with = "late")]
    #[serde(rename = "late")]
    latency_goal: Option<LatencyGoal>,
}

mod late {
    use super::{Deserialize, Deserializer, Late, LatencyGoal, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(late: &Option<LatencyGoal>, to: S) -> Result<S::Ok, S::Error> {
        late.map(Late).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<LatencyGoal>, D::Error> {
        Ok(Option::<Late>::deserialize(from)?.map(|late| late.0))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "TrialCriteria", deny_unknown_fields)]
struct StandardMirror {
    #[serde(with = "GoalMirror")]
    goal: SearchGoal,
    #[serde(with = "number")]
    growth_tolerance: f64,
    settle: f64,
    #[serde(rename = "min_seconds")]
    min_settled_seconds_for_good: f64,
    #[serde(with = "number")]
    service_time: f64,
    #[serde(with = "number")]
    baseline_slowest: f64,
}

/// Serialises a number that may be infinite. JSON has no such number, so `null` stands for infinity.
mod number {
    use super::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(super) fn serialize<S: Serializer>(number: &f64, to: S) -> Result<S::Ok, S::Error> {
        Some(*number).filter(|number| number.is_finite()).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::INFINITY))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "StopRule", rename_all = "kebab-case")]
enum RuleMirror {
    FullDurationUnlessBad(#[serde(with = "StandardMirror")] TrialCriteria),
    Decided(#[serde(with = "StandardMirror")] TrialCriteria),
    FailingShare(#[serde(with = "number")] f64),
    FastResponses(#[serde(with = "number")] f64),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "TrialSpec", deny_unknown_fields)]
pub(super) struct TrialSpecMirror {
    #[serde(with = "PurposeMirror")]
    purpose: TrialPurpose,
    rate: f64,
    min_duration: Duration,
    max_duration: Duration,
    #[serde(with = "RuleMirror")]
    rule: StopRule,
    #[serde(with = "number")]
    #[serde(rename = "most_in_flight")]
    in_flight_cap: f64,
    drain: Duration,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "experiment::RequestSpacing", rename_all = "kebab-case")]
enum SpacingMirror {
    Constant,
    Poisson,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "experiment::ExperimentLoad", rename_all = "kebab-case", deny_unknown_fields)]
enum LoadMirror {
    Rate {
        rate: f64,
        lasts: Duration,
        #[serde(with = "SpacingMirror")]
        spacing: experiment::RequestSpacing,
    },
    Clients {
        clients: usize,
        lasts: Duration,
        requests: u64,
    },
    Bursts {
        size: u64,
        times: u64,
        every: Duration,
        quiet: Duration,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Variation", deny_unknown_fields)]
struct VariationMirror {
    keep_alive: Option<bool>,
    #[serde(rename = "connections")]
    max_connections: Option<usize>,
    held_idle_connections: usize,
    uses_head_method: bool,
    #[serde(rename = "another_source")]
    uses_another_source: bool,
    skip_dns: bool,
    timeout: Option<Duration>,
}

/// An experiment without its name, which is only for readers of a report.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Experiment", deny_unknown_fields)]
pub(super) struct ExperimentMirror {
    #[serde(skip)]
    name: &'static str,
    #[serde(with = "LoadMirror")]
    load: experiment::ExperimentLoad,
    #[serde(with = "VariationMirror")]
    variation: Variation,
    #[serde(rename = "most_in_flight")]
    in_flight_cap: usize,
    drain: Duration,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "ObservedOutcome", rename_all = "kebab-case")]
enum HowMirror {
    Good,
    BadResponse(u16),
    TimedOut,
    UnansweredAtEnd,
    ConnectTimedOut,
    ConnectionRefused,
    Cut,
    NoPort,
    NameUnresolved,
    OtherFailureWithoutResponse,
}

/// A request as a short row of numbers: due, sent, lag, end, outcome, bytes, carrying connection.
#[derive(Serialize, Deserialize)]
pub(super) struct ObservedRequestRow(
    f64,
    Option<f64>,
    f64,
    f64,
    #[serde(with = "HowMirror")] ObservedOutcome,
    u64,
    Option<CarrierRow>,
);

/// A connection as a row: number, earlier requests, idle time, connect, TLS, first byte.
#[derive(Serialize, Deserialize)]
struct CarrierRow(u64, u64, f64, f64, Option<f64>, Option<f64>);

impl From<&ObservedRequest> for ObservedRequestRow {
    fn from(hit: &ObservedRequest) -> Self {
        let ObservedRequest {
            due,
            sent,
            generator_lag: lag,
            end,
            outcome: how,
            bytes,
            carrying_connection: carrier,
        } = *hit;
        let row = |one: RequestConnection| {
            let RequestConnection {
                number,
                earlier_requests_on_connection: before,
                idle,
                connect,
                tls_handshake_seconds: tls,
                first_byte,
            } = one;
            CarrierRow(number, before, idle, connect, tls, first_byte)
        };
        Self(due, sent, lag, end, how, bytes, carrier.map(row))
    }
}

impl From<ObservedRequestRow> for ObservedRequest {
    fn from(row: ObservedRequestRow) -> Self {
        let ObservedRequestRow(due, sent, lag, end, how, bytes, carrier) = row;
        let carrier =
            carrier.map(|CarrierRow(number, before, idle, connect, tls, first_byte)| RequestConnection {
                number,
                earlier_requests_on_connection: before,
                idle,
                connect,
                tls_handshake_seconds: tls,
                first_byte,
            });
        Self { due, sent, generator_lag: lag, end, outcome: how, bytes, carrying_connection: carrier }
    }
}

/// A block as a row of numbers: sent, good, errors, timely, late, in flight, latency, slowest.
#[derive(Serialize, Deserialize)]
pub(super) struct BlockRow(u32, u32, u32, u32, u32, u32, f64, f64);

impl From<&BlockCounts> for BlockRow {
    fn from(block: &BlockCounts) -> Self {
        let BlockCounts { sent, good, errors, timely, late, in_flight, latency_sum: latency, slowest } =
            *block;
        Self(sent, good, errors, timely, late, in_flight, latency, slowest)
    }
}

impl From<BlockRow> for BlockCounts {
    fn from(row: BlockRow) -> Self {
        let BlockRow(sent, good, errors, timely, late, in_flight, latency, slowest) = row;
        Self { sent, good, errors, timely, late, in_flight, latency_sum: latency, slowest }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "VariantOrder", rename_all = "kebab-case")]
pub(super) enum DesignMirror {
    Interleaved,
    #[serde(rename = "blocks")]
    OneVariantPerBlock,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Segment", deny_unknown_fields)]
pub(super) struct SegmentMirror {
    #[serde(with = "DesignMirror")]
    design: VariantOrder,
    members: Vec<usize>,
    cell_count: usize,
    measured_time_per_variant: Duration,
    settle: Duration,
    idle_before_settle: Duration,
    seed: u64,
}
