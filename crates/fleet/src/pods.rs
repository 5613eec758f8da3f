//! The way to pods through the API server: orders by attachments, what they tell by their logs, how they end by a watch.
//!
//! An attachment goes from the API server to the kubelet as a log does, so whoever may read a cluster's logs can order pods there: no
//! address of a pod, no port and no credentials in it. What breaks is opened again: a log goes on behind the last line that came, by the
//! time at which the node read it. That a pod is gone is told after the last that it wrote.

use std::collections::HashMap;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use seawall_kube::{KubeError, LineReader};
use seawall_kubectl::attach::AttachSession;
use seawall_kubectl::{LogOptions, ObjectChange};
use seawall_load::clock::{Nanos, RunClock, SECOND};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout_at};

use crate::job::{ClusterSession, Job, RunningPod};
use crate::manifest::{CONTAINER, JOB_NAME_LABEL};
use crate::preflight;
use crate::runtime::ApiRuntime;
use crate::wire::{CommandSender, PodChannel, WireEvent};

/// Orders that wait for a way to a pod.
const WAITING: usize = 256;

/// Pauses before what broke is opened again: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// How long after its end the last lines of a pod are waited for.
const LAST_LINES: Duration = Duration::from_millis(1500);

/// A log that is opened again is read from so long before the last line on: the node's clock is another than ours.
const OVERLAP: Nanos = 30 * SECOND;

/// The way to these pods of a Job, in the order of their places.
#[must_use]
pub fn connect(
    runtime: &ApiRuntime,
    site: &ClusterSession,
    job: &Job,
    pods: &[RunningPod],
) -> (PodChannel, Arc<PodStreams>) {
    let clock = RunClock::start();
    let (events, hear) = channel();
    let ways = Arc::new(PodStreams {
        orders: Mutex::default(),
        site: site.clone(),
        job: job.clone(),
        runtime: runtime.clone(),
        clock,
        events: Mutex::new(events),
    });
    let names = ways.add_pods(pods);
    (PodChannel { names, clock, commands: ways.clone(), events: hear }, ways)
}

/// Ways to pods, in the order of their places.
pub struct PodStreams {
    orders: Mutex<Vec<mpsc::Sender<Bytes>>>,
    site: ClusterSession,
    job: Job,
    runtime: ApiRuntime,
    clock: RunClock,
    events: Mutex<Sender<WireEvent>>,
}

impl PodStreams {
    /// Leads to these, too; what they are called.
    pub fn add_pods(&self, pods: &[RunningPod]) -> Vec<String> {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut ends = Ends::new();
        for pod in pods {
            let (order, waiting) = mpsc::channel(WAITING);
            let (end, ended) = watch::channel(None);
            let (site, name, at) = (self.site.clone(), pod.name.clone(), orders.len());
            let way = PodLink { site, name, pod: at, clock: self.clock, events: events.clone(), ended };
            self.runtime.spawn(way.clone().carry(waiting));
            self.runtime.spawn(way.hear());
            orders.push(order);
            ends.insert(pod.name.clone(), end);
        }
        self.runtime.spawn(see(self.site.clone(), self.job.name.clone(), ends));
        pods.iter().map(|pod| format!("{} on {}", pod.name, pod.node)).collect()
    }
}

impl CommandSender for PodStreams {
    fn send(&self, pod: usize, line: &str) {
        if let Some(orders) = self.orders.lock().unwrap_or_else(PoisonError::into_inner).get(pod) {
            // Nothing has carried any there for minutes: it is gone, and said to be.
            let _ = orders.try_send(Bytes::from(format!("{line}\n")));
        }
    }

