//! The channel to pods through the API server: orders go through attachments, reports come from logs, and a watch reports the end of pods.
//!
//! Attachments and logs go from the API server to the kubelet, so a user who may read a cluster's logs can also control pods there. No pod
//! needs an address, a port or credentials. A broken connection is opened again. A log continues after its last line, by the time at which
//! the node read that line. The end of a pod is reported after its last line.

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

use crate::async_runtime_thread::ApiRuntime;
use crate::job::{ClusterSession, Job, RunningPod};
use crate::job_obstacles;
use crate::manifest::{CONTAINER, JOB_NAME_LABEL};
use crate::pod_channel::{CommandSender, PodChannel, WireEvent};

/// The most orders that wait for a connection to a pod.
const WAITING: usize = 256;

/// The first and the longest pause before a broken connection is opened again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// The wait for the last lines of a pod after its end.
const LAST_LINES: Duration = Duration::from_millis(1500);

/// The overlap when a log is opened again, because the node's clock may differ.
const OVERLAP: Nanos = 30 * SECOND;

/// Connects to the pods of a Job, in the order of their indexes.
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
    (PodChannel { names, clock, command_sender: ways.clone(), event_receiver: hear }, ways)
}

/// The connections to pods, in the order of their indexes.
pub struct PodStreams {
    orders: Mutex<Vec<mpsc::Sender<Bytes>>>,
    site: ClusterSession,
    job: Job,
    runtime: ApiRuntime,
    clock: RunClock,
    events: Mutex<Sender<WireEvent>>,
}

impl PodStreams {
    /// Connects to further pods and returns their display names.
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
            // No order has reached the pod for minutes. It is lost, which the log reader reports.
            let _ = orders.try_send(Bytes::from(format!("{line}\n")));
        }
    }

    fn pod_count(&self) -> usize {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn kill_all(&self) {
        let (site, job) = (self.site.clone(), self.job.clone());
        self.runtime.spawn(async move {
            // If the deletion fails, the pods hear nothing more and end by themselves.
            let _ = site.delete_job(&job).await;
        });
    }
}

/// The connection to one pod.
#[derive(Clone)]
struct PodLink {
    site: ClusterSession,
    name: String,
    pod: usize,
    clock: RunClock,
    events: Sender<WireEvent>,
    /// The reason of the pod's end, once it has ended.
    ended: watch::Receiver<Option<String>>,
}

/// The running pods by name, with the channels that report their end.
type Ends = HashMap<String, watch::Sender<Option<String>>>;

/// The next pause, which doubles up to a maximum.
struct Pauses(Duration);

impl Pauses {
    fn new() -> Self {
        Self(PAUSES.0)
    }

    /// Waits between half of the pause and the whole pause, so that a thousand logs do not return in step after an API server restarts.
    async fn pause(&mut self) {
        sleep(self.0.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        self.0 = (self.0 * 2).min(PAUSES.1);
    }
}

impl PodLink {
    /// Sends orders to the pod until there are no more or the pod has ended.
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

    /// Reads the pod's lines until the pod has ended and everything was passed on.
    async fn hear(mut self) {
        let (mut last, mut pauses) = (None, Pauses::new());
        loop {
            let log = LogOptions {
                container: CONTAINER,
                is_followed: true,
                has_times: true,
                ..LogOptions::default()
            };
            let log = LogOptions { since_seconds: self.since(last.as_ref()), ..log };
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
                    // The log of a pod that has just ended is available if its node is.
                    had_ended
                }
            };
            let why = self.ended.borrow().clone();
            if let Some(why) = why.filter(|_| is_read) {
                self.tell(WireEvent::Ended { pod: self.pod, why, at: self.clock.now() });
                return;
            }
            pauses.pause().await;
        }
    }

    /// Reads lines until the log ends or breaks, or for a while after the pod has ended. The result is true if any line came.
    async fn read(&mut self, mut lines: LineReader, last: &mut Option<(Stamp, Nanos)>) -> bool {
        let (mut any, mut by) = (false, None::<Instant>);
        if self.has_ended() {
            by = Some(Instant::now() + LAST_LINES);
        }
        loop {
            let next = lines.next_line(|| {});
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
            // The stream ended within a line, which is read again when the log is reopened.
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

    /// Returns the number of seconds before now from which to read the log.
    fn since(&self, last: Option<&(Stamp, Nanos)>) -> Option<u32> {
        let (_, came) = last?;
        let ago = self.clock.now().saturating_sub(*came).saturating_add(OVERLAP);
        u32::try_from(ago / SECOND).ok()
    }

    fn namespace(&self) -> &str {
        &self.site.kubectl_context().namespace
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
        // No receiver is left.
        let _ = self.events.send(event);
    }
}

/// Watches the pods through the API server until all have ended.
async fn see(site: ClusterSession, job: String, mut ends: Ends) {
    let path = format!("/api/v1/namespaces/{}/pods", site.kubectl_context().namespace);
    let labels = format!("{JOB_NAME_LABEL}={job}");
    let mut pauses = Pauses::new();
    while !ends.is_empty() {
        if let Ok(listed) = site.api().list(&path, Some(&labels)).await {
            let there: Vec<&str> = listed.items.iter().map(job_obstacles::pod_name).collect();
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
    let Some(why) = job_obstacles::end_reason(pod, is_gone) else { return };
    if let Some(end) = ends.remove(job_obstacles::pod_name(pod)) {
        end.send_replace(Some(why));
    }
}

/// The time at which a node read a line, in a sortable form: the part before the decimal point, and its fraction with nine digits.
type Stamp = (String, String);

/// Parses a log line with a timestamp: `2027-01-31T12:00:00.123456789Z TEXT` (RFC 3339 with any number of digits).
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
