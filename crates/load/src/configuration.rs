//! The configuration of a run as data, without the requests. It is part of the documents of `attack`.
//!
//! Headers, bodies and URLs are left out, because they may contain secrets. Fields hold nanoseconds, and documents seconds. A
//! limit that is not set is `null`.

use serde::Serialize;

use crate::clock::{Nanos, nanos};
use crate::engine::{RunPlan, TransportOptions};
use crate::request_source::RequestSource;
use crate::schedule::{ArrivalModel, ArrivalSpacing, ProfileStage, RateShape};
use crate::sender::SaturationPolicy;

/// The version of the documents that `attack` writes: the summary and the time series. A new version is needed when a key changes
/// its meaning or is removed; a new key needs none.
pub const DOCUMENT_VERSION: u32 = 1;

/// The configuration of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunConfig {
    /// The name of the attack.
    pub name: String,
    /// The number of targets. `None` if they are read during the run.
    pub target_count: Option<usize>,
    /// The rate over time. `None` in a closed loop.
    pub stages: Option<Vec<StageConfig>>,
    /// The spacing of requests: `constant`, or for example `poisson seed 7` or `burst of 10`. `None` in a closed loop.
    pub arrivals: Option<String>,
    /// The part of the requests that this generator sends, such as `2/3`.
    pub shard: String,
    /// The time after which no more requests are sent.
    #[serde(rename = "duration_seconds", with = "crate::duration_json")]
    pub duration: Option<Nanos>,
    /// The number of requests of all shards after which no more requests are sent.
    pub requests: Option<u64>,
    /// The time at the start whose requests are not counted.
    #[serde(rename = "warm_up_seconds", with = "crate::duration_json")]
    pub warm_up: Nanos,
    /// The maximum number of requests in flight. In a closed loop: the number of clients.
    pub max_in_flight: usize,
    /// The treatment of a request that is due when the in-flight bound is reached: `queue` or `drop`.
    pub on_saturation: &'static str,
    /// The maximum number of sending threads.
    pub threads: usize,
    /// A thread busy-polls if it waits for less than this time.
    #[serde(rename = "busy_poll_seconds", with = "crate::duration_json")]
    pub busy_poll_max_wait: Nanos,
    /// The length of an interval.
    #[serde(rename = "interval_seconds", with = "crate::duration_json")]
    pub interval: Nanos,
    /// The transport of requests.
    pub transport: ReportedTransport,
}

/// One stage of the rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageConfig {
    /// The stage in the words of `--stages`, without its duration.
    pub shape: String,
    /// The duration of the stage. `None` if it has no end.
    #[serde(rename = "duration_seconds", with = "crate::duration_json")]
    pub duration: Option<Nanos>,
}

/// The settings of [`TransportOptions`] that change figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReportedTransport {
    /// The time limit for a complete response, counted from the send.
    #[serde(rename = "timeout_seconds", with = "crate::duration_json")]
    pub timeout: Option<Nanos>,
    /// The time limit for a complete response, counted from the intended instant.
    #[serde(rename = "deadline_seconds", with = "crate::duration_json")]
    pub deadline: Option<Nanos>,
    /// The maximum number of redirects that are followed.
    pub redirects: Option<u32>,
    /// True if a request is sent again after the server closed its idle connection.
    pub retries: bool,
    /// True if connections are reused.
    pub keep_alive: bool,
    /// The maximum number of connections per origin.
    pub connections: Option<usize>,
    /// The number of requests after which a connection is closed.
    pub requests_per_connection: Option<u64>,
    /// The age after which a connection carries no more requests.
    #[serde(rename = "max_connection_age_seconds", with = "crate::duration_json")]
    pub max_connection_age: Option<Nanos>,
    /// True if a TLS handshake may choose HTTP/2.
    pub http2: bool,
    /// True if HTTP/2 is used without TLS.
    pub h2c: bool,
}

