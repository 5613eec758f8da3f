//! Wrong answers by reason: which condition failed how often.
//!
//! A reason is the text of a condition, or of a gRPC status. A run may read conditions from an endless file, so the number of
//! reasons is limited.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The maximum number of reasons that are counted separately. Others share [`OTHER`].
const MOST_REASONS: usize = 64;

/// The maximum length in bytes of a reason that is read; a reason that is written is shorter.
const MOST_TEXT: usize = 1024;

/// The reason that all further reasons share.
const OTHER: &str = "other conditions";

/// The count of each reason, in the order of the texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WrongAnswerCounts(Vec<(Box<str>, u64)>);

impl WrongAnswerCounts {
    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the reasons and their counts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(reason, count)| (&**reason, *count))
    }

    /// Adds the counts of another thread or another interval.
    pub fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(reason, count)| self.record(reason, count));
    }

    /// Adds a count to a reason.
    pub(crate) fn record(&mut self, reason: &str, count: u64) {
        let at = match self.find(reason) {
            Err(_) if self.0.len() >= MOST_REASONS => self.find(OTHER),
            at => at,
        };
        match at {
            Ok(at) => self.0[at].1 = self.0[at].1.saturating_add(count),
            Err(at) => {
                // The entry of the other reasons comes in addition.
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
