//! Pods as one: got ready, begun at one instant, steered, heard, and kept alive.
//!
//! Knows the lines of [`crate::protocol`] and not what a trial is for. A thread of its own says something to every pod each second: a pod
//! that hears nothing ends its load ([`HEARTBEAT_SECONDS`]), and whoever calls may have other things to do for a while.

use std::marker::PhantomData;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use seawall_core::terminal_safe::plain;
use seawall_load::clock::{Nanos, RunClock, SECOND, nanos};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::clocks::{Offset, Trips, late};
use crate::protocol::{Begin, HEARTBEAT_SECONDS, Order, Ready, Steer, Told, VERSION};
use crate::wire::{Event, Hand, Wire};

/// How often pods are asked what their clocks show: often at first, until that is known well enough, and then to be heard.
const PINGS: (usize, Duration, Duration) = (12, Duration::from_millis(40), Duration::from_secs(1));
const _: () = assert!(PINGS.2.as_secs() * 5 <= HEARTBEAT_SECONDS);

/// Trips that a clock is known by before pods begin.
const TRIPS: usize = 8;

/// Pods are told so long before they begin, and so much longer for each of them: orders take milliseconds each, one after the other.
const LEAD: (Duration, Duration) = (Duration::from_millis(300), Duration::from_millis(1));

/// Changes take effect so much later than they are said, so that every pod knows before.
pub const NOTICE: Duration = Duration::from_millis(500);

/// For so long a way to a pod is looked for that is not ready: what refuses it goes on refusing.
const AWAY: Nanos = 15 * SECOND;

/// Clocks that are further apart are wrong.
const FAR: Duration = Duration::from_secs(24 * 3600);

/// Longest part of a line that is no report which is shown, in characters.
const SHOWN: usize = 200;

/// Longest text of a pod, or of what is said of one, that is shown, in characters.
const LONGEST: usize = 1000;

/// Pods that do what they are told, whose trials have works, parts and results.
pub struct Fleet<W, P, R> {
    wire: Wire,
    pods: Vec<Pod>,
    trial: u64,
    /// Ends the heartbeat when it is dropped.
    _pulse: Sender<()>,
    speaks: PhantomData<fn(W) -> (P, R)>,
}

#[derive(Debug, Default)]
struct Pod {
    trips: Trips,
    ready: Option<Ready>,
    gone: Option<String>,
    /// Since when nothing comes of it, and why, before it is ready.
    away: Option<(Nanos, String)>,
    /// When anything came of it last.
    heard: Nanos,
}

/// News of a pod.
#[derive(Debug)]
pub struct News<P, R> {
    /// Which.
    pub pod: usize,
    /// When it came, by the wire's clock.
    pub at: Nanos,
    /// What.
    pub what: What<P, R>,
}

/// What is new.
#[derive(Debug)]
pub enum What<P, R> {
    /// It is there, with warm connections.
    Ready,
    /// It has begun a trial, so many nanoseconds after the instant that was agreed on, which is known to so much.
    Begun {
        /// Which trial.
        trial: u64,
        /// When, Unix nanoseconds by our clock.
        at: i64,
        /// How well that is known.
        within: Duration,
    },
    /// A part of what came of a trial.
    Part {
        /// Of which.
        trial: u64,
        /// What.
        part: P,
        /// What speaks against the pod in it.
        doubts: Vec<String>,
    },
    /// The next bytes of a trial's records.
    Records {
        /// Of which.
        trial: u64,
        /// In base64.
        chunk: String,
    },
    /// A trial is over.
    Done {
        /// Which.
        trial: u64,
        /// What came of it.
        result: R,
    },
    /// It cannot do what it was told last, and says why.
    Failed(String),
    /// It will do nothing more, and says or shows why.
    Gone(String),
    /// Nothing comes of it for now.
    Away(String),
}

/// A trial that pods were told to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun {
    /// Its number.
    pub trial: u64,
    /// Its first instant, by the wire's clock.
    pub at: Nanos,
    /// The same in Unix nanoseconds.
    pub unix_ns: i64,
}

