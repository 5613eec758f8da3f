//! AWS's answers, read without a call: for what must hold of any bytes in their place. What that is, is not known here. Called by
//! `seawall-invariants`, and by nothing else.

use http::{HeaderMap, StatusCode};
use seawall_core::{Secret, ServiceAccount};

use super::credential::AwsCredentialParts;
use super::refusal::{AwsCallAuth, refusal as refused};
use super::{response_parser, xml};
use crate::failure::ExchangeError;

/// The step that errors name.
pub const STEP: &str = "rehearsal";

/// What the body of a success of STS's is read as.
///
/// # Errors
/// It is none of this action's.
pub fn session(action: &str, body: &[u8]) -> Result<AwsCredentialParts, ExchangeError> {
    response_parser::session(STEP, action, body)
}

/// What the body of a success of EKS Auth's is read as, where `shop/cart` was asked for.
///
/// # Errors
/// It is none, or another's ([`crate::ExchangeFault::Rejected`]).
pub fn pod_identity(body: &[u8]) -> Result<AwsCredentialParts, ExchangeError> {
    let workload = ServiceAccount { namespace: "shop".into(), name: "cart".into() };
    response_parser::pod_identity(STEP, body, &workload)
}

/// What the body of a call comes to that failed with 400, as most of STS's do.
pub fn refusal(body: &[u8]) -> ExchangeError {
    refused(STEP, AwsCallAuth::Token, StatusCode::BAD_REQUEST, &HeaderMap::new(), body).into()
}

/// The texts at these places of a document, as all of STS's answers are read; `None` where it is not read at all.
pub fn texts<const N: usize>(document: &[u8], places: [&str; N]) -> Option<[Option<Secret<String>>; N]> {
    xml::texts(document, places).ok()
}
