//! A load's Job, from the first question to its deletion.
//!
//! Rights are asked for before anything is made. Then the Job, suspended; the Secret, which it owns; and only then pods, so that none begins
//! without its files and nothing stays that the Job's deletion does not take along. [`start`] waits for them, and ends as soon as something
//! stands in the way that does not pass. Who asks for a Job takes it away again ([`Site::delete`]), whatever has happened: dropping it does
//! not. Orders and logs are not this module's.

pub mod start;

use std::time::Duration;

use seawall_core::Clock;
use seawall_kube::request::{self, Built, Form};
use seawall_kube::{Client, Failure, Patience, Pauses};
use serde_json::{Value, json};

use self::start::{Seen, Start, Verdict};
use crate::manifest::{self, JOB_NAME, MATERIALS, Owner, Spec};
use crate::materials::Materials;
use crate::preflight::{self, Obstacle, Passes, Place, RIGHTS, Right};

/// For the answer to one question; admission webhooks are among those who answer, and have 10 s by themselves.
const ANSWER: Duration = Duration::from_secs(15);

/// For a page of a list.
const PAGE: Duration = Duration::from_secs(30);

/// Objects of a page: a pod takes some 10 KiB.
const PAGE_OF: u32 = 250;

/// Between two looks at pods that begin; of more than a hundred pods longer, so that nobody lists megabytes each second.
const LOOKS: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

/// Most tries to take a Job away.
const TRIES: u32 = 5;

/// A namespace in which a load's Job is, and who asks for it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Site {
    client: Client,
    clock: Clock,
    place: Place,
}

/// A Job that stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its name, which the Secret has, too.
    pub name: String,
    /// As the API server gave it.
    pub uid: String,
    /// How many pods it has.
    pub pods: usize,
}

/// A pod whose program runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub node: String,
}

/// Why there is no load.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Something that kubectl shows, too.
    #[error("{0}")]
    Obstacle(Obstacle),
    /// A call that brought nothing.
    #[error("cannot {doing}: {failure}")]
    Failure {
        /// What was to be done.
        doing: String,
        /// Why it was not.
        failure: Failure,
    },
}

impl Site {
    /// Asks nobody yet.
    #[must_use]
    pub fn new(client: Client, clock: Clock, place: Place) -> Self {
        Self { client, clock, place }
    }

    /// Whether all is allowed that a load takes, or what it takes to join a Job that stands.
    ///
    /// # Errors
    /// The rights that are missing, all of them.
    pub async fn preflight(&self, is_joining: bool) -> Result<(), Refused> {
        let mut refused = Vec::new();
        for right in RIGHTS.into_iter().filter(|right| !is_joining || right.is_of_joining()) {
            if !self.is_allowed(right).await? {
                refused.push(right);
            }
        }
        preflight::missing(&refused, &self.place).map_or(Ok(()), |missing| Err(Refused::Obstacle(missing)))
    }

    async fn is_allowed(&self, right: Right) -> Result<bool, Refused> {
        const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let review = request::create(REVIEWS, &right.review(&self.place.namespace));
        Ok(preflight::is_allowed(&self.call("ask what is allowed", review).await?))
    }

    /// Makes the Job and its Secret, and lets pods begin. What was made when something fails is taken away.
    ///
    /// # Errors
    /// Somebody refuses one of them, or the cluster is too old.
    pub async fn make(&self, spec: &Spec, materials: &Materials) -> Result<Job, Refused> {
        let object = manifest::job(spec, materials, true);
        let made = self.call("make the Job", request::create(&self.jobs(), &object)).await?;
        let job =
            Job { name: spec.name.to_string(), uid: text(&made, "/metadata/uid"), pods: spec.pods as usize };
        match self.furnish(spec, materials, &made, &job).await {
            Ok(()) => Ok(job),
            Err(refused) => {
                // The first reason is the one that counts.
                let _ = self.delete(&job).await;
                Err(refused)
            }
        }
    }

