//! Finds traffic threads that hang. If a thread hangs, the watchdog ends the process, and the kubelet restarts the agent.
//!
//! A hung thread keeps its listeners open: the clients of its shards connect and never get an answer. No other part of the process
//! can repair a thread that no longer runs its event loop. When the process ends, the kernel closes its listeners at once, so
//! clients get a clear error until the next process serves them.
//!
//! Each traffic thread has a [`ThreadHeartbeat`]. A timer of the thread's event loop increments this counter four times a second, even on
//! an idle thread. A [`Watchdog`] on a plain thread, outside every event loop, reads the heartbeats. A missing beat does not prove that a
//! thread hangs: in a container without CPU time, neither the event loop nor the watchdog runs. Therefore [`HangDetector`] counts
//! only checks that the watchdog made on time. The detector also reads the state of the silent thread from the kernel, because a
//! thread that only waits for the CPU does not hang.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use seawall_core::{Clock, Moment};

/// The interval between two beats, and between two checks of the watchdog.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(250);

/// A check counts only if the previous check was at most this long ago.
/// A longer gap between two checks shows that the process itself lacks CPU time.
const TIMELY: Duration = HEARTBEAT_INTERVAL.saturating_mul(2);

/// A blocked thread counts as hung after this number of timely checks without a beat. Eight checks take 2 s. Clients give up
/// after 0.5 s (Go's AWS SDK) to 3 s.
const CHECKS: u32 = 8;

/// A running thread counts as hung if it uses this much CPU time without a beat.
/// The longest pass of an event loop serves a few thousand connections, and each connection takes 16 µs.
const CPU_WITHOUT_BEAT: Duration = Duration::from_millis(500);

/// If the last beat of a thread is older than this, the agent is not ready.
const NOT_READY: Duration = Duration::from_secs(2);

/// If the last check or the last beat of a thread is older than this, the agent is not alive.
/// The watchdog ends the process long before this time, unless the watchdog itself hangs. A process without CPU time must not be
/// restarted, because a start needs even more CPU time. In a test, the agent had the lowest CPU weight, four other threads kept
/// the CPU busy, and pods sent many requests. The last beat of the agent was then up to 17 s old.
const NOT_ALIVE: Duration = Duration::from_secs(30);

/// The current activity of a traffic thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ThreadActivity {
    /// The thread waits for events.
    #[default]
    Wait,
    /// The thread accepts connections.
    Accept,
    /// The thread identifies the client of a new connection.
    Identify,
    /// The thread reads requests from a connection and answers them.
    Answer,
    /// The thread pauses so that the process stays below its CPU quota.
    CpuPause,
    /// The thread ends overdue connections.
    Sweep,
    /// The thread applies a new configuration.
    Update,
}

impl ThreadActivity {
    const ALL: [Self; 7] =
        [Self::Wait, Self::Accept, Self::Identify, Self::Answer, Self::CpuPause, Self::Sweep, Self::Update];

    /// Returns the activity's name in log lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Accept => "accept",
            Self::Identify => "identify",
            Self::Answer => "answer",
            Self::CpuPause => "rest",
            Self::Sweep => "sweep",
            Self::Update => "update",
        }
    }
}

/// The heartbeat of one traffic thread. The thread writes this value, and the watchdog reads it.
#[derive(Debug, Default)]
pub struct ThreadHeartbeat {
    beats: AtomicU32,
    activity: AtomicU8,
    /// The thread's id in the kernel. The value is 0 before the event loop begins and after it ends.
    kernel_thread: AtomicI32,
}

impl ThreadHeartbeat {
    /// Records that the calling thread's event loop runs from now on, until the returned guard is dropped.
    #[must_use]
    pub fn mark_event_loop_begun(self: &Arc<Self>) -> HeartbeatGuard {
        self.kernel_thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Release);
        HeartbeatGuard(self.clone())
    }

    pub(crate) fn beat(&self) {
        self.beats.store(self.beats.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Records the new activity of the thread. This function costs one memory store.
    pub(crate) fn set_activity(&self, activity: ThreadActivity) {
        self.activity.store(activity as u8, Ordering::Relaxed);
    }

    fn activity(&self) -> ThreadActivity {
        let stored = usize::from(self.activity.load(Ordering::Relaxed));
        ThreadActivity::ALL.get(stored).copied().unwrap_or_default()
    }
}

/// A guard whose drop marks the end of a thread's event loop. A panic also drops the guard.
#[derive(Debug)]
pub struct HeartbeatGuard(Arc<ThreadHeartbeat>);

impl Drop for HeartbeatGuard {
    fn drop(&mut self) {
        self.0.kernel_thread.store(0, Ordering::Release);
    }
}

/// The state of a thread, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadState {
    /// The state letter of proc_pid_stat(5). `R`: runs or waits for the CPU. `S`: sleeps. `D`: waits for the disk.
    /// `T` and `t`: is stopped.
    pub letter: char,
    /// The CPU time that the thread has used.
    pub cpu_time: Duration,
}

