//! What a listener speaks: the dialects of its clouds, and what each of them decides about a request.
//!
//! The order is the argument, in every dialect: who calls was decided when the connection was accepted; the dialect
//! canonicalises the path once and refuses by default; only then is a lease looked up, under the caller's own holder, which
//! cannot reach anyone else's. All of it is pure functions and reads of memory. A request that needs to wait (a cold lease, a
//! long poll, the real server) becomes a [`DeferredResponse`] and is the caller's task's business, never the thread's.

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
    /// Whose it is.
    fn cloud(&self) -> CloudName;

    /// What its paths hold.
    fn alphabet(&self) -> &'static PathCharset {
        &path::PLAIN
    }

    /// Whether a canonical path is one of this dialect's, where it shares its address with others.
    fn claims(&self, path: &str) -> bool;

    /// Whether a connection goes on after a request with this method: whoever sends a method that the dialect does not know
    /// speaks another protocol.
    fn keeps_alive_after(&self, method: &str) -> bool;

    /// Whether what is asked for with this method is given to whoever asks, so that even a pod that is gone is answered, as
    /// [`Client::Refused`] is.
    fn is_public(&self, _method: &str) -> bool {
        false
    }

    /// How long a request waits until it is decided ([`HandlerOutcome::AwaitIdentity`]): less than its client has patience for.
    fn identity_timeout(&self, head: &RequestHead<'_, '_>) -> Duration;

    /// Answers into `out`, or says what has to be waited for. The caller is not one that is gone.
    fn answer(
        &self,
        caller: &Client<P>,
        asked: RequestContext<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> HandlerOutcome<P>;

    /// Writes a refusal as this dialect's clients read one.
    fn refuse(&self, refusal: &Refusal, frame: &ResponseContext<'_>, request: u64, out: &mut Vec<u8>);
}

/// What became of a request.
#[derive(Debug)]
pub enum HandlerOutcome<P> {
    /// The answer stands in the buffer.
    Answered {
        /// What was asked.
        route: &'static MetadataRoute,
        /// The status of the answer.
        status: u16,
    },
    /// A credential from memory stands in the buffer, with status 200; and the question, if it was to be remembered.
    CacheHit {
        /// What was asked.
        route: &'static MetadataRoute,
        /// What can answer it again.
        question: Option<Box<dyn ReplayableQuery<P>>>,
    },
    /// The answer takes time.
    Deferred(DeferredResponse),
    /// Nothing is answered: it is not known yet who asks ([`Client::Unidentified`]), or what the pod may have of this cloud. What is
    /// anybody's need not wait for that.
    AwaitIdentity,
}

/// One request and its moment.
#[derive(Clone, Copy, Debug)]
pub struct RequestContext<'a, 'h, 'b> {
    /// Its head.
    pub head: &'a RequestHead<'h, 'b>,
    /// What its answer needs to know of it.
    pub frame: &'a ResponseContext<'a>,
    /// Whose shares it takes.
    pub shares: ClientShares<'a>,
    /// Where it came from.
    pub peer: IpAddr,
    /// Its number, which no other request of this process has.
    pub request_id: u64,
    /// When it came: earlier than `now` if it had to wait until it was known who asks.
    pub received_at: Moment,
    /// When it is answered.
    pub now: Moment,
    /// Whether the caller is unsettled and a known pod was the last one told of at its address: who it is will be proven in a moment.
    pub has_likely_pod: bool,
    /// Whether a question that can be answered again without its bytes is to be remembered ([`HandlerOutcome::CacheHit`]).
    pub should_record: bool,
}

/// What a listener speaks: its connections look here at each turn, so that one that is kept is answered as a new one is.
#[derive(Debug)]
pub struct ActiveDialects<P>(RefCell<Rc<ListenerDialects<P>>>);

impl<P> ActiveDialects<P> {
    /// These, until others are spoken.
    pub fn new(dialects: ListenerDialects<P>) -> Self {
        Self(RefCell::new(Rc::new(dialects)))
    }

    /// What is spoken now. For one turn, and never over a wait: who replaces them is another task of the thread.
    pub fn current(&self) -> Ref<'_, Rc<ListenerDialects<P>>> {
        self.0.borrow()
    }

    /// Others from now on.
    pub fn replace(&self, dialects: ListenerDialects<P>) {
        self.0.replace(Rc::new(dialects));
    }
}

/// The dialects of one listener: at least one.
#[derive(Debug)]
pub struct ListenerDialects<P> {
    /// Told from others by this.
    pub id: u64,
    first: Rc<dyn MetadataDialect<P>>,
    others: Vec<Rc<dyn MetadataDialect<P>>>,
}

impl<P> ListenerDialects<P> {
    /// These, in the order in which they are asked whether a target is theirs; nothing of none.
    pub fn new(dialects: impl IntoIterator<Item = Rc<dyn MetadataDialect<P>>>) -> Option<Self> {
        let mut dialects = dialects.into_iter();
        static MADE: AtomicU64 = AtomicU64::new(0);
        let id = MADE.fetch_add(1, Ordering::Relaxed);
        Some(Self { id, first: dialects.next()?, others: dialects.collect() })
    }

    /// Whose this target is: the first one's that claims its canonical path, as that dialect reads it. One that has none, and what
    /// nobody claims, is the first one's to refuse.
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

    /// The one that refuses what is no request.
    pub fn first(&self) -> &dyn MetadataDialect<P> {
        &*self.first
    }
}