/// Pods that were not ready.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unready {
    /// A pod ended, or says that it cannot.
    #[error("{pod}: {why}")]
    Gone {
        /// What it is called.
        pod: String,
        /// Why.
        why: String,
    },
    /// A pod speaks another version of what is said between us.
    #[error(
        "{pod} runs seawall {theirs}, which takes other orders than this one does: give --image its own version"
    )]
    Version {
        /// What it is called.
        pod: String,
        /// Of its program.
        theirs: String,
    },
    /// Some said nothing in the time that there was.
    #[error("{missing} of {pods} pods were not ready after {after:.0?}; the first is {pod}{why}")]
    Late {
        /// How many.
        missing: usize,
        /// Of how many.
        pods: usize,
        /// One of them.
        pod: String,
        /// Why nothing comes of it, if that is known, behind a colon.
        why: String,
        /// After which time.
        after: Duration,
    },
    /// A clock by which nobody can begin together.
    #[error(
        "{pod}: its clock is {off:.0?} off, and pods that begin at one instant need clocks that agree (NTP)"
    )]
    Clock {
        /// What it is called.
        pod: String,
        /// How much.
        off: Duration,
    },
    /// Somebody wants to end.
    #[error("interrupted before the pods were ready")]
    Stopped,
}

impl<W: Serialize, P: DeserializeOwned, R: DeserializeOwned> Fleet<W, P, R> {
    /// Of pods that run.
    #[must_use]
    pub fn new(wire: Wire) -> Self {
        let pods = wire.names.iter().map(|_| Pod::default()).collect();
        let pulse = pulse(&wire);
        Self { wire, pods, trial: 0, _pulse: pulse, speaks: PhantomData }
    }

    /// There are more pods, called so, to which the wire leads as well: they are to be [assembled](Self::assemble).
    pub fn grow(&mut self, names: Vec<String>) {
        self.pods.extend(names.iter().map(|_| Pod::default()));
        self.wire.names.extend(names);
    }

    /// How many pods there are.
    #[must_use]
    pub fn size(&self) -> usize {
        self.pods.len()
    }

    /// What a pod is called.
    #[must_use]
    pub fn name(&self, pod: usize) -> &str {
        self.wire.names.get(pod).map_or("", String::as_str)
    }

    /// Why a pod is gone, if it is.
    #[must_use]
    pub fn gone(&self, pod: usize) -> Option<&str> {
        self.pods.get(pod)?.gone.as_deref()
    }

    /// What a pod said when it was ready.
    #[must_use]
    pub fn ready(&self, pod: usize) -> Option<&Ready> {
        self.pods.get(pod)?.ready.as_ref()
    }

    /// How far a pod's clock is off, if that is known.
    #[must_use]
    pub fn offset(&self, pod: usize) -> Option<Offset> {
        self.pods.get(pod)?.trips.offset()
    }

    /// By which news come.
    #[must_use]
    pub fn clock(&self) -> RunClock {
        self.wire.clock
    }

