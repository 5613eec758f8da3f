//! The state that the threads of a trial share: a command, the live settings, and gauges that each thread writes alone.

use std::num::NonZero;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};

use crate::clock::{Nanos, RunClock, SECOND};
use crate::plan::LoadSpec;
use crate::poller::SenderWaker;
use crate::rate::RequestRate;
use crate::schedule::{ArrivalModel, Schedule, ScheduleShard};

/// The command for the threads. The value only rises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RunCommand {
    Run,
    /// Send nothing more; wait for the requests in flight.
    Drain,
    /// End now; requests in flight are aborted.
    Abort,
}

/// The reason why a run ended before its schedule did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunStopReason {
    /// [`Control::drain`] or [`Control::abort`] was called.
    Commanded,
    /// The error budget was exceeded.
    ErrorBudget,
    /// The reader of the results has gone.
    Results,
}

/// The number of errors after which a run ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ErrorBudget {
    /// More errors than this number.
    Count(u64),
    /// More errors than this share of all outcomes, once there are at least 100 outcomes.
    Share(f64),
}

/// The minimum number of outcomes before the share of errors is checked.
const FEWEST: u64 = 100;

impl ErrorBudget {
    /// True if the run must end because of its errors.
    fn is_spent(self, done: u64, errors: u64) -> bool {
        let telling = matches!(self, Self::Count(_)) || done >= FEWEST;
        telling && self.is_exceeded(done, errors)
    }

    fn is_exceeded(self, done: u64, errors: u64) -> bool {
        match self {
            Self::Count(most) => errors > most,
            Self::Share(most) => errors as f64 > most * done as f64,
        }
    }
}

/// The shared state. Every thread reads it in each turn of its loop; it is written a few times per run.
#[derive(Debug)]
pub(crate) struct ControlState {
    command: AtomicU8,
    /// The time of the first command, in run time, and its reason; unset before the command.
    ended: OnceLock<(Nanos, RunStopReason)>,
    errors: Option<ErrorBudget>,
    /// The number of threads that have come to the end of their schedule.
    over: AtomicUsize,
    revision: AtomicU64,
    /// The live settings. They are behind a lock because they change together and rarely; a thread takes the lock only if the
    /// revision has changed.
    steered: Mutex<LiveSettings>,
    shard: ScheduleShard,
    wakers: Vec<SenderWaker>,
    clock: RunClock,
    pub(crate) gauges: Vec<Gauges>,
    /// The link to senders on other machines, which receive each change of a setting.
    afar: Option<RemoteLink>,
}

/// The link to senders on other machines.
#[derive(Debug)]
struct RemoteLink {
    /// The time between sending a change and its taking effect.
    notice: Nanos,
    changes: Sender<RemoteCommand>,
}

/// A change of the settings of a run whose senders are on other machines.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RemoteCommand {
    /// Changes the rate from this time of the run on.
    Rate(RequestRate, Nanos),
    /// Sets the number of clients of a closed loop.
    Clients(NonZero<usize>),
    /// Pauses from this time of the run on.
    Pause(Nanos),
    /// Ends the pause from this time of the run on.
    Resume(Nanos),
    /// Sends nothing more and waits for the requests in flight.
    Drain,
    /// Ends the run now.
    Abort,
}

/// The settings that can change while a trial runs.
#[derive(Debug, Clone)]
pub(crate) struct LiveSettings {
    pub(crate) arrivals: Arc<ArrivalModel>,
    /// The maximum number of requests in flight.
    pub(crate) max_in_flight: usize,
    /// True during a pause, in which no request is due.
    pub(crate) paused: bool,
}

/// The gauges that one thread writes ten times a second. Each thread's gauges have cache lines of their own, so that the stores
/// of one thread do not slow other threads.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Gauges {
    in_flight: AtomicUsize,
    connections: AtomicUsize,
    done: AtomicU64,
    errors: AtomicU64,
}

