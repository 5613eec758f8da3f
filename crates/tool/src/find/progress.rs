//! The progress output of a run: one live line on a terminal, and one line for each trial elsewhere.
//!
//! The page (`--live-page`) shows the same. A thread draws the live line at least five times per second, so that the remaining
//! time visibly decreases during a trial of half a minute. The search hands over its state and never waits.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use rustix::termios::tcgetwinsize;
use seawall_lab::find::find_report::{FindReport, ReportedTrial, ReportedVerdict};
use seawall_lab::find::progress::{BudgetStatus, FindStep, FindWatcher};
use seawall_lab::find::report_builder::purpose_name;
use seawall_load::clock::{Nanos, RunClock};
use seawall_search::observation::BlockCounts;
use seawall_search::trial_spec::{StopRule, TrialPurpose, TrialSpec};

use super::formatting::{
    format_clients, format_duration, format_percent, format_rate_without_unit, format_seconds,
};
use crate::live_search_page::{SearchPage, SearchPageReport};

/// The interval at which the live line is drawn.
const TICK: Duration = Duration::from_millis(200);

/// The progress output of a run.
pub(crate) enum FindProgress {
    /// One line for each trial.
    Lines,
    /// One live line.
    Live(VerdictTally, Sender<ProgressUpdate>, JoinHandle<()>),
}

/// Called with all blocks of the trial so far, whenever a block ends, by the sending thread.
pub(crate) type BlockObserver = Box<dyn FnMut(&TrialSpec, &[BlockCounts]) + Send>;

/// An update that the drawing thread receives.
#[derive(Debug)]
pub(crate) enum ProgressUpdate {
    /// Another step.
    Step(LiveLine),
    /// The interim verdict of the current trial.
    InterimVerdict(ReportedVerdict),
    /// The end of the updates. The block observer holds a sender too, so that the channel does not close by itself.
    End,
}

/// The verdicts so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct VerdictTally {
    good: usize,
    bad: usize,
    other: usize,
    last: String,
}

/// The content of the live line.
#[derive(Debug, Clone)]
pub(crate) struct LiveLine {
    step: String,
    tally: VerdictTally,
    time: BudgetStatus,
    so_far: Option<ReportedVerdict>,
}

impl FindProgress {
    /// Chooses the output that suits standard error.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(crate) fn for_stderr() -> anyhow::Result<Self> {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if dumb || !stderr().is_terminal() {
            return Ok(Self::Lines);
        }
        Self::live().context("cannot show the run")
    }

    fn live() -> std::io::Result<Self> {
        let (sender, news) = channel();
        let thread = std::thread::Builder::new().name("progress".into()).spawn(move || draw(&news))?;
        Ok(Self::Live(VerdictTally::default(), sender, thread))
    }

    /// Returns the observer of the blocks of a trial, if the output needs one.
    pub(crate) fn block_observer(&self) -> Option<BlockObserver> {
        let Self::Live(_, sender, _) = self else { return None };
        let sender = sender.clone();
        Some(Box::new(move |offer, blocks| {
            // Nobody draws: the terminal is gone, and the run goes on.
            let _ = so_far(offer, blocks).map(|verdict| sender.send(ProgressUpdate::InterimVerdict(verdict)));
        }))
    }

    /// Ends the output, and leaves the terminal as it was.
    pub(crate) fn end(self) {
        if let Self::Live(_, sender, thread) = self {
            let _ = sender.send(ProgressUpdate::End);
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl FindWatcher for FindProgress {
    fn step_started(&mut self, step: &FindStep<'_>, time: BudgetStatus) {
        if let Self::Live(tally, sender, _) = self {
            let now = LiveLine { step: named(step), tally: tally.clone(), time, so_far: None };
            // Nobody draws: the terminal is gone, and the run goes on.
            let _ = sender.send(ProgressUpdate::Step(now));
        }
    }

    fn step_finished(&mut self, step: &FindStep<'_>, came: Option<&ReportedTrial>, time: BudgetStatus) {
        match self {
            Self::Lines => {
                // Standard error may be closed; the run goes on.
                let _ = writeln!(stderr(), "{}", line(step, came, time));
            }
            Self::Live(tally, ..) => {
                if let Some(trial) = came {
                    tally.add(trial);
                }
            }
        }
    }
}

/// Reports a run to its page: the current step and the interim result.
pub(crate) struct PageUpdater<'p, A> {
    page: &'p mut SearchPage<A>,
    /// The text before the name of each step; empty, or with the separator that follows it.
    prefix: String,
    tally: VerdictTally,
    knows: fn(&mut SearchPage<A>, &dyn Fn() -> FindReport),
}

impl<'p> PageUpdater<'p, FindReport> {
    /// Makes the updater of the page of a whole run.
    pub(crate) fn for_run(page: &'p mut SearchPage<FindReport>) -> Self {
        Self {
            page,
            prefix: String::new(),
            tally: VerdictTally::default(),
            knows: |page, so_far| page.set_interim_report(so_far()),
        }
    }
}

impl<'p, A> PageUpdater<'p, A> {
    /// Makes the updater of a page on which the run is this part.
    pub(crate) fn for_part_of_run(page: &'p mut SearchPage<A>, name: &str) -> Self {
        Self { page, prefix: format!("{name}: "), tally: VerdictTally::default(), knows: |_, _| () }
    }
}

/// The shortest pause that is shown: a shorter one ends before anybody can read of it.
const SHORTEST: Duration = Duration::from_secs(1);

impl<A: SearchPageReport> FindWatcher for PageUpdater<'_, A> {
    fn step_started(&mut self, step: &FindStep<'_>, time: BudgetStatus) {
        if matches!(step, FindStep::Pause(rest) if *rest < SHORTEST) {
            return;
        }
        let now = LiveLine {
            step: format!("{}{}", self.prefix, named(step)),
            tally: self.tally.clone(),
            time,
            so_far: None,
        };
        self.page.show_activity(Box::new(move |since| live(&now, since)));
    }

    fn step_finished(&mut self, _: &FindStep<'_>, came: Option<&ReportedTrial>, _: BudgetStatus) {
        came.into_iter().for_each(|trial| self.tally.add(trial));
    }

    fn report_changed(&mut self, so_far: &dyn Fn() -> FindReport) {
        (self.knows)(self.page, so_far);
    }
}

