//! The outcomes of the requests of each variant, for a limited number of variants.
//!
//! Filled only for targets that have a variant ([`crate::variant`]), by the accounting of each thread.

use serde::{Deserialize, Serialize};

use crate::request_failure_reason::OutcomeClass;
use crate::stats::{FinishedRequest, RequestTimes};

/// The figures of each variant. Variants beyond the first [`MOST`] share the entry `others`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StatsByVariant(Vec<(String, VariantTotals)>);

/// The outcomes of the requests of one variant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariantTotals {
    /// Requests whose outcome is known, including those that were never sent.
    pub completed: u64,
    /// Responses with a status from 200 to 399 that are not wrong answers.
    pub good: u64,
    /// The times of requests with a good response.
    pub times: RequestTimes,
}

/// The maximum number of variants that are counted separately.
const MOST: usize = 32;

/// The name under which all further variants are counted.
const OTHERS: &str = "others";

impl StatsByVariant {
    /// Returns names and figures, in the order in which the variants appeared.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &VariantTotals)> {
        self.0.iter().map(|(name, figures)| (name.as_str(), figures))
    }

    pub(crate) fn record_finished(&mut self, name: &str, finished: &FinishedRequest) {
        let good = finished.outcome.is_ok_and(|status| OutcomeClass::of_status(status) == OutcomeClass::Good);
        let figures = self.of(name);
        figures.completed += 1;
        if good {
            figures.good += 1;
            figures.times.response_time.record(finished.end.saturating_sub(finished.due));
            let sent = finished.sent_at.unwrap_or(finished.end);
            figures.times.service_time.record(finished.end.saturating_sub(sent));
        }
    }

    /// Adds the figures of another thread or another interval.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (name, theirs) in &other.0 {
            let ours = self.of(name);
            ours.completed = ours.completed.saturating_add(theirs.completed);
            ours.good = ours.good.saturating_add(theirs.good);
            ours.times.merge(&theirs.times);
        }
    }

    /// Makes figures from counts without times: name, completed requests, good responses. Returns `None` if there are too many
    /// variants.
    pub(crate) fn from_counts(counts: Vec<(String, u64, u64)>) -> Option<Self> {
        let of = |(name, done, good)| {
            (name, VariantTotals { completed: done, good, times: RequestTimes::default() })
        };
        (counts.len() <= MOST + 1).then(|| Self(counts.into_iter().map(of).collect()))
    }

    /// Returns the times of each variant.
    pub(crate) fn each_variant_times_mut(&mut self) -> impl Iterator<Item = &mut RequestTimes> {
        self.0.iter_mut().map(|(_, figures)| &mut figures.times)
    }

    fn of(&mut self, name: &str) -> &mut VariantTotals {
        let named = self.0.iter().any(|(known, _)| known == name);
        let name = if named || self.0.len() < MOST { name } else { OTHERS };
        let at = self.0.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            self.0.push((name.to_owned(), VariantTotals::default()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_without_number_have_their_figures_together() {
        let finished = FinishedRequest {
            target_index: 0,
            outcome: Ok(200),
            due: 0,
            sent_at: Some(1),
            first_response_byte_at: None,
            end: 3,
            bytes_in: 0,
            bytes_out: 0,
        };
        let mut all = StatsByVariant::default();
        (0..1000).for_each(|number| all.record_finished(&format!("v{number}"), &finished));
        let mut sum = all.clone();
        sum.merge(&all);
        assert_eq!(sum.iter().count(), MOST + 1);
        assert_eq!(sum.iter().map(|(_, figures)| figures.good).sum::<u64>(), 2000);
        let (name, others) = sum.iter().last().unwrap();
        assert_eq!((name, others.times.service_time.max()), (OTHERS, 2));
    }
}
