//! `-type=hist[0,1ms,10ms]` and `-buckets`: exact counts between bounds that the user names.

use std::fmt::Write;
use std::str::FromStr;

use anyhow::Context as _;

use seawall_load::latency_distribution::Distribution;

use crate::go_format::{GoDuration, align_columns};

/// Lower bounds; the last bucket is open.
#[derive(Debug, Clone)]
pub(crate) struct BucketBounds(Vec<GoDuration>);

impl FromStr for BucketBounds {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let expected = "expected lower bounds in brackets, such as [0,1ms,10ms]";
        let inner = inner.with_context(|| format!("bad buckets {text:?}: {expected}"))?;
        let bounds = inner.split(',').map(|bound| bound.trim().parse());
        let mut bounds = bounds.collect::<anyhow::Result<Vec<GoDuration>>>()?;
        // Everything below the first bound needs a bucket too.
        if bounds.first().is_some_and(|first| first.0 > 0) {
            bounds.insert(0, GoDuration(0));
        }
        Ok(Self(bounds))
    }
}

/// Counts per bucket.
#[derive(Debug, Clone)]
pub(crate) struct BucketCounts {
    bounds: Vec<GoDuration>,
    counts: Vec<u64>,
    total: u64,
}

impl BucketCounts {
    /// Nothing counted yet.
    pub(crate) fn new(buckets: BucketBounds) -> Self {
        let counts = vec![0; buckets.0.len()];
        Self { bounds: buckets.0, counts, total: 0 }
    }

    /// Counts a latency where `lower <= latency < upper`; what fits nowhere is counted in the last bucket, as in vegeta.
    pub(crate) fn add_latency(&mut self, latency_ns: i64) {
        self.add_many(latency_ns, 1);
    }

    /// Counts a distribution. Each value is that of its quantile, which is at most 0.1 % above the true one.
    pub(crate) fn from_distribution(buckets: BucketBounds, times: &Distribution) -> Self {
        let mut histogram = Self::new(buckets);
        for (most, count) in times.buckets() {
            histogram.add_many(i64::try_from(most).unwrap_or(i64::MAX), count);
        }
        histogram
    }

    fn add_many(&mut self, latency_ns: i64, count: u64) {
        let fits = |bounds: &[GoDuration]| (bounds[0].0..bounds[1].0).contains(&latency_ns);
        let at = self.bounds.windows(2).position(fits).unwrap_or(self.bounds.len() - 1);
        self.counts[at] = self.counts[at].saturating_add(count);
        self.total = self.total.saturating_add(count);
    }

    /// The report: a row per bucket, with a bar of one mark for each 1/75 of all.
    pub(crate) fn render(&self) -> String {
        let mut rows = "Bucket\t\t#\t%\tHistogram\n".to_owned();
        for (at, count) in self.counts.iter().enumerate().filter(|_| self.total > 0) {
            let ratio = *count as f64 / self.total as f64;
            let upper = self.bounds.get(at + 1).map_or_else(|| "+Inf".to_owned(), GoDuration::to_string);
            let bar = "#".repeat((ratio * 75.0) as usize);
            // Formatting into memory cannot fail.
            let _ = writeln!(rows, "[{},\t{upper}]\t{count}\t{:.2}%\t{bar}", self.bounds[at], ratio * 100.0);
        }
        align_columns(&rows)
    }

    /// The `buckets` of a JSON report: counts by lower bound in nanoseconds.
    pub(super) fn to_json(&self) -> String {
        let bars =
            self.bounds.iter().zip(&self.counts).map(|(bound, count)| format!("\"{}\":{count}", bound.0));
        format!("{{{}}}", bars.collect::<Vec<_>>().join(","))
    }
}