    fn pod_count(&self) -> usize {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn kill_all(&self) {
        let (site, job) = (self.site.clone(), self.job.clone());
        self.runtime.spawn(async move {
            // Its pods hear nothing from now on, and end by themselves if it stays.
            let _ = site.delete(&job).await;
        });
    }
}

/// The way to one pod.
#[derive(Clone)]
struct PodLink {
    site: ClusterSession,
    name: String,
    pod: usize,
    clock: RunClock,
    events: Sender<WireEvent>,
    /// Why it has ended, once it has.
    ended: watch::Receiver<Option<String>>,
}

/// Pods that have not ended, by name, and where it is said why they have.
type Ends = HashMap<String, watch::Sender<Option<String>>>;

/// Pauses that grow.
struct Pauses(Duration);

impl Pauses {
    fn new() -> Self {
        Self(PAUSES.0)
    }

    /// Between half of it and all: a thousand logs do not come back in step when an API server does.
    async fn pause(&mut self) {
        sleep(self.0.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        self.0 = (self.0 * 2).min(PAUSES.1);
    }
}

impl PodLink {
    /// Brings orders to the pod for as long as there are any, and it is there.
    async fn carry(mut self, mut orders: mpsc::Receiver<Bytes>) {
        let mut pauses = Pauses::new();
        while !self.has_ended() {
            match self.site.api().attach(self.namespace(), &self.name, CONTAINER).await {
                Ok(AttachSession { stdin, reader: mut hearing }) => {
                    pauses = Pauses::new();
                    loop {
                        tokio::select! {
                            order = orders.recv() => {
                                let Some(order) = order else { return };
                                if stdin.send(order).is_err() {
                                    break;
                                }
                            }
                            heard = hearing.next() => if heard.is_none() { break },
                            _ = self.ended.changed() => return,
                        }
                    }
                }
                Err(failure) => self.away(&failure),
            }
            pauses.pause().await;
        }
    }

    /// Tells what the pod writes, until it has ended and that was told.
    async fn hear(mut self) {
        let (mut last, mut pauses) = (None, Pauses::new());
        loop {
            let log = LogOptions {
                container: CONTAINER,
                is_followed: true,
                has_times: true,
                ..LogOptions::default()
            };
            let log = LogOptions { since: self.since(last.as_ref()), ..log };
            let had_ended = self.has_ended();
            let is_read = match self.site.api().log(self.namespace(), &self.name, log).await {
                Ok(lines) => {
                    if self.read(lines, &mut last).await {
                        pauses = Pauses::new();
                    }
                    true
                }
                Err(failure) => {
                    self.away(&failure);
                    // The log of a pod that has just ended is there, if its node is.
                    had_ended
                }
            };
            let why = self.ended.borrow().clone();
            if let Some(why) = why.filter(|_| is_read) {
                self.tell(WireEvent::Lost { pod: self.pod, why, at: self.clock.now() });
                return;
            }
            pauses.pause().await;
        }
    }

    /// Lines until the log ends, or breaks, or a while after the pod has ended; whether any came.
    async fn read(&mut self, mut lines: LineReader, last: &mut Option<(Stamp, Nanos)>) -> bool {
        let (mut any, mut by) = (false, None::<Instant>);
        if self.has_ended() {
            by = Some(Instant::now() + LAST_LINES);
        }
        loop {
            let next = lines.next(|| {});
            let line = match by {
                Some(by) => match timeout_at(by, next).await {
                    Ok(line) => line,
                    Err(_) => return any,
                },
                None => tokio::select! {
                    line = next => line,
                    _ = self.ended.changed() => {
                        by = Some(Instant::now() + LAST_LINES);
                        continue;
                    }
                },
            };
            let Ok(Some(line)) = line else { return any };
            // A stream that ended in the middle of a line: it is read whole when the log is opened again.
            if !line.ends_with(b"\n") {
                return any;
            }
            let Some((stamp, text)) = stamped(&line) else { continue };
            if last.as_ref().is_some_and(|(last, _)| stamp <= *last) {
                continue;
            }
            any = true;
            let at = self.clock.now();
            *last = Some((stamp, at));
            self.tell(WireEvent::Line { pod: self.pod, at, line: text });
        }
    }

