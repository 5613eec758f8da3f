//! The live output of an attack: a view that fills the terminal, or one plain line per second.
//!
//! The collector hands over a [`LiveRow`] per second and never waits: the channel is bounded, a row that finds it full is
//! dropped, and a separate thread draws. The library makes rows of intervals, [`plain_line`] and [`view`] make text and cells of
//! rows, [`keys`] reads keys, and only [`screen`] accesses the terminal.

mod formatting;
mod keys;
mod plain_line;
mod screen;
#[cfg(test)]
mod test_fixtures;
mod view;

use std::io::{IsTerminal, Write, stderr, stdin, stdout};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use anyhow::Context as _;
use rustix::fs::{FileType, fstat};
use rustix::process::{Signal, getpid, kill_process};
use seawall_load::clock::Nanos;
use seawall_load::control::Control;
use seawall_load::engine::RunPlan;
use seawall_load::interval::IntervalStats;
use seawall_load::interval_row::{LiveRow, LiveRowBuilder, LiveRowHistory, RunInfo, RunStatus};
use seawall_load::rate::RequestRate;

use self::keys::ViewKey;
use self::screen::Screen;
use self::view::LiveFrame;
use super::args::{AttackArgs, LiveMode, SummaryFormat};
use super::generator_pods::PodTracker;
use super::load_args::is_ci;
use super::load_description;
use super::plan::are_results_on_stdout;

/// Rows on their way to the thread that shows them.
const ROWS: usize = 8;

/// The place at which the run is shown, decided and checked before the run begins.
pub(crate) struct LiveSetup {
    facts: RunInfo,
    show: Option<LiveOutput>,
}

enum LiveOutput {
    View(Screen),
    Lines,
}

impl LiveSetup {
    /// Decides where the run is shown.
    ///
    /// # Errors
    /// `--live view` without a terminal.
    pub(crate) fn from_args(args: &AttackArgs, plan: &RunPlan) -> anyhow::Result<Self> {
        let show = match args.live {
            LiveMode::None => None,
            LiveMode::Lines => Some(LiveOutput::Lines),
            LiveMode::View => Some(LiveOutput::View(Screen::open().context("--live view")?)),
            LiveMode::Auto => default_medium(args),
        };
        Ok(Self { facts: load_description::build_run_info(args, plan), show })
    }

    /// Returns true if the live view occupies the whole terminal.
    pub(crate) fn is_full_screen(&self) -> bool {
        matches!(self.show, Some(LiveOutput::View(_)))
    }

    /// Starts the thread that shows the run and its pods, if it is shown.
    pub(crate) fn start(self, control: Control, pods: PodTracker) -> anyhow::Result<Option<LiveDisplay>> {
        let Self { facts, show: Some(show) } = self else { return Ok(None) };
        let (sender, rows) = sync_channel(ROWS);
        let (end, hits) = (facts.end, facts.max_requests);
        let (steering, known) = (control.clone(), pods.clone());
        let show = move || match show {
            LiveOutput::View(screen) => watch(screen, &facts, &steering, &known, &rows),
            LiveOutput::Lines => print(&facts, &known, &rows),
        };
        let thread = std::thread::Builder::new().name("live".into()).spawn(show);
        Ok(Some(LiveDisplay {
            rows: Some(sender),
            meter: LiveRowBuilder::default(),
            end,
            hits,
            control,
            pods,
            thread: Some(thread.context("cannot show the run")?),
        }))
    }
}

/// Without a word from the user: the view where nobody else writes to the terminal, lines elsewhere, nothing where a
/// program reads standard error.
fn default_medium(args: &AttackArgs) -> Option<LiveOutput> {
    if args.summary == Some(SummaryFormat::Json) && are_results_on_stdout(args) {
        return None;
    }
    // What reads a pipe may write to the terminal; what types targets there needs its keys; whoever opens the page needs the link
    // that stands there.
    let shares_terminal =
        is_pipe(&stdout()) || (args.lazy && stdin().is_terminal()) || args.live_page.is_some();
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    // Some CI systems give a job a terminal, and write what it shows into a log.
    if !stderr().is_terminal() || shares_terminal || dumb || is_ci() {
        return Some(LiveOutput::Lines);
    }
    Some(Screen::open().map_or(LiveOutput::Lines, LiveOutput::View))
}