impl VerdictTally {
    fn add(&mut self, trial: &ReportedTrial) {
        match trial.verdict {
            ReportedVerdict::Good => self.good += 1,
            ReportedVerdict::Bad => self.bad += 1,
            ReportedVerdict::Undecided | ReportedVerdict::Invalid => self.other += 1,
        }
        self.last = format!("{} {}", offered(trial), came_to(trial));
    }
}

/// Returns the verdict that these blocks point to so far; `None` if the step is not a trial.
fn so_far(offer: &TrialSpec, blocks: &[BlockCounts]) -> Option<ReportedVerdict> {
    let (StopRule::FullDurationUnlessBad(standard) | StopRule::Decided(standard)) = offer.rule else {
        return None;
    };
    Some(standard.judge(&seawall_search::evidence::TrialEvidence::of(offer.rate, blocks, &standard)).into())
}

/// Returns the name of a step in a few words.
fn named(step: &FindStep<'_>) -> String {
    match step {
        FindStep::CalibrateGenerator => "measuring the generator".to_owned(),
        FindStep::RateTrial(offer) => {
            format!("{} {}/s", purpose_name(offer.purpose), format_rate_without_unit(offer.rate))
        }
        FindStep::ClosedLoopTrial(offer) => {
            format!("{} {}", purpose_name(offer.purpose), format_clients(offer.clients))
        }
        FindStep::Pause(time) => format!("pause of {}", format_duration(*time)),
        FindStep::Experiment(name) => format!("cause: {name}"),
    }
}

/// Formats the rate, or the number of clients.
fn offered(trial: &ReportedTrial) -> String {
    trial.clients.map_or_else(|| format!("{}/s", format_rate_without_unit(trial.rate)), format_clients)
}

fn word(verdict: ReportedVerdict) -> &'static str {
    match verdict {
        ReportedVerdict::Good => "good",
        ReportedVerdict::Bad => "bad",
        ReportedVerdict::Undecided => "undecided",
        ReportedVerdict::Invalid => "invalid",
    }
}

/// Returns the verdict. A step of the ramp is only to show that its rate is not bad.
fn came_to(trial: &ReportedTrial) -> &'static str {
    if trial.verdict == ReportedVerdict::Undecided && trial.purpose == purpose_name(TrialPurpose::Ramp) {
        return "not bad";
    }
    word(trial.verdict)
}

/// Returns rate, verdict, reason, requests in flight and errors of a trial, or the name of any other step.
fn line(step: &FindStep<'_>, came: Option<&ReportedTrial>, time: BudgetStatus) -> String {
    let at = format_seconds(time.spent.as_secs_f64());
    let Some(trial) = came else { return format!("{at:>9}  {}", named(step)) };
    // Of a trial that is not decided the figures are all that there is to say.
    let why = if trial.verdict == ReportedVerdict::Undecided { "" } else { &trial.reason };
    let figures =
        format!("in flight {:>5}, errors {:>6}", trial.max_in_flight(), format_percent(trial.error_ratio));
    let line = format!(
        "{at:>9}  {:<21} {:>11}  {:<9}  {figures}  {why}",
        trial.purpose,
        offered(trial),
        came_to(trial)
    );
    line.trim_end().to_owned()
}

