//! A run from its plan to its figures: starts the threads, adds up what they measured, ends with the last of them.
//!
//! The caller (the tool's `attack`, the search methods) describes a [`Plan`], gets a [`Running`], and takes a
//! [`Interval`](crate::interval::Interval)s from it until there is none. All rules of the run are values in the plan; nothing here reads
//! flags, files or the terminal.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::ClientConfig;

use crate::books::{Books, Collection, Counting, Harvest};
use crate::clock::{Nanos, RunClock, nanos};
use crate::collector::{Collector, Heard};
use crate::control::{Control, Early, ErrorBudget, Shared};
use crate::fault::Fault;
use crate::flights::Flights;
use crate::poller::{Poller, Waker};
use crate::recorder::{self, Batch, Patience, Recorder, WhenFull};
use crate::request::{Origin, Style};
use crate::resolve::{self, Dial, Found, Question};
use crate::results::{EncodeError, Format};
use crate::schedule::{Arrivals, Cursor, Slice, Turn, Until};
use crate::shard::{Progress, Rules, Shard, WhenBusy};
use crate::stats::{Histogram, Stats};
use crate::supply::{Exhausted, Feed, Source, Supply, feed_all};
use crate::target::Mistake;
use crate::tls;
use crate::transport::exchange::Keep;
use crate::transport::making::{Limits, Making};
use crate::transport::pool::Pool;
use crate::transport::routes::{Resolver, Routes};
use crate::transport::sources::Sources;

/// Everything a run is.
#[derive(Debug)]
pub struct Plan {
    /// Name of the attack in the records.
    pub name: String,
    /// What to send.
    pub source: Source,
    /// When to send it.
    pub arrivals: Arrivals,
    /// The part of the arrivals that this run sends. Their rates, and the numbers in [`Plan::until`], are those of the whole.
    pub slice: Slice,
    /// When the first instant of the schedule is, in nanoseconds since the Unix epoch; none is at once.
    pub start_at: Option<i64>,
    /// When to stop sending, apart from the schedule's own end and from [`Control`].
    pub until: Until,
    /// Errors after which the run ends.
    pub errors: Option<ErrorBudget>,
    /// How much may be in flight, and what then.
    pub in_flight: InFlight,
    /// How requests travel.
    pub travel: Travel,
    /// How requests are framed.
    pub style: Style,
    /// Threads that send; no more are started than there are requests in flight or connections to share.
    pub threads: usize,
    /// Waits shorter than this are spun away instead of slept, because a sleep ends late. Zero under a CPU quota, which
    /// spinning uses up, and where no core is left for the target.
    pub spin: Duration,
    /// Hits due before this are sent, and neither counted nor recorded.
    pub warm_up: Duration,
    /// How long after the end of the schedule hits are sent that are late because of this machine. Hits that are late
    /// because the in-flight bound was reached are not sent after the end: the run ends on time.
    pub grace: Duration,
    /// [`Stats::outcomes`] are filled, for some nanoseconds per request.
    pub by_outcome: bool,
    /// How long an interval of the figures is; at least [`FINEST`].
    pub cadence: Duration,
}

/// Intervals are no shorter than this: each costs the senders a wake-up, and the collector as much work as any other.
pub const FINEST: Duration = Duration::from_millis(50);

/// More lateness of this machine than this at the very end is not made up for.
pub const GRACE: Duration = Duration::from_millis(100);

impl Plan {
    /// One thread, up to 64 requests in flight, everything else as vegeta has it.
    #[must_use]
    pub fn new(source: Source, arrivals: Arrivals) -> Self {
        Self {
            name: String::new(),
            source,
            arrivals,
            slice: Slice::default(),
            start_at: None,
            until: Until::default(),
            errors: None,
            in_flight: InFlight { most: 64, when_busy: WhenBusy::Queue },
            travel: Travel::default(),
            style: Style::default(),
            threads: 1,
            spin: Duration::ZERO,
            warm_up: Duration::ZERO,
            grace: GRACE,
            by_outcome: false,
            cadence: Duration::from_secs(1),
        }
    }
}