impl Gauges {
    pub(crate) fn publish(&self, in_flight: usize, connections: usize, done: u64, errors: u64) {
        self.in_flight.store(in_flight, Ordering::Relaxed);
        self.connections.store(connections, Ordering::Relaxed);
        self.done.store(done, Ordering::Relaxed);
        self.errors.store(errors, Ordering::Relaxed);
    }
}

/// The time by which changes of the schedule are announced ahead, so that every thread knows them in time.
const NOTICE: Nanos = SECOND / 20;

impl ControlState {
    pub(crate) fn new(load: &LoadSpec, wakers: Vec<SenderWaker>, clock: RunClock) -> Self {
        let arrivals = Arc::new(load.arrivals.clone());
        let steered = LiveSettings { arrivals, max_in_flight: load.in_flight_limit.limit, paused: false };
        let gauges = wakers.iter().map(|_| Gauges::default()).collect();
        Self {
            command: AtomicU8::new(RunCommand::Run as u8),
            ended: OnceLock::new(),
            errors: load.error_budget,
            over: AtomicUsize::new(0),
            revision: AtomicU64::new(0),
            steered: Mutex::new(steered),
            shard: load.shard,
            wakers,
            clock,
            gauges,
            afar: None,
        }
    }

    /// Sends a change to the senders on other machines, if there are any.
    fn send_remote_command(&self, change: RemoteCommand) {
        if let Some(afar) = &self.afar {
            // An error means that the receiver has gone, and the run with it.
            let _ = afar.changes.send(change);
        }
    }

    #[inline]
    pub(crate) fn current_command(&self) -> RunCommand {
        match self.command.load(Ordering::Relaxed) {
            0 => RunCommand::Run,
            1 => RunCommand::Drain,
            _ => RunCommand::Abort,
        }
    }

    pub(crate) fn issue_command(&self, command: RunCommand, why: RunStopReason) {
        self.ended.get_or_init(|| (self.clock.now(), why));
        self.command.fetch_max(command as u8, Ordering::Relaxed);
        self.wakers.iter().for_each(SenderWaker::wake);
        match command {
            RunCommand::Run => {}
            RunCommand::Drain => self.send_remote_command(RemoteCommand::Drain),
            RunCommand::Abort => self.send_remote_command(RemoteCommand::Abort),
        }
    }

    /// Returns the time and the reason of the command to end, if there was one.
    pub(crate) fn requested_stop(&self) -> Option<(Nanos, RunStopReason)> {
        self.ended.get().copied()
    }

    /// Records that a thread has come to the end of its schedule or was told to end.
    pub(crate) fn mark_thread_over(&self) {
        self.over.fetch_add(1, Ordering::Relaxed);
    }