    /// The time by which news come.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.wire.clock.now()
    }

    /// Waits until every pod is ready and its clock known; asks `ends` ten times a second whether anybody wants to end, and tells how many are ready.
    ///
    /// # Errors
    /// [`Unready`].
    pub fn assemble(
        &mut self,
        patience: Duration,
        mut ends: impl FnMut(usize) -> bool,
    ) -> Result<(), Unready> {
        let began = self.now();
        let by = began.saturating_add(nanos(patience));
        loop {
            let ready = self.pods.iter().filter(|pod| pod.ready.is_some()).count();
            if ends(ready) {
                return Err(Unready::Stopped);
            }
            let unready =
                |pod: &Pod| pod.gone.is_none() && (pod.ready.is_none() || pod.trips.count() < TRIPS);
            let Some(first) = self.pods.iter().position(unready) else { return self.clocks() };
            let now = self.now();
            let is_away = |pod: &&Pod| pod.away.as_ref().is_some_and(|(since, _)| now >= since + AWAY);
            let away = self.pods.iter().position(|pod| unready(pod) && is_away(&pod));
            if now >= by || away.is_some() {
                let first = away.unwrap_or(first);
                let why =
                    self.pods[first].away.as_ref().map_or_else(String::new, |(_, why)| format!(": {why}"));
                let (pod, pods) = (self.name(first).to_owned(), self.size());
                let after = Duration::from_nanos(now.saturating_sub(began));
                return Err(Unready::Late {
                    missing: self.pods.iter().filter(|pod| unready(pod)).count(),
                    pods,
                    pod,
                    why,
                    after,
                });
            }
            let Some(News { pod, what, .. }) = self.next(Duration::from_millis(100)) else { continue };
            let name = || self.name(pod).to_owned();
            match what {
                What::Gone(why) => return Err(Unready::Gone { pod: name(), why }),
                What::Away(why) => {
                    let now = self.now();
                    let known = &mut self.pods[pod].away;
                    *known = Some((known.as_ref().map_or(now, |(since, _)| *since), why));
                }
                What::Ready => {
                    let Some(ready) = self.ready(pod).filter(|ready| ready.protocol != VERSION) else {
                        continue;
                    };
                    return Err(Unready::Version { pod: name(), theirs: ready.version.clone() });
                }
                _ => {}
            }
        }
    }

    /// # Errors
    /// [`Unready::Clock`].
    fn clocks(&self) -> Result<(), Unready> {
        let off = |pod: &Pod| Some(Duration::from_nanos(pod.trips.offset()?.ahead.unsigned_abs()));
        let far =
            self.pods.iter().position(|pod| pod.gone.is_none() && off(pod).is_some_and(|off| off > FAR));
        let Some(pod) = far else { return Ok(()) };
        let off = off(&self.pods[pod]).unwrap_or_default();
        Err(Unready::Clock { pod: self.name(pod).to_owned(), off })
    }

    /// Has all pods that are there begin a trial at one instant, each with its slice.
    pub fn begin(&mut self, work: &W) -> Begun {
        let soonest = self.soonest();
        self.begin_at(work, soonest)
    }

    /// The soonest instant of which all pods hear before, by the wire's clock.
    #[must_use]
    pub fn soonest(&self) -> Nanos {
        let there = self.pods.iter().filter(|pod| pod.gone.is_none()).count();
        let lead = LEAD.0 + LEAD.1 * u32::try_from(there).unwrap_or(u32::MAX);
        self.now().saturating_add(nanos(lead))
    }

    /// The same at an instant of the wire's clock.
    pub fn begin_at(&mut self, work: &W, at: Nanos) -> Begun {
        self.trial += 1;
        let there: Vec<usize> = (0..self.pods.len()).filter(|&pod| self.pods[pod].gone.is_none()).collect();
        let begun = Begun { trial: self.trial, at, unix_ns: self.wire.clock.unix_ns(at) };
        for (index, &pod) in there.iter().enumerate() {
            let at = self.offset(pod).map_or(begun.unix_ns, |offset| offset.theirs(begun.unix_ns));
            let slice = (index as u64, there.len() as u64);
            self.tell(pod, &Order::Begin(Begin { trial: begun.trial, at, slice, work }));
        }
        begun
    }

    /// Has all pods take a command of `attack --control` from that time of the run on.
    pub fn steer(&self, line: &str, from: Nanos) {
        self.tell_all(&Order::Steer(Steer { line: line.to_owned(), from }));
    }

    /// Has all pods send nothing more; said again, end the trial at once.
    pub fn stop(&self) {
        self.tell_all(&Order::Stop);
    }

    /// Has all pods end.
    pub fn leave(&self) {
        self.tell_all(&Order::Leave);
    }

    fn tell_all(&self, order: &Order<&W>) {
        (0..self.pods.len()).for_each(|pod| self.tell(pod, order));
    }

    fn tell(&self, pod: usize, order: &Order<&W>) {
        tell(&*self.wire.hand, pod, order);
    }

    /// The next news; none within the time that is given, or ever again. Clocks are compared meanwhile. A pod of which nothing comes for as
    /// long as it waits itself is gone: it has ended its load for the same reason, or does nothing at all.
    pub fn next(&mut self, patience: Duration) -> Option<News<P, R>> {
        let by = self.now().saturating_add(nanos(patience));
        loop {
            let left = Duration::from_nanos(by.saturating_sub(self.now()));
            let event = match self.wire.events.recv_timeout(left) {
                Ok(event) => event,
                // All that came was heard.
                Err(RecvTimeoutError::Timeout) => return self.silent(self.now()),
                Err(RecvTimeoutError::Disconnected) => return self.lost(),
            };
            let came = event.came();
            // What came before is known, however long nobody listened.
            let heard = self.learn(event).or_else(|| self.silent(came?));
            if heard.is_some() {
                return heard;
            }
        }
    }

    fn silent(&mut self, now: Nanos) -> Option<News<P, R>> {
        let since = now.checked_sub(HEARTBEAT_SECONDS * SECOND)?;
        let is_silent = |pod: &Pod| pod.ready.is_some() && pod.gone.is_none() && pod.heard < since;
        let pod = self.pods.iter().position(is_silent)?;
        Some(self.lose(pod, now, format!("nothing was heard of it for {HEARTBEAT_SECONDS} s")))
    }

    /// Nothing carries news any more: whoever was there is gone.
    fn lost(&mut self) -> Option<News<P, R>> {
        let pod = self.pods.iter().position(|pod| pod.gone.is_none())?;
        let at = self.now();
        Some(self.lose(pod, at, "nothing can be heard of it any more".into()))
    }

    fn learn(&mut self, event: Event) -> Option<News<P, R>> {
        match event {
            Event::Line { pod, at, line } => {
                let what = self.read(pod, at, &line)?;
                if let What::Gone(why) = what {
                    return self.pods.get(pod)?.gone.is_none().then(|| self.lose(pod, at, why));
                }
                Some(News { pod, at, what })
            }
            Event::Gone { pod, why, at } => {
                self.pods.get(pod)?.gone.is_none().then(|| self.lose(pod, at, shown(&why)))
            }
            Event::Away { pod, why } => Some(News { pod, at: self.now(), what: What::Away(shown(&why)) }),
        }
    }

    fn lose(&mut self, pod: usize, at: Nanos, why: String) -> News<P, R> {
        if let Some(pod) = self.pods.get_mut(pod) {
            pod.gone = Some(why.clone());
        }
        News { pod, at, what: What::Gone(why) }
    }

    fn read(&mut self, pod: usize, at: Nanos, line: &str) -> Option<What<P, R>> {
        let known = self.pods.get_mut(pod)?;
        known.heard = known.heard.max(at);
        let told = match serde_json::from_str::<Told<P, R>>(line) {
            Ok(told) => told,
            Err(_) => {
                let line: String = line.chars().take(SHOWN).collect();
                return Some(What::Gone(format!("it says what is no report: {}", shown(&line))));
            }
        };
        Some(match told {
            Told::Pong(pong) => {
                let (left, back) = (self.wire.clock.unix_ns(pong.ping), self.wire.clock.unix_ns(at));
                known.trips.learn(left, back, pong.at);
                return None;
            }
            Told::Ready(ready) => {
                known.ready = Some(ready);
                What::Ready
            }
            Told::Begun { trial, at } => {
                let offset = known.trips.offset().unwrap_or(Offset { ahead: 0, within: u64::MAX });
                let (at, within) = late(at, 0, offset);
                What::Begun { trial, at, within }
            }
            Told::Part { trial, part, doubts } => {
                What::Part { trial, part, doubts: doubts.iter().map(|doubt| shown(doubt)).collect() }
            }
            Told::Records { trial, chunk } => What::Records { trial, chunk },
            Told::Done { trial, result } => What::Done { trial, result },
            // Before that it ends.
            Told::Failed(why) if known.ready.is_none() => What::Gone(shown(&why)),
            Told::Failed(why) => What::Failed(shown(&why)),
        })
    }

    /// Ends all pods at once, whatever they do.
    pub fn end(&self) {
        self.wire.hand.end();
    }
}

