//! The observation of a trial, in blocks of a fifteenth of a second. It is the only input of a search.

use std::time::Duration;

/// The length of a [`BlockCounts`], in seconds. Three blocks are two periods of a CPU quota (100 ms), at three different phases. So the
/// mean requests in flight over three blocks does not depend on the phase.
pub const BLOCK_SECONDS: f64 = 1.0 / 15.0;

/// The number of blocks in half a second, over which counts are compared because neighbouring blocks are correlated.
pub const BLOCKS_PER_CHUNK: usize = 8;

/// The number of blocks per second.
pub const BLOCKS_PER_SECOND: usize = 15;

/// The counts of one fifteenth of a second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BlockCounts {
    /// The sent requests.
    pub sent: u32,
    /// The good responses.
    pub good: u32,
    /// The requests that ended without a good response.
    pub errors: u32,
    /// The requests that became known as timely in this block: their good response came within the goal's time.
    pub timely: u32,
    /// The requests that became known as late in this block: the goal's time passed, or they ended without a good response.
    pub late: u32,
    /// The requests in flight at the end of the block.
    pub in_flight: u32,
    /// The sum of the response times of good responses, in seconds.
    pub latency_sum: f64,
    /// The longest of these response times, in seconds.
    pub slowest: f64,
}

impl BlockCounts {
    /// Returns the requests that ended.
    #[must_use]
    pub fn ended_count(&self) -> u32 {
        self.good + self.errors
    }
}

/// The observation of one trial.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrialObservation {
    /// The blocks from the first send on, without gaps. An incomplete last block is missing.
    pub blocks: Vec<BlockCounts>,
    /// The duration, including the wait for outstanding requests.
    pub took: Duration,
    /// The fault of the generator that makes the observation invalid.
    pub invalid_reason: Option<String>,
    /// The delay of this machine as a text, if it was large but the verdict does not depend on it. The blocks then count requests from
    /// their real send, and the trial has less weight, because the delay changes how far the requests in flight grow.
    pub generator_delay_description: Option<String>,
    /// The requests without a free local port. If the trial is invalid, these are the reason.
    pub requests_without_port: u64,
    /// True if the target was down at the end: all connections of the last 0.3 s or more were refused or closed without a response. The
    /// search also sets it if a target that once responded now gives only errors.
    pub target_is_down: bool,
    /// True if the user interrupted the trial.
    pub interrupted: bool,
    /// Details for the reader of the report, which do not affect the verdict.
    pub details: TrialDetails,
}

/// The details of a trial beyond its blocks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrialDetails {
    /// The most frequent failure as a text, with its share of all failures.
    pub most_frequent_failure: Option<(String, f64)>,
    /// The median and the 99th percentile of the good response times, in seconds.
    pub median_and_p99: Option<[f64; 2]>,
}

/// Sums a count over blocks.
#[must_use]
pub fn sum(blocks: &[BlockCounts], of: impl Fn(&BlockCounts) -> u32) -> f64 {
    blocks.iter().map(|block| f64::from(of(block))).sum()
}

/// Returns the mean response time of good responses, in seconds; none without good responses.
#[must_use]
pub fn mean_latency(blocks: &[BlockCounts]) -> Option<f64> {
    let good = sum(blocks, |block| block.good);
    (good > 0.0).then(|| blocks.iter().map(|block| block.latency_sum).sum::<f64>() / good)
}
