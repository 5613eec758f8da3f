//! Properties that hold for any profile: reading it never panics, and its schedule goes forward, counts as many requests as it
//! hands out, and keeps the requests that were due when its rate changes. Called by `profiles.rs` and by the fuzz target
//! `profile`.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use seawall_load::clock::Nanos;
use seawall_load::load_profile;
use seawall_load::rate::RequestRate;
use seawall_load::schedule::{
    Arrival, ArrivalModel, ArrivalSpacing, NextArrival, Schedule, ScheduleCursor, StopCondition,
};

/// Hits looked at.
const LOOK: usize = 100;

/// A first line with the profile, then the lines of every file that it replays.
pub fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (sentence, file) = text.split_once('\n').unwrap_or((text, ""));
    // A sentence may make ten thousand steps, which is enough of them.
    if sentence.matches("step").count() > 1 {
        return;
    }
    let Ok(stages) = load_profile::parse(sentence, |_| Ok(file.as_bytes())) else { return };
    for spacing in [ArrivalSpacing::Constant, ArrivalSpacing::Burst(7), ArrivalSpacing::Poisson(1)] {
        goes_forward(&Schedule::new(stages.clone(), spacing));
    }
}

fn goes_forward(schedule: &Schedule) {
    assert!(schedule.peak() >= 0.0, "{}", schedule.peak());
    let hits = first_hits(schedule);
    assert!(hits.is_sorted_by_key(|hit| hit.due), "{hits:?}");
    let Some(last) = hits.last() else { return };
    assert!(schedule.end().is_none_or(|end| last.due < end), "{last:?} is due after the end");
    if let Some(end) = schedule.end().filter(|_| hits.len() < LOOK) {
        assert_eq!(schedule.hits_before(end), hits.len() as u64, "{hits:?} of {schedule:?}");
    }
    keeps_what_was_due(schedule, last.due);
}

fn keeps_what_was_due(schedule: &Schedule, at: Nanos) {
    let changed = first_hits(&schedule.with_rate_from(at, RequestRate::new(5, 1_000_000_000).unwrap()));
    // The instants of a curve are those of floating point.
    let slack = 2 + at / 1_000_000_000_000;
    for hit in first_hits(schedule).iter().take_while(|hit| hit.due < at.saturating_sub(slack)) {
        let same = changed.get(hit.seq as usize).is_some_and(|kept| kept.due.abs_diff(hit.due) <= slack);
        assert!(same, "{hit:?} moved: {changed:?} of {schedule:?}");
    }
}

fn first_hits(schedule: &Schedule) -> Vec<Arrival> {
    let mut cursor =
        ScheduleCursor::new(Arc::new(ArrivalModel::Open(schedule.clone())), StopCondition::default(), 0, 1);
    let hits = std::iter::from_fn(|| match cursor.next(Nanos::MAX - 1) {
        NextArrival::Due(hit) => Some(hit),
        NextArrival::Later(_) | NextArrival::Over => None,
    });
    hits.take(LOOK).collect()
}
