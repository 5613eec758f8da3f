//! Whole responses, appended to a buffer that the caller reuses.

use seawall_wire::{RequestHead, Version};

use super::etag::ETag;
use super::federate::{Known, Redirect};
use crate::Refusal;

/// Which server the response claims to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// The one of a virtual machine: conceal mode.
    Vm,
    /// The one of a GKE node: federate mode.
    Gke,
}

/// What a response needs to know about its request and its moment.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// `Date`, an IMF-fixdate (RFC 9110 section 5.6.7).
    pub date: &'a [u8; 29],
    /// Which server speaks.
    pub server: Server,
    /// The request's version; HTTP/1.0 must be told that its connection is kept.
    pub version: Version,
    /// Whether the connection is kept.
    pub keep_alive: bool,
    /// Whether only the head is sent (HEAD).
    pub head_only: bool,
}

impl<'a> Frame<'a> {
    /// The frame that answers this request, the connection kept if the client wants it.
    pub fn of(head: &RequestHead<'_, '_>, server: Server, date: &'a [u8; 29]) -> Self {
        Self {
            date,
            server,
            version: head.version,
            keep_alive: head.keep_alive,
            head_only: head.method == "HEAD",
        }
    }
}

/// An access token. `text` holds no character that JSON escapes; the broker saw to that.
pub fn token(out: &mut Vec<u8>, frame: &Frame<'_>, text: &str, expires_in: u64, etag: Option<ETag>) {
    let _ = (out, frame, text, expires_in, etag);
}

/// An identity token.
pub fn id_token(out: &mut Vec<u8>, frame: &Frame<'_>, jwt: &str) {
    let _ = (out, frame, jwt);
}

/// A body that needs no broker.
pub fn known(out: &mut Vec<u8>, frame: &Frame<'_>, known: &Known<'_>) {
    let _ = (out, frame, known);
}

/// 301 to a directory's slash.
pub fn redirect(out: &mut Vec<u8>, frame: &Frame<'_>, redirect: &Redirect<'_, '_>) {
    let _ = (out, frame, redirect);
}

/// A refusal. `request` is the id under which the agent logged it.
pub fn refusal(out: &mut Vec<u8>, frame: &Frame<'_>, refusal: &Refusal, request: u64) {
    let _ = (out, frame, refusal, request);
}

/// What the real server answered (conceal mode): its status, the headers that clients of metadata need, its body.
pub fn forwarded<'h>(
    out: &mut Vec<u8>,
    frame: &Frame<'_>,
    status: u16,
    headers: impl Iterator<Item = (&'h str, &'h [u8])>,
    body: &[u8],
) {
    let _ = (out, frame, status, headers.count(), body);
}
