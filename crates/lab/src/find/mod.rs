//! The rate at which a target breaks, and why: a whole run, over whatever ground it is carried out on.
//!
//! [`find`] looks at the generator, searches, asks for the cause, and makes an [`answer::Answer`] of everything; the search's steps
//! and the inquiry's are taken here one by one, so that a [`progress::Watcher`] hears of each and all of them together stay within the
//! [`plan::Plan`]'s budget. [`told`] makes data of what they know, [`read`] reads it back, [`resume`] leads a search to where another
//! run ended, [`compare`] holds two runs beside each other, [`witness`] has the target itself looked at meanwhile. [`closed`] is a run
//! that looks for a number of clients in place of a rate. Knows no socket, clock, page or exit code: time is what the ground says
//! that its steps took. Called by the tool.

pub mod answer;
pub mod closed;
pub mod compare;
pub mod plan;
pub mod progress;
pub mod read;
pub mod resume;
mod steps;
#[cfg(test)]
mod tests;
pub mod told;
pub mod witness;

use std::time::Duration;

use seawall_cause::inquiry::{self, Inquiry, Known};
use seawall_search::report::{Outcome, Report};
use seawall_search::search::{self, Search};

use self::answer::{Answer, Cut, Generator, Grant};
use self::plan::Plan;
use self::progress::{Step, Watcher};
use self::resume::Diverged;
use self::steps::Steps;
use crate::ground::{Calibration, Ground};

/// Carries out a run, or what is left of an earlier one.
///
/// # Errors
/// [`Diverged`]: the earlier run cannot be continued. Nothing was sent then.
pub fn find(
    ground: &mut (impl Ground + ?Sized),
    plan: &Plan,
    before: Option<&Answer>,
    watcher: &mut impl Watcher,
) -> Result<Answer, Diverged> {
    let mut earlier = before.map(|before| Earlier::of(plan, before)).transpose()?;
    if let (Some(whole), Some(earlier)) = (before, &mut earlier)
        && is_whole(plan, whole, earlier)
    {
        return Ok(whole.clone());
    }
    let mut steps = Steps::new(plan, watcher);
    // What was ended before it had sent anything knows nothing of the generator either.
    let earlier = match earlier.filter(|earlier| earlier.search.last().is_some()) {
        Some(earlier) => earlier,
        None => match calibrate(ground, &mut steps) {
            (generator, false) => Earlier::none(plan, generator),
            (generator, true) => return Ok(told::nothing(plan, generator, steps.spent())),
        },
    };
    let Earlier { generator, mut search, mut grants, took } = earlier;
    let until = steps.left().map(|left| plan.for_search(left));
    grants.push(grant(&mut search, plan, until));
    let mut cut = steps.search(ground, &mut search, until);
    // Where nothing was found there is no cause to look for, and not all of its time is kept for it; but it may be found then.
    if cut == Some(Cut::Budget) && plan.cause && !told::is_found(&search.report()) {
        // What was planned with less time is planned anew, as it is by whoever continues the run from its file.
        let so_far = Answer {
            generator: generator.clone(),
            grants: grants.clone(),
            ..told::search(plan, &search.report(), cut)
        };
        search = resume::search(plan, &so_far)?;
        let until = steps.left().map(|left| left / 3);
        grants.push(grant(&mut search, plan, until));
        cut = steps.search(ground, &mut search, until);
    }
    let report = search.report();
    let mut answer = told::search(plan, &report, cut);
    (answer.generator, answer.grants) = (generator, grants);
    if plan.cause {
        look_for_cause(ground, plan, &report, &mut answer, &mut steps);
    }
    answer.took = (took + steps.spent()).as_secs_f64();
    Ok(answer)
}

/// What is known of a run before anything is sent.
#[must_use]
pub fn nothing_yet(plan: &Plan) -> Answer {
    Answer { cut: None, ..told::nothing(plan, Generator::default(), Duration::ZERO) }
}

/// Whether there is nothing left to do of an earlier run, so that [`find`] would send nothing.
///
/// # Errors
/// As [`find`].
pub fn has_nothing_left(plan: &Plan, before: &Answer) -> Result<bool, Diverged> {
    Ok(is_whole(plan, before, &mut Earlier::of(plan, before)?))
}

