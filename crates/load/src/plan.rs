//! What is asked of a run: what to send, when, how, and what of it is written down.
//!
//! All rules of a run are values here, checked by who made them; nothing reads flags, files or the terminal. Made by the
//! tool's `attack` and the search methods, taken by [`crate::session`].

use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use crate::books::Counting;
use crate::clock::{Nanos, nanos};
use crate::control::ErrorBudget;
use crate::recorder::WhenFull;
use crate::request::{Origin, Style};
use crate::resolve::Dial;
use crate::results::Format;
use crate::schedule::{Arrivals, Slice, Until};
use crate::shard::{Rules, WhenBusy};
use crate::supply::Source;
use crate::variant::Protocol;

/// Everything a run is: a session and the load of its one trial.
#[derive(Debug)]
pub struct Plan {
    /// The session.
    pub setup: Setup,
    /// The trial.
    pub load: Load,
}

/// Intervals are no shorter than this: each costs the senders a wake-up, and the collector as much work as any other.
pub const FINEST: Duration = Duration::from_millis(50);

/// How long they are unless something else is asked for.
const CADENCE: Duration = Duration::from_secs(1);

/// More lateness of this machine than this at the very end is not made up for.
pub const GRACE: Duration = Duration::from_millis(100);

impl Plan {
    /// One thread, up to 64 requests in flight, everything else as vegeta has it.
    #[must_use]
    pub fn new(source: Source, arrivals: Arrivals) -> Self {
        Self { setup: Setup::new(source), load: Load::new(arrivals, 64) }
    }

    /// The two parts. No more threads are started than there are requests in flight.
    #[must_use]
    pub fn split(self) -> (Setup, Load) {
        let Self { setup, load } = self;
        (Setup { threads: setup.threads.min(load.in_flight.most), ..setup }, load)
    }
}

/// What stays the same as long as a session lives.
#[derive(Debug)]
pub struct Setup {
    /// What is sent. What is read during the run serves one trial.
    pub source: Source,
    /// How requests travel.
    pub travel: Travel,
    /// How requests are framed.
    pub style: Style,
    /// Threads that send; no more are started than there are connections to share.
    pub threads: usize,
    /// Waits shorter than this are spun away instead of slept, because a sleep ends late. Zero under a CPU quota, which
    /// spinning uses up, and where no core is left for the target.
    pub spin: Duration,
}

impl Setup {
    /// One thread, everything else as vegeta has it.
    #[must_use]
    pub fn new(source: Source) -> Self {
        Self { source, travel: Travel::default(), style: Style::default(), threads: 1, spin: Duration::ZERO }
    }
}

/// One load on what a session holds.
#[derive(Debug, Clone)]
pub struct Load {
    /// Name of the attack in the records.
    pub name: String,
    /// When to send; the first hit is number 0 of the session's source.
    pub arrivals: Arrivals,
    /// The part of the arrivals that this run sends. Their rates, and the numbers in [`Load::until`], are those of the whole.
    pub slice: Slice,
    /// When the first instant of the schedule is, in nanoseconds since the Unix epoch; none is at once.
    pub start_at: Option<i64>,
    /// When to stop sending, apart from the schedule's own end and from [`crate::control::Control`].
    pub until: Until,
    /// Errors after which the trial ends.
    pub errors: Option<ErrorBudget>,
    /// How much may be in flight, and what then.
    pub in_flight: InFlight,
    /// In a closed loop: how long a failure keeps its place in flight, in which nothing is sent then. Without it a target that refuses at
    /// once is asked as often as this machine can.
    pub pause: Duration,
    /// Hits due before this are sent, and neither counted nor recorded.
    pub warm_up: Duration,
    /// How long after the end of the schedule hits are sent that are late because of this machine. Hits that are late
    /// because the in-flight bound was reached are not sent after the end: the run ends on time.
    pub grace: Duration,
    /// How long late answers are waited for once nothing more is sent: what is in flight after that is aborted. None waits
    /// for each as long as its own time lasts.
    pub patience: Option<Duration>,
    /// [`crate::stats::Stats::outcomes`] are filled, for some nanoseconds per request.
    pub by_outcome: bool,
    /// So many answers of each outcome are kept in [`crate::stats::Stats::evidence`], for a copy of each head and the start of each body.
    pub evidence: usize,
    /// Each interval has what became of every hit that ended in it ([`crate::stats::Stats::fates`]), for a hundred bytes each and as
    /// much time as a record takes to fill.
    pub by_hit: bool,
    /// How long an interval of the figures is; at least [`FINEST`].
    pub cadence: Duration,
}