impl ThreadState {
    /// The length of the kernel's clock tick in `stat`: USER_HZ is 100 on all architectures that the agent supports.
    const TICK: Duration = Duration::from_millis(10);

    /// Parses the text of `/proc/self/task/NUMBER/stat` (proc_pid_stat(5)).
    pub fn parse(stat: &str) -> Option<Self> {
        // The name of a thread may contain spaces and parentheses.
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace();
        let letter = fields.next()?.chars().next()?;
        // The state letter is field 3. `utime` and `stime` are fields 14 and 15.
        let mut ticks = fields.skip(10).map(str::parse::<u32>);
        let sum = ticks.next()?.ok()?.saturating_add(ticks.next()?.ok()?);
        Some(Self { letter, cpu_time: Self::TICK.saturating_mul(sum) })
    }

    /// True if the thread waits for something other than the CPU or the disk.
    /// A thread usually waits for the disk because memory is short and the kernel must reload a page of the program. A restart
    /// would need even more pages.
    fn is_blocked(self) -> bool {
        !matches!(self.letter, 'R' | 'D')
    }
}

/// A traffic thread that hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HungThread {
    /// The number of the traffic thread. The first thread has the number 0.
    pub number: usize,
    /// The activity that the thread began last.
    pub activity: ThreadActivity,
    /// The state of the thread in the kernel.
    pub kernel_state: ThreadState,
}

impl fmt::Display for HungThread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, activity, kernel_state: state } = self;
        write!(
            out,
            "traffic-{number} hangs in {} (kernel state {}, see proc_pid_stat(5))",
            activity.name(),
            state.letter
        )
    }
}

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeartbeatCheck {
    /// No thread hangs. `oldest_beat` is the last beat of the thread that has been silent for the longest time.
    Running {
        /// The time of the check that found this last beat. Before the first beat, this is the time of the first check.
        oldest_beat: Moment,
    },
    /// A thread hangs.
    Hung(HungThread),
    /// All event loops have ended.
    AllEnded,
}

/// Decides from heartbeats whether a traffic thread hangs. The caller passes in the time and the state of each thread.
#[derive(Debug)]
pub struct HangDetector {
    threads: Vec<WatchedThread>,
    last_check: Option<Moment>,
    has_begun: bool,
}

#[derive(Debug)]
struct WatchedThread {
    heartbeat: Arc<ThreadHeartbeat>,
    beats: u32,
    /// The time of the check that found the thread's last beat.
    last_beat: Option<Moment>,
    /// The number of timely checks since the last beat.
    silent_checks: u32,
    /// The CPU time that the thread had used at the first check without a beat.
    cpu_time: Option<Duration>,
}

impl HangDetector {
    /// Returns a detector for these threads. `heartbeats` has one heartbeat per thread, in the order of the thread numbers.
    pub fn new(heartbeats: &[Arc<ThreadHeartbeat>]) -> Self {
        let watched = |heartbeat: &Arc<ThreadHeartbeat>| WatchedThread {
            heartbeat: heartbeat.clone(),
            beats: 0,
            last_beat: None,
            silent_checks: 0,
            cpu_time: None,
        };
        Self { threads: heartbeats.iter().map(watched).collect(), last_check: None, has_begun: false }
    }

    /// Checks all heartbeats at the time `now`. `state` returns the state of the thread with this kernel thread id. The detector
    /// calls `state` only for threads without a new beat.
    pub fn check(&mut self, now: Moment, state: impl Fn(i32) -> Option<ThreadState>) -> HeartbeatCheck {
        let is_timely = self.last_check.is_some_and(|last| now.since(last) <= TIMELY);
        self.last_check = Some(now);
        let (mut running, mut oldest_beat, mut hung) = (0, now, None);
        for (number, thread) in self.threads.iter_mut().enumerate() {
            let kernel_thread = thread.heartbeat.kernel_thread.load(Ordering::Acquire);
            let is_running = kernel_thread != 0;
            running += usize::from(is_running);
            let is_silent = !thread.is_beating(now);
            oldest_beat = oldest_beat.min(*thread.last_beat.get_or_insert(now));
            if !is_running || !is_silent {
                continue;
            }
            thread.silent_checks += u32::from(is_timely);
            let Some(state) = state(kernel_thread) else { continue };
            let before = *thread.cpu_time.get_or_insert(state.cpu_time);
            let is_hung = state.is_blocked() || state.cpu_time.saturating_sub(before) >= CPU_WITHOUT_BEAT;
            if thread.silent_checks >= CHECKS && is_hung {
                hung =
                    Some(HungThread { number, activity: thread.heartbeat.activity(), kernel_state: state });
            }
        }
        self.has_begun |= running > 0;
        match hung {
            Some(hung) => HeartbeatCheck::Hung(hung),
            None if running == 0 && self.has_begun => HeartbeatCheck::AllEnded,
            None => HeartbeatCheck::Running { oldest_beat },
        }
    }
}

