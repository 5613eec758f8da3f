//! How what goes wrong looks from outside: an API fails in JSON, a metadata server in HTML.

use http::StatusCode;

use super::endpoint::Endpoint;
use super::metadata::dressed;
use super::reply::{self, Reply, api_error};
use crate::faults::Fate;

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