fn draw(news: &Receiver<ProgressUpdate>) {
    let clock = RunClock::start();
    let mut shown: Option<(LiveLine, Nanos)> = None;
    loop {
        match news.recv_timeout(TICK) {
            Ok(ProgressUpdate::Step(now)) => shown = Some((now, clock.now())),
            Ok(ProgressUpdate::InterimVerdict(verdict)) => {
                shown.iter_mut().for_each(|(now, _)| now.so_far = Some(verdict));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Ok(ProgressUpdate::End) | Err(RecvTimeoutError::Disconnected) => {
                let _ = write!(stderr(), "\r\x1b[K");
                return;
            }
        }
        if let Some((now, since)) = &shown {
            let width = tcgetwinsize(stderr()).map_or(80, |size| usize::from(size.ws_col).max(20));
            let text: String =
                live(now, Duration::from_nanos(clock.now() - since)).chars().take(width - 1).collect();
            let _ = write!(stderr(), "\r\x1b[K{text}");
        }
    }
}

/// Formats the live line, at this time after the start of its step.
fn live(now: &LiveLine, since: Duration) -> String {
    let LiveLine { step, tally, time, so_far } = now;
    let so_far = so_far.map_or_else(String::new, |verdict| format!(", {} so far", word(verdict)));
    let left = time.left.map(|left| left.saturating_sub(since));
    let time = match left {
        Some(left) => format!("{} left", format_duration(Duration::from_secs(left.as_secs()))),
        None => format!("{} so far", format_duration(Duration::from_secs((time.spent + since).as_secs()))),
    };
    let VerdictTally { good, bad, other, last } = tally;
    let last = if last.is_empty() { String::new() } else { format!("; the last: {last}") };
    format!("{step}{so_far}  ·  {time}  ·  trials: {good} good, {bad} bad, {other} undecided{last}")
}

#[cfg(test)]
mod tests {
    use seawall_search::goal::SearchGoal;
    use seawall_search::trial_verdict::TrialCriteria;

    use super::*;

    #[test]
    fn the_live_line_counts_the_time_down_during_a_step() {
        let tally = VerdictTally { good: 5, bad: 3, other: 1, last: "412/s bad".to_owned() };
        let time = BudgetStatus { spent: Duration::from_secs(30), left: Some(Duration::from_secs(60)) };
        let now = LiveLine {
            step: "narrow-bracket 398/s".to_owned(),
            tally,
            time,
            so_far: Some(ReportedVerdict::Good),
        };
        assert_eq!(
            live(&now, Duration::from_millis(2500)),
            "narrow-bracket 398/s, good so far  ·  57 s left  ·  trials: 5 good, 3 bad, 1 undecided; the last: 412/s bad"
        );
        let now = LiveLine { time: BudgetStatus { left: None, ..time }, ..now };
        assert!(live(&now, Duration::from_secs(2)).contains("32 s so far"));
    }

    #[test]
    fn a_ramp_step_that_was_passed_is_not_bad_and_any_other_trial_has_its_verdict() {
        let trial = |purpose: &str, verdict: &str| -> ReportedTrial {
            let text = format!(
                r#"{{"purpose":"{purpose}","rate":40,"start_seconds":0,"duration_seconds":1,"verdict":"{verdict}","reason":"w",
                "failure_mode":null,"weight":1,"goodput":40,"error_ratio":0,"late_ratio":null,"invalid_reason":null,
                "is_interrupted":false,"blocks":[]}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let said = |purpose, verdict| came_to(&trial(purpose, verdict));
        assert_eq!([said("ramp", "undecided"), said("ramp", "bad")], ["not bad", "bad"]);
        assert_eq!([said("narrow-bracket", "undecided"), said("ramp", "invalid")], ["undecided", "invalid"]);
    }

    #[test]
    fn the_live_line_ends_although_somebody_observes_still() {
        let progress = FindProgress::live().unwrap();
        let mut observer = progress.block_observer().unwrap();
        progress.end();
        let standard = TrialCriteria {
            goal: SearchGoal::ERRORS_ONLY,
            growth_tolerance: 0.03,
            settle: 0.3,
            min_settled_seconds_for_good: 1.0,
            service_time: 0.001,
            baseline_slowest: 0.001,
        };
        let second = Duration::from_secs(1);
        let rule = StopRule::FullDurationUnlessBad(standard);
        let offer = TrialSpec {
            purpose: TrialPurpose::NarrowBracket,
            rate: 1500.0,
            min_duration: second,
            max_duration: second,
            rule,
            in_flight_cap: 50.0,
            drain: second,
        };
        let blocks = [BlockCounts { sent: 100, good: 100, timely: 100, ..BlockCounts::default() }; 60];
        assert_eq!(so_far(&offer, &blocks), Some(ReportedVerdict::Good));
        observer(&offer, &blocks);
        assert_eq!(so_far(&TrialSpec { rule: StopRule::FailingShare(0.1), ..offer }, &blocks), None);
    }
}
