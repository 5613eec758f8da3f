//! What goes wrong, endpoint by endpoint, and how it looks from outside: an API fails in JSON, a metadata server in HTML.

use std::collections::BTreeMap;

use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use seawall_core::Clock;

use super::endpoint::Endpoint;
use super::metadata::dressed;
use super::reply::{self, Reply, api_error};
use crate::faults::{Fate, Faults, Gate};

/// One gate for each endpoint.
#[derive(Debug)]
pub(super) struct Gates(BTreeMap<Endpoint, Gate>);

impl Gates {
    /// Gates with these faults, where faults may be.
    pub(super) fn new(faults: &Faults) -> Self {
        let gate = |endpoint| {
            let faulty = Endpoint::FAULTY.contains(&endpoint);
            (endpoint, Gate::new(if faulty { faults.clone() } else { Faults::default() }))
        };
        Self(Endpoint::ALL.into_iter().map(gate).collect())
    }

    /// What becomes of a request, after the wait that its endpoint's faults ask for.
    pub(super) async fn pass(&self, endpoint: Endpoint, clock: &Clock) -> Fate {
        match self.0.get(&endpoint) {
            Some(gate) => gate.pass(clock).await,
            None => Fate::Close,
        }
    }

    pub(super) fn set(&self, endpoint: Endpoint, faults: Faults) {
        if let Some(gate) = self.0.get(&endpoint) {
            gate.set(faults);
        }
    }
}

/// The answer that a fault gives instead of the service's.
pub(super) fn broken(endpoint: Endpoint, fate: Fate) -> Option<Reply> {
    let metadata = endpoint == Endpoint::Metadata;
    let reply = match fate {
        Fate::Answer | Fate::Garble | Fate::Close => return None,
        Fate::Throttle(wait) if metadata => {
            reply::throttled(reply::html(StatusCode::TOO_MANY_REQUESTS, "Too many requests."), wait)
        }
        Fate::Throttle(wait) => {
            let told =
                api_error(StatusCode::TOO_MANY_REQUESTS, "RESOURCE_EXHAUSTED", "The rate limit is exceeded.");
            reply::throttled(told, wait)
        }
        Fate::Fail { status, html } => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            if html || metadata {
                reply::html(status, "The emulator was told to fail.")
            } else {
                reply::failure(status)
            }
        }
    };
    Some(if metadata { dressed(reply) } else { reply })
}

/// The answer with half of its body: well-formed HTTP around ill-formed content.
pub(super) async fn garbled(reply: Reply) -> Reply {
    let (head, body) = reply.into_parts();
    let whole = body.collect().await.map_or_else(|never| match never {}, |body| body.to_bytes());
    let half = whole.slice(..whole.len() / 2);
    Response::from_parts(head, Full::new(half))
}
