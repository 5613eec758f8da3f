//! Whole responses, head and body, appended to a buffer that the caller reuses. Called last for every request.
//!
//! Every response carries what clients check in *responses*: `Metadata-Flavor: Google` (the probes and Node refuse an
//! answer without it, so errors carry it, too) and a content type (Python refuses an answer without). Nothing of the
//! request is written back except a redirect's query, which was checked to be visible ASCII.

use seawall_http::write;

use super::etag::ETag;
use super::federate::{DirectoryRedirect, TreeText};
use super::query::ResponseFormat;
use crate::hex::hex;
use seawall_http::{Refusal, ResponseContext};

/// Which server the response claims to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataServerKind {
    /// The one of a virtual machine: conceal mode.
    Vm,
    /// The one of a GKE node: federate mode.
    Gke,
}

impl MetadataServerKind {
    /// The headers that every response has, as the server of this name writes them (seen on both).
    pub(super) const fn headers(self) -> &'static [u8] {
        match self {
            Self::Vm => {
                b"Metadata-Flavor: Google\r\nServer: Metadata Server for VM\r\n\
                  X-XSS-Protection: 0\r\nX-Frame-Options: SAMEORIGIN\r\n"
            }
            Self::Gke => {
                b"Metadata-Flavor: Google\r\nServer: GKE Metadata Server\r\n\
                  X-XSS-Protection: 0\r\nX-Frame-Options: SAMEORIGIN\r\n"
            }
        }
    }

    /// Writes an access token. No cache may keep it.
    pub fn token(self, out: &mut Vec<u8>, frame: &ResponseContext<'_>, token: &AccessTokenBody<'_>) {
        let [content_type, before, between, after] = match token.alt {
            ResponseFormat::Json => JSON_TOKEN,
            ResponseFormat::Text => TEXT_TOKEN,
        };
        frame.begin(out, 200, self.headers());
        write_etag(out, token.etag);
        out.extend_from_slice(NO_STORE);
        write::header(out, "Content-Type", content_type.as_bytes());
        let digits = token.expires_in.checked_ilog10().unwrap_or(0) as usize + 1;
        write::length_and_end(
            out,
            (before.len() + token.text.len() + between.len() + digits + after.len()) as u64,
        );
        if !frame.head_only {
            out.extend_from_slice(before.as_bytes());
            out.extend_from_slice(token.text.as_bytes());
            out.extend_from_slice(between.as_bytes());
            write::decimal(out, token.expires_in);
            out.extend_from_slice(after.as_bytes());
        }
    }

    /// Writes an identity token: the JWT alone, without a line end. No cache may keep it.
    pub fn id_token(self, out: &mut Vec<u8>, frame: &ResponseContext<'_>, jwt: &str) {
        frame.begin(out, 200, self.headers());
        out.extend_from_slice(NO_STORE);
        out.extend_from_slice(b"Content-Type: text/html\r\n");
        frame.end(out, &[jwt.as_bytes()]);
    }

    /// Writes a body that needs no broker.
    pub fn text(self, out: &mut Vec<u8>, frame: &ResponseContext<'_>, known: &TreeText<'_>) {
        frame.begin(out, 200, self.headers());
        write_etag(out, known.etag);
        write::header(out, "Content-Type", known.content_type.as_bytes());
        frame.end(out, &[known.body.as_bytes()]);
    }

    /// Writes 301 to a directory's slash. The location is a path, not a URL: it stays on the host that the client
    /// named, whatever that was, and repeats nothing of the Host header.
    pub fn redirect(self, out: &mut Vec<u8>, frame: &ResponseContext<'_>, redirect: &DirectoryRedirect<'_>) {
        frame.begin(out, 301, self.headers());
        out.extend_from_slice(b"Location: ");
        out.extend_from_slice(redirect.path.as_bytes());
        if let Some(query) = redirect.query {
            out.push(b'?');
            out.extend_from_slice(query.as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(HTML);
        frame.end(out, &[redirect.path.as_bytes()]);
    }

    /// Writes a refusal: one line that names who refuses, why, by which code, under which id the agent logged it, and
    /// whether trying again can help. SDKs put this line into their own error.
    pub fn refusal(self, out: &mut Vec<u8>, frame: &ResponseContext<'_>, refusal: &Refusal, request: u64) {
        frame.begin(out, refusal.status, self.headers());
        match refusal.status {
            405 => out.extend_from_slice(b"Allow: GET, HEAD\r\n"),
            _ if refusal.is_retryable() => out.extend_from_slice(b"Retry-After: 1\r\n"),
            _ => {}
        }
        out.extend_from_slice(HTML);
        let retry: &[u8] = if refusal.is_retryable() { b"; retry: yes)\n" } else { b"; retry: no)\n" };
        let request = hex(request);
        let (message, code) = (refusal.message.as_bytes(), refusal.code.as_bytes());
        frame.end(out, &[b"seawall: ", message, b" (code: ", code, b"; request: ", &request, retry]);
    }
}

/// An access token about to be written.
#[derive(Clone, Copy)]
pub struct AccessTokenBody<'a> {
    /// The token. It holds no character that JSON escapes and no line end; the broker saw to that when it got it.
    pub text: &'a str,
    /// Whole seconds it still lives; truly so, and above zero, which Go requires.
    pub expires_in: u64,
    /// The form asked for.
    pub alt: ResponseFormat,
    /// The tag of the lease: `ETag::of` its token, computed once per lease. `None` writes no tag, which is
    /// honest; a tag that does not change with the token would make a watcher sleep through a renewal.
    pub etag: Option<ETag>,
}

/// Content type and what stands before, between and after the two values.
const JSON_TOKEN: [&str; 4] =
    ["application/json", r#"{"access_token":""#, r#"","expires_in":"#, r#","token_type":"Bearer"}"#];
const TEXT_TOKEN: [&str; 4] = ["application/text", "access_token ", "\nexpires_in ", "\ntoken_type Bearer\n"];

const NO_STORE: &[u8] = b"Cache-Control: no-store\r\n";
const HTML: &[u8] = b"Content-Type: text/html; charset=UTF-8\r\n";

fn write_etag(out: &mut Vec<u8>, etag: Option<ETag>) {
    if let Some(etag) = etag {
        write::header(out, "ETag", &etag.digits());
    }
}
