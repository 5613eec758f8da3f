//! Carries segments out: sessions of the load engine with new, warm connections, for each segment anew.

use std::io::ErrorKind;
use std::time::Duration;

use seawall_isolate::segment::{Design, Segment};
use seawall_isolate::slot::Cell;
use seawall_load::clock::{Nanos, RunClock, nanos};
use seawall_load::fault::Fault;
use seawall_load::plan::{Load, Setup, Travel};
use seawall_load::request::{Request, Style};
use seawall_load::schedule::{Arrivals, Schedule, Slice, Spacing, Until};
use seawall_load::session::Session;
use seawall_load::stats::Histogram;
use seawall_load::supply::{List, Source};
use seawall_load::target::Weight;

use super::counts::Counts;
use super::slots::{Cells, Hits, told};
use super::ways::Way;
use super::{Cut, Paths, Seen};
use crate::means;
use crate::rig::{Kit, NoSession, Rig, Stop, rate, run, unanswered, watched};
use crate::verdict::Verdict;

/// Connections of each way that are warm before a segment: as many as the levels of the experiment were tried with.
const WARM: usize = 8;
/// How long late answers are waited for when a segment is over.
const DRAIN: Duration = Duration::from_secs(1);
/// Requests in flight beyond which the rate is too much: those of so many seconds, and some.
const OUTSTANDING: (f64, f64) = (2.0, 64.0);
/// Of what several generators send some each, however many they are: a few slow answers are no line.
const LEAST_OUTSTANDING: f64 = 8.0;

/// The ways of an experiment, and what it takes to go them.
pub struct Bench {
    ways: Vec<Way>,
    /// How a way travels that has the machine alone.
    travel: Travel,
    /// The same where all of them stand at the same time.
    shared: Travel,
    style: Style,
    cpus: usize,
    stop: Stop,
}

impl Bench {
    /// Of these ways, the reference first. Raises the soft limit of open files.
    ///
    /// # Errors
    /// The system refuses that.
    pub fn new(ways: Vec<Way>, travel: Travel, style: Style, cpus: usize) -> std::io::Result<Self> {
        let room = usize::try_from(means::raise_open_files()?.saturating_sub(means::OTHER_FILES));
        let each = (room.unwrap_or(usize::MAX) / ways.len().max(1)).max(1);
        let shared = Travel { connections: travel.connections.min(each), ..travel.clone() };
        Ok(Self { ways, travel, shared, style, cpus, stop: Stop::default() })
    }

    pub(super) fn ways(&self) -> usize {
        self.ways.len()
    }

    /// What ends everything at once.
    #[must_use]
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// What a search for the rate that a way bears is carried out on: exactly this way, alone, with all that this machine has for it. Answers later
    /// than the bound are late. Ended by [`Bench::stop`], too.
    ///
    /// # Errors
    /// There is no such way, it asks nothing, or the system refuses.
    pub fn rig(&self, way: usize, bound: Option<Duration>) -> std::io::Result<Rig> {
        let nothing = || std::io::Error::new(ErrorKind::InvalidInput, "there is nothing to send");
        let way = self.ways.get(way).ok_or_else(nothing)?;
        let list = way.list().map_err(|_| nothing())?;
        let travel = way.travel(&self.travel).clone();
        let kit = Kit { list, travel, style: self.style.clone(), cpus: self.cpus, spin: None };
        Ok(Rig::new(kit, Spacing::Even, bound)?.ended_by(self.stop.clone()))
    }

    /// A session with warm connections, for so many requests a second.
    pub(super) fn session(&self, list: List, travel: &Travel, rate: f64) -> Result<Session, NoSession> {
        let threads = means::threads(rate, self.cpus);
        let (source, travel, style) = (Source::List(list), travel.clone(), self.style.clone());
        let mut session =
            Session::open(Setup { source, travel, style, threads, spin: means::spin(threads) })?;
        // Of many generators each sends little, and needs no more of them than it sends in a second.
        session.warm(WARM.min(rate.ceil() as usize))?;
        Ok(session)
    }

    fn interleaved(&self, segment: &Segment, rate: f64) -> Result<Part, NoSession> {
        let (mut session, of) = self.together(segment, rate, Slice::default())?;
        let cells = self.cells(segment, segment.cells);
        let load = Sending::by_itself(segment.sends(), rate);
        Ok(self.load(&mut session, &load, cells, |target| of[target])?.part())
    }

    /// So many empty cells of a segment.
    pub(super) fn cells(&self, segment: &Segment, cells: usize) -> Cells {
        Cells::new(nanos(segment.settle), nanos(segment.each), cells, self.ways.len())
    }

