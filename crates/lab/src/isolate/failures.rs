//! How requests of a way failed: what was answered in place of a good answer, or why there was none, counted. Pure.

use seawall_load::fate::Fate;
use seawall_load::fault::Fault;
use serde::Serialize;

/// Of one way. Bounded, as statuses and faults are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failures(Vec<(Result<u16, Fault>, u64)>);

/// Requests that failed alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The status that was answered, or the reason in words.
    pub what: String,
    /// Requests.
    pub count: u64,
}

impl Failures {
    /// A hit that has ended; none that was good, or that nobody waited for any more.
    pub(super) fn add(&mut self, fate: &Fate) {
        if !fate.is_good() && fate.outcome != Err(Fault::Aborted) {
            self.count(fate.outcome, 1);
        }
    }

    /// Those of another time, too.
    pub(super) fn merge(&mut self, others: &Self) {
        others.0.iter().for_each(|(outcome, count)| self.count(*outcome, *count));
    }

    fn count(&mut self, outcome: Result<u16, Fault>, more: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == outcome) {
            Some((_, count)) => *count += more,
            None => self.0.push((outcome, more)),
        }
    }

    /// In words, the most frequent first.
    #[must_use]
    pub fn told(&self) -> Vec<Failure> {
        let what = |outcome: &Result<u16, Fault>| match outcome {
            Ok(status) => status.to_string(),
            Err(fault) => fault.to_string(),
        };
        let mut told: Vec<_> =
            self.0.iter().map(|(outcome, count)| Failure { what: what(outcome), count: *count }).collect();
        told.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| one.what.cmp(&other.what)));
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_counted_by_status_or_reason_and_what_nobody_waited_for_is_not() {
        let mut failures = Failures::default();
        let mut add = |outcome, times| {
            let fate = Fate {
                target: 0,
                due: 0,
                sent: Some(0),
                own_lag: 0,
                end: 1,
                outcome,
                bytes_in: 0,
                carrier: None,
            };
            (0..times).for_each(|_| failures.add(&fate));
        };
        add(Ok(200), 9);
        add(Ok(503), 2);
        add(Err(Fault::Timeout), 3);
        add(Err(Fault::Aborted), 4);
        let mut all = Failures::default();
        all.merge(&failures);
        all.merge(&failures);
        let told: Vec<_> = all.told().into_iter().map(|failure| (failure.what, failure.count)).collect();
        assert_eq!(told, [(Fault::Timeout.to_string(), 6), ("503".to_owned(), 4)]);
    }
}
