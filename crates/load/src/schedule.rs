//! When which hit is due: a closed form in integer nanoseconds, so that a run of any length never drifts.
//!
//! A [`Schedule`] is a [`Spacing`] (hit number to *position*: even, Poisson, bursts) over a sequence of [`Stage`]s
//! (position to instant: the inverse of the rate's integral). The sum of the rates is the same whatever the spacing,
//! and a change of rate loses no fraction of a hit. Knows no clock, no thread, no request; the shard asks
//! [`Cursor::next`] what is due. A closed loop is a schedule too: everything is due at once, and the in-flight bound
//! does the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::{Nanos, SECOND};
use crate::rate::Rate;

/// A position counts hits in units of 2^-64, so that stages may meet within a hit and every hit with a number has one.
/// The number is the upper half, the fraction the lower.
type Position = u128;
const HIT: u32 = u64::BITS;
const ONE: f64 = (1u128 << HIT) as f64;

/// Parts of a hit to which the area under a curve is rounded: the noise of floating point must not make a hit of its own.
const GRAIN: f64 = (1u64 << 20) as f64;

/// One stretch of a profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// The rate over the stage.
    pub shape: Shape,
    /// How long it lasts; `None` is without end, and whatever follows is never reached.
    pub length: Option<Nanos>,
}

/// How the rate behaves within a stage.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// One rate.
    Hold(Rate),
    /// From one rate to another, linearly over the stage.
    Ramp {
        /// At the start, in hits per second.
        from: f64,
        /// At the end, in hits per second.
        to: f64,
    },
    /// A mean rate with a sine on top, starting at the mean and rising.
    Sine {
        /// Hits per second.
        mean: f64,
        /// At most the mean.
        amplitude: f64,
        /// One full swing.
        period: Nanos,
    },
    /// Recorded offsets from the stage's start, ascending.
    Replay(Arc<[Nanos]>),
}

/// How hits are spread over the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spacing {
    /// One after the other, equally far apart.
    #[default]
    Even,
    /// Exponential gaps, as many independent users make them. The seed makes the run repeatable.
    Poisson(u64),
    /// So many at the same instant.
    Burst(u64),
}

/// What is due next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// This one, now.
    Due(Hit),
    /// Nothing before this instant.
    Later(Nanos),
    /// Nothing ever again.
    Over,
}

/// One entry of the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// Number in the run, from 0.
    pub seq: u64,
    /// The intended instant.
    pub due: Nanos,
}

/// The whole plan of a run's arrivals.
#[derive(Debug, Clone, PartialEq)]
pub enum Arrivals {
    /// An open loop: hits are due by the clock, whatever became of the earlier ones.
    Open(Schedule),
    /// A closed loop: the next hit is due as soon as there is room for it.
    Closed,
}

/// Stages one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    stages: Vec<Placed>,
    spacing: Spacing,
    end: Option<Nanos>,
    /// During a pause: what there would be without it.
    held: Option<Arc<Schedule>>,
}

#[derive(Debug, Clone, PartialEq)]
struct Placed {
    shape: Shape,
    start: Nanos,
    length: Option<Nanos>,
    /// From when it is its turn: later than its start by what a pause took of it.
    begins: Nanos,
    /// What was due of it before that.
    skipped: Position,
    /// Position when its turn begins.
    first: Position,
    /// Position at the end, which is the next stage's first.
    last: Position,
}

impl Schedule {
    /// Stages in order.
    #[must_use]
    pub fn new(stages: Vec<Stage>, spacing: Spacing) -> Self {
        let mut schedule =
            Self { stages: Vec::with_capacity(stages.len()), spacing, end: Some(0), held: None };
        for stage in stages {
            schedule.push(stage);
        }
        schedule
    }

    /// One rate for ever.
    #[must_use]
    pub fn constant(rate: Rate, spacing: Spacing) -> Self {
        Self::new(vec![Stage { shape: Shape::Hold(rate), length: None }], spacing)
    }

    fn push(&mut self, stage: Stage) {
        let Some(start) = self.end else { return };
        let Stage { shape, length } = stage;
        self.end = length.map(|length| start.saturating_add(length));
        self.place(Placed { shape, start, length, begins: start, skipped: 0, first: 0, last: 0 });
    }

    fn place(&mut self, mut stage: Placed) {
        stage.first = self.stages.last().map_or(0, |stage| stage.last);
        stage.measure();
        self.stages.push(stage);
    }

    /// When the last stage ends, if it does.
    #[must_use]
    pub fn end(&self) -> Option<Nanos> {
        self.end
    }

    /// The same up to `at`, then `rate` for as long as the old schedule would have lasted. In a pause that is so when the
    /// pause is over.
    #[must_use]
    pub fn changed(&self, at: Nanos, rate: Rate) -> Self {
        if let Some(held) = &self.held {
            return Self { held: Some(Arc::new(held.changed(at, rate))), ..self.clone() };
        }
        let mut changed = self.cut(at);
        changed.end = Some(at);
        changed.push(Stage { shape: Shape::Hold(rate), length: self.end.map(|end| end.saturating_sub(at)) });
        changed
    }

