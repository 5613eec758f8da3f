//! The common parts of requests, stored once: a list of a million targets of one host has a million paths and one shape.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use rustls::pki_types::ServerName;

use super::head_and_body::{Http2Head, TargetHeaders, http2_head, write_head_lines};
use super::url_parts::{UrlAuthority, split_url};
use super::{Origin, PreparedRequest, RequestBuildError, RequestFraming};
use crate::expectation::ExpectationSet;
use crate::target::Target;
use crate::variant::VariantProtocol;

/// The parts of a request apart from its path and body.
#[derive(Debug)]
pub(super) struct RequestShape {
    pub(super) method: String,
    /// The scheme and the authority as written.
    base: String,
    /// The headers as given.
    pub(super) headers: Vec<(String, String)>,
    pub(super) origin: Origin,
    pub(super) close: bool,
    pub(super) chunked: bool,
    /// The text before the path in a request line to a proxy.
    pub(super) absolute_form_prefix: String,
    /// The head after the path, without the headers of the body's framing.
    pub(super) head_lines: Vec<u8>,
    pub(super) http2_head: Option<Http2Head>,
    /// The length of the body, which is part of an HTTP/2 head.
    body_length: usize,
    /// The conditions on a response.
    pub(super) expect: Option<Arc<ExpectationSet>>,
}

impl RequestShape {
    pub(super) fn new(
        target: &Target,
        base: &str,
        style: &RequestFraming,
    ) -> Result<Self, RequestBuildError> {
        let mut place = UrlAuthority::of(base, &target.url)?;
        place.origin.variant.clone_from(&target.variant);
        let variant = target.variant.as_deref();
        let mut headers = TargetHeaders::read(target)?;
        let keep_alive = variant.and_then(|variant| variant.keep_alive).unwrap_or(!style.close);
        headers.close = headers.has_verbatim_close || !keep_alive;
        let proxies = variant.and_then(|variant| variant.proxies.as_deref()).unwrap_or(&style.proxies);
        let proxy = proxies.for_origin(&place.origin).filter(|_| !place.origin.tls);
        let mut lines = Vec::new();
        write_head_lines(&mut lines, &place, &headers, proxy);
        if place.origin.tls && ServerName::try_from(place.origin.server_name()).is_err() {
            return Err(RequestBuildError::bad_url(&target.url, "the host is not a valid TLS server name"));
        }
        let of_run = style.may_use_http2 && (place.origin.tls || !style.http2_needs_tls);
        let of_variant = variant.is_some_and(|variant| variant.protocol == Some(VariantProtocol::Http2));
        let http2 = (of_run || of_variant).then(|| http2_head(target, &place, &headers)).transpose()?;
        Ok(Self {
            method: target.method.clone(),
            base: base.to_owned(),
            headers: target.headers.clone(),
            close: headers.close,
            chunked: style.chunked,
            absolute_form_prefix: proxy.map_or_else(String::new, |_| format!("http://{}", place.authority)),
            head_lines: lines,
            http2_head: http2,
            body_length: target.body.len(),
            expect: target.expect.clone(),
            origin: place.origin,
        })
    }

    fn is_of(&self, target: &Target, base: &str) -> bool {
        self.base == base
            && self.method == target.method
            && self.headers == target.headers
            && self.origin.variant == target.variant
            && self.expect == target.expect
            && (self.http2_head.is_none() || self.body_length == target.body.len())
    }
}

/// The maximum number of shapes that are remembered. A list whose targets all have headers of their own gains nothing from them.
const MOST_SHAPES: usize = 1024;

/// The size of a block of memory that requests share.
const ARENA: usize = 1 << 20;

/// Makes the requests of a list, all with the same framing. The requests share their common parts, and their bytes are stored
/// together.
#[derive(Debug)]
pub struct RequestBuilder {
    style: RequestFraming,
    hasher: RandomState,
    shapes: HashMap<u64, Arc<RequestShape>>,
    last: Option<Arc<RequestShape>>,
    arena: BytesMut,
    text: Vec<u8>,
}