impl WatchedThread {
    fn is_beating(&mut self, now: Moment) -> bool {
        let beats = self.heartbeat.beats.load(Ordering::Relaxed);
        let is_beating = beats != self.beats;
        if is_beating {
            (self.beats, self.last_beat, self.silent_checks, self.cpu_time) = (beats, Some(now), 0, None);
        }
        is_beating
    }
}

/// The result of the watchdog's checks, for the health endpoints.
#[derive(Debug)]
pub struct TrafficThreadHealth {
    clock: Clock,
    /// The time of the last check, in nanoseconds of the clock.
    last_check: AtomicU64,
    /// The time of the last beat of the thread that has been silent for the longest time.
    oldest_beat: AtomicU64,
}

impl TrafficThreadHealth {
    /// Returns the initial health, for traffic threads that start soon.
    pub fn new(clock: Clock) -> Self {
        let now = || AtomicU64::new(clock.now().as_nanos());
        let (last_check, oldest_beat) = (now(), now());
        Self { clock, last_check, oldest_beat }
    }

    /// Returns the reason why the agent must be restarted, if there is one.
    pub fn not_alive_reason(&self) -> Option<String> {
        self.reason_after(NOT_ALIVE)
    }

    /// Returns the reason why the agent is not ready to serve, if there is one.
    pub fn not_ready_reason(&self) -> Option<String> {
        self.reason_after(NOT_READY)
    }

    fn reason_after(&self, limit: Duration) -> Option<String> {
        let age = |of: &AtomicU64| self.clock.now().since(Moment::from_nanos(of.load(Ordering::Relaxed)));
        let (check, beat) = (age(&self.last_check), age(&self.oldest_beat));
        if check > limit {
            return Some(format!(
                "the watchdog has not checked the traffic threads for {} s",
                check.as_secs()
            ));
        }
        (beat > limit)
            .then(|| format!("a traffic thread has not run its event loop for {} s", beat.as_secs()))
    }

    fn record(&self, check: HeartbeatCheck) {
        let now = self.clock.now().as_nanos();
        self.last_check.store(now, Ordering::Relaxed);
        if let HeartbeatCheck::Running { oldest_beat } = check {
            self.oldest_beat.store(oldest_beat.as_nanos(), Ordering::Relaxed);
        }
    }

    /// True if every thread has recently sent a beat.
    fn is_beating(&self) -> bool {
        self.not_ready_reason().is_none()
    }
}

/// Checks the traffic threads until they have ended.
pub struct Watchdog {
    /// The heartbeats of the traffic threads, in the order of the thread numbers.
    pub heartbeats: Vec<Arc<ThreadHeartbeat>>,
    /// The health value that receives the result of each check.
    pub health: Arc<TrafficThreadHealth>,
    /// The function that the watchdog calls after each check in which every thread has a recent beat.
    /// The watchdog calls this function at most once per [`HEARTBEAT_INTERVAL`].
    pub on_healthy_check: Box<dyn FnMut() + Send>,
    /// The function that the watchdog calls after each check. The argument is the time since the previous check.
    pub on_check: Box<dyn FnMut(Duration) + Send>,
    /// The function that reports a hung thread. The watchdog aborts the process when this function returns.
    pub on_hang: Box<dyn FnMut(HungThread) + Send>,
    /// The function that returns the state of the thread with this kernel thread id.
    pub read_thread_state: fn(i32) -> Option<ThreadState>,
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Watchdog").field("health", &self.health).finish_non_exhaustive()
    }
}