    /// From how many seconds ago a log is to be read.
    fn since(&self, last: Option<&(Stamp, Nanos)>) -> Option<u32> {
        let (_, came) = last?;
        let ago = self.clock.now().saturating_sub(*came).saturating_add(OVERLAP);
        u32::try_from(ago / SECOND).ok()
    }

    fn namespace(&self) -> &str {
        &self.site.place().namespace
    }

    fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    fn away(&self, failure: &KubeError) {
        if !self.has_ended() {
            self.tell(WireEvent::Unreachable { pod: self.pod, why: failure.to_string() });
        }
    }

    fn tell(&self, event: WireEvent) {
        // Nobody listens any more.
        let _ = self.events.send(event);
    }
}

/// Sees how pods end, as the API server tells it, until all have.
async fn see(site: ClusterSession, job: String, mut ends: Ends) {
    let path = format!("/api/v1/namespaces/{}/pods", site.place().namespace);
    let labels = format!("{JOB_NAME_LABEL}={job}");
    let mut pauses = Pauses::new();
    while !ends.is_empty() {
        if let Ok(listed) = site.api().list(&path, Some(&labels)).await {
            let there: Vec<&str> = listed.items.iter().map(preflight::pod_name).collect();
            for (_, end) in ends.extract_if(|name, _| !there.contains(&&**name)) {
                end.send_replace(Some("deleted".to_owned()));
            }
            listed.items.iter().for_each(|pod| learn(&mut ends, pod, false));
            if let Ok(mut watching) = site.api().watch(&path, Some(&labels), &listed.resource_version).await {
                pauses = Pauses::new();
                while let Ok(Some(change)) = watching.next().await {
                    match change {
                        ObjectChange::Changed(pod) => learn(&mut ends, &pod, false),
                        ObjectChange::Deleted(pod) => learn(&mut ends, &pod, true),
                        ObjectChange::Bookmark(_) => {}
                    }
                    if ends.is_empty() {
                        return;
                    }
                }
            }
        }
        pauses.pause().await;
    }
}

fn learn(ends: &mut Ends, pod: &Value, is_gone: bool) {
    let Some(why) = preflight::end_reason(pod, is_gone) else { return };
    if let Some(end) = ends.remove(preflight::pod_name(pod)) {
        end.send_replace(Some(why));
    }
}

/// When a node read a line, so that later ones are greater: what stands before the point, and its fraction of nine digits.
type Stamp = (String, String);

/// A line of a log with times: `2027-01-31T12:00:00.123456789Z TEXT` (RFC 3339 with as many digits as it takes).
fn stamped(line: &[u8]) -> Option<(Stamp, String)> {
    let line = std::str::from_utf8(line).ok()?.trim_end_matches(['\n', '\r']);
    let (time, text) = line.split_once(' ')?;
    let digits = time.find('.').map_or("", |point| &time[point + 1..]);
    let digits = digits.split(|digit: char| !digit.is_ascii_digit()).next().unwrap_or("");
    let seconds = time.get(..19)?;
    Some(((seconds.to_owned(), format!("{digits:0<9}")), text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_apart_by_the_time_at_which_the_node_read_them() {
        let stamp = |time: &str| stamped(format!("{time} text of it\n").as_bytes()).unwrap();
        assert_eq!(stamp("2027-01-31T12:00:00.1Z").1, "text of it");
        let ordered = [
            "2027-01-31T12:00:00Z",
            "2027-01-31T12:00:00.1Z",
            "2027-01-31T12:00:00.12Z",
            "2027-01-31T12:00:00.120000001+00:00",
            "2027-01-31T12:00:01.000000001Z",
        ]
        .map(|time| stamp(time).0);
        assert!(ordered.is_sorted() && ordered.windows(2).all(|pair| pair[0] != pair[1]), "{ordered:?}");
        assert_eq!(stamped(b"nothing\n"), None);
    }
}
