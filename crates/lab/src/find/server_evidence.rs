//! Evidence from the target itself: a driver that also reads the target's metrics and control group.
//!
//! [`InstrumentedDriver`] wraps another driver and takes readings around each load that may break the target
//! ([`ServerSideReader::snapshot`]). The readings around bad trials and around overload experiments become [`ServerSideWindow`]s
//! of the report. [`apply_server_evidence`] joins them with the observations of the clients. The search and the inquiry do not
//! use them. The caller passes the clock and the files. The tool calls this module.

use std::time::Duration;

use seawall_cause::class::CauseClass;
use seawall_cause::experiment::Experiment;
use seawall_cause::experiment_target::ExperimentTarget;
use seawall_cause::observed_requests::{ExperimentObservation, ObservedOutcome, ObservedRequest};
use seawall_search::closed_loop;
use seawall_search::evidence::TrialEvidence;
use seawall_search::observation::{BlockCounts, TrialObservation, sum};
use seawall_search::target::SearchTarget;
use seawall_search::trial_spec::{StopRule, TrialSpec};
use seawall_search::trial_verdict::TrialVerdict;

use super::find_report::{self, FindReport, ReportedExcludedCause, ServerSideFact, ServerSideWindow};
use super::report_builder::purpose_name;
use crate::server_side::{
    ClientLoad, ServerSideReader, ServerSideSnapshot, WindowEdge, WindowObservation, compare_snapshots,
};
use crate::target_driver::{Calibration, TargetDriver};
use seawall_probe::file_reader::HostFiles;

/// The most windows of a run. A thorough run has some hundred trials, of which half break the target.
pub(super) const MAX_WINDOWS: usize = 512;

/// A driver that also reads the target's server-side data around each load.
pub struct InstrumentedDriver<'g> {
    ground: &'g mut dyn TargetDriver,
    bound: Option<Duration>,
    sight: ServerSideSource,
    windows: Vec<ServerSideWindow>,
}

/// The source of server-side readings.
pub struct ServerSideSource {
    /// The reader of the target's own data.
    pub reader: ServerSideReader,
    /// The files of this machine.
    pub host_files: Box<dyn HostFiles>,
    /// A monotonic clock.
    pub clock: Box<dyn Fn() -> Duration>,
}

impl ServerSideSource {
    fn look(&mut self, edge: WindowEdge) -> ServerSideSnapshot {
        self.reader.snapshot(edge, &*self.host_files, &*self.clock)
    }
}

impl<'g> InstrumentedDriver<'g> {
    /// Wraps a driver. Responses later than `bound` count like missing ones.
    pub fn new(ground: &'g mut dyn TargetDriver, sight: ServerSideSource, bound: Option<Duration>) -> Self {
        Self { ground, bound, sight, windows: Vec::new() }
    }

    /// Adds the windows to the report, after those of the earlier part of the run, and joins them with the observations of the
    /// clients.
    pub fn add_server_evidence(self, answer: &mut FindReport, before: Option<&FindReport>) {
        answer.server_metrics = before.map(|before| before.server_metrics.clone()).unwrap_or_default();
        answer.server_metrics.extend(self.windows);
        answer.server_metrics.truncate(MAX_WINDOWS);
        apply_server_evidence(answer);
    }

    /// Takes a reading, runs the load, and takes another reading if the load is worth a window. Also returns the duration of the
    /// readings.
    fn with_snapshots<T>(
        &mut self,
        carry: impl FnOnce(&mut dyn TargetDriver) -> T,
        worth: impl FnOnce(&T, Option<Duration>) -> Option<(String, ClientLoad)>,
    ) -> (T, Duration) {
        let asked = (self.sight.clock)();
        let begin = self.sight.look(WindowEdge::Begin);
        let begun = (self.sight.clock)();
        let made = carry(self.ground);
        let over = (self.sight.clock)();
        if let Some((during, load)) = worth(&made, self.bound) {
            let end = self.sight.look(WindowEdge::End);
            let load = Some(load).filter(|load| load.failed_or_late > 0);
            self.keep(during, compare_snapshots(&begin, &end, load));
        }
        let looks = begun.saturating_sub(asked) + (self.sight.clock)().saturating_sub(over);
        (made, looks)
    }

