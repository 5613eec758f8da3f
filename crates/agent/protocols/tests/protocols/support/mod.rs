//! Requests and answers of tests, as bytes.

pub(crate) mod aws;
pub(crate) mod spelling;

use seawall_http::{
    Framing, HeadLimits, HttpVersion, Parsed, Refusal, RequestHead, ResponseContext, parse_request, request,
};
use seawall_protocols::google::{
    self, AccessTokenBody, AdmittedRequest, CredentialQuery, ETag, GoogleIdentity, MetadataServerKind,
    MetadataTree, NodeMetadata, TreeRequest, TreeResource, TreeResponse,
};

/// A moment for `Date`.
pub(crate) const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";

/// The prefix of nearly every path.
pub(crate) const V1: &str = "/computeMetadata/v1";

/// Parses raw bytes and hands over the head.
pub(crate) fn with_head<T>(raw: &str, look: impl FnOnce(&RequestHead<'_, '_>) -> T) -> T {
    let mut room = request::header_buffer();
    match parse_request(raw.as_bytes(), &mut room, &HeadLimits::default()) {
        Ok(Parsed::Complete(head, _)) => look(&head),
        other => panic!("not a request: {other:?} {raw:?}"),
    }
}

/// What conceal mode makes of a target that the wire would not let through.
pub(crate) fn refusal_of_target(target: &str) -> Option<Refusal> {
    let headers = [seawall_http::Header { name: "Metadata-Flavor", value: b"Google" }];
    let head = RequestHead {
        method: "GET",
        target,
        version: HttpVersion::Http11,
        headers: &headers,
        framing: Framing::None,
        keep_alive: true,
    };
    google::admit_request(&head).err()
}

/// A GET with the flavour header.
pub(crate) fn get(target: &str) -> String {
    with(target, "Metadata-Flavor: Google\r\n")
}

/// A GET with these header lines and Host.
pub(crate) fn with(target: &str, headers: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: metadata.google.internal\r\n{headers}\r\n")
}

/// What conceal mode makes of a request: the target that goes upstream, or the code of the refusal.
pub(crate) fn admit(raw: &str) -> Result<String, Refusal> {
    forward(raw, |forward| forward.target.to_string())
}

/// As [`admit`], and a look at the whole.
pub(crate) fn forward<T>(raw: &str, look: impl FnOnce(AdmittedRequest<'_>) -> T) -> Result<T, Refusal> {
    with_head(raw, |head| google::admit_request(head).map(look))
}

/// A node in which every fact is known.
pub(crate) fn node() -> NodeMetadata {
    NodeMetadata {
        project_id: "shop-prod".into(),
        numeric_project_id: 123_456_789_012,
        zone: Some("europe-west4-a".into()),
        instance_id: Some(8_450_900_684_160_343_118),
        instance_name: Some("gke-shop-pool-1a2b".into()),
        hostname: Some("gke-shop-pool-1a2b.c.shop-prod.internal".into()),
        cluster_name: Some("shop".into()),
        cluster_location: Some("europe-west4".into()),
        cluster_uid: Some("0123456789abcdef".into()),
        universe_domain: "googleapis.com".into(),
        ..NodeMetadata::default()
    }
}

/// A workload that impersonates a service account.
pub(crate) fn impersonating() -> MetadataTree {
    MetadataTree::for_workload(&node(), Some(&account("cart@shop-prod.iam.gserviceaccount.com", true)))
}

/// A workload that is its pool's own identity.
pub(crate) fn direct() -> MetadataTree {
    MetadataTree::for_workload(&node(), Some(&account("shop-prod.svc.id.goog", false)))
}

fn account(email: &str, impersonated: bool) -> GoogleIdentity {
    let scopes = google::AccountScopes::new(&google::node_metadata::DEFAULT_ACCOUNT_SCOPES);
    GoogleIdentity { email_or_workload_pool: email.into(), is_impersonated: impersonated, scopes }
}

/// What federate mode makes of a request.
pub(crate) fn ask<T>(
    tree: &MetadataTree,
    raw: &str,
    look: impl FnOnce(TreeRequest<'_, '_>) -> T,
) -> Result<T, Refusal> {
    with_head(raw, |head| tree.parse_request(head).map(look))
}

/// Asks and answers as the agent does, with a fixed token; the whole response.
pub(crate) fn exchange(tree: &MetadataTree, raw: &str) -> String {
    let mut out = Vec::new();
    with_head(raw, |head| {
        let frame = ResponseContext::for_request(head, DATE);
        match tree.parse_request(head) {
            Ok(query) => answer(&mut out, &frame, &query),
            Err(refusal) => MetadataServerKind::Gke.write_refusal(&mut out, &frame, &refusal),
        }
    });
    String::from_utf8(out).expect("text")
}

/// Writes the answer to a query.
pub(crate) fn answer(out: &mut Vec<u8>, frame: &ResponseContext<'_>, query: &TreeRequest<'_, '_>) {
    match &query.resource {
        TreeResource::WithoutCredential(TreeResponse::Text(known)) => {
            MetadataServerKind::Gke.write_text(out, frame, known);
        }
        TreeResource::WithoutCredential(TreeResponse::Redirect(redirect)) => {
            MetadataServerKind::Gke.write_redirect(out, frame, redirect);
        }
        TreeResource::Credential(CredentialQuery::IdToken { .. }) => {
            MetadataServerKind::Gke.write_id_token(out, frame, "e30.e30.c2ln");
        }
        TreeResource::Credential(CredentialQuery::AccessToken { alt, .. }) => {
            let etag = Some(ETag::of_content(b"ya29.token"));
            MetadataServerKind::Gke.write_access_token(
                out,
                frame,
                &AccessTokenBody { token: "ya29.token", expires_in: 3599, response_format: *alt, etag },
            );
        }
    }
}

/// The status of a response.
pub(crate) fn status(response: &str) -> &str {
    response.split(' ').nth(1).expect("a status line")
}

/// The value of a header of a response.
pub(crate) fn header<'r>(response: &'r str, name: &str) -> Option<&'r str> {
    let head = response.split("\r\n\r\n").next()?;
    let line =
        head.split("\r\n").find(|line| line.starts_with(name) && line[name.len()..].starts_with(": "))?;
    Some(&line[name.len() + 2..])
}

/// The body of a response.
pub(crate) fn body(response: &str) -> &str {
    response.split_once("\r\n\r\n").expect("an end of the head").1
}
