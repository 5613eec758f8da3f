//! Controls many pods as one: waits for them, starts them at one instant, steers them, reads their reports, and keeps them alive.
//!
//! This module knows the lines of [`crate::protocol`], but not the purpose of a trial. Its own thread sends a line to every pod each
//! second, because a pod that hears nothing ends its load ([`HEARTBEAT_TIMEOUT_SECONDS`]) and because the caller may be busy.

use std::marker::PhantomData;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use seawall_core::terminal_safe::sanitize;
use seawall_load::clock::{Nanos, RunClock, SECOND, nanos};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::clocks::{ClockOffset, RoundTrips, start_lateness};
use crate::pod_channel::{CommandSender, PodChannel, WireEvent};
use crate::protocol::{
    BeginTrial, ControlCommand, HEARTBEAT_TIMEOUT_SECONDS, PodCommand, PodReady, PodReport, VERSION,
};

/// The number of fast pings at the start, their interval, and the interval of later pings.
const PINGS: (usize, Duration, Duration) = (12, Duration::from_millis(40), Duration::from_secs(1));
const _: () = assert!(PINGS.2.as_secs() * 5 <= HEARTBEAT_TIMEOUT_SECONDS);

/// The number of round trips before pods start.
const TRIPS: usize = 8;

/// The time between the start order and the start: a base, and an addition per pod, because each order takes milliseconds.
const LEAD: (Duration, Duration) = (Duration::from_millis(300), Duration::from_millis(1));

/// The time between an order to change the load and its effect, so that every pod gets it in time.
pub const CHANGE_NOTICE: Duration = Duration::from_millis(500);

/// The longest wait for a connection to a pod that is not ready.
const AWAY: Nanos = 15 * SECOND;

/// The largest clock offset that is plausible.
const FAR: Duration = Duration::from_secs(24 * 3600);

/// The number of characters shown of a line that is not a report.
const SHOWN: usize = 200;

/// The number of characters shown of a pod's text.
const LONGEST: usize = 1000;

/// The pods of one load. `W` is the work of a trial, `P` a part of its results and `R` its final result.
pub struct Fleet<W, P, R> {
    wire: PodChannel,
    pods: Vec<PodState>,
    trial: u64,
    /// Ends the heartbeat when it is dropped.
    _pulse: Sender<()>,
    speaks: PhantomData<fn(W) -> (P, R)>,
}

#[derive(Debug, Default)]
struct PodState {
    trips: RoundTrips,
    ready: Option<PodReady>,
    gone: Option<String>,
    /// The start and the reason of the current connection problem, before the pod is ready.
    away: Option<(Nanos, String)>,
    /// The time of the last message from the pod.
    heard: Nanos,
}

/// An update from a pod.
#[derive(Debug)]
pub struct PodUpdate<P, R> {
    /// The index of the pod.
    pub pod_index: usize,
    /// The arrival time by the channel's clock.
    pub at: Nanos,
    /// The content of the update.
    pub kind: PodUpdateKind<P, R>,
}

/// The content of an update from a pod.
#[derive(Debug)]
pub enum PodUpdateKind<P, R> {
    /// The pod is ready, with warm connections.
    Ready,
    /// The pod has started a trial.
    Started {
        /// The number of the trial.
        trial: u64,
        /// The start, in Unix nanoseconds by the local clock.
        at: i64,
        /// The error bound of the start.
        within: Duration,
    },
    /// A part of the results of a trial.
    PartialResult {
        /// The number of the trial.
        trial: u64,
        /// The part.
        part: P,
        /// The reasons to doubt the pod's measurements in this part.
        doubts: Vec<String>,
    },
    /// The next bytes of a trial's records.
    Records {
        /// The number of the trial.
        trial: u64,
        /// The bytes in base64.
        chunk: String,
    },
    /// A trial has ended.
    TrialDone {
        /// The number of the trial.
        trial: u64,
        /// The result of the trial.
        result: R,
    },
    /// The pod cannot carry out its last order, for this reason.
    OrderFailed(String),
    /// The pod has ended, for this reason.
    Ended(String),
    /// The pod cannot be reached at the moment, for this reason.
    Unreachable(String),
}

