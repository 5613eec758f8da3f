//! Watches this machine during one trial. It joins [`seawall_probe`], which knows no trials, with the measurements of the engine.
//!
//! Each trial has its own [`MachineMonitor`]. Counts cover the time from the first request to the last response. Shares of time
//! cover the time from the first counted request to the last sent one. The caller that runs the trial gives the time.

use std::time::Duration;

use seawall_load::clock::{Nanos, nanos};
use seawall_load::interval::IntervalStats;
use seawall_load::request_failure_reason::RequestFault;
use seawall_load::run_outcome::RunOutcome;

use crate::selfcheck;
use seawall_probe::threads::MIN_SPAN;
use seawall_probe::{GeneratorMonitor, HostFiles, MachineFinding, RunActivity};

/// The prefix that the engine gives the names of sending threads.
const SENDERS: &str = "sender ";

/// The time between two samples of the machine. A sample costs as much as some hundred requests, and a trial may be short.
const SPACING: Duration = MIN_SPAN;

/// The time before the first request at which the first sample starts. The sample takes some milliseconds on one core.
const LEAD: Duration = Duration::from_millis(10);

/// The longest wait for an interval.
const PATIENCE: Duration = Duration::from_secs(2);

/// The times of the phases of a trial.
#[derive(Debug, Clone, Copy, Default)]
pub struct TrialStartAndWarmUp {
    /// The time at which the first request is due, on the clock of the caller.
    pub start: Duration,
    /// The length of the warm-up. Requests that are due in it do not count.
    pub warm_up: Duration,
}

/// Watches the machine during a trial.
#[derive(Debug)]
pub struct MachineMonitor<F> {
    /// The time of the first sample of the trial; none after that sample.
    first: Option<Duration>,
    /// The length of the warm-up, from the start of the trial.
    warm_up: Nanos,
    /// The time of the next sample.
    next: Duration,
    /// True if requests were sent since the last sample.
    unseen: bool,
    busy_poll: SpinTotals,
    watch: GeneratorMonitor<F>,
}

/// The CPU time that each sending thread has spent on busy polling since the start of the trial: at the first sample, at the last
/// sample, and as last reported.
#[derive(Debug, Default)]
struct SpinTotals {
    first: Vec<Nanos>,
    last: Vec<Nanos>,
    told: Vec<Nanos>,
}

impl SpinTotals {
    fn restart(&mut self) {
        self.first.clone_from(&self.told);
        self.last.clone_from(&self.told);
    }

    fn look(&mut self) {
        self.last.clone_from(&self.told);
    }

    /// Returns the CPU time between the first and the last sample.
    fn between(&self) -> Vec<Duration> {
        let first = self.first.iter().copied().chain(std::iter::repeat(0));
        self.last
            .iter()
            .zip(first)
            .map(|(last, first)| Duration::from_nanos(last.saturating_sub(first)))
            .collect()
    }
}

impl<F: HostFiles> MachineMonitor<F> {
    /// Watches a trial with these times. The clock shows `at` and runs until the end. The sending threads must already exist.
    #[must_use]
    pub fn watch(files: F, at: Duration, times: TrialStartAndWarmUp) -> Self {
        let first = times.start.saturating_sub(LEAD);
        Self {
            first: (first > at).then_some(first),
            warm_up: nanos(times.warm_up),
            next: at + SPACING,
            unseen: false,
            busy_poll: SpinTotals::default(),
            watch: GeneratorMonitor::start(files, SENDERS, at),
        }
    }

    /// Returns the time to wait for the next interval before [`Self::restart_at_first_look_if_due`] must be called.
    #[must_use]
    pub fn next_interval_timeout(&self, at: Duration) -> Duration {
        self.first.map_or(PATIENCE, |first| first.saturating_sub(at))
    }

    /// Takes the first sample if it is due and no interval has come yet.
    pub fn restart_at_first_look_if_due(&mut self, at: Duration) {
        if self.first.is_some_and(|first| at >= first) {
            self.restart(at);
        }
    }

    /// Looks at the sending threads after an interval, unless they only wait for the last responses. `busy_poll` is the CPU time that
    /// each thread spent on busy polling from the start of the trial until the end of the interval.
    pub fn sample(&mut self, interval: &IntervalStats, busy_poll: &[Nanos], at: Duration) {
        self.busy_poll.told.clear();
        self.busy_poll.told.extend_from_slice(busy_poll);
        let sends = interval.stats.sent > 0;
        if self.is_warming_up(interval, at) {
            self.restart(at);
        } else if (sends && at >= self.next) || (!sends && self.unseen) {
            self.look(at);
        } else {
            self.unseen |= sends;
        }
    }

    /// Takes the last sample after the last interval, because the threads send nothing more.
    pub fn on_sending_ended(&mut self, at: Duration) {
        if self.unseen {
            self.look(at);
        }
    }