    /// The same up to `at`, then nothing until it is [resumed](Self::resumed) or ends, which is when it would have ended
    /// anyway.
    #[must_use]
    pub fn paused(&self, at: Nanos) -> Self {
        if self.held.is_some() {
            return self.clone();
        }
        Self { held: Some(Arc::new(self.clone())), ..self.cut(at) }
    }

    /// From `at` on what would be due then had there been no pause; what was due in the pause is not made up for.
    #[must_use]
    pub fn resumed(&self, at: Nanos) -> Self {
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

    /// How many hits are due before `at`: as many as [`Cursor`]s hand out. Poisson arrivals are drawn again for it, some
    /// nanoseconds for each.
    #[must_use]
    pub fn hits_before(&self, at: Nanos) -> u64 {
        self.hits_before_knowing(at, &Drawn::default())
    }

    /// The same, from where arrivals have been drawn already.
    #[must_use]
    pub fn hits_before_knowing(&self, at: Nanos, drawn: &Drawn) -> u64 {
        let position = self.reached(at);
        let even = u64::try_from(position.div_ceil(1 << HIT)).unwrap_or(u64::MAX);
        match self.spacing {
            Spacing::Even => even,
            Spacing::Burst(size) => even.div_ceil(size.max(1)).saturating_mul(size.max(1)),
            Spacing::Poisson(seed) => drawn.on_to(seed, u64::MAX, position).drawn - 1,
        }
    }

    /// When the schedule is over that ends after this many hits or at `latest`, whichever comes first: the hits take until
    /// the next one would be due. Poisson arrivals are drawn again for it.
    #[must_use]
    pub fn over(&self, hits: u64, latest: Nanos) -> Nanos {
        self.over_knowing(hits, latest, &Drawn::default())
    }

    /// The same, from where arrivals have been drawn already.
    #[must_use]
    pub fn over_knowing(&self, hits: u64, latest: Nanos, drawn: &Drawn) -> Nanos {
        if hits == u64::MAX {
            return latest;
        }
        let next = match self.spacing {
            Spacing::Even | Spacing::Burst(_) => Position::from(hits) << HIT,
            Spacing::Poisson(seed) => {
                let reached = self.reached(latest);
                drawn.on_to(seed, hits, reached).position.min(reached)
            }
        };
        self.instant(next, &mut 0).map_or(latest, |due| due.min(latest))
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

impl Placed {
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

    /// What of it is left at an instant of the schedule.
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
        if let Shape::Ramp { to, .. } = &mut self.shape {
            *to = reached;
        }
        self.length = Some(at);
        self.measure();
    }
}

impl Shape {
    fn rate(&self, at: Nanos, length: Option<Nanos>) -> f64 {
        match self {
            Self::Hold(rate) => rate.per_second(),
            Self::Ramp { from, to } => from + (to - from) * at as f64 / length.unwrap_or(at.max(1)) as f64,
            Self::Sine { mean, amplitude, period } => mean + amplitude * swing(at, *period).sin(),
            Self::Replay(_) => self.hits_until(at, length) as f64 / ONE * SECOND as f64 / at.max(1) as f64,
        }
    }

    fn peak(&self, length: Option<Nanos>) -> f64 {
        match self {
            Self::Hold(rate) => rate.per_second(),
            Self::Ramp { from, to } => from.max(*to),
            Self::Sine { mean, amplitude, .. } => mean + amplitude,
            Self::Replay(_) => self.rate(length.unwrap_or(SECOND), length),
        }
    }

    /// The integral of the rate from the stage's start.
    fn hits_until(&self, at: Nanos, length: Option<Nanos>) -> Position {
        let hits = match self {
            Self::Hold(rate) => {
                let (scaled, period) = (u128::from(at) * u128::from(rate.hits()), u128::from(rate.period()));
                let whole = u64::try_from(scaled / period).map(|whole| Position::from(whole) << HIT);
                return whole.map_or(Position::MAX, |whole| whole + ((scaled % period) << HIT) / period);
            }
            Self::Ramp { from, .. } => (from + self.rate(at, length)) / 2.0 * seconds(at),
            Self::Sine { mean, amplitude, period } => {
                sine_hits(seconds(at), *mean, *amplitude, seconds(*period))
            }
            Self::Replay(offsets) => {
                return (offsets.partition_point(|&offset| offset < at) as Position) << HIT;
            }
        };
        // However little is more than nothing, or a run of it would be without its first hit.
        let least = if hits > 0.0 { 1.0 } else { 0.0 };
        ((hits * GRAIN).round().max(least) * (ONE / GRAIN)) as Position
    }

    /// The inverse of [`Shape::hits_until`]. Exact for a held rate, within a nanosecond or two for curves.
    fn instant(&self, position: Position, length: Option<Nanos>) -> Option<Nanos> {
        let hits = position as f64 / ONE;
        let seconds = match self {
            Self::Hold(rate) => {
                let (whole, fraction) = ((position >> HIT) as u64, position as u64);
                let period = u128::from(rate.period());
                let scaled = u128::from(whole) * period + ((u128::from(fraction) * period) >> HIT);
                return u64::try_from(scaled / u128::from(rate.hits())).ok();
            }
            Self::Replay(offsets) => return offsets.get(usize::try_from(position >> HIT).ok()?).copied(),
            Self::Ramp { from, to } => ramp_instant(hits, *from, *to, seconds(length?)),
            Self::Sine { mean, amplitude, period } => sine_instant(hits, *mean, *amplitude, seconds(*period)),
        };
        let ns = seconds * SECOND as f64;
        (ns.is_finite() && ns < u64::MAX as f64).then(|| ns.round() as u64)
    }
}

fn seconds(ns: Nanos) -> f64 {
    ns as f64 / SECOND as f64
}

fn swing(at: Nanos, period: Nanos) -> f64 {
    std::f64::consts::TAU * (at % period.max(1)) as f64 / period.max(1) as f64
}

/// Solves `from t + slope t^2 / 2 = hits` in the form that does not cancel when the slope is small.
fn ramp_instant(hits: f64, from: f64, to: f64, length: f64) -> f64 {
    let slope = (to - from) / length;
    let root = (from * from + 2.0 * slope * hits).max(0.0).sqrt();
    if hits == 0.0 { 0.0 } else { 2.0 * hits / (from + root) }
}

fn sine_hits(at: f64, mean: f64, amplitude: f64, period: f64) -> f64 {
    let turn = std::f64::consts::TAU / period;
    mean * at + amplitude / turn * (1.0 - (turn * at).cos())
}

/// Bisection between the two instants that bound the sine's share of the hits: monotone, so it always ends.
fn sine_instant(hits: f64, mean: f64, amplitude: f64, period: f64) -> f64 {
    let most = amplitude * period / std::f64::consts::PI;
    let (mut low, mut high) = (((hits - most) / mean).max(0.0), hits / mean);
    while high - low > 0.5 / SECOND as f64 {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            break;
        }
        if sine_hits(middle, mean, amplitude, period) < hits { low = middle } else { high = middle }
    }
    high
}

/// When the schedule ends, beyond its own end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Until {
    /// No hit is due at or after this instant.
    pub after: Nanos,
    /// No more hits than this.
    pub hits: u64,
}

