//! One API server at a person's hands: what is there, what changes, what pods write, and what is said to them.
//!
//! Objects are JSON, and paths are theirs: what either means is the caller's. Every call has a limit of time; logging in, which a person
//! may have to, is not part of it. Nothing is tried again but what other credentials mend.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use rustls::crypto::CryptoProvider;
use seawall_core::Clock;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::attach::{self, AttachSession};
use crate::choice::KubeconfigSelection;
use crate::reach::KubeconfigTransport;
use seawall_kube::KubeAccessError;
use seawall_kube::client::{KubeClient, read_body, read_error, run_with_timeout};
use seawall_kube::request::{self, BuildRequestResult, ObjectRepresentation, with_query};
use seawall_kube::{ApiServerTransport, ResponseBody, ResponseFuture};
use seawall_kube::{KubeError, KubeStatus};
use seawall_kube::{LineReader, MAX_RESPONSE_BYTES};

/// Longest wait for a TCP connection, and for the answer to a call or the head of a stream. As client-go's for TLS, and more for the
/// rest, since a person's server may be far.
const CONNECT: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(30);

/// Objects in a page of a list. A pod takes some kilobytes.
const PAGE: u32 = 250;

/// Longest line of a log, in bytes; the connection ends with a longer one.
const LONGEST_LINE: usize = 1024 * 1024;

/// Who writes, in the objects' `managedFields`.
const MANAGER: &str = "seawall";

/// An API server, and as whom it is asked. Cheap to clone. Its connections are of the runtime that it is used on.
#[derive(Clone)]
pub struct Api {
    reach: Arc<KubeconfigTransport>,
    clock: Clock,
}

/// What a choice of context came to, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextInfo {
    /// Of the context, or `default`.
    pub namespace: String,
    /// Its name; `None` for what Kubernetes gives a pod.
    pub context: Option<String>,
    /// The server's URL, without a path.
    pub server: String,
    /// The server's certificate is not checked (`insecure-skip-tls-verify`): a reason to warn.
    pub is_unverified: bool,
}

/// All objects of a collection.
#[derive(Debug)]
pub struct ObjectList {
    /// As they are.
    pub items: Vec<Value>,
    /// Where a watch goes on from.
    pub resource_version: String,
}

/// What happens in a collection.
#[derive(Debug)]
pub enum ObjectChange {
    /// It is there now, or another.
    Changed(Value),
    /// It is there no more; as it was last.
    Deleted(Value),
    /// Nothing but how far the watch has come.
    Bookmark(String),
}

/// An open watch.
pub struct WatchStream(LineReader);

/// Whether to do it, or to have it checked as if it were done (`dryRun=All`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// In earnest.
    Apply,
    /// As if.
    DryRun,
}

/// What somebody may or may not do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceAttributes<'a> {
    /// `get`, `create`, ...
    pub verb: &'a str,
    /// The group of the API; empty for the core's.
    pub group: &'a str,
    /// The plural.
    pub resource: &'a str,
    /// Such as `attach`; empty for the object itself.
    pub subresource: &'a str,
    /// Empty for what has none, and for all.
    pub namespace: &'a str,
    /// Of one object; empty for all.
    pub name: &'a str,
}

/// The server's word on a [`ResourceAttributes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessVerdict {
    /// It may be done.
    pub is_allowed: bool,
    /// In words, if the server gives any.
    pub reason: String,
}

/// Which part of a container's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogOptions<'a> {
    /// Its name; empty for the only one.
    pub container: &'a str,
    /// Goes on until the container ends.
    pub is_followed: bool,
    /// Each line begins with the time at which the node read it (RFC 3339, nanoseconds), and a space.
    pub has_times: bool,
    /// Of the container before this one.
    pub is_previous: bool,
    /// The last so many lines; all of them for `None`.
    pub tail: Option<u32>,
    /// Lines from so many seconds ago; all of them for `None`.
    pub since: Option<u32>,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("chosen", &self.reach.context).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for WatchStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watching")
    }
}

impl Api {
    /// Reads the files, and runs the program that they name for credentials, if they do: a person may be asked to log in. Asks the
    /// API server nothing.
    ///
    /// # Errors
    /// Which file, where in it, and what was expected.
    pub async fn open(
        choice: &KubeconfigSelection,
        provider: Arc<CryptoProvider>,
        clock: Clock,
    ) -> Result<(Self, ContextInfo), KubeAccessError> {
        let chosen = choice.resolve()?;
        let opened = ContextInfo {
            namespace: chosen.namespace.clone(),
            context: chosen.context.clone(),
            server: format!("{}://{}", chosen.scheme, chosen.endpoint.base.authority()),
            is_unverified: chosen.is_unverified,
        };
        let reach = Arc::new(KubeconfigTransport::new(chosen, provider, CONNECT, clock.clone()));
        reach.sender().await?;
        Ok((Self { reach, clock }, opened))
    }

