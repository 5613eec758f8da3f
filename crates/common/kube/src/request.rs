//! Builds requests: paths, parameters and headers.
//!
//! Source: Kubernetes documentation, "Kubernetes API Concepts". The module does not encode names in a path, because they are
//! DNS names or come from the API server itself. It encodes parameters.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use serde_json::Value;
use url::form_urlencoded::Serializer;

/// A request, or the reason why it cannot be built.
pub type BuildRequestResult = Result<Request<Bytes>, http::Error>;

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";

/// The representation in which the API server returns objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectRepresentation {
    /// Whole objects.
    Whole,
    /// The metadata of each object, as a `PartialObjectMetadata`.
    Metadata,
}

impl ObjectRepresentation {
    /// Returns the `Accept` header for one object, and for the events of a watch.
    fn one(self) -> &'static str {
        match self {
            Self::Whole => JSON,
            Self::Metadata => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        }
    }

    fn list(self) -> &'static str {
        match self {
            Self::Whole => JSON,
            Self::Metadata => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        }
    }
}

/// Builds a request to get one object.
pub fn build_get(path: &str, form: ObjectRepresentation) -> BuildRequestResult {
    Request::get(path).header(ACCEPT, form.one()).body(Bytes::new())
}

/// Builds a request to create an object in a collection, or in a subresource.
pub fn build_create(path: &str, object: &Value) -> BuildRequestResult {
    with_body(Method::POST, path, JSON, object)
}

/// Builds a request to change an object with a JSON patch (RFC 6902).
pub fn build_patch(path: &str, changes: &Value) -> BuildRequestResult {
    with_body(Method::PATCH, path, JSON_PATCH, changes)
}

/// Builds a request to delete an object with these `DeleteOptions`.
pub fn build_delete(path: &str, options: &Value) -> BuildRequestResult {
    with_body(Method::DELETE, path, JSON, options)
}

fn with_body(method: Method, path: &str, kind: &str, body: &Value) -> BuildRequestResult {
    let request = Request::builder().method(method).uri(path);
    request.header(ACCEPT, JSON).header(CONTENT_TYPE, kind).body(body.to_string().into())
}

/// Builds a request for a page of at most `limit` objects of a collection. The request is for the first page or, if `next`
/// contains a `continue` token, for the page of that token.
pub fn build_list(
    path: &str,
    form: ObjectRepresentation,
    fields: Option<&str>,
    limit: u32,
    next: Option<&str>,
) -> BuildRequestResult {
    let limit = limit.to_string();
    let parameters = [("fieldSelector", fields), ("limit", Some(&limit)), ("continue", next)];
    Request::get(with_query(path, &parameters)).header(ACCEPT, form.list()).body(Bytes::new())
}

/// Builds a request like [`build_list`], but selects objects by labels instead of fields.
pub fn build_list_by_labels(
    path: &str,
    form: ObjectRepresentation,
    labels: Option<&str>,
    limit: u32,
    next: Option<&str>,
) -> BuildRequestResult {
    let limit = limit.to_string();
    let parameters = [("labelSelector", labels), ("limit", Some(&*limit)), ("continue", next)];
    Request::get(with_query(path, &parameters)).header(ACCEPT, form.list()).body(Bytes::new())
}

/// Builds a request to watch a collection for changes after `version`, for `seconds` seconds.
pub fn build_watch(
    path: &str,
    form: ObjectRepresentation,
    fields: Option<&str>,
    version: &str,
    seconds: u32,
) -> BuildRequestResult {
    let seconds = seconds.to_string();
    let parameters = [
        ("watch", Some("true")),
        ("allowWatchBookmarks", Some("true")),
        ("timeoutSeconds", Some(&*seconds)),
        ("fieldSelector", fields),
        ("resourceVersion", Some(version)),
    ];
    Request::get(with_query(path, &parameters)).header(ACCEPT, form.one()).body(Bytes::new())
}

/// Builds a request to watch a collection from its present state on, for `seconds` seconds. The stream begins with an event for each
/// object that exists. Then comes a bookmark with the annotation `k8s.io/initial-events-end`, and then each change.
///
/// The API server serves the state from its cache, and the state is as new as the request ("Streaming lists"; KEP 3157). A server
/// without this feature answers 422.
pub fn build_streamed_list(
    path: &str,
    form: ObjectRepresentation,
    fields: Option<&str>,
    seconds: u32,
) -> BuildRequestResult {
    let seconds = seconds.to_string();
    let parameters = [
        ("watch", Some("true")),
        ("sendInitialEvents", Some("true")),
        ("resourceVersionMatch", Some("NotOlderThan")),
        ("allowWatchBookmarks", Some("true")),
        ("timeoutSeconds", Some(&*seconds)),
        ("fieldSelector", fields),
    ];
    Request::get(with_query(path, &parameters)).header(ACCEPT, form.one()).body(Bytes::new())
}

/// Appends the parameters that have a value to a path.
pub fn with_query(path: &str, parameters: &[(&str, Option<&str>)]) -> String {
    let said = parameters.iter().filter_map(|(name, value)| Some((name, (*value)?)));
    format!("{path}?{}", Serializer::new(String::new()).extend_pairs(said).finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(request: BuildRequestResult) -> String {
        let request = request.unwrap();
        format!("{} {} {:?}", request.method(), request.uri(), request.headers()[ACCEPT])
    }

    #[test]
    fn a_parameter_cannot_become_another() {
        let fields = Some("spec.nodeName=a,status.phase!=Failed");
        assert_eq!(
            target(build_list("/api/v1/pods", ObjectRepresentation::Whole, fields, 25, Some("a&b=c d#e"))),
            "GET /api/v1/pods?fieldSelector=spec.nodeName%3Da%2Cstatus.phase%21%3DFailed&limit=25\
             &continue=a%26b%3Dc+d%23e \"application/json\""
        );
        assert_eq!(
            target(build_watch("/api/v1/pods", ObjectRepresentation::Whole, None, "7&watch=false", 250)),
            "GET /api/v1/pods?watch=true&allowWatchBookmarks=true&timeoutSeconds=250\
             &resourceVersion=7%26watch%3Dfalse \"application/json\""
        );
    }

    #[test]
    fn metadata_is_asked_for_by_the_accept_header() {
        let partial = |kind: &str| format!("\"application/json;as={kind};g=meta.k8s.io;v=v1\"");
        let listed = target(build_list("/l", ObjectRepresentation::Metadata, None, 1, None));
        assert!(listed.ends_with(&partial("PartialObjectMetadataList")), "{listed}");
        for one in [
            build_watch("/l", ObjectRepresentation::Metadata, None, "7", 1),
            build_get("/l/a", ObjectRepresentation::Metadata),
        ] {
            assert!(target(one).ends_with(&partial("PartialObjectMetadata")));
        }
    }

    #[test]
    fn a_name_that_is_none_makes_no_request() {
        assert!(build_get("/api/v1/nodes/a b", ObjectRepresentation::Whole).is_err());
    }
}
