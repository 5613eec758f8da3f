//! Answers metadata requests: checks them, finds the node, waits for changes, and issues tokens.

use std::sync::Arc;

use http::header::{HeaderName, HeaderValue, LOCATION};
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use serde_json::json;
use tokio::sync::watch;

use super::machine::{self, GceMachine};
use super::query::{self, ContentFormat, MetadataQuery};
use super::tree::{GeneratedValue, MetadataNode, TEXT_CONTENT_TYPE};
use crate::google::iam_credentials::{ISSUER, service_account_unique_id};
use crate::google::reply::{self, EmulatorReply, html_reply};
use crate::google::state::GoogleState;

#[derive(Debug)]
pub(in crate::google) struct MetadataServer {
    machine: GceMachine,
    /// The tree, with one writer, snapshots for readers, and a signal for clients that wait for a change.
    tree: watch::Sender<Arc<MetadataNode>>,
}

impl MetadataServer {
    pub(in crate::google) fn new(machine: &GceMachine) -> Self {
        Self { machine: machine.clone(), tree: watch::Sender::new(Arc::new(machine.tree())) }
    }

    pub(in crate::google) fn set_instance_attribute(&self, name: &str, value: &str) {
        self.tree.send_modify(|tree| {
            let mut changed = MetadataNode::clone(tree);
            machine::set_instance_attribute(&mut changed, name, value);
            *tree = Arc::new(changed);
        });
    }

    /// Answers a request. With `wait_for_change` it waits for a change first.
    pub(in crate::google) async fn answer(
        &self,
        state: &GoogleState,
        request: &Request<Incoming>,
    ) -> EmulatorReply {
        let reply = match refuse(request) {
            Some(refusal) => refusal,
            None => self.find(state, request).await,
        };
        with_metadata_headers(reply)
    }

    async fn find(&self, state: &GoogleState, request: &Request<Incoming>) -> EmulatorReply {
        let query = match MetadataQuery::parse(request.uri().query().unwrap_or_default()) {
            Ok(query) => query,
            Err(sentence) => return html_reply(StatusCode::BAD_REQUEST, sentence),
        };
        let path = query::MetadataPath::parse(request.uri().path());
        let deadline = query.timeout.map(|timeout| state.clock.now() + timeout);
        let mut changes = self.tree.subscribe();
        let mut known = query.last_etag.clone();
        loop {
            let tree = changes.borrow_and_update().clone();
            let Some(node) = tree.find(&path.segments) else { return not_found() };
            if let MetadataNode::Generated(live) = node {
                return if path.ends_with_slash {
                    not_found()
                } else {
                    self.live(state, *live, &path, &query).await
                };
            }
            let etag = node.etag();
            if !query.wait_for_change || known.as_ref().is_some_and(|known| *known != etag) {
                return content(node, &path, &query, &etag);
            }
            known = Some(etag.clone());
            let timed_out = async {
                match deadline {
                    Some(deadline) => state.clock.sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // The sender lives as long as this server, so an error is not possible.
                _ = changes.changed() => {}
                () = timed_out => return content(node, &path, &query, &etag),
            }
        }
    }

    /// Issues a token of the machine itself. Such tokens are never part of a recursive listing.
    async fn live(
        &self,
        state: &GoogleState,
        live: GeneratedValue,
        path: &query::MetadataPath,
        query: &MetadataQuery,
    ) -> EmulatorReply {
        let account = path.segments.iter().rev().nth(1).map(String::as_str);
        if !account
            .is_some_and(|name| name == "default" || name == self.machine.service_account.to_lowercase())
        {
            return not_found();
        }
        match live {
            GeneratedValue::Identity => self.identity(state, query).await,
            GeneratedValue::Token | GeneratedValue::LegacyToken => self.token(state, live, query),
        }
    }

    fn token(&self, state: &GoogleState, live: GeneratedValue, query: &MetadataQuery) -> EmulatorReply {
        let email = &self.machine.service_account;
        let scopes =
            if query.scopes.is_empty() { machine::machine_token_scopes() } else { query.scopes.clone() };
        let lifetime = state.max_token_lifetime();
        let token = state.issue_service_account_token(email.clone(), email, scopes, lifetime);
        let seconds = lifetime.as_secs();
        let body = match live {
            // The field names of the first API version (googleapis/oauth2client, oauth2client/gce.py of 2014).
            GeneratedValue::LegacyToken => {
                json!({"accessToken": token, "expiresAt": state.unix_seconds().saturating_add(seconds), "expiresIn": seconds})
            }
            _ => json!({"access_token": token, "expires_in": seconds, "token_type": "Bearer"}),
        };
        reply::reply(StatusCode::OK, "application/json", body.to_string())
    }

    async fn identity(&self, state: &GoogleState, query: &MetadataQuery) -> EmulatorReply {
        let Some(audience) = query.audience.as_deref().filter(|audience| !audience.is_empty()) else {
            return html_reply(StatusCode::BAD_REQUEST, "The parameter audience must not be empty.");
        };
        let (now, id) = (state.unix_seconds(), service_account_unique_id(&self.machine.service_account));
        let mut claims = json!({
            "aud": audience, "azp": id, "exp": now.saturating_add(state.max_token_lifetime().as_secs()), "iat": now,
            "iss": ISSUER, "sub": id,
        });
        if query.full_format {
            claims["email"] = self.machine.service_account.as_str().into();
            claims["email_verified"] = true.into();
            claims["google"] = json!({"compute_engine": self.machine.compute_engine_claims(now)});
        }
        match state.sign_claims(&claims).await {
            Ok(token) => reply::reply(StatusCode::OK, "text/html", token),
            Err(_) => html_reply(StatusCode::INTERNAL_SERVER_ERROR, "The emulator could not sign the token."),
        }
    }
}

/// Checks the requirements of every request before its path.
fn refuse(request: &Request<Incoming>) -> Option<EmulatorReply> {
    let headers = request.headers();
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return Some(html_reply(
            StatusCode::METHOD_NOT_ALLOWED,
            "The metadata server accepts only GET and HEAD requests.",
        ));
    }
    if headers.contains_key("x-forwarded-for") {
        return Some(html_reply(
            StatusCode::FORBIDDEN,
            "The metadata server refuses requests with the header X-Forwarded-For.",
        ));
    }
    let flavored = headers.get("metadata-flavor").is_some_and(|value| value == "Google")
        || headers.get("x-google-metadata-request").is_some_and(|value| value == "True");
    // The two older API versions need no header, which is why nodes should disable them.
    let asks_v1 =
        query::MetadataPath::parse(request.uri().path()).segments.get(1).is_some_and(|second| second == "v1");
    if asks_v1 && !flavored {
        return Some(html_reply(StatusCode::FORBIDDEN, "The header Metadata-Flavor: Google is missing."));
    }
    None
}