impl Plan {
    /// What the loop needs to know of it.
    fn rules(&self) -> Rules {
        let closed = matches!(self.arrivals, Arrivals::Closed);
        Rules {
            in_flight: self.in_flight.most,
            // In a closed loop nothing is due before there is room: what is dropped then has no end.
            when_busy: if closed { WhenBusy::Queue } else { self.in_flight.when_busy },
            timeout: self.travel.timeout.map_or(Nanos::MAX, nanos),
            deadline: self.travel.deadline.map_or(Nanos::MAX, nanos),
            end: self.end(),
            grace: nanos(self.grace),
            redirects: self.travel.redirects,
            retries: self.travel.retries,
            spin: nanos(self.spin),
            cadence: nanos(self.cadence.max(FINEST)),
        }
    }

    /// When the schedule ends, apart from hits and commands that end it before.
    fn end(&self) -> Nanos {
        let planned = match &self.arrivals {
            Arrivals::Closed => None,
            Arrivals::Open(schedule) => schedule.end(),
        };
        planned.unwrap_or(Nanos::MAX).min(self.until.after)
    }

    /// What is written down of it.
    fn counting(&self) -> Counting {
        Counting {
            warm_up: nanos(self.warm_up),
            end: self.end(),
            closed: matches!(self.arrivals, Arrivals::Closed),
            by_outcome: self.by_outcome,
            name: self.name.clone(),
        }
    }
}

/// The in-flight bound.
#[derive(Debug, Clone, Copy)]
pub struct InFlight {
    /// Most requests in flight.
    pub most: usize,
    /// What happens to a hit that finds no room.
    pub when_busy: WhenBusy,
}

/// How requests travel.
#[derive(Debug, Clone)]
pub struct Travel {
    /// For a whole answer, from the send, and before that for a connection; none waits for ever.
    pub timeout: Option<Duration>,
    /// For a whole answer, from the intended instant.
    pub deadline: Option<Duration>,
    /// Redirects to follow; none takes a redirect as the answer.
    pub redirects: Option<u32>,
    /// What a server lost by closing an idle connection, or says it has not looked at, is sent again.
    pub retries: bool,
    /// Connections are used again.
    pub keep_alive: bool,
    /// Most connections per origin.
    pub connections: usize,
    /// Most idle connections per origin.
    pub idle: usize,
    /// Requests after which a connection is closed.
    pub requests_per_connection: u64,
    /// Age after which a connection carries no more requests.
    pub connection_age: Option<Duration>,
    /// Source addresses, used in turn; none leaves it to the system.
    pub sources: Vec<IpAddr>,
    /// Where connections go instead of where the target says.
    pub dial: Dial,
    /// TLS, if any target wants it.
    pub tls: Option<Arc<ClientConfig>>,
    /// HTTP/2 as the handshake has it, or without TLS and without asking.
    pub http2: Http2,
}

/// HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Http2 {
    /// It may come out of a TLS handshake; the TLS configuration offers it.
    pub over_tls: bool,
    /// Requests without TLS use it with prior knowledge (h2c).
    pub clear: bool,
    /// Most streams on one connection.
    pub streams: usize,
    /// Connections per origin and thread as long as their streams suffice.
    pub connections: usize,
}

impl Default for Http2 {
    fn default() -> Self {
        Self { over_tls: true, clear: false, streams: 100, connections: 1 }
    }
}

impl Default for Travel {
    fn default() -> Self {
        Self {
            timeout: Some(Duration::from_secs(30)),
            deadline: None,
            redirects: Some(10),
            retries: true,
            keep_alive: true,
            connections: usize::MAX,
            idle: 10_000,
            requests_per_connection: u64::MAX,
            connection_age: None,
            sources: Vec::new(),
            dial: Dial::default(),
            tls: None,
            http2: Http2::default(),
        }
    }
}

