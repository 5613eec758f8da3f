//! A run's threads: starts them, gathers what they measured, ends with the last of them.
//!
//! The caller (the tool's `attack`, the search methods) describes a [`Plan`], gets a [`Running`], and takes a
//! [`Tick`] per second from it until there is none. What is asked is [`crate::plan`]'s, what it means
//! [`crate::outcome`]'s.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::books::{Books, Collection, Counting, Harvest};
use crate::clock::{Nanos, RunClock, nanos};
use crate::control::{Control, Shared};
use crate::flights::Flights;
use crate::outcome::{Outcome, Tick, handed_out};
use crate::plan::{Plan, Results, Travel};
use crate::poller::{Poller, Waker};
use crate::recorder::{self, Batch, Patience, Recorder, WhenFull};
use crate::request::{Origin, Style};
use crate::resolve::{self, Dial, Found, Question};
use crate::results::EncodeError;
use crate::schedule::{Arrivals, Cursor, Drawn, Turn, Until};
use crate::shard::{Progress, Rules, Shard};
use crate::stats::{Histogram, Stats};
use crate::supply::{Exhausted, Feed, Source, Supply, feed_all};
use crate::tls;
use crate::transport::exchange::Keep;
use crate::transport::making::{Limits, Making};
use crate::transport::pool::Pool;
use crate::transport::routes::{Resolver, Routes};
use crate::transport::sources::Sources;

/// Why a run did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system refused a thread or a descriptor.
    #[error("the system refuses what a run needs: {0}")]
    System(#[from] io::Error),
}

/// Starts a run. The first hit is due some milliseconds later, when every thread is there.
///
/// # Errors
/// [`StartError`]; nothing has been sent then.
pub fn start(plan: Plan, results: Option<Results>) -> Result<Running, StartError> {
    let threads = plan.threads.min(plan.in_flight.most).min(plan.travel.connections).max(1);
    let dial = Arc::new(plan.travel.dial.clone());
    let mut total = *Stats::reserved();
    let known = known_addresses(&plan.source, &dial, &mut total.lookup);
    if let Some(config) = &plan.travel.tls {
        tls::seed(config);
    }
    let clock = RunClock::starting_in(MUSTER * threads as u32);
    let pollers =
        (0..threads).map(|_| Poller::new(clock)).collect::<Result<Vec<_>, _>>().map_err(io::Error::from)?;
    let arrivals = Arc::new(plan.arrivals.clone());
    let wakers = pollers.iter().map(Poller::waker).collect();
    let shared = Arc::new(Shared::new(Arc::clone(&arrivals), wakers, clock, plan.errors));
    let keep = Keep {
        location: plan.travel.redirects.is_some(),
        record: results.as_ref().map(|results| results.max_body),
    };
    let writer = results.map(|results| Writer::spawn(results, Control(Arc::clone(&shared)))).transpose()?;
    let (rules, counting) = (plan.rules(), plan.counting());
    // What is read during the run is dealt out beforehand, every n-th request to a thread.
    let turn = matches!(plan.source, Source::List(_)).then(Turn::default);
    let (supplies, exhausted) = supplies(plan.source, &plan.style, &pollers)?;
    let (harvest_sender, harvest) = channel();
    let mut crew = Crew {
        size: threads,
        clock,
        shared,
        known,
        arrivals,
        until: plan.until,
        turn,
        rules,
        counting,
        making: making(&plan.travel, Arc::clone(&dial)),
        travel: plan.travel,
        keep,
        questions: resolve::spawn(dial)?,
        batches: writer.as_ref().map(|writer| (writer.batches.clone(), writer.when_full)),
        harvest: harvest_sender,
        spares: Vec::new(),
        threads: Vec::new(),
    };
    for (poller, supply) in pollers.into_iter().zip(supplies) {
        crew.enlist(poller, supply)?;
    }
    Ok(crew.running(harvest, total, writer.map(|writer| writer.written), exhausted))
}

/// Time given to each thread to be there, its batches made, before the first hit is due.
const MUSTER: Duration = Duration::from_millis(5);

