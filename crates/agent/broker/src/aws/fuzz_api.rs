//! Gives tests access to the parsers of AWS's responses, so that the tests can parse arbitrary bytes. The parsers do not call
//! AWS.
//! Only `seawall-invariants` uses this module. It checks properties of the parsers.

use http::{HeaderMap, StatusCode};
use seawall_core::{Secret, ServiceAccount};

use super::credential::AwsCredentialParts;
use super::refusal::{AwsCallAuth, error_from_response as refused};
use super::{response_parser, xml};
use crate::failure::ExchangeError;

/// The name that the error messages of these parsers give to the failed call.
pub const STEP_NAME: &str = "rehearsal";

/// Parses the body of a successful STS response.
///
/// # Errors
/// The body is not a response to this action.
pub fn parse_sts_session(action: &str, body: &[u8]) -> Result<AwsCredentialParts, ExchangeError> {
    response_parser::parse_sts_session(STEP_NAME, action, body)
}

/// Parses the body of a successful EKS Auth response to a request for `shop/cart`.
///
/// # Errors
/// The body is not a response of EKS Auth, or the response is for another ServiceAccount
/// ([`crate::ExchangeFault::ExchangeRejected`]).
pub fn parse_pod_identity_session(body: &[u8]) -> Result<AwsCredentialParts, ExchangeError> {
    let workload = ServiceAccount { namespace: "shop".into(), name: "cart".into() };
    response_parser::parse_pod_identity_session(STEP_NAME, body, &workload)
}

/// Returns the error for a response with this body and with status 400, the usual status of a failed STS call.
pub fn parse_refusal(body: &[u8]) -> ExchangeError {
    refused(STEP_NAME, AwsCallAuth::Token, StatusCode::BAD_REQUEST, &HeaderMap::new(), body).into()
}

/// Returns the texts of the elements at these paths of an XML document, or `None` if the document is invalid.
/// The parser is the parser for STS's responses.
pub fn parse_element_texts<const N: usize>(
    document: &[u8],
    places: [&str; N],
) -> Option<[Option<Secret<String>>; N]> {
    xml::element_texts(document, places).ok()
}