fn tell<W: Serialize>(hand: &dyn Hand, pod: usize, order: &Order<W>) {
    // Orders are numbers and texts: all of them have a form in JSON.
    if let Ok(line) = serde_json::to_string(order) {
        hand.tell(pod, &line);
    }
}

/// Words of somebody else, for people: so many of them.
fn shown(text: &str) -> String {
    plain(text).chars().take(LONGEST).collect()
}

/// Says something to every pod each second, until what it gives is dropped. A ping's number is when it left, by the wire's clock.
fn pulse(wire: &Wire) -> Sender<()> {
    let (alive, ended) = channel();
    let (hand, clock) = (wire.hand.clone(), wire.clock);
    let beat = move || {
        for beat in 0.. {
            (0..hand.size()).for_each(|pod| tell::<()>(&*hand, pod, &Order::Ping(clock.now())));
            let pause = if beat < PINGS.0 { PINGS.1 } else { PINGS.2 };
            if ended.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    };
    // Without the thread pods end by themselves after a while, and say why.
    let _ = std::thread::Builder::new().name("fleet-pulse".into()).spawn(beat);
    alive
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use seawall_load::clock::RunClock;
    use serde_json::Value;

    use super::*;

    /// Pods that keep what they are told, and answer pings by clocks that are so far ahead.
    struct Played {
        clock: RunClock,
        ahead: Vec<i64>,
        events: Sender<Event>,
        told: Mutex<Vec<(usize, Value)>>,
    }

    impl Hand for Played {
        fn tell(&self, pod: usize, line: &str) {
            let order: Value = serde_json::from_str(line).unwrap();
            if let Some(ping) = order.get("ping") {
                let now = self.clock.now();
                let at = self.clock.unix_ns(now) + self.ahead[pod];
                self.say(pod, &serde_json::json!({"pong": {"ping": ping, "at": at}}));
            } else {
                self.told.lock().unwrap().push((pod, order));
            }
        }

        fn size(&self) -> usize {
            self.ahead.len()
        }

        fn end(&self) {}
    }

    impl Played {
        fn say(&self, pod: usize, line: &Value) {
            let _ = self.events.send(Event::Line { pod, at: self.clock.now(), line: line.to_string() });
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
        (Fleet::new(Wire { names, clock, hand: played.clone(), events }), played)
    }

    const PATIENT: Duration = Duration::from_secs(60);

    #[test]
    fn pods_begin_at_one_instant_by_their_own_clocks_each_with_its_slice() {
        let hour = 3_600_000_000_000;
        let (mut fleet, played) = fleet(&[0, hour, -hour]);
        (0..3).for_each(|pod| played.is_ready(pod, VERSION));
        fleet.assemble(PATIENT, |_| false).unwrap();
        let begun = fleet.begin(&9);
        let told = played.told.lock().unwrap();
        for (pod, order) in &*told {
            let begin = &order["begin"];
            let off = begin["at"].as_i64().unwrap() - begun.unix_ns - played.ahead[*pod];
            assert!(off.abs() < 1_000_000_000, "{off}");
            assert_eq!((&begin["slice"], &begin["work"]), (&serde_json::json!([pod, 3]), &9.into()));
        }
        assert_eq!(told.len(), 3);
    }

    #[test]
    fn a_pod_that_is_gone_gets_no_slice_and_is_said_to_be_once() {
        let (mut fleet, played) = fleet(&[0, 0]);
        (0..2).for_each(|pod| played.is_ready(pod, VERSION));
        fleet.assemble(PATIENT, |_| false).unwrap();
        for why in ["killed", "deleted"] {
            played.events.send(Event::Gone { pod: 0, why: why.into(), at: 0 }).unwrap();
        }
        played.say(1, &serde_json::json!({"done": {"trial": 1, "result": 5}}));
        let news = fleet.next(PATIENT).unwrap();
        assert!(matches!(news, News { pod: 0, what: What::Gone(why), .. } if why == "killed"));
        let news = fleet.next(PATIENT).unwrap();
        assert!(matches!(news, News { pod: 1, what: What::Done { trial: 1, result: 5 }, .. }));
        fleet.begin(&1);
        let told = played.told.lock().unwrap();
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].0, &told[0].1["begin"]["slice"]), (1, &serde_json::json!([0, 1])));
    }

    #[test]
    fn what_keeps_pods_from_being_ready_is_said() {
        let (mut one, played) = fleet(&[0]);
        played.is_ready(0, VERSION + 1);
        assert!(matches!(one.assemble(PATIENT, |_| false), Err(Unready::Version { .. })));
        let (mut two, played) = fleet(&[0, 0]);
        played.is_ready(0, VERSION);
        played.say(1, &serde_json::json!({"failed": "no such file"}));
        let error = two.assemble(PATIENT, |_| false).unwrap_err();
        assert_eq!(error.to_string(), "pod-1: no such file");
        let (mut three, played) = fleet(&[0, 0]);
        played.is_ready(0, VERSION);
        let late = three.assemble(Duration::ZERO, |_| false).unwrap_err();
        assert!(matches!(late, Unready::Late { pods: 2, .. }), "{late}");
        assert_eq!(three.assemble(PATIENT, |_| true), Err(Unready::Stopped));
    }

    #[test]
    fn what_a_pod_says_that_is_no_report_ends_it_and_is_shown_in_part() {
        let (mut fleet, played) = fleet(&[0]);
        played.say(0, &serde_json::json!({"begun": "x".repeat(5000)}));
        let news = fleet.next(PATIENT).unwrap();
        let What::Gone(why) = news.what else { panic!("{news:?}") };
        assert!(why.contains("no report") && why.len() < 300, "{why}");
    }

    #[test]
    fn a_pod_that_answers_no_ping_is_gone_when_it_has_ended_its_load_for_that() {
        let (mut fleet, played) = fleet(&[0]);
        played.is_ready(0, VERSION);
        fleet.assemble(PATIENT, |_| false).unwrap();
        // Nobody has listened for an hour, in which it was heard.
        played.events.send(Event::Line { pod: 0, at: 3600 * SECOND, line: "{}".into() }).unwrap();
        assert!(
            matches!(fleet.next(Duration::ZERO), Some(News { what: What::Gone(why), .. }) if why.contains("no report"))
        );
        fleet.pods[0].gone = None;
        let last = fleet.pods[0].heard + HEARTBEAT_SECONDS * SECOND;
        assert!(fleet.silent(last).is_none());
        assert!(matches!(fleet.silent(last + 1), Some(News { what: What::Gone(_), .. })));
        assert!(fleet.silent(last + 2).is_none(), "once");
    }

    #[test]
    fn words_of_a_pod_are_short_and_give_a_terminal_no_commands() {
        let (mut fleet, played) = fleet(&[0]);
        let told = format!("\u{1b}[2Jgone\u{202e}\n\u{61c}\u{2028}{}", "x".repeat(5000));
        played.say(0, &serde_json::json!({"failed": told}));
        let Some(News { what: What::Gone(why), .. }) = fleet.next(PATIENT) else { panic!("it failed") };
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
        let mut fleet: Fleet<u8, u8, u8> = Fleet::new(Wire { names, clock, hand: nobody, events });
        for _ in 0..2 {
            assert!(matches!(fleet.next(PATIENT), Some(News { what: What::Gone(_), .. })));
        }
        assert!(fleet.next(PATIENT).is_none());
    }
}
