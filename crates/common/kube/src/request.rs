//! The shapes of our requests: paths, parameters, headers. Knows no connection and no credential.
//!
//! Source: Kubernetes documentation, "Kubernetes API Concepts". Names in a path are DNS names or what the API server itself
//! told, so they are put there as they are; parameters are encoded.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use serde_json::Value;
use url::form_urlencoded::Serializer;

/// A request, or why there can be none.
pub type BuildRequestResult = Result<Request<Bytes>, http::Error>;

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";

/// As what objects are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectRepresentation {
    /// As they are.
    Whole,
    /// Their metadata alone, each as a `PartialObjectMetadata`.
    Metadata,
}

impl ObjectRepresentation {
    /// `Accept` for one object, and for the events of a watch.
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

/// One object.
pub fn get(path: &str, form: ObjectRepresentation) -> BuildRequestResult {
    Request::get(path).header(ACCEPT, form.one()).body(Bytes::new())
}

/// An object to make in a collection, or in a subresource.
pub fn create(path: &str, object: &Value) -> BuildRequestResult {
    with_body(Method::POST, path, JSON, object)
}

/// Changes to an object (RFC 6902).
pub fn patch(path: &str, changes: &Value) -> BuildRequestResult {
    with_body(Method::PATCH, path, JSON_PATCH, changes)
}

/// An object to take away, in this way.
pub fn delete(path: &str, options: &Value) -> BuildRequestResult {
    with_body(Method::DELETE, path, JSON, options)
}

fn with_body(method: Method, path: &str, kind: &str, body: &Value) -> BuildRequestResult {
    let request = Request::builder().method(method).uri(path);
    request.header(ACCEPT, JSON).header(CONTENT_TYPE, kind).body(body.to_string().into())
}

/// A page of a collection of so many objects, the first or the one that this token is for.
pub fn list(
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

/// As [`list`], of those with these labels.
pub fn list_by_labels(
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

/// What happens in a collection after `version`, for so many seconds.
pub fn watch(
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

/// A path with those parameters that have a value.
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
            target(list("/api/v1/pods", ObjectRepresentation::Whole, fields, 25, Some("a&b=c d#e"))),
            "GET /api/v1/pods?fieldSelector=spec.nodeName%3Da%2Cstatus.phase%21%3DFailed&limit=25\
             &continue=a%26b%3Dc+d%23e \"application/json\""
        );
        assert_eq!(
            target(watch("/api/v1/pods", ObjectRepresentation::Whole, None, "7&watch=false", 250)),
            "GET /api/v1/pods?watch=true&allowWatchBookmarks=true&timeoutSeconds=250\
             &resourceVersion=7%26watch%3Dfalse \"application/json\""
        );
    }

    #[test]
    fn metadata_is_asked_for_by_the_accept_header() {
        let partial = |kind: &str| format!("\"application/json;as={kind};g=meta.k8s.io;v=v1\"");
        let listed = target(list("/l", ObjectRepresentation::Metadata, None, 1, None));
        assert!(listed.ends_with(&partial("PartialObjectMetadataList")), "{listed}");
        for one in [
            watch("/l", ObjectRepresentation::Metadata, None, "7", 1),
            get("/l/a", ObjectRepresentation::Metadata),
        ] {
            assert!(target(one).ends_with(&partial("PartialObjectMetadata")));
        }
    }

    #[test]
    fn a_name_that_is_none_makes_no_request() {
        assert!(get("/api/v1/nodes/a b", ObjectRepresentation::Whole).is_err());
    }
}
