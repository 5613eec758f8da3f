//! Wrong answers by reason: which condition failed how often.
//!
//! A reason is the text of a condition, or of a gRPC status; a run may read conditions from a file without end, so only so many are
//! told apart.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Reasons told apart. Others share [`OTHER`].
const MOST_REASONS: usize = 64;

/// Longest reason that is read, in bytes; one that is written is shorter.
const MOST_TEXT: usize = 1024;

/// The reason of those for which there was no place left.
const OTHER: &str = "other conditions";

/// The count of each reason, in the order of the texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WrongAnswerCounts(Vec<(Box<str>, u64)>);

impl WrongAnswerCounts {
    /// True without any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reasons and how often each was given.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(reason, count)| (&**reason, *count))
    }

    /// Adds what another thread, or another second, counted.
    pub fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(reason, count)| self.record(reason, count));
    }

    /// Counts so many with a reason.
    pub(crate) fn record(&mut self, reason: &str, count: u64) {
        let at = match self.find(reason) {
            Err(_) if self.0.len() >= MOST_REASONS => self.find(OTHER),
            at => at,
        };
        match at {
            Ok(at) => self.0[at].1 = self.0[at].1.saturating_add(count),
            Err(at) => {
                // The place of the others comes on top.
                let reason = if self.0.len() >= MOST_REASONS { OTHER } else { reason };
                self.0.insert(at, (reason.into(), count));
            }
        }
    }

    fn find(&self, reason: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| (**known).cmp(reason))
    }
}

impl Serialize for WrongAnswerCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for WrongAnswerCounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut counts = Self::default();
        for (reason, count) in BTreeMap::<Box<str>, u64>::deserialize(deserializer)? {
            counts.record(if reason.len() > MOST_TEXT { OTHER } else { &reason }, count);
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_conditions_without_end_fills_no_memory_and_loses_no_count() {
        let mut counts = WrongAnswerCounts::default();
        for number in 0..1_000 {
            counts.record(&format!("body lacks \"{number}\""), 2);
        }
        let mut sum = counts.clone();
        sum.merge(&counts);
        assert_eq!(sum.iter().count(), MOST_REASONS + 1);
        assert_eq!(sum.iter().map(|(_, count)| count).sum::<u64>(), 4_000);
        assert_eq!(
            sum.iter().find(|(reason, _)| *reason == OTHER).unwrap().1,
            4 * (1_000 - MOST_REASONS as u64)
        );
        let read: WrongAnswerCounts = serde_json::from_str(&serde_json::to_string(&sum).unwrap()).unwrap();
        assert_eq!(read, sum);
    }
}