    /// One object, or whatever a path gives.
    ///
    /// # Errors
    /// Why nothing was brought.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, KubeError> {
        self.call(Request::get(path).header(ACCEPT, JSON).body(Bytes::new())).await
    }

    /// All objects of a collection that have these labels, page by page; all of them for `None`.
    ///
    /// # Errors
    /// Why nothing was brought.
    pub async fn list(&self, path: &str, labels: Option<&str>) -> Result<ObjectList, KubeError> {
        let (mut items, mut next) = (Vec::new(), None);
        loop {
            let page: Page = self
                .call(request::list_by_labels(
                    path,
                    ObjectRepresentation::Whole,
                    labels,
                    PAGE,
                    next.as_deref(),
                ))
                .await?;
            items.extend(page.items);
            next = page.metadata.next.filter(|next| !next.is_empty());
            if next.is_none() {
                return Ok(ObjectList { items, resource_version: page.metadata.resource_version });
            }
        }
    }

    /// What happens after `version` to objects with these labels. The server ends it after some minutes; whoever wants to go on asks
    /// again from the last version seen.
    ///
    /// # Errors
    /// Why nothing was brought; [`KubeError::Expired`] for a version so old that everything must be listed again.
    pub async fn watch(
        &self,
        path: &str,
        labels: Option<&str>,
        version: &str,
    ) -> Result<WatchStream, KubeError> {
        let parameters = [
            ("watch", Some("true")),
            ("allowWatchBookmarks", Some("true")),
            ("labelSelector", labels),
            ("resourceVersion", Some(version)),
        ];
        Ok(WatchStream(self.lines(&with_query(path, &parameters), MAX_RESPONSE_BYTES).await?))
    }

    /// Makes an object in a collection, or in a subresource, and gives it as it was made. Fields that the server does not know are an
    /// error, where it can tell (`fieldValidation`, Kubernetes 1.27).
    ///
    /// # Errors
    /// Why nothing was made.
    pub async fn create(&self, path: &str, object: &Value, run: WriteMode) -> Result<Value, KubeError> {
        self.call(written(Method::POST, path, JSON, object, run)).await
    }

    /// Changes an object by what stands in this one (RFC 7396), and gives it as it is then.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub async fn merge_patch(&self, path: &str, changes: &Value, run: WriteMode) -> Result<Value, KubeError> {
        self.call(written(Method::PATCH, path, "application/merge-patch+json", changes, run)).await
    }

    /// Takes an object away; what it leaves behind goes after it (`propagationPolicy: Background`).
    ///
    /// # Errors
    /// Why nothing was taken away; [`KubeError::NotFound`] if it was not there.
    pub async fn delete(&self, path: &str, run: WriteMode) -> Result<(), KubeError> {
        // In the body: beside one, the server reads no parameters.
        let dry: &[&str] = if run == WriteMode::DryRun { &["All"] } else { &[] };
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", "dryRun": dry,
        });
        self.ask(request::delete(path, &options)).await.map(drop)
    }

    /// Whether whoever asks may do something.
    ///
    /// # Errors
    /// Why nothing was brought.
    pub async fn review_access(&self, deed: &ResourceAttributes<'_>) -> Result<AccessVerdict, KubeError> {
        let kind = "SelfSubjectAccessReview";
        let attributes = json!({
            "verb": deed.verb, "group": deed.group, "resource": deed.resource, "subresource": deed.subresource,
            "namespace": deed.namespace, "name": deed.name,
        });
        let spec = json!({"resourceAttributes": attributes});
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec});
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer: Review = self.call(request::create(path, &review)).await?;
        Ok(AccessVerdict { is_allowed: answer.status.allowed, reason: answer.status.reason })
    }

    /// What a container writes, line by line; lines of up to 1 MiB. Of a pod that no node has yet: nothing, and the end at once.
    ///
    /// # Errors
    /// Why nothing was brought: [`KubeError::Refused`] (400) while the container has not begun on its node.
    pub async fn log(
        &self,
        namespace: &str,
        pod: &str,
        log: LogOptions<'_>,
    ) -> Result<LineReader, KubeError> {
        let said = |is: bool| is.then_some("true");
        let (tail, since) =
            (log.tail.map(|lines| lines.to_string()), log.since.map(|seconds| seconds.to_string()));
        let parameters = [
            ("container", Some(log.container).filter(|name| !name.is_empty())),
            ("follow", said(log.is_followed)),
            ("timestamps", said(log.has_times)),
            ("previous", said(log.is_previous)),
            ("tailLines", tail.as_deref()),
            ("sinceSeconds", since.as_deref()),
        ];
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/log");
        self.lines(&with_query(&path, &parameters), LONGEST_LINE).await
    }

    /// Joins a container's standard input and error (`pods/attach`); what it writes to its standard output does not come this way.
    /// Whoever asks needs the verb `get` on it, and from Kubernetes 1.35 on `create`.
    ///
    /// # Errors
    /// Why nothing was brought.
    pub async fn attach(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
    ) -> Result<AttachSession, KubeError> {
        let parameters = [("container", Some(container)), ("stdin", Some("true")), ("stderr", Some("true"))];
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/attach");
        self.attach_to(&with_query(&path, &parameters)).await
    }

    /// An attachment to whatever path gives one.
    ///
    /// # Errors
    /// Why nothing was brought.
    pub async fn attach_to(&self, path: &str) -> Result<AttachSession, KubeError> {
        let (request, key) = attach::upgrade_request(path);
        let answer = self.send(request?).await?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            let (head, body) = answer.into_parts();
            return Err(self.within(read_error(head.status, boxed(body))).await?);
        }
        self.within(AttachSession::from_response(answer, &key)).await?
    }

    /// The same server for who asks with limits of his own.
    #[must_use]
    pub fn client(&self) -> KubeClient {
        KubeClient::with_transport(Arc::new(self.clone()), self.clock.clone())
    }

    async fn call<T: DeserializeOwned>(&self, request: BuildRequestResult) -> Result<T, KubeError> {
        Ok(serde_json::from_slice(&self.ask(request).await?)?)
    }

    async fn ask(&self, request: BuildRequestResult) -> Result<Bytes, KubeError> {
        let body = self.body(request?).await?;
        self.within(read_body(body, MAX_RESPONSE_BYTES)).await?
    }

    async fn lines(&self, path: &str, longest: usize) -> Result<LineReader, KubeError> {
        let body = self.body(Request::get(path).header(ACCEPT, "*/*").body(Bytes::new())?).await?;
        Ok(LineReader::with_max_length(longest, body))
    }

    /// The body of a success.
    async fn body(&self, request: Request<Bytes>) -> Result<ResponseBody, KubeError> {
        let (head, body) = self.send(request).await?.into_parts();
        let body = boxed(body);
        if head.status.is_success() {
            Ok(body)
        } else {
            Err(self.within(read_error(head.status, body)).await?)
        }
    }

    /// The answer's head, whatever its status; with other credentials, where there are any, once it says 401.
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Incoming>, KubeError> {
        let way = self.reach.sender().await.map_err(|error| KubeError::Credentials(error.to_string()))?;
        let answer = self.within(self.reach.send(&way, request.clone())).await??;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        match self
            .reach
            .sender_after_refusal(&way)
            .await
            .map_err(|error| KubeError::Credentials(error.to_string()))?
        {
            None => Ok(answer),
            Some(other) => self.within(self.reach.send(&other, request)).await?,
        }
    }

    async fn within<F: Future>(&self, work: F) -> Result<F::Output, KubeError> {
        run_with_timeout(&self.clock, ANSWER, work).await
    }
}

