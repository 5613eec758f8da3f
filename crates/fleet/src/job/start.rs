//! Judges whether the pods of a Job start, from one look after another. The functions are pure.

use std::time::Duration;

use seawall_core::Moment;
use serde_json::Value;

use super::RunningPod;
use crate::job_obstacles::{self, KubectlContext, Obstacle, ObstacleWait};

/// The time for which a temporary obstacle is accepted ([`ObstacleWait::Briefly`]). cluster-autoscaler checks every ten seconds
/// (`--scan-interval`) and then announces a new node.
const SOON: Duration = Duration::from_secs(15);

/// The observation of one look.
#[derive(Debug, Clone, Default)]
pub struct JobObservation {
    /// All pods of the Job.
    pub pods: Vec<Value>,
    /// The events of the Job and of the first pod that does not run.
    pub events: Vec<Value>,
    /// The Job if pods are missing; otherwise null.
    pub job: Value,
}

impl JobObservation {
    /// Returns the first pod whose program does not run.
    pub(super) fn first_pending(&self) -> Option<&Value> {
        self.pods.iter().find(|pod| !job_obstacles::is_pod_running(pod))
    }
}

/// The verdict of a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartVerdict {
    /// This many pods run, and the others may still start.
    Waiting(usize),
    /// All pods run.
    Running(Vec<RunningPod>),
    /// The pods cannot start.
    CannotStart(Obstacle),
}

/// The startup of a Job's pods.
#[derive(Debug)]
pub struct PodStartup {
    job: String,
    pods: usize,
    place: KubectlContext,
    within: Duration,
    began: Moment,
    /// The start of the current temporary obstacle.
    since: Option<Moment>,
}

impl PodStartup {
    /// Waits for this many pods of a Job, for at most `within` from now on.
    #[must_use]
    pub fn new(job: &str, pods: usize, place: KubectlContext, within: Duration, now: Moment) -> Self {
        Self { job: job.to_owned(), pods, place, within, began: now, since: None }
    }

    /// Returns whether the time limit has passed.
    #[must_use]
    pub fn is_timed_out(&self, now: Moment) -> bool {
        now.since(self.began) >= self.within
    }

    /// Judges one look.
    pub fn judge(&mut self, seen: &JobObservation, now: Moment) -> StartVerdict {
        let running = self.running(seen);
        let runs = running.iter().flatten().count();
        if runs == self.pods {
            return StartVerdict::Running(running.into_iter().flatten().collect());
        }
        let obstacle = self.ended(seen).or_else(|| self.obstacle(seen));
        let is_soon = obstacle.as_ref().is_some_and(|obstacle| obstacle.wait == ObstacleWait::Briefly);
        self.since = is_soon.then(|| self.since.unwrap_or(now));
        let is_borne = self.since.is_none_or(|since| now.since(since) < SOON);
        match obstacle {
            Some(obstacle) if obstacle.wait == ObstacleWait::Never || !is_borne => {
                StartVerdict::CannotStart(obstacle)
            }
            obstacle if self.is_timed_out(now) => StartVerdict::CannotStart(self.late(runs, obstacle)),
            _ => StartVerdict::Waiting(runs),
        }
    }

    /// Returns the running pods by index.
    fn running(&self, seen: &JobObservation) -> Vec<Option<RunningPod>> {
        let mut running = vec![None; self.pods];
        for pod in seen.pods.iter().filter(|pod| job_obstacles::is_pod_running(pod)) {
            if let Some(place) = job_obstacles::pod_index(pod).and_then(|index| running.get_mut(index)) {
                *place = Some(RunningPod {
                    name: job_obstacles::pod_name(pod).to_owned(),
                    node: job_obstacles::node_name(pod).to_owned(),
                });
            }
        }
        running
    }