impl Default for Until {
    fn default() -> Self {
        Self { after: Nanos::MAX, hits: u64::MAX }
    }
}

/// One thread's way through the arrivals: every n-th hit, or in a closed loop whichever is next.
#[derive(Debug)]
pub struct Cursor {
    arrivals: Arc<Arrivals>,
    until: Until,
    turn: Turn,
    seq: u64,
    stride: u64,
    stage: usize,
    trail: Option<Trail>,
    due: Option<Nanos>,
    /// Nothing is due for the time being.
    paused: bool,
}

impl Cursor {
    /// The way of thread `index` of `stride`.
    #[must_use]
    pub fn new(arrivals: Arc<Arrivals>, until: Until, index: u64, stride: u64) -> Self {
        let trail = match &*arrivals {
            Arrivals::Open(Schedule { spacing: Spacing::Poisson(seed), .. }) => Some(Trail::new(*seed)),
            _ => None,
        };
        let mut cursor = Self {
            arrivals,
            until,
            turn: Turn::every(stride, index),
            seq: index,
            stride,
            stage: 0,
            trail,
            due: None,
            paused: false,
        };
        cursor.skip_gaps(index + 1);
        cursor.due = cursor.instant();
        cursor
    }

    /// In a closed loop: takes the hits that nobody has taken, instead of every n-th.
    #[must_use]
    pub fn in_turn(self, turn: Turn) -> Self {
        Self { turn, ..self }
    }

    /// What is due at `now`. A hit is handed out once.
    #[inline]
    pub fn next(&mut self, now: Nanos) -> Next {
        if self.is_closed() {
            return self.next_with_room(now);
        }
        let Some(due) = self.due.filter(|due| self.seq < self.until.hits && *due < self.until.after) else {
            return self.standing(now);
        };
        if due > now {
            return Next::Later(due);
        }
        let hit = Hit { seq: self.seq, due };
        self.seq += self.stride;
        self.skip_gaps(self.stride);
        self.due = self.instant();
        Next::Due(hit)
    }

    /// The next hit of a closed loop is due as soon as there is room for it, which is when it is asked for.
    fn next_with_room(&mut self, now: Nanos) -> Next {
        if self.paused || now >= self.until.after {
            return self.standing(now);
        }
        let seq = self.turn.take();
        if seq < self.until.hits { Next::Due(Hit { seq, due: now }) } else { Next::Over }
    }

