//! Writes whole responses (head and body) to a buffer that the agent reuses.
//!
//! Every response has the headers that clients check. The Node library, and libraries that search for a metadata server, refuse
//! a response without `Metadata-Flavor: Google`. So errors have this header, too. The Python library refuses a response without
//! a content type. Only a redirect repeats parts of the request: the canonical path, and the query, which the parser has
//! checked to be visible ASCII.

use seawall_http::head_writer;

use super::etag::ETag;
use super::federate::{CredentialFreeBody, DirectoryRedirect};
use super::query::ResponseFormat;
use seawall_http::{Refusal, ResponseContext};

/// The metadata server that the response imitates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataServerKind {
    /// The metadata server of a virtual machine, as in conceal mode.
    Vm,
    /// The metadata server of a GKE node, as in federate mode.
    Gke,
}

impl MetadataServerKind {
    /// Returns the headers of every response, as the real servers of this kind send them.
    pub(super) const fn constant_headers(self) -> &'static [u8] {
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

    /// Writes an access token. The response has `Cache-Control: no-store`.
    pub fn write_access_token(
        self,
        out: &mut Vec<u8>,
        frame: &ResponseContext<'_>,
        token: &AccessTokenBody<'_>,
    ) {
        let [content_type, before, between, after] = match token.response_format {
            ResponseFormat::Json => JSON_TOKEN,
            ResponseFormat::Text => TEXT_TOKEN,
        };
        frame.begin_head(out, 200, self.constant_headers());
        write_etag(out, token.etag);
        out.extend_from_slice(NO_STORE);
        head_writer::write_header(out, "Content-Type", content_type.as_bytes());
        let digits = token.expires_in.checked_ilog10().unwrap_or(0) as usize + 1;
        head_writer::write_content_length_and_head_end(
            out,
            (before.len() + token.token.len() + between.len() + digits + after.len()) as u64,
        );
        if !frame.head_only {
            out.extend_from_slice(before.as_bytes());
            out.extend_from_slice(token.token.as_bytes());
            out.extend_from_slice(between.as_bytes());
            head_writer::write_decimal(out, token.expires_in);
            out.extend_from_slice(after.as_bytes());
        }
    }

    /// Writes an identity token: only the JWT, without a line end. The response has `Cache-Control: no-store`.
    pub fn write_id_token(self, out: &mut Vec<u8>, frame: &ResponseContext<'_>, jwt: &str) {
        frame.begin_head(out, 200, self.constant_headers());
        out.extend_from_slice(NO_STORE);
        out.extend_from_slice(b"Content-Type: text/html\r\n");
        frame.end_with_body(out, &[jwt.as_bytes()]);
    }

    /// Writes a text body.
    pub fn write_text(self, out: &mut Vec<u8>, frame: &ResponseContext<'_>, known: &CredentialFreeBody<'_>) {
        frame.begin_head(out, 200, self.constant_headers());
        write_etag(out, known.etag);
        head_writer::write_header(out, "Content-Type", known.content_type.as_bytes());
        frame.end_with_body(out, &[known.body.as_bytes()]);
    }

    /// Writes a 301 redirect to a directory's path with the final slash.
    ///
    /// The location is a path, not a URL. So the client stays on the same host, and the response repeats no part of the Host
    /// header.
    pub fn write_redirect(
        self,
        out: &mut Vec<u8>,
        frame: &ResponseContext<'_>,
        redirect: &DirectoryRedirect<'_>,
    ) {
        frame.begin_head(out, 301, self.constant_headers());
        out.extend_from_slice(b"Location: ");
        out.extend_from_slice(redirect.path.as_bytes());
        if let Some(query) = redirect.query {
            out.push(b'?');
            out.extend_from_slice(query.as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(HTML);
        frame.end_with_body(out, &[redirect.path.as_bytes()]);
    }

    /// Writes a refusal as one line. SDKs include this line in their own error.
    ///
    /// The line contains the program's name (`seawall`), the message, the code, and whether a retry can help.
    pub fn write_refusal(self, out: &mut Vec<u8>, frame: &ResponseContext<'_>, refusal: &Refusal) {
        frame.begin_head(out, refusal.status, self.constant_headers());
        match refusal.status {
            405 => out.extend_from_slice(b"Allow: GET, HEAD\r\n"),
            _ if refusal.is_retryable() => out.extend_from_slice(b"Retry-After: 1\r\n"),
            _ => {}
        }
        out.extend_from_slice(HTML);
        let retry: &[u8] =
            if refusal.is_retryable() { b"; is_retryable: yes)\n" } else { b"; is_retryable: no)\n" };
        let (message, code) = (refusal.message.as_bytes(), refusal.code.as_bytes());
        frame.end_with_body(out, &[b"seawall: ", message, b" (code: ", code, retry]);
    }
}

/// An access token to write.
#[derive(Clone, Copy)]
pub struct AccessTokenBody<'a> {
    /// The token. The token contains no line end and no character that needs an escape in JSON. The broker checks the token
    /// when it receives the token.
    pub token: &'a str,
    /// The remaining lifetime in whole seconds, rounded down. It is above zero, because Go's SDK requires that.
    pub expires_in: u64,
    /// The requested format.
    pub response_format: ResponseFormat,
    /// The etag of the token ([`ETag::of_content`]). The agent computes the etag once per lease.
    ///
    /// If an etag stayed the same after a renewal, a long poll would miss the renewal. With `None`, the response has no etag.
    pub etag: Option<ETag>,
}

/// The content type of an access token's body, and the text before, between and after its two values.
const JSON_TOKEN: [&str; 4] =
    ["application/json", r#"{"access_token":""#, r#"","expires_in":"#, r#","token_type":"Bearer"}"#];
const TEXT_TOKEN: [&str; 4] = ["application/text", "access_token ", "\nexpires_in ", "\ntoken_type Bearer\n"];

const NO_STORE: &[u8] = b"Cache-Control: no-store\r\n";
const HTML: &[u8] = b"Content-Type: text/html; charset=UTF-8\r\n";

fn write_etag(out: &mut Vec<u8>, etag: Option<ETag>) {
    if let Some(etag) = etag {
        head_writer::write_header(out, "ETag", &etag.hex_digits());
    }
}
