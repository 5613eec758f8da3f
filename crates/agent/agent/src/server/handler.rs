//! What a listener speaks: the dialects of its clouds, and what each of them decides about a request.
//!
//! The order is the argument, in every dialect: who calls was decided when the connection was accepted; the dialect
//! canonicalises the path once and refuses by default; only then is a lease looked up, under the caller's own holder, which
//! cannot reach anyone else's. All of it is pure functions and reads of memory. A request that needs to wait (a cold lease, a
//! long poll, the real server) becomes a [`Later`] and is the caller's task's business, never the thread's.

use std::cell::{Ref, RefCell};
use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use seawall_core::Moment;
use seawall_core::cloud::CloudName;
use seawall_http::path::{self, Alphabet};
use seawall_http::{Frame, Refusal, RequestHead};

use super::connection_table::ClientShares;
use super::replay_cache::Again;
use super::response::Later;
use super::route::Route;
use crate::identity::resolver::Caller;

/// A cloud's metadata dialect, as one traffic thread speaks it.
pub(crate) trait Dialect: fmt::Debug {
    /// Whose it is.
    fn cloud(&self) -> CloudName;

    /// What its paths hold.
    fn alphabet(&self) -> &'static Alphabet {
        &path::PLAIN
    }

    /// Whether a canonical path is one of this dialect's, where it shares its address with others.
    fn claims(&self, path: &str) -> bool;

    /// Whether a connection goes on after a request with this method: whoever sends a method that the dialect does not know
    /// speaks another protocol.
    fn goes_on_after(&self, method: &str) -> bool;

    /// Whether what is asked for with this method is given to whoever asks, so that even a pod that is gone is answered, as
    /// [`Caller::Nobody`] is.
    fn is_anybodys(&self, _method: &str) -> bool {
        false
    }

    /// How long a request waits until it is decided ([`Step::NotYet`]): less than its client has patience for.
    fn patience(&self, head: &RequestHead<'_, '_>) -> Duration;

    /// Answers into `out`, or says what has to be waited for. The caller is not one that is gone.
    fn answer(&self, caller: &Caller, asked: Asked<'_, '_, '_>, out: &mut Vec<u8>) -> Step;

    /// Writes a refusal as this dialect's clients read one.
    fn refuse(&self, refusal: &Refusal, frame: &Frame<'_>, request: u64, out: &mut Vec<u8>);
}

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Step {
    /// The answer stands in the buffer.
    Answered { route: &'static Route, status: u16 },
    /// A credential from memory stands in the buffer, with status 200; and the question, if it was to be remembered.
    Lent { route: &'static Route, question: Option<Box<dyn Again>> },
    /// The answer takes time.
    Later(Later),
    /// Nothing is answered: it is not known yet who asks ([`Caller::Unsettled`]), or what the pod may have of this cloud. What is
    /// anybody's need not wait for that.
    NotYet,
}

/// One request and its moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a, 'h, 'b> {
    pub(crate) head: &'a RequestHead<'h, 'b>,
    pub(crate) frame: &'a Frame<'a>,
    /// Whose shares it takes.
    pub(crate) shares: ClientShares<'a>,
    /// Where it came from.
    pub(crate) peer: IpAddr,
    pub(crate) request: u64,
    /// When it came: earlier than `now` if it had to wait until it was known who asks.
    pub(crate) came: Moment,
    pub(crate) now: Moment,
    /// Whether the caller is unsettled and a known pod was the last one told of at its address: who it is will be proven in a moment.
    pub(crate) is_expected: bool,
    /// Whether a question that can be answered again without its bytes is to be remembered ([`Step::Lent`]).
    pub(crate) is_to_be_remembered: bool,
}

/// What a listener speaks: its connections look here at each turn, so that one that is kept is answered as a new one is.
#[derive(Debug)]
pub(crate) struct Spoken(RefCell<Rc<Dialects>>);

impl Spoken {
    /// These, until others are spoken.
    pub(crate) fn new(dialects: Dialects) -> Self {
        Self(RefCell::new(Rc::new(dialects)))
    }

    /// What is spoken now. For one turn, and never over a wait: who replaces them is another task of the thread.
    pub(crate) fn now(&self) -> Ref<'_, Rc<Dialects>> {
        self.0.borrow()
    }

    /// Others from now on.
    pub(crate) fn replace(&self, dialects: Dialects) {
        self.0.replace(Rc::new(dialects));
    }
}

/// The dialects of one listener: at least one.
#[derive(Debug)]
pub(crate) struct Dialects {
    first: Rc<dyn Dialect>,
    others: Vec<Rc<dyn Dialect>>,
}

impl Dialects {
    /// These, in the order in which they are asked whether a target is theirs; nothing of none.
    pub(crate) fn new(dialects: impl IntoIterator<Item = Rc<dyn Dialect>>) -> Option<Self> {
        let mut dialects = dialects.into_iter();
        Some(Self { first: dialects.next()?, others: dialects.collect() })
    }

    /// Whose this target is: the first one's that claims its canonical path, as that dialect reads it. One that has none, and what
    /// nobody claims, is the first one's to refuse.
    pub(crate) fn of(&self, target: &str) -> &dyn Dialect {
        if self.others.is_empty() {
            return &*self.first;
        }
        let claims = |dialect: &&Rc<dyn Dialect>| {
            let target = path::canonicalise_in(target, dialect.alphabet());
            target.is_ok_and(|target| dialect.claims(target.path.as_str()))
        };
        let claimed = std::iter::once(&self.first).chain(&self.others).find(claims);
        &**claimed.unwrap_or(&self.first)
    }

    /// The one that refuses what is no request.
    pub(crate) fn first(&self) -> &dyn Dialect {
        &*self.first
    }
}
