//! A trial dealt out: to each thread its share of the schedule and of the bound, and books of its own.
//!
//! Made for one trial by [`crate::session`], and used up when every thread has its part.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::books::{Books, Collection, Counting, Harvest};
use crate::clock::RunClock;
use crate::control::Shared;
use crate::plan::Load;
use crate::recorder::{Batch, Patience, Recorder, WhenFull};
use crate::schedule::{Cursor, Slice, Turn, Until};
use crate::session::share;
use crate::shard::{Part, Rules};
use crate::stats::Stats;
use crate::supply::Supply;
use crate::transport::exchange::Keep;

/// What every thread of a trial gets its share of.
pub(crate) struct Parts {
    /// The trial's number in its session.
    pub(crate) trial: u64,
    size: usize,
    /// The session's.
    clock: RunClock,
    shared: Arc<Shared>,
    until: Until,
    slice: Slice,
    turn: Turn,
    rules: Rules,
    counting: Counting,
    keep: Keep,
    /// The way to the thread that writes records, if anybody wants them.
    pub(crate) batches: Option<(Sender<Batch>, WhenFull)>,
    to_collector: Sender<Harvest>,
    /// What the threads hand over.
    pub(crate) harvest: Receiver<Harvest>,
    /// The way back for what they handed over, by thread.
    pub(crate) spares: Vec<Sender<Box<Stats>>>,
}

impl Parts {
    /// For so many threads, by the clock of the session.
    pub(crate) fn new(
        size: usize,
        load: &Load,
        rules: Rules,
        keep: Keep,
        (clock, shared): (RunClock, Arc<Shared>),
    ) -> Self {
        let (to_collector, harvest) = channel();
        Self {
            trial: 0,
            size,
            clock,
            shared,
            until: load.until,
            slice: load.slice,
            turn: Turn::of(load.slice),
            counting: load.counting(rules.begins),
            rules,
            keep,
            batches: None,
            to_collector,
            harvest,
            spares: Vec::new(),
        }
    }

    /// Records keep so many bytes of each body, and may say what carried them.
    pub(crate) fn of_records(&mut self, max_body: usize, carriage: bool) {
        (self.counting.max_body, self.counting.carriage) = (max_body, carriage);
    }

    /// What the next thread has to do, which sends from this.
    pub(crate) fn next(&mut self, supply: Supply) -> Part {
        let index = self.spares.len();
        let (spare_sender, spare) = channel();
        // One box is on its way while the other is being filled.
        let _ = spare_sender.send(Stats::reserved());
        self.spares.push(spare_sender);
        let collection = Collection { shard: index, harvest: self.to_collector.clone(), spare };
        Part {
            index,
            trial: self.trial,
            shared: Arc::clone(&self.shared),
            rules: Rules { in_flight: share(self.rules.in_flight, index, self.size), ..self.rules.clone() },
            cursor: self.cursor(index as u64, &supply),
            supply,
            keep: self.keep,
            books: Books::new(self.counting.clone(), self.clock, self.recorder(), collection),
        }
    }

    /// What is read during the run is dealt out beforehand, every n-th request to a thread.
    fn cursor(&self, index: u64, supply: &Supply) -> Cursor {
        let (first, stride) = self.slice.thread(index, self.size as u64);
        let cursor = Cursor::new(self.shared.arrivals(), self.until, first, stride);
        if supply.is_read_ahead() { cursor } else { cursor.in_turn(self.turn.clone()) }
    }

    fn recorder(&self) -> Option<Recorder> {
        let (full, when_full) = self.batches.as_ref()?;
        let patience = Patience::new(Arc::clone(&self.shared), self.clock);
        Some(Recorder::new(full.clone(), *when_full, patience))
    }
}
