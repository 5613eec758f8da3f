//! How what goes wrong looks from outside: STS fails in XML, and throttles with a 400; EKS Auth in JSON; metadata in HTML.

use http::StatusCode;

use super::endpoint::Endpoint;
use super::reply::{Reply, html, json_refused, refused};
use crate::faults::Fate;

/// The answer that a fault gives instead of the service's.
pub(super) fn broken(endpoint: Endpoint, fate: Fate) -> Option<Reply> {
    match fate {
        Fate::Answer | Fate::Garble | Fate::Close => None,
        Fate::Throttle(_) => Some(throttled(endpoint)),
        Fate::Fail { status, html: as_html } => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            Some(failed(endpoint, status, as_html))
        }
    }
}

/// AWS names no time to come back.
fn throttled(endpoint: Endpoint) -> Reply {
    match endpoint {
        Endpoint::Metadata => html(StatusCode::SERVICE_UNAVAILABLE, "Too many requests."),
        Endpoint::PodIdentity => {
            json_refused(StatusCode::TOO_MANY_REQUESTS, "ThrottlingException", "Rate exceeded")
        }
        _ => refused(StatusCode::BAD_REQUEST, "Throttling", "Rate exceeded"),
    }
}

fn failed(endpoint: Endpoint, status: StatusCode, as_html: bool) -> Reply {
    let message = "The emulator was told to fail.";
    let is_unavailable = status == StatusCode::SERVICE_UNAVAILABLE;
    match endpoint {
        Endpoint::Metadata => html(status, message),
        _ if as_html => html(status, message),
        Endpoint::PodIdentity if is_unavailable => {
            json_refused(status, "ServiceUnavailableException", message)
        }
        Endpoint::PodIdentity => json_refused(status, "InternalServerException", message),
        _ if is_unavailable => refused(status, "ServiceUnavailable", message),
        _ => refused(status, "InternalFailure", message),
    }
}
