//! What the machine says about a run: joins `probe`, which knows no runs, with the engine's verdict on itself.

use std::fmt::Write as _;
use std::time::Duration;

use seawall_lab::probe::{Finding, Run, System, Verdict, Watch};
use seawall_load::clock::RunClock;
use seawall_load::engine::Outcome;
use seawall_load::fault::Fault;
use seawall_load::interval::Interval;
use seawall_load::selfcheck;
use seawall_load::summary::Summary;
use serde::Serialize;

use super::about::About;

/// What the engine calls the threads that send.
const SENDERS: &str = "sender ";

/// Time between two looks at the machine, a little less than an interval's usual length.
const SPACING: Duration = Duration::from_millis(900);

/// Watches the machine from the first request to the last answer.
pub(crate) struct Machine {
    clock: RunClock,
    /// When to look again.
    next: Duration,
    watch: Watch<System>,
}

impl Machine {
    /// Begins. The sending threads must be there.
    pub(crate) fn watch() -> Self {
        let clock = RunClock::start();
        Self { clock, next: Duration::ZERO, watch: Watch::start(System, SENDERS, Duration::ZERO) }
    }

    /// Looks at the sending threads, unless they only wait for the last answers.
    pub(crate) fn sample(&mut self, interval: &Interval) {
        let now = now(self.clock);
        if interval.stats.sent > 0 && now >= self.next {
            self.watch.sample(now);
            // However short intervals are: a look costs as much as some hundred requests.
            self.next = now + SPACING;
        }
    }

    /// What was found, given what the run came to.
    pub(crate) fn finish(self, outcome: &Outcome) -> Vec<Finding> {
        let run = Run {
            sending: Duration::from_nanos(outcome.scheduled_for),
            missed_sends: selfcheck::has_missed_sends(outcome),
            connections: outcome.total.connections,
            no_socket: outcome.total.fault(Fault::Local(std::io::ErrorKind::Other)),
            in_flight_peak: outcome.total.in_flight_peak,
            spun: Duration::from_nanos(outcome.total.spun / outcome.threads.max(1) as u64),
        };
        self.watch.finish(now(self.clock), &run)
    }
}

fn now(clock: RunClock) -> Duration {
    Duration::from_nanos(clock.now())
}

/// What the run's verdict must take into account.
pub(crate) fn against(findings: &[Finding]) -> impl Iterator<Item = selfcheck::Finding> {
    findings.iter().filter_map(|finding| {
        let verdict = match finding.verdict {
            Verdict::Fine | Verdict::Noted | Verdict::Untested => return None,
            Verdict::Degraded => selfcheck::Verdict::Degraded,
            Verdict::Invalid => selfcheck::Verdict::GeneratorLimited,
        };
        Some(selfcheck::Finding::new(finding.id, verdict, finding.text.clone()))
    })
}

/// What explains the figures and speaks against none of them, and what is not known.
pub(crate) fn notes(findings: &[Finding]) -> String {
    let with = |verdict| findings.iter().filter(move |finding| finding.verdict == verdict);
    let mut out = String::new();
    for noted in with(Verdict::Noted) {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "Note: {}", noted.text);
    }
    for untested in with(Verdict::Untested) {
        let _ = writeln!(out, "Note: {} {}", untested.id, untested.text);
    }
    out
}

/// The summary, with what the run was and every check of the machine, the passed ones included: who automates wants to know what was looked at.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    #[serde(flatten)]
    pub(crate) about: &'a About,
    #[serde(flatten)]
    pub(crate) summary: &'a Summary,
    pub(crate) machine: &'a [Finding],
}

#[cfg(test)]
mod tests {
    use seawall_load::clock::SECOND;
    use seawall_load::stats::Stats;

    use super::*;

    fn finding(id: &'static str, verdict: Verdict) -> Finding {
        Finding { id, verdict, measured: None, limit: None, unit: "", text: format!("text of {id}") }
    }

    #[test]
    fn only_what_held_the_generator_up_speaks_against_the_run() {
        let verdicts =
            [Verdict::Fine, Verdict::Noted, Verdict::Untested, Verdict::Degraded, Verdict::Invalid];
        let findings = verdicts.map(|verdict| finding("check", verdict));
        let against: Vec<_> = against(&findings).map(|finding| finding.verdict).collect();
        assert_eq!(against, [selfcheck::Verdict::Degraded, selfcheck::Verdict::GeneratorLimited]);
    }

    /// A run of one second whose own figures are sound.
    fn outcome() -> Outcome {
        Outcome {
            total: Stats::default(),
            scheduled: None,
            began_unix_ns: 0,
            scheduled_for: SECOND,
            elapsed: SECOND,
            written: Ok(0),
            mistake: None,
            early: None,
            threads: 1,
        }
    }

    #[test]
    fn the_first_line_says_that_the_generator_was_the_limit() {
        let first_line = |verdict| {
            let summary = Summary::new(&outcome(), against(&[finding("cpu-throttling", verdict)]).collect());
            let [text, warnings] = [super::super::summary::text, super::super::summary::warnings]
                .map(|say| say(&summary).lines().next().unwrap_or_default().to_owned());
            assert!(
                verdict < Verdict::Degraded || text == warnings,
                "with results on standard output as well"
            );
            text
        };
        assert!(first_line(Verdict::Invalid).starts_with("GENERATOR LIMITED"));
        assert!(first_line(Verdict::Degraded).starts_with("GENERATOR DEGRADED"));
        assert!(first_line(Verdict::Noted).starts_with("Requests"));
        assert!(first_line(Verdict::Untested).starts_with("Requests"));
    }

    #[test]
    fn what_was_not_tested_is_said() {
        let findings = [
            finding("cpu", Verdict::Fine),
            finding("ports", Verdict::Untested),
            finding("tcp", Verdict::Noted),
        ];
        assert_eq!(notes(&findings), "Note: text of tcp\nNote: ports text of ports\n");
    }
}