    /// Returns the obstacle of a pod or Job that has ended before the load: Kubernetes does not replace it.
    fn ended(&self, seen: &JobObservation) -> Option<Obstacle> {
        let of_pod = seen.pods.iter().find_map(|pod| {
            let why = job_obstacles::end_reason(pod, false)?;
            let (name, node) = (job_obstacles::pod_name(pod), job_obstacles::node_name(pod));
            Some((format!("{name} on {node} ended before the load began: {why}"), format!("logs {name}")))
        });
        let of_job = || {
            let why = job_obstacles::job_failure_reason(&seen.job)?;
            Some((format!("the Job {} has ended: {why}", self.job), format!("describe job {}", self.job)))
        };
        let (what, words) = of_pod.or_else(of_job)?;
        Some(Obstacle { message: what, shown_by: self.place.kubectl(&words), wait: ObstacleWait::Never })
    }

    /// Returns the most permanent obstacle.
    fn obstacle(&self, seen: &JobObservation) -> Option<Obstacle> {
        let of_job = (seen.pods.len() < self.pods)
            .then(|| job_obstacles::job_obstacle(&seen.events, &self.job, &self.place))
            .flatten();
        let of_pods =
            seen.pods.iter().filter_map(|pod| job_obstacles::pod_obstacle(pod, &seen.events, &self.place));
        // Among equal obstacles, the first one, so that each look gives the same one.
        of_job
            .into_iter()
            .chain(of_pods)
            .reduce(|worst, next| if next.wait > worst.wait { next } else { worst })
    }

