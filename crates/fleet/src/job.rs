//! Manages the Kubernetes Job of a load, from the permission check to its deletion.
//!
//! The permissions are checked before anything is created. Then come the suspended Job, the Secret that the Job owns, and at last
//! the pods. So no pod starts without its files, and deleting the Job deletes everything. [`start`] waits for the pods and stops
//! at a permanent obstacle. The caller must delete the Job with [`ClusterSession::delete_job`] in any case; dropping it does not.
//! Orders and logs are handled elsewhere.

pub mod start;

use std::time::Duration;

use seawall_core::Clock;
use seawall_kube::{KubeError, KubeTimeouts, RetryBackoff};
use seawall_kubectl::{Api, ResourceAttributes, WriteMode};
use serde_json::{Value, json};

use self::start::{JobObservation, PodStartup, StartVerdict};
use crate::job_obstacles::{self, KubectlContext, Obstacle, ObstacleWait, PERMISSIONS, Permission};
use crate::manifest::{self, INPUTS_DIGEST_ANNOTATION, JOB_NAME_LABEL, LoadJobSpec, OwningJob};
use crate::pod_inputs::JobInputs;

/// The intervals between two looks at starting pods: for up to a hundred pods, and for more, whose list is megabytes long.
const LOOKS: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

/// The most events that one look reads.
const EVENTS: u32 = 250;

/// The most attempts to delete a Job.
const TRIES: u32 = 5;

/// Access to the namespace of a load's Job. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct ClusterSession {
    api: Api,
    clock: Clock,
    place: KubectlContext,
}

/// An existing Job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The name of the Job and of its Secret.
    pub name: String,
    /// The UID from the API server.
    pub uid: String,
    /// The number of pods.
    pub pod_count: usize,
}

/// A pod with a running program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningPod {
    /// The name of the pod.
    pub name: String,
    /// The node of the pod.
    pub node: String,
}

/// A reason why the load cannot run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// An obstacle that kubectl can show, too.
    #[error("{0}")]
    Obstacle(Obstacle),
    /// A failed API call.
    #[error("cannot {doing}: {failure}")]
    Failure {
        /// The purpose of the call.
        doing: String,
        /// The failure.
        failure: KubeError,
    },
}

impl ClusterSession {
    /// Creates a session without any API call.
    #[must_use]
    pub fn new(api: Api, clock: Clock, place: KubectlContext) -> Self {
        Self { api, clock, place }
    }

    /// Returns the API client.
    #[must_use]
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Returns the context and namespace for kubectl commands.
    #[must_use]
    pub fn kubectl_context(&self) -> &KubectlContext {
        &self.place
    }

    /// Checks all permissions that a load needs, or that joining a Job needs.
    ///
    /// # Errors
    /// All missing permissions.
    pub async fn preflight(&self, is_joining: bool) -> Result<(), JobError> {
        let mut refused = Vec::new();
        for right in PERMISSIONS.into_iter().filter(|right| !is_joining || right.is_needed_to_join()) {
            if !self.is_allowed(right).await? {
                refused.push(right);
            }
        }
        job_obstacles::permission_obstacle(&refused, &self.place)
            .map_or(Ok(()), |missing| Err(JobError::Obstacle(missing)))
    }

    async fn is_allowed(&self, right: Permission) -> Result<bool, JobError> {
        let Permission { verb, group, resource, subresource: part } = right;
        let namespace = &*self.place.namespace;
        let verdict = self
            .api
            .review_access(&ResourceAttributes {
                verb,
                group,
                resource,
                subresource: part,
                namespace,
                name: "",
            })
            .await;
        Ok(verdict.map_err(when("check the permissions"))?.is_allowed)
    }

