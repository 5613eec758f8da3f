//! The inquiry: base, near, over; then what is expected to tell most for its time, the harmless first; after each overload, whether
//! the target is itself again. Says what it wants next ([`Inquiry::next_step`]) and is told what came of it; between the two it does
//! nothing, and [`Inquiry::report`] says at any moment what is known.

use std::time::Duration;

use crate::battery::{self, ExperimentPlan, PLANS};
use crate::case::DiagnosisInput;
use crate::class::CauseClass;
use crate::experiment::{Experiment, ExperimentLoad};
use crate::odds::{self, CausePosterior, ObservedSign, RULES};
use crate::report::{DiagnosisReport, ExperimentRecord};
use crate::signs;
use crate::sizes::{self, IDLE_APART};
use crate::view::ExperimentStats;
use crate::watched::{ExperimentObservation, ObservedOutcome};
use crate::words::{self, TargetCondition};

/// What the search has found out.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchFindings {
    /// The rate at which it breaks, requests a second.
    pub limit: f64,
    /// Mean response time with next to nothing to do, in seconds.
    pub service: f64,
    /// How long an answer may take, in seconds.
    pub timeout: f64,
    /// The share of requests that fails at any rate, where that is what was found; else 0.
    pub failure_share: f64,
    /// Connections are used again.
    pub keep_alive: bool,
    /// Requests go over TLS.
    pub tls: bool,
    /// The target is a name, and no address.
    pub target_is_name: bool,
    /// No second may have more requests: `--max-rate`.
    pub max_rate: Option<f64>,
    /// No rate may be higher, requests a second: what the generator can send.
    pub generator: Option<f64>,
    /// How long the inquiry may take, with its waits; base, near and over are tried in any case.
    pub budget: Duration,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq)]
pub enum InquiryStep {
    /// Carry this out.
    RunExperiment(Experiment),
    /// Send nothing.
    Pause(Duration),
    /// Nothing: what can be told is told.
    Finished,
}

/// Trials in a row that cannot be believed are the generator's doing.
const INVALID: usize = 3;
/// Fewer bits than this are not worth a second of load.
const WORTH: f64 = 0.1;
/// What is to be tried next is chosen by signs that are believed only so much: an inquiry that is sure too early learns nothing.
const TRUST: f64 = 0.7;
/// How often what is not known of an idle time is halved: from 0.1 ms and 0.6 s, by their geometric mean, to a seventh more at most.
const HALVINGS: usize = 6;
/// What a trial costs beside its load, in seconds.
const BESIDE: f64 = 0.6;

/// Whether the target is itself again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecoveryState {
    /// As far as anybody knows.
    Calm,
    /// The last experiment was an overload: somebody must look.
    Look,
    /// It is not: it is left in peace for a while.
    Rest,
}

/// An inquiry under way: asked what it wants next, told what came of it.
#[derive(Debug, Clone)]
pub struct Inquiry {
    known: SearchFindings,
    report: DiagnosisReport,
    /// Nothing more is wanted.
    is_over: bool,
    pending: Option<InquiryStep>,
    /// Seconds so far.
    spent: f64,
    /// Trials in a row that cannot be believed.
    invalid: usize,
    recovery: RecoveryState,
    /// How often it was not.
    degraded: usize,
    /// Base was asked again.
    repeated: bool,
    /// What is carried out when the second before it has nothing in it.
    put_off: Option<Experiment>,
}

impl Inquiry {
    /// One that has not begun.
    #[must_use]
    pub fn new(known: SearchFindings) -> Self {
        Self {
            known,
            report: DiagnosisReport::default(),
            is_over: false,
            pending: None,
            spent: 0.0,
            invalid: 0,
            recovery: RecoveryState::Calm,
            degraded: 0,
            repeated: false,
            put_off: None,
        }
    }

    /// What is known beforehand.
    #[must_use]
    pub fn known(&self) -> &SearchFindings {
        &self.known
    }