fn is_pipe(file: &impl std::os::fd::AsFd) -> bool {
    fstat(file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}

/// A run that is being shown; dropping it gives the terminal back.
pub(crate) struct LiveDisplay {
    rows: Option<SyncSender<LiveRow>>,
    meter: LiveRowBuilder,
    end: Option<Nanos>,
    hits: Option<u64>,
    control: Control,
    pods: PodTracker,
    thread: Option<JoinHandle<()>>,
}

impl LiveDisplay {
    /// Shows what was measured, once that is a second of it, if there is time to.
    pub(crate) fn add_interval(&mut self, interval: &IntervalStats) {
        let due = |at| self.control.due_before(at, self.end, self.hits);
        let row = self.meter.add_interval(interval, RunStatus::of(&self.control, self.end), due);
        if let Some((rows, row)) = self.rows.as_ref().zip(row) {
            // No room: standard error or the terminal is not being read. The next row tells all that this one does of
            // the whole run.
            let _ = rows.try_send(row);
        }
    }
}

impl Drop for LiveDisplay {
    fn drop(&mut self) {
        self.rows = None;
        // A thread that panicked has said so.
        self.thread.take().map(JoinHandle::join);
        self.pods.flush_messages();
    }
}

/// One line per second until the run ends.
fn print(facts: &RunInfo, pods: &PodTracker, rows: &Receiver<LiveRow>) {
    for row in rows {
        let told = pods.reporting_text(row.status.elapsed);
        // Standard error may be closed; the run goes on.
        let _ = writeln!(stderr(), "{}", plain_line::format_plain_line(facts, &row, told.as_deref()));
    }
}

/// The view until the run ends, or until the terminal is gone.
fn watch(
    mut screen: Screen,
    facts: &RunInfo,
    control: &Control,
    pods: &PodTracker,
    rows: &Receiver<LiveRow>,
) {
    let mut history = LiveRowHistory::default();
    let mut helm = KeyControl { control, steerable: facts.steerable, requested_rate: None };
    // The senders come first; a view a moment late is none the worse.
    let _ = rustix::process::nice(10);
    if screen.enter().is_err() {
        return;
    }
    loop {
        let now = RunStatus::of(control, facts.end);
        let scene = LiveFrame {
            run_info: facts,
            history: &history,
            status: now,
            pods,
            is_rate_changed_by_keys: helm.requested_rate.is_some(),
        };
        if screen.draw(|frame| view::draw(frame, &scene)).is_err() {
            return;
        }
        let Ok(keys) = screen.wait_for_keys() else { return };
        keys.into_iter().for_each(|key| helm.apply_key(key));
        loop {
            match rows.try_recv() {
                Ok(row) => history.push(row),
                Err(std::sync::mpsc::TryRecvError::Empty) => break,
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
            }
        }
    }
}

/// Controls the run with keys.
struct KeyControl<'a> {
    control: &'a Control,
    steerable: bool,
    /// The rate last asked for. A change takes a moment, and the next key must not start from the rate before it.
    requested_rate: Option<f64>,
}

impl KeyControl<'_> {
    fn apply_key(&mut self, key: ViewKey) {
        match key {
            // The same way as Ctrl-C, so that there is one way to end a run and one exit code for it.
            ViewKey::StopAttack => _ = kill_process(getpid(), Signal::INT),
            ViewKey::ScaleRate(factor) => self.scale(factor),
        }
    }

    fn scale(&mut self, factor: f64) {
        if !self.steerable {
            return;
        }
        // A run that ends needs no rate.
        let Some(rate) = self.requested_rate.or_else(|| self.control.offered_rate()) else { return };
        let rate = RequestRate::from_per_second(rate * factor).filter(|_| !self.control.is_ending());
        if let Some(rate) = rate.filter(|&rate| self.control.set_rate(rate)) {
            self.requested_rate = Some(rate.requests_per_second());
        }
    }
}