/// What every thread of a run gets its share of.
struct Crew {
    size: usize,
    clock: RunClock,
    shared: Arc<Shared>,
    known: HashMap<Origin, Found>,
    arrivals: Arc<Arrivals>,
    until: Until,
    turn: Option<Turn>,
    rules: Rules,
    counting: Counting,
    travel: Travel,
    making: Making,
    keep: Keep,
    questions: Sender<Question>,
    batches: Option<(Sender<Batch>, WhenFull)>,
    harvest: Sender<Harvest>,
    spares: Vec<Sender<Box<Stats>>>,
    threads: Vec<JoinHandle<Drawn>>,
}

impl Crew {
    /// The run, once all threads are there.
    fn running(
        self,
        harvest: Receiver<Harvest>,
        total: Stats,
        written: Option<Receiver<Result<u64, EncodeError>>>,
        exhausted: Option<Receiver<Exhausted>>,
    ) -> Running {
        Running {
            control: Control(self.shared),
            clock: self.clock,
            warm_up: self.counting.warm_up,
            end: self.rules.end,
            until: self.until,
            harvest,
            spares: self.spares,
            alive: self.threads.len(),
            ended: None,
            threads: self.threads,
            total,
            since_tick: *Stats::reserved(),
            peaks: vec![0; self.size],
            written,
            exhausted,
        }
    }

    /// Starts the next thread.
    fn enlist(&mut self, poller: Poller, supply: Supply) -> io::Result<()> {
        let index = self.threads.len();
        let (limits, making) = (self.limits(index), self.making.clone());
        let resolver = self.resolver(poller.waker());
        let mut routes = Routes::new(&self.known, making, limits.sources.clone(), resolver);
        routes.list(supply.listed());
        let pool = Pool::new(poller, routes, limits, self.keep);
        let (spare_sender, spare) = channel();
        // One box is on its way while the other is being filled.
        let _ = spare_sender.send(Stats::reserved());
        self.spares.push(spare_sender);
        let recorder = self.batches.as_ref();
        let patience = || Patience::new(Arc::clone(&self.shared), self.clock);
        let recorder = recorder.map(|(full, policy)| Recorder::new(full.clone(), *policy, patience()));
        let collection = Collection { shard: index, harvest: self.harvest.clone(), spare };
        let shard = Shard {
            index,
            clock: self.clock,
            shared: Arc::clone(&self.shared),
            rules: Rules { in_flight: share(self.rules.in_flight, index, self.size), ..self.rules.clone() },
            cursor: self.cursor(index as u64),
            supply,
            pool,
            flights: Flights::new(),
            books: Books::new(self.counting.clone(), self.clock, recorder, collection),
            progress: Progress::default(),
        };
        let thread = std::thread::Builder::new().name(format!("sender {index}"));
        self.threads.push(thread.spawn(move || shard.run())?);
        Ok(())
    }

    fn cursor(&self, index: u64) -> Cursor {
        let cursor = Cursor::new(Arc::clone(&self.arrivals), self.until, index, self.size as u64);
        match &self.turn {
            Some(turn) => cursor.in_turn(turn.clone()),
            None => cursor,
        }
    }

    fn limits(&self, index: usize) -> Limits {
        let travel = &self.travel;
        Limits {
            connections: share(travel.connections, index, self.size),
            idle: if travel.keep_alive { share(travel.idle, index, self.size) } else { 0 },
            requests: if travel.keep_alive { travel.requests_per_connection } else { 1 },
            age: travel.connection_age.map_or(Nanos::MAX, nanos),
            http2_connections: travel.http2.connections,
            step: travel.timeout.map_or(Nanos::MAX, nanos),
            sources: Sources::new(travel.sources.clone(), index),
        }
    }

    fn resolver(&self, waker: Waker) -> Resolver {
        let (reply, replies) = channel();
        Resolver { questions: self.questions.clone(), reply, replies, waker, asked: 0 }
    }
}

/// The part of a whole number that falls to one of several; no limit stays no limit.
fn share(whole: usize, index: usize, of: usize) -> usize {
    if whole == usize::MAX { whole } else { whole / of + usize::from(index < whole % of) }
}

fn making(travel: &Travel, dial: Arc<Dial>) -> Making {
    Making {
        tls: travel.tls.clone(),
        http2: travel.http2.over_tls,
        h2c: travel.http2.clear,
        streams: travel.http2.streams,
        dial,
    }
}

