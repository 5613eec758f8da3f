//! The responses to injected faults: an API fails in JSON, the metadata server in HTML.

use http::StatusCode;

use super::endpoint::GoogleEndpoint;
use super::metadata::with_metadata_headers;
use super::reply::{self, EmulatorReply, api_error};
use crate::faults::FaultDecision;

/// Returns the response of a fault, in place of the service's own.
pub(super) fn fault_reply(endpoint: GoogleEndpoint, fate: FaultDecision) -> Option<EmulatorReply> {
    let metadata = endpoint == GoogleEndpoint::Metadata;
    let reply = match fate {
        FaultDecision::Answer | FaultDecision::Truncate | FaultDecision::Close => return None,
        FaultDecision::Throttle(wait) if metadata => {
            reply::throttled(reply::html_reply(StatusCode::TOO_MANY_REQUESTS, "Too many requests."), wait)
        }
        FaultDecision::Throttle(wait) => {
            let told =
                api_error(StatusCode::TOO_MANY_REQUESTS, "RESOURCE_EXHAUSTED", "The rate limit is exceeded.");
            reply::throttled(told, wait)
        }
        FaultDecision::Fail { status, html } => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            if html || metadata {
                reply::html_reply(status, "The emulator returns this error because a fault is configured.")
            } else {
                reply::server_error_reply(status)
            }
        }
    };
    Some(if metadata { with_metadata_headers(reply) } else { reply })
}