impl Load {
    /// Everything as vegeta has it.
    #[must_use]
    pub fn new(arrivals: Arrivals, in_flight: usize) -> Self {
        Self {
            name: String::new(),
            arrivals,
            slice: Slice::default(),
            start_at: None,
            until: Until::default(),
            errors: None,
            in_flight: InFlight { most: in_flight, when_busy: WhenBusy::Queue },
            pause: Duration::ZERO,
            warm_up: Duration::ZERO,
            grace: GRACE,
            patience: None,
            by_outcome: false,
            evidence: 0,
            by_hit: false,
            cadence: CADENCE,
        }
    }

    /// When nothing more is due, in the time of the run, if that is known.
    #[must_use]
    pub fn ends(&self) -> Option<Nanos> {
        Some(self.end()).filter(|&end| end != Nanos::MAX)
    }

    /// What the loop needs to know of it, in the time of the session, in which the trial begins then.
    pub(crate) fn rules(&self, travel: &Travel, spin: Duration, begins: Nanos) -> Rules {
        let closed = matches!(self.arrivals, Arrivals::Closed);
        Rules {
            begins,
            in_flight: self.in_flight.most,
            // In a closed loop nothing is due before there is room: what is dropped then has no end.
            when_busy: if closed { WhenBusy::Queue } else { self.in_flight.when_busy },
            timeout: travel.timeout.map_or(Nanos::MAX, nanos),
            deadline: travel.deadline.map_or(Nanos::MAX, nanos),
            end: self.end().saturating_add(begins),
            grace: nanos(self.grace),
            patience: self.patience.map_or(Nanos::MAX, nanos),
            pause: if closed { nanos(self.pause) } else { 0 },
            redirects: travel.redirects,
            retries: travel.retries,
            spin: nanos(spin),
            cadence: nanos(self.cadence.max(FINEST)),
        }
    }

    /// When the schedule ends, apart from hits and commands that end it before.
    pub(crate) fn end(&self) -> Nanos {
        let planned = match &self.arrivals {
            Arrivals::Closed => None,
            Arrivals::Open(schedule) => schedule.end(),
        };
        planned.unwrap_or(Nanos::MAX).min(self.until.after)
    }

    /// What is written down of it, in the time of the session.
    pub(crate) fn counting(&self, begins: Nanos) -> Counting {
        Counting {
            begins,
            warm_up: nanos(self.warm_up).saturating_add(begins),
            end: self.end().saturating_add(begins),
            closed: matches!(self.arrivals, Arrivals::Closed),
            by_outcome: self.by_outcome,
            max_body: 0,
            evidence: self.evidence,
            by_hit: self.by_hit,
            carriage: false,
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
    /// Connections are used again, unless a variant says otherwise.
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

impl Travel {
    /// Whether a connection there may carry several requests at once.
    #[must_use]
    pub fn multiplexes(&self, origin: &Origin) -> bool {
        let wanted = origin.variant.as_ref().and_then(|variant| variant.protocol);
        let run = if origin.tls { self.http2.over_tls } else { self.http2.clear };
        wanted.map_or(run, |protocol| protocol == Protocol::Http2)
    }

    /// Whether connections there are used again.
    #[must_use]
    pub fn keeps(&self, origin: &Origin) -> bool {
        origin.variant.as_ref().and_then(|variant| variant.keep_alive).unwrap_or(self.keep_alive)
    }
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
    /// Each record says what carried it; gob has no place for that.
    pub carriage: bool,
    /// What a sender does when the output is slower than the run.
    pub when_full: WhenFull,
}