impl RequestBuilder {
    /// Makes a builder for this framing.
    #[must_use]
    pub fn new(style: RequestFraming) -> Self {
        Self {
            style,
            hasher: RandomState::new(),
            shapes: HashMap::new(),
            last: None,
            arena: BytesMut::new(),
            text: Vec::new(),
        }
    }

    /// Makes a request like [`PreparedRequest::new`].
    ///
    /// # Errors
    /// [`RequestBuildError`].
    pub fn build(&mut self, target: &Target) -> Result<PreparedRequest, RequestBuildError> {
        let (base, path) = split_url(&target.url)?;
        let shape = self.shape(target, base)?;
        let request = PreparedRequest::assemble(shape, target, path, &self.style, &mut self.text)?;
        let text = self.store();
        request.with_text(text)
    }

    fn shape(&mut self, target: &Target, base: &str) -> Result<Arc<RequestShape>, RequestBuildError> {
        if let Some(last) = self.last.as_ref().filter(|last| last.is_of(target, base)) {
            return Ok(Arc::clone(last));
        }
        let key = self.hasher.hash_one((base, &target.method, &target.headers, &target.variant));
        let known = self.shapes.get(&key).filter(|known| known.is_of(target, base));
        let shape = match known {
            Some(known) => Arc::clone(known),
            None => {
                let shape = Arc::new(RequestShape::new(target, base, &self.style)?);
                if self.shapes.len() >= MOST_SHAPES {
                    self.shapes.clear();
                }
                self.shapes.insert(key, Arc::clone(&shape));
                shape
            }
        };
        self.last = Some(Arc::clone(&shape));
        Ok(shape)
    }

    /// Copies the text to shared memory.
    fn store(&mut self) -> Bytes {
        if self.arena.capacity() < self.text.len() {
            self.arena = BytesMut::with_capacity(ARENA.max(self.text.len()));
        }
        self.arena.extend_from_slice(&self.text);
        self.arena.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(method: &str, url: &str, header: &str, body: &str) -> Target {
        Target {
            method: method.to_owned(),
            url: url.to_owned(),
            headers: vec![("X".to_owned(), header.to_owned())],
            body: body.as_bytes().into(),
            ..Target::default()
        }
    }

    #[test]
    fn requests_that_share_a_shape_are_the_same_as_those_that_were_made_alone() {
        let chunked = RequestFraming { chunked: true, may_use_http2: true, ..RequestFraming::default() };
        for style in [RequestFraming::default(), chunked] {
            let mut builder = RequestBuilder::new(style.clone());
            for target in [
                target("GET", "http://a/1?b#c", "1", ""),
                target("GET", "http://a/2", "1", ""),
                target("POST", "http://a/2", "1", "hi"),
                target("POST", "http://a/2", "1", "hello"),
                target("GET", "https://u:p@a:8443", "1", ""),
                target("GET", "http://a/é", "2", ""),
                target("GET", "http://a/2", "1", ""),
            ] {
                let shared = builder.build(&target).unwrap();
                let alone = PreparedRequest::new(&target, &style).unwrap();
                assert_eq!(shared.bytes(), alone.bytes());
                assert_eq!((shared.url(), shared.method()), (&*target.url, &*target.method));
                assert_eq!(
                    (shared.body(), shared.origin()),
                    (Bytes::from_owner(target.body), alone.origin())
                );
                let (ours, theirs) = (shared.http2_request(), alone.http2_request());
                assert_eq!(
                    ours.map(|(head, body)| (format!("{head:?}"), body)),
                    theirs.map(|(head, body)| (format!("{head:?}"), body))
                );
            }
        }
    }

    #[test]
    fn a_list_of_one_host_has_one_shape_and_of_many_headers_a_bounded_number() {
        let mut builder = RequestBuilder::new(RequestFraming::default());
        let first = builder.build(&target("GET", "http://a/1", "1", "")).unwrap();
        let second = builder.build(&target("GET", "http://a/2", "1", "x")).unwrap();
        assert!(Arc::ptr_eq(&first.shape, &second.shape));
        for number in 0..3 * MOST_SHAPES {
            builder.build(&target("GET", "http://a/", &number.to_string(), "")).unwrap();
            assert!(builder.shapes.len() <= MOST_SHAPES);
        }
        assert_eq!(first.bytes()[..7], *b"GET /1 ");
    }
}
