//! Caches the last request of each client, because clients repeat their requests.
//!
//! A client library sends the same bytes each time, and their meaning is a pure function of them. So a thread records, for each
//! client, the last request that a cached credential answered, and the query that it contained. When the same bytes come again, the
//! thread does not parse them again. That saves half to nine tenths of the instructions of such a request;
//! docs/decisions/replay-cache.md has the figures.
//!
//! The security argument: the cache holds the query and never an answer. The client's identity, its present entitlements and its
//! lease are looked up each time, by the same functions. The thread parses the request anew unless everything is exactly as it was
//! ([`ReplayableQuery::answer`]). The cache is separate for each client: no client's requests change the meaning of another client's,
//! or how soon they are answered. An entry also belongs to the dialects that understood it. If another configuration replaces these
//! dialects, the thread replays no query of theirs and parses the same bytes anew.

use std::cell::{Cell, RefCell};
use std::fmt;

use seawall_core::{Moment, Secret};
use seawall_http::{HttpVersion, ResponseContext};

use super::route::MetadataRoute;
use crate::client::Client;

/// The longest head that is recorded.
/// Libraries send some 300 bytes to the metadata addresses, and 1,400 to the containers' endpoint: a pod's token alone has 1,100.
const LONGEST: usize = 2048;

/// The number of other requests in a row after which the last one of them replaces the entry.
const OTHERS: u8 = 8;

/// A query that its dialect has understood.
pub trait ReplayableQuery<P>: fmt::Debug {
    /// Writes the answer into `out` from memory, with status 200.
    /// Returns `None`, and writes nothing, if the request must be parsed anew. The client must not be a pod that is gone.
    fn answer(
        &self,
        caller: &Client<P>,
        frame: &ResponseContext<'_>,
        now: Moment,
        out: &mut Vec<u8>,
    ) -> Option<&'static MetadataRoute>;
}

/// The recorded request of one client.
#[derive(Debug)]
pub(crate) struct ReplayCache<P> {
    last: RefCell<Option<CachedRequest<P>>>,
    others: Cell<u8>,
}

/// A request that was answered with a cached credential.
#[derive(Debug)]
pub(crate) struct CachedRequest<P> {
    /// All bytes from the request line to the empty line. They may contain a session token, or a pod's own token.
    bytes: Secret<Box<[u8]>>,
    /// The number of the listener's dialects that understood the query.
    /// When others replace these dialects, the others have another number.
    dialects: u64,
    pub(crate) version: HttpVersion,
    pub(crate) head_only: bool,
    /// True if the connection stays open after the request.
    pub(crate) keep_alive: bool,
    pub(crate) query: Box<dyn ReplayableQuery<P>>,
}

impl<P> CachedRequest<P> {
    /// Returns a request with these bytes; `None` if they are too many.
    pub(crate) fn new(
        bytes: &[u8],
        dialects: u64,
        frame: &ResponseContext<'_>,
        goes_on: bool,
        question: Box<dyn ReplayableQuery<P>>,
    ) -> Option<Self> {
        let ResponseContext { version, head_only, .. } = *frame;
        let (bytes, dialects) = ((bytes.len() <= LONGEST).then(|| Secret::new(bytes.into()))?, dialects);
        Some(Self { bytes, dialects, version, head_only, keep_alive: goes_on, query: question })
    }

    /// Returns the bytes of the request.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.expose()
    }

    /// True if `bytes` begins with this request and `dialects` are the same ones.
    /// A head ends with an empty line, so no byte that follows can be part of it.
    fn begins(&self, bytes: &[u8], dialects: u64) -> bool {
        // musl's memcmp goes byte by byte, which is a quarter of what the whole answer costs.
        memchr::arch::all::is_prefix(bytes, self.bytes()) && self.dialects == dialects
    }
}

impl<P> Default for ReplayCache<P> {
    fn default() -> Self {
        Self { last: RefCell::default(), others: Cell::default() }
    }
}

impl<P> ReplayCache<P> {
    /// Returns the result of `then` on the request at the beginning of `bytes`, if that request is the recorded one.
    pub(crate) fn replay<T>(
        &self,
        bytes: &[u8],
        dialects: u64,
        then: impl FnOnce(&CachedRequest<P>) -> Option<T>,
    ) -> Option<T> {
        let last = self.last.borrow();
        let made = then(last.as_ref().filter(|last| last.begins(bytes, dialects))?);
        if made.is_some() {
            self.others.set(0);
        }
        made
    }

    /// True if the request that is being parsed is to be recorded.
    /// Not every request is: a client that alternates between requests would pay for recording and gain nothing.
    pub(crate) fn should_record(&self) -> bool {
        let others = self.others.get() + 1;
        self.others.set(others % OTHERS);
        others == OTHERS || self.last.borrow().is_none()
    }

    /// Records this request from now on.
    pub(crate) fn record(&self, request: CachedRequest<P>) {
        self.last.replace(Some(request));
    }

    /// Forgets the recorded request.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        self.last.replace(None);
    }
}