impl Watchdog {
    /// Checks the threads every [`HEARTBEAT_INTERVAL`]. Returns when all event loops have ended. Aborts the process if a thread hangs.
    #[expect(
        clippy::disallowed_methods,
        reason = "the watchdog must not depend on an event loop, so its thread sleeps"
    )]
    pub fn run(mut self) {
        let mut detector = HangDetector::new(&self.heartbeats);
        let mut before = self.health.clock.now();
        loop {
            std::thread::sleep(HEARTBEAT_INTERVAL);
            let now = self.health.clock.now();
            let check = detector.check(now, self.read_thread_state);
            self.health.record(check);
            match check {
                HeartbeatCheck::Hung(hung) => {
                    (self.on_hang)(hung);
                    std::process::abort();
                }
                HeartbeatCheck::AllEnded => return,
                HeartbeatCheck::Running { .. } => {}
            }
            if self.health.is_beating() {
                (self.on_healthy_check)();
            }
            (self.on_check)(now.since(before));
            before = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    struct Trial {
        heartbeats: Vec<Arc<ThreadHeartbeat>>,
        guards: Vec<HeartbeatGuard>,
        detector: HangDetector,
        now: Moment,
    }

    impl Trial {
        fn new() -> Self {
            let heartbeats: Vec<Arc<ThreadHeartbeat>> = (0..2).map(|_| Arc::default()).collect();
            let guards = heartbeats.iter().map(ThreadHeartbeat::mark_event_loop_begun).collect();
            let detector = HangDetector::new(&heartbeats);
            let mut trial = Self { heartbeats, guards, detector, now: Moment::from_nanos(1) };
            assert_eq!(trial.silence(&[0, 1]), Duration::ZERO);
            trial
        }

        /// Lets these threads beat. Returns the time for which the most silent thread has not beaten.
        fn silence(&mut self, beating: &[usize]) -> Duration {
            let check = self.after(HEARTBEAT_INTERVAL, beating, state('t', 0));
            let HeartbeatCheck::Running { oldest_beat } = check else { panic!("{check:?}") };
            self.now.since(oldest_beat)
        }

        /// Lets this time pass, lets these threads beat, and checks.
        fn after(
            &mut self,
            pause: Duration,
            beating: &[usize],
            state: Option<ThreadState>,
        ) -> HeartbeatCheck {
            beating.iter().for_each(|number| self.heartbeats[*number].beat());
            self.now = Moment::from_nanos(self.now.as_nanos() + pause.as_nanos() as u64);
            self.detector.check(self.now, |_| state)
        }

        fn until_hung(&mut self, pause: Duration, state: impl Fn(u32) -> Option<ThreadState>) -> Option<u32> {
            (1..100).find(|n| matches!(self.after(pause, &[0], state(*n)), HeartbeatCheck::Hung(_)))
        }
    }

    fn state(letter: char, millis: u64) -> Option<ThreadState> {
        Some(ThreadState { letter, cpu_time: Duration::from_millis(millis) })
    }

    #[test]
    fn a_thread_that_sleeps_through_eight_timely_checks_hangs() {
        let mut trial = Trial::new();
        trial.heartbeats[1].set_activity(ThreadActivity::Identify);
        assert_eq!(trial.until_hung(HEARTBEAT_INTERVAL, |_| state('S', 0)), Some(CHECKS));
        let check = trial.after(HEARTBEAT_INTERVAL, &[0], state('S', 0));
        let HeartbeatCheck::Hung(hung) = check else { panic!("{check:?}") };
        assert_eq!((hung.number, hung.activity), (1, ThreadActivity::Identify));
        assert_eq!(hung.to_string(), "traffic-1 hangs in identify (kernel state S, see proc_pid_stat(5))");
    }

    #[test]
    fn a_thread_that_spins_hangs_once_it_has_used_half_a_second() {
        let mut trial = Trial::new();
        assert_eq!(trial.until_hung(HEARTBEAT_INTERVAL, |n| state('R', 50 * u64::from(n))), Some(11));
    }

    #[test]
    fn a_thread_without_cpu_time_does_not_hang() {
        let mut trial = Trial::new();
        assert_eq!(trial.until_hung(HEARTBEAT_INTERVAL, |_| state('R', 70)), None);
        assert_eq!(trial.until_hung(HEARTBEAT_INTERVAL, |_| state('D', 70)), None);
        assert_eq!(trial.until_hung(HEARTBEAT_INTERVAL, |_| None), None);
    }

    #[test]
    fn a_check_that_comes_late_proves_nothing() {
        let mut trial = Trial::new();
        let late = TIMELY + Duration::from_millis(1);
        assert_eq!(trial.until_hung(late, |_| state('S', 0)), None);
    }

    #[test]
    fn a_beat_ends_the_suspicion() {
        let mut trial = Trial::new();
        for _ in 0..10 {
            for n in 1..CHECKS {
                assert_eq!(trial.silence(&[0]), HEARTBEAT_INTERVAL * n);
            }
            assert_eq!(trial.silence(&[0, 1]), Duration::ZERO);
        }
    }

    /// Threads beat at different times, so a check may find new beats of only some threads.
    #[test]
    fn threads_that_beat_in_turns_are_not_silent() {
        let mut trial = Trial::new();
        for n in 0..100 {
            assert!(trial.silence(&[n % 2]) <= HEARTBEAT_INTERVAL);
        }
    }

    #[test]
    fn threads_that_have_not_begun_or_have_ended_do_not_hang() {
        let heartbeats = [Arc::<ThreadHeartbeat>::default()];
        let mut detector = HangDetector::new(&heartbeats);
        let at = |n: u64| Moment::from_nanos(n * HEARTBEAT_INTERVAL.as_nanos() as u64);
        for n in 0..20 {
            let check = detector.check(at(n), |_| state('S', 0));
            assert_eq!(check, HeartbeatCheck::Running { oldest_beat: at(0) });
        }
        let mut trial = Trial::new();
        trial.guards.clear();
        assert_eq!(trial.after(HEARTBEAT_INTERVAL, &[], state('S', 0)), HeartbeatCheck::AllEnded);
    }

    #[test]
    fn the_health_follows_the_checks() {
        let (clock, hand) = Clock::manual();
        let health = TrafficThreadHealth::new(clock.clone());
        let check = |silence: Duration| {
            hand.advance(HEARTBEAT_INTERVAL);
            let oldest_beat = clock.now().saturating_sub_duration(silence);
            health.record(HeartbeatCheck::Running { oldest_beat });
            (health.not_ready_reason(), health.not_alive_reason())
        };
        hand.advance(Duration::from_secs(100));
        assert_eq!(check(Duration::ZERO), (None, None));
        assert_eq!(check(NOT_READY), (None, None));
        let silent = "a traffic thread has not run its event loop for ";
        assert_eq!(check(NOT_READY + HEARTBEAT_INTERVAL), (Some(format!("{silent}2 s")), None));
        assert_eq!(check(NOT_ALIVE + HEARTBEAT_INTERVAL).1, Some(format!("{silent}30 s")));
        assert_eq!(check(HEARTBEAT_INTERVAL), (None, None));
        hand.advance(Duration::from_secs(31));
        let reason = health.not_alive_reason().unwrap();
        assert_eq!(reason, "the watchdog has not checked the traffic threads for 31 s");
    }

    const HANGS: &str = "watchdog::tests::child_with_a_thread_that_hangs";

    #[test]
    fn a_process_with_a_hung_thread_reports_it_and_aborts() {
        let words = [HANGS, "--exact", "--ignored", "--nocapture", "--test-threads=1"];
        let output =
            std::process::Command::new(std::env::current_exe().unwrap()).args(words).output().unwrap();
        assert_eq!(output.status.signal(), Some(nix::libc::SIGABRT), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("traffic-0 hangs in answer (kernel state S"), "{said}");
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn child_with_a_thread_that_hangs() {
        let heartbeat = Arc::<ThreadHeartbeat>::default();
        let hanging = heartbeat.clone();
        std::thread::spawn(move || {
            let _guard = hanging.mark_event_loop_begun();
            hanging.beat();
            hanging.set_activity(ThreadActivity::Answer);
            // This read never returns, because no thread writes into the pipe.
            let (mut reader, _writer) = std::io::pipe().unwrap();
            let _ = reader.read(&mut [0]);
        });
        let watchdog = Watchdog {
            heartbeats: vec![heartbeat],
            health: Arc::new(TrafficThreadHealth::new(Clock::system())),
            on_healthy_check: Box::new(|| {}),
            on_check: Box::new(|_| {}),
            on_hang: Box::new(|hung| drop(writeln!(std::io::stderr(), "{hung}"))),
            read_thread_state: |thread| {
                let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
                ThreadState::parse(&stat.ok()?)
            },
        };
        watchdog.run();
    }

    #[test]
    fn the_kernels_state_of_a_thread_is_read_past_its_name() {
        let stat = "7 (a) S (b) R 1 2 3 4 5 6 7 8 9 10 120 30 0 0";
        let parsed = ThreadState::parse(stat);
        assert_eq!(parsed, state('R', 1500));
        for odd in ["", "7 (a", "7 (a)", "7 (a) R", "7 (a) R 1 2 3 4 5 6 7 8 9 10 x y"] {
            assert_eq!(ThreadState::parse(odd), None, "{odd}");
        }
        let own = format!("/proc/self/task/{}/stat", rustix::thread::gettid().as_raw_nonzero());
        assert_eq!(ThreadState::parse(&std::fs::read_to_string(own).unwrap()).unwrap().letter, 'R');
    }
}