    /// Returns true if the samples up to the end of this interval do not count, so that the monitor should start again.
    fn is_warming_up(&self, interval: &IntervalStats, at: Duration) -> bool {
        let IntervalStats { from, to, .. } = *interval;
        let is_last = to.saturating_add(to.saturating_sub(from)) > self.warm_up;
        to <= self.warm_up && (is_last || at >= self.next)
    }

    fn restart(&mut self, at: Duration) {
        self.watch.restart(at);
        self.busy_poll.restart();
        (self.first, self.next, self.unseen) = (None, at + SPACING, false);
    }

    fn look(&mut self, at: Duration) {
        self.watch.sample(at);
        self.busy_poll.look();
        (self.next, self.unseen) = (at + SPACING, false);
    }

    /// Returns the findings, given the outcome of the trial.
    #[must_use]
    pub fn finish(self, outcome: &RunOutcome, at: Duration) -> Vec<MachineFinding> {
        let run = RunActivity {
            sending_duration: Duration::from_nanos(outcome.counted_duration),
            has_unsent_requests: selfcheck::has_missed_sends(outcome),
            opened_connection_count: outcome.total_stats.connections,
            socket_failures: outcome.total_stats.fault_count(RequestFault::Local(std::io::ErrorKind::Other)),
            in_flight_peak: outcome.total_stats.in_flight_peak,
            busy_poll_times: self.busy_poll.between(),
        };
        self.watch.finish(at, &run)
    }
}

#[cfg(test)]
mod tests {
    use seawall_load::stats::LoadStats;
    use seawall_load::summary::Summary;

    use super::*;
    use crate::generator_verdict::GeneratorVerdict;
    use crate::trial_judgement::Judgement;
    use seawall_probe::file_reader::fake::Texts;

    /// A machine with one sending thread, a CPU quota, and counters that go on from trial to trial.
    #[derive(Default)]
    struct Bench {
        texts: Texts,
        now: Duration,
        on_cpu: Duration,
        throttled: u32,
    }

    /// A simulated load.
    struct Load {
        on_cpu: Duration,
        throttled: u32,
        /// The lateness with which the generator looked at its clock.
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

        /// Runs one trial of ten seconds.
        fn trial(&mut self, load: &Load) -> Judgement {
            self.trial_of(Duration::from_secs(1), load)
        }