/// Whether there is nothing left to do of an earlier run: what it was sure of is not asked again.
fn is_whole(plan: &Plan, before: &Answer, earlier: &mut Earlier) -> bool {
    let asked = !plan.cause || before.cause.is_some() || !before.is_found();
    before.cut.is_none() && asked && earlier.search.next_step() == search::Step::Over
}

/// Where a search stands before anything is sent in this run.
struct Earlier {
    generator: Generator,
    search: Search,
    grants: Vec<Grant>,
    took: Duration,
}

impl Earlier {
    /// At its begin.
    fn none(plan: &Plan, generator: Generator) -> Self {
        let search = Search::new(plan.goal, plan.profile, plan.bounds(generator.most));
        Self { generator, search, grants: Vec::new(), took: Duration::ZERO }
    }

    /// Where this one ended.
    fn of(plan: &Plan, before: &Answer) -> Result<Self, Diverged> {
        let search = resume::search(plan, before)?;
        let (generator, grants) = (before.generator.clone(), before.grants.clone());
        let took = resume::seconds(before.took)?;
        Ok(Self { generator, search, grants, took })
    }
}

/// What the generator can do, and whether somebody wants everything to end.
fn calibrate(ground: &mut (impl Ground + ?Sized), steps: &mut Steps<'_, impl Watcher>) -> (Generator, bool) {
    let Calibration { most, how, interrupted, .. } =
        steps.step(Step::Calibrate, || ground.calibrate(), |calibration| calibration.took);
    (Generator { most, how }, interrupted)
}

/// Shares out the time that the search may take from now on.
fn grant(search: &mut Search, plan: &Plan, until: Option<Duration>) -> Grant {
    let report = search.report();
    let (cliff, knee) = plan.shares(until);
    let cliff = report.took + cliff;
    search.grant(cliff, knee);
    Grant { after: report.trials.len(), cliff: cliff.as_secs_f64(), knee: knee.as_secs_f64() }
}

/// Asks why, where there is something to ask about and somebody is still there.
fn look_for_cause(
    ground: &mut (impl Ground + ?Sized),
    plan: &Plan,
    report: &Report,
    answer: &mut Answer,
    steps: &mut Steps<'_, impl Watcher>,
) {
    if answer.outcome == answer::Outcome::GeneratorLimited {
        told::blame_generator(answer);
    }
    let lacked_ports = told::lacked_ports(answer);
    let limit = lacked_ports.or_else(|| broken_at(report, answer));
    let Some(limit) = limit.filter(|_| answer.cut != Some(Cut::Signal)) else { return };
    // A backlog that is full of a search's connections would let none of an inquiry's in.
    ground.hang_up();
    if lacked_ports.is_none() && steps.wait_for_answers(ground, limit) {
        answer.cut = Some(Cut::Signal);
        return;
    }
    let mut inquiry = Inquiry::new(Known {
        limit,
        service: told::service(report).unwrap_or(0.0),
        timeout: plan.timeout.map_or(f64::INFINITY, |timeout| timeout.as_secs_f64()),
        failing: told::failing(report),
        keep_alive: plan.connections.keep_alive,
        tls: plan.target.tls,
        named: plan.target.named,
        max_rate: plan.max_rate,
        generator: answer.generator.most,
        budget: steps.left().unwrap_or(Duration::MAX),
    });
    let cut = steps.inquire(ground, &mut inquiry, answer);
    if cut == Some(Cut::Budget) {
        let next = inquiry.next_step();
        told::left_out(answer, if let inquiry::Step::Try(next) = &next { Some(next.name) } else { None });
    }
    answer.cut = cut.or(answer.cut);
    let tell = if lacked_ports.is_some() { told::ports } else { told::cause };
    tell(answer, inquiry.report());
}

/// The rate at which it breaks: the cliff, or the knee where nothing broke; the highest that was offered, where the goal is kept at none.
/// None where nothing that is tried would have anything to be held against.
fn broken_at(report: &Report, answer: &Answer) -> Option<f64> {
    match report.outcome {
        Some(Outcome::UnstableBaseline) => told::highest(report),
        _ if answer.is_found() => {
            let Answer { cliff, knee, .. } = answer;
            cliff.point.or(cliff.bad).or(knee.point).or(knee.bad)
        }
        _ => None,
    }
}
