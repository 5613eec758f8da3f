//! The signals that the agent takes: which ask for its end, which have it look at its configuration, and which are ignored.
//!
//! The first SIGTERM or SIGINT starts the drain (`serve`), a second signal cuts at once. Kubernetes sends SIGTERM, waits for the grace period
//! and then kills; 5 s fits inside any grace period. Signals whose default would end the process without a drain are taken, named in the
//! log and otherwise ignored. Read by `app` and `uninstall`.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalAction {
    /// The end, by the signal of this name.
    Terminate(&'static str),
    /// That the configuration is looked at now.
    Reload,
}

/// SIGTERM and SIGINT, SIGHUP, and those that are ignored: the USRs, by which other servers are told to read their files
/// again, and SIGQUIT, which prints the threads of a Go program and would end this one. (The standard library ignores SIGPIPE.)
#[derive(Debug)]
pub(crate) struct AgentSignals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    user: [Signal; 2],
    quit: Signal,
}

impl AgentSignals {
    /// Takes them over from their default, which would end the process at once.
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

    /// The next one that asks for the end.
    pub(crate) async fn next_termination(&mut self) -> &'static str {
        loop {
            if let SignalAction::Terminate(signal) = self.next().await {
                return signal;
            }
        }
    }

    /// The next one that asks for something.
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
                "ignored; SIGTERM ends the agent, and SIGHUP has it look at its configuration"
            );
        }
    }
}
