//! What a run was asked to do, for whoever reads its results later: the plan without what it sends.
//!
//! Says nothing of headers, bodies and URLs, in which secrets may stand. Times are in nanoseconds; what has no bound is
//! `null`.

use serde::Serialize;

use crate::clock::{Nanos, nanos};
use crate::engine::{Plan, Travel};
use crate::schedule::{Arrivals, Shape, Spacing, Stage};
use crate::shard::WhenBusy;
use crate::supply::Source;

/// The version of what is written as JSON about a run: the summary, and the lines of intervals. A field that changes its
/// meaning or goes makes the next one; new fields do not.
pub const SCHEMA: u32 = 1;

/// A plan, as data.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Configuration {
    /// Name of the attack.
    pub name: String,
    /// How many targets there are; none where they are read during the run.
    pub targets: Option<usize>,
    /// The rate over time; none in a closed loop.
    pub stages: Option<Vec<Told>>,
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
    pub travel: Ways,
}

/// One stretch of the rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Told {
    /// In the words of `--profile`, without its length.
    pub shape: String,
    /// How long it lasts.
    pub length: Option<Nanos>,
}

/// The part of a [`Travel`] that changes figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ways {
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

impl Configuration {
    /// Of a plan, before it runs.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        let (stages, spacing) = match &plan.load.arrivals {
            Arrivals::Closed => (None, None),
            Arrivals::Open(schedule) => (
                Some(schedule.stages().map(|stage| told(&stage)).collect()),
                Some(spelled(schedule.spacing())),
            ),
        };
        Self {
            name: plan.load.name.clone(),
            targets: match &plan.setup.source {
                Source::List(list) => Some(list.requests().len()),
                Source::Lazy(_) => None,
            },
            stages,
            spacing,
            slice: plan.load.slice.to_string(),
            duration: bound(plan.load.until.after),
            requests: bound(plan.load.until.hits),
            warm_up: nanos(plan.load.warm_up),
            in_flight: plan.load.in_flight.most,
            when_busy: match plan.load.in_flight.when_busy {
                WhenBusy::Queue => "queue",
                WhenBusy::Drop => "drop",
            },
            threads: plan.setup.threads,
            spin: nanos(plan.setup.spin),
            cadence: nanos(plan.load.cadence),
            travel: Ways::of(&plan.setup.travel),
        }
    }
}

impl Ways {
    fn of(travel: &Travel) -> Self {
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

fn told(stage: &Stage) -> Told {
    let shape = match &stage.shape {
        Shape::Hold(rate) => format!("hold {rate}"),
        Shape::Ramp { from, to } => format!("ramp {from}/s to {to}/s"),
        Shape::Sine { mean, amplitude, period } => {
            format!("sine {mean}/s by {amplitude}/s every {period}ns")
        }
        Shape::Replay(offsets) => format!("replay of {} offsets", offsets.len()),
    };
    Told { shape, length: stage.length }
}

fn spelled(spacing: Spacing) -> String {
    match spacing {
        Spacing::Even => "even".to_owned(),
        Spacing::Poisson(seed) => format!("poisson seed {seed}"),
        Spacing::Burst(size) => format!("burst of {size}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;
    use crate::request::{Request, Style};
    use crate::schedule::Schedule;
    use crate::supply::List;
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
        let request = Request::new(&target, &Style::default()).unwrap();
        let source = Source::List(List::new(vec![(request, Weight::default())]).unwrap());
        let stages = vec![
            Stage { shape: Shape::Hold("50/s".parse().unwrap()), length: Some(SECOND) },
            Stage { shape: Shape::Ramp { from: 50.0, to: 100.0 }, length: Some(2 * SECOND) },
        ];
        let plan = Plan::new(source, Arrivals::Open(Schedule::new(stages, Spacing::Poisson(7))));
        let told = serde_json::to_string(&Configuration::of(&plan)).unwrap();
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