    /// Where there is no hit to hand out, a pause may end and there be one; the end of the schedule is not put off for it.
    #[cold]
    fn standing(&self, now: Nanos) -> Next {
        if self.paused && !self.is_over(now) { Next::Later(self.latest()) } else { Next::Over }
    }

    /// Whether there will be no hit any more, whatever happens.
    #[must_use]
    pub fn is_over(&self, now: Nanos) -> bool {
        let next = if self.is_closed() { self.turn.next() } else { self.seq };
        next >= self.until.hits || now >= self.latest()
    }

    /// When the schedule ends, apart from its hits.
    fn latest(&self) -> Nanos {
        let planned = match &*self.arrivals {
            Arrivals::Closed => None,
            Arrivals::Open(schedule) => schedule.end,
        };
        planned.unwrap_or(Nanos::MAX).min(self.until.after)
    }

    /// Goes on with other arrivals from the same hit, or stands still with them.
    pub fn replace(&mut self, arrivals: Arc<Arrivals>, paused: bool) {
        self.arrivals = arrivals;
        self.paused = paused;
        self.stage = 0;
        self.due = self.instant();
    }

    fn is_closed(&self) -> bool {
        matches!(*self.arrivals, Arrivals::Closed)
    }

    fn skip_gaps(&mut self, count: u64) {
        if let Some(trail) = &mut self.trail {
            trail.skip(count);
        }
    }

    /// No hits from this one on: the input has ended.
    pub fn cut(&mut self, seq: u64) {
        self.until.hits = self.until.hits.min(seq);
    }

    /// When the schedule is over, apart from commands; a closed loop that ends with its hits goes on to the last answer.
    #[must_use]
    pub fn over(&self) -> Nanos {
        match &*self.arrivals {
            Arrivals::Closed => self.until.after,
            Arrivals::Open(schedule) => schedule.over_knowing(self.until.hits, self.latest(), &self.drawn()),
        }
    }

    /// Where its arrivals were drawn up to some time ago.
    #[must_use]
    pub fn drawn(&self) -> Drawn {
        Drawn(self.trail.iter().flat_map(|trail| trail.marks.clone()).collect())
    }

    fn instant(&mut self) -> Option<Nanos> {
        let Arrivals::Open(schedule) = &*self.arrivals else { return Some(0) };
        let position = match schedule.spacing {
            Spacing::Even => Position::from(self.seq) << HIT,
            Spacing::Burst(size) => Position::from(self.seq - self.seq % size.max(1)) << HIT,
            Spacing::Poisson(_) => self.trail.as_ref().map_or(0, |trail| trail.gaps.position),
        };
        schedule.instant(position, &mut self.stage)
    }
}

/// The number of the next hit of a closed loop, for all its threads. A thread whose answers come late, or that has fewer
/// clients, takes fewer hits; had each its own, the others would stand idle at the end until the slowest has sent its share.
#[derive(Debug, Clone)]
pub struct Turn {
    next: Arc<AtomicU64>,
    step: u64,
}

impl Default for Turn {
    fn default() -> Self {
        Self::every(1, 0)
    }
}

impl Turn {
    fn every(step: u64, first: u64) -> Self {
        Self { next: Arc::new(first.into()), step }
    }

    /// Relaxed, because the number is all that is shared: nothing is read on the strength of it.
    fn take(&self) -> u64 {
        self.next.fetch_add(self.step, Ordering::Relaxed)
    }

    fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }
}

/// The positions of a Poisson process of rate one. Every thread draws all of them and keeps its own: the arrivals
/// are then the same for any number of threads, and sequence numbers follow time.
#[derive(Debug, Clone)]
struct Gaps {
    random: fastrand::Rng,
    /// Of the last hit drawn.
    position: Position,
    drawn: u64,
}

impl Gaps {
    fn new(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), position: 0, drawn: 0 }
    }

    fn skip(&mut self, count: u64) {
        for _ in 0..count {
            let gap = -(1.0 - self.random.f64()).ln();
            self.position = self.position.saturating_add((gap * ONE) as Position);
        }
        self.drawn += count;
    }
}

/// Draws after which a mark is left: some milliseconds.
const MARK: u64 = 1 << 20;

/// A Poisson process and where it was, so that what is asked about a moment ago need not be drawn again from the start:
/// after 10^9 hits that took seconds.
#[derive(Debug)]
struct Trail {
    gaps: Gaps,
    /// The older one first; at least [`MARK`] draws ago once there were as many.
    marks: [Gaps; 2],
}

impl Trail {
    fn new(seed: u64) -> Self {
        let gaps = Gaps::new(seed);
        Self { marks: [gaps.clone(), gaps.clone()], gaps }
    }

    #[inline]
    fn skip(&mut self, count: u64) {
        self.gaps.skip(count);
        if self.gaps.drawn - self.marks[1].drawn >= MARK {
            self.marks = [self.marks[1].clone(), self.gaps.clone()];
        }
    }
}

