//! Signs requests with AWS Signature Version 4. AWS's own library computes the signature.

use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningError, SigningSettings, sign};
use aws_sigv4::sign::v4::SigningParams;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tracing::Dispatch;
use tracing::dispatcher::with_default;

use super::node_signing_keys::AwsAccessKeys;
use crate::failure::{ExchangeError, ExchangeFault};

#[derive(Clone, Copy, Debug)]
pub(super) struct SigningScope<'a> {
    pub(super) service: &'static str,
    pub(super) region: &'a str,
}

/// Signs a complete request, including `body`.
pub(super) fn sign_request(
    step: &'static str,
    mut request: Request<Full<Bytes>>,
    body: &[u8],
    keys: &AwsAccessKeys,
    scope: SigningScope<'_>,
    now: SystemTime,
) -> Result<Request<Full<Bytes>>, ExchangeError> {
    // At trace level, the library logs its whole input, which may contain a pod's token. So this code disables logging during the
    // call.
    with_default(&Dispatch::none(), || apply(&mut request, body, keys, scope, now)).map_err(|_| {
        ExchangeError::new(ExchangeFault::ExchangeRejected, step, "cannot sign the call with these keys")
    })?;
    Ok(request)
}

/// The error for a failed signature. The error contains no detail, because the library's error text may quote the input.
struct Unsignable;

impl From<SigningError> for Unsignable {
    fn from(_: SigningError) -> Self {
        Self
    }
}

fn apply(
    request: &mut Request<Full<Bytes>>,
    body: &[u8],
    keys: &AwsAccessKeys,
    scope: SigningScope<'_>,
    now: SystemTime,
) -> Result<(), Unsignable> {
    let token = keys.session_token.as_ref().map(|token| token.expose().clone());
    let secret = keys.secret_access_key.expose().as_str();
    let identity = Credentials::new(&*keys.access_key_id, secret, token, None, "seawall").into();
    let params = SigningParams::builder()
        .identity(&identity)
        .region(scope.region)
        .name(scope.service)
        .time(now)
        .settings(SigningSettings::default())
        .build()
        .map_err(|_| Unsignable)?
        .into();
    let uri = request.uri().to_string();
    let headers =
        request.headers().iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let signable = SignableRequest::new(request.method().as_str(), uri, headers, SignableBody::Bytes(body))?;
    let (instructions, _) = sign(signable, &params)?.into_parts();
    instructions.apply_to_request_http1x(request);
    Ok(())
}
