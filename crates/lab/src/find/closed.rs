//! A run that looks for a number of clients, each of which waits for its answer before it asks again, in place of a rate.
//!
//! [`find`] searches within the plan's budget and makes an [`Answer`] of what came of it: the same form, with [`Answer::closed`] where cliff
//! and knee would be. The generator is not looked at before, because no rate is asked of it; each trial is judged by itself. Nobody
//! looks for the cause: what tells causes apart is offered at rates, to users who do not wait, which is what a closed loop is not
//! about. Called by the tool.

use std::time::Duration;

use seawall_search::closed::{self as search, Report, Search};
use seawall_search::profile::Profile;
use seawall_search::report::Outcome as Ended;
use seawall_search::search::Search as OfRates;
use seawall_search::seen::{BLOCK, sum};
use seawall_search::vote;

use super::answer::{Answer, Clients, Closed, Cut, Generator, Outcome, Saturation, Trial};
use super::plan::Plan;
use super::progress::Watcher;
use super::steps::Steps;
use super::told;
use crate::ground::Ground;

/// Most clients where nobody says otherwise: without a bound on latency a queue bears any number of them.
pub const MOST: u32 = 4096;

/// Of a search, beside the times of its profile: the baseline, a ladder up to [`MOST`], and the last look at the lower bound.
const AROUND: Duration = Duration::from_secs(35);

/// Carries out a run with so many clients at most.
pub fn find(
    ground: &mut (impl Ground + ?Sized),
    plan: &Plan,
    most: Option<u32>,
    watcher: &mut impl Watcher,
) -> Answer {
    let asked = most.unwrap_or(MOST);
    let room = ground.most_clients();
    let mut search = Search::new(plan.goal, within(plan), asked.min(room));
    let mut steps = Steps::new(plan, watcher);
    let cut = steps.search_clients(ground, &mut search);
    let answer = told(plan, &search.report(), cut, room < asked);
    let how =
        format!("it was not tried out, and each trial is judged by itself; there is room for {room} clients");
    let generator = Generator { most: None, how };
    Answer { generator, took: steps.spent().as_secs_f64(), ..answer }
}

/// The profile with as much time as there is.
fn within(plan: &Plan) -> Profile {
    let profile = plan.profile;
    let whole = profile.budget + profile.knee_budget + AROUND;
    let share = plan.budget.map_or(1.0, |budget| (budget.as_secs_f64() / whole.as_secs_f64()).min(1.0));
    let (budget, knee_budget) = (profile.budget.mul_f64(share), profile.knee_budget.mul_f64(share));
    Profile { budget, knee_budget, ..profile }
}

/// What ended a search that is over.
pub(super) fn ended_by(search: &Search) -> Option<Cut> {
    (search.report().outcome == Some(Ended::Interrupted)).then_some(Cut::Signal)
}

/// What is known; `is_short` says that the generator could keep no more clients, and more might have been asked for.
pub(super) fn told(plan: &Plan, report: &Report, cut: Option<Cut>, is_short: bool) -> Answer {
    // Everything that an answer has beside clients is empty, as it is before a search for a rate.
    let nothing = OfRates::new(plan.goal, plan.profile, plan.bounds(None)).report();
    let outcome = outcome(report, is_short);
    Answer {
        outcome,
        closed: Some(Closed {
            most: report.most,
            service: Some(report.service).filter(|service| *service > 0.0),
            limit: limit(report, outcome),
            saturation: report.saturation.map(saturation),
        }),
        fails: report.kind.map(Into::into),
        trials: report.trials.iter().map(trial).collect(),
        ..told::search(plan, &nothing, cut)
    }
}