impl ApiServerTransport for Api {
    fn send_request(&self, request: Request<Bytes>) -> ResponseFuture<'_> {
        Box::pin(async { Ok(self.send(request).await?.map(boxed)) })
    }
}

impl WatchStream {
    /// What happens next; `None` once the server has ended the watch. Nothing is lost by who gives up waiting.
    ///
    /// # Errors
    /// The connection broke, or the server's word on why it ends: [`KubeError::Expired`] if everything must be listed again.
    pub async fn next(&mut self) -> Result<Option<ObjectChange>, KubeError> {
        let Some(line) = self.0.next(|| {}).await? else { return Ok(None) };
        let event: Event = serde_json::from_slice(&line)?;
        match event.kind.as_str() {
            "DELETED" => Ok(Some(ObjectChange::Deleted(event.object))),
            "BOOKMARK" => {
                let version = event.object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
                Ok(Some(ObjectChange::Bookmark(version.to_owned())))
            }
            "ERROR" => Err(KubeError::from_status(&KubeStatus::deserialize(event.object)?)),
            _ => Ok(Some(ObjectChange::Changed(event.object))),
        }
    }
}

const JSON: &str = "application/json";

fn written(method: Method, path: &str, kind: &str, object: &Value, run: WriteMode) -> BuildRequestResult {
    let parameters = [
        ("fieldManager", Some(MANAGER)),
        ("fieldValidation", Some("Strict")),
        ("dryRun", (run == WriteMode::DryRun).then_some("All")),
    ];
    let request = Request::builder().method(method).uri(with_query(path, &parameters));
    request.header(ACCEPT, JSON).header(CONTENT_TYPE, kind).body(object.to_string().into())
}

fn boxed(body: Incoming) -> ResponseBody {
    body.map_err(|error| KubeError::unreachable(&error)).boxed_unsync()
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMetadata,
    #[serde(default)]
    items: Vec<Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PageMetadata {
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Review {
    status: ReviewStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReviewStatus {
    allowed: bool,
    reason: String,
}
