//! One thread's way through the arrivals: which hit is due now, and which is this thread's next.
//!
//! Knows no clock: the shard says what time it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::poisson::{Process, Walk};
use super::{Arrivals, HIT, Hit, Next, Position, Schedule, Slice, Spacing, Until};
use crate::clock::Nanos;

/// One thread's way through the arrivals: every n-th hit, or in a closed loop whichever is next.
#[derive(Debug)]
pub struct Cursor {
    arrivals: Arc<Arrivals>,
    until: Until,
    turn: Turn,
    seq: u64,
    stride: u64,
    stage: usize,
    walk: Option<Walk>,
    due: Option<Nanos>,
    /// Nothing is due for the time being.
    paused: bool,
}

impl Cursor {
    /// The way of thread `index` of `stride`.
    #[must_use]
    pub fn new(arrivals: Arc<Arrivals>, until: Until, index: u64, stride: u64) -> Self {
        let walk = match &*arrivals {
            Arrivals::Open(Schedule { spacing: Spacing::Poisson(seed), .. }) => {
                Some(Walk::to(Process::new(*seed), index))
            }
            _ => None,
        };
        let turn = Turn::every(stride, index);
        let mut cursor =
            Self { arrivals, until, turn, seq: index, stride, stage: 0, walk, due: None, paused: false };
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
        if let Some(walk) = &mut self.walk {
            walk.skip(self.stride);
        }
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

    /// No hits from this one on: the input has ended.
    pub fn cut(&mut self, seq: u64) {
        self.until.hits = self.until.hits.min(seq);
    }

    /// When the schedule is over, apart from commands; a closed loop that ends with its hits goes on to the last answer.
    #[must_use]
    pub fn over(&self) -> Nanos {
        match &*self.arrivals {
            Arrivals::Closed => self.until.after,
            Arrivals::Open(schedule) => schedule.over(self.until.hits, self.latest()),
        }
    }

    fn instant(&mut self) -> Option<Nanos> {
        let Arrivals::Open(schedule) = &*self.arrivals else { return Some(0) };
        let position = match schedule.spacing {
            Spacing::Even => Position::from(self.seq) << HIT,
            Spacing::Burst(size) => Position::from(self.seq - self.seq % size.max(1)) << HIT,
            Spacing::Poisson(_) => self.walk.as_ref().map_or(0, Walk::position),
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
        Self::of(Slice::default())
    }
}

impl Turn {
    /// Through the hits of a slice.
    #[must_use]
    pub fn of(slice: Slice) -> Self {
        let (first, step) = slice.thread(0, 1);
        Self::every(step, first)
    }

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