/// A trial that the pods were ordered to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartedTrial {
    /// The number of the trial.
    pub trial: u64,
    /// The start by the channel's clock.
    pub at: Nanos,
    /// The start in Unix nanoseconds.
    pub unix_ns: i64,
}

/// A reason why the pods are not ready.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FleetNotReady {
    /// A pod ended or cannot start.
    #[error("{pod}: {why}")]
    PodEnded {
        /// The name of the pod.
        pod: String,
        /// The reason.
        why: String,
    },
    /// A pod uses another version of the protocol.
    #[error(
        "{pod} runs seawall {theirs}, an incompatible version: give an --image with the version of this program"
    )]
    Version {
        /// The name of the pod.
        pod: String,
        /// The version of the pod's program.
        theirs: String,
    },
    /// Some pods were not ready in time.
    #[error("{missing} of {pods} pods were not ready after {after:.0?}; the first of these is {pod}{why}")]
    Timeout {
        /// The number of pods that are not ready.
        missing: usize,
        /// The number of all pods.
        pods: usize,
        /// The first pod that is not ready.
        pod: String,
        /// A known reason, after a colon; empty if unknown.
        why: String,
        /// The time limit.
        after: Duration,
    },
    /// A pod's clock is too far off for a common start.
    #[error("{pod}: its clock is off by {off:.0?}; synchronise the clocks of the nodes (NTP)")]
    Clock {
        /// The name of the pod.
        pod: String,
        /// The offset of the clock.
        off: Duration,
    },
    /// The user interrupted the wait.
    #[error("interrupted before the pods were ready")]
    Stopped,
}

impl<W: Serialize, P: DeserializeOwned, R: DeserializeOwned> Fleet<W, P, R> {
    /// Creates a fleet from a channel to running pods.
    #[must_use]
    pub fn new(wire: PodChannel) -> Self {
        let pods = wire.names.iter().map(|_| PodState::default()).collect();
        let pulse = pulse(&wire);
        Self { wire, pods, trial: 0, _pulse: pulse, speaks: PhantomData }
    }

    /// Adds pods with these names that the channel already reaches. The caller must [wait](Self::wait_until_ready) for them.
    pub fn add_pods(&mut self, names: Vec<String>) {
        self.pods.extend(names.iter().map(|_| PodState::default()));
        self.wire.names.extend(names);
    }

    /// Returns the number of pods.
    #[must_use]
    pub fn size(&self) -> usize {
        self.pods.len()
    }

    /// Returns the name of a pod.
    #[must_use]
    pub fn pod_name(&self, pod: usize) -> &str {
        self.wire.names.get(pod).map_or("", String::as_str)
    }

    /// Returns the reason why a pod is lost, if it is.
    #[must_use]
    pub fn loss_reason(&self, pod: usize) -> Option<&str> {
        self.pods.get(pod)?.gone.as_deref()
    }

    /// Returns the report of a pod when it became ready.
    #[must_use]
    pub fn pod_report_at_ready(&self, pod: usize) -> Option<&PodReady> {
        self.pods.get(pod)?.ready.as_ref()
    }

    /// Returns the clock offset of a pod, if known.
    #[must_use]
    pub fn clock_offset(&self, pod: usize) -> Option<ClockOffset> {
        self.pods.get(pod)?.trips.offset()
    }

    /// Returns the clock of all updates.
    #[must_use]
    pub fn clock(&self) -> RunClock {
        self.wire.clock
    }

