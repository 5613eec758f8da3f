//! The schedule of requests: a closed form in integer nanoseconds, so that a run of any length never drifts.
//!
//! A [`Schedule`] is an [`ArrivalSpacing`] (request number to *position*: even, Poisson, bursts) over a sequence of
//! [`ProfileStage`]s (position to instant: the inverse of the rate's integral). The sum of the rates is the same for each
//! spacing, and a change of rate loses no fraction of a request. The module knows no clock, no thread and no request; the sender
//! asks [`ScheduleCursor::next`] for the request that is due. A closed loop is a schedule, too: everything is due at once, and
//! the in-flight bound limits the rate.

use std::sync::Arc;

mod cursor;
mod poisson;
mod shape;
mod shard;

pub use self::cursor::{ScheduleCursor, SequenceCounter};
use self::poisson::PoissonProcess;
pub use self::shape::RateShape;
pub use self::shard::{ScheduleShard, ShardError};
use crate::clock::Nanos;
use crate::rate::RequestRate;

/// A position counts requests in units of 2^-64, so that stages may meet within a request and every request with a number has a
/// position. The upper half is the number, the lower half the fraction.
type Position = u128;
const HIT: u32 = u64::BITS;
const ONE: f64 = (1u128 << HIT) as f64;

/// One stage of a profile.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileStage {
    /// The rate over the stage.
    pub shape: RateShape,
    /// The length of the stage. `None` means no end, so that later stages are never reached.
    pub length: Option<Nanos>,
}

/// The spacing of requests at a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ArrivalSpacing {
    /// One request after the other, equally spaced.
    #[default]
    Constant,
    /// Exponential gaps, like those of many independent users. The seed makes the run repeatable.
    Poisson(u64),
    /// This number of requests at the same instant.
    Burst(u64),
}

/// The next request of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextArrival {
    /// This request is due now.
    Due(Arrival),
    /// No request is due before this instant.
    Later(Nanos),
    /// No further request will be due.
    Over,
}

/// One entry of the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The number in the run, from 0.
    pub seq: u64,
    /// The intended instant.
    pub due: Nanos,
}

/// The model of a run's arrivals.
#[derive(Debug, Clone, PartialEq)]
pub enum ArrivalModel {
    /// An open loop: requests are due by the clock, whatever the outcomes of earlier ones.
    Open(Schedule),
    /// A closed loop: the next request is due as soon as there is room for it.
    Closed,
}

/// Stages, one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    stages: Vec<PlacedStage>,
    spacing: ArrivalSpacing,
    end: Option<Nanos>,
    /// During a pause: the schedule as it would be without the pause.
    held: Option<Arc<Schedule>>,
}

#[derive(Debug, Clone, PartialEq)]
struct PlacedStage {
    shape: RateShape,
    start: Nanos,
    length: Option<Nanos>,
    /// The time from which the stage applies. After a pause it is later than its start.
    begins: Nanos,
    /// The requests of the stage that were due before that time.
    skipped: Position,
    /// The position at the time when the stage begins to apply.
    first: Position,
    /// The position at the end of the stage, which is the first of the next stage.
    last: Position,
}

impl Schedule {
    /// Makes a schedule of stages in this order.
    #[must_use]
    pub fn new(stages: Vec<ProfileStage>, spacing: ArrivalSpacing) -> Self {
        let mut schedule =
            Self { stages: Vec::with_capacity(stages.len()), spacing, end: Some(0), held: None };
        for stage in stages {
            schedule.push(stage);
        }
        schedule
    }

    /// Makes a schedule with one rate and no end.
    #[must_use]
    pub fn constant(rate: RequestRate, spacing: ArrivalSpacing) -> Self {
        Self::new(vec![ProfileStage { shape: RateShape::Hold(rate), length: None }], spacing)
    }

    fn push(&mut self, stage: ProfileStage) {
        let Some(start) = self.end else { return };
        let ProfileStage { shape, length } = stage;
        self.end = length.map(|length| start.saturating_add(length));
        self.place(PlacedStage { shape, start, length, begins: start, skipped: 0, first: 0, last: 0 });
    }