    async fn furnish(
        &self,
        spec: &Spec,
        materials: &Materials,
        made: &Value,
        job: &Job,
    ) -> Result<(), Refused> {
        if let Some(old) = preflight::too_old(made, &self.place) {
            return Err(Refused::Obstacle(old));
        }
        let owner = Owner { name: job.name.clone(), uid: job.uid.clone() };
        let secret = manifest::secret(spec, materials, Some(&owner));
        let secrets = format!("/api/v1/namespaces/{}/secrets", self.place.namespace);
        self.call("make the Secret with what the command names", request::create(&secrets, &secret)).await?;
        let change = json!([{"op": "replace", "path": "/spec/suspend", "value": false}]);
        self.call("let the Job's pods begin", request::patch(&self.path(&job.name), &change)).await.map(drop)
    }

    /// A Job that stands, made of these materials.
    ///
    /// # Errors
    /// There is none, it is over, or its pods were given something else.
    pub async fn join(&self, name: &str, materials: &Materials) -> Result<Job, Refused> {
        let found =
            self.call(&format!("find the Job {name}"), request::get(&self.path(name), Form::Whole)).await?;
        let is_ours = text(&found, "/spec/template/spec/containers/0/name") == manifest::CONTAINER;
        let annotations = found.pointer("/metadata/annotations");
        let given =
            annotations.and_then(|all| all.get(MATERIALS)).and_then(Value::as_str).unwrap_or_default();
        let shown_by = self.place.kubectl(&format!("describe job {name}"));
        let refuse = |what: String| {
            Err(Refused::Obstacle(Obstacle { what, shown_by: shown_by.clone(), passes: Passes::Never }))
        };
        if !is_ours || given.is_empty() {
            return refuse(format!("the Job {name} is none of seawall's"));
        }
        if given != materials.digest() {
            return refuse(format!(
                "the pods of the Job {name} were given another command, or other files: --job takes the same words in the same order"
            ));
        }
        if let Some(why) = preflight::job_failed(&found) {
            return refuse(format!("the Job {name} is over: {why}"));
        }
        let pods = found.pointer("/spec/completions").and_then(Value::as_u64).unwrap_or_default();
        Ok(Job { name: name.to_owned(), uid: text(&found, "/metadata/uid"), pods: pods as usize })
    }

    /// Gives a Job more pods; those that run go on (Kubernetes documentation, "Jobs", elastic Indexed Jobs).
    ///
    /// # Errors
    /// It is refused.
    pub async fn grow(&self, job: &mut Job, pods: usize) -> Result<(), Refused> {
        let replace = |field: &str| json!({"op": "replace", "path": format!("/spec/{field}"), "value": pods});
        let change = json!([replace("completions"), replace("parallelism")]);
        self.call("give the Job more pods", request::patch(&self.path(&job.name), &change)).await?;
        job.pods = pods;
        Ok(())
    }

    /// Waits until the programs of all pods run, at most so long, and gives them by their place; `told` hears how many do.
    ///
    /// # Errors
    /// What keeps one from it, or that the time is over.
    pub async fn running(
        &self,
        job: &Job,
        within: Duration,
        mut told: impl FnMut(usize),
    ) -> Result<Vec<Pod>, Refused> {
        let mut start = Start::new(&job.name, job.pods, self.place.clone(), within, self.clock.now());
        let mut pauses = Pauses::new(&Patience::default());
        loop {
            let seen = self.look(job).await;
            let now = self.clock.now();
            let pause = match seen {
                Ok(seen) => match start.judge(&seen, now) {
                    Verdict::Running(pods) => return Ok(pods),
                    Verdict::Never(obstacle) => return Err(Refused::Obstacle(obstacle)),
                    Verdict::Waiting(running) => {
                        pauses.reset();
                        told(running);
                        LOOKS[usize::from(job.pods > 100)]
                    }
                },
                Err(Refused::Failure { failure, .. }) if passes(&failure) && !start.is_over(now) => {
                    pauses.after(&failure)
                }
                Err(refused) => return Err(refused),
            };
            self.clock.sleep(pause).await;
        }
    }

