//! What is told of a run while it goes on: on a terminal one line that lives, elsewhere one line for each trial.
//!
//! A page (`--page`) is told the same. A thread draws the live line, five times a second or more, so that the time left is seen to pass during a trial of half a minute; the search
//! hands over what it is at and waits for nobody.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use rustix::termios::tcgetwinsize;
use seawall_lab::find::answer::{Answer, Trial, Vote};
use seawall_lab::find::progress::{Step, Time, Watcher};
use seawall_lab::find::told::purpose;
use seawall_load::clock::{Nanos, RunClock};
use seawall_search::offer::{Offer, Purpose, Rule};
use seawall_search::seen::Block;

use super::words::{clients, lasting, percent, rate, seconds};
use crate::searching::{Drawn, Page};

/// How often the live line is drawn.
const TICK: Duration = Duration::from_millis(200);

/// Tells of a run.
pub(crate) enum Progress {
    /// A line for each trial.
    Lines,
    /// One line.
    Live(Tally, Sender<News>, JoinHandle<()>),
}

/// Told of the blocks of an offer whenever there is another, by the thread that sends it.
pub(crate) type Observer = Box<dyn FnMut(&Offer, &[Block]) + Send>;

/// What the thread that draws is told.
#[derive(Debug)]
pub(crate) enum News {
    /// Another step.
    Step(Now),
    /// Which way the present one points so far.
    SoFar(Vote),
    /// There is no more. Whoever observes the trials has a hand on the channel, too, so that it does not end by itself.
    End,
}

/// Votes until now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    good: usize,
    bad: usize,
    other: usize,
    last: String,
}

/// What the live line says.
#[derive(Debug, Clone)]
pub(crate) struct Now {
    step: String,
    tally: Tally,
    time: Time,
    so_far: Option<Vote>,
}