    /// True if no thread sends requests any more.
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed) >= self.gauges.len()
    }

    /// Ends the run if it has exceeded its error budget. Each thread calls this after it has published its gauges.
    pub(crate) fn enforce_error_budget(&self) {
        if self.errors.is_some() && self.ended.get().is_none() && self.errors_exceed(ErrorBudget::is_spent) {
            self.issue_command(RunCommand::Drain, RunStopReason::ErrorBudget);
        }
    }

    /// Returns the reason why the run ended before its schedule did, once every thread has ended. The error budget is checked
    /// again here: the last errors may have come after the last check, or before there were enough outcomes for a share.
    pub(crate) fn early_end_reason(&self) -> Option<RunStopReason> {
        let why = self.requested_stop().map(|(_, why)| why);
        why.or_else(|| self.errors_exceed(ErrorBudget::is_exceeded).then_some(RunStopReason::ErrorBudget))
    }

    fn errors_exceed(&self, exceeds: fn(ErrorBudget, u64, u64) -> bool) -> bool {
        let (done, errors) = self.outcomes();
        self.errors.is_some_and(|budget| exceeds(budget, done, errors))
    }

    /// Returns the number of outcomes, and the number of those that are not good.
    fn outcomes(&self) -> (u64, u64) {
        let sum = |gauge: fn(&Gauges) -> &AtomicU64| -> u64 {
            self.gauges.iter().map(|gauges| gauge(gauges).load(Ordering::Relaxed)).sum()
        };
        (sum(|gauges| &gauges.done), sum(|gauges| &gauges.errors))
    }

    /// Returns the live settings if they changed since `revision`.
    #[inline]
    pub(crate) fn settings_if_changed(&self, revision: u64) -> Option<(u64, LiveSettings)> {
        let current = self.revision.load(Ordering::Acquire);
        (current != revision).then(|| (current, self.lock().clone()))
    }

    pub(crate) fn arrivals(&self) -> Arc<ArrivalModel> {
        Arc::clone(&self.lock().arrivals)
    }

    fn lock(&self) -> MutexGuard<'_, LiveSettings> {
        self.steered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the live settings and wakes every thread.
    fn change_settings<R>(&self, change: impl FnOnce(&mut LiveSettings) -> R) -> R {
        let mut steered = self.lock();
        let result = change(&mut steered);
        self.revision.fetch_add(1, Ordering::Release);
        drop(steered);
        self.wakers.iter().for_each(SenderWaker::wake);
        result
    }

    /// Returns the earliest instant that every thread learns of in time.
    fn soonest(&self) -> Nanos {
        let notice = self.afar.as_ref().map_or(NOTICE, |afar| afar.notice);
        self.clock.now().saturating_add(notice)
    }

    /// Changes the schedule from `from` on. Returns false in a closed loop, which has no schedule, and when the schedule is over,
    /// because no thread would send the requests.
    fn reschedule(
        &self,
        steered: &mut LiveSettings,
        from: Nanos,
        change: impl FnOnce(&Schedule, Nanos) -> Schedule,
    ) -> bool {
        let ArrivalModel::Open(schedule) = &*steered.arrivals else { return false };
        if self.is_over() {
            return false;
        }
        steered.arrivals = Arc::new(ArrivalModel::Open(change(schedule, from)));
        true
    }
}

/// The controller of a run. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Control(pub(crate) Arc<ControlState>);

impl Control {
    /// Stops sending and waits for the requests in flight.
    pub fn drain(&self) {
        self.0.issue_command(RunCommand::Drain, RunStopReason::Commanded);
    }

    /// Ends the run now; requests in flight are counted as aborted.
    pub fn abort(&self) {
        self.0.issue_command(RunCommand::Abort, RunStopReason::Commanded);
    }

    /// Ends the run because the reader of the results has gone.
    pub(crate) fn end_without_reader(&self) {
        self.0.issue_command(RunCommand::Drain, RunStopReason::Results);
    }