    /// Creates the Job and its Secret and starts the pods. After a failure it deletes what it has created.
    ///
    /// # Errors
    /// The API server refused an object, or the cluster is too old.
    pub async fn create_job(&self, spec: &LoadJobSpec, materials: &JobInputs) -> Result<Job, JobError> {
        let object = manifest::job(spec, materials, true);
        let made = self
            .api
            .create(&self.jobs(), &object, WriteMode::Persist)
            .await
            .map_err(when("create the Job"))?;
        let job = Job {
            name: spec.name.to_string(),
            uid: text(&made, "/metadata/uid"),
            pod_count: spec.pod_count as usize,
        };
        match self.furnish(spec, materials, &made, &job).await {
            Ok(()) => Ok(job),
            Err(refused) => {
                // The first failure is the one to report.
                let _ = self.delete_job(&job).await;
                Err(refused)
            }
        }
    }

    async fn furnish(
        &self,
        spec: &LoadJobSpec,
        materials: &JobInputs,
        made: &Value,
        job: &Job,
    ) -> Result<(), JobError> {
        if let Some(old) = job_obstacles::unsupported_server(made, &self.place) {
            return Err(JobError::Obstacle(old));
        }
        let owner = OwningJob { name: job.name.clone(), uid: job.uid.clone() };
        let secret = manifest::secret(spec, materials, Some(&owner));
        let secrets = format!("/api/v1/namespaces/{}/secrets", self.place.namespace);
        let made = self.api.create(&secrets, &secret, WriteMode::Persist).await;
        made.map_err(when("create the Secret with the files of the command"))?;
        self.change(&job.name, &json!({"suspend": false})).await.map_err(when("start the Job's pods"))
    }

    async fn change(&self, job: &str, spec: &Value) -> Result<(), KubeError> {
        self.api.merge_patch(&self.path(job), &json!({ "spec": spec }), WriteMode::Persist).await.map(drop)
    }

    /// Opens an existing Job with the same inputs.
    ///
    /// # Errors
    /// The Job does not exist, has ended or has other inputs.
    pub async fn open_existing_job(&self, name: &str, materials: &JobInputs) -> Result<Job, JobError> {
        let found: Value =
            self.api.get(&self.path(name)).await.map_err(when(&format!("find the Job {name}")))?;
        let is_ours = text(&found, "/spec/template/spec/containers/0/name") == manifest::CONTAINER;
        let annotations = found.pointer("/metadata/annotations");
        let given = annotations
            .and_then(|all| all.get(INPUTS_DIGEST_ANNOTATION))
            .and_then(Value::as_str)
            .unwrap_or_default();
        let shown_by = self.place.kubectl(&format!("describe job {name}"));
        let refuse = |what: String| {
            Err(JobError::Obstacle(Obstacle {
                message: what,
                shown_by: shown_by.clone(),
                wait: ObstacleWait::Never,
            }))
        };
        if !is_ours || given.is_empty() {
            return refuse(format!("the Job {name} was not created by seawall"));
        }
        if given != materials.digest() {
            return refuse(format!(
                "the Job {name} has another command or other files: --attach-job needs the command line that created the Job"
            ));
        }
        if let Some(why) = job_obstacles::job_failure_reason(&found) {
            return refuse(format!("the Job {name} has ended: {why}"));
        }
        let pods = found.pointer("/spec/completions").and_then(Value::as_u64).unwrap_or_default();
        Ok(Job { name: name.to_owned(), uid: text(&found, "/metadata/uid"), pod_count: pods as usize })
    }

    /// Adds pods to a Job while the others keep running (Kubernetes documentation, "Jobs", elastic Indexed Jobs).
    ///
    /// # Errors
    /// The API server refused the change.
    pub async fn scale_up(&self, job: &mut Job, pods: usize) -> Result<(), JobError> {
        let spec = json!({"completions": pods, "parallelism": pods});
        self.change(&job.name, &spec).await.map_err(when("add pods to the Job"))?;
        job.pod_count = pods;
        Ok(())
    }