    /// What there is to be seen of a Job; events only where something is lacking.
    async fn look(&self, job: &Job) -> Result<Seen, Refused> {
        let pods = self.pods(&job.name).await?;
        let mut seen = Seen { pods, ..Seen::default() };
        if let Some(pending) = seen.first_pending().map(|pod| preflight::name(pod).to_owned()) {
            seen.events = self.events("Pod", &pending).await?;
        }
        if seen.pods.len() < job.pods {
            seen.events.extend(self.events("Job", &job.name).await?);
            seen.job = self.call("look at the Job", request::get(&self.path(&job.name), Form::Whole)).await?;
        }
        Ok(seen)
    }

    /// All pods of a Job, as the API server has them.
    ///
    /// # Errors
    /// It does not tell.
    pub async fn pods(&self, job: &str) -> Result<Vec<Value>, Refused> {
        let path = format!("/api/v1/namespaces/{}/pods", self.place.namespace);
        let labels = format!("{JOB_NAME}={job}");
        let (mut pods, mut next) = (Vec::new(), String::new());
        loop {
            let token = Some(&*next).filter(|next| !next.is_empty());
            let page = request::select(&path, Form::Whole, Some(&labels), PAGE_OF, token);
            let mut page: Value = self.call_within("list the pods", page, PAGE).await?;
            if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
                pods.extend(items);
            }
            next = text(&page, "/metadata/continue");
            if next.is_empty() {
                return Ok(pods);
            }
        }
    }

    async fn events(&self, kind: &str, name: &str) -> Result<Vec<Value>, Refused> {
        let path = format!("/api/v1/namespaces/{}/events", self.place.namespace);
        let fields = format!("involvedObject.kind={kind},involvedObject.name={name}");
        let page = request::list(&path, Form::Whole, Some(&fields), PAGE_OF, None);
        let mut page: Value = self.call_within("list events", page, PAGE).await?;
        Ok(page.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default())
    }

    /// Takes the Job away, its pods and its Secret with it. One that is gone already is no mistake; an API server that is away is asked again.
    ///
    /// # Errors
    /// It is there still.
    pub async fn delete(&self, job: &Job) -> Result<(), Refused> {
        // Ours and not one of the same name that somebody has made since.
        let options = json!({"propagationPolicy": "Background", "preconditions": {"uid": job.uid}});
        let mut pauses = Pauses::new(&Patience::default());
        let mut tries = 1;
        loop {
            let deleted = self.call("delete the Job", request::delete(&self.path(&job.name), &options)).await;
            let failure = match deleted {
                Ok(_)
                | Err(Refused::Failure {
                    failure: Failure::NotFound { .. } | Failure::Conflict(_), ..
                }) => return Ok(()),
                Err(Refused::Failure { failure, .. }) if passes(&failure) && tries < TRIES => failure,
                Err(refused) => return Err(refused),
            };
            tries += 1;
            self.clock.sleep(pauses.after(&failure)).await;
        }
    }

    fn jobs(&self) -> String {
        format!("/apis/batch/v1/namespaces/{}/jobs", self.place.namespace)
    }

    fn path(&self, job: &str) -> String {
        format!("{}/{job}", self.jobs())
    }

    async fn call(&self, doing: &str, request: Built) -> Result<Value, Refused> {
        self.call_within(doing, request, ANSWER).await
    }

    async fn call_within(&self, doing: &str, request: Built, limit: Duration) -> Result<Value, Refused> {
        let called = self.client.call(request, limit).await;
        called.map_err(|failure| Refused::Failure { doing: doing.to_owned(), failure })
    }
}

/// Whether another try may succeed.
fn passes(failure: &Failure) -> bool {
    failure.is_absence() || matches!(failure, Failure::Throttled(_) | Failure::Server { .. })
}

fn text(value: &Value, path: &str) -> String {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
}
