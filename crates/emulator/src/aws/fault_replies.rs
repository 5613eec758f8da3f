//! The responses to injected faults. STS fails in XML and throttles with status 400, EKS Auth fails in JSON, and the metadata service in
//! HTML.

use http::StatusCode;

use super::endpoint::AwsEndpoint;
use super::reply::{EmulatorReply, error_reply, html_reply, json_error_reply};
use crate::faults::FaultDecision;

/// Returns the response of a fault, in place of the service's own.
pub(super) fn fault_reply(endpoint: AwsEndpoint, fate: FaultDecision) -> Option<EmulatorReply> {
    match fate {
        FaultDecision::Answer | FaultDecision::Truncate | FaultDecision::Close => None,
        FaultDecision::Throttle(_) => Some(throttled(endpoint)),
        FaultDecision::Fail { status, html: as_html } => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            Some(failed(endpoint, status, as_html))
        }
    }
}

/// Returns the response of a rate limit. AWS names no time for a retry.
fn throttled(endpoint: AwsEndpoint) -> EmulatorReply {
    match endpoint {
        AwsEndpoint::Metadata => html_reply(StatusCode::SERVICE_UNAVAILABLE, "Too many requests."),
        AwsEndpoint::PodIdentity => {
            json_error_reply(StatusCode::TOO_MANY_REQUESTS, "ThrottlingException", "Rate exceeded")
        }
        _ => error_reply(StatusCode::BAD_REQUEST, "Throttling", "Rate exceeded"),
    }
}

fn failed(endpoint: AwsEndpoint, status: StatusCode, as_html: bool) -> EmulatorReply {
    let message = "The emulator returns this error because a fault is configured.";
    let is_unavailable = status == StatusCode::SERVICE_UNAVAILABLE;
    match endpoint {
        AwsEndpoint::Metadata => html_reply(status, message),
        _ if as_html => html_reply(status, message),
        AwsEndpoint::PodIdentity if is_unavailable => {
            json_error_reply(status, "ServiceUnavailableException", message)
        }
        AwsEndpoint::PodIdentity => json_error_reply(status, "InternalServerException", message),
        _ if is_unavailable => error_reply(status, "ServiceUnavailable", message),
        _ => error_reply(status, "InternalFailure", message),
    }
}
