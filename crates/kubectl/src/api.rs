//! A client for one API server with a user's kubeconfig: objects, watches, logs and attachments.
//!
//! Objects are JSON, and the caller chooses the paths. Every call has a time limit, which does not include a login by the user. A call is
//! repeated only after a refusal (401), with fresh credentials.

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

use crate::api_connection::KubeconfigTransport;
use crate::attach::{self, AttachSession};
use crate::kubeconfig::KubeconfigSelection;
use seawall_kube::ClientConfigError;
use seawall_kube::client::{KubeClient, read_body, read_error, run_with_timeout};
use seawall_kube::request::{self, BuildRequestResult, ObjectRepresentation, with_query};
use seawall_kube::{ApiServerTransport, ResponseBody, ResponseFuture};
use seawall_kube::{KubeError, KubeStatus};
use seawall_kube::{LineReader, MAX_RESPONSE_BYTES};

/// The time limit for a TCP connection; below, that for the response to a call or the head of a stream. The first is client-go's for
/// TLS. The other is longer, because a user's server may be far away.
const CONNECT: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(30);

/// The number of objects per page of a list. A pod takes some kilobytes.
const PAGE: u32 = 250;

/// The longest line of a log, in bytes. A longer line ends the connection.
const LONGEST_LINE: usize = 1024 * 1024;

/// The field manager in the objects' `managedFields`.
const MANAGER: &str = "seawall";

/// A client for an API server, with credentials. Cloning is cheap. Its connections belong to the runtime that uses it.
#[derive(Clone)]
pub struct Api {
    reach: Arc<KubeconfigTransport>,
    clock: Clock,
}

/// The chosen context, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextInfo {
    /// The namespace of the context, or `default`.
    pub namespace: String,
    /// The name of the context; `None` for in-cluster credentials.
    pub context: Option<String>,
    /// The URL of the server, without a path.
    pub server: String,
    /// True if the server's certificate is not verified (`insecure-skip-tls-verify`), which calls for a warning.
    pub is_unverified: bool,
}

/// All objects of a collection.
#[derive(Debug)]
pub struct ObjectList {
    /// The objects.
    pub items: Vec<Value>,
    /// The version from which a watch can continue.
    pub resource_version: String,
}

/// A change in a collection.
#[derive(Debug)]
pub enum ObjectChange {
    /// An object was added or changed.
    Changed(Value),
    /// An object was deleted; the value is its last state.
    Deleted(Value),
    /// The progress of the watch, without a change.
    Bookmark(String),
}

/// An open watch.
pub struct WatchStream(LineReader);

/// The effect of a write: it is applied, or the server only checks it (`dryRun=All`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// The write takes effect.
    Persist,
    /// The server only checks the write.
    DryRun,
}

/// An action whose permission is to be reviewed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceAttributes<'a> {
    /// The verb, such as `get` or `create`.
    pub verb: &'a str,
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The plural name of the resource.
    pub resource: &'a str,
    /// The subresource, such as `attach`; empty for the object itself.
    pub subresource: &'a str,
    /// The namespace; empty for cluster-wide resources, or for all namespaces.
    pub namespace: &'a str,
    /// The name of one object; empty for all.
    pub name: &'a str,
}

/// The server's verdict on [`ResourceAttributes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessVerdict {
    /// True if the action is allowed.
    pub is_allowed: bool,
    /// The server's reason, if any.
    pub reason: String,
}