    /// A session of all members of an interleaved segment, and whose each of its requests is.
    ///
    /// A slice has an order of its own, of which each of its hits is the next. Every n-th hit of one order for all would do for some numbers
    /// of ways and slices: of two ways in rounds two generators would each send either one, were the rounds not drawn, and as they are
    /// drawn each would send now more of the one and now of the other. So each sends each way as often as any other.
    pub(super) fn together(
        &self,
        segment: &Segment,
        rate: f64,
        slice: Slice,
    ) -> Result<(Session, Vec<usize>), NoSession> {
        let (requests, of) = self.requests(&segment.members);
        let own = rate / slice.of() as f64;
        let each = usize::try_from(slice.of()).unwrap_or(usize::MAX);
        let order = order(segment, &of, own).into_iter().flat_map(|place| std::iter::repeat_n(place, each));
        let list = List::new(requests).ok().and_then(|list| list.in_order(order.collect()));
        let list = list.ok_or_else(|| NoSession::Impossible("there is nothing to send".into()))?;
        Ok((self.session(list, &self.shared, own)?, of))
    }

    /// Sessions of all members of a segment in blocks, by way, each for so many requests a second.
    pub(super) fn apart(&self, segment: &Segment, rate: f64) -> Result<Vec<Option<Session>>, NoSession> {
        let mut sessions: Vec<Option<Session>> = self.ways.iter().map(|_| None).collect();
        for &member in &segment.members {
            let way =
                self.ways.get(member).ok_or_else(|| NoSession::Impossible("there is no such way".into()))?;
            let list = way.list().map_err(|bad| NoSession::Impossible(bad.to_string()))?;
            sessions[member] = Some(self.session(list, way.travel(&self.shared), rate)?);
        }
        Ok(sessions)
    }

    fn blocks(&self, segment: &Segment, rate: f64) -> Result<Part, NoSession> {
        let mut sessions = self.apart(segment, rate)?;
        let mut whole = Part::new(self.ways.len());
        for round in segment.blocks() {
            let mut cell: Option<Cell> = Some(vec![None; self.ways.len()]);
            for member in round {
                let Some(session) = &mut sessions[member] else { continue };
                let load = Sending::by_itself(segment.sends(), rate);
                let part = self.load(session, &load, self.cells(segment, 1), |_| member)?.part();
                whole.add(&part);
                whole.limits.extend(part.limits);
                if part.cut.is_some() {
                    return Ok(Part { cut: part.cut, ..whole });
                }
                cell = joined(cell, member, part.cells.into_iter().next());
            }
            whole.cells.extend(cell);
        }
        Ok(whole)
    }

    /// All requests of these ways, and whose each is.
    fn requests(&self, members: &[usize]) -> (Vec<(Request, Weight)>, Vec<usize>) {
        let each = members.iter().flat_map(|&member| {
            self.ways[member]
                .requests
                .iter()
                .map(move |request| ((request.clone(), Weight::default()), member))
        });
        each.unzip()
    }

    /// Sends, and sees what comes of it.
    pub(super) fn load(
        &self,
        session: &mut Session,
        sending: &Sending,
        mut cells: Cells,
        of: impl Fn(usize) -> usize,
    ) -> Result<Loaded, NoSession> {
        let (load, schedule, most) = sending.load()?;
        let (mut ended, mut overloaded) = (0, false);
        let mut given_up = vec![0; self.ways.len()];
        let carried = run(session, &load, &self.stop, |progress| {
            ended += progress.fates.len() as u64;
            for fate in progress.fates {
                let is_given_up = fate.outcome == Err(Fault::Aborted);
                given_up[of(fate.target)] += usize::from(is_given_up);
                if !(is_given_up && self.stop.is_stopped()) {
                    cells.add(fate, of(fate.target));
                }
            }
            overloaded |= unanswered(&load, progress, ended) > most;
            overloaded
        })?;
        let limited = carried.judgement.verdict == Verdict::GeneratorLimited;
        let counts = cells.counts();
        let due_before = |at: Nanos| load.slice.count(schedule.hits_before(at.min(load.until.after)));
        let (cells, times) = cells.complete(due_before);
        let worst = (0..given_up.len()).max_by_key(|&way| given_up[way]).unwrap_or(0);
        let cut = match (self.stop.is_stopped(), overloaded) {
            (true, _) => Some(Cut::Stopped),
            (_, true) => Some(Cut::Overloaded(worst)),
            _ => None,
        };
        let limiting = carried
            .judgement
            .reasons
            .into_iter()
            .filter(|reason| reason.verdict == Verdict::GeneratorLimited);
        let limits = limiting.map(|reason| reason.measured).collect();
        Ok(Loaded { cells, limited, times, counts, cut, limits })
    }
}

/// What is sent in one piece.
pub(super) struct Sending {
    pub(super) lasts: Duration,
    /// Requests a second of the whole.
    pub(super) rate: f64,
    /// What of it is sent here.
    pub(super) slice: Slice,
    /// When it begins, in nanoseconds since the Unix epoch; none: now.
    pub(super) start_at: Option<i64>,
}

impl Sending {
    fn by_itself(lasts: Duration, rate: f64) -> Self {
        Self { lasts, rate, slice: Slice::default(), start_at: None }
    }

