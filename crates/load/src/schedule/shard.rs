//! A share of one schedule: every n-th request, so that several generators send all requests and none twice.
//!
//! This module knows only numbers of requests. Threads divide a shard as shards divide the whole.

use std::fmt;
use std::num::NonZero;
use std::str::FromStr;

/// The requests whose number has the remainder `index` when divided by `of`. The default is the whole schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduleShard {
    index: u64,
    of: NonZero<u64>,
}

impl Default for ScheduleShard {
    fn default() -> Self {
        Self { index: 0, of: NonZero::<u64>::MIN }
    }
}

/// The maximum number of shards; it keeps request numbers far from overflow.
const MOST: u64 = 1 << 20;

/// A text that is not a shard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a shard: expected I/N, such as 2/3 for the second of three parts; N is at most {MOST}")]
pub struct ShardError(String);

impl ScheduleShard {
    /// Makes the shard with this index, from 0, of `of` shards.
    ///
    /// # Errors
    /// [`ShardError`] if there is no such shard.
    pub fn new(index: u64, of: u64) -> Result<Self, ShardError> {
        let shard = NonZero::new(of).filter(|of| index < of.get() && of.get() <= MOST);
        shard
            .map(|of| Self { index, of })
            .ok_or_else(|| ShardError(format!("{}/{of}", index.saturating_add(1))))
    }

    /// True if the shard is the whole schedule.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self.of.get() == 1
    }

    /// Returns the number of shards of the whole.
    #[must_use]
    pub fn shard_count(self) -> u64 {
        self.of.get()
    }

    /// True if a request can be in both shards. That is the case if both indices have the same remainder modulo the greatest
    /// common divisor of both divisors.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        let (mut common, mut rest) = (self.of.get(), other.of.get());
        while rest > 0 {
            (common, rest) = (rest, common % rest);
        }
        self.index % common == other.index % common
    }

    /// Returns the number of requests of this shard among the first `hits` requests.
    #[must_use]
    pub fn requests_among(self, hits: u64) -> u64 {
        hits / self.of + u64::from(hits % self.of > self.index)
    }

    /// Returns the first request of a thread of this shard, and the distance between its requests.
    #[must_use]
    pub fn thread_offset_and_stride(self, thread: u64, threads: u64) -> (u64, u64) {
        (self.index + thread * self.of.get(), self.of.get() * threads)
    }

    /// Returns the thread that sends a request; none if another shard sends it.
    #[must_use]
    pub fn thread_of(self, hit: u64, threads: u64) -> Option<u64> {
        (hit % self.of == self.index).then(|| hit / self.of % threads.max(1))
    }
}

impl FromStr for ScheduleShard {
    type Err = ShardError;

    /// Parses a shard: `2/3` is the second of three.
    fn from_str(text: &str) -> Result<Self, ShardError> {
        let refused = || ShardError(text.to_owned());
        let (number, of) = text.split_once('/').ok_or_else(refused)?;
        let index =
            number.parse::<u64>().ok().and_then(|number| number.checked_sub(1)).ok_or_else(refused)?;
        Self::new(index, of.parse().map_err(|_| refused())?).map_err(|_| refused())
    }
}

impl fmt::Display for ScheduleShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.of)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_shard_is_written_as_people_count() {
        for text in ["1/1", "2/3", "1048576/1048576"] {
            assert_eq!(text.parse::<ScheduleShard>().unwrap().to_string(), text);
        }
        assert!(ScheduleShard::default().is_whole() && "1/1".parse() == Ok(ScheduleShard::default()));
        for text in ["", "2", "0/3", "4/3", "1/0", "-1/3", "1/1048577", "1/2/3", "a/b"] {
            let refused = text.parse::<ScheduleShard>().unwrap_err();
            assert!(refused.to_string().starts_with(&format!("{text:?} is not a shard")), "{refused}");
        }
    }

    proptest! {
        #[test]
        fn shards_overlap_where_a_hit_is_in_both(of in 1..30_u64, others in 1..30_u64, seed: u64) {
            let one = ScheduleShard::new(seed % of, of).unwrap();
            let other = ScheduleShard::new(seed / 30 % others, others).unwrap();
            let is_in = |hit: u64, shard: ScheduleShard| shard.thread_of(hit, 1).is_some();
            let both = (0..of * others).any(|hit| is_in(hit, one) && is_in(hit, other));
            prop_assert_eq!((one.overlaps(other), other.overlaps(one)), (both, both), "{} {}", one, other);
        }

        #[test]
        fn every_hit_is_one_threads_of_one_shard(of in 1..40_u64, threads in 1..9_u64, hits in 0..3000_u64) {
            let shards: Vec<_> = (0..of).map(|index| ScheduleShard::new(index, of).unwrap()).collect();
            prop_assert_eq!(shards.iter().map(|shard| shard.requests_among(hits)).sum::<u64>(), hits);
            for hit in 0..hits {
                let owners: Vec<_> = shards.iter().filter_map(|shard| Some((shard, shard.thread_of(hit, threads)?))).collect();
                let [(shard, thread)] = owners[..] else { panic!("{owners:?}") };
                let (first, stride) = shard.thread_offset_and_stride(thread, threads);
                prop_assert!(hit >= first && (hit - first) % stride == 0, "{} of {:?}", hit, shard);
            }
        }
    }
}