    /// Waits until the programs of all pods run, and returns the pods by index. It passes the number of running pods to `told`.
    ///
    /// # Errors
    /// A permanent obstacle, or the time limit.
    pub async fn wait_running(
        &self,
        job: &Job,
        within: Duration,
        mut told: impl FnMut(usize),
    ) -> Result<Vec<RunningPod>, JobError> {
        let mut start =
            PodStartup::new(&job.name, job.pod_count, self.place.clone(), within, self.clock.now());
        let mut pauses = RetryBackoff::new(&KubeTimeouts::default());
        loop {
            let seen = self.look(job).await;
            let now = self.clock.now();
            let pause = match seen {
                Ok(seen) => match start.judge(&seen, now) {
                    StartVerdict::Running(pods) => return Ok(pods),
                    StartVerdict::CannotStart(obstacle) => return Err(JobError::Obstacle(obstacle)),
                    StartVerdict::Waiting(running) => {
                        pauses.reset();
                        told(running);
                        LOOKS[usize::from(job.pod_count > 100)]
                    }
                },
                Err(JobError::Failure { failure, .. }) if passes(&failure) && !start.is_timed_out(now) => {
                    pauses.delay_after(&failure)
                }
                Err(refused) => return Err(refused),
            };
            self.clock.sleep(pause).await;
        }
    }

    /// Reads the state of a Job. It reads events only if pods are missing.
    async fn look(&self, job: &Job) -> Result<JobObservation, JobError> {
        let pods = self.pods(&job.name).await?;
        let mut seen = JobObservation { pods, ..JobObservation::default() };
        if let Some(pending) = seen.first_pending().map(|pod| job_obstacles::pod_name(pod).to_owned()) {
            seen.events = self.events("Pod", &pending).await?;
        }
        if seen.pods.len() < job.pod_count {
            seen.events.extend(self.events("Job", &job.name).await?);
            let found = self.api.get(&self.path(&job.name)).await;
            seen.job = found.map_err(when("read the Job"))?;
        }
        Ok(seen)
    }

    /// Lists all pods of a Job.
    ///
    /// # Errors
    /// The API call failed.
    pub async fn pods(&self, job: &str) -> Result<Vec<Value>, JobError> {
        let path = format!("/api/v1/namespaces/{}/pods", self.place.namespace);
        let listed = self.api.list(&path, Some(&format!("{JOB_NAME_LABEL}={job}"))).await;
        Ok(listed.map_err(when("list the pods"))?.items)
    }

    async fn events(&self, kind: &str, name: &str) -> Result<Vec<Value>, JobError> {
        let of = format!("involvedObject.kind%3D{kind}%2CinvolvedObject.name%3D{name}");
        let path =
            format!("/api/v1/namespaces/{}/events?limit={EVENTS}&fieldSelector={of}", self.place.namespace);
        let mut page: Value = self.api.get(&path).await.map_err(when("list events"))?;
        Ok(page.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default())
    }

    /// Deletes the Job with its pods and its Secret. A Job that is already gone is not an error. It retries if the API server is down.
    ///
    /// # Errors
    /// The Job still exists.
    pub async fn delete_job(&self, job: &Job) -> Result<(), JobError> {
        let mut pauses = RetryBackoff::new(&KubeTimeouts::default());
        let mut tries = 1;
        loop {
            let failure = match self.api.delete(&self.path(&job.name), WriteMode::Persist).await {
                Ok(()) | Err(KubeError::NotFound { .. }) => return Ok(()),
                Err(failure) if passes(&failure) && tries < TRIES => failure,
                Err(failure) => return Err(when("delete the Job")(failure)),
            };
            tries += 1;
            self.clock.sleep(pauses.delay_after(&failure)).await;
        }
    }

    fn jobs(&self) -> String {
        format!("/apis/batch/v1/namespaces/{}/jobs", self.place.namespace)
    }

    fn path(&self, job: &str) -> String {
        format!("{}/{job}", self.jobs())
    }
}

/// Adds the purpose of a call to its failure.
fn when(doing: &str) -> impl FnOnce(KubeError) -> JobError {
    let doing = doing.to_owned();
    |failure| JobError::Failure { doing, failure }
}

/// Returns whether another attempt may succeed.
fn passes(failure: &KubeError) -> bool {
    failure.is_unreachable() || matches!(failure, KubeError::Throttled(_) | KubeError::Server { .. })
}

fn text(value: &Value, path: &str) -> String {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
}
