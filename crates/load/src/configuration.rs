//! What a run was asked to do, for whoever reads its results later: the plan without what it sends.
//!
//! Says nothing of headers, bodies and URLs, in which secrets may stand. Times are in nanoseconds; what has no bound is
//! `null`.

use serde::Serialize;

use crate::clock::{Nanos, nanos};
use crate::engine::{RunPlan, TransportOptions};
use crate::schedule::{ArrivalModel, ArrivalSpacing, ProfileStage, RateShape};
use crate::shard::SaturationPolicy;
use crate::supply::RequestSource;

/// The version of what is written as JSON about a run: the summary, and the lines of intervals. A field that changes its
/// meaning or goes makes the next one; new fields do not.
pub const SCHEMA: u32 = 1;

/// A plan, as data.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunConfig {
    /// Name of the attack.
    pub name: String,
    /// How many targets there are; none where they are read during the run.
    pub targets: Option<usize>,
    /// The rate over time; none in a closed loop.
    pub stages: Option<Vec<StageConfig>>,
    /// How hits are spread over the rate: `even`, or one such as `poisson seed 7` or `burst of 10`.
    pub spacing: Option<String>,
    /// The part of the hits that this generator sends, such as `2/3`.
    pub slice: String,
    /// After which no more is sent.
    pub duration: Option<Nanos>,
    /// After how many hits of all slices no more is sent.
    pub requests: Option<u64>,
    /// The beginning that is not counted.
    pub warm_up: Nanos,
    /// Most requests in flight, and clients of a closed loop.
    pub in_flight: usize,
    /// What happens to a hit that finds no room: `queue` or `drop`.
    pub when_busy: &'static str,
    /// Threads that send, at most.
    pub threads: usize,
    /// Waits shorter than this are spun away.
    pub spin: Nanos,
    /// How long an interval is.
    pub cadence: Nanos,
    /// How requests travel.
    pub travel: ReportedTransport,
}

/// One stretch of the rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageConfig {
    /// In the words of `--profile`, without its length.
    pub shape: String,
    /// How long it lasts.
    pub length: Option<Nanos>,
}

/// The part of a [`TransportOptions`] that changes figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReportedTransport {
    /// For a whole answer, from the send.
    pub timeout: Option<Nanos>,
    /// For a whole answer, from the intended instant.
    pub deadline: Option<Nanos>,
    /// Redirects followed.
    pub redirects: Option<u32>,
    /// What a server lost by closing an idle connection is sent again.
    pub retries: bool,
    /// Connections are used again.
    pub keep_alive: bool,
    /// Most connections per origin.
    pub connections: Option<usize>,
    /// Requests after which a connection is closed.
    pub requests_per_connection: Option<u64>,
    /// Age after which a connection carries no more.
    pub connection_age: Option<Nanos>,
    /// HTTP/2 may come out of a TLS handshake.
    pub http2: bool,
    /// HTTP/2 is spoken without TLS.
    pub h2c: bool,
}

impl RunConfig {
    /// Of a plan, before it runs.
    #[must_use]
    pub fn of(plan: &RunPlan) -> Self {
        let (stages, spacing) = match &plan.load.arrivals {
            ArrivalModel::Closed => (None, None),
            ArrivalModel::Open(schedule) => (
                Some(schedule.stages().map(|stage| told(&stage)).collect()),
                Some(spelled(schedule.spacing())),
            ),
        };
        Self {
            name: plan.load.name.clone(),
            targets: match &plan.setup.source {
                RequestSource::List(list) => Some(list.requests().len()),
                RequestSource::Lazy(_) => None,
            },
            stages,
            spacing,
            slice: plan.load.slice.to_string(),
            duration: bound(plan.load.until.time),
            requests: bound(plan.load.until.hits),
            warm_up: nanos(plan.load.warm_up),
            in_flight: plan.load.in_flight.limit,
            when_busy: match plan.load.in_flight.when_busy {
                SaturationPolicy::Queue => "queue",
                SaturationPolicy::Drop => "drop",
            },
            threads: plan.setup.threads,
            spin: nanos(plan.setup.spin),
            cadence: nanos(plan.load.interval),
            travel: ReportedTransport::of(&plan.setup.transport),
        }
    }
}

impl ReportedTransport {
    fn of(travel: &TransportOptions) -> Self {
        Self {
            timeout: travel.timeout.map(nanos),
            deadline: travel.deadline.map(nanos),
            redirects: travel.redirects,
            retries: travel.retries,
            keep_alive: travel.keep_alive,
            connections: Some(travel.connections).filter(|&most| most != usize::MAX),
            requests_per_connection: bound(travel.requests_per_connection),
            connection_age: travel.connection_age.map(nanos),
            http2: travel.http2.over_tls,
            h2c: travel.http2.clear,
        }
    }
}

/// The largest number stands for none.
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
    StageConfig { shape, length: stage.length }
}

fn spelled(spacing: ArrivalSpacing) -> String {
    match spacing {
        ArrivalSpacing::Even => "even".to_owned(),
        ArrivalSpacing::Poisson(seed) => format!("poisson seed {seed}"),
        ArrivalSpacing::Burst(size) => format!("burst of {size}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;
    use crate::request::{PreparedRequest, RequestFraming};
    use crate::schedule::Schedule;
    use crate::supply::RequestList;
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
            { "shape": "hold 50/s", "length": SECOND },
            { "shape": "ramp 50/s to 100/s", "length": 2 * SECOND },
        ]);
        assert_eq!(told["stages"], expected);
        assert_eq!((&told["spacing"], &told["slice"]), (&"poisson seed 7".into(), &"1/1".into()));
        assert_eq!((&told["targets"], &told["requests"]), (&1.into(), &serde_json::Value::Null));
    }
}