    fn late(&self, runs: usize, obstacle: Option<Obstacle>) -> Obstacle {
        let so_far = format!("after {:?}, only {runs} of {} pods are running", self.within, self.pods);
        let shown_by = self.place.kubectl(&format!(
            "get pods --selector {}={}",
            crate::manifest::JOB_NAME_LABEL,
            self.job
        ));
        match obstacle {
            Some(obstacle) => Obstacle { message: format!("{so_far}: {}", obstacle.message), ..obstacle },
            None => Obstacle { message: so_far, shown_by, wait: ObstacleWait::Never },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::manifest::INDEX_ANNOTATION;

    fn pod(index: usize, status: &Value) -> Value {
        json!({
            "metadata": {"name": format!("run-{index}-x"), "annotations": {INDEX_ANNOTATION: index.to_string()}},
            "spec": {"nodeName": format!("node-{index}"), "containers": [{"image": "r.test/seawall:1"}]},
            "status": status,
        })
    }

    fn runs(index: usize) -> Value {
        pod(index, &json!({"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}))
    }

    fn without_room(index: usize) -> Value {
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"});
        pod(index, &json!({"phase": "Pending", "conditions": [condition]}))
    }

    fn creating(index: usize) -> Value {
        pod(
            index,
            &json!({"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}),
        )
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    fn start(pods: usize) -> PodStartup {
        let place = KubectlContext { context: None, namespace: "load".to_owned() };
        PodStartup::new("run", pods, place, Duration::from_secs(120), at(0))
    }

    fn seen(pods: Vec<Value>) -> JobObservation {
        JobObservation { pods, ..JobObservation::default() }
    }

    fn never(verdict: StartVerdict) -> String {
        match verdict {
            StartVerdict::CannotStart(obstacle) => obstacle.message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pods_are_there_when_all_run_by_their_place() {
        let mut start = start(2);
        assert_eq!(start.judge(&seen(vec![]), at(0)), StartVerdict::Waiting(0));
        assert_eq!(start.judge(&seen(vec![runs(1), creating(0)]), at(1)), StartVerdict::Waiting(1));
        let StartVerdict::Running(pods) = start.judge(&seen(vec![runs(1), runs(0)]), at(2)) else {
            panic!("both run")
        };
        assert_eq!(pods[0], RunningPod { name: "run-0-x".into(), node: "node-0".into() });
        assert_eq!(pods[1].name, "run-1-x");
    }

    #[test]
    fn what_does_not_pass_is_said_at_once() {
        let state = json!({"waiting": {"reason": "ErrImagePull", "message": "no such host"}});
        let without_image = pod(1, &json!({"phase": "Pending", "containerStatuses": [{"state": state}]}));
        let told = never(start(2).judge(&seen(vec![without_room(0), without_image]), at(1)));
        assert!(told.contains("ErrImagePull: no such host"), "the worst and not the first: {told}");
    }

    #[test]
    fn a_cluster_without_room_is_given_some_seconds_and_one_that_grows_all_the_time() {
        let mut alone = start(1);
        let lacking = seen(vec![without_room(0)]);
        assert_eq!(alone.judge(&lacking, at(1)), StartVerdict::Waiting(0));
        assert_eq!(alone.judge(&lacking, at(15)), StartVerdict::Waiting(0));
        assert!(never(alone.judge(&lacking, at(16))).contains("no node has room for run-0-x: no room"));

        let event =
            json!({"involvedObject": {"kind": "Pod", "name": "run-0-x"}, "reason": "TriggeredScaleUp"});
        let growing = JobObservation { events: vec![event], ..lacking.clone() };
        let mut fed = start(1);
        assert_eq!(fed.judge(&lacking, at(1)), StartVerdict::Waiting(0));
        assert_eq!(fed.judge(&growing, at(100)), StartVerdict::Waiting(0));
        let told = never(fed.judge(&growing, at(120)));
        assert!(told.starts_with("after 120s, only 0 of 1 pods are running: no node has room"), "{told}");
    }

    #[test]
    fn what_went_away_in_between_is_borne_anew() {
        let mut start = start(1);
        let lacking = seen(vec![without_room(0)]);
        for (then, seen) in [(1, &lacking), (10, &seen(vec![creating(0)])), (20, &lacking), (30, &lacking)] {
            assert_eq!(start.judge(seen, at(then)), StartVerdict::Waiting(0), "{then}");
        }
        never(start.judge(&lacking, at(36)));
    }

    #[test]
    fn a_quota_is_told_where_pods_are_lacking_and_not_where_none_is() {
        let message = "Error creating: pods \"x\" is forbidden: exceeded quota: small";
        let event = json!({"involvedObject": {"kind": "Job", "name": "run"}, "reason": "FailedCreate", "message": message});
        let lacking = JobObservation { events: vec![event], ..seen(vec![runs(0)]) };
        assert!(never(start(2).judge(&lacking, at(1))).ends_with("exceeded quota: small"));
        let whole = JobObservation { pods: vec![runs(0), creating(1)], ..lacking };
        assert_eq!(start(2).judge(&whole, at(1)), StartVerdict::Waiting(1), "it was let in after all");
    }

    #[test]
    fn a_pod_that_ends_before_the_load_begins_ends_the_wait() {
        let state = json!({"terminated": {"exitCode": 1, "message": "seawall: cannot read x"}});
        let ended = pod(1, &json!({"phase": "Failed", "containerStatuses": [{"state": state}]}));
        let told = never(start(2).judge(&seen(vec![runs(0), ended]), at(1)));
        assert_eq!(
            told,
            "run-1-x on node-1 ended before the load began: ended with exit code 1: seawall: cannot read x"
        );
        let failed = json!({"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]}});
        let told = never(start(1).judge(&JobObservation { job: failed, ..JobObservation::default() }, at(1)));
        assert!(told.starts_with("the Job run has ended: it reached its deadline"), "{told}");
    }

    #[test]
    fn waiting_has_an_end() {
        let mut start = start(2);
        assert_eq!(start.judge(&seen(vec![runs(0), creating(1)]), at(119)), StartVerdict::Waiting(1));
        assert_eq!(
            never(start.judge(&seen(vec![runs(0), creating(1)]), at(120))),
            "after 120s, only 1 of 2 pods are running"
        );
    }
}