/// Where Poisson arrivals have been drawn up to; nowhere by default.
#[derive(Debug, Clone, Default)]
pub struct Drawn(Vec<Gaps>);

impl Drawn {
    /// What several know.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Draws on to the hit with this number, or to the first that is not before this position.
    fn on_to(&self, seed: u64, hit: u64, position: Position) -> Gaps {
        let known = self.0.iter().filter(|mark| mark.drawn <= hit && mark.position < position);
        let mut gaps = known
            .max_by_key(|mark| mark.drawn)
            .filter(|mark| mark.drawn > 0)
            .cloned()
            .unwrap_or_else(|| Gaps::new(seed));
        while gaps.drawn == 0 || gaps.drawn <= hit && gaps.position < position {
            gaps.skip(1);
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    fn all(arrivals: &Arc<Arrivals>, until: Until, threads: u64) -> Vec<Hit> {
        let mut hits: Vec<_> = (0..threads)
            .flat_map(|index| {
                let mut cursor = Cursor::new(Arc::clone(arrivals), until, index, threads);
                std::iter::from_fn(move || match cursor.next(Nanos::MAX - 1) {
                    Next::Due(hit) => Some(hit),
                    _ => None,
                })
                .collect::<Vec<_>>()
            })
            .collect();
        hits.sort_by_key(|hit| hit.seq);
        hits
    }

    fn open(stages: Vec<Stage>, spacing: Spacing) -> Arc<Arrivals> {
        Arc::new(Arrivals::Open(Schedule::new(stages, spacing)))
    }

    fn stage(shape: Shape, seconds: u64) -> Stage {
        Stage { shape, length: Some(seconds * SECOND) }
    }

    #[test]
    fn a_constant_rate_makes_rate_times_duration_hits_however_many_threads_share_them() {
        let until = Until { after: 10 * SECOND, ..Until::default() };
        for text in ["50", "3/10s", "7001", "1/3s", "333/7s"] {
            let arrivals = Arc::new(Arrivals::Open(Schedule::constant(rate(text), Spacing::Even)));
            let one = all(&arrivals, until, 1);
            let rate = rate(text);
            let expected = (10 * SECOND * rate.hits()).div_ceil(rate.period());
            assert_eq!(one.len() as u64, expected, "{text}");
            assert_eq!(all(&arrivals, until, 3), one, "{text}");
            assert!(one.iter().enumerate().all(|(i, hit)| hit.seq == i as u64));
        }
    }

    #[test]
    fn after_a_year_a_hit_is_still_due_to_the_nanosecond() {
        let schedule = Schedule::constant(rate("3/s"), Spacing::Even);
        let year = 365 * 86_400;
        assert_eq!(schedule.instant(Position::from(3 * year) << HIT, &mut 0), Some(year * SECOND));
        assert_eq!(
            schedule.instant(Position::from(3 * year + 1) << HIT, &mut 0),
            Some(year * SECOND + 333_333_333)
        );
    }

    #[test]
    fn a_ramp_makes_the_area_under_it_and_speeds_up() {
        let hits = all(
            &open(vec![stage(Shape::Ramp { from: 0.0, to: 100.0 }, 10)], Spacing::Even),
            Until::default(),
            1,
        );
        assert_eq!(hits.len(), 500);
        assert!(hits.windows(2).all(|pair| pair[0].due < pair[1].due));
        let first_half = hits.iter().filter(|hit| hit.due < 5 * SECOND).count();
        assert_eq!(first_half, 125);
    }

    #[test]
    fn a_falling_ramp_ends() {
        let hits = all(
            &open(vec![stage(Shape::Ramp { from: 100.0, to: 0.0 }, 10)], Spacing::Even),
            Until::default(),
            2,
        );
        assert_eq!(hits.len(), 500);
    }

    #[test]
    fn a_sine_makes_its_mean_over_whole_periods() {
        let shape = Shape::Sine { mean: 100.0, amplitude: 100.0, period: 2 * SECOND };
        let hits = all(&open(vec![stage(shape, 10)], Spacing::Even), Until::default(), 1);
        assert_eq!(hits.len(), 1000);
        assert!(hits.windows(2).all(|pair| pair[0].due < pair[1].due));
        let rising = hits.iter().filter(|hit| hit.due < SECOND).count();
        assert_eq!(rising, 164, "mean plus 2/pi of the amplitude");
    }

    #[test]
    fn stages_follow_each_other_and_fractions_of_hits_are_not_lost() {
        let third = || stage(Shape::Hold(rate("10/3s")), 1);
        let hits = all(&open(vec![third(), third(), third()], Spacing::Even), Until::default(), 1);
        assert_eq!(hits.len(), 10);
    }

    #[test]
    fn offsets_are_replayed_as_recorded() {
        let offsets: Arc<[Nanos]> = [5, 5, 70].into();
        let stages = vec![stage(Shape::Hold(rate("2")), 1), stage(Shape::Replay(offsets), 1)];
        let due: Vec<_> =
            all(&open(stages, Spacing::Even), Until::default(), 2).iter().map(|hit| hit.due).collect();
        assert_eq!(due, [0, SECOND / 2, SECOND + 5, SECOND + 5, SECOND + 70]);
    }

    #[test]
    fn bursts_come_together_and_keep_the_rate() {
        let until = Until { after: SECOND, ..Until::default() };
        let hits = all(&open(vec![stage(Shape::Hold(rate("100")), 2)], Spacing::Burst(10)), until, 3);
        assert_eq!(hits.len(), 100);
        assert!(hits.iter().all(|hit| hit.due == hit.seq / 10 * SECOND / 10));
    }

    #[test]
    fn poisson_arrivals_do_not_depend_on_the_threads_and_have_exponential_gaps() {
        let arrivals = open(vec![stage(Shape::Hold(rate("1000")), 100)], Spacing::Poisson(7));
        let one = all(&arrivals, Until::default(), 1);
        assert_eq!(all(&arrivals, Until::default(), 4), one);
        let gaps: Vec<f64> = one.windows(2).map(|pair| (pair[1].due - pair[0].due) as f64 / 1e6).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let above_mean = gaps.iter().filter(|&&gap| gap > 1.0).count() as f64 / gaps.len() as f64;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        assert!((above_mean - (-1.0f64).exp()).abs() < 0.01, "{above_mean}");
    }

    #[test]
    fn what_was_due_is_counted_as_it_was_spread() {
        for spacing in [Spacing::Even, Spacing::Burst(50), Spacing::Poisson(3)] {
            let schedule = Schedule::constant(rate("200"), spacing);
            let arrivals = Arc::new(Arrivals::Open(schedule.clone()));
            for after in [SECOND / 4, SECOND / 4 + 10_000, SECOND, 90 * SECOND] {
                let due = all(&arrivals, Until { after, ..Until::default() }, 2).len() as u64;
                assert_eq!(schedule.hits_before(after), due, "{spacing:?} before {after}");
            }
        }
    }

    #[test]
    fn the_end_of_a_long_run_of_poisson_arrivals_was_silent_while_all_were_drawn_again() {
        let schedule = Schedule::constant(rate("1000000"), Spacing::Poisson(9));
        let arrivals = Arc::new(Arrivals::Open(schedule.clone()));
        let mut cursor = Cursor::new(arrivals, Until::default(), 1, 2);
        let sent = 3 * MARK;
        let at = (0..sent / 2).map(|_| cursor.next(Nanos::MAX - 1)).last();
        let Some(Next::Due(Hit { due, .. })) = at else { panic!("{at:?}") };
        let drawn = cursor.drawn();
        let nearest = drawn.0.iter().map(|mark| mark.drawn).min();
        assert!(nearest >= Some(MARK), "{nearest:?} of {sent}");
        for (hits, at) in [(sent, due), (sent - 7, due), (sent, due - 40_000), (3, due), (sent, 5_000)] {
            assert_eq!(schedule.hits_before_knowing(at, &drawn), schedule.hits_before(at), "before {at}");
            assert_eq!(schedule.over_knowing(hits, at, &drawn), schedule.over(hits, at), "{hits} until {at}");
        }
    }

    #[test]
    fn a_rate_changed_in_the_middle_of_a_ramp_made_the_past_steeper_and_sent_a_burst() {
        let ramp = Schedule::new(vec![stage(Shape::Ramp { from: 0.0, to: 1000.0 }, 60)], Spacing::Even);
        let changed = ramp.changed(30 * SECOND, rate("10"));
        assert_eq!(ramp.hits_before(30 * SECOND), 7500);
        assert_eq!(changed.hits_before(30 * SECOND), 7500);
        assert_eq!(changed.hits_before(31 * SECOND), 7510);
        assert!((changed.rate_at(15 * SECOND) - 250.0).abs() < 1e-9);
    }

    #[test]
    fn a_changed_rate_keeps_what_was_due_before() {
        let before = Schedule::new(vec![stage(Shape::Hold(rate("10")), 10)], Spacing::Even);
        let changed = before.changed(3 * SECOND, rate("100"));
        let hits = all(&Arc::new(Arrivals::Open(changed.clone())), Until::default(), 1);
        assert_eq!(hits.len(), 30 + 700);
        assert_eq!(hits[29].due, 2_900_000_000);
        assert_eq!(hits[31].due - hits[30].due, SECOND / 100);
        assert!((changed.rate_at(5 * SECOND) - 100.0).abs() < 1e-9);
    }

    #[test]
    fn what_was_due_in_a_pause_is_not_made_up_for_and_the_rest_is_where_it_was() {
        let ramp = Shape::Ramp { from: 10.0, to: 50.0 };
        let planned = Schedule::new(vec![stage(Shape::Hold(rate("10")), 3), stage(ramp, 2)], Spacing::Even);
        let (from, to) = (1_050_000_000, 2_050_000_000);
        let paused = planned.paused(from);
        assert_eq!(
            (paused.end(), paused.rate_at(from), paused.hits_before(5 * SECOND)),
            (planned.end(), 0.0, 11)
        );
        assert_eq!(paused.paused(from + 1), paused, "it is paused already");
        let resumed = paused.resumed(to);
        let dues = |schedule| {
            let hits = all(&Arc::new(Arrivals::Open(schedule)), Until::default(), 2);
            hits.into_iter().map(|hit| hit.due).collect::<Vec<_>>()
        };
        let expected: Vec<_> =
            dues(planned.clone()).into_iter().filter(|due| !(from..to).contains(due)).collect();
        assert_eq!(dues(resumed.clone()), expected);
        assert_eq!((resumed.rate_at(from), resumed.rate_at(to)), (0.0, 10.0));
        assert_eq!(resumed.hits_before(5 * SECOND), expected.len() as u64);
    }

    #[test]
    fn a_rate_that_is_changed_in_a_pause_holds_when_it_is_over() {
        let planned = Schedule::new(vec![stage(Shape::Hold(rate("10")), 10)], Spacing::Even);
        let changed = planned.paused(SECOND).changed(2 * SECOND, rate("100"));
        assert_eq!((changed.hits_before(10 * SECOND), changed.rate_at(3 * SECOND)), (10, 0.0));
        let resumed = changed.resumed(4 * SECOND);
        assert_eq!((resumed.hits_before(10 * SECOND), resumed.end()), (10 + 600, planned.end()));
    }

    #[test]
    fn a_cursor_waits_for_the_end_of_a_pause_and_no_longer_than_the_schedule_lasts() {
        let planned = Schedule::new(vec![stage(Shape::Hold(rate("10")), 2)], Spacing::Even);
        let open = |schedule: &Schedule| Arc::new(Arrivals::Open(schedule.clone()));
        let closed = || Arc::new(Arrivals::Closed);
        let paused = planned.paused(SECOND);
        for (running, still) in [(open(&planned), open(&paused)), (closed(), closed())] {
            let until = Until { after: 2 * SECOND, hits: u64::MAX };
            let mut cursor = Cursor::new(running, until, 0, 1);
            assert!(matches!(cursor.next(SECOND), Next::Due(_)));
            cursor.replace(still, true);
            while let Next::Due(hit) = cursor.next(SECOND) {
                assert!(hit.due < SECOND);
            }
            assert_eq!(cursor.next(SECOND), Next::Later(2 * SECOND));
            assert_eq!(cursor.next(2 * SECOND), Next::Over);
        }
    }

    #[test]
    fn a_closed_loop_is_always_due_until_it_is_over() {
        let until = Until { after: SECOND, hits: 3 };
        let mut cursor = Cursor::new(Arc::new(Arrivals::Closed), until, 1, 2);
        assert_eq!(cursor.next(5), Next::Due(Hit { seq: 1, due: 5 }));
        assert_eq!(cursor.next(6), Next::Over, "hits 0 and 2 are the other thread's");
        let mut other = Cursor::new(Arc::new(Arrivals::Closed), until, 0, 2);
        assert_eq!(other.next(SECOND), Next::Over);
    }

    #[test]
    fn a_hit_that_rounded_to_the_end_of_its_stage_took_all_that_followed_with_it() {
        let ramp = Stage { shape: Shape::Ramp { from: 0.0, to: 1e6 }, length: Some(SECOND + 1) };
        let hits =
            all(&open(vec![ramp, stage(Shape::Hold(rate("10")), 1)], Spacing::Even), Until::default(), 1);
        assert_eq!(hits.len(), 500_011);
        assert!(hits.is_sorted_by_key(|hit| hit.due));
    }

    #[test]
    fn one_hit_more_was_sent_than_counted_where_a_schedule_ends_just_after_it() {
        let second = Stage { shape: Shape::Hold(rate("1")), length: Some(SECOND + 1) };
        let day = 86_400.0;
        let sine = Shape::Sine { mean: 1.0 / (30.0 * day), amplitude: 1.0 / (30.0 * day), period: 1 };
        for (stages, expected) in [(vec![second], 2), (vec![stage(sine, 1)], 1)] {
            let schedule = Schedule::new(stages.clone(), Spacing::Even);
            assert_eq!(schedule.hits_before(SECOND + 1), expected, "{schedule:?}");
            assert_eq!(all(&open(stages, Spacing::Even), Until::default(), 1).len() as u64, expected);
        }
    }

    #[test]
    fn a_schedule_is_over_when_the_hit_after_its_last_would_be_due() {
        for (spacing, next) in [(Spacing::Even, 20), (Spacing::Burst(50), 20), (Spacing::Poisson(5), 20)] {
            let schedule = Schedule::constant(rate("100"), spacing);
            let over = schedule.over(next, SECOND);
            let planned = if let Spacing::Poisson(_) = spacing {
                all(
                    &Arc::new(Arrivals::Open(schedule.clone())),
                    Until { after: SECOND, ..Until::default() },
                    1,
                )[20]
                    .due
            } else {
                SECOND / 5
            };
            assert_eq!(over, planned, "{spacing:?}");
            assert_eq!(schedule.over(next, over - 1), over - 1);
            assert_eq!(schedule.over(u64::MAX, SECOND), SECOND);
        }
    }

    #[test]
    fn of_more_than_sixteen_million_million_hits_none_were_counted() {
        let schedule = Schedule::constant(rate("5000000"), Spacing::Even);
        let long = 9000 * 3600;
        assert_eq!(schedule.hits_before(long * SECOND), 5_000_000 * long);
        assert_eq!(schedule.over(5_000_000 * long, Nanos::MAX), long * SECOND);
    }

    #[test]
    fn what_one_client_of_a_closed_loop_leaves_the_others_take() {
        let (turn, until) = (Turn::default(), Until { hits: 4, ..Until::default() });
        let cursor = |index| Cursor::new(Arc::new(Arrivals::Closed), until, index, 2).in_turn(turn.clone());
        let (mut slow, mut fast) = (cursor(0), cursor(1));
        assert_eq!(slow.next(1), Next::Due(Hit { seq: 0, due: 1 }));
        for seq in 1..4 {
            assert_eq!(fast.next(seq), Next::Due(Hit { seq, due: seq }));
        }
        assert_eq!((slow.next(5), fast.next(5)), (Next::Over, Next::Over));
    }

    fn any_stage() -> impl Strategy<Value = Stage> {
        let shape =
            prop_oneof![
                (1..500u64, 1..60 * SECOND)
                    .prop_map(|(hits, period)| Shape::Hold(Rate::new(hits, period).unwrap())),
                (0.0..90.0, 0.0..90.0).prop_map(|(from, to)| Shape::Ramp { from, to }),
                (1.0..40.0, 0.0..1.0, SECOND / 10..60 * SECOND)
                    .prop_map(|(mean, share, period)| Shape::Sine { mean, amplitude: mean * share, period }),
            ];
        (shape, 1..60u64).prop_map(|(shape, seconds)| stage(shape, seconds))
    }

    proptest! {
        #[test]
        fn a_held_rate_never_drifts(hits in 1..10_000_000u64, period in 1..1000 * SECOND, seq: u64) {
            let schedule = Schedule::constant(Rate::new(hits, period).unwrap(), Spacing::Even);
            let exact = u128::from(seq) * u128::from(period) / u128::from(hits);
            prop_assert_eq!(schedule.instant(Position::from(seq) << HIT, &mut 0).map(u128::from), u64::try_from(exact).ok().map(u128::from));
        }

        #[test]
        fn a_pause_takes_as_many_hits_as_were_due_in_it(
            stages in prop::collection::vec(any_stage(), 1..5),
            from in 0..10 * SECOND,
            length in 0..10 * SECOND,
        ) {
            let schedule = Schedule::new(stages, Spacing::Even);
            let (to, end) = (from + length, schedule.end().unwrap());
            let resumed = schedule.paused(from).resumed(to);
            let hits = all(&Arc::new(Arrivals::Open(resumed.clone())), Until::default(), 3);
            prop_assert!(hits.iter().all(|hit| !(from..to).contains(&hit.due)));
            prop_assert!(hits.is_sorted_by_key(|hit| hit.due));
            prop_assert_eq!(resumed.hits_before(end), hits.len() as u64);
            let outside = schedule.hits_before(from.min(end)) + schedule.hits_before(end) - schedule.hits_before(to.min(end));
            prop_assert!(outside.abs_diff(hits.len() as u64) <= 1, "{} and not {}", hits.len(), outside);
        }

        #[test]
        fn a_profile_never_drifts(stages in prop::collection::vec(any_stage(), 1..5), threads in 1..5u64) {
            let arrivals = open(stages.clone(), Spacing::Even);
            let schedule = Schedule::new(stages, Spacing::Even);
            let hits = all(&arrivals, Until::default(), threads);
            prop_assert_eq!(schedule.hits_before(schedule.end().unwrap()), hits.len() as u64);
            let mut before = 0;
            for (seq, hit) in hits.iter().enumerate() {
                prop_assert_eq!(hit.seq, seq as u64);
                prop_assert!(hit.due >= before, "{} before {}", hit.due, before);
                before = hit.due;
                // Of some, because each count is a search.
                if seq % 101 == 0 {
                    let sooner = hits.partition_point(|other| other.due < hit.due) as u64;
                    prop_assert_eq!(schedule.hits_before(hit.due), sooner);
                }
            }
        }
    }
}