        /// Runs one trial of ten intervals.
        fn trial_of(&mut self, interval: Duration, load: &Load) -> Judgement {
            self.set();
            let mut machine = MachineMonitor::watch(&self.texts, self.now, TrialStartAndWarmUp::default());
            let mut total = LoadStats { sent: load.sent, ..LoadStats::default() };
            (0..100).for_each(|_| total.scheduler_lag.record(load.late.as_nanos() as u64));
            let interval_ns = interval.as_nanos() as u64;
            for at in 0..10 {
                self.now += interval;
                self.on_cpu += load.on_cpu / 10;
                self.throttled += load.throttled / 10;
                self.set();
                let stats = LoadStats { sent: load.sent / 10, ..LoadStats::default() };
                let (from, to) = (at * interval_ns, (at + 1) * interval_ns);
                machine.sample(&IntervalStats { from, to, stats }, &[0], self.now);
            }
            let outcome =
                RunOutcome { total_stats: total, scheduled_count: Some(1000), ..outcome_of(10 * interval) };
            let found = machine.finish(&outcome, self.now);
            Judgement::new(&outcome, &Summary::new(&outcome), found, None)
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns an interval of one second that ends at this second.
    fn second(to: u64, sent: u64) -> IntervalStats {
        let stats = LoadStats { sent, ..LoadStats::default() };
        IntervalStats { from: (to - 1) * nanos(SECOND), to: to * nanos(SECOND), stats }
    }

    fn outcome_of(schedule: Duration) -> RunOutcome {
        RunOutcome::from_stats(LoadStats::default(), nanos(schedule))
    }

    fn measured(found: &[MachineFinding], id: &str) -> f64 {
        found.iter().find(|finding| finding.id == id).and_then(|finding| finding.measured).unwrap().round()
    }

    /// Regression: with `--start-at` half a minute ahead, 98 % of a core counted as 25 %.
    #[test]
    fn neither_the_wait_for_the_start_nor_the_warm_up_dilutes_a_share() {
        for warm_up in [0, 20] {
            let mut bench = Bench::default();
            bench.set();
            let times = TrialStartAndWarmUp { start: SECOND * 30, warm_up: SECOND * warm_up };
            let mut machine = MachineMonitor::watch(&bench.texts, bench.now, times);
            bench.now += machine.next_interval_timeout(bench.now);
            assert_eq!(bench.now, times.start - LEAD, "looked once, just before the start");
            machine.restart_at_first_look_if_due(bench.now);
            bench.now = times.start;
            for to in 1..=warm_up + 10 {
                let counts = to > warm_up;
                bench.now += SECOND;
                bench.on_cpu += if counts { SECOND * 98 / 100 } else { SECOND / 10 };
                bench.set();
                machine.sample(&second(to.into(), if counts { 1000 } else { 0 }), &[0], bench.now);
            }
            machine.on_sending_ended(bench.now);
            let found = machine.finish(&outcome_of(SECOND * 10), bench.now);
            assert_eq!(measured(&found, "thread-cpu"), 98.0, "{warm_up} s of warm-up");
        }
    }

    /// Regression: five seconds at 95 % of a link counted as 14 %, because the wait of 30 s for the reader of the results
    /// counted, too.
    #[test]
    fn neither_the_last_answers_nor_the_reader_of_the_results_dilute_a_share() {
        for (interval, intervals) in [(SECOND, 5_u32), (SECOND / 20, 3)] {
            let bench = Bench::default();
            bench.set();
            let sent = |bytes: f64| {
                let link = |file: &str| format!("/sys/class/net/ens5/{file}");
                bench.texts.set(&link("statistics/rx_bytes"), "0\n");
                bench.texts.set(&link("statistics/tx_bytes"), &format!("{bytes:.0}\n"));
                bench.texts.set(&link("speed"), "1000\n");
                bench.texts.set(&link("device"), "");
            };
            sent(0.0);
            let mut machine =
                MachineMonitor::watch(&bench.texts, Duration::ZERO, TrialStartAndWarmUp::default());
            for at in 1..=intervals {
                sent((interval * at).as_secs_f64() * 0.95e9 / 8.0);
                machine.sample(&second(at.into(), 1000), &[0], interval * at);
            }
            machine.on_sending_ended(interval * intervals);
            let found = machine.finish(&outcome_of(SECOND * 5), interval * intervals + SECOND * 30);
            assert_eq!(measured(&found, "bandwidth"), 95.0, "{interval:?}");
        }
    }

    /// Regression: a thread that worked all the time during the trial was excused by its busy polling in the warm-up and during
    /// the wait for the last responses.
    #[test]
    fn what_was_spun_away_while_nobody_looked_excuses_no_work() {
        let mut bench = Bench::default();
        bench.set();
        let times = TrialStartAndWarmUp { start: Duration::ZERO, warm_up: SECOND * 20 };
        let mut machine = MachineMonitor::watch(&bench.texts, bench.now, times);
        let mut busy_poll = Duration::ZERO;
        for to in 1..=40 {
            let counts = (21..=30).contains(&to);
            bench.now += SECOND;
            bench.on_cpu += SECOND * 95 / 100;
            busy_poll += if counts { SECOND / 100 } else { SECOND * 9 / 10 };
            bench.set();
            machine.sample(&second(to, if counts { 1000 } else { 0 }), &[nanos(busy_poll)], bench.now);
        }
        machine.on_sending_ended(bench.now);
        let found = machine.finish(&outcome_of(SECOND * 10), bench.now);
        assert_eq!(measured(&found, "thread-cpu"), 94.0);
    }

    fn checks(judgement: &Judgement) -> Vec<String> {
        judgement.reasons.iter().map(|reason| reason.check.to_string()).collect()
    }

    /// A single monitor for a whole session would spread the delay of one trial over all trials.
    #[test]
    fn a_trial_in_which_the_generator_was_short_of_cpu_speaks_against_no_other() {
        let mut bench = Bench::default();
        let verdicts = [&SHORT_OF_CPU, &CALM, &CALM, &SHORT_OF_CPU, &CALM].map(|load| bench.trial(load));
        let [first, second, third, fourth, last] = &verdicts;
        for short in [first, fourth] {
            assert_eq!(short.generator_verdict, GeneratorVerdict::GeneratorLimited);
            assert_eq!(checks(short), ["not-sent", "thread-cpu", "cpu-throttling"]);
            assert_eq!(short.meets_objectives(), None);
        }
        for calm in [second, third, last] {
            assert_eq!((calm.generator_verdict, &calm.reasons), (GeneratorVerdict::Valid, &Vec::new()));
            assert_eq!(calm.meets_objectives(), Some(true));
        }
    }

    /// Regression: samples were too rare to test the threads of a trial of less than a second.
    #[test]
    fn half_a_second_is_enough_to_see_that_the_generator_was_short_of_cpu() {
        let starved =
            Load { on_cpu: Duration::from_millis(480), throttled: 0, late: Duration::ZERO, sent: 1000 };
        let judgement = Bench::default().trial_of(Duration::from_millis(50), &starved);
        assert_eq!(
            (judgement.generator_verdict, checks(&judgement)),
            (GeneratorVerdict::GeneratorLimited, vec!["thread-cpu".into()])
        );
    }
}