    fn place(&mut self, mut stage: PlacedStage) {
        stage.first = self.stages.last().map_or(0, |stage| stage.last);
        stage.measure();
        self.stages.push(stage);
    }

    /// Returns the stages in order.
    pub fn stages(&self) -> impl Iterator<Item = ProfileStage> {
        self.stages.iter().map(|placed| ProfileStage { shape: placed.shape.clone(), length: placed.length })
    }

    /// Returns the spacing of requests.
    #[must_use]
    pub fn spacing(&self) -> ArrivalSpacing {
        self.spacing
    }

    /// Returns the end of the last stage, if it has one.
    #[must_use]
    pub fn end(&self) -> Option<Nanos> {
        self.end
    }

    /// Returns the same schedule up to `at`, then `rate` for as long as the old schedule would have lasted. During a pause, the
    /// change applies when the pause is over.
    #[must_use]
    pub fn with_rate_from(&self, at: Nanos, rate: RequestRate) -> Self {
        if let Some(held) = &self.held {
            return Self { held: Some(Arc::new(held.with_rate_from(at, rate))), ..self.clone() };
        }
        let mut changed = self.cut(at);
        changed.end = Some(at);
        changed.push(ProfileStage {
            shape: RateShape::Hold(rate),
            length: self.end.map(|end| end.saturating_sub(at)),
        });
        changed
    }

    /// Returns the same schedule up to `at`, then nothing until [`Self::with_resume_from`] or the end of the schedule.
    #[must_use]
    pub fn with_pause_from(&self, at: Nanos) -> Self {
        if self.held.is_some() {
            return self.clone();
        }
        Self { held: Some(Arc::new(self.clone())), ..self.cut(at) }
    }

    /// Returns the schedule that ends a pause: from `at` on, the requests that would be due without the pause. Requests that
    /// would have been due in the pause are not sent later.
    #[must_use]
    pub fn with_resume_from(&self, at: Nanos) -> Self {
        let Some(held) = &self.held else { return self.clone() };
        let mut resumed = Self { held: None, ..self.clone() };
        held.stages.iter().filter_map(|stage| stage.left(at)).for_each(|left| resumed.place(left));
        resumed
    }

    /// Returns the schedule without the requests that are due from `at` on.
    fn cut(&self, at: Nanos) -> Self {
        let mut cut = self.clone();
        cut.stages.retain(|stage| stage.begins < at);
        if let Some(last) = cut.stages.last_mut() {
            last.cut(at - last.start);
        }
        cut
    }

    /// Returns the offered rate at an instant, in requests per second.
    #[must_use]
    pub fn rate_at(&self, at: Nanos) -> f64 {
        match self.stages.iter().rev().find(|stage| stage.begins <= at) {
            Some(stage) if stage.length.is_none_or(|length| at - stage.start < length) => {
                stage.shape.rate(at - stage.start, stage.length)
            }
            _ => 0.0,
        }
    }

    /// Returns the highest rate of any stage, in requests per second.
    #[must_use]
    pub fn peak(&self) -> f64 {
        self.stages.iter().map(|stage| stage.shape.peak(stage.length)).fold(0.0, f64::max)
    }

    /// Returns the number of requests that are due before `at`, which is the number that [`ScheduleCursor`]s return.
    #[must_use]
    pub fn hits_before(&self, at: Nanos) -> u64 {
        let position = self.reached(at);
        let even = u64::try_from(position.div_ceil(1 << HIT)).unwrap_or(u64::MAX);
        match self.spacing {
            ArrivalSpacing::Constant => even,
            ArrivalSpacing::Burst(size) => even.div_ceil(size.max(1)).saturating_mul(size.max(1)),
            ArrivalSpacing::Poisson(seed) => PoissonProcess::new(seed).arrivals_before(position),
        }
    }

