//! This machine during one trial: joins [`crate::probe`], which knows no trials, with what the engine measured.
//!
//! Each trial has a [`Machine`] of its own, from its first request to its last answer, so that it is told what the machine
//! did then and nothing else. Asks nobody for the time. Called by whoever runs a trial.

use std::time::Duration;

use seawall_load::fault::Fault;
use seawall_load::interval::Interval;
use seawall_load::outcome::Outcome;

use crate::probe::threads::SHORTEST;
use crate::probe::{Files, Finding, Run, Watch};
use crate::selfcheck;

/// What the engine calls the threads that send.
const SENDERS: &str = "sender ";

/// Time between two looks at the machine: no shorter, for a look costs as much as some hundred requests, and no longer, for a
/// trial may be over soon after.
const SPACING: Duration = SHORTEST;

/// Watches the machine during a trial.
#[derive(Debug)]
pub struct Machine<F> {
    /// When to look again.
    next: Duration,
    watch: Watch<F>,
}

impl<F: Files> Machine<F> {
    /// Begins at `at`, on a clock that goes on until the end. The sending threads must be there.
    #[must_use]
    pub fn watch(files: F, at: Duration) -> Self {
        Self { next: at + SPACING, watch: Watch::start(files, SENDERS, at) }
    }

    /// Looks at the sending threads, unless they only wait for the last answers.
    pub fn sample(&mut self, interval: &Interval, at: Duration) {
        if interval.stats.sent > 0 && at >= self.next {
            self.watch.sample(at);
            self.next = at + SPACING;
        }
    }

    /// What was found, given what the trial came to.
    #[must_use]
    pub fn finish(self, outcome: &Outcome, at: Duration) -> Vec<Finding> {
        let run = Run {
            sending: Duration::from_nanos(outcome.scheduled_for),
            missed_sends: selfcheck::has_missed_sends(outcome),
            connections: outcome.total.connections,
            no_socket: outcome.total.fault(Fault::Local(std::io::ErrorKind::Other)),
            in_flight_peak: outcome.total.in_flight_peak,
            spun: Duration::from_nanos(outcome.total.spun / outcome.threads.max(1) as u64),
        };
        self.watch.finish(at, &run)
    }
}

#[cfg(test)]
mod tests {
    use seawall_load::stats::Stats;
    use seawall_load::summary::Summary;

    use super::*;
    use crate::judgement::Judgement;
    use crate::probe::files::fake::Texts;
    use crate::verdict::Verdict;

    /// A machine with one sending thread, a CPU quota, and counters that go on from trial to trial.
    #[derive(Default)]
    struct Bench {
        texts: Texts,
        now: Duration,
        on_cpu: Duration,
        throttled: u32,
    }

    /// What happens in a trial.
    struct Load {
        on_cpu: Duration,
        throttled: u32,
        /// How late the generator looked at its clock.
        late: Duration,
        sent: u64,
    }

    const CALM: Load =
        Load { on_cpu: Duration::from_millis(900), throttled: 0, late: Duration::ZERO, sent: 1000 };
    const SHORT_OF_CPU: Load = Load {
        on_cpu: Duration::from_millis(9700),
        throttled: 60,
        late: Duration::from_millis(300),
        sent: 200,
    };

    impl Bench {
        fn set(&self) {
            let Self { texts, on_cpu, throttled, now } = self;
            texts.set("/proc/self/cgroup", "0::/pod\n");
            texts.set("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
            texts.set("/sys/fs/cgroup/pod/cpu.max", "100000 100000\n");
            let periods = now.as_millis() / 100;
            let stopped = throttled * 1000;
            let stat = format!("nr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec {stopped}\n");
            texts.set("/sys/fs/cgroup/pod/cpu.stat", &stat);
            let ticks = on_cpu.as_millis() / 10;
            let stat = format!("7 (sender 0) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 3 0 692290");
            texts.set("/proc/self/task/7/stat", &stat);
            texts.set("/proc/self/task/7/schedstat", &format!("{} 0 9\n", 1 + on_cpu.as_nanos()));
        }

        /// One trial of ten seconds.
        fn trial(&mut self, load: &Load) -> Judgement {
            self.trial_of(Duration::from_secs(1), load)
        }

        /// One trial of the session, of ten intervals.
        fn trial_of(&mut self, cadence: Duration, load: &Load) -> Judgement {
            self.set();
            let mut machine = Machine::watch(&self.texts, self.now);
            let mut total = Stats { sent: load.sent, ..Stats::default() };
            (0..100).for_each(|_| total.clock_lag.record(load.late.as_nanos() as u64));
            let cadence_ns = cadence.as_nanos() as u64;
            for at in 0..10 {
                self.now += cadence;
                self.on_cpu += load.on_cpu / 10;
                self.throttled += load.throttled / 10;
                self.set();
                let stats = Stats { sent: load.sent / 10, ..Stats::default() };
                let (from, to) = (at * cadence_ns, (at + 1) * cadence_ns);
                machine.sample(&Interval { from, to, stats }, self.now);
            }
            let outcome = Outcome {
                total,
                scheduled: Some(1000),
                began_unix_ns: 0,
                scheduled_for: 10 * cadence_ns,
                elapsed: 10 * cadence_ns,
                written: Ok(0),
                mistake: None,
                early: None,
                threads: 1,
            };
            let found = machine.finish(&outcome, self.now);
            Judgement::new(&outcome, &Summary::new(&outcome), found, None)
        }
    }

    fn checks(judgement: &Judgement) -> Vec<String> {
        judgement.reasons.iter().map(|reason| reason.check.to_string()).collect()
    }

    /// One watch for a whole session would spread what happened in one trial over all of them.
    #[test]
    fn a_trial_in_which_the_generator_was_short_of_cpu_speaks_against_no_other() {
        let mut bench = Bench::default();
        let verdicts = [&SHORT_OF_CPU, &CALM, &CALM, &SHORT_OF_CPU, &CALM].map(|load| bench.trial(load));
        let [first, second, third, fourth, last] = &verdicts;
        for short in [first, fourth] {
            assert_eq!(short.verdict, Verdict::GeneratorLimited);
            assert_eq!(checks(short), ["unsent", "thread-cpu", "cpu-throttling"]);
            assert_eq!(short.holds(), None);
        }
        for calm in [second, third, last] {
            assert_eq!((calm.verdict, &calm.reasons), (Verdict::Sound, &Vec::new()));
            assert_eq!(calm.holds(), Some(true));
        }
    }

    /// Looked at too seldom, the threads of a trial of less than a second were not tested at all.
    #[test]
    fn half_a_second_is_enough_to_see_that_the_generator_was_short_of_cpu() {
        let starved =
            Load { on_cpu: Duration::from_millis(480), throttled: 0, late: Duration::ZERO, sent: 1000 };
        let judgement = Bench::default().trial_of(Duration::from_millis(50), &starved);
        assert_eq!(
            (judgement.verdict, checks(&judgement)),
            (Verdict::GeneratorLimited, vec!["thread-cpu".into()])
        );
    }
}