    /// Returns the current time by that clock.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.wire.clock.now()
    }

    /// Waits until every pod is ready and its clock offset is known. Ten times a second it passes the number of ready pods to `ends`, which
    /// returns true to stop.
    ///
    /// # Errors
    /// [`FleetNotReady`] with the reason.
    pub fn wait_until_ready(
        &mut self,
        patience: Duration,
        mut ends: impl FnMut(usize) -> bool,
    ) -> Result<(), FleetNotReady> {
        let began = self.now();
        let by = began.saturating_add(nanos(patience));
        loop {
            let ready = self.pods.iter().filter(|pod| pod.ready.is_some()).count();
            if ends(ready) {
                return Err(FleetNotReady::Stopped);
            }
            let unready =
                |pod: &PodState| pod.gone.is_none() && (pod.ready.is_none() || pod.trips.count() < TRIPS);
            let Some(first) = self.pods.iter().position(unready) else { return self.clocks() };
            let now = self.now();
            let is_away = |pod: &&PodState| pod.away.as_ref().is_some_and(|(since, _)| now >= since + AWAY);
            let away = self.pods.iter().position(|pod| unready(pod) && is_away(&pod));
            if now >= by || away.is_some() {
                let first = away.unwrap_or(first);
                let why =
                    self.pods[first].away.as_ref().map_or_else(String::new, |(_, why)| format!(": {why}"));
                let (pod, pods) = (self.pod_name(first).to_owned(), self.size());
                let after = Duration::from_nanos(now.saturating_sub(began));
                return Err(FleetNotReady::Timeout {
                    missing: self.pods.iter().filter(|pod| unready(pod)).count(),
                    pods,
                    pod,
                    why,
                    after,
                });
            }
            let Some(PodUpdate { pod_index: pod, kind: what, .. }) =
                self.next_update(Duration::from_millis(100))
            else {
                continue;
            };
            let name = || self.pod_name(pod).to_owned();
            match what {
                PodUpdateKind::Ended(why) => return Err(FleetNotReady::PodEnded { pod: name(), why }),
                PodUpdateKind::Unreachable(why) => {
                    let now = self.now();
                    let known = &mut self.pods[pod].away;
                    *known = Some((known.as_ref().map_or(now, |(since, _)| *since), why));
                }
                PodUpdateKind::Ready => {
                    let Some(ready) = self.pod_report_at_ready(pod).filter(|ready| ready.protocol != VERSION)
                    else {
                        continue;
                    };
                    return Err(FleetNotReady::Version { pod: name(), theirs: ready.version.clone() });
                }
                _ => {}
            }
        }
    }

    /// Checks the clock offsets.
    ///
    /// # Errors
    /// [`FleetNotReady::Clock`] for a pod whose clock is too far off.
    fn clocks(&self) -> Result<(), FleetNotReady> {
        let off = |pod: &PodState| Some(Duration::from_nanos(pod.trips.offset()?.ahead_nanos.unsigned_abs()));
        let far =
            self.pods.iter().position(|pod| pod.gone.is_none() && off(pod).is_some_and(|off| off > FAR));
        let Some(pod) = far else { return Ok(()) };
        let off = off(&self.pods[pod]).unwrap_or_default();
        Err(FleetNotReady::Clock { pod: self.pod_name(pod).to_owned(), off })
    }

    /// Starts a trial on all pods at one instant; each pod sends its own shard.
    pub fn start_trial(&mut self, work: &W) -> StartedTrial {
        let soonest = self.earliest_start();
        self.start_trial_at(work, soonest)
    }

    /// Returns the earliest start, by the channel's clock, that gives all pods enough notice.
    #[must_use]
    pub fn earliest_start(&self) -> Nanos {
        let there = self.pods.iter().filter(|pod| pod.gone.is_none()).count();
        let lead = LEAD.0 + LEAD.1 * u32::try_from(there).unwrap_or(u32::MAX);
        self.now().saturating_add(nanos(lead))
    }

    /// Starts a trial on all pods at this instant of the channel's clock.
    pub fn start_trial_at(&mut self, work: &W, at: Nanos) -> StartedTrial {
        self.trial += 1;
        let there: Vec<usize> = (0..self.pods.len()).filter(|&pod| self.pods[pod].gone.is_none()).collect();
        let begun = StartedTrial { trial: self.trial, at, unix_ns: self.wire.clock.unix_ns(at) };
        for (index, &pod) in there.iter().enumerate() {
            let at = self.clock_offset(pod).map_or(begun.unix_ns, |offset| offset.to_pod_time(begun.unix_ns));
            let shard = (index as u64, there.len() as u64);
            self.tell(pod, &PodCommand::Begin(BeginTrial { trial: begun.trial, at, shard, work }));
        }
        begun
    }

    /// Sends all pods a command of `attack --control-socket`, with the time of the run at which it takes effect.
    pub fn send_control(&self, line: &str, from: Nanos) {
        self.tell_all(&PodCommand::Steer(ControlCommand { line: line.to_owned(), from }));
    }

    /// Orders all pods to stop sending. A second call ends the trial at once.
    pub fn stop_trial(&self) {
        self.tell_all(&PodCommand::Stop);
    }

    /// Orders all pods to end.
    pub fn shut_down(&self) {
        self.tell_all(&PodCommand::Leave);
    }

    fn tell_all(&self, order: &PodCommand<&W>) {
        (0..self.pods.len()).for_each(|pod| self.tell(pod, order));
    }

    fn tell(&self, pod: usize, order: &PodCommand<&W>) {
        tell(&*self.wire.command_sender, pod, order);
    }

    /// Waits for the next update; none at the time limit or if there will be no more. It also updates the clock offsets. A pod that is
    /// silent for [`HEARTBEAT_TIMEOUT_SECONDS`] is lost: it has ended its own load for the same reason, or hangs.
    pub fn next_update(&mut self, patience: Duration) -> Option<PodUpdate<P, R>> {
        let by = self.now().saturating_add(nanos(patience));
        loop {
            let left = Duration::from_nanos(by.saturating_sub(self.now()));
            let event = match self.wire.event_receiver.recv_timeout(left) {
                Ok(event) => event,
                // All events so far have been read.
                Err(RecvTimeoutError::Timeout) => return self.silent(self.now()),
                Err(RecvTimeoutError::Disconnected) => return self.lost(),
            };
            let came = event.received_at();
            // Events from before the deadline count, even if the caller was late.
            let heard = self.learn(event).or_else(|| self.silent(came?));
            if heard.is_some() {
                return heard;
            }
        }
    }

    fn silent(&mut self, now: Nanos) -> Option<PodUpdate<P, R>> {
        let since = now.checked_sub(HEARTBEAT_TIMEOUT_SECONDS * SECOND)?;
        let is_silent = |pod: &PodState| pod.ready.is_some() && pod.gone.is_none() && pod.heard < since;
        let pod = self.pods.iter().position(is_silent)?;
        Some(self.lose(pod, now, format!("the pod sent no message for {HEARTBEAT_TIMEOUT_SECONDS} s")))
    }

    /// Marks a pod as lost, because the channel is closed.
    fn lost(&mut self) -> Option<PodUpdate<P, R>> {
        let pod = self.pods.iter().position(|pod| pod.gone.is_none())?;
        let at = self.now();
        Some(self.lose(pod, at, "the connection to the pod is closed".into()))
    }

    fn learn(&mut self, event: WireEvent) -> Option<PodUpdate<P, R>> {
        match event {
            WireEvent::Line { pod, at, line } => {
                let what = self.read(pod, at, &line)?;
                if let PodUpdateKind::Ended(why) = what {
                    return self.pods.get(pod)?.gone.is_none().then(|| self.lose(pod, at, why));
                }
                Some(PodUpdate { pod_index: pod, at, kind: what })
            }
            WireEvent::Ended { pod, why, at } => {
                self.pods.get(pod)?.gone.is_none().then(|| self.lose(pod, at, shown(&why)))
            }
            WireEvent::Unreachable { pod, why } => Some(PodUpdate {
                pod_index: pod,
                at: self.now(),
                kind: PodUpdateKind::Unreachable(shown(&why)),
            }),
        }
    }

    fn lose(&mut self, pod: usize, at: Nanos, why: String) -> PodUpdate<P, R> {
        if let Some(pod) = self.pods.get_mut(pod) {
            pod.gone = Some(why.clone());
        }
        PodUpdate { pod_index: pod, at, kind: PodUpdateKind::Ended(why) }
    }

    fn read(&mut self, pod: usize, at: Nanos, line: &str) -> Option<PodUpdateKind<P, R>> {
        let known = self.pods.get_mut(pod)?;
        known.heard = known.heard.max(at);
        let told = match serde_json::from_str::<PodReport<P, R>>(line) {
            Ok(told) => told,
            Err(_) => {
                let line: String = line.chars().take(SHOWN).collect();
                return Some(PodUpdateKind::Ended(format!(
                    "the pod wrote a line that is not a report: {}",
                    shown(&line)
                )));
            }
        };
        Some(match told {
            PodReport::Pong(pong) => {
                let (left, back) = (self.wire.clock.unix_ns(pong.ping), self.wire.clock.unix_ns(at));
                known.trips.record(left, back, pong.at);
                return None;
            }
            PodReport::Ready(ready) => {
                known.ready = Some(ready);
                PodUpdateKind::Ready
            }
            PodReport::Begun { trial, at } => {
                let offset =
                    known.trips.offset().unwrap_or(ClockOffset { ahead_nanos: 0, error_nanos: u64::MAX });
                let (at, within) = start_lateness(at, 0, offset);
                PodUpdateKind::Started { trial, at, within }
            }
            PodReport::Part { trial, part, doubts } => PodUpdateKind::PartialResult {
                trial,
                part,
                doubts: doubts.iter().map(|doubt| shown(doubt)).collect(),
            },
            PodReport::Records { trial, chunk } => PodUpdateKind::Records { trial, chunk },
            PodReport::Done { trial, result } => PodUpdateKind::TrialDone { trial, result },
            // A failure before the pod is ready means that the pod ends.
            PodReport::Failed(why) if known.ready.is_none() => PodUpdateKind::Ended(shown(&why)),
            PodReport::Failed(why) => PodUpdateKind::OrderFailed(shown(&why)),
        })
    }

    /// Kills all pods at once.
    pub fn kill_all(&self) {
        self.wire.command_sender.kill_all();
    }
}

