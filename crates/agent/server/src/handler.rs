//! The metadata dialects of a listener, and each dialect's decision about a request.
//!
//! The order of steps is the security argument, in every dialect:
//! 1. The client was identified when the connection was accepted.
//! 2. The dialect canonicalises the path once and refuses by default.
//! 3. Only then the dialect looks up a lease, by the client's own `PodLeaseClient`, which cannot reach another client's leases.
//!
//! All steps are pure functions and reads of memory. A request that needs to wait (a cold lease, a long poll, the real server)
//! becomes a [`DeferredResponse`]. The connection's own task awaits it, never the thread.

use std::cell::{Ref, RefCell};
use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seawall_core::Moment;
use seawall_core::cloud::CloudName;
use seawall_http::path::{self, PathCharset};
use seawall_http::{Refusal, RequestHead, ResponseContext};

use super::client::ClientShares;
use super::replay_cache::ReplayableQuery;
use super::response::DeferredResponse;
use super::route::MetadataRoute;
use crate::client::Client;

/// A cloud's metadata dialect, as one traffic thread speaks it.
pub trait MetadataDialect<P>: fmt::Debug {
    /// Returns the cloud of the dialect.
    fn cloud(&self) -> CloudName;

    /// Returns the characters that the dialect's paths may contain.
    fn alphabet(&self) -> &'static PathCharset {
        &path::PLAIN
    }

    /// True if this dialect serves the canonical path, where it shares its address with other dialects.
    fn claims(&self, path: &str) -> bool;

    /// True if the connection stays open after a request with this method.
    /// A client that sends a method that the dialect does not know speaks another protocol.
    fn keeps_alive_after(&self, method: &str) -> bool;

    /// True if the dialect answers requests with this method for every client.
    /// The dialect then answers even for a pod that is gone, as it answers [`Client::Refused`].
    fn is_public(&self, _method: &str) -> bool {
        false
    }

    /// Returns the longest wait for identity ([`HandlerOutcome::AwaitIdentity`]), which is shorter than the client's own timeout.
    fn identity_timeout(&self, head: &RequestHead<'_, '_>) -> Duration;

    /// Writes the answer into `out`, or returns what must be waited for. The client must not be a pod that is gone.
    fn answer(
        &self,
        caller: &Client<P>,
        asked: RequestContext<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> HandlerOutcome<P>;

    /// Writes a refusal as this dialect's clients read one.
    fn refuse(&self, refusal: &Refusal, frame: &ResponseContext<'_>, request: u64, out: &mut Vec<u8>);
}

/// The outcome of a request.
#[derive(Debug)]
pub enum HandlerOutcome<P> {
    /// The answer is in the buffer.
    Answered {
        /// The kind of request.
        route: &'static MetadataRoute,
        /// The status of the answer.
        status: u16,
    },
    /// A cached credential is in the buffer, with status 200.
    CacheHit {
        /// The kind of request.
        route: &'static MetadataRoute,
        /// The query that can answer the same bytes again, if the thread is to record it.
        question: Option<Box<dyn ReplayableQuery<P>>>,
    },
    /// The answer takes time.
    Deferred(DeferredResponse),
    /// The handler answers nothing yet.
    /// Either the client is not known yet ([`Client::Unidentified`]), or the pod's entitlements at this cloud are not decided. Public
    /// answers need not wait for that.
    AwaitIdentity,
}

/// One request and the moment of its answer.
#[derive(Clone, Copy, Debug)]
pub struct RequestContext<'a, 'h, 'b> {
    /// The head of the request.
    pub head: &'a RequestHead<'h, 'b>,
    /// The properties of the request that its response needs.
    pub frame: &'a ResponseContext<'a>,
    /// The shares that the request uses.
    pub shares: ClientShares<'a>,
    /// The address from which the request came.
    pub peer: IpAddr,
    /// The number of the request, unique in this process.
    pub request_id: u64,
    /// The moment at which the request arrived. It is earlier than `now` if the request waited for identity.
    pub received_at: Moment,
    /// The moment of the answer.
    pub now: Moment,
    /// True if the client is unidentified, and a known pod was the last one reported at its address.
    /// Attestation proves the client's identity in a moment.
    pub has_likely_pod: bool,
    /// True if the thread is to record a query that can be answered again without its bytes ([`HandlerOutcome::CacheHit`]).
    pub should_record: bool,
}

/// The dialects that a listener speaks now.
/// Its connections look here at each turn, so a kept connection is answered as a new one is.
#[derive(Debug)]
pub struct ActiveDialects<P>(RefCell<Rc<ListenerDialects<P>>>);

impl<P> ActiveDialects<P> {
    /// Returns a holder of these dialects, which [`Self::replace`] may replace.
    pub fn new(dialects: ListenerDialects<P>) -> Self {
        Self(RefCell::new(Rc::new(dialects)))
    }

    /// Returns the dialects in force. Hold them for one turn, and never over a wait.
    /// Another task of the thread replaces them.
    pub fn current(&self) -> Ref<'_, Rc<ListenerDialects<P>>> {
        self.0.borrow()
    }

    /// Replaces the dialects from now on.
    pub fn replace(&self, dialects: ListenerDialects<P>) {
        self.0.replace(Rc::new(dialects));
    }
}

/// The dialects of one listener: at least one.
#[derive(Debug)]
pub struct ListenerDialects<P> {
    /// The number that identifies this set of dialects.
    pub id: u64,
    first: Rc<dyn MetadataDialect<P>>,
    others: Vec<Rc<dyn MetadataDialect<P>>>,
}

impl<P> ListenerDialects<P> {
    /// Returns a set of dialects; `None` if there is no dialect.
    /// The listener checks the dialects in this order to find the one that claims a target.
    pub fn new(dialects: impl IntoIterator<Item = Rc<dyn MetadataDialect<P>>>) -> Option<Self> {
        let mut dialects = dialects.into_iter();
        static MADE: AtomicU64 = AtomicU64::new(0);
        let id = MADE.fetch_add(1, Ordering::Relaxed);
        Some(Self { id, first: dialects.next()?, others: dialects.collect() })
    }

    /// Returns the first dialect that claims the canonical path of this target, as that dialect reads it.
    /// If the target has no canonical path, or no dialect claims it, returns the first dialect, which refuses it.
    pub fn for_target(&self, target: &str) -> &dyn MetadataDialect<P> {
        if self.others.is_empty() {
            return &*self.first;
        }
        let claims = |dialect: &&Rc<dyn MetadataDialect<P>>| {
            let target = path::canonicalise_in(target, dialect.alphabet());
            target.is_ok_and(|target| dialect.claims(target.path.as_str()))
        };
        let claimed = std::iter::once(&self.first).chain(&self.others).find(claims);
        &**claimed.unwrap_or(&self.first)
    }

    /// Returns the first dialect, which refuses input that is not a request.
    pub fn first(&self) -> &dyn MetadataDialect<P> {
        &*self.first
    }
}