    /// Keeps a window that has facts. A window without readings is kept once per reason.
    fn keep(&mut self, during: String, seen: WindowObservation) {
        let window = window(during, seen);
        let is_new =
            |untested: &Vec<String>| self.windows.iter().all(|window| window.unavailable != *untested);
        let says = !window.facts.is_empty() || !window.unavailable.is_empty() && is_new(&window.unavailable);
        if says && self.windows.len() < MAX_WINDOWS {
            self.windows.push(window);
        }
    }
}

impl SearchTarget for InstrumentedDriver<'_> {
    fn carry_out(&mut self, offer: &TrialSpec) -> TrialObservation {
        if matches!(offer.rule, StopRule::FastResponses(_)) {
            return SearchTarget::carry_out(self.ground, offer);
        }
        let worth = |seen: &TrialObservation, _| {
            let during = || format!("{} at {:.1} requests/s", purpose_name(offer.purpose), offer.rate);
            missed_goal(offer, seen).then(|| (during(), missed(&seen.blocks)))
        };
        let (seen, looks) = self.with_snapshots(|ground| SearchTarget::carry_out(ground, offer), worth);
        TrialObservation { took: seen.took + looks, ..seen }
    }

    fn rest(&mut self, time: Duration) -> bool {
        SearchTarget::rest(self.ground, time)
    }
}

impl ExperimentTarget for InstrumentedDriver<'_> {
    fn run_experiment(&mut self, experiment: &Experiment) -> ExperimentObservation {
        if !OVERLOADS.contains(&experiment.name) {
            return self.ground.run_experiment(experiment);
        }
        let worth = |watched: &ExperimentObservation, bound| {
            let is_known = watched.invalid_reason.is_none() && !watched.requests.is_empty();
            is_known.then(|| (experiment.name.to_owned(), missed_hits(&watched.requests, bound)))
        };
        let (watched, looks) = self.with_snapshots(|ground| ground.run_experiment(experiment), worth);
        ExperimentObservation { took: watched.took + looks, ..watched }
    }

    fn pause(&mut self, time: Duration) -> bool {
        self.ground.pause(time)
    }
}

impl TargetDriver for InstrumentedDriver<'_> {
    fn close_connections(&mut self) {
        self.ground.close_connections();
    }

    fn calibrate(&mut self) -> Calibration {
        self.ground.calibrate()
    }

    fn max_clients(&self) -> u32 {
        self.ground.max_clients()
    }
}

/// Runs trials with clients without readings, because such a run does not look for the cause.
impl closed_loop::ClosedTarget for InstrumentedDriver<'_> {
    fn carry_out(&mut self, offer: &closed_loop::ClosedTrialSpec) -> TrialObservation {
        closed_loop::ClosedTarget::carry_out(self.ground, offer)
    }

    fn rest(&mut self, time: Duration) -> bool {
        closed_loop::ClosedTarget::rest(self.ground, time)
    }
}

/// The experiments above the limit that differ from the search in nothing else (`cause/src/experiment_plans.rs`).
const OVERLOADS: [&str; 2] = ["150 % of the limit", "250 % of the limit"];

/// Returns true if the clients missed the goal: the trial is bad by itself, or it emptied the token bucket as intended.
fn missed_goal(offer: &TrialSpec, seen: &TrialObservation) -> bool {
    let is_bad = match offer.rule {
        StopRule::FullDurationUnlessBad(standard) | StopRule::Decided(standard) => {
            standard.judge(&TrialEvidence::of(offer.rate, &seen.blocks, &standard)) == TrialVerdict::Bad
        }
        StopRule::FailingShare(_) => offer.has_drained_burst(&seen.blocks),
        StopRule::FastResponses(_) => false,
    };
    is_bad && seen.invalid_reason.is_none()
}

/// Returns the number of sent requests, and the number of those that failed, were late or had no response at the end.
fn missed(blocks: &[BlockCounts]) -> ClientLoad {
    let open = blocks.last().map_or(0, |block| block.in_flight);
    let failed = sum(blocks, |block| block.errors) + f64::from(open);
    let troubled = failed.max(sum(blocks, |block| block.late));
    ClientLoad { requests: sum(blocks, |block| block.sent) as u64, failed_or_late: troubled as u64 }
}

fn missed_hits(hits: &[ObservedRequest], bound: Option<Duration>) -> ClientLoad {
    let is_late =
        |hit: &ObservedRequest| bound.is_some_and(|bound| hit.response_time() > bound.as_secs_f64());
    let troubled = hits.iter().filter(|hit| hit.outcome != ObservedOutcome::Good || is_late(hit)).count();
    ClientLoad { requests: hits.len() as u64, failed_or_late: troubled as u64 }
}