    /// What is to be done next; the same again until it was told what came of it.
    pub fn next_step(&mut self) -> InquiryStep {
        if self.is_over {
            return InquiryStep::Finished;
        }
        if self.pending.is_none() {
            self.pending = self.plan();
        }
        match &self.pending {
            Some(step) => step.clone(),
            None => {
                self.end();
                InquiryStep::Finished
            }
        }
    }

    /// An experiment was carried out, or could not be: then it is not asked for again.
    pub fn record_experiment(&mut self, experiment: &Experiment, watched: ExperimentObservation) {
        self.pending = None;
        let (interrupted, invalid) = (watched.interrupted, watched.invalid.is_some());
        let ran = watched.impossible.is_none();
        let least = if ran { load_seconds(experiment) } else { 0.0 };
        self.spent += least.max(watched.took.as_secs_f64());
        let says = words::says(experiment, &watched);
        self.report.experiments.push(ExperimentRecord {
            experiment: experiment.clone(),
            observation: watched,
            summary: says,
        });
        self.count_invalid(experiment, invalid);
        // What cannot be believed was sent all the same.
        if ran && overloads(experiment, &self.known) {
            self.recovery = RecoveryState::Look;
        } else if ran && !invalid {
            self.recovery = RecoveryState::Calm;
        }
        if experiment.name == "again" && ran && !invalid {
            self.learn_again();
        } else if ran && !invalid && self.is_deserted() {
            self.recovery = RecoveryState::Look;
        }
        self.conclude();
        // Without base nothing can be held against anything, without a look nobody knows what an overload has left behind.
        let blind = !ran && matches!(experiment.name, "base" | "again");
        if interrupted || blind || self.invalid >= INVALID {
            self.end();
        }
    }

    /// A look between two overloads of which neither can be believed says nothing for either.
    fn count_invalid(&mut self, experiment: &Experiment, invalid: bool) {
        if invalid {
            self.invalid += 1;
        } else if experiment.name != "again" {
            self.invalid = 0;
        }
    }

    /// Nothing was sent for that long; `goes_on` is false if somebody wants everything to end.
    pub fn record_pause(&mut self, time: Duration, goes_on: bool) {
        self.spent += time.as_secs_f64();
        self.pending = self.put_off.take().map(InquiryStep::RunExperiment);
        if self.pending.is_none() {
            self.recovery = RecoveryState::Look;
        }
        if !goes_on {
            self.end();
        }
    }

    /// What is known now.
    #[must_use]
    pub fn report(&self) -> &DiagnosisReport {
        &self.report
    }

