//! What a search and an inquiry are carried out with on a real target: sessions of the load engine, one load after the other.
//!
//! A [`Rig`] knows how to send, and nothing of what is looked for: [`seawall_search`] and [`seawall_cause`] say what they want
//! offered, it offers that and says what was seen. `blocks` makes of hits what a search is told, `beside` what its reader is, `away` whether anybody is there, `closed` does all of that for clients
//! that wait for their answers, `experiments` makes what an inquiry is told, `doubts` says when nothing of it can be believed; `kit` has the
//! sessions, `part` what is sent of a load that several rigs send together, `held` idle connections, `sink` what the generator is tried out on. Whoever wants all of it to end has a [`Stop`]. Called by
//! the tool's `find`; [`crate::isolate`] sends with the same hands, and has its ways searched on rigs.

mod away;
mod beside;
mod blocks;
mod bunches;
mod closed;
mod doubts;
mod experiments;
mod held;
mod kit;
mod part;
mod sink;
mod stop;

use std::ops::RangeInclusive;
use std::time::Duration;

use seawall_cause::experiment::Experiment;
use seawall_cause::subject::Subject;
use seawall_cause::watched::Watched;
use seawall_load::clock::{Nanos, RunClock, nanos};
use seawall_load::control::Control;
use seawall_load::fate::Fate;
use seawall_load::plan::Load;
use seawall_load::request::{Request, Style};
use seawall_load::schedule::{Arrivals, Schedule, Spacing, Until};
use seawall_load::session::{Session, StartError};
use seawall_load::stats::Stats;
use seawall_load::supply::List;
use seawall_load::target::{Target as Asked, Weight};
use seawall_search::evidence::Evidence;
use seawall_search::offer::{Offer, Rule};
use seawall_search::seen::{BLOCK, Block, Seen};
use seawall_search::target::Target;
use seawall_search::vote::Vote;

use self::away::Away;
use self::blocks::Blocks;
use self::doubts::{Limits, joined, lack};
pub(crate) use self::experiments::{rate, watched};
use self::held::Held;
pub use self::kit::Kit;
pub(crate) use self::kit::NoSession;
use self::kit::{SESSIONS, Sessions};
pub use self::part::Part;
use self::part::Share;
use self::sink::Sink;
pub use self::stop::Stop;
use crate::carry::{Carriage, Carried, Step};
use crate::ground::{Calibration, Ground};
use crate::means;
use seawall_probe::System;
use seawall_probe::files::Files;
use seawall_probe::net::{self, PORT_RANGE};

/// Told of the blocks of an offer whenever there is another, while it goes on.
pub type Observer = Box<dyn FnMut(&Offer, &[Block]) + Send>;

/// Carries out offers and experiments.
pub struct Rig {
    sessions: Sessions,
    spacing: Spacing,
    bound: Option<Duration>,
    /// Connections for which there are descriptors, to all targets together.
    room: usize,
    stop: Stop,
    observer: Option<Observer>,
    /// Loads so far: each has chance of its own.
    loads: u64,
    /// What of them is sent here.
    share: Share,
    /// Most requests a second that clients got through, who wait for their answers.
    fastest: f64,
}

/// Longest wait for figures before it is looked whether there is anything else to do.
const PATIENCE: Duration = Duration::from_millis(100);

/// Room in flight beyond what ends an offer, in seconds of its rate: that it is damage is known after three blocks.
const MARGIN: f64 = 0.5;
/// The same of an offer without much of a rate, in requests.
const LEAST_MARGIN: f64 = 64.0;

impl Rig {
    /// Of a kit, whose offers arrive spaced like this; answers later than the bound, from when they were due, are late. Raises the
    /// soft limit of open files. Sends nothing.
    ///
    /// # Errors
    /// The system refuses that.
    pub fn new(mut kit: Kit, spacing: Spacing, bound: Option<Duration>) -> std::io::Result<Self> {
        let room = kit.limit(means::raise_open_files()?);
        let (sessions, stop) = (Sessions::new(kit), Stop::default());
        Ok(Self {
            sessions,
            spacing,
            bound,
            room,
            stop,
            observer: None,
            loads: 0,
            share: Share::default(),
            fastest: 0.0,
        })
    }

    /// Tells of each offer while it goes on.
    #[must_use]
    pub fn observed(self, observer: Observer) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Has somebody else's switch end everything.
    #[must_use]
    pub fn ended_by(self, stop: Stop) -> Self {
        Self { stop, ..self }
    }

    /// What ends everything at once.
    #[must_use]
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// What it sends, and how.
    #[must_use]
    pub fn kit(&self) -> &Kit {
        self.sessions.kit()
    }