    /// True once a command to end was given.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.0.current_command() != RunCommand::Run
    }

    /// True once a command to end was given, or every sender has come to the end of its schedule.
    #[must_use]
    pub fn has_stopped_sending(&self) -> bool {
        self.is_ending() || self.0.is_over()
    }

    /// Changes the rate from now on. With a shard, `rate` is the rate of the whole schedule. Returns false in a closed loop,
    /// which has no rate, and when the schedule is over.
    #[must_use]
    pub fn set_rate(&self, rate: RequestRate) -> bool {
        self.set_rate_from(self.earliest_change_time(), rate)
    }

    /// Changes the rate from `from` on, which may be in the past. Generators that change at the same instant go on sending shards
    /// of one schedule. A sender that learns of the change [too late](Self::lateness_if_changed_from) still applies it from `from` on,
    /// so that each request is sent exactly once: requests that were due since then are late.
    #[must_use]
    pub fn set_rate_from(&self, from: Nanos, rate: RequestRate) -> bool {
        let has_changed = self.0.change_settings(|steered| {
            self.0.reschedule(steered, from, |schedule, at| schedule.with_rate_from(at, rate))
        });
        if has_changed {
            self.0.send_remote_command(RemoteCommand::Rate(rate, from));
        }
        has_changed
    }

    /// Returns the earliest time of the run for a change that every thread learns of in time.
    #[must_use]
    pub fn earliest_change_time(&self) -> Nanos {
        self.0.soonest()
    }

    /// Returns the time by which a change from `from` on would be late; 0 if it is in time.
    #[must_use]
    pub fn lateness_if_changed_from(&self, from: Nanos) -> Nanos {
        self.earliest_change_time().saturating_sub(from)
    }

    /// Sets the number of clients of a closed loop from now on. Requests in flight beyond that number are completed. Returns
    /// false in an open loop.
    #[must_use]
    pub fn set_concurrency(&self, clients: NonZero<usize>) -> bool {
        let has_changed = self.0.change_settings(|steered| {
            let closed = matches!(*steered.arrivals, ArrivalModel::Closed);
            steered.max_in_flight = if closed { clients.get() } else { steered.max_in_flight };
            closed
        });
        if has_changed {
            self.0.send_remote_command(RemoteCommand::Clients(clients));
        }
        has_changed
    }

    /// Pauses the schedule until [`Control::resume`]; requests in flight go on. The end of the schedule does not move, and
    /// requests that would have been due are not sent later.
    pub fn pause(&self) {
        self.pause_from(self.earliest_change_time());
    }

    /// Pauses the schedule from `from` on; a closed loop, which has no schedule, pauses at once.
    pub fn pause_from(&self, from: Nanos) {
        self.0.change_settings(|steered| {
            steered.paused = true;
            self.0.reschedule(steered, from, Schedule::with_pause_from)
        });
        self.0.send_remote_command(RemoteCommand::Pause(from));
    }

    /// Ends a pause.
    pub fn resume(&self) {
        self.resume_from(self.earliest_change_time());
    }

    /// Ends a pause from `from` on; in a closed loop, at once.
    pub fn resume_from(&self, from: Nanos) {
        self.0.change_settings(|steered| {
            steered.paused = false;
            self.0.reschedule(steered, from, Schedule::with_resume_from)
        });
        self.0.send_remote_command(RemoteCommand::Resume(from));
    }

    /// True if the run is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.0.lock().paused
    }

    /// Returns the maximum number of requests in flight.
    #[must_use]
    pub fn concurrency(&self) -> usize {
        self.0.lock().max_in_flight
    }

    /// Returns the number of requests whose outcome is known, and the number of those that are not good, as of the last tenth of
    /// a second.
    #[must_use]
    pub fn completed_and_errors(&self) -> (u64, u64) {
        self.0.outcomes()
    }

    /// Returns the number of requests of this run that are due before `at`. The run ends at `end`, after `hits` requests of the
    /// whole schedule, or at a command, whichever comes first. Returns `None` in a closed loop.
    #[must_use]
    pub fn due_before(&self, at: Nanos, end: Option<Nanos>, hits: Option<u64>) -> Option<u64> {
        let arrivals = self.0.arrivals();
        let ArrivalModel::Open(schedule) = &*arrivals else { return None };
        let told = self.0.requested_stop().map(|(told, _)| told);
        let at = [end, told].into_iter().flatten().fold(at, Nanos::min);
        Some(self.0.shard.requests_among(schedule.hits_before(at).min(hits.unwrap_or(u64::MAX))))
    }

    /// Returns the present rate of this run's schedule, in requests per second; `None` in a closed loop.
    #[must_use]
    pub fn offered_rate(&self) -> Option<f64> {
        match &*self.0.arrivals() {
            ArrivalModel::Open(schedule) => {
                Some(schedule.rate_at(self.0.clock.now()) / self.0.shard.shard_count() as f64)
            }
            ArrivalModel::Closed => None,
        }
    }

    /// Returns the number of requests in flight, as of the last tenth of a second.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.0.gauges.iter().map(|gauges| gauges.in_flight.load(Ordering::Relaxed)).sum()
    }

    /// Returns the number of connections, open or being opened, as of the last tenth of a second.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.0.gauges.iter().map(|gauges| gauges.connections.load(Ordering::Relaxed)).sum()
    }

    /// Returns the time since the run began.
    #[must_use]
    pub fn elapsed(&self) -> Nanos {
        self.0.clock.now()
    }
}

