//! What is told of a run while it goes on: on a terminal one line that lives, elsewhere one line for each trial.
//!
//! A thread draws the live line, five times a second, so that the time left is seen to pass during a trial of half a minute; the search
//! hands over what it is at and waits for nobody.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use rustix::termios::tcgetwinsize;
use seawall_lab::find::answer::{Trial, Vote};
use seawall_lab::find::progress::{Step, Time, Watcher};
use seawall_lab::find::told::purpose;
use seawall_load::clock::{Nanos, RunClock};

use super::words::{lasting, percent, rate, seconds};

/// How often the live line is drawn.
const TICK: Duration = Duration::from_millis(200);

/// Tells of a run.
pub(super) enum Progress {
    /// A line for each trial.
    Lines,
    /// One line.
    Live(Tally, Sender<Now>, JoinHandle<()>),
}

/// Votes until now.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    good: usize,
    bad: usize,
    other: usize,
    last: String,
}

/// What the live line says.
#[derive(Debug, Clone)]
pub(super) struct Now {
    step: String,
    tally: Tally,
    time: Time,
}

impl Progress {
    /// As it suits standard error.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn to_stderr() -> anyhow::Result<Self> {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if dumb || !stderr().is_terminal() {
            return Ok(Self::Lines);
        }
        let (sender, news) = channel();
        let thread = std::thread::Builder::new().name("progress".into()).spawn(move || draw(&news));
        Ok(Self::Live(Tally::default(), sender, thread.context("cannot show the run")?))
    }

    /// Nothing more comes; the terminal is left as it was.
    pub(super) fn end(self) {
        if let Self::Live(_, sender, thread) = self {
            drop(sender);
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Watcher for Progress {
    fn begins(&mut self, step: &Step<'_>, time: Time) {
        if let Self::Live(tally, sender, _) = self {
            let now = Now { step: named(step), tally: tally.clone(), time };
            // Nobody draws: the terminal is gone, and the run goes on.
            let _ = sender.send(now);
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

impl Tally {
    fn add(&mut self, trial: &Trial) {
        match trial.vote {
            Vote::Good => self.good += 1,
            Vote::Bad => self.bad += 1,
            Vote::Undecided | Vote::Invalid => self.other += 1,
        }
        self.last = format!("{}/s {}", rate(trial.rate), word(trial.vote));
    }
}

/// What is done, in a few words.
fn named(step: &Step<'_>) -> String {
    match step {
        Step::Calibrate => "looking at the generator".to_owned(),
        Step::Offer(offer) => format!("{} {}/s", purpose(offer.purpose), rate(offer.rate)),
        Step::Rest(time) => format!("silence for {}", lasting(*time)),
        Step::Experiment(name) => format!("cause: {name}"),
    }
}

fn word(vote: Vote) -> &'static str {
    match vote {
        Vote::Good => "good",
        Vote::Bad => "bad",
        Vote::Undecided => "undecided",
        Vote::Invalid => "invalid",
    }
}

/// Rate, vote, why, in flight and errors of a trial; of anything else its name.
fn line(step: &Step<'_>, came: Option<&Trial>, time: Time) -> String {
    let at = seconds(time.spent.as_secs_f64());
    let Some(trial) = came else { return format!("{at:>9}  {}", named(step)) };
    // Of a trial that is not decided the figures are all that there is to say.
    let why = if trial.vote == Vote::Undecided { "" } else { &trial.why };
    let figures = format!("in flight {:>5}, errors {:>6}", trial.in_flight(), percent(trial.errors));
    let line = format!(
        "{at:>9}  {:<9} {:>9}/s  {:<9}  {figures}  {why}",
        trial.purpose,
        rate(trial.rate),
        word(trial.vote)
    );
    line.trim_end().to_owned()
}

fn draw(news: &Receiver<Now>) {
    let clock = RunClock::start();
    let mut shown: Option<(Now, Nanos)> = None;
    loop {
        match news.recv_timeout(TICK) {
            Ok(now) => shown = Some((now, clock.now())),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
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
    let Now { step, tally, time } = now;
    let left = time.left.map(|left| left.saturating_sub(since));
    let time = match left {
        Some(left) => format!("{} left", lasting(Duration::from_secs(left.as_secs()))),
        None => format!("{} so far", lasting(Duration::from_secs((time.spent + since).as_secs()))),
    };
    let Tally { good, bad, other, last } = tally;
    let last = if last.is_empty() { String::new() } else { format!("; last {last}") };
    format!("{step}  ·  {time}  ·  {good} good, {bad} bad, {other} undecided{last}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_live_line_counts_the_time_down_during_a_step() {
        let tally = Tally { good: 5, bad: 3, other: 1, last: "412/s bad".to_owned() };
        let time = Time { spent: Duration::from_secs(30), left: Some(Duration::from_secs(60)) };
        let now = Now { step: "narrow 398/s".to_owned(), tally, time };
        assert_eq!(
            live(&now, Duration::from_millis(2500)),
            "narrow 398/s  ·  57 s left  ·  5 good, 3 bad, 1 undecided; last 412/s bad"
        );
        let now = Now { time: Time { left: None, ..time }, ..now };
        assert!(live(&now, Duration::from_secs(2)).contains("32 s so far"));
    }
}
