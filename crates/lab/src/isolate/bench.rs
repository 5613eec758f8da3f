//! Carries segments out: sessions of the load engine with new, warm connections, for each segment anew.

use std::io::ErrorKind;
use std::time::Duration;

use seawall_isolate::segment::{Design, Segment};
use seawall_isolate::slot::Cell;
use seawall_load::clock::{RunClock, nanos};
use seawall_load::fault::Fault;
use seawall_load::plan::{Load, Setup, Travel};
use seawall_load::request::{Request, Style};
use seawall_load::schedule::{Arrivals, Schedule, Spacing, Until};
use seawall_load::session::Session;
use seawall_load::stats::Histogram;
use seawall_load::supply::{List, Source};
use seawall_load::target::Weight;

use super::counts::Counts;
use super::slots::Cells;
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

    fn session(&self, list: List, travel: &Travel, rate: f64) -> Result<Session, NoSession> {
        let threads = means::threads(rate, self.cpus);
        let (source, travel, style) = (Source::List(list), travel.clone(), self.style.clone());
        let mut session =
            Session::open(Setup { source, travel, style, threads, spin: means::spin(threads) })?;
        session.warm(WARM)?;
        Ok(session)
    }

    fn interleaved(&self, segment: &Segment, rate: f64) -> Result<Part, NoSession> {
        let (requests, of) = self.requests(&segment.members);
        let order = order(segment, &of, rate);
        let list = List::new(requests).ok().and_then(|list| list.in_order(order));
        let list = list.ok_or_else(|| NoSession::Impossible("there is nothing to send".into()))?;
        let mut session = self.session(list, &self.shared, rate)?;
        let cells = Cells::new(nanos(segment.settle), nanos(segment.each), segment.cells, self.ways.len());
        self.load(&mut session, segment.lasts(), rate, cells, |target| of[target])
    }

    fn blocks(&self, segment: &Segment, rate: f64) -> Result<Part, NoSession> {
        let mut sessions: Vec<Option<Session>> = self.ways.iter().map(|_| None).collect();
        for &member in &segment.members {
            let way = &self.ways[member];
            let list = way.list().map_err(|bad| NoSession::Impossible(bad.to_string()))?;
            sessions[member] = Some(self.session(list, way.travel(&self.shared), rate)?);
        }
        let mut whole = Part::new(self.ways.len());
        for round in segment.blocks() {
            let mut cell: Option<Cell> = Some(vec![None; self.ways.len()]);
            for member in round {
                let Some(session) = &mut sessions[member] else { continue };
                let cells = Cells::new(nanos(segment.settle), nanos(segment.each), 1, self.ways.len());
                let part = self.load(session, segment.settle + segment.each, rate, cells, |_| member)?;
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

    fn load(
        &self,
        session: &mut Session,
        lasts: Duration,
        per_second: f64,
        mut cells: Cells,
        of: impl Fn(usize) -> usize,
    ) -> Result<Part, NoSession> {
        let rate = rate(per_second).ok_or_else(|| NoSession::Impossible("so much cannot be sent".into()))?;
        let schedule = Schedule::constant(rate, Spacing::Even);
        let until = Until { after: nanos(lasts), ..Until::default() };
        let most = (OUTSTANDING.0 * per_second + OUTSTANDING.1) as u64;
        let load = Load { until, ..Load::new(Arrivals::Open(schedule.clone()), 2 * most as usize) };
        let load = watched(load, DRAIN);
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
        let (cells, times) = cells.told(|at| schedule.hits_before(at.min(until.after)), limited);
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
        Ok(Part { cells, times, counts, cut, limits: limiting.map(|reason| reason.measured).collect() })
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
fn joined(cell: Option<Cell>, member: usize, block: Option<Cell>) -> Option<Cell> {
    let (mut cell, block) = (cell?, block?);
    cell[member] = block[member];
    Some(cell)
}

/// Places of requests on a list, in the order in which they are sent: each way once in a round, each with its own requests in turn.
fn order(segment: &Segment, of: &[usize], rate: f64) -> Vec<u32> {
    let hits = (segment.lasts().as_secs_f64() * rate) as usize + 1;
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