/// The addresses of everything on the list, looked up before the clock of the run starts.
fn known_addresses(source: &Source, dial: &Dial, times: &mut Histogram) -> HashMap<Origin, Found> {
    let Source::List(list) = source else { return HashMap::new() };
    let clock = RunClock::start();
    let mut known = HashMap::new();
    for request in list.requests() {
        known.entry(request.origin.clone()).or_insert_with(|| {
            let began = clock.now();
            let found = dial.lookup(&request.origin);
            if dial.known(&request.origin).is_none() {
                times.record(clock.now().saturating_sub(began));
            }
            found
        });
    }
    known
}

/// A view of the source for each thread, and where to ask whether it ended.
fn supplies(
    source: Source,
    style: &Style,
    pollers: &[Poller],
) -> io::Result<(Vec<Supply>, Option<Receiver<Exhausted>>)> {
    let intake = match source {
        Source::List(list) => {
            return Ok((pollers.iter().map(|_| Supply::list(list.clone(), style)).collect(), None));
        }
        Source::Lazy(intake) => intake,
    };
    let (feeds, supplies): (Vec<_>, Vec<_>) =
        pollers.iter().map(|poller| Feed::new(style, poller.waker())).unzip();
    let (sender, exhausted) = channel();
    std::thread::Builder::new().name("targets".into()).spawn(move || {
        if let Some(exhausted) = feed_all(intake, &feeds) {
            // Before the feeds are dropped, so that a thread that ends for it ends after it. A run that has ended does not ask.
            let _ = sender.send(exhausted);
        }
    })?;
    Ok((supplies, Some(exhausted)))
}
/// The thread that writes records.
struct Writer {
    batches: Sender<Batch>,
    when_full: WhenFull,
    /// What it comes to.
    written: Receiver<Result<u64, EncodeError>>,
}

impl Writer {
    fn spawn(results: Results, control: Control) -> io::Result<Self> {
        let ((batches, receiver), (sender, written)) = (channel(), channel());
        let when_full = results.when_full;
        std::thread::Builder::new().name("results".into()).spawn(move || {
            // Nobody reads the results any more: there is no point in going on.
            let failed = || control.end_for_results();
            // A run that did not wait for the end does not ask.
            let _ = sender.send(recorder::write_all(&receiver, results.format, results.output, failed));
        })?;
        Ok(Self { batches, when_full, written })
    }
}

/// What the writer came to, unless it stands still in a run that is to end at once: a `write` that blocks cannot be
/// called off, so its thread is left behind.
fn await_writer(
    writer: &Receiver<Result<u64, EncodeError>>,
    mut patience: Patience,
) -> Result<u64, EncodeError> {
    while patience.is_left() {
        match writer.recv_timeout(Patience::LOOK) {
            Ok(written) => return written,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the results thread panicked").into());
            }
        }
    }
    Err(EncodeError::Unread)
}
/// A run that has been started. Dropping it aborts it and waits for its threads.
pub struct Running {
    control: Control,
    clock: RunClock,
    warm_up: Nanos,
    /// When the schedule ends.
    end: Nanos,
    until: Until,
    harvest: Receiver<Harvest>,
    spares: Vec<Sender<Box<Stats>>>,
    alive: usize,
    /// When the last of the threads that have ended did.
    ended: Option<Nanos>,
    threads: Vec<JoinHandle<Drawn>>,
    total: Stats,
    since_tick: Stats,
    /// Most requests in flight, by thread.
    peaks: Vec<u64>,
    written: Option<Receiver<Result<u64, EncodeError>>>,
    exhausted: Option<Receiver<Exhausted>>,
}