impl Progress {
    /// As it suits standard error.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(crate) fn to_stderr() -> anyhow::Result<Self> {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if dumb || !stderr().is_terminal() {
            return Ok(Self::Lines);
        }
        Self::live().context("cannot show the run")
    }

    fn live() -> std::io::Result<Self> {
        let (sender, news) = channel();
        let thread = std::thread::Builder::new().name("progress".into()).spawn(move || draw(&news))?;
        Ok(Self::Live(Tally::default(), sender, thread))
    }

    /// Who is to hear of a trial while it goes on, if anybody wants to.
    pub(crate) fn observer(&self) -> Option<Observer> {
        let Self::Live(_, sender, _) = self else { return None };
        let sender = sender.clone();
        Some(Box::new(move |offer, blocks| {
            // Nobody draws: the terminal is gone, and the run goes on.
            let _ = so_far(offer, blocks).map(|vote| sender.send(News::SoFar(vote)));
        }))
    }

    /// Nothing more comes; the terminal is left as it was.
    pub(crate) fn end(self) {
        if let Self::Live(_, sender, thread) = self {
            let _ = sender.send(News::End);
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Watcher for Progress {
    fn begins(&mut self, step: &Step<'_>, time: Time) {
        if let Self::Live(tally, sender, _) = self {
            let now = Now { step: named(step), tally: tally.clone(), time, so_far: None };
            // Nobody draws: the terminal is gone, and the run goes on.
            let _ = sender.send(News::Step(now));
        }
    }

    fn ended(&mut self, step: &Step<'_>, came: Option<&Trial>, time: Time) {
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

/// Tells a page of a run: what is done, and what is known.
pub(crate) struct Followed<'p, A> {
    page: &'p mut Page<A>,
    /// What each step is part of; nothing, or with what stands behind it.
    of: String,
    tally: Tally,
    knows: fn(&mut Page<A>, &dyn Fn() -> Answer),
}

impl<'p> Followed<'p, Answer> {
    /// The page of the run itself.
    pub(crate) fn whole(page: &'p mut Page<Answer>) -> Self {
        Self { page, of: String::new(), tally: Tally::default(), knows: |page, so_far| page.knows(so_far()) }
    }
}

impl<'p, A> Followed<'p, A> {
    /// A page of more than the run, which is this part of it.
    pub(crate) fn part(page: &'p mut Page<A>, name: &str) -> Self {
        Self { page, of: format!("{name}: "), tally: Tally::default(), knows: |_, _| () }
    }
}

/// A shorter silence is over before anybody has read of it.
const SHORTEST: Duration = Duration::from_secs(1);

impl<A: Drawn> Watcher for Followed<'_, A> {
    fn begins(&mut self, step: &Step<'_>, time: Time) {
        if matches!(step, Step::Rest(rest) if *rest < SHORTEST) {
            return;
        }
        let now = Now {
            step: format!("{}{}", self.of, named(step)),
            tally: self.tally.clone(),
            time,
            so_far: None,
        };
        self.page.does(Box::new(move |since| live(&now, since)));
    }

    fn ended(&mut self, _: &Step<'_>, came: Option<&Trial>, _: Time) {
        came.into_iter().for_each(|trial| self.tally.add(trial));
    }

    fn knows(&mut self, so_far: &dyn Fn() -> Answer) {
        (self.knows)(self.page, so_far);
    }
}

impl Tally {
    fn add(&mut self, trial: &Trial) {
        match trial.vote {
            Vote::Good => self.good += 1,
            Vote::Bad => self.bad += 1,
            Vote::Undecided | Vote::Invalid => self.other += 1,
        }
        self.last = format!("{} {}", offered(trial), came_to(trial));
    }
}

/// Which way a trial points by these blocks; none of what is no trial.
fn so_far(offer: &Offer, blocks: &[Block]) -> Option<Vote> {
    let (Rule::Whole(standard) | Rule::Decided(standard)) = offer.rule else { return None };
    Some(standard.vote(&seawall_search::evidence::Evidence::of(offer.rate, blocks, &standard)).into())
}

/// What is done, in a few words.
fn named(step: &Step<'_>) -> String {
    match step {
        Step::Calibrate => "looking at the generator".to_owned(),
        Step::Offer(offer) => format!("{} {}/s", purpose(offer.purpose), rate(offer.rate)),
        Step::Clients(offer) => format!("{} {}", purpose(offer.purpose), clients(offer.clients)),
        Step::Rest(time) => format!("silence for {}", lasting(*time)),
        Step::Experiment(name) => format!("cause: {name}"),
    }
}

/// The rate, or how many clients.
fn offered(trial: &Trial) -> String {
    trial.clients.map_or_else(|| format!("{}/s", rate(trial.rate)), clients)
}

fn word(vote: Vote) -> &'static str {
    match vote {
        Vote::Good => "good",
        Vote::Bad => "bad",
        Vote::Undecided => "undecided",
        Vote::Invalid => "invalid",
    }
}

/// The vote, or of a rung that was only passed on the way up what it was to tell: that it is not bad.
fn came_to(trial: &Trial) -> &'static str {
    if trial.vote == Vote::Undecided && trial.purpose == purpose(Purpose::Ladder) {
        return "not bad";
    }
    word(trial.vote)
}

/// Rate, vote, why, in flight and errors of a trial; of anything else its name.
fn line(step: &Step<'_>, came: Option<&Trial>, time: Time) -> String {
    let at = seconds(time.spent.as_secs_f64());
    let Some(trial) = came else { return format!("{at:>9}  {}", named(step)) };
    // Of a trial that is not decided the figures are all that there is to say.
    let why = if trial.vote == Vote::Undecided { "" } else { &trial.why };
    let figures = format!("in flight {:>5}, errors {:>6}", trial.in_flight(), percent(trial.errors));
    let line = format!(
        "{at:>9}  {:<9} {:>11}  {:<9}  {figures}  {why}",
        trial.purpose,
        offered(trial),
        came_to(trial)
    );
    line.trim_end().to_owned()
}