impl RunConfig {
    /// Returns the configuration of a plan.
    #[must_use]
    pub fn of(plan: &RunPlan) -> Self {
        let (stages, arrivals) = match &plan.load.arrivals {
            ArrivalModel::Closed => (None, None),
            ArrivalModel::Open(schedule) => (
                Some(schedule.stages().map(|stage| told(&stage)).collect()),
                Some(spelled(schedule.spacing())),
            ),
        };
        Self {
            name: plan.load.name.clone(),
            target_count: match &plan.session.source {
                RequestSource::List(list) => Some(list.requests().len()),
                RequestSource::Lazy(_) => None,
            },
            stages,
            arrivals,
            shard: plan.load.shard.to_string(),
            duration: bound(plan.load.stop_condition.stop_time),
            requests: bound(plan.load.stop_condition.max_requests),
            warm_up: nanos(plan.load.warm_up),
            max_in_flight: plan.load.in_flight_limit.limit,
            on_saturation: match plan.load.in_flight_limit.on_saturation {
                SaturationPolicy::Queue => "queue",
                SaturationPolicy::Drop => "drop",
            },
            threads: plan.session.max_threads,
            busy_poll_max_wait: nanos(plan.session.busy_poll_max_wait),
            interval: nanos(plan.load.interval),
            transport: ReportedTransport::of(&plan.session.transport),
        }
    }
}

impl ReportedTransport {
    fn of(travel: &TransportOptions) -> Self {
        Self {
            timeout: travel.timeout.map(nanos),
            deadline: travel.deadline.map(nanos),
            redirects: travel.max_redirects,
            retries: travel.retries_enabled,
            keep_alive: travel.keep_alive,
            connections: Some(travel.max_connections).filter(|&most| most != usize::MAX),
            requests_per_connection: bound(travel.max_requests_per_connection),
            max_connection_age: travel.max_connection_age.map(nanos),
            http2: travel.http2.over_tls,
            h2c: travel.http2.prior_knowledge,
        }
    }
}

/// Converts a limit; the maximum number means that there is no limit.
fn bound(most: u64) -> Option<u64> {
    Some(most).filter(|&most| most != u64::MAX)
}

fn told(stage: &ProfileStage) -> StageConfig {
    let shape = match &stage.shape {
        RateShape::Hold(rate) => format!("hold {rate}"),
        RateShape::Ramp { from, to } => format!("ramp {from}/s to {to}/s"),
        RateShape::Sine { mean, amplitude, period } => {
            format!("sine {mean}/s by {amplitude}/s every {period}ns")
        }
        RateShape::Replay(offsets) => format!("replay of {} offsets", offsets.len()),
    };
    StageConfig { shape, duration: stage.length }
}

fn spelled(spacing: ArrivalSpacing) -> String {
    match spacing {
        ArrivalSpacing::Constant => "constant".to_owned(),
        ArrivalSpacing::Poisson(seed) => format!("poisson seed {seed}"),
        ArrivalSpacing::Burst(size) => format!("burst of {size}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;
    use crate::request::{PreparedRequest, RequestFraming};
    use crate::request_source::RequestList;
    use crate::schedule::Schedule;
    use crate::target::{Target, Weight};

    #[test]
    fn a_plan_is_told_without_what_it_sends() {
        let secret = "hunter2";
        let target = Target {
            method: "GET".into(),
            url: format!("http://me:{secret}@host/?token={secret}"),
            headers: vec![("Authorization".into(), secret.into())],
            ..Target::default()
        };
        let request = PreparedRequest::new(&target, &RequestFraming::default()).unwrap();
        let source = RequestSource::List(RequestList::new(vec![(request, Weight::default())]).unwrap());
        let stages = vec![
            ProfileStage { shape: RateShape::Hold("50/s".parse().unwrap()), length: Some(SECOND) },
            ProfileStage { shape: RateShape::Ramp { from: 50.0, to: 100.0 }, length: Some(2 * SECOND) },
        ];
        let plan =
            RunPlan::new(source, ArrivalModel::Open(Schedule::new(stages, ArrivalSpacing::Poisson(7))));
        let told = serde_json::to_string(&RunConfig::of(&plan)).unwrap();
        assert!(!told.contains(secret), "{told}");
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        let expected = serde_json::json!([
            { "shape": "hold 50/s", "duration_seconds": 1 },
            { "shape": "ramp 50/s to 100/s", "duration_seconds": 2 },
        ]);
        assert_eq!(told["stages"], expected);
        assert_eq!((&told["arrivals"], &told["shard"]), (&"poisson seed 7".into(), &"1/1".into()));
        assert_eq!((&told["target_count"], &told["requests"]), (&1.into(), &serde_json::Value::Null));
    }
}