/// A search that had no more time has found what was between two numbers that were tested. Where nothing broke with as many as the
/// generator can keep, nothing is said of the target.
fn outcome(report: &Report, is_short: bool) -> Outcome {
    let is_tested =
        report.limit.bracket.is_some() && report.limit.good.is_some() && report.limit.bad.is_some();
    match report.outcome {
        Some(Ended::Found) => Outcome::Found,
        Some(Ended::Metastable) => Outcome::Metastable,
        Some(Ended::Capped) if is_short => Outcome::GeneratorLimited,
        Some(Ended::Capped) => Outcome::Capped,
        Some(Ended::GeneratorLimited) => Outcome::GeneratorLimited,
        Some(Ended::UnstableBaseline) => Outcome::UnstableBaseline,
        Some(Ended::Gone) => Outcome::Gone,
        None if is_tested => Outcome::Found,
        Some(Ended::Interrupted) | None => Outcome::Interrupted,
    }
}

/// A bracket is stated where numbers to both sides of the limit were tested.
fn limit(report: &Report, outcome: Outcome) -> Clients {
    let search::Limit { bracket, good, bad } = report.limit;
    let is_between = !matches!(
        outcome,
        Outcome::Capped | Outcome::GeneratorLimited | Outcome::UnstableBaseline | Outcome::Gone
    );
    let bracket = bracket.filter(|_| is_between && bad.is_some());
    let held = report
        .trials
        .iter()
        .filter(|trial| Some(trial.offer.clients) == good && trial.counts && trial.vote != vote::Vote::Bad);
    Clients {
        lower: bracket.map(|[lower, ..]| lower),
        point: bracket.map(|[lower, point, upper]| point.clamp(lower, upper)),
        upper: bracket.map(|[.., upper]| upper),
        good,
        good_for: held.map(|held| trial(held).lasted()).reduce(f64::max),
        bad,
    }
}

fn saturation(found: search::Saturation) -> Saturation {
    let search::Saturation { rate, deviation, enough, short, little, reached } = found;
    Saturation { rate, deviation, clients: enough, short, little, reached }
}

/// One trial.
pub(super) fn trial(trial: &search::Trial) -> Trial {
    let (evidence, blocks) = (&trial.finding.evidence, &trial.seen.blocks);
    let seconds = (blocks.len() as f64 * BLOCK).max(BLOCK);
    Trial {
        purpose: told::purpose(trial.offer.purpose).to_owned(),
        rate: sum(blocks, |block| block.ended()) / seconds,
        clients: Some(trial.offer.clients),
        began: trial.began.as_secs_f64(),
        took: trial.seen.took.as_secs_f64(),
        vote: trial.vote.into(),
        why: why(trial),
        fails: trial.kind.map(Into::into),
        weight: f64::from(u8::from(trial.counts)),
        goodput: evidence.goodput,
        errors: evidence.errors.value(),
        failing: trial.seen.beside.failing.clone(),
        quantiles: trial.seen.beside.quantiles,
        late: is_judged_late(trial).then(|| evidence.late.value()),
        invalid: trial.seen.invalid.clone(),
        no_port: trial.seen.no_port,
        away: trial.seen.away,
        interrupted: trial.seen.interrupted,
        blocks: blocks.iter().map(told::block).collect(),
    }
}

/// Whether lateness was looked for and anything is known of it: where the goal does not speak of it, what fails alone is late.
fn is_judged_late(trial: &search::Trial) -> bool {
    trial.offer.standard.goal.late.is_some() && trial.finding.evidence.late.of > 0.0
}

/// Why a trial points where it does.
fn why(trial: &search::Trial) -> String {
    if let Some(invalid) = &trial.seen.invalid {
        return invalid.clone();
    }
    let evidence = &trial.finding.evidence;
    let errors = told::errors(evidence.errors, &trial.seen.beside);
    let late = format!("{} late", told::percent(evidence.late.value()));
    match trial.vote {
        _ if trial.finding.hangs => "most of them have no answer".to_owned(),
        vote::Vote::Good => "held".to_owned(),
        _ if is_judged_late(trial) => format!("{errors}, {late}"),
        _ => errors,
    }
}