    /// Has names looked up and a thread started, so that the first load need not wait for that.
    ///
    /// # Errors
    /// There is no session to be had, in words.
    pub fn prepare(&mut self) -> Result<(), String> {
        self.sessions.plain(0.0).map(|_| ()).map_err(|error| error.to_string())
    }

    /// A part of an offer that other rigs have other parts of, and its figures beside what was seen. Requests sent and in flight are this
    /// part's alone, and whoever knows all parts decides when it was enough.
    pub fn carry_out_part(&mut self, offer: &Offer, part: &Part) -> (Seen, Stats) {
        self.share = Share::of(part);
        let mut total = Stats::default();
        let seen = self.timed(|rig| rig.try_offer(offer, &mut total));
        self.share = Share::default();
        (seen, total)
    }

    /// A part of an experiment that other rigs have other parts of. Its hits count from the first instant of all parts. The silence
    /// before a load of bursts is for whoever names that instant.
    pub fn watch_part(&mut self, experiment: &Experiment, part: &Part) -> Watched {
        self.share = Share::of(part);
        let watched = self.watch(experiment);
        self.share = Share::default();
        watched
    }

    /// How the next load is spaced, if chance has a part in it.
    fn next_seed(&mut self) -> u64 {
        self.loads = self.share.load().unwrap_or_else(|| self.loads.wrapping_add(1));
        let seed = if let Spacing::Poisson(seed) = self.spacing { seed } else { 0 };
        seed.wrapping_add(self.loads.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn schedule(&mut self, rate: f64) -> Option<Schedule> {
        let seed = self.next_seed();
        let spacing =
            if let Spacing::Poisson(_) = self.spacing { Spacing::Poisson(seed) } else { self.spacing };
        Some(Schedule::constant(experiments::rate(rate)?, spacing))
    }

    fn try_offer(&mut self, offer: &Offer, total: &mut Stats) -> Result<Seen, NoSession> {
        let Some(schedule) = self.schedule(offer.rate) else {
            return Err(NoSession::Impossible(format!("nothing can be sent {} times a second", offer.rate)));
        };
        let own = self.share.of_offer(offer);
        let load = self.share.of_load(offered(&own, &schedule));
        let mut blocks = Blocks::new(&schedule, load.slice, self.bound);
        let (mut away, mut enough, mut no_port) = (Away::default(), false, 0);
        let Self { sessions, stop, observer, share, .. } = self;
        let carried = run(sessions.plain(own.rate)?, &load, stop, |progress| {
            no_port += experiments::without_port(progress.fates);
            if enough {
                return false;
            }
            away.learn(progress.fates);
            blocks.ended(progress.fates);
            let known = blocks.complete().len();
            while !enough && blocks.complete_one(progress.to) {
                enough = share.enough(&own, blocks.complete());
            }
            enough |= share.is_over();
            if let Some(observer) = observer.as_mut().filter(|_| blocks.complete().len() > known) {
                observer(offer, blocks.complete());
            }
            enough
        })?;
        let fails = fails(&own, blocks.complete());
        let lack = lack(no_port, carried.outcome.total.done, fails, port_range());
        let against = self.against(&carried, own.most_in_flight, no_port);
        let invalid = joined(lack.into_iter().chain(against).chain(blocks.tally().doubt(fails)));
        let beside = beside::beside(&carried.outcome.total);
        *total = carried.outcome.total;
        let blocks = blocks.into_complete();
        Ok(Seen { blocks, invalid, no_port, beside, away: away.is_so(), ..Seen::default() })
    }

    fn try_experiment(&mut self, experiment: &Experiment) -> Result<Watched, NoSession> {
        let seed = self.next_seed();
        let Some((own, share)) = self.share.of_experiment(experiment) else { return Ok(Watched::default()) };
        let Some(load) = experiments::load(&own, seed) else {
            return Err(NoSession::Impossible("so much cannot be sent".into()));
        };
        let load = share.of_load(load);
        let mut held = self.hold(own.variation.held)?;
        if !share.is_part() && !self.stop.rest(experiments::quiet(experiment)) {
            return Ok(Watched::default());
        }
        let Self { sessions, stop, .. } = self;
        let session = sessions.varied(&own.variation, experiments::pace(&own) / share.parts())?;
        let mut fates = Vec::new();
        let carried = run(session, &load, stop, |progress| {
            fates.extend_from_slice(progress.fates);
            let ended = fates.len() as u64;
            share.is_over() || unanswered(&load, progress, ended) > own.most_in_flight as u64
        })?;
        let no_port = experiments::without_port(&fates);
        let against = self.against(&carried, own.most_in_flight as f64, no_port);
        let tally = experiments::leave_out_bunches(&own, share.parts(), &mut fates);
        let invalid = joined(against.into_iter().chain(tally.doubt(false)));
        let total = &carried.outcome.total;
        Ok(Watched {
            hits: experiments::hits(fates, share.is_part()),
            connections: total.connections,
            retried: total.retried,
            lookups: experiments::lookups(total.lookup.spread()),
            held: held.standing(),
            invalid,
            ..Watched::default()
        })
    }

    /// So many connections to the target that carry nothing.
    fn hold(&self, connections: usize) -> Result<Held, NoSession> {
        if connections == 0 {
            return Ok(Held::default());
        }
        let addresses = self.kit().addresses()?;
        let address =
            addresses.first().ok_or_else(|| NoSession::Impossible("the target has no address".into()))?;
        Ok(Held::open(*address, connections.min(self.room / SESSIONS), &self.stop))
    }

    /// Why a load that ends once so many are in flight, and of which so many found no port, says nothing about the target, in words.
    fn against(&self, carried: &Carried, most_in_flight: f64, no_port: u64) -> Option<String> {
        let room = self.room as u64;
        // With room for more, the target has had as many at once as it may have, and what came after that waited for its answers.
        let few = most_in_flight > room as f64 && !self.kit().multiplexes();
        Limits::new(self.bound, few.then_some(room)).against(
            &carried.judgement,
            &carried.outcome.total,
            no_port,
        )
    }

    /// What is left of a session of which a thread is gone is of no use.
    fn told(&mut self, error: &NoSession) -> String {
        if matches!(error, NoSession::Start(StartError::Gone)) {
            self.sessions.forget();
        }
        error.to_string()
    }

    /// What came of an offer, and how long that took; nothing, if everything is to end.
    fn timed(&mut self, try_it: impl FnOnce(&mut Self) -> Result<Seen, NoSession>) -> Seen {
        if self.stop.is_stopped() {
            return Seen { interrupted: true, ..Seen::default() };
        }
        let clock = RunClock::start();
        let seen =
            try_it(self).unwrap_or_else(|error| Seen { invalid: Some(self.told(&error)), ..Seen::default() });
        Seen { took: Duration::from_nanos(clock.now()), interrupted: self.stop.is_stopped(), ..seen }
    }

    fn calibrated(&self) -> Option<(f64, usize)> {
        let senders = (self.kit().cpus / 2).max(1);
        let sinks: Vec<_> = (0..senders).map(|_| Sink::start()).collect::<Result<_, _>>().ok()?;
        let requests = sinks.iter().map(|sink| plain(&format!("http://{}/", sink.address())));
        let list = List::new(requests.collect::<Option<_>>()?).ok()?;
        let kit =
            Kit { list, travel: Default::default(), style: Style::default(), cpus: senders, spin: None };
        let mut session = kit.open(senders).ok()?;
        let until = Until { after: CALIBRATION.as_nanos() as Nanos, ..Until::default() };
        let load = Load { until, patience: Some(PATIENCE), ..Load::new(Arrivals::Closed, CLIENTS * senders) };
        let carried = run(&mut session, &load, &self.stop, |progress| progress.to > 2 * until.after).ok()?;
        let figures = &carried.outcome;
        let seconds = Duration::from_nanos(figures.elapsed).as_secs_f64();
        Some((figures.total.good() as f64 / seconds.max(f64::MIN_POSITIVE), senders))
    }
}

/// Clients of each thread in the calibration: fewer leave it waiting, many more only queue.
const CLIENTS: usize = 16;
/// How long it takes.
const CALIBRATION: Duration = Duration::from_secs(1);
/// In an open loop a thread that had nothing to spare would be late for half of its requests: of what a closed one can do, so much.
const SHARE: f64 = 0.7;

fn plain(url: &str) -> Option<(Request, Weight)> {
    let asked = Asked { method: "GET".into(), url: url.to_owned(), ..Asked::default() };
    Some((Request::new(&asked, &Style::default()).ok()?, Weight::default()))
}

/// The ports from which this machine connects; none where it does not say so.
fn port_range() -> Option<RangeInclusive<u16>> {
    System.read(PORT_RANGE).ok().and_then(|text| net::port_range(&text))
}

/// Whether a trial is bad by its errors.
fn fails(offer: &Offer, blocks: &[Block]) -> bool {
    let (Rule::Whole(standard) | Rule::Decided(standard)) = offer.rule else { return false };
    let evidence = Evidence::of(offer.rate, blocks, &standard);
    evidence.errors.value() > standard.goal.errors && standard.vote(&evidence) == Vote::Bad
}

/// The load of an offer. Its end is a moment after that of the offer, which is the last block's.
fn offered(offer: &Offer, schedule: &Schedule) -> Load {
    let blocks = (offer.most.as_secs_f64() / BLOCK).ceil() as usize;
    let until = Until { after: blocks::edge(blocks.saturating_add(2)), ..Until::default() };
    let room = offer.most_in_flight + (offer.rate * MARGIN).max(LEAST_MARGIN);
    let load = Load { until, ..Load::new(Arrivals::Open(schedule.clone()), room as usize) };
    watched(load, offer.drain)
}

/// What is known of a load while it goes on.
#[derive(Clone, Copy)]
pub(crate) struct Progress<'p> {
    /// Hits that ended since this was told last.
    pub(crate) fates: &'p [Fate],
    /// Until when all that ended is known.
    pub(crate) to: Nanos,
    pub(crate) control: &'p Control,
}

/// Carries a load out; nothing more is sent as soon as `enough` says so. What is outstanding then is given up to the millisecond, where
/// the engine looks ten times a second: a bucket that was just emptied fills meanwhile.
pub(crate) fn run(
    session: &mut Session,
    load: &Load,
    stop: &Stop,
    mut enough: impl FnMut(Progress<'_>) -> bool,
) -> Result<Carried, NoSession> {
    let mut carriage = Carriage::new(session.trial(load, None)?, load.warm_up);
    let control = carriage.steer();
    stop.holds(control.clone());
    let clock = RunClock::start();
    let mut given_up = None;
    loop {
        let left =
            given_up.map_or(PATIENCE, |at: Nanos| Duration::from_nanos(at.saturating_sub(clock.now())));
        if left.is_zero() {
            control.abort();
        }
        match carriage.wait(if left.is_zero() { PATIENCE } else { left.min(PATIENCE) }) {
            Step::Nothing => continue,
            Step::Over => break,
            Step::Interval => {}
        }
        let interval = carriage.interval();
        if enough(Progress { fates: &interval.stats.fates, to: interval.to, control: &control }) {
            control.drain();
            given_up.get_or_insert_with(|| clock.now().saturating_add(load.patience.map_or(0, nanos)));
        }
    }
    stop.lets_go();
    Ok(carriage.finish(None))
}

/// Requests that were due by then and have not ended; in a closed loop those in flight.
pub(crate) fn unanswered(load: &Load, progress: Progress<'_>, ended: u64) -> u64 {
    match &load.arrivals {
        Arrivals::Open(schedule) => {
            let due = schedule.hits_before(progress.to.min(load.until.after)).min(load.until.hits);
            load.slice.count(due).saturating_sub(ended)
        }
        Arrivals::Closed => progress.control.in_flight() as u64,
    }
}

impl Target for Rig {
    fn carry_out(&mut self, offer: &Offer) -> Seen {
        self.timed(|rig| rig.try_offer(offer, &mut Stats::default()))
    }

    fn rest(&mut self, time: Duration) -> bool {
        self.stop.rest(time)
    }
}

impl Subject for Rig {
    fn watch(&mut self, experiment: &Experiment) -> Watched {
        if self.stop.is_stopped() {
            return Watched { interrupted: true, ..Watched::default() };
        }
        let clock = RunClock::start();
        let watched = match self.try_experiment(experiment) {
            Ok(watched) => watched,
            Err(NoSession::Impossible(why)) => Watched { impossible: Some(why), ..Watched::default() },
            Err(error) => Watched { invalid: Some(self.told(&error)), ..Watched::default() },
        };
        self.sessions.end_varied();
        Watched { took: Duration::from_nanos(clock.now()), interrupted: self.stop.is_stopped(), ..watched }
    }

    fn pause(&mut self, time: Duration) -> bool {
        self.stop.rest(time)
    }
}

impl Ground for Rig {
    fn hang_up(&mut self) {
        self.sessions.forget();
    }

    fn most_clients(&self) -> u32 {
        self.most_busy()
    }

    fn calibrate(&mut self) -> Calibration {
        let clock = RunClock::start();
        let found =
            if self.stop.is_stopped() { None } else { self.calibrated().filter(|(rate, _)| *rate > 0.0) };
        let how = match found {
            Some((rate, senders)) => format!(
                "{:.0} % of the {rate:.0} requests a second that {senders} sending thread(s) had answered by a server of our own on \
                 loopback, which shares this machine; that is plain HTTP/1.1 on kept connections, and TLS, HTTP/2 and new \
                 connections take more",
                100.0 * SHARE
            ),
            None => "the generator could not be tried out; each trial is judged by itself".to_owned(),
        };
        Calibration {
            most: found.map(|(rate, _)| rate * SHARE),
            how,
            took: Duration::from_nanos(clock.now()),
            interrupted: self.stop.is_stopped(),
        }
    }
}
