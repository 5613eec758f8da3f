//! Handles signals. Some signals stop the agent, one signal reloads the configuration, and the agent ignores some signals.
//!
//! The first SIGTERM or SIGINT starts the drain (`app`). A second such signal ends the agent at once. Kubernetes sends SIGTERM, waits for the grace
//! period and then kills the process. The drain takes at most 8 s, which is shorter than any usual grace period. By default, some other signals would
//! end the process without a drain, so the agent logs these signals and ignores them. `app` and `uninstall` read the signals.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The action that a signal requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalAction {
    /// Stops the agent. The value is the signal's name.
    Terminate(&'static str),
    /// Makes the agent read the configuration file again immediately.
    Reload,
}

/// The streams of SIGTERM, SIGINT and SIGHUP, and of the signals that the agent ignores: SIGUSR1, SIGUSR2 and SIGQUIT.
///
/// Operators know these signals from other programs: SIGUSR1 and SIGUSR2 make some servers reload their files, and SIGQUIT makes
/// a Go program print its threads. By default, each of these three signals would end this process. (Rust's standard library
/// already ignores SIGPIPE.)
#[derive(Debug)]
pub(crate) struct AgentSignals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    user: [Signal; 2],
    quit: Signal,
}

impl AgentSignals {
    /// Installs handlers that replace the default actions, which would end the process at once.
    ///
    /// # Errors
    /// The handlers cannot be installed.
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            user: [signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?],
            quit: signal(SignalKind::quit())?,
        })
    }

    /// Waits for the next signal that stops the agent. Returns the signal's name.
    pub(crate) async fn next_termination(&mut self) -> &'static str {
        loop {
            if let SignalAction::Terminate(signal) = self.next().await {
                return signal;
            }
        }
    }

    /// Waits for the next signal that requests an action.
    pub(crate) async fn next(&mut self) -> SignalAction {
        let [first, second] = &mut self.user;
        loop {
            let ignored = tokio::select! {
                _ = self.terminate.recv() => return SignalAction::Terminate("SIGTERM"),
                _ = self.interrupt.recv() => return SignalAction::Terminate("SIGINT"),
                _ = self.hang_up.recv() => return SignalAction::Reload,
                _ = first.recv() => "SIGUSR1",
                _ = second.recv() => "SIGUSR2",
                _ = self.quit.recv() => "SIGQUIT",
            };
            tracing::warn!(
                signal = ignored,
                "the agent ignores this signal; SIGTERM stops the agent, and SIGHUP reloads the configuration"
            );
        }
    }
}