/// Where records go.
pub struct Results {
    /// How they are written.
    pub format: Format,
    /// Where to.
    pub output: Box<dyn Write + Send>,
    /// Bytes of each body to keep.
    pub max_body: usize,
    /// What a sender does when the output is slower than the run.
    pub when_full: WhenFull,
}

/// Why a run did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system refused a thread or a descriptor.
    #[error("the system refuses what a run needs: {0}")]
    System(#[from] io::Error),
    /// The instant at which the run was to start has passed, or is too near to be ready for it.
    #[error("the run could be ready {0:.3?} after that instant at the earliest")]
    Late(Duration),
}

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// All that was measured.
    pub total: Stats,
    /// Hits that the schedule made due after the warm-up and before the end, or the command to end; none in a closed
    /// loop.
    pub scheduled: Option<u64>,
    /// When it began, in nanoseconds since the Unix epoch.
    pub began_unix_ns: i64,
    /// For how long hits were counted: from the end of the warm-up to the end of the schedule or the command to end.
    pub scheduled_for: Nanos,
    /// From the end of the warm-up to the end of the last thread.
    pub elapsed: Nanos,
    /// Records written, or why not all were.
    pub written: Result<u64, EncodeError>,
    /// A bad line in an input that was read during the run; the run ended there.
    pub mistake: Option<Mistake>,
    /// Why the run ended before its schedule, if it did.
    pub early: Option<Early>,
    /// Threads that sent.
    pub threads: usize,
}

impl Outcome {
    /// Hits that were due and never sent because the run was over, dropped and shed ones not included.
    #[must_use]
    pub fn unsent(&self) -> u64 {
        self.scheduled.map_or(0, |scheduled| scheduled.saturating_sub(handed_out(&self.total)))
    }

    /// Hits that the schedule made due; in a closed loop those that there was room for.
    #[must_use]
    pub fn offered(&self) -> u64 {
        self.scheduled.unwrap_or_else(|| handed_out(&self.total))
    }
}