/// The part of a container's log to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogOptions<'a> {
    /// The name of the container; empty for the only one.
    pub container: &'a str,
    /// True to follow the log until the container ends.
    pub is_followed: bool,
    /// True if each line starts with its timestamp (RFC 3339, nanoseconds) and a space.
    pub has_times: bool,
    /// True to read the log of the previous container.
    pub is_previous: bool,
    /// The number of last lines; `None` for all.
    pub tail_lines: Option<u32>,
    /// The age of the oldest line in seconds; `None` for all.
    pub since_seconds: Option<u32>,
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
    /// Reads the kubeconfig and runs its credential plugin, if any, which may ask the user to log in. It does not call the API server.
    ///
    /// # Errors
    /// The file, the place in it, and the expected value.
    pub async fn open(
        choice: &KubeconfigSelection,
        provider: Arc<CryptoProvider>,
        clock: Clock,
    ) -> Result<(Self, ContextInfo), ClientConfigError> {
        let chosen = choice.resolve()?;
        let opened = ContextInfo {
            namespace: chosen.namespace.clone(),
            context: chosen.context.clone(),
            server: format!("{}://{}", chosen.scheme, chosen.endpoint.base_url.authority()),
            is_unverified: chosen.is_unverified,
        };
        let reach = Arc::new(KubeconfigTransport::new(chosen, provider, CONNECT, clock.clone()));
        reach.sender().await?;
        Ok((Self { reach, clock }, opened))
    }

    /// Gets one object, or any document at a path.
    ///
    /// # Errors
    /// The reason of the failure.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, KubeError> {
        self.call(Request::get(path).header(ACCEPT, JSON).body(Bytes::new())).await
    }

    /// Lists all objects of a collection with these labels, page by page; `None` selects all objects.
    ///
    /// # Errors
    /// The reason of the failure.
    pub async fn list(&self, path: &str, labels: Option<&str>) -> Result<ObjectList, KubeError> {
        let (mut items, mut next) = (Vec::new(), None);
        loop {
            let page: Page = self
                .call(request::build_list_by_labels(
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

    /// Watches objects with these labels after `version`. The server ends the watch after some minutes; then the caller starts a new one
    /// from the last version.
    ///
    /// # Errors
    /// The reason of the failure; [`KubeError::Expired`] if the version is too old and the caller must list the objects again.
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

    /// Creates an object in a collection or a subresource, and returns the created object. Unknown fields are an error if the server can
    /// detect them (`fieldValidation`, Kubernetes 1.27).
    ///
    /// # Errors
    /// The reason of the failure.
    pub async fn create(&self, path: &str, object: &Value, run: WriteMode) -> Result<Value, KubeError> {
        self.call(written(Method::POST, path, JSON, object, run)).await
    }

    /// Changes an object by a merge patch (RFC 7396) and returns the new object.
    ///
    /// # Errors
    /// The reason of the failure.
    pub async fn merge_patch(&self, path: &str, changes: &Value, run: WriteMode) -> Result<Value, KubeError> {
        self.call(written(Method::PATCH, path, "application/merge-patch+json", changes, run)).await
    }

    /// Deletes an object; its dependents follow later (`propagationPolicy: Background`).
    ///
    /// # Errors
    /// The reason of the failure; [`KubeError::NotFound`] if the object does not exist.
    pub async fn delete(&self, path: &str, run: WriteMode) -> Result<(), KubeError> {
        // The options go into the body, because the server ignores query parameters beside a body.
        let dry: &[&str] = if run == WriteMode::DryRun { &["All"] } else { &[] };
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", "dryRun": dry,
        });
        self.ask(request::build_delete(path, &options)).await.map(drop)
    }

    /// Asks the server whether the user may do something.
    ///
    /// # Errors
    /// The reason of the failure.
    pub async fn review_access(&self, deed: &ResourceAttributes<'_>) -> Result<AccessVerdict, KubeError> {
        let kind = "SelfSubjectAccessReview";
        let attributes = json!({
            "verb": deed.verb, "group": deed.group, "resource": deed.resource, "subresource": deed.subresource,
            "namespace": deed.namespace, "name": deed.name,
        });
        let spec = json!({"resourceAttributes": attributes});
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec});
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer: Review = self.call(request::build_create(path, &review)).await?;
        Ok(AccessVerdict { is_allowed: answer.status.allowed, reason: answer.status.reason })
    }

    /// Reads the log of a container line by line, with lines of up to 1 MiB. The log of an unscheduled pod ends at once without a line.
    ///
    /// # Errors
    /// The reason of the failure; [`KubeError::Refused`] (400) while the container has not started on its node.
    pub async fn log(
        &self,
        namespace: &str,
        pod: &str,
        log: LogOptions<'_>,
    ) -> Result<LineReader, KubeError> {
        let said = |is: bool| is.then_some("true");
        let (tail, since) = (
            log.tail_lines.map(|lines| lines.to_string()),
            log.since_seconds.map(|seconds| seconds.to_string()),
        );
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

    /// Attaches to a container's standard input and error (`pods/attach`), without its standard output. The user needs the verb `get`, and
    /// from Kubernetes 1.35 on `create`.
    ///
    /// # Errors
    /// The reason of the failure.
    pub async fn attach(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
    ) -> Result<AttachSession, KubeError> {
        let parameters = [("container", Some(container)), ("stdin", Some("true")), ("stderr", Some("true"))];
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/attach");
        self.attach_at_path(&with_query(&path, &parameters)).await
    }

    /// Opens an attachment at any path that supports one.
    ///
    /// # Errors
    /// The reason of the failure.
    pub async fn attach_at_path(&self, path: &str) -> Result<AttachSession, KubeError> {
        let (request, key) = attach::upgrade_request(path);
        let answer = self.send(request?).await?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            let (head, body) = answer.into_parts();
            return Err(self.within(read_error(head.status, boxed(body))).await?);
        }
        self.within(AttachSession::from_response(answer, &key)).await?
    }

    /// Returns a client for the same server with the caller's own limits.
    #[must_use]
    pub fn to_kube_client(&self) -> KubeClient {
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

    /// Returns the body of a successful response.
    async fn body(&self, request: Request<Bytes>) -> Result<ResponseBody, KubeError> {
        let (head, body) = self.send(request).await?.into_parts();
        let body = boxed(body);
        if head.status.is_success() {
            Ok(body)
        } else {
            Err(self.within(read_error(head.status, body)).await?)
        }
    }

    /// Sends a request and returns the response's head with any status. After a 401 it repeats the request once, if there are other
    /// credentials.
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
    /// Returns the next change; `None` after the server has ended the watch. Cancelling the call loses no change.
    ///
    /// # Errors
    /// The connection broke, or the server reports an error: [`KubeError::Expired`] if the caller must list the objects again.
    pub async fn next(&mut self) -> Result<Option<ObjectChange>, KubeError> {
        let Some(line) = self.0.next_line(|| {}).await? else { return Ok(None) };
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