    /// As the engine has it, with its schedule, and how many requests may be outstanding here.
    fn load(&self) -> Result<(Load, Schedule, u64), NoSession> {
        let rate = rate(self.rate).ok_or_else(|| NoSession::Impossible("so much cannot be sent".into()))?;
        let schedule = Schedule::constant(rate, Spacing::Even);
        let until = Until { after: nanos(self.lasts), ..Until::default() };
        let of = self.slice.of() as f64;
        let most = (OUTSTANDING.0 * self.rate / of + (OUTSTANDING.1 / of).max(LEAST_OUTSTANDING)) as u64;
        let load = Load { until, ..Load::new(Arrivals::Open(schedule.clone()), 2 * most as usize) };
        let load = Load { slice: self.slice, start_at: self.start_at, ..watched(load, DRAIN) };
        Ok((load, schedule, most))
    }
}

/// What was seen of a load, before it is said what that comes to.
pub(super) struct Loaded {
    /// Those that came to their end.
    pub(super) cells: Vec<Vec<Hits>>,
    /// This machine was the limit of all of them.
    pub(super) limited: bool,
    pub(super) times: Vec<Histogram>,
    pub(super) counts: Vec<Counts>,
    pub(super) cut: Option<Cut>,
    pub(super) limits: Vec<String>,
}

impl Loaded {
    fn part(self) -> Part {
        let Self { cells, limited, times, counts, cut, limits } = self;
        Part { cells: told(cells, limited), times, counts, cut, limits }
    }
}

/// What was seen of a load, or of some.
struct Part {
    cells: Vec<Cell>,
    times: Vec<Histogram>,
    counts: Vec<Counts>,
    cut: Option<Cut>,
    limits: Vec<String>,
}

impl Part {
    fn new(ways: usize) -> Self {
        let (times, counts) = (vec![Histogram::default(); ways], vec![Counts::default(); ways]);
        Self { cells: Vec::new(), times, counts, cut: None, limits: Vec::new() }
    }

    /// Times and counts of a block.
    fn add(&mut self, block: &Self) {
        self.times.iter_mut().zip(&block.times).for_each(|(all, one)| all.add(one));
        self.counts.iter_mut().zip(&block.counts).for_each(|(all, one)| all.merge(one));
    }
}

impl Paths for Bench {
    fn carry_out(&mut self, segment: &Segment, rate: f64) -> Seen {
        let clock = RunClock::start();
        let seen = match segment.design {
            Design::Interleaved => self.interleaved(segment, rate),
            Design::Blocks => self.blocks(segment, rate),
        };
        let failed = |error: NoSession| Part { cut: Some(Cut::Failed(error.to_string())), ..Part::new(0) };
        let Part { cells, times, counts, cut, limits } = seen.unwrap_or_else(failed);
        Seen { cells, took: Duration::from_nanos(clock.now()), cut, limits, times, counts }
    }
}

/// A round's cell with a member's block; none where a block did not come to its end, by nobody's doing.
#[must_use]
pub fn joined(cell: Option<Cell>, member: usize, block: Option<Cell>) -> Option<Cell> {
    let (mut cell, block) = (cell?, block?);
    cell[member] = block[member];
    Some(cell)
}

/// Places of requests on a list, in the order in which they are sent: each way once in a round, each with its own requests in turn.
fn order(segment: &Segment, of: &[usize], rate: f64) -> Vec<u32> {
    let hits = (segment.sends().as_secs_f64() * rate) as usize + 1;
    let mut own: Vec<_> = segment
        .members
        .iter()
        .map(|member| {
            let places = (0..of.len()).filter(|&place| of[place] == *member);
            (*member, places.collect::<Vec<_>>().into_iter().cycle())
        })
        .collect();
    let rounds = segment.rounds(hits / segment.members.len() + 1).into_iter().flatten();
    let place = |member| own.iter_mut().find(|(of, _)| *of == member)?.1.next();
    rounds.filter_map(place).filter_map(|place| u32::try_from(place).ok()).collect()
}

#[cfg(test)]
mod tests {
    use seawall_isolate::segment::Times;
    use seawall_isolate::slot::Slot;

    use super::*;

    /// It ended the experiment, as if by a signal that nobody had sent.
    #[test]
    fn a_round_of_which_a_block_is_incomplete_is_left_out() {
        let slot = |took| Some(Slot::of(vec![took; 9], 9, 0, false));
        let block = |member: usize| {
            let mut block = vec![None; 3];
            block[member] = slot(member as f64);
            Some(block)
        };
        let begun = joined(Some(vec![None; 3]), 2, block(2));
        assert_eq!(joined(begun.clone(), 0, block(0)), Some(vec![slot(0.0), None, slot(2.0)]));
        assert_eq!(joined(joined(begun, 0, None), 1, block(1)), None);
    }

    #[test]
    fn each_way_is_sent_as_often_as_any_other_with_all_of_its_requests() {
        let segment = Segment::new(Design::Interleaved, vec![0, 2], 100.0, Times::USUAL, 3);
        // The first way has two requests, the other one.
        let order = order(&segment, &[0, 0, 2], 100.0);
        assert!(order.len() >= 1020);
        let count = |place| order.iter().filter(|&&at| at == place).count();
        assert_eq!((count(0) + count(1), count(0)), (count(2), count(1) + count(2) % 2));
        assert!(order.windows(2).any(|pair| pair == [2, 2]), "not simply in turn");
    }
}