fn window(during: String, seen: WindowObservation) -> ServerSideWindow {
    let facts = seen.facts.into_iter().flat_map(|fact| {
        let classes: Vec<_> = match fact.likelihood_ratios.as_slice() {
            [] => vec![(None, None)],
            some => some.iter().map(|(class, ratio)| (Some(class.slug().to_owned()), Some(*ratio))).collect(),
        };
        classes.into_iter().map(move |(class, ratio)| ServerSideFact {
            text: fact.text.clone(),
            cause: class,
            likelihood_ratio: ratio,
            is_unchanged: fact.is_unchanged,
        })
    });
    ServerSideWindow {
        start_seconds: seen.from.as_secs_f64(),
        end_seconds: seen.to.as_secs_f64(),
        phase: during,
        facts: facts.collect(),
        unavailable: seen.untested,
    }
}

/// The server-side evidence about one cause.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ServerEvidence<'a> {
    /// The slug of the cause.
    pub cause: &'a str,
    /// The likelihood ratio of the cause; a ratio below 1 speaks against the cause.
    pub likelihood_ratio: f64,
    /// The observation.
    pub text: &'a str,
    /// True if the text lists counters that did not rise: such evidence only excludes.
    pub only_excludes: bool,
}

/// The largest factor by which server-side evidence changes the odds of a cause, up or down, because its ratios are judgements
/// (`server_side::judge`).
const CAP: f64 = 20.0;
/// The factor by which the ratio of one cause must exceed those of the others to decide a tie.
const DECIDES: f64 = 5.0;

/// Returns the server-side evidence for each class that has any, the strongest first. From one window, the strongest fact counts,
/// because facts of one window depend on each other. From several windows, the fact in the middle counts, because windows repeat
/// each other.
#[must_use]
pub fn server_evidence(windows: &[ServerSideWindow]) -> Vec<ServerEvidence<'_>> {
    let on = |class: &'static str| {
        let mut each: Vec<_> = windows.iter().filter_map(|window| strongest(window, class)).collect();
        each.sort_by(|one, other| one.likelihood_ratio.total_cmp(&other.likelihood_ratio));
        let middle = each.len().checked_sub(1)? / 2;
        let both = each.get(middle..=each.len() / 2)?;
        both.iter().copied().min_by(|one, other| one.strength().total_cmp(&other.strength()))
    };
    let mut words: Vec<_> = CauseClass::ALL.iter().filter_map(|class| on(class.slug())).collect();
    words.sort_by(|one, other| other.strength().total_cmp(&one.strength()));
    words
}

fn strongest<'a>(window: &'a ServerSideWindow, class: &'static str) -> Option<ServerEvidence<'a>> {
    let said = window.facts.iter().filter(|said| said.cause.as_deref() == Some(class));
    let words = said.filter_map(|said| {
        Some(ServerEvidence {
            cause: class,
            likelihood_ratio: said.likelihood_ratio?.clamp(1.0 / CAP, CAP),
            text: &said.text,
            only_excludes: said.is_unchanged,
        })
    });
    words.max_by(|one, other| one.strength().total_cmp(&other.strength()))
}

impl ServerEvidence<'_> {
    fn strength(&self) -> f64 {
        self.likelihood_ratio.ln().abs()
    }
}

/// Joins the server-side evidence with the observations of the clients. First it decides a tie of the likeliest cause if one
/// class has clearly more evidence than the others. That class takes the place and the odds of the likeliest cause, because the
/// observations fit it as well. Then it multiplies the odds of each named cause by the ratio of its evidence, at most [`CAP`].
pub fn apply_server_evidence(answer: &mut FindReport) {
    let windows = std::mem::take(&mut answer.server_metrics);
    let words = server_evidence(&windows);
    if !words.is_empty() {
        decide(answer, &words);
        for cause in answer.cause.iter_mut().chain(&mut answer.other_causes) {
            if let Some(word) = on(&words, &cause.name) {
                reweigh(cause, word);
            }
        }
    }
    answer.server_metrics = windows;
}

fn on<'w, 'a>(words: &'w [ServerEvidence<'a>], class: &str) -> Option<&'w ServerEvidence<'a>> {
    words.iter().find(|word| word.cause == class)
}