fn draw(news: &Receiver<News>) {
    let clock = RunClock::start();
    let mut shown: Option<(Now, Nanos)> = None;
    loop {
        match news.recv_timeout(TICK) {
            Ok(News::Step(now)) => shown = Some((now, clock.now())),
            Ok(News::SoFar(vote)) => shown.iter_mut().for_each(|(now, _)| now.so_far = Some(vote)),
            Err(RecvTimeoutError::Timeout) => {}
            Ok(News::End) | Err(RecvTimeoutError::Disconnected) => {
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

/// The live line, so long after its step began.
fn live(now: &Now, since: Duration) -> String {
    let Now { step, tally, time, so_far } = now;
    let so_far = so_far.map_or_else(String::new, |vote| format!(", {} so far", word(vote)));
    let left = time.left.map(|left| left.saturating_sub(since));
    let time = match left {
        Some(left) => format!("{} left", lasting(Duration::from_secs(left.as_secs()))),
        None => format!("{} so far", lasting(Duration::from_secs((time.spent + since).as_secs()))),
    };
    let Tally { good, bad, other, last } = tally;
    let last = if last.is_empty() { String::new() } else { format!("; last {last}") };
    format!("{step}{so_far}  ·  {time}  ·  {good} good, {bad} bad, {other} undecided{last}")
}

#[cfg(test)]
mod tests {
    use seawall_search::goal::Goal;
    use seawall_search::vote::Standard;

    use super::*;

    #[test]
    fn the_live_line_counts_the_time_down_during_a_step() {
        let tally = Tally { good: 5, bad: 3, other: 1, last: "412/s bad".to_owned() };
        let time = Time { spent: Duration::from_secs(30), left: Some(Duration::from_secs(60)) };
        let now = Now { step: "narrow 398/s".to_owned(), tally, time, so_far: Some(Vote::Good) };
        assert_eq!(
            live(&now, Duration::from_millis(2500)),
            "narrow 398/s, good so far  ·  57 s left  ·  5 good, 3 bad, 1 undecided; last 412/s bad"
        );
        let now = Now { time: Time { left: None, ..time }, ..now };
        assert!(live(&now, Duration::from_secs(2)).contains("32 s so far"));
    }

    #[test]
    fn a_rung_that_was_passed_is_not_bad_and_any_other_trial_is_what_it_voted() {
        let trial = |purpose: &str, vote: &str| -> Trial {
            let text = format!(
                r#"{{"purpose":"{purpose}","rate":40,"began":0,"took":1,"vote":"{vote}","why":"w","fails":null,"weight":1,
                "goodput":40,"errors":0,"late":null,"invalid":null,"interrupted":false,"blocks":[]}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let said = |purpose, vote| came_to(&trial(purpose, vote));
        assert_eq!([said("ladder", "undecided"), said("ladder", "bad")], ["not bad", "bad"]);
        assert_eq!([said("narrow", "undecided"), said("ladder", "invalid")], ["undecided", "invalid"]);
    }

    #[test]
    fn the_live_line_ends_although_somebody_observes_still() {
        let progress = Progress::live().unwrap();
        let mut observer = progress.observer().unwrap();
        progress.end();
        let standard = Standard {
            goal: Goal::CLIFF,
            tolerance: 0.03,
            settle: 0.3,
            least: 1.0,
            service: 0.001,
            slowest: 0.001,
        };
        let second = Duration::from_secs(1);
        let rule = Rule::Whole(standard);
        let offer = Offer {
            purpose: Purpose::Narrow,
            rate: 1500.0,
            least: second,
            most: second,
            rule,
            most_in_flight: 50.0,
            drain: second,
        };
        let blocks = [Block { sent: 100, good: 100, timely: 100, ..Block::default() }; 60];
        assert_eq!(so_far(&offer, &blocks), Some(Vote::Good));
        observer(&offer, &blocks);
        assert_eq!(so_far(&Offer { rule: Rule::Fails(0.1), ..offer }, &blocks), None);
    }
}
