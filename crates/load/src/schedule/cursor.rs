//! One thread's position in the arrivals: the request that is due now, and this thread's next request.
//!
//! Reads no clock: the sender passes the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::poisson::{PoissonCursor, PoissonProcess};
use super::{
    Arrival, ArrivalModel, ArrivalSpacing, HIT, NextArrival, Position, Schedule, ScheduleShard, StopCondition,
};
use crate::clock::Nanos;

/// One thread's position in the arrivals: it returns every n-th request, or in a closed loop the next one of all threads.
#[derive(Debug)]
pub struct ScheduleCursor {
    arrivals: Arc<ArrivalModel>,
    until: StopCondition,
    turn: SequenceCounter,
    seq: u64,
    stride: u64,
    stage: usize,
    walk: Option<PoissonCursor>,
    due: Option<Nanos>,
    /// True during a pause, in which no request is due.
    paused: bool,
}

impl ScheduleCursor {
    /// Makes the cursor of thread `index`, which returns every `stride`-th request.
    #[must_use]
    pub fn new(arrivals: Arc<ArrivalModel>, until: StopCondition, index: u64, stride: u64) -> Self {
        let walk = match &*arrivals {
            ArrivalModel::Open(Schedule { spacing: ArrivalSpacing::Poisson(seed), .. }) => {
                Some(PoissonCursor::at_hit(PoissonProcess::new(*seed), index))
            }
            _ => None,
        };
        let turn = SequenceCounter::every(stride, index);
        let mut cursor =
            Self { arrivals, until, turn, seq: index, stride, stage: 0, walk, due: None, paused: false };
        cursor.due = cursor.instant();
        cursor
    }

    /// Makes the cursor of a closed loop take its requests from a counter that the threads share, instead of every n-th.
    #[must_use]
    pub fn with_shared_counter(self, turn: SequenceCounter) -> Self {
        Self { turn, ..self }
    }

    /// Returns the request that is due at `now`. Each request is returned once.
    #[inline]
    pub fn next(&mut self, now: Nanos) -> NextArrival {
        if self.is_closed() {
            return self.next_with_room(now);
        }
        let Some(due) =
            self.due.filter(|due| self.seq < self.until.max_requests && *due < self.until.stop_time)
        else {
            return self.standing(now);
        };
        if due > now {
            return NextArrival::Later(due);
        }
        let hit = Arrival { seq: self.seq, due };
        self.seq += self.stride;
        if let Some(walk) = &mut self.walk {
            walk.skip(self.stride);
        }
        self.due = self.instant();
        NextArrival::Due(hit)
    }

    /// Returns the next request of a closed loop. It is due as soon as there is room for it, which is when the sender asks.
    fn next_with_room(&mut self, now: Nanos) -> NextArrival {
        if self.paused || now >= self.until.stop_time {
            return self.standing(now);
        }
        let seq = self.turn.take();
        if seq < self.until.max_requests {
            NextArrival::Due(Arrival { seq, due: now })
        } else {
            NextArrival::Over
        }
    }

    /// Returns the result if no request is due. A pause can end and make requests due, but it does not move the end of the
    /// schedule.
    #[cold]
    fn standing(&self, now: Nanos) -> NextArrival {
        if self.paused && !self.is_over(now) { NextArrival::Later(self.latest()) } else { NextArrival::Over }
    }

    /// True if no further request will be due.
    #[must_use]
    pub fn is_over(&self, now: Nanos) -> bool {
        let next = if self.is_closed() { self.turn.next() } else { self.seq };
        next >= self.until.max_requests || now >= self.latest()
    }

    /// Returns the end of the schedule, apart from a number of requests.
    fn latest(&self) -> Nanos {
        let planned = match &*self.arrivals {
            ArrivalModel::Closed => None,
            ArrivalModel::Open(schedule) => schedule.end,
        };
        planned.unwrap_or(Nanos::MAX).min(self.until.stop_time)
    }

    /// Replaces the arrivals, and pauses or resumes. The number of the next request does not change.
    pub fn replace(&mut self, arrivals: Arc<ArrivalModel>, paused: bool) {
        self.arrivals = arrivals;
        self.paused = paused;
        self.stage = 0;
        self.due = self.instant();
    }

    fn is_closed(&self) -> bool {
        matches!(*self.arrivals, ArrivalModel::Closed)
    }

    /// Ends the schedule before this request, because the input has ended.
    pub fn stop_at_request(&mut self, seq: u64) {
        self.until.max_requests = self.until.max_requests.min(seq);
    }

    /// Returns the end of the schedule, apart from commands; a closed loop that ends after a number of requests ends with the
    /// last response.
    #[must_use]
    pub fn schedule_end(&self) -> Nanos {
        match &*self.arrivals {
            ArrivalModel::Closed => self.until.stop_time,
            ArrivalModel::Open(schedule) => schedule.end_after_hits(self.until.max_requests, self.latest()),
        }
    }

    fn instant(&mut self) -> Option<Nanos> {
        let ArrivalModel::Open(schedule) = &*self.arrivals else { return Some(0) };
        let position = match schedule.spacing {
            ArrivalSpacing::Constant => Position::from(self.seq) << HIT,
            ArrivalSpacing::Burst(size) => Position::from(self.seq - self.seq % size.max(1)) << HIT,
            ArrivalSpacing::Poisson(_) => self.walk.as_ref().map_or(0, PoissonCursor::position),
        };
        schedule.instant(position, &mut self.stage)
    }
}

/// The number of the next request of a closed loop, shared by all its threads. A thread whose responses come late, or that has
/// fewer clients, takes fewer requests. With separate counters, the other threads would be idle at the end until the slowest has
/// sent its share.
#[derive(Debug, Clone)]
pub struct SequenceCounter {
    next: Arc<AtomicU64>,
    step: u64,
}

impl Default for SequenceCounter {
    fn default() -> Self {
        Self::for_shard(ScheduleShard::default())
    }
}

impl SequenceCounter {
    /// Makes a counter of the requests of a shard.
    #[must_use]
    pub fn for_shard(shard: ScheduleShard) -> Self {
        let (first, step) = shard.thread_offset_and_stride(0, 1);
        Self::every(step, first)
    }

    fn every(step: u64, first: u64) -> Self {
        Self { next: Arc::new(first.into()), step }
    }

    /// The order is relaxed, because the threads share nothing but the number.
    fn take(&self) -> u64 {
        self.next.fetch_add(self.step, Ordering::Relaxed)
    }

    fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }
}
