//! Caches one recent request of each client, because clients repeat their requests.
//!
//! A client library sends the same bytes each time, and the meaning of a request depends only on its bytes. Therefore a thread
//! records one request per client: a recent request that the thread answered with a cached credential. The thread also records the
//! parsed query of this request. When the same bytes arrive again, the thread does not parse them. The cache saves 50 % to 90 %
//! of the CPU instructions for such a request (docs/decisions/replay-cache.md).
//!
//! The cache is safe because it stores the query and never an answer. Each replay looks up the client's identity, entitlements and lease
//! again, with the same functions that the thread uses for a parsed request. If [`ReplayableQuery::answer`] returns `None`, the
//! thread parses the request again. Each client has a separate entry, so no client can change the meaning of another client's
//! requests or slow down their answers. An entry is valid only for the dialects that parsed its request. If a reload replaces
//! these dialects, the thread parses the bytes again.

use std::cell::{Cell, RefCell};
use std::fmt;

use seawall_core::{Moment, Secret};
use seawall_http::{HttpVersion, ResponseContext};

use super::route::MetadataRoute;
use crate::connection_client::Client;

/// The longest request head that the cache records.
/// Client libraries send about 300 bytes to the metadata addresses, and 1,400 bytes to the endpoint for EKS container
/// credentials. About 1,100 of these 1,400 bytes are the pod's token.
const LONGEST: usize = 2048;

/// The cache replaces the recorded request after this number of consecutive different requests.
/// It then records the last of these requests.
const OTHERS: u8 = 8;

/// A parsed query that the thread can answer again without parsing.
pub trait ReplayableQuery<P>: fmt::Debug {
    /// Writes the answer from memory into `out`, with status 200.
    /// Returns `None` and writes nothing if the thread must parse the request again. `caller` must not be a deleted pod.
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
pub(crate) struct SingleRequestReplayCache<P> {
    last: RefCell<Option<CachedRequest<P>>>,
    others: Cell<u8>,
}

/// A request that the thread answered with a cached credential.
#[derive(Debug)]
pub(crate) struct CachedRequest<P> {
    /// All bytes from the request line to the empty line. They may contain a session token or a pod token.
    bytes: Secret<Box<[u8]>>,
    /// The id of the dialects that parsed the query.
    /// After a reload the dialects have another id.
    dialects: u64,
    pub(crate) http_version: HttpVersion,
    pub(crate) head_only: bool,
    /// True if the connection stays open after the request.
    pub(crate) keep_alive: bool,
    pub(crate) query: Box<dyn ReplayableQuery<P>>,
}

impl<P> CachedRequest<P> {
    /// Returns a request with these bytes, or `None` if the request is too long.
    pub(crate) fn new(
        bytes: &[u8],
        dialects: u64,
        frame: &ResponseContext<'_>,
        goes_on: bool,
        question: Box<dyn ReplayableQuery<P>>,
    ) -> Option<Self> {
        let ResponseContext { version, head_only, .. } = *frame;
        let (bytes, dialects) = ((bytes.len() <= LONGEST).then(|| Secret::new(bytes.into()))?, dialects);
        Some(Self { bytes, dialects, http_version: version, head_only, keep_alive: goes_on, query: question })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.expose()
    }

    /// True if `bytes` begins with this request and `dialects` is the id of the dialects that parsed it.
    /// A head ends with an empty line, so no later byte can belong to this head.
    fn begins(&self, bytes: &[u8], dialects: u64) -> bool {
        // musl's `memcmp` compares one byte at a time. Here it would take a quarter of the time of a whole answer.
        memchr::arch::all::is_prefix(bytes, self.bytes()) && self.dialects == dialects
    }
}

impl<P> Default for SingleRequestReplayCache<P> {
    fn default() -> Self {
        Self { last: RefCell::default(), others: Cell::default() }
    }
}

impl<P> SingleRequestReplayCache<P> {
    /// Calls `then` with the recorded request if `bytes` begins with that request, and returns the result.
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

    /// Counts a request that the thread did not replay. Returns true if the thread should record this request.
    /// The thread does not record every request, because a client that alternates between requests would gain nothing.
    pub(crate) fn should_record(&self) -> bool {
        let others = self.others.get() + 1;
        self.others.set(others % OTHERS);
        others == OTHERS || self.last.borrow().is_none()
    }

    /// Records this request in place of the previous request.
    pub(crate) fn record_parsed_request(&self, request: CachedRequest<P>) {
        self.last.replace(Some(request));
    }

    #[cfg(test)]
    pub(crate) fn forget(&self) {
        self.last.replace(None);
    }
}
