//! The inputs of a pod: orders on standard input, their absence, and signals.
//!
//! Three threads wait: one for lines, which answers pings at once, even during a load; one for silence; one for signals. Trials
//! go to the worker, everything else to the [`TrialController`]. The end of the input counts as silence, too: the coordinator may
//! come back, but in a pod the input does not end when the coordinator goes.

use std::io::{BufRead as _, Read as _, stdin};
use std::process::exit;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use seawall_fleet::protocol::{BeginTrial, PodCommand, PodReport, Pong};
use seawall_load::clock::RunClock;
use serde::de::DeserializeOwned;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::pod_output::PodOutput;
use super::trial_control::{PodExitReason, TrialController};

/// The longest line: the largest order takes a tenth of it.
const LONGEST: u64 = 1 << 20;

/// The longest wait for measurements after a stop.
const LAST_WORDS: Duration = Duration::from_millis(1500);

/// The ordered trials; `None` when the pod ends.
pub(super) struct TrialReceiver<W>(Receiver<Option<BeginTrial<W>>>);

impl<W: DeserializeOwned + Send + 'static> TrialReceiver<W> {
    /// Starts to listen, until the program ends.
    ///
    /// # Errors
    /// The system refuses threads.
    pub(super) fn listen(
        heartbeat: Duration,
        hand: &Arc<TrialController>,
        voice: &Arc<PodOutput>,
    ) -> anyhow::Result<Self> {
        let ((orders, trials), (heard, sounds)) = (channel(), channel());
        let ender = PodShutdown { hand: Arc::clone(hand), orders: orders.clone() };
        let mut signals =
            signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).context("cannot listen to signals")?;
        let on_signal = ender.clone();
        spawn("signals", move || {
            if let Some(signal) = signals.forever().next() {
                on_signal.end(PodExitReason::Signal(signal));
            }
        })?;
        spawn("silence", move || {
            wait_for_silence(&sounds, heartbeat);
            ender.end(PodExitReason::HeartbeatLost);
        })?;
        let (hand, voice) = (Arc::clone(hand), Arc::clone(voice));
        spawn("orders", move || {
            CommandListener { orders, hand, voice, clock: RunClock::start() }.listen(&heard);
        })?;
        Ok(Self(trials))
    }

    /// Returns the next trial; `None` when the pod ends.
    pub(super) fn next(&self) -> Option<BeginTrial<W>> {
        self.0.recv().ok().flatten()
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    thread::Builder::new().name(name.into()).spawn(run).context("cannot start a thread for commands")?;
    Ok(())
}

/// Waits until nothing was heard for `heartbeat`. The wait for the first word is unlimited: other pods may start minutes later,
/// and nothing is sent yet.
fn wait_for_silence(sounds: &Receiver<()>, heartbeat: Duration) {
    let mut heard = sounds.recv().map_err(|_| RecvTimeoutError::Disconnected);
    loop {
        heard = match heard {
            Ok(()) => sounds.recv_timeout(heartbeat),
            Err(RecvTimeoutError::Timeout) => return,
            // Nobody can say anything any more; that is not the same as having gone.
            Err(RecvTimeoutError::Disconnected) => return wait(heartbeat),
        }
    }
}

/// Waits for this time.
fn wait(time: Duration) {
    let (_never, nothing) = channel::<()>();
    let _ = nothing.recv_timeout(time);
}

/// Ends everything.
struct PodShutdown<W> {
    hand: Arc<TrialController>,
    orders: Sender<Option<BeginTrial<W>>>,
}

impl<W> Clone for PodShutdown<W> {
    fn clone(&self) -> Self {
        Self { hand: Arc::clone(&self.hand), orders: self.orders.clone() }
    }
}

impl<W> PodShutdown<W> {
    /// Aborts the trial and lets it report. A blocked program does not keep the pod alive.
    fn end(&self, why: PodExitReason) {
        self.hand.end_pod(why);
        // Whoever carries trials out may be gone, and the program with him.
        let _ = self.orders.send(None);
        wait(LAST_WORDS);
        exit(i32::from(exit_code(why)));
    }
}

/// Returns the exit code for this reason.
pub(super) fn exit_code(why: PodExitReason) -> u8 {
    match why {
        PodExitReason::Requested => 0,
        PodExitReason::HeartbeatLost => crate::exit::ERROR,
        // The shell's convention for a program that a signal ended.
        PodExitReason::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
    }
}

/// Reads lines.
struct CommandListener<W> {
    orders: Sender<Option<BeginTrial<W>>>,
    hand: Arc<TrialController>,
    voice: Arc<PodOutput>,
    clock: RunClock,
}

impl<W: DeserializeOwned> CommandListener<W> {
    fn listen(&self, heard: &Sender<()>) {
        let mut input = stdin().lock();
        let mut line = Vec::new();
        loop {
            line.clear();
            match input.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                // Whoever waits for silence lives as long as the program.
                Ok(_) => _ = heard.send(()),
            }
            self.handle_line(&line);
        }
    }

    fn handle_line(&self, line: &[u8]) {
        match serde_json::from_slice(line) {
            Ok(PodCommand::Ping(ping)) => {
                let at = self.clock.unix_ns(self.clock.now());
                self.voice.send(&PodReport::<(), ()>::Pong(Pong { ping, at }));
            }
            Ok(PodCommand::Begin(begin)) => {
                self.hand.expect_next_trial();
                // If nobody carries trials out any more, the program is about to end.
                let _ = self.orders.send(Some(begin));
            }
            Ok(PodCommand::Steer(steer)) => self.hand.steer(steer),
            Ok(PodCommand::Stop) => self.hand.stop_trial(),
            Ok(PodCommand::Leave) => {
                self.hand.end_pod(PodExitReason::Requested);
                let _ = self.orders.send(None);
            }
            // An empty line is a sound, and no order.
            Err(_) if line.trim_ascii().is_empty() => {}
            Err(error) => {
                self.voice.send_failure(format!("cannot read a command of the coordinator: {error}"));
            }
        }
    }
}
