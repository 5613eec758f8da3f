//! What was seen while an offer was carried out, in stretches of a fifteenth of a second: all that a search is told.

use std::time::Duration;

/// Length of a [`BlockCounts`], in seconds. Three of them are two periods of a CPU quota (100 ms), at three phases of it: what is in flight at
/// the end of each, averaged over three, is not a matter of the phase.
pub const BLOCK_SECONDS: f64 = 1.0 / 15.0;

/// Blocks over which counts are compared where neighbours are alike: half a second.
pub const BLOCKS_PER_CHUNK: usize = 8;

/// Blocks of a second.
pub const BLOCKS_PER_SECOND: usize = 15;

/// What happened in a fifteenth of a second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BlockCounts {
    /// Requests sent.
    pub sent: u32,
    /// Good answers.
    pub good: u32,
    /// Requests that ended without one.
    pub errors: u32,
    /// Requests of which it was known now that their good answer came within the goal's bound.
    pub timely: u32,
    /// Requests of which it was known now that it did not: the bound passed, or they ended without one.
    pub late: u32,
    /// Requests without an end when the block ended.
    pub in_flight: u32,
    /// Response times of the good answers, summed, in seconds.
    pub latency: f64,
    /// The longest of them.
    pub slowest: f64,
}

impl BlockCounts {
    /// Requests that ended.
    #[must_use]
    pub fn ended(&self) -> u32 {
        self.good + self.errors
    }
}

/// What was seen of one offer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrialObservation {
    /// From the first send on, without a gap; a last, shorter stretch is not in it.
    pub blocks: Vec<BlockCounts>,
    /// How long it took, with the wait for what was outstanding.
    pub took: Duration,
    /// Why nothing of it can be believed: the generator's fault, in words.
    pub invalid: Option<String>,
    /// Requests for which the generator had no free port: if nothing can be believed, that is why.
    pub no_port: u64,
    /// Nobody was there at its end: of what ended in its last 0.3 s and more, every connection was refused or closed without a word. The search
    /// adds where nothing but errors came of what was once answered.
    pub target_is_down: bool,
    /// Somebody wants the search to end.
    pub interrupted: bool,
    /// For whoever reads of it: no vote is made of that.
    pub details: TrialDetails,
}

/// What blocks do not hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrialDetails {
    /// The commonest way in which requests ended without a good answer, in words, and its share of those that did.
    pub failing: Option<(String, f64)>,
    /// Median and 99th hundredth of the good answers' response times, in seconds.
    pub quantiles: Option<[f64; 2]>,
}

/// Sums of blocks.
#[must_use]
pub fn sum(blocks: &[BlockCounts], of: impl Fn(&BlockCounts) -> u32) -> f64 {
    blocks.iter().map(|block| f64::from(of(block))).sum()
}

/// Mean response time of the good answers, in seconds; none without any.
#[must_use]
pub fn mean_latency(blocks: &[BlockCounts]) -> Option<f64> {
    let good = sum(blocks, |block| block.good);
    (good > 0.0).then(|| blocks.iter().map(|block| block.latency).sum::<f64>() / good)
}
