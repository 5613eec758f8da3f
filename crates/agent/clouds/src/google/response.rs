//! What has come, written as the metadata server of a GKE node writes it.

use std::sync::Arc;

use seawall_broker::google::{Credential, Want};
use seawall_core::{Lease, Moment};
use seawall_http::{Frame, Refusal};
use seawall_protocols::google::{AccessToken, Alt, ETag, Known, Server};
use seawall_server::response::{Reply, Writing, Written};

/// The server whose name the answers carry that are not another's.
const SERVER: Server = Server::Gke;

/// What a request waited for.
#[derive(Debug)]
pub(super) enum Came {
    /// An access token; its tag goes along where the client polls for changes.
    AccessToken(Arc<Lease<Credential>>, Alt, Option<ETag>),
    /// An identity token.
    IdToken(Arc<Lease<Credential>>),
    /// Text of the tree, after a long poll.
    Known(Known<'static>),
    /// None.
    Refused(Refusal),
}

impl Came {
    /// The lease of what was wanted.
    pub(super) fn issued(want: &Want, alt: Alt, lease: Arc<Lease<Credential>>) -> Self {
        match want {
            Want::AccessToken { .. } => Self::AccessToken(lease, alt, None),
            Want::IdToken { .. } => Self::IdToken(lease),
        }
    }

    /// With the tag of the access token, for a client that polls for changes.
    pub(super) fn tagged(self) -> Self {
        match self {
            Self::AccessToken(lease, alt, _) => {
                let tag = tag(&lease);
                Self::AccessToken(lease, alt, Some(tag))
            }
            other => other,
        }
    }
}

impl Reply for Came {
    fn write(self: Box<Self>, writing: &Writing<'_>, out: &mut Vec<u8>) -> Written {
        match *self {
            Self::AccessToken(lease, alt, tag) => {
                access_token(out, writing.frame, &lease, writing.now, alt, tag);
            }
            Self::IdToken(lease) => id_token(out, writing.frame, &lease),
            Self::Known(known) => SERVER.known(out, writing.frame, &known),
            Self::Refused(refusal) => {
                SERVER.refusal(out, writing.frame, &refusal, writing.request);
                return Written::whole(refusal.status);
            }
        }
        Written::whole(200)
    }
}

/// Writes an access token with the life it truly has left.
pub(super) fn access_token(
    out: &mut Vec<u8>,
    frame: &Frame<'_>,
    lease: &Lease<Credential>,
    now: Moment,
    alt: Alt,
    etag: Option<ETag>,
) {
    // Rounded down: a client must never believe in a second that is not there.
    let expires_in = lease.remaining(now).as_secs();
    SERVER.token(out, frame, &AccessToken { text: lease.value.text(), expires_in, alt, etag });
}

/// Writes an identity token.
pub(super) fn id_token(out: &mut Vec<u8>, frame: &Frame<'_>, lease: &Lease<Credential>) {
    SERVER.id_token(out, frame, lease.value.text());
}

/// The tag of a token's text. A hash of 64 bits over a secret of a thousand and more gives nothing of it away, and
/// it goes only to the pod that has the token.
pub(super) fn tag(lease: &Lease<Credential>) -> ETag {
    ETag::of(lease.value.text().as_bytes())
}
