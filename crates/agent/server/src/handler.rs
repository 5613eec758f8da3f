//! Defines the dialects of a listener. A dialect answers requests to the metadata API of one cloud.
//!
//! Every dialect follows the same order of steps. The security of the agent depends on this order:
//! 1. The thread identifies the client when it accepts the connection.
//! 2. The dialect canonicalises the path once. It refuses each request with an unknown path.
//! 3. Last, the dialect looks up a lease. It uses the client's `PodLeaseClient`, which cannot access leases of other clients.
//!
//! Each step is a pure function or reads only memory. Some requests must wait for a lease that is not cached, for a change (long
//! poll), or for the real metadata server. For such a request the dialect returns a [`DeferredResponse`]. A task of the
//! connection awaits that response, while the thread serves other connections.

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

use super::connection_client::UpstreamChargedClient;
use super::repeated_request_cache::ReplayableQuery;
use super::response::DeferredResponse;
use super::route::{self, MetadataRoute};
use crate::connection_client::Client;

/// A cloud's metadata dialect on one traffic thread.
pub trait MetadataDialect<P>: fmt::Debug {
    /// Returns the cloud of the dialect.
    fn cloud(&self) -> CloudName;

    /// Returns the characters that the dialect's paths may contain.
    fn path_charset(&self) -> &'static PathCharset {
        &path::PLAIN_CHARSET
    }

    /// True if this dialect serves the canonical path. Several dialects can share a listening address.
    fn serves_path(&self, path: &str) -> bool;

    /// True if the connection stays open after a request with this method.
    /// If the dialect does not know the method, the client uses another protocol. The thread then closes the connection.
    fn keeps_alive_after(&self, method: &str) -> bool;

    /// True if the dialect answers requests with this method for every client, even for a deleted pod.
    /// The thread passes a deleted pod to the dialect as [`Client::Refused`].
    fn answers_any_client(&self, _method: &str) -> bool {
        false
    }

    /// Returns the longest time that this request may wait for the client's identity ([`HandlerOutcome::AwaitIdentity`]).
    /// This time is shorter than the client's timeout.
    fn identity_timeout(&self, head: &RequestHead<'_, '_>) -> Duration;

    /// Writes the answer into `out`, or returns the reason why the request must wait. `caller` must not be a deleted pod.
    fn answer(
        &self,
        caller: &Client<P>,
        asked: RequestContext<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> HandlerOutcome<P>;

    /// Writes a refusal in the format that clients of this dialect expect.
    fn refuse(&self, refusal: &Refusal, frame: &ResponseContext<'_>, out: &mut Vec<u8>);

    /// Returns the outcome of a request, and writes the refusal if it is refused.
    fn answer_or_refuse(
        &self,
        answered: Result<HandlerOutcome<P>, Refusal>,
        asked: RequestContext<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> HandlerOutcome<P> {
        answered.unwrap_or_else(|refusal| {
            self.refuse(&refusal, asked.response_context, out);
            HandlerOutcome::Answered { route: &route::REFUSED, status: refusal.status }
        })
    }
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
        /// The query, if [`RequestContext::should_return_replayable_query`] is true.
        /// With this query, the thread can later answer the same bytes.
        question: Option<Box<dyn ReplayableQuery<P>>>,
    },
    /// The answer is not ready yet.
    Deferred(DeferredResponse),
    /// The dialect cannot answer yet.
    /// Either the client is unidentified ([`Client::Unidentified`]), or the pod's entitlements at this cloud are not decided.
    /// A request with a public answer ([`MetadataDialect::answers_any_client`]) never waits.
    AwaitIdentity,
}

/// One request, with all data that a dialect needs to answer the request.
#[derive(Clone, Copy, Debug)]
pub struct RequestContext<'a, 'h, 'b> {
    /// The head of the request.
    pub head: &'a RequestHead<'h, 'b>,
    /// The properties of the request that affect the format of the response.
    pub response_context: &'a ResponseContext<'a>,
    /// The client whose shares the request uses.
    pub shares: UpstreamChargedClient<'a>,
    /// The address from which the request came.
    pub peer_ip: IpAddr,
    /// The time when the request arrived. It is earlier than `now` if the request waited for identity.
    pub received_at: Moment,
    /// The time of the answer.
    pub now: Moment,
    /// True if the client is unidentified, but the cluster reported a pod at the client's address. Attestation will soon show whether the
    /// client is that pod.
    pub has_likely_pod: bool,
    /// True if the thread wants to record the query. The dialect then returns the query in [`HandlerOutcome::CacheHit`].
    pub should_return_replayable_query: bool,
}

/// The current dialects of a listener.
/// A connection reads this value at each turn. In a turn, the thread reads once and answers the requests. Therefore a reload also
/// applies to open connections.
#[derive(Debug)]
pub struct ActiveDialects<P>(RefCell<Rc<ListenerDialects<P>>>);

impl<P> ActiveDialects<P> {
    /// Returns a cell that contains these dialects. [`Self::replace`] can replace them later.
    pub fn new(dialects: ListenerDialects<P>) -> Self {
        Self(RefCell::new(Rc::new(dialects)))
    }

    /// Returns the current dialects.
    /// The caller can hold the reference for one turn, but must not hold it across an `await`. If another task called
    /// [`Self::replace`] meanwhile, that call would panic.
    pub fn current(&self) -> Ref<'_, Rc<ListenerDialects<P>>> {
        self.0.borrow()
    }

    /// Replaces the dialects. All later turns use the new dialects.
    pub fn replace(&self, dialects: ListenerDialects<P>) {
        self.0.replace(Rc::new(dialects));
    }
}

/// The dialects of one listener. A listener has at least one dialect.
#[derive(Debug)]
pub struct ListenerDialects<P> {
    /// The number that identifies this set of dialects.
    pub dialect_set_id: u64,
    first: Rc<dyn MetadataDialect<P>>,
    others: Vec<Rc<dyn MetadataDialect<P>>>,
}

impl<P> ListenerDialects<P> {
    /// Returns a set of dialects, or `None` if `dialects` is empty.
    /// To find the dialect that serves a target, the listener checks the dialects in the given order.
    pub fn new(dialects: impl IntoIterator<Item = Rc<dyn MetadataDialect<P>>>) -> Option<Self> {
        let mut dialects = dialects.into_iter();
        static MADE: AtomicU64 = AtomicU64::new(0);
        let id = MADE.fetch_add(1, Ordering::Relaxed);
        Some(Self { dialect_set_id: id, first: dialects.next()?, others: dialects.collect() })
    }

    /// Returns the first dialect that serves the canonical path of this target. Each dialect has its own canonicalisation rules.
    /// If no dialect serves the target, or the target has no canonical path, returns the listener's first dialect. That dialect
    /// refuses the request.
    pub fn dialect_for_target(&self, target: &str) -> &dyn MetadataDialect<P> {
        if self.others.is_empty() {
            return &*self.first;
        }
        let claims = |dialect: &&Rc<dyn MetadataDialect<P>>| {
            let target = path::canonicalise_target_with(target, dialect.path_charset());
            target.is_ok_and(|target| dialect.serves_path(target.path.as_str()))
        };
        let claimed = std::iter::once(&self.first).chain(&self.others).find(claims);
        &**claimed.unwrap_or(&self.first)
    }

    /// Returns the listener's first dialect. This dialect also refuses input that is not a request.
    pub fn first(&self) -> &dyn MetadataDialect<P> {
        &*self.first
    }
}