    fn case(&self) -> DiagnosisInput<'_> {
        DiagnosisInput { known: &self.known, tried: &self.report.experiments }
    }

    fn end(&mut self) {
        self.is_over = true;
        self.conclude();
    }

    fn plan(&mut self) -> Option<InquiryStep> {
        if self.known.limit <= 0.0 || !self.known.limit.is_finite() {
            return None;
        }
        if self.recovery == RecoveryState::Rest {
            return Some(InquiryStep::Pause(REST));
        }
        let look = self.recovery == RecoveryState::Look;
        let next = if look { Some(battery::recovery_check(&self.case())) } else { self.repetition() };
        let next = next.or_else(|| self.opening()).or_else(|| self.other_ports());
        let next =
            next.or_else(|| if self.has_calm() { self.suspicion().or_else(|| self.choose()) } else { None });
        let next = next.filter(|next| self.affords(next))?;
        if self.has_to_keep_away(&next) {
            self.put_off = Some(next);
            return Some(InquiryStep::Pause(APART));
        }
        Some(InquiryStep::RunExperiment(next))
    }

    /// Whether it and what was tried last may have more in one second together than the user lets be offered.
    fn has_to_keep_away(&self, next: &Experiment) -> bool {
        let last = self.report.experiments.last().filter(|last| last.observation.impossible.is_none());
        let crowded = |last: &ExperimentRecord| {
            [last.experiment.load.clone(), next.load.clone()].iter().any(battery::is_bursty)
        };
        self.known.max_rate.is_some() && last.is_some_and(crowded)
    }

    /// Where this machine lacks ports, they say the more the less is known of the target: whether another address has some comes first.
    fn other_ports(&self) -> Option<Experiment> {
        let case = self.case();
        let plan = PLANS.iter().find(|plan| plan.name == "another source")?;
        plan.experiment(&case).filter(|_| case.times_attempted(plan.name) < plan.max_times)
    }

    /// Something was answered well at half the limit: else nothing that is tried has anything to be held against, and a wrong path
    /// looks like a cap.
    fn has_calm(&self) -> bool {
        self.case().base().is_some_and(|base| base.view.good().next().is_some())
    }

    fn affords(&self, next: &Experiment) -> bool {
        let opening = matches!(next.name, "base" | "near" | "over");
        opening || self.spent + load_seconds(next) <= self.known.budget.as_secs_f64()
    }

    /// Base once more, where it was disturbed: then one client alone was far quicker.
    fn repetition(&mut self) -> Option<Experiment> {
        let case = self.case();
        let alone = case.last_named("one client")?.view.response_times();
        let disturbed = alone.count() >= 5 && case.base_response_times().mean() > 2.0 * alone.mean() + 0.001;
        if !disturbed || self.repeated {
            return None;
        }
        self.repeated = true;
        Some(battery::base(&self.case()))
    }

    fn opening(&self) -> Option<Experiment> {
        let case = self.case();
        let makes = [
            ("base", battery::base as fn(&DiagnosisInput<'_>) -> Experiment),
            ("near", battery::near),
            ("over", battery::over),
        ];
        // What cannot be believed is tried again; what cannot be carried out, or has come to nothing, is gone without.
        let last = |name: &str| case.tried.iter().rfind(|tried| tried.experiment.name == name);
        let due = |name: &str| last(name).is_none_or(|tried| tried.observation.invalid.is_some());
        let next = makes.into_iter().find(|(name, _)| case.last_named(name).is_none() && due(name));
        next.map(|(_, make)| make(&case))
    }

    /// What was seen once, too seldom to say so, is looked for: it may be a second cause.
    fn suspicion(&self) -> Option<Experiment> {
        let case = self.case();
        let still = case.times_attempted("long base") == 0
            && signs::stood_still_once(&case)
            && !self.shown("long base");
        let raced =
            case.times_attempted("two connections") == 0 && signs::raced_once(&case) && !self.shown("base");
        let make =
            |name: &str| PLANS.iter().find(|plan| plan.name == name).and_then(|plan| plan.experiment(&case));
        let next = if still { make("long base") } else { None };
        next.or_else(|| if raced { make("two connections") } else { None }).filter(|next| self.affords(next))
    }

    /// Whether the signs of such an experiment say so already.
    fn shown(&self, by: &str) -> bool {
        let rules = RULES.iter().filter(|rule| rule.experiment == by && rule.outcomes() == 2);
        rules.filter_map(|rule| (rule.read)(&self.case())).any(|(outcome, _)| outcome == 1)
    }

    /// What is expected to tell most for its time; what does harm only when nothing harmless is worth it.
    fn choose(&self) -> Option<Experiment> {
        let case = self.case();
        let odds = CausePosterior::new(&odds::read_signs(&case), TRUST);
        let best = |harms: bool| {
            let plans = PLANS
                .iter()
                .filter(|plan| plan.is_harmful == harms && case.times_attempted(plan.name) < plan.max_times);
            let worth = plans.filter_map(|plan| Some((self.worth(plan, &odds)?, plan)));
            worth.filter(|(worth, _)| *worth > WORTH).max_by(|one, other| one.0.total_cmp(&other.0))
        };
        let plan = best(false).or_else(|| best(true)).map(|(_, plan)| plan);
        plan.and_then(|plan| plan.experiment(&case))
            .or_else(|| self.settle(&odds))
            .or_else(|| self.last_look())
            .or_else(|| self.bisect())
    }

    /// A race of kept connections shows at no rate as long as none of them is old: it may lie beside any cause.
    fn last_look(&self) -> Option<Experiment> {
        let case = self.case();
        let old = ["two connections", "idle connections"];
        let mut plans =
            PLANS.iter().filter(|plan| old.contains(&plan.name) && case.times_attempted(plan.name) == 0);
        plans.find_map(|plan| plan.experiment(&case).filter(|next| self.affords(next)))
    }

    /// Halves what is not known of the time after which idle connections are closed, where a race was seen.
    fn bisect(&self) -> Option<Experiment> {
        let case = self.case();
        let raced = self.report.causes.iter().any(|cause| cause.class == CauseClass::KeepAliveRace);
        let (alive, closed) = sizes::idle_between(&case)?;
        let open = closed > IDLE_APART * alive && case.times_attempted("idle for") < HALVINGS;
        (raced && open)
            .then(|| battery::idle_for(&case, (alive * closed).sqrt()))
            .filter(|next| self.affords(next))
    }

    /// Bits for a second; none where it cannot be had.
    fn worth(&self, plan: &ExperimentPlan, odds: &CausePosterior) -> Option<f64> {
        let experiment = plan.experiment(&self.case()).filter(|experiment| self.affords(experiment))?;
        let rules = RULES.iter().filter(|rule| shows(plan.name, rule.experiment));
        let told: f64 = rules.map(|rule| odds.expected_information(rule)).sum();
        // Again says less than the first time.
        let again = 1.0 + self.case().times_attempted(plan.name) as f64;
        Some(told / again / (load_seconds(&experiment) + BESIDE))
    }

    /// How many connections there may be where requests hang: a cap that lies far above a limiter shows at no lower rate. The last of
    /// all, because it is the heaviest.
    fn settle(&self, odds: &CausePosterior) -> Option<Experiment> {
        let case = self.case();
        let hang = case.over().is_some_and(|over| over.view.share_where(|hit| hit.outcome.hangs()) > 0.05);
        let capped = odds.leading() == CauseClass::ConnectionCap;
        if !(capped || odds.leading() == CauseClass::HangingLimiter)
            || !hang
            || case.known.limit > MOST_FOR_COUNT
        {
            return None;
        }
        let few = capped.then(|| battery::few_connections(&case));
        let much = [battery::much_over(&case, false), battery::much_over(&case, true)];
        // One without the other says nothing.
        let much = much.into_iter().flatten().filter(|_| battery::much_over(&case, true).is_some());
        let next = few.into_iter().chain(much).find(|next| case.times_attempted(next.name) == 0);
        next.filter(|next| self.affords(next))
    }

    /// Whether it was itself again after an overload.
    fn learn_again(&mut self) {
        let case = self.case();
        let failed = case.last_named("again").is_some_and(|again| is_degraded(&again.view, &case));
        if !failed {
            self.degraded = 0;
            return;
        }
        self.degraded += 1;
        self.recovery = RecoveryState::Rest;
        if self.degraded > 2 {
            // Whatever is tried now would be seen in the light of that overload.
            self.is_over = true;
        }
    }

    /// Whether nobody was there in the last experiment, and somebody was before.
    fn is_deserted(&self) -> bool {
        let last = self.report.experiments.last().map(|last| ExperimentStats::new(&last.observation));
        let was_there = self
            .report
            .experiments
            .iter()
            .any(|tried| ExperimentStats::new(&tried.observation).good().next().is_some());
        was_there && last.is_some_and(|last| last.is_down() || last.is_down_at_end())
    }

    /// Everything that can be said now: of a target that is gone, what was seen before.
    fn conclude(&mut self) {
        let gone = self.case().last_answered();
        let before = gone.map(|last| before_it_went(&self.report.experiments, last));
        let case = DiagnosisInput {
            known: &self.known,
            tried: before.as_deref().unwrap_or(&self.report.experiments),
        };
        let left = match gone.and_then(|last| self.report.experiments.get(last)) {
            Some(last) => TargetCondition::Gone(last.experiment.name),
            None if self.degraded > 0 => TargetCondition::Degraded,
            None => TargetCondition::Sound,
        };
        let readings = odds::read_signs(&case);
        let odds = CausePosterior::new(&readings, 1.0);
        let causes = self.causes(&case, &readings, &odds);
        let named: Vec<_> = causes.iter().map(|cause| cause.class).collect();
        let ties = words::ties(&case, &odds, &named);
        let excluded = words::excluded(&readings, &odds, &named);
        let untested = words::untested(&case, &odds, &named, &excluded, left);
        self.report.causes = causes;
        self.report.ties = ties;
        self.report.excluded = excluded;
        self.report.untested = untested;
        self.report.down_since = left.since();
    }

    fn causes(
        &self,
        case: &DiagnosisInput<'_>,
        readings: &[ObservedSign],
        odds: &CausePosterior,
    ) -> Vec<crate::report::DiagnosedCause> {
        if self.invalid >= INVALID {
            return vec![words::generator(&self.report.experiments)];
        }
        let causes = if readings.is_empty() { vec![(CauseClass::Unknown, 1.0)] } else { odds.causes() };
        let named: Vec<_> = causes.iter().map(|(class, _)| *class).collect();
        causes
            .iter()
            .map(|(class, confidence)| words::cause(case, *class, *confidence, readings, odds, &named))
            .collect()
    }
}

/// Silence after an overload that the target is not done with. What is left of it is worked off in backlog / (limit - load), and no
/// more than 0.7 s of the rate were let in: three times that, and more.
const REST: Duration = Duration::from_secs(3);
/// Silence between two loads of which one may offer all its requests at once, where no second may have more than so many.
const APART: Duration = Duration::from_secs(1);
/// Above this rate, in requests a second, twice as much as much is no load that an inquiry may offer.
const MOST_FOR_COUNT: f64 = 600.0;

/// What was seen before the target went: up to the experiment in which it answered last, and of that what had ended by then.
fn before_it_went(tried: &[ExperimentRecord], last: usize) -> Vec<ExperimentRecord> {
    let mut before = tried.get(..=last).unwrap_or(tried).to_vec();
    if let Some(last) = before.last_mut() {
        let hits = &mut last.observation.requests;
        let went = hits
            .iter()
            .filter(|hit| hit.outcome == ObservedOutcome::Good)
            .map(|hit| hit.end)
            .fold(0.0, f64::max);
        hits.retain(|hit| hit.end <= went);
    }
    before
}

/// Most good answers are gone, or far slower than they were.
fn is_degraded(view: &ExperimentStats<'_>, case: &DiagnosisInput<'_>) -> bool {
    // Ports that this machine lacks are not the target's.
    let failed =
        view.share_where(|hit| !matches!(hit.outcome, ObservedOutcome::Good | ObservedOutcome::NoPort));
    let before =
        case.base().map_or(0.0, |base| base.view.share_where(|hit| hit.outcome != ObservedOutcome::Good));
    let slow = view.response_times().median() > 4.0 * case.base_response_times().quantile(0.95) + 0.05;
    failed > before + 0.3 || slow || view.is_down()
}

fn overloads(experiment: &Experiment, known: &SearchFindings) -> bool {
    matches!(experiment.load, ExperimentLoad::Rate { rate, .. } if rate > known.limit)
        || experiment.variation.held > 0
}

/// Whether an experiment shows a sign: stands in place of what it strengthens, too.
fn shows(plan: &str, by: &str) -> bool {
    plan == by || plan == "far over" && by == "over"
}

/// Seconds of load.
#[must_use]
pub fn load_seconds(experiment: &Experiment) -> f64 {
    match experiment.load {
        ExperimentLoad::Rate { lasts, .. } | ExperimentLoad::Clients { lasts, .. } => lasts.as_secs_f64(),
        ExperimentLoad::Bursts { times, every, quiet, .. } => {
            quiet.as_secs_f64() + every.as_secs_f64() * times as f64
        }
    }
}