/// The state of a run whose senders are on other machines. Its [`Control`] works like that of a local run and sends each change
/// through a channel.
#[derive(Debug, Clone)]
pub struct RemoteSendersRunState(Arc<ControlState>);

impl RemoteSendersRunState {
    /// Makes the control state of a load that begins when `clock` shows `at`. Each change is sent `notice` before it takes
    /// effect.
    #[must_use]
    pub fn new(
        load: &LoadSpec,
        clock: RunClock,
        at: Nanos,
        notice: Nanos,
        changes: Sender<RemoteCommand>,
    ) -> Self {
        let shared = ControlState::new(load, Vec::new(), clock.starting_at(at));
        let (gauges, afar) = (vec![Gauges::default()], Some(RemoteLink { notice, changes }));
        Self(Arc::new(ControlState { gauges, afar, ..shared }))
    }

    /// Returns the controller of the run.
    #[must_use]
    pub fn control(&self) -> Control {
        Control(Arc::clone(&self.0))
    }

    /// Publishes the gauges of all senders: requests in flight, connections, outcomes, and the outcomes that are not good.
    pub fn publish_sender_gauges(&self, in_flight: usize, connections: usize, done: u64, errors: u64) {
        if let Some(gauges) = self.0.gauges.first() {
            gauges.publish(in_flight, connections, done, errors);
        }
        self.0.enforce_error_budget();
    }

    /// Records that all senders have come to the end of the schedule or were told to end.
    pub fn mark_sending_stopped(&self) {
        self.0.mark_thread_over();
    }

    /// Returns the time and the reason of the command to end, if there was one.
    #[must_use]
    pub fn requested_stop(&self) -> Option<(Nanos, RunStopReason)> {
        self.0.requested_stop()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::schedule::ArrivalSpacing;

    #[test]
    fn what_is_steered_of_a_run_elsewhere_is_told_there_and_known_here() {
        let rate = |hits| RequestRate::new(hits, SECOND).unwrap();
        let schedule = Schedule::constant(rate(100), ArrivalSpacing::Constant);
        let load = LoadSpec::new(ArrivalModel::Open(schedule), 10);
        let (changes, told) = channel();
        let run = RemoteSendersRunState::new(&load, RunClock::start(), 0, SECOND, changes);
        let control = run.control();
        assert!(control.set_rate(rate(200)));
        let Ok(RemoteCommand::Rate(_, from)) = told.try_recv() else { panic!("told") };
        assert!(from >= SECOND);
        let due = |at| control.due_before(at, None, None).unwrap();
        assert!((due(from + SECOND) - due(from)).abs_diff(200) <= 1);
        assert!(!control.set_concurrency(NonZero::<usize>::MIN), "it has a rate");
        control.pause();
        assert!(matches!(told.try_recv(), Ok(RemoteCommand::Pause(_))));
        control.drain();
        control.abort();
        assert_eq!([told.try_recv(), told.try_recv()], [Ok(RemoteCommand::Drain), Ok(RemoteCommand::Abort)]);
        run.publish_sender_gauges(3, 4, 5, 1);
        assert_eq!(
            (control.in_flight(), control.connections(), control.completed_and_errors()),
            (3, 4, (5, 1))
        );
        run.mark_sending_stopped();
        assert!(control.has_stopped_sending() && !control.set_rate(rate(1)), "nobody would send it");
    }

    #[test]
    fn a_share_of_errors_counts_once_there_are_enough_outcomes() {
        assert!(!ErrorBudget::Share(0.1).is_spent(50, 50));
        assert!(!ErrorBudget::Share(0.1).is_spent(100, 10));
        assert!(ErrorBudget::Share(0.1).is_spent(100, 11));
        assert!(ErrorBudget::Count(0).is_spent(1, 1) && !ErrorBudget::Count(1).is_spent(1, 1));
    }
}