    /// Returns the end of a schedule that ends after this number of requests or at `latest`, whichever comes first. The requests
    /// take until the next request would be due.
    #[must_use]
    pub fn end_after_hits(&self, hits: u64, latest: Nanos) -> Nanos {
        if hits == u64::MAX {
            return latest;
        }
        let next = match self.spacing {
            ArrivalSpacing::Constant | ArrivalSpacing::Burst(_) => Position::from(hits) << HIT,
            ArrivalSpacing::Poisson(seed) => PoissonProcess::new(seed).position(hits),
        };
        self.instant(next, &mut 0).map_or(latest, |due| due.min(latest))
    }

    /// Returns the time from the first request due at or after `from` to the one that would follow the last before `end`. `None`
    /// unless the schedule has one constant rate without Poisson spacing.
    #[must_use]
    pub fn constant_rate_window(&self, from: Nanos, end: Nanos, most: u64) -> Option<Nanos> {
        let is_even = !matches!(self.spacing, ArrivalSpacing::Poisson(_));
        let [PlacedStage { shape: RateShape::Hold(_), length: None, .. }] = &*self.stages else {
            return None;
        };
        let due = |hits: u64| self.instant(Position::from(hits) << HIT, &mut 0);
        let hits = |at| self.hits_before(at).min(most);
        let window = due(hits(end))?.checked_sub(due(hits(from))?)?;
        Some(window).filter(|window| is_even && *window > 0)
    }

    /// Returns the first position that is not due before `at`, by a search. The area under the rates gives nearly the same
    /// result, but it is rounded differently than instants: a request at the very end used to be sent and not counted.
    fn reached(&self, at: Nanos) -> Position {
        let (mut low, mut high) = (0, Position::MAX);
        while low < high {
            let middle = low.midpoint(high);
            match self.instant(middle, &mut 0) {
                Some(due) if due < at => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    /// Returns the instant of a position, looking for its stage from `hint` on.
    fn instant(&self, position: Position, hint: &mut usize) -> Option<Nanos> {
        while self.stages.get(*hint).is_some_and(|stage| stage.last <= position) {
            *hint += 1;
        }
        self.stages.get(*hint)?.instant(position)
    }
}

impl PlacedStage {
    fn measure(&mut self) {
        let length = self.length;
        self.last = length.map_or(Position::MAX, |at| {
            let hits = self.shape.hits_until(at, length).saturating_sub(self.skipped);
            self.first.saturating_add(hits)
        });
    }

    /// Returns the instant of a position of this stage. Positions, which add up exactly, decide about the stage; the instant of a
    /// curve is rounded and is kept within the stage.
    fn instant(&self, position: Position) -> Option<Nanos> {
        let own = (position - self.first).saturating_add(self.skipped);
        let inside = self.shape.instant_of_position(own, self.length)?;
        let inside = self.length.map_or(inside, |length| inside.min(length.saturating_sub(1)));
        Some(self.start.saturating_add(inside).max(self.begins))
    }

    /// Returns the rest of the stage at an instant of the schedule.
    fn left(&self, at: Nanos) -> Option<Self> {
        let inside = at.saturating_sub(self.start);
        if self.length.is_some_and(|length| length <= inside) {
            return None;
        }
        let begun = self.begins < at;
        let skipped = if begun { self.shape.hits_until(inside, self.length) } else { self.skipped };
        Some(Self { begins: self.begins.max(at), skipped, ..self.clone() })
    }

    /// Ends the stage early. A ramp ends at the rate that it has reached, so that earlier requests do not move.
    fn cut(&mut self, at: Nanos) {
        if self.length.is_some_and(|length| length <= at) {
            return;
        }
        let reached = self.shape.rate(at, self.length);
        if let RateShape::Ramp { to, .. } = &mut self.shape {
            *to = reached;
        }
        self.length = Some(at);
        self.measure();
    }
}

/// The condition that ends the schedule before its own end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopCondition {
    /// The instant from which no request is due.
    pub stop_time: Nanos,
    /// The maximum number of requests.
    pub max_requests: u64,
}

impl Default for StopCondition {
    fn default() -> Self {
        Self { stop_time: Nanos::MAX, max_requests: u64::MAX }
    }
}

#[cfg(test)]
mod tests;