impl Running {
    /// Steers the run.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Waits for the figures of the next second, or at most `patience`; `None` when the run has ended.
    pub fn tick(&mut self, patience: Duration) -> Option<Tick<'_>> {
        self.since_tick.clear();
        self.gather(patience).then(|| {
            self.total.add(&self.since_tick);
            self.total.in_flight_peak = self.peaks.iter().sum();
            Tick { at: self.clock.now(), stats: &self.since_tick }
        })
    }

    /// Waits until every thread has handed over, or for `patience`; false when none is left that could.
    fn gather(&mut self, patience: Duration) -> bool {
        let mut handed_over = 0;
        while self.alive > 0 {
            match self.harvest.recv_timeout(patience) {
                Ok(harvest) => self.take(harvest, handed_over == 0),
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => {
                    self.alive = 0;
                    return handed_over > 0;
                }
            }
            handed_over += 1;
            if handed_over >= self.alive.max(1) {
                return true;
            }
        }
        false
    }

    /// Adds what a thread handed over to what the others did. This runs beside the senders, on a core that the target may
    /// need: the first to come is taken as it is, for the cleared figures of the last tick.
    fn take(&mut self, harvest: Harvest, first: bool) {
        let Harvest { shard, mut stats, ended } = harvest;
        self.peaks[shard] = self.peaks[shard].max(stats.in_flight_peak);
        self.alive -= usize::from(ended.is_some());
        self.ended = self.ended.max(ended);
        if first {
            std::mem::swap(&mut self.since_tick, &mut *stats);
        } else {
            self.since_tick.add(&stats);
            stats.clear();
        }
        // A thread that has ended needs no empty box.
        let _ = self.spares[shard].send(stats);
    }

    /// Waits for the end and sums up. After [`Control::abort`] that is a matter of moments, whatever stands still; a
    /// thread whose output does is left behind.
    #[must_use]
    pub fn finish(mut self) -> Outcome {
        while self.tick(Duration::from_secs(1)).is_some() {}
        // Not now: this thread may have been busy with something else, and a closed loop is as long as its last answer.
        let ended = self.ended.unwrap_or_else(|| self.clock.now());
        let threads = self.threads.len();
        // A thread that panicked has said so on standard error; its figures are missing and nothing else.
        let drawn = self.join();
        let written = self.await_writer();
        let exhausted = self.exhausted.take().and_then(|exhausted| exhausted.try_recv().ok());
        if let Some(exhausted) = &exhausted {
            // As if their number had been known from the start.
            self.until.hits = self.until.hits.min(exhausted.requests);
        }
        let end = self.end(ended, &drawn);
        Outcome {
            scheduled: self.scheduled(end, &drawn),
            began_unix_ns: self.clock.unix_ns(0),
            scheduled_for: end.saturating_sub(self.warm_up),
            elapsed: ended.saturating_sub(self.warm_up),
            written,
            mistake: exhausted.and_then(|exhausted| exhausted.mistake),
            early: self.control.0.early(),
            threads,
            total: std::mem::take(&mut self.total),
        }
    }

    /// Waits for the threads; says how far they drew arrivals.
    fn join(&mut self) -> Drawn {
        let drawn = self.threads.drain(..).filter_map(|thread| thread.join().ok());
        drawn.fold(Drawn::default(), Drawn::and)
    }

    fn await_writer(&mut self) -> Result<u64, EncodeError> {
        let patience = Patience::new(Arc::clone(&self.control.0), self.clock);
        self.written.take().map_or(Ok(0), |writer| await_writer(&writer, patience))
    }

    /// When the schedule was over: where it was planned to be, although its last hit was due, and may have been answered,
    /// some time before; or upon a command before that. A closed loop plans nothing and goes on to the end.
    fn end(&self, ended: Nanos, drawn: &Drawn) -> Nanos {
        let told = self.control.0.ended().map(|(at, _)| at.min(ended));
        let arrivals = self.control.0.arrivals();
        let Arrivals::Open(schedule) = &*arrivals else { return told.unwrap_or(ended).min(self.end) };
        let latest = told.unwrap_or(Nanos::MAX).min(self.end);
        let over = schedule.over_knowing(self.until.hits, latest, drawn);
        if over == Nanos::MAX { ended } else { over }
    }

    /// A thread hears of a command or of another rate a moment later, and has handed out what was due in between.
    fn scheduled(&self, end: Nanos, drawn: &Drawn) -> Option<u64> {
        let arrivals = self.control.0.arrivals();
        let Arrivals::Open(schedule) = &*arrivals else { return None };
        let hits = |at| schedule.hits_before_knowing(at, drawn).min(self.until.hits);
        Some((hits(end) - hits(self.warm_up.min(end))).max(handed_out(&self.total)))
    }
}

impl Drop for Running {
    /// Nobody wants to hear what it comes to, so it must not go on sending.
    fn drop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        self.control.abort();
        self.join();
        // Results that cannot be written are nobody's any more.
        let _ = self.await_writer();
    }
}