/// Hits that were sent, waited in vain, dropped, shed or no request.
fn handed_out(total: &Stats) -> u64 {
    let never_sent = Fault::NEVER_SENT.map(|fault| total.fault(fault));
    total.sent + total.unconnected + never_sent.iter().sum::<u64>()
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
    let muster = MUSTER * threads as u32;
    let clock = match plan.start_at {
        Some(at) => RunClock::starting_at(at, muster).map_err(StartError::Late)?,
        None => RunClock::starting_in(muster),
    };
    let pollers =
        (0..threads).map(|_| Poller::new(clock)).collect::<Result<Vec<_>, _>>().map_err(io::Error::from)?;
    let arrivals = Arc::new(plan.arrivals.clone());
    let wakers = pollers.iter().map(Poller::waker).collect();
    let shared = Arc::new(Shared::new(Arc::clone(&arrivals), plan.slice, wakers, clock, plan.errors));
    let keep = Keep {
        location: plan.travel.redirects.is_some(),
        record: results.as_ref().map(|results| results.max_body),
    };
    let writer = results.map(|results| Writer::spawn(results, Control(Arc::clone(&shared)))).transpose()?;
    let (rules, counting) = (plan.rules(), plan.counting());
    // What is read during the run is dealt out beforehand, every n-th request to a thread.
    let turn = matches!(plan.source, Source::List(_)).then(|| Turn::of(plan.slice));
    let (supplies, exhausted) = supplies(plan.source, &plan.style, plan.slice, &pollers)?;
    let (harvest_sender, harvest) = channel();
    let mut crew = Crew {
        size: threads,
        clock,
        shared,
        known,
        arrivals,
        slice: plan.slice,
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
    slice: Slice,
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
    threads: Vec<JoinHandle<()>>,
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
            slice: self.slice,
            until: self.until,
            collector: Collector::new(harvest, self.spares, total),
            threads: self.threads,
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
        let (first, stride) = self.slice.thread(index, self.size as u64);
        let cursor = Cursor::new(Arc::clone(&self.arrivals), self.until, first, stride);
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
    slice: Slice,
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
        if let Some(exhausted) = feed_all(intake, &feeds, slice) {
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
    slice: Slice,
    until: Until,
    collector: Collector,
    threads: Vec<JoinHandle<()>>,
    written: Option<Receiver<Result<u64, EncodeError>>>,
    exhausted: Option<Receiver<Exhausted>>,
}

impl Running {
    /// Steers the run.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// When its first instant is, in nanoseconds since the Unix epoch.
    #[must_use]
    pub fn began_unix_ns(&self) -> i64 {
        self.clock.unix_ns(0)
    }

    /// Waits for the figures of the next interval, or at most `patience`.
    pub fn next_interval(&mut self, patience: Duration) -> Heard<'_> {
        self.collector.next(patience)
    }

    /// Waits for the end and sums up. After [`Control::abort`] that is a matter of moments, whatever stands still; a
    /// thread whose output does is left behind.
    #[must_use]
    pub fn finish(mut self) -> Outcome {
        while !matches!(self.next_interval(Duration::from_secs(1)), Heard::Over) {}
        // Not now: this thread may have been busy with something else, and a closed loop is as long as its last answer.
        let ended = self.collector.ended();
        let threads = self.threads.len();
        self.join();
        let written = self.await_writer();
        let exhausted = self.exhausted.take().and_then(|exhausted| exhausted.try_recv().ok());
        if let Some(exhausted) = &exhausted {
            // As if their number had been known from the start.
            self.until.hits = self.until.hits.min(exhausted.requests);
        }
        let end = self.end(ended);
        Outcome {
            scheduled: self.scheduled(end),
            began_unix_ns: self.began_unix_ns(),
            scheduled_for: end.saturating_sub(self.warm_up),
            elapsed: ended.saturating_sub(self.warm_up),
            written,
            mistake: exhausted.and_then(|exhausted| exhausted.mistake),
            early: self.control.0.early(),
            threads,
            total: self.collector.total(),
        }
    }

    fn join(&mut self) {
        // A thread that panicked has said so on standard error; its figures are missing and nothing else.
        self.threads.drain(..).for_each(|thread| _ = thread.join());
    }

    fn await_writer(&mut self) -> Result<u64, EncodeError> {
        let patience = Patience::new(Arc::clone(&self.control.0), self.clock);
        self.written.take().map_or(Ok(0), |writer| await_writer(&writer, patience))
    }

    /// When the schedule was over: where it was planned to be, although its last hit was due, and may have been answered,
    /// some time before; or upon a command before that. A closed loop plans nothing and goes on to the end.
    fn end(&self, ended: Nanos) -> Nanos {
        let told = self.control.0.ended().map(|(at, _)| at.min(ended));
        let arrivals = self.control.0.arrivals();
        let Arrivals::Open(schedule) = &*arrivals else { return told.unwrap_or(ended).min(self.end) };
        let latest = told.unwrap_or(Nanos::MAX).min(self.end);
        let over = schedule.over(self.until.hits, latest);
        if over == Nanos::MAX { ended } else { over }
    }

    /// A thread hears of a command or of another rate a moment later, and has handed out what was due in between.
    fn scheduled(&self, end: Nanos) -> Option<u64> {
        let arrivals = self.control.0.arrivals();
        let Arrivals::Open(schedule) = &*arrivals else { return None };
        let hits = |at| self.slice.count(schedule.hits_before(at).min(self.until.hits));
        Some((hits(end) - hits(self.warm_up.min(end))).max(handed_out(self.collector.so_far())))
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
