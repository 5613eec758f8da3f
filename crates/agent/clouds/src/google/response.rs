//! Writes awaited responses in the format of a GKE node's metadata server.

use std::sync::Arc;

use seawall_broker::google::{CredentialRequest, GoogleTokenText};
use seawall_core::{Lease, Moment};
use seawall_http::{Refusal, ResponseContext};
use seawall_protocols::google::{
    AccessTokenBody, CredentialFreeBody, ETag, MetadataServerKind, ResponseFormat,
};
use seawall_server::response::{CompletedDeferredResponse, WriteContext, WriteOutcome};

/// The kind of server that the agent's own answers imitate, which determines their headers. Forwarded answers can contain other
/// headers.
const SERVER: MetadataServerKind = MetadataServerKind::Gke;

/// The response that a request waited for.
#[derive(Debug)]
pub(super) enum AwaitedGoogleResponse {
    /// An access token. It has an ETag if the client waits for changes.
    AccessToken(Arc<Lease<GoogleTokenText>>, ResponseFormat, Option<ETag>),
    /// An identity token.
    IdToken(Arc<Lease<GoogleTokenText>>),
    /// The answer to a long poll: a text of the metadata tree.
    TreeText(CredentialFreeBody<'static>),
    /// A refusal instead of the awaited response.
    Refused(Refusal),
}

impl AwaitedGoogleResponse {
    /// Creates the response to this credential request from a lease.
    pub(super) fn from_lease(
        want: &CredentialRequest,
        alt: ResponseFormat,
        lease: Arc<Lease<GoogleTokenText>>,
    ) -> Self {
        match want {
            CredentialRequest::AccessToken { .. } => Self::AccessToken(lease, alt, None),
            CredentialRequest::IdToken { .. } => Self::IdToken(lease),
        }
    }

    /// Adds the access token's ETag, for a client that waits for changes.
    pub(super) fn with_etag(self) -> Self {
        match self {
            Self::AccessToken(lease, alt, _) => {
                let tag = token_etag(&lease);
                Self::AccessToken(lease, alt, Some(tag))
            }
            other => other,
        }
    }
}

impl CompletedDeferredResponse for AwaitedGoogleResponse {
    fn write(self: Box<Self>, writing: &WriteContext<'_>, out: &mut Vec<u8>) -> WriteOutcome {
        match *self {
            Self::AccessToken(lease, alt, tag) => {
                write_access_token(out, writing.response_context, &lease, writing.now, alt, tag);
            }
            Self::IdToken(lease) => write_id_token(out, writing.response_context, &lease),
            Self::TreeText(known) => SERVER.write_text(out, writing.response_context, &known),
            Self::Refused(refusal) => {
                SERVER.write_refusal(out, writing.response_context, &refusal);
                return WriteOutcome::whole(refusal.status);
            }
        }
        WriteOutcome::whole(200)
    }
}

/// Writes an access token with its actual remaining lifetime.
pub(super) fn write_access_token(
    out: &mut Vec<u8>,
    frame: &ResponseContext<'_>,
    lease: &Lease<GoogleTokenText>,
    now: Moment,
    alt: ResponseFormat,
    etag: Option<ETag>,
) {
    // The lifetime is rounded down, so a client never uses an expired token.
    let expires_in = lease.remaining(now).as_secs();
    SERVER.write_access_token(
        out,
        frame,
        &AccessTokenBody { token: lease.value.text(), expires_in, response_format: alt, etag },
    );
}

/// Writes an identity token.
pub(super) fn write_id_token(out: &mut Vec<u8>, frame: &ResponseContext<'_>, lease: &Lease<GoogleTokenText>) {
    SERVER.write_id_token(out, frame, lease.value.text());
}

/// Returns the ETag of a token's text.
///
/// The hash has 64 bits and a token has more than a thousand secret bits, so the hash reveals nothing useful. Only the pod with
/// the token gets the ETag.
pub(super) fn token_etag(lease: &Lease<GoogleTokenText>) -> ETag {
    ETag::of_content(lease.value.text().as_bytes())
}
