//! Divides a trial between threads: each gets its share of the schedule and of the in-flight bound, and its own accounting.
//!
//! Made for one trial by [`crate::load_session`], and used up when every thread has its part.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::clock::RunClock;
use crate::control::ControlState;
use crate::load_session::thread_share;
use crate::plan::LoadSpec;
use crate::record_output::{RecordBatch, Recorder, SlowOutputPolicy, WriterTimeout};
use crate::request_accounting::{Accounting, AccountingConfig, CollectorLink, SenderReport};
use crate::request_source::SenderRequests;
use crate::schedule::{ScheduleCursor, ScheduleShard, SequenceCounter, StopCondition};
use crate::sender::{SenderConfig, SenderTask};
use crate::stats::LoadStats;
use crate::transport::response_parser::CaptureOptions;

/// Builds the part of a trial for each thread.
pub(crate) struct SenderTaskBuilder {
    /// The trial's number in its session.
    pub(crate) trial_number: u64,
    size: usize,
    /// The clock of the session.
    clock: RunClock,
    shared: Arc<ControlState>,
    until: StopCondition,
    shard: ScheduleShard,
    turn: SequenceCounter,
    rules: SenderConfig,
    counting: AccountingConfig,
    keep: CaptureOptions,
    /// The channel to the thread that writes records, if the run has results.
    pub(crate) record_sender: Option<(Sender<RecordBatch>, SlowOutputPolicy)>,
    to_collector: Sender<SenderReport>,
    /// The channel of the threads' reports.
    pub(crate) report_receiver: Receiver<SenderReport>,
    /// The channels on which each thread gets empty figures back, by thread.
    pub(crate) spare_stats_senders: Vec<Sender<Box<LoadStats>>>,
}

impl SenderTaskBuilder {
    /// Makes a builder for this number of threads, with the clock of the session.
    pub(crate) fn new(
        size: usize,
        load: &LoadSpec,
        rules: SenderConfig,
        keep: CaptureOptions,
        (clock, shared): (RunClock, Arc<ControlState>),
    ) -> Self {
        let (to_collector, harvest) = channel();
        Self {
            trial_number: 0,
            size,
            clock,
            shared,
            until: load.stop_condition,
            shard: load.shard,
            turn: SequenceCounter::for_shard(load.shard),
            counting: load.accounting_config(rules.trial_start),
            rules,
            keep,
            record_sender: None,
            to_collector,
            report_receiver: harvest,
            spare_stats_senders: Vec::new(),
        }
    }

    /// Sets the number of body bytes in a record, and whether records contain the timings of the connection.
    pub(crate) fn set_record_contents(
        &mut self,
        max_body: usize,
        carriage: bool,
        warn_of_cut_body: Option<fn(u64)>,
    ) {
        self.counting.cut_body_callback = warn_of_cut_body;
        (self.counting.max_body, self.counting.write_connection_timings) = (max_body, carriage);
    }

    /// Returns the task of the next thread, which takes its requests from `supply`.
    pub(crate) fn next(&mut self, supply: SenderRequests) -> SenderTask {
        let index = self.spare_stats_senders.len();
        let (spare_sender, spare) = channel();
        // One value is on its way while the other is being filled.
        let _ = spare_sender.send(LoadStats::preallocated());
        self.spare_stats_senders.push(spare_sender);
        let collection = CollectorLink {
            sender_index: index,
            report_channel: self.to_collector.clone(),
            spare_stats_channel: spare,
        };
        SenderTask {
            index,
            trial_number: self.trial_number,
            control_state: Arc::clone(&self.shared),
            config: SenderConfig {
                max_in_flight: thread_share(self.rules.max_in_flight, index, self.size),
                ..self.rules.clone()
            },
            cursor: self.cursor(index as u64, &supply),
            requests: supply,
            capture: self.keep,
            accounting: Accounting::new(self.counting.clone(), self.clock, self.recorder(), collection),
        }
    }

    /// Returns the thread's position in the schedule. Requests that are read during the run are assigned in advance: every n-th
    /// request goes to one thread.
    fn cursor(&self, index: u64, supply: &SenderRequests) -> ScheduleCursor {
        let (first, stride) = self.shard.thread_offset_and_stride(index, self.size as u64);
        let cursor = ScheduleCursor::new(self.shared.arrivals(), self.until, first, stride);
        if supply.is_read_during_run() { cursor } else { cursor.with_shared_counter(self.turn.clone()) }
    }

    fn recorder(&self) -> Option<Recorder> {
        let (full, on_slow_output) = self.record_sender.as_ref()?;
        let patience = WriterTimeout::new(Arc::clone(&self.shared), self.clock);
        Some(Recorder::new(full.clone(), *on_slow_output, patience))
    }
}
