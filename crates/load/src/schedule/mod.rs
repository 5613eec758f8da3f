//! The schedule of requests: a closed form in integer nanoseconds, so that a run of any length never drifts.
//!
//! A [`Schedule`] is a [`ArrivalSpacing`] (hit number to *position*: even, Poisson, bursts) over a sequence of [`ProfileStage`]s
//! (position to instant: the inverse of the rate's integral). The sum of the rates is the same whatever the spacing,
//! and a change of rate loses no fraction of a hit. Knows no clock, no thread, no request; the sender asks
//! [`ScheduleCursor::next`] what is due. A closed loop is a schedule too: everything is due at once, and the in-flight bound
//! does the rest.

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

/// A position counts hits in units of 2^-64, so that stages may meet within a hit and every hit with a number has one.
/// The number is the upper half, the fraction the lower.
type Position = u128;
const HIT: u32 = u64::BITS;
const ONE: f64 = (1u128 << HIT) as f64;

/// One stretch of a profile.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileStage {
    /// The rate over the stage.
    pub shape: RateShape,
    /// The length of the stage; `None` has no end, and later stages are never reached.
    pub length: Option<Nanos>,
}

/// The spacing of requests at a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ArrivalSpacing {
    /// One after the other, equally far apart.
    #[default]
    Constant,
    /// Exponential gaps, as many independent users make them. The seed makes the run repeatable.
    Poisson(u64),
    /// So many at the same instant.
    Burst(u64),
}

/// The next request of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextArrival {
    /// This one, now.
    Due(Arrival),
    /// Nothing before this instant.
    Later(Nanos),
    /// Nothing ever again.
    Over,
}

/// One entry of the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Number in the run, from 0.
    pub seq: u64,
    /// The intended instant.
    pub due: Nanos,
}

/// The whole plan of a run's arrivals.
#[derive(Debug, Clone, PartialEq)]
pub enum ArrivalModel {
    /// An open loop: hits are due by the clock, whatever became of the earlier ones.
    Open(Schedule),
    /// A closed loop: the next hit is due as soon as there is room for it.
    Closed,
}

/// Stages one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    stages: Vec<PlacedStage>,
    spacing: ArrivalSpacing,
    end: Option<Nanos>,
    /// During a pause: what there would be without it.
    held: Option<Arc<Schedule>>,
}

#[derive(Debug, Clone, PartialEq)]
struct PlacedStage {
    shape: RateShape,
    start: Nanos,
    length: Option<Nanos>,
    /// From when it is its turn: later than its start by what a pause took of it.
    begins: Nanos,
    /// The requests of the stage that were due before that time.
    skipped: Position,
    /// Position when its turn begins.
    first: Position,
    /// Position at the end, which is the next stage's first.
    last: Position,
}

impl Schedule {
    /// Stages in order.
    #[must_use]
    pub fn new(stages: Vec<ProfileStage>, spacing: ArrivalSpacing) -> Self {
        let mut schedule =
            Self { stages: Vec::with_capacity(stages.len()), spacing, end: Some(0), held: None };
        for stage in stages {
            schedule.push(stage);
        }
        schedule
    }

    /// One rate for ever.
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

    /// The stages, in order.
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

    /// The same up to `at`, then `rate` for as long as the old schedule would have lasted. In a pause that is so when the
    /// pause is over.
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

    /// The same up to `at`, then nothing until it is [with_resume_from](Self::with_resume_from) or ends, which is when it would have ended
    /// anyway.
    #[must_use]
    pub fn with_pause_from(&self, at: Nanos) -> Self {
        if self.held.is_some() {
            return self.clone();
        }
        Self { held: Some(Arc::new(self.clone())), ..self.cut(at) }
    }

    /// From `at` on what would be due then had there been no pause; what was due in the pause is not made up for.
    #[must_use]
    pub fn with_resume_from(&self, at: Nanos) -> Self {
        let Some(held) = &self.held else { return self.clone() };
        let mut resumed = Self { held: None, ..self.clone() };
        held.stages.iter().filter_map(|stage| stage.left(at)).for_each(|left| resumed.place(left));
        resumed
    }

    /// Without what is due from `at` on.
    fn cut(&self, at: Nanos) -> Self {
        let mut cut = self.clone();
        cut.stages.retain(|stage| stage.begins < at);
        if let Some(last) = cut.stages.last_mut() {
            last.cut(at - last.start);
        }
        cut
    }

    /// The offered rate at an instant, in hits per second.
    #[must_use]
    pub fn rate_at(&self, at: Nanos) -> f64 {
        match self.stages.iter().rev().find(|stage| stage.begins <= at) {
            Some(stage) if stage.length.is_none_or(|length| at - stage.start < length) => {
                stage.shape.rate(at - stage.start, stage.length)
            }
            _ => 0.0,
        }
    }

    /// The highest rate of any stage, in hits per second.
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

    /// Returns the end of a schedule that ends after this number of requests or at `latest`, whichever comes first. The requests take until the next
    /// request would be due.
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

    /// Of one constant rate: the time from the first hit due at or after `from` to the one that would follow the last before `end`.
    #[must_use]
    pub fn window_of_hits(&self, from: Nanos, end: Nanos, most: u64) -> Option<Nanos> {
        let is_even = !matches!(self.spacing, ArrivalSpacing::Poisson(_));
        let [PlacedStage { shape: RateShape::Hold(_), length: None, .. }] = &*self.stages else {
            return None;
        };
        let due = |hits: u64| self.instant(Position::from(hits) << HIT, &mut 0);
        let hits = |at| self.hits_before(at).min(most);
        let window = due(hits(end))?.checked_sub(due(hits(from))?)?;
        Some(window).filter(|window| is_even && *window > 0)
    }

    /// The first position that is not due before `at`. It is searched for, although the area under the rates says nearly the
    /// same: that is rounded in another way than instants are, and a hit at the very end was sent and not counted.
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

    /// The instant of a position, looking for its stage from `hint` on.
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

    /// The instant of a position that is its own. Whether it is, positions say, which add up; the instant of a curve is
    /// rounded, and must not be rounded out of the stage.
    fn instant(&self, position: Position) -> Option<Nanos> {
        let own = (position - self.first).saturating_add(self.skipped);
        let inside = self.shape.instant(own, self.length)?;
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

    /// Lets it end early. A ramp ends at the rate that it has reached, so that what was due before stays where it was.
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
    /// No hit is due at or after this instant.
    pub stop_time: Nanos,
    /// No more hits than this.
    pub hits: u64,
}

impl Default for StopCondition {
    fn default() -> Self {
        Self { stop_time: Nanos::MAX, hits: u64::MAX }
    }
}

#[cfg(test)]
mod tests;
