//! The pods of a load, as a page holds them: a table, alarms, and a line for each pod if there are few.
//!
//! This module knows nothing of a run; the observer of the run fills it in.

use seawall_load::clock::Nanos;
use serde::Serialize;

use super::chart::ChartPoints;

/// The table of all pods. Of many pods, not all have rows.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodTable {
    /// The number of pods.
    pub(crate) count: usize,
    /// The current alarms, a sentence each.
    pub(crate) alarms: Vec<String>,
    /// The rows, those with problems first.
    pub(crate) rows: Vec<PodTableRow>,
    /// The times in which a share of the load is missing, in seconds on the axis of charts over time.
    pub(crate) gaps: Vec<(f64, f64)>,
    /// Completed requests per second by pod, for a chart.
    #[serde(skip)]
    pub(crate) completion_rates: Vec<(String, ChartPoints)>,
}

/// A pod; times in nanoseconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodTableRow {
    pub(crate) index: usize,
    pub(crate) name: String,
    /// `running`, `late`, `lost` or `finished`.
    pub(crate) state: &'static str,
    pub(crate) sent: u64,
    pub(crate) good: u64,
    /// The 99th percentile of the response times; `None` if no request ended.
    pub(crate) p99: Option<Nanos>,
    /// The 99th percentile of the lag of the generator.
    pub(crate) lag: Option<Nanos>,
    /// The largest number of requests in flight.
    pub(crate) in_flight: u64,
    /// The time by which the clock of the pod is ahead, and its largest error.
    pub(crate) clock: Option<(i64, Nanos)>,
    /// The delay of its start against the agreed start, and its largest error.
    pub(crate) began: Option<(i64, Nanos)>,
    /// The findings against the pod.
    pub(crate) against: String,
}