fn tell<W: Serialize>(hand: &dyn CommandSender, pod: usize, order: &PodCommand<W>) {
    // Every order can be written as JSON.
    if let Ok(line) = serde_json::to_string(order) {
        hand.send(pod, &line);
    }
}

/// Shortens a pod's text and removes control characters for display.
fn shown(text: &str) -> String {
    sanitize(text).chars().take(LONGEST).collect()
}

/// Sends a ping to every pod each second until the returned sender is dropped. The number of a ping is its time by the channel's clock.
fn pulse(wire: &PodChannel) -> Sender<()> {
    let (alive, ended) = channel();
    let (hand, clock) = (wire.command_sender.clone(), wire.clock);
    let beat = move || {
        for beat in 0.. {
            (0..hand.pod_count()).for_each(|pod| tell::<()>(&*hand, pod, &PodCommand::Ping(clock.now())));
            let pause = if beat < PINGS.0 { PINGS.1 } else { PINGS.2 };
            if ended.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    };
    // Without this thread, pods end by themselves after a while, with the reason.
    let _ = std::thread::Builder::new().name("fleet-pulse".into()).spawn(beat);
    alive
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use seawall_load::clock::RunClock;
    use serde_json::Value;

    use super::*;

    /// Fake pods that record their orders and answer pings with clocks that are ahead by these offsets.
    struct Played {
        clock: RunClock,
        ahead: Vec<i64>,
        events: Sender<WireEvent>,
        told: Mutex<Vec<(usize, Value)>>,
    }

    impl CommandSender for Played {
        fn send(&self, pod: usize, line: &str) {
            let order: Value = serde_json::from_str(line).unwrap();
            if let Some(ping) = order.get("ping") {
                let now = self.clock.now();
                let at = self.clock.unix_ns(now) + self.ahead[pod];
                self.say(pod, &serde_json::json!({"pong": {"ping": ping, "at": at}}));
            } else {
                self.told.lock().unwrap().push((pod, order));
            }
        }

        fn pod_count(&self) -> usize {
            self.ahead.len()
        }

        fn kill_all(&self) {}
    }

    impl Played {
        fn say(&self, pod: usize, line: &Value) {
            let _ = self.events.send(WireEvent::Line { pod, at: self.clock.now(), line: line.to_string() });
        }

        fn is_ready(&self, pod: usize, protocol: u32) {
            let ready = serde_json::json!({"protocol": protocol, "version": "0.1", "index": pod, "connections": 1, "cores": 1.0});
            self.say(pod, &serde_json::json!({"ready": ready}));
        }
    }

    fn fleet(ahead: &[i64]) -> (Fleet<u8, u8, u8>, Arc<Played>) {
        let (sender, events) = channel();
        let clock = RunClock::start();
        let played =
            Arc::new(Played { clock, ahead: ahead.to_vec(), events: sender, told: Mutex::default() });
        let names = (0..ahead.len()).map(|pod| format!("pod-{pod}")).collect();
        (
            Fleet::new(PodChannel { names, clock, command_sender: played.clone(), event_receiver: events }),
            played,
        )
    }

    const PATIENT: Duration = Duration::from_secs(60);

    #[test]
    fn pods_begin_at_one_instant_by_their_own_clocks_each_with_its_shard() {
        let hour = 3_600_000_000_000;
        let (mut fleet, played) = fleet(&[0, hour, -hour]);
        (0..3).for_each(|pod| played.is_ready(pod, VERSION));
        fleet.wait_until_ready(PATIENT, |_| false).unwrap();
        let begun = fleet.start_trial(&9);
        let told = played.told.lock().unwrap();
        for (pod, order) in &*told {
            let begin = &order["begin"];
            let off = begin["at"].as_i64().unwrap() - begun.unix_ns - played.ahead[*pod];
            assert!(off.abs() < 1_000_000_000, "{off}");
            assert_eq!((&begin["shard"], &begin["work"]), (&serde_json::json!([pod, 3]), &9.into()));
        }
        assert_eq!(told.len(), 3);
    }

    #[test]
    fn a_pod_that_is_gone_gets_no_shard_and_is_said_to_be_once() {
        let (mut fleet, played) = fleet(&[0, 0]);
        (0..2).for_each(|pod| played.is_ready(pod, VERSION));
        fleet.wait_until_ready(PATIENT, |_| false).unwrap();
        for why in ["killed", "deleted"] {
            played.events.send(WireEvent::Ended { pod: 0, why: why.into(), at: 0 }).unwrap();
        }
        played.say(1, &serde_json::json!({"done": {"trial": 1, "result": 5}}));
        let news = fleet.next_update(PATIENT).unwrap();
        assert!(
            matches!(news, PodUpdate { pod_index: 0, kind: PodUpdateKind::Ended(why), .. } if why == "killed")
        );
        let news = fleet.next_update(PATIENT).unwrap();
        assert!(matches!(
            news,
            PodUpdate { pod_index: 1, kind: PodUpdateKind::TrialDone { trial: 1, result: 5 }, .. }
        ));
        fleet.start_trial(&1);
        let told = played.told.lock().unwrap();
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].0, &told[0].1["begin"]["shard"]), (1, &serde_json::json!([0, 1])));
    }

    #[test]
    fn what_keeps_pods_from_being_ready_is_said() {
        let (mut one, played) = fleet(&[0]);
        played.is_ready(0, VERSION + 1);
        assert!(matches!(one.wait_until_ready(PATIENT, |_| false), Err(FleetNotReady::Version { .. })));
        let (mut two, played) = fleet(&[0, 0]);
        played.is_ready(0, VERSION);
        played.say(1, &serde_json::json!({"failed": "no such file"}));
        let error = two.wait_until_ready(PATIENT, |_| false).unwrap_err();
        assert_eq!(error.to_string(), "pod-1: no such file");
        let (mut three, played) = fleet(&[0, 0]);
        played.is_ready(0, VERSION);
        let late = three.wait_until_ready(Duration::ZERO, |_| false).unwrap_err();
        assert!(matches!(late, FleetNotReady::Timeout { pods: 2, .. }), "{late}");
        assert_eq!(three.wait_until_ready(PATIENT, |_| true), Err(FleetNotReady::Stopped));
    }

    #[test]
    fn what_a_pod_says_that_is_no_report_ends_it_and_is_shown_in_part() {
        let (mut fleet, played) = fleet(&[0]);
        played.say(0, &serde_json::json!({"begun": "x".repeat(5000)}));
        let news = fleet.next_update(PATIENT).unwrap();
        let PodUpdateKind::Ended(why) = news.kind else { panic!("{news:?}") };
        assert!(why.contains("not a report") && why.len() < 300, "{why}");
    }

    #[test]
    fn a_pod_that_answers_no_ping_is_gone_when_it_has_ended_its_load_for_that() {
        let (mut fleet, played) = fleet(&[0]);
        played.is_ready(0, VERSION);
        fleet.wait_until_ready(PATIENT, |_| false).unwrap();
        // The caller did not listen for an hour, in which the pod sent a line.
        played.events.send(WireEvent::Line { pod: 0, at: 3600 * SECOND, line: "{}".into() }).unwrap();
        assert!(
            matches!(fleet.next_update(Duration::ZERO), Some(PodUpdate { kind: PodUpdateKind::Ended(why), .. }) if why.contains("not a report"))
        );
        fleet.pods[0].gone = None;
        let last = fleet.pods[0].heard + HEARTBEAT_TIMEOUT_SECONDS * SECOND;
        assert!(fleet.silent(last).is_none());
        assert!(matches!(fleet.silent(last + 1), Some(PodUpdate { kind: PodUpdateKind::Ended(_), .. })));
        assert!(fleet.silent(last + 2).is_none(), "once");
    }

    #[test]
    fn words_of_a_pod_are_short_and_give_a_terminal_no_commands() {
        let (mut fleet, played) = fleet(&[0]);
        let told = format!("\u{1b}[2Jgone\u{202e}\n\u{61c}\u{2028}{}", "x".repeat(5000));
        played.say(0, &serde_json::json!({"failed": told}));
        let Some(PodUpdate { kind: PodUpdateKind::Ended(why), .. }) = fleet.next_update(PATIENT) else {
            panic!("it failed")
        };
        assert!(why.starts_with(" [2Jgone    xxx") && why.len() == LONGEST, "{why}");
    }

    #[test]
    fn pods_of_which_nothing_is_heard_any_more_are_gone() {
        let (sender, events) = channel();
        drop(sender);
        let clock = RunClock::start();
        let nobody =
            Arc::new(Played { clock, ahead: vec![0, 0], events: channel().0, told: Mutex::default() });
        let names = vec!["a".into(), "b".into()];
        let mut fleet: Fleet<u8, u8, u8> =
            Fleet::new(PodChannel { names, clock, command_sender: nobody, event_receiver: events });
        for _ in 0..2 {
            assert!(matches!(
                fleet.next_update(PATIENT),
                Some(PodUpdate { kind: PodUpdateKind::Ended(_), .. })
            ));
        }
        assert!(fleet.next_update(PATIENT).is_none());
    }
}
