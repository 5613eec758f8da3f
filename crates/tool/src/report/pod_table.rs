//! Pods that share a load, as a page holds them: a table, what is wrong, a line for each where they are few.
//!
//! Knows nothing of a run; whoever watches one fills this in.

use seawall_load::clock::Nanos;
use serde::Serialize;

use super::chart::ChartPoints;

/// All pods. Of many not all rows.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodTable {
    /// How many there are.
    pub(crate) count: usize,
    /// What is wrong now, a sentence each.
    pub(crate) alarms: Vec<String>,
    /// Those with problems first.
    pub(crate) rows: Vec<PodTableRow>,
    /// From where to where a share of the load is missing, in seconds on the axis of charts over time.
    pub(crate) gaps: Vec<(f64, f64)>,
    /// Requests that ended in a second, by pod; a chart has them.
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
    /// None where nothing came to an end.
    pub(crate) p99: Option<Nanos>,
    /// Of the generator itself, 99 %.
    pub(crate) lag: Option<Nanos>,
    /// At most.
    pub(crate) in_flight: u64,
    /// How far its clock is ahead, and how well that is known.
    pub(crate) clock: Option<(i64, Nanos)>,
    /// How much later than agreed on it began, and how well that is known.
    pub(crate) began: Option<(i64, Nanos)>,
    /// What speaks against it.
    pub(crate) against: String,
}
