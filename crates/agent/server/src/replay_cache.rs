//! Requests that come again. A client library asks with the same bytes each time, and what they mean is a pure function of them:
//! so a thread remembers of each caller the last request that was answered with a credential from memory, and what it was
//! found to ask for. When the same bytes come again, they are not read again. That saves half to nine tenths of the instructions of
//! such a request; docs/decisions/replay-cache.md has the figures.
//!
//! The security argument: what is remembered is the question and never an answer. Who asks, what it may have by now and whether a lease
//! is held is looked up each time, by the same functions, and whatever is not exactly as it was ([`ReplayableQuery::answer`]) is read anew.
//! It is remembered by caller: nobody's requests change what another's are taken for, or how soon they are answered. And it is
//! remembered of the dialects that understood it: where another configuration has others speak, nothing that these were asked is asked
//! again, so what the same bytes mean by then is read anew.

use std::cell::{Cell, RefCell};
use std::fmt;

use seawall_core::{Moment, Secret};
use seawall_http::{HttpVersion, ResponseContext};

use super::route::MetadataRoute;
use crate::client::Client;

/// Longest head that is remembered. Libraries send some 300 bytes to the metadata addresses, and 1,400 to the containers' endpoint: a
/// pod's token alone has 1,100.
const LONGEST: usize = 2048;

/// Other requests in a row after which the last one of them is remembered instead.
const OTHERS: u8 = 8;

/// A question that its dialect has understood.
pub trait ReplayableQuery<P>: fmt::Debug {
    /// Answers it into `out` from memory, with status 200; nothing, and nothing is written, where the request has to be read anew. The
    /// caller is not one that is gone.
    fn answer(
        &self,
        caller: &Client<P>,
        frame: &ResponseContext<'_>,
        now: Moment,
        out: &mut Vec<u8>,
    ) -> Option<&'static MetadataRoute>;
}

/// What is remembered of one caller.
#[derive(Debug)]
pub(crate) struct ReplayCache<P> {
    last: RefCell<Option<CachedRequest<P>>>,
    others: Cell<u8>,
}

/// A request that was answered with a credential from memory.
#[derive(Debug)]
pub(crate) struct CachedRequest<P> {
    /// All of its bytes, from the request line to the empty line: a session token may be in them, or a pod's own.
    bytes: Secret<Box<[u8]>>,
    /// Whose question it is: the number of the dialects of the listener that it came to. They end when others take their place, and those
    /// have another number.
    dialects: u64,
    pub(crate) version: HttpVersion,
    pub(crate) head_only: bool,
    /// Whether its connection goes on after it.
    pub(crate) keep_alive: bool,
    pub(crate) query: Box<dyn ReplayableQuery<P>>,
}

impl<P> CachedRequest<P> {
    /// One with these bytes; nothing where they are too many.
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

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.expose()
    }

    /// Whether it is what stands at the beginning of `bytes`, asked of the same dialects. A head ends with an empty line, so
    /// nothing that follows can be part of it.
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
    /// What `then` makes of the request at the beginning of `bytes`, if it is the one that is remembered.
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

    /// Whether the request that is being read is to be remembered. Not every one: a caller that asks now this, now that would pay for
    /// it and have nothing of it.
    pub(crate) fn should_record(&self) -> bool {
        let others = self.others.get() + 1;
        self.others.set(others % OTHERS);
        others == OTHERS || self.last.borrow().is_none()
    }

    /// Remembers this one from now on.
    pub(crate) fn record(&self, request: CachedRequest<P>) {
        self.last.replace(Some(request));
    }

    /// Remembers nothing.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        self.last.replace(None);
    }
}