fn content(
    node: &MetadataNode,
    path: &query::MetadataPath,
    query: &MetadataQuery,
    etag: &str,
) -> EmulatorReply {
    let json = query.alt.map_or(query.recursive, |alt| alt == ContentFormat::Json);
    let mut reply = match node.listing() {
        Some(_) if !path.ends_with_slash => return redirect(path, query),
        None if path.ends_with_slash => return not_found(),
        Some(listing) if !query.recursive => reply::reply(StatusCode::OK, TEXT_CONTENT_TYPE, listing),
        _ if json => reply::reply(StatusCode::OK, "application/json", node.to_json().to_string()),
        _ if query.recursive => reply::reply(StatusCode::OK, TEXT_CONTENT_TYPE, node.to_path_value_lines()),
        _ => reply::reply(StatusCode::OK, node.content_type(), node.leaf_text()),
    };
    if let Ok(etag) = HeaderValue::from_str(etag) {
        reply.headers_mut().insert("etag", etag);
    }
    reply
}

/// Redirects a directory without its final slash. The body is the path, as in salrashid123/gce_metadata_server.
fn redirect(path: &query::MetadataPath, query: &MetadataQuery) -> EmulatorReply {
    let place = format!("/{}/", path.path_in_original_case);
    let mut reply =
        reply::reply(StatusCode::MOVED_PERMANENTLY, "text/html; charset=UTF-8", format!("{place}\n"));
    let place = if query.raw_query.is_empty() { place } else { format!("{place}?{}", query.raw_query) };
    if let Ok(place) = HeaderValue::from_str(&place) {
        reply.headers_mut().insert(LOCATION, place);
    }
    reply
}

fn not_found() -> EmulatorReply {
    html_reply(StatusCode::NOT_FOUND, "The requested path was not found on this server.")
}

/// Adds the headers of every response, including refusals and faults.
pub(in crate::google) fn with_metadata_headers(mut reply: EmulatorReply) -> EmulatorReply {
    const HEADERS: [(HeaderName, HeaderValue); 4] = [
        (HeaderName::from_static("metadata-flavor"), HeaderValue::from_static("Google")),
        (HeaderName::from_static("server"), HeaderValue::from_static("Metadata Server for VM")),
        (HeaderName::from_static("x-xss-protection"), HeaderValue::from_static("0")),
        (HeaderName::from_static("x-frame-options"), HeaderValue::from_static("SAMEORIGIN")),
    ];
    for (name, value) in HEADERS {
        reply.headers_mut().insert(name, value);
    }
    reply
}