fn reweigh(cause: &mut find_report::ReportedCause, word: &ServerEvidence<'_>) {
    let odds = word.likelihood_ratio * cause.score;
    cause.score = odds / (odds + 1.0 - cause.score);
    if word.likelihood_ratio > 1.0 {
        let sign = evidence(word.text.to_owned(), word.likelihood_ratio);
        let at = cause
            .evidence
            .iter()
            .position(|sign| sign.likelihood_ratio.is_some_and(|ratio| ratio < word.likelihood_ratio));
        cause.evidence.insert(at.unwrap_or(cause.evidence.len()), sign);
    }
}

fn evidence(seen: String, ratio: f64) -> find_report::ReportedEvidence {
    find_report::ReportedEvidence {
        observation: seen,
        experiment: "server metrics".to_owned(),
        likelihood_ratio: Some(ratio),
    }
}

/// Decides the ties of the likeliest cause as far as the evidence allows.
fn decide(answer: &mut FindReport, words: &[ServerEvidence<'_>]) {
    let ratio = |class: &str| on(words, class).map_or(1.0, |word| word.likelihood_ratio);
    let mut lost = Vec::new();
    for tie in std::mem::take(&mut answer.ambiguous_causes) {
        let Some(cause) = &mut answer.cause else { continue };
        let beside = |class: &String| answer.other_causes.iter().any(|also| also.name == *class);
        let is_open = tie.causes.contains(&cause.name) && !tie.causes.iter().any(beside);
        let winner = tie.causes.iter().max_by(|one, other| ratio(one).total_cmp(&ratio(other)));
        let clear = |winner: &&String| {
            let others = tie.causes.iter().filter(|class| class != winner);
            others.map(|class| ratio(class)).all(|other| ratio(winner) >= DECIDES * other)
        };
        let Some(winner) = winner.filter(|winner| is_open && clear(winner)) else {
            answer.ambiguous_causes.push(tie);
            continue;
        };
        if cause.name != *winner {
            let as_well = evidence(
                format!("the observations of the clients fit this cause and {} equally well", cause.name),
                1.0,
            );
            cause.name.clone_from(winner);
            (cause.evidence, cause.estimates) = (vec![as_well], Vec::new());
        }
        let losers = tie.causes.iter().filter(|class| *class != winner);
        lost.extend(losers.map(|loser| excluded(loser, winner, words)));
    }
    let is_lost = |class: &String| lost.iter().any(|out| out.name == *class);
    answer.ambiguous_causes.retain(|tie| !tie.causes.iter().any(is_lost));
    answer.excluded_causes.extend(lost);
}

/// Describes the observation by which the class was excluded.
fn excluded(loser: &str, winner: &str, words: &[ServerEvidence<'_>]) -> ReportedExcludedCause {
    let against = on(words, loser).filter(|word| word.likelihood_ratio < 1.0);
    let says = against.or_else(|| on(words, winner)).map_or("", |word| word.text);
    let how = format!("the server's metrics favour {winner}: {says}");
    ReportedExcludedCause { name: loser.to_owned(), reason: how }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io;
    use std::rc::Rc;

    use super::super::tests::{Field, plan, queue, searched};
    use super::super::{find, progress::NoopWatcher};
    use super::*;
    use crate::server_side::ServerCgroup;

    /// A control group without a quota that always uses this many cores, and its clock.
    #[derive(Clone)]
    struct Busy {
        cores: f64,
        time: Rc<Cell<Duration>>,
    }

    impl HostFiles for Busy {
        fn read(&self, path: &str) -> io::Result<String> {
            match path {
                "/g/cpu.stat" => {
                    Ok(format!("usage_usec {:.0}\n", 1e6 * self.cores * self.time.get().as_secs_f64()))
                }
                "/g/cpu.max" => Ok("max 100000\n".to_owned()),
                _ => Err(io::ErrorKind::NotFound.into()),
            }
        }

        fn names(&self, _: &str) -> io::Result<Vec<String>> {
            Ok(vec!["cgroup.procs".to_owned()])
        }

        fn size(&self, _: &str) -> io::Result<u64> {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    /// A simulated target that advances that clock.
    struct Clocked(Field, Rc<Cell<Duration>>);

    impl Clocked {
        fn passes(&self, time: Duration) {
            self.1.set(self.1.get() + time);
        }
    }

    impl SearchTarget for Clocked {
        fn carry_out(&mut self, offer: &TrialSpec) -> TrialObservation {
            let seen = self.0.carry_out(offer);
            self.passes(seen.took);
            seen
        }

        fn rest(&mut self, time: Duration) -> bool {
            self.passes(time);
            self.0.rest(time)
        }
    }

    impl ExperimentTarget for Clocked {
        fn run_experiment(&mut self, experiment: &Experiment) -> ExperimentObservation {
            let lasts = Duration::from_secs(3);
            self.passes(lasts);
            let hit = |at: u32| ObservedRequest {
                due: f64::from(at) / 100.0,
                generator_lag: 0.0,
                sent: None,
                end: f64::from(at) / 100.0 + 1.0,
                outcome: ObservedOutcome::TimedOut,
                bytes: 0,
                carrying_connection: None,
            };
            let _ = experiment;
            ExperimentObservation {
                requests: (0..300).map(hit).collect(),
                took: lasts,
                ..ExperimentObservation::default()
            }
        }

        fn pause(&mut self, time: Duration) -> bool {
            self.rest(time)
        }
    }

    impl TargetDriver for Clocked {
        fn close_connections(&mut self) {
            self.0.close_connections();
        }

        fn calibrate(&mut self) -> Calibration {
            self.0.calibrate()
        }

        fn max_clients(&self) -> u32 {
            self.0.max_clients()
        }
    }

    impl closed_loop::ClosedTarget for Clocked {
        fn carry_out(&mut self, offer: &closed_loop::ClosedTrialSpec) -> TrialObservation {
            closed_loop::ClosedTarget::carry_out(&mut self.0, offer)
        }

        fn rest(&mut self, time: Duration) -> bool {
            closed_loop::ClosedTarget::rest(&mut self.0, time)
        }
    }

    fn witnessed(cores: f64, plan: &super::super::plan::FindPlan) -> FindReport {
        let time = Rc::new(Cell::new(Duration::ZERO));
        let files = Busy { cores, time: Rc::clone(&time) };
        let group = ServerCgroup::open_directories(&files, &["/g".to_owned()]).unwrap();
        let mut ground = Clocked(Field::of(&queue(), &plan.goal), Rc::clone(&time));
        let sight = ServerSideSource {
            reader: ServerSideReader::new(None, Some(group)),
            host_files: Box::new(files),
            clock: Box::new(move || time.get()),
        };
        let mut ground = InstrumentedDriver::new(&mut ground, sight, Some(Duration::from_millis(250)));
        let mut answer = find(&mut ground, plan, None, &mut NoopWatcher).unwrap();
        ground.add_server_evidence(&mut answer, None);
        answer
    }

    #[test]
    fn what_the_target_says_of_itself_is_kept_where_clients_missed_something_and_changes_no_trial() {
        let answer = witnessed(1.0, &plan());
        assert_eq!(answer.trials, searched().trials, "the search is the same");
        let bad =
            answer.trials.iter().filter(|trial| trial.verdict == find_report::ReportedVerdict::Bad).count();
        let windows = &answer.server_metrics;
        assert!(!windows.is_empty() && windows.len() <= bad + 2, "{} of {bad}", windows.len());
        let says = |window: &ServerSideWindow| {
            window.facts.iter().any(|said| said.text == "the control group used 1.00 cores")
        };
        assert!(windows.iter().all(says), "{windows:?}");
        assert!(
            windows
                .iter()
                .all(|window| window.end_seconds > window.start_seconds && window.phase.contains(" at "))
        );
    }

    #[test]
    fn of_a_target_that_gave_its_clients_what_they_asked_for_nothing_is_kept() {
        let capped = super::super::plan::FindPlan { max_rate: Some(100.0), ..plan() };
        assert_eq!(witnessed(1.0, &capped).server_metrics, []);
    }

    #[test]
    fn an_inquirys_overload_is_looked_at_and_its_other_experiments_are_not() {
        let curious = super::super::plan::FindPlan { looks_for_cause: true, ..plan() };
        let answer = witnessed(0.1, &curious);
        let experiments: Vec<_> = answer
            .server_metrics
            .iter()
            .map(|window| &*window.phase)
            .filter(|of| !of.contains(" at "))
            .collect();
        assert!(
            experiments.contains(&"150 % of the limit")
                && experiments.iter().all(|of| OVERLOADS.contains(of))
        );
    }

    fn told(class: &str, confidence: f64) -> FindReport {
        let cause = find_report::ReportedCause {
            name: class.to_owned(),
            score: confidence,
            evidence: Vec::new(),
            estimates: Vec::new(),
        };
        let between = ["pool-saturation", "cpu-saturation"].map(str::to_owned).to_vec();
        let tie = find_report::ReportedTie { causes: between, how_to_tell: "look at its CPU".to_owned() };
        FindReport { cause: Some(cause), ambiguous_causes: vec![tie], ..searched() }
    }

    fn windows(ratios: &[f64]) -> Vec<ServerSideWindow> {
        let said = |ratio: f64| ServerSideFact {
            text: format!("seen {ratio}"),
            cause: Some("cpu-saturation".to_owned()),
            likelihood_ratio: Some(ratio),
            is_unchanged: false,
        };
        let window = |ratio: &f64| ServerSideWindow {
            start_seconds: 0.0,
            end_seconds: 1.0,
            phase: "150 % of the limit".to_owned(),
            facts: vec![said(*ratio), said(1.1)],
            unavailable: Vec::new(),
        };
        ratios.iter().map(window).collect()
    }

    #[test]
    fn verdict_logic_does_not_match_the_text_of_a_fact() {
        let only_excludes = |text: &str, is_unchanged: bool| {
            let mut windows = windows(&[0.5]);
            windows[0].facts.truncate(1);
            (windows[0].facts[0].text, windows[0].facts[0].is_unchanged) = (text.to_owned(), is_unchanged);
            server_evidence(&windows).iter().all(|word| word.only_excludes)
        };
        assert!(
            only_excludes("any sentence", true)
                && !only_excludes("counters that did not rise: a_total", false)
        );
    }

    fn weighed(class: &str, ratios: &[f64]) -> FindReport {
        let mut answer = FindReport { server_metrics: windows(ratios), ..told(class, 0.6) };
        apply_server_evidence(&mut answer);
        answer
    }

    #[test]
    fn a_tie_is_decided_by_the_servers_own_word() {
        let answer = weighed("pool-saturation", &[8.0]);
        let cause = answer.cause.unwrap();
        assert_eq!((cause.name.as_str(), answer.ambiguous_causes.len()), ("cpu-saturation", 0));
        // A score of 0.6 means odds of 1.5. They are multiplied by 8.
        assert!((cause.score - 12.0 / 13.0).abs() < 1e-9);
        assert_eq!(
            (cause.evidence[0].observation.as_str(), cause.evidence[0].experiment.as_str()),
            ("seen 8", "server metrics")
        );
        let out = answer.excluded_causes.iter().find(|out| out.name == "pool-saturation").unwrap();
        assert_eq!(out.reason, "the server's metrics favour cpu-saturation: seen 8");
        let answer = weighed("pool-saturation", &[0.1]);
        assert_eq!(
            (answer.cause.unwrap().name.as_str(), answer.ambiguous_causes.len()),
            ("pool-saturation", 0)
        );
        assert!(answer.excluded_causes.iter().any(|out| out.name == "cpu-saturation"));
    }

    #[test]
    fn a_word_that_is_not_clear_decides_no_tie_and_moves_the_odds_all_the_same() {
        let answer = weighed("cpu-saturation", &[2.0]);
        // The odds of 1.5 are multiplied by 2.
        assert!(answer.ambiguous_causes.len() == 1 && (answer.cause.unwrap().score - 0.75).abs() < 1e-9);
    }

    #[test]
    fn no_word_moves_the_odds_by_more_than_the_cap_nor_counts_twice() {
        let odds = |ratios: &[f64]| {
            let mut answer = FindReport { ambiguous_causes: Vec::new(), ..told("cpu-saturation", 0.6) };
            answer.server_metrics = windows(ratios);
            apply_server_evidence(&mut answer);
            let confidence = answer.cause.unwrap().score;
            (confidence / (1.0 - confidence) / 1.5 * 1e6).round() / 1e6
        };
        assert_eq!((odds(&[1000.0]), odds(&[8.0, 8.0, 8.0]), odds(&[0.001])), (20.0, 8.0, 0.05));
        // With contradicting windows the middle one counts, and with two windows the weaker one.
        assert_eq!((odds(&[0.2, 3.0, 8.0]), odds(&[0.2, 3.0])), (3.0, 3.0));
    }

    #[test]
    fn where_the_target_was_not_asked_nothing_is_weighed() {
        let (mut answer, before) = (told("pool-saturation", 0.6), told("pool-saturation", 0.6));
        apply_server_evidence(&mut answer);
        assert_eq!(answer, before);
    }
}
