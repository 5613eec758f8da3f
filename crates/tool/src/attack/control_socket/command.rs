//! The words of `--control-socket`: a line is a command, and the answer a line.
//!
//! Knows no socket. What a command may do is what [`Control`] can; what it cannot is answered with what was expected.

use std::num::NonZero;
use std::str::FromStr;

use seawall_load::clock::SECOND;
use seawall_load::control::Control;
use seawall_load::rate::RequestRate;

/// The commands that a running attack accepts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ControlSocketCommand {
    /// Another rate from now on.
    Rate(RequestRate),
    /// Another number of clients from now on.
    Concurrency(NonZero<usize>),
    /// Send nothing for the time being.
    Pause,
    /// Send again.
    Resume,
    /// Send nothing more and wait for answers; said again, do not wait.
    Stop,
    /// Say how it stands.
    Status,
}

const EXPECTED: &str = "expected rate N/UNIT, concurrency N, pause, resume, stop or status";

impl FromStr for ControlSocketCommand {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["rate", rate] => rate.parse().map(Self::Rate).map_err(|_| {
                format!("{rate:?} is not a rate: expected a number above 0, such as 500/s or 0.5/1m")
            }),
            ["concurrency", clients] => clients.parse().map(Self::Concurrency).map_err(|_| {
                format!("{clients:?} is not a number of clients: expected a whole number above 0")
            }),
            ["pause"] => Ok(Self::Pause),
            ["resume"] => Ok(Self::Resume),
            ["stop"] => Ok(Self::Stop),
            ["status"] => Ok(Self::Status),
            [] => Err(format!("an empty line: {EXPECTED}")),
            [name @ ("rate" | "concurrency"), ..] => Err(format!("{name} takes one value: {EXPECTED}")),
            [name @ ("pause" | "resume" | "stop" | "status"), ..] => Err(format!("{name} takes no value")),
            [name, ..] => Err(format!("{name:?} is not a command: {EXPECTED}")),
        }
    }
}

/// Runs commands on an attack: its control handle and the largest number of clients.
#[derive(Debug, Clone)]
pub(crate) struct CommandHandler {
    pub(crate) control: Control,
    /// The largest number of clients: each needs a descriptor.
    pub(crate) max_concurrency: usize,
}

impl CommandHandler {
    /// Runs the command on this line and returns the response, without a line end.
    pub(crate) fn run_command(&self, line: &str) -> String {
        match line.parse().and_then(|command| self.carry_out(command)) {
            Ok(answer) => format!("ok {answer}"),
            Err(error) => format!("error: {error}"),
        }
    }

    fn carry_out(&self, command: ControlSocketCommand) -> Result<String, String> {
        let control = &self.control;
        if control.has_stopped_sending()
            && !matches!(command, ControlSocketCommand::Stop | ControlSocketCommand::Status)
        {
            return Err("the attack is ending: expected stop or status".into());
        }
        match command {
            ControlSocketCommand::Rate(rate) => self.set_rate(rate)?,
            ControlSocketCommand::Concurrency(clients) => self.set_concurrency(clients)?,
            ControlSocketCommand::Pause => control.pause(),
            ControlSocketCommand::Resume => control.resume(),
            ControlSocketCommand::Stop if control.is_ending() => control.abort(),
            ControlSocketCommand::Stop => control.drain(),
            ControlSocketCommand::Status => {}
        }
        Ok(self.status(command))
    }

    fn set_rate(&self, rate: RequestRate) -> Result<(), String> {
        let closed = "a closed loop has no rate: expected concurrency N";
        self.control.set_rate(rate).then_some(()).ok_or_else(|| closed.into())
    }

    fn set_concurrency(&self, clients: NonZero<usize>) -> Result<(), String> {
        let most = self.max_concurrency;
        if clients.get() > most {
            return Err(format!("{clients} clients exceed the open-files limit: expected at most {most}"));
        }
        let open = "an attack with a rate has no concurrency: expected rate N/UNIT";
        self.control.set_concurrency(clients).then_some(()).ok_or_else(|| open.into())
    }

    /// Returns the status line. After a change of the rate it shows the new rate, which takes effect a moment later.
    fn status(&self, command: ControlSocketCommand) -> String {
        let control = &self.control;
        let state = match () {
            () if control.has_stopped_sending() => "ending",
            () if control.is_paused() => "paused",
            () => "running",
        };
        let load = match (command, control.offered_rate()) {
            (ControlSocketCommand::Rate(rate), _) => format!("rate={}/s", rate.requests_per_second()),
            (_, Some(rate)) => format!("rate={rate}/s"),
            (_, None) => format!("concurrency={}", control.concurrency()),
        };
        let (done, errors) = control.completed_and_errors();
        let (in_flight, connections) = (control.in_flight(), control.connections());
        let elapsed = control.elapsed() as f64 / SECOND as f64;
        format!(
            "{state} elapsed={elapsed:.1}s {load} in_flight={in_flight} connections={connections} done={done} \
             errors={errors}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_a_word_and_its_value() {
        let rate = |text: &str| ControlSocketCommand::Rate(text.parse().unwrap());
        let clients = |clients| ControlSocketCommand::Concurrency(NonZero::new(clients).unwrap());
        for (line, command) in [
            ("rate 500/s", rate("500/s")),
            ("  rate\t0.5/1m \r", rate("0.5/1m")),
            ("concurrency 20", clients(20)),
            ("pause", ControlSocketCommand::Pause),
            ("resume", ControlSocketCommand::Resume),
            ("stop", ControlSocketCommand::Stop),
            ("status", ControlSocketCommand::Status),
        ] {
            assert_eq!(line.parse(), Ok(command), "{line}");
        }
    }

    #[test]
    fn what_is_no_command_is_answered_with_what_was_expected() {
        for (line, expected) in [
            ("", EXPECTED),
            ("faster", EXPECTED),
            ("rate", EXPECTED),
            ("rate 5 6", EXPECTED),
            ("pause 5s", "pause takes no value"),
            ("rate 0", "expected a number above 0, such as 500/s"),
            ("rate infinity", "expected a number above 0"),
            ("rate -1/s", "expected a number above 0"),
            ("concurrency 0", "expected a whole number above 0"),
            ("concurrency many", "\"many\" is not a number of clients"),
            ("RATE 5", "\"RATE\" is not a command"),
        ] {
            let refused = line.parse::<ControlSocketCommand>().unwrap_err();
            assert!(refused.contains(expected), "{line:?}: {refused}");
        }
    }
}
