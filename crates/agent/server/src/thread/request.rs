//! One turn: the whole requests in the bytes that were read become answers in the buffer that is written next.

use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use seawall_core::Moment;
use seawall_core::cloud::CloudName;
use seawall_http::request::header_room;
use seawall_http::{Frame, Framing, Parsed, Refusal, RequestHead, Version, parse_request};

use super::{BATCH, REQUESTS, Thread};
use crate::client::{Client, ClientId, ServedPod};
use crate::connection_table::State;
use crate::fairness::clients::Tenant;
use crate::handler::{Asked, Dialect, Dialects, Step};
use crate::replay_cache::Request;
use crate::response::Later;
use crate::route;
use crate::route::Route;

/// What happens once the answers collected so far are written.
pub(super) enum After {
    /// Wait for more bytes.
    Read,
    /// Look at the bytes that were kept: whole requests may stand there.
    Look,
    /// A request takes time.
    Later(Box<Pending>),
    /// It is not known yet who asks, or what it may have of this cloud: wait this long at most, then look at the request, which
    /// was kept.
    Settle(CloudName, Duration),
    /// Close; everything the client sent was understood.
    Close,
    /// Close, but let the client read why: bytes of its are left unread, and closing on them would reset
    /// the connection and destroy the answer on its way.
    Linger,
}

/// The answers to a buffer: how many of its bytes are dealt with, how many requests that were, and what comes next.
pub(super) struct Batch {
    pub(super) taken: usize,
    pub(super) requests: u32,
    pub(super) after: After,
}

/// Between the end of a pod and the end of its connections.
const GONE: Refusal =
    Refusal::new(503, "pod_gone", "The pod of this connection is gone; try again on another one.");

/// Who asks from where, whose shares that takes, and since when it waits.
pub(super) struct Asker<'a, P> {
    pub(super) dialects: &'a Rc<Dialects<P>>,
    pub(super) caller: &'a Client<P>,
    pub(super) tenant: &'a Tenant<P>,
    pub(super) peer: IpAddr,
    /// When the first request came.
    pub(super) came: Moment,
}

impl<P> Clone for Asker<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Asker<'_, P> {}

/// A request that takes time, and what its answer needs to know.
pub(super) struct Pending {
    pub(super) later: Later,
    pub(super) version: Version,
    pub(super) keep_alive: bool,
    pub(super) head_only: bool,
    pub(super) since: Moment,
    pub(super) request: u64,
}

impl After {
    /// What the connection waits for. Whole requests that wait for a turn are under way: nobody may take them for idle.
    pub(super) fn state(&self, kept: bool) -> State {
        match self {
            Self::Later(_) | Self::Settle(..) => State::Busy,
            Self::Look if kept => State::Busy,
            Self::Linger => State::Head,
            _ if kept => State::Head,
            _ => State::Idle,
        }
    }
}

impl<P: ServedPod> Thread<P> {
    /// Answers the whole requests at the start of `bytes`, as many as a turn has room for.
    pub(super) fn answer_all(
        &self,
        asker: Asker<'_, P>,
        bytes: &[u8],
        now: Moment,
        out: &mut Vec<u8>,
    ) -> Batch {
        let mut batch = Batch { taken: 0, requests: 0, after: After::Look };
        while batch.taken < bytes.len() {
            if batch.requests == REQUESTS || out.len() > BATCH {
                return batch;
            }
            if let Some(after) = self.answer_again(asker, bytes, &mut batch, now, out) {
                return Batch { after, ..batch };
            }
        }
        Batch { after: After::Read, ..batch }
    }

    /// Answers the next request, without reading it if it is the one that came before; says what comes next unless it is simply
    /// the next one.
    fn answer_again(
        &self,
        asker: Asker<'_, P>,
        bytes: &[u8],
        batch: &mut Batch,
        now: Moment,
        out: &mut Vec<u8>,
    ) -> Option<After> {
        let rest = &bytes[batch.taken..];
        let again =
            |before: &Request<P>| Some((before.bytes().len(), self.lend_again(asker, before, now, out)?));
        let Some((used, keep_alive)) = asker.tenant.memory.if_again(rest, asker.dialects.id, again) else {
            return self.answer_next(asker, bytes, batch, now, out);
        };
        batch.taken += used;
        batch.requests += 1;
        (!keep_alive).then_some(After::Close)
    }

    /// Whether the connection goes on after it; nothing where the request has to be read.
    fn lend_again(
        &self,
        asker: Asker<'_, P>,
        before: &Request<P>,
        now: Moment,
        out: &mut Vec<u8>,
    ) -> Option<bool> {
        let caller = asker.caller;
        if caller.is_gone() || !owns(caller, asker.tenant) {
            return None;
        }
        let keep_alive = before.goes_on && self.goes_on(caller);
        let mut date = self.date.borrow_mut();
        let date = date.at(&self.shared.clock, now);
        let frame = Frame { date, version: before.version, keep_alive, head_only: before.head_only };
        let route = before.question.answer(caller, &frame, now, out)?;
        self.lent(caller, route, before.bytes(), now);
        Some(keep_alive)
    }

    fn lent(&self, caller: &Client<P>, route: &'static Route, head: &[u8], since: Moment) {
        self.metrics.answered(route, 200, self.shared.clock.now().since(since));
        self.metrics.warm();
        self.fetched(caller, route, Some(head));
    }

    pub(super) fn fetched(&self, caller: &Client<P>, route: &Route, head: Option<&[u8]>) {
        if let Client::Pod(pod) = caller {
            pod.fetched(route, head);
        }
    }

    /// Whether it is that of those whom nobody knows.
    pub(super) fn is_stranger(&self, tenant: &Tenant<P>) -> bool {
        tenant.id == ClientId::STRANGERS
    }

    /// Whether connections of this caller go on as far as it and this thread are concerned.
    fn goes_on(&self, caller: &Client<P>) -> bool {
        !self.draining.get() && !caller.is_passing()
    }

    /// Answers the next request; says what comes next unless it is simply the next one.
    fn answer_next(
        &self,
        asker: Asker<'_, P>,
        bytes: &[u8],
        batch: &mut Batch,
        now: Moment,
        out: &mut Vec<u8>,
    ) -> Option<After> {
        let mut room = header_room();
        match parse_request(&bytes[batch.taken..], &mut room, &self.shared.bounds.wire) {
            Ok(Parsed::Partial) => Some(After::Read),
            Ok(Parsed::Complete(head, used)) => {
                let after = self.answer_one(asker, &head, &bytes[batch.taken..][..used], now, out);
                if !matches!(after, Some(After::Settle(..))) {
                    batch.taken += used;
                    batch.requests += 1;
                }
                after
            }
            Err(error) => {
                let refusal = Refusal::from(error);
                self.write_refusal(asker.dialects, &refusal, out);
                self.metrics.answered(&route::REFUSED, refusal.status, Duration::ZERO);
                batch.taken = bytes.len();
                Some(After::Linger)
            }
        }
    }

    /// What becomes of bytes for which there is no room. A head in part is refused; a pipeline behind a request that is not
    /// answered yet cannot be, so its connection ends.
    pub(super) fn refuse_to_hold(
        &self,
        dialects: &Dialects<P>,
        after: &After,
        out: &mut Vec<u8>,
    ) -> Option<After> {
        const FULL: Refusal = Refusal::new(
            503,
            "half_requests",
            "Too many requests have arrived in part; send each in one piece, or try again shortly.",
        );
        if !matches!(after, After::Read) {
            return None;
        }
        self.write_refusal(dialects, &FULL, out);
        self.metrics.answered(&route::REFUSED, FULL.status, Duration::ZERO);
        Some(After::Linger)
    }

    /// Answers one request; says what comes next unless it is simply the next request.
    fn answer_one(
        &self,
        asker: Asker<'_, P>,
        head: &RequestHead<'_, '_>,
        bytes: &[u8],
        now: Moment,
        out: &mut Vec<u8>,
    ) -> Option<After> {
        let Asker { dialects, caller, tenant, peer, came } = asker;
        let dialect = dialects.of(head.target);
        let request = self.next_request();
        let mut date = self.date.borrow_mut();
        // No metadata request has a body. One that announces a body is refused by the dialect, and as
        // the body's bytes would be taken for the next request, its connection ends. A length of zero announces none.
        let bodiless = matches!(head.framing, Framing::None | Framing::Length(0));
        let goes_on = head.keep_alive && bodiless && dialect.goes_on_after(head.method);
        let keep_alive = goes_on && self.goes_on(caller);
        let date = date.at(&self.shared.clock, now);
        let frame = Frame { keep_alive, ..Frame::of(head, date) };
        let end = || (!keep_alive).then_some(if bodiless { After::Close } else { After::Linger });
        let is_to_be_remembered = bodiless && owns(caller, tenant) && tenant.memory.wants_another();
        let is_expected = matches!(caller, Client::Unsettled) && !self.is_stranger(tenant);
        let asked = Asked {
            head,
            frame: &frame,
            shares: tenant.shares(),
            peer,
            request,
            came,
            now,
            is_expected,
            is_to_be_remembered,
        };
        match answer(dialect, caller, asked, out) {
            Step::Answered { route, status } => {
                self.metrics.answered(route, status, self.shared.clock.now().since(now));
                if status == 200 && route.is_credential() {
                    self.metrics.warm();
                    self.fetched(caller, route, Some(bytes));
                }
                end()
            }
            Step::Lent { route, question } => {
                self.lent(caller, route, bytes, now);
                let request = |question| Request::new(bytes, dialects.id, &frame, goes_on, question);
                if let Some(request) = question.and_then(request) {
                    tenant.memory.remember(request);
                }
                end()
            }
            Step::NotYet => Some(After::Settle(dialect.cloud(), dialect.patience(head))),
            Step::Later(later) => {
                if let Client::Pod(pod) = caller
                    && later.route.is_credential()
                    && !later.is_poll
                {
                    pod.noted(later.route, bytes);
                }
                let Frame { version, head_only, .. } = frame;
                Some(After::Later(Box::new(Pending {
                    later,
                    version,
                    keep_alive,
                    head_only,
                    since: now,
                    request,
                })))
            }
        }
    }
}

/// Whether this caller is the very pod whose shares it takes: only then is what is remembered there its own. Strangers have one
/// tenant together, and who is not settled has that of whoever it may be.
fn owns<P: ServedPod>(caller: &Client<P>, tenant: &Tenant<P>) -> bool {
    matches!(caller, Client::Pod(pod) if pod.id() == tenant.id)
}

/// Has the dialect answer, unless the pod is gone: its address may be another's by now, so no dialect is even asked but for what is
/// anybody's.
fn answer<P: ServedPod>(
    dialect: &dyn Dialect<P>,
    caller: &Client<P>,
    asked: Asked<'_, '_, '_>,
    out: &mut Vec<u8>,
) -> Step<P> {
    if caller.is_gone() {
        if dialect.is_anybodys(asked.head.method) {
            return dialect.answer(&Client::Nobody(GONE), asked, out);
        }
        dialect.refuse(&GONE, asked.frame, asked.request, out);
        return Step::Answered { route: &route::REFUSED, status: GONE.status };
    }
    dialect.answer(caller, asked, out)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use seawall_core::Clock;

    use super::*;
    use crate::fairness::clients::Tenants;
    use crate::replay_cache::Again;
    use crate::testing::{FakePod, thread};

    /// A pod, and its shares of a thread.
    struct World {
        pod: Arc<FakePod>,
        caller: Client<FakePod>,
        tenant: Rc<Tenant<FakePod>>,
        clock: Clock,
    }

    impl World {
        fn new() -> Self {
            let pod = Arc::<FakePod>::default();
            let tenant = Tenants::new(1024, Arc::default()).pod(&*pod);
            Self { caller: Client::Pod(pod.clone()), pod, tenant, clock: Clock::manual().0 }
        }
    }

    fn bytes(request: &str) -> String {
        format!("{request} HTTP/1.1\r\nHost: a\r\nMetadata-Flavor: Google\r\n\r\n")
    }

    /// What comes of some bytes of the world's pod.
    fn ask_of(world: &World, dialects: &Rc<Dialects<FakePod>>, bytes: &str) -> (String, Batch) {
        let World { caller, tenant, clock, .. } = world;
        let peer = IpAddr::from([127, 0, 0, 1]);
        let asker = Asker { dialects, caller, tenant, peer, came: clock.now() };
        let mut out = Vec::new();
        let batch = thread(clock, &[&LOAN]).answer_all(asker, bytes.as_bytes(), clock.now(), &mut out);
        (String::from_utf8(out).unwrap(), batch)
    }

    /// Lends what it has been asked for: the target, read or remembered, with the version and what becomes of the connection.
    #[derive(Debug, Default)]
    struct Lender {
        reads: Cell<u32>,
        is_forgetful: Rc<Cell<bool>>,
    }

    #[derive(Debug)]
    struct Question(String, Rc<Cell<bool>>);

    impl Again<FakePod> for Question {
        fn answer(
            &self,
            _: &Client<FakePod>,
            frame: &Frame<'_>,
            _: Moment,
            out: &mut Vec<u8>,
        ) -> Option<&'static Route> {
            (!self.1.get()).then(|| say(&self.0, frame, out))
        }
    }

    fn say(target: &str, frame: &Frame<'_>, out: &mut Vec<u8>) -> &'static Route {
        let Frame { version, keep_alive, head_only, .. } = frame;
        out.extend(format!("{target} {version:?} {keep_alive} {head_only}\n").into_bytes());
        &LOAN
    }

    static LOAN: Route = Route::credential(CloudName::Google, "loan");

    impl Dialect<FakePod> for Lender {
        fn cloud(&self) -> CloudName {
            CloudName::Google
        }

        fn claims(&self, _: &str) -> bool {
            true
        }

        fn goes_on_after(&self, method: &str) -> bool {
            method != "POST"
        }

        fn patience(&self, _: &RequestHead<'_, '_>) -> Duration {
            Duration::ZERO
        }

        fn answer(&self, _: &Client<FakePod>, asked: Asked<'_, '_, '_>, out: &mut Vec<u8>) -> Step<FakePod> {
            self.reads.set(self.reads.get() + 1);
            let target = asked.head.target;
            let question = || {
                Box::new(Question(target.to_owned(), self.is_forgetful.clone())) as Box<dyn Again<FakePod>>
            };
            let route = say(target, asked.frame, out);
            Step::Lent { route, question: asked.is_to_be_remembered.then(question) }
        }

        fn refuse(&self, refusal: &Refusal, _: &Frame<'_>, _: u64, out: &mut Vec<u8>) {
            out.extend_from_slice(refusal.code.as_bytes());
        }
    }

    fn lender() -> (Rc<Lender>, Rc<Dialects<FakePod>>) {
        let lender = Rc::new(Lender::default());
        let dialects = Dialects::new([lender.clone() as Rc<dyn Dialect<FakePod>>]).unwrap();
        (lender, Rc::new(dialects))
    }

    #[tokio::test]
    async fn what_comes_again_is_answered_as_if_it_was_read() {
        let world = World::new();
        let heads = [
            bytes("GET /a"),
            bytes("HEAD /a"),
            bytes("POST /a"),
            "GET /a HTTP/1.0\r\n\r\n".to_owned(),
            "\r\nGET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_owned(),
        ];
        for head in heads {
            let (lender, dialects) = lender();
            let (read, first) = ask_of(&world, &dialects, &head);
            let (again, second) = ask_of(&world, &dialects, &head);
            assert_eq!((lender.reads.get(), &again), (1, &read), "{head}");
            assert_eq!(
                (first.taken, first.requests, matches!(first.after, After::Close)),
                (second.taken, second.requests, matches!(second.after, After::Close))
            );
            world.tenant.memory.forget();
        }
    }

    #[tokio::test]
    async fn other_bytes_and_other_dialects_are_read() {
        let world = World::new();
        let ((lender, dialects), (other, other_dialects)) = (lender(), lender());
        ask_of(&world, &dialects, &bytes("GET /a"));
        for request in ["GET /b", "GET /a?b", "get /a", "GET /a "] {
            let before = lender.reads.get();
            ask_of(&world, &dialects, &bytes(request));
            assert!(lender.reads.get() == before + 1 || request.ends_with(' '), "{request}");
        }
        ask_of(&world, &other_dialects, &bytes("GET /a"));
        assert_eq!(other.reads.get(), 1);
        let part = bytes("GET /a");
        let (answer, batch) = ask_of(&world, &dialects, &part[..part.len() - 1]);
        assert!(answer.is_empty() && batch.taken == 0, "a head in part is nothing yet");
    }

    #[tokio::test]
    async fn a_pipeline_of_what_came_before_and_of_others_is_answered_in_its_order() {
        let world = World::new();
        let (lender, dialects) = lender();
        let (a, b) = (bytes("GET /a"), bytes("GET /b"));
        let (answers, batch) = ask_of(&world, &dialects, &[&a[..], &a, &b, &a].concat());
        let targets: Vec<_> = answers.lines().map(|line| &line[..2]).collect();
        assert_eq!(targets, ["/a", "/a", "/b", "/a"]);
        assert_eq!((batch.requests, lender.reads.get()), (4, 2));
    }

    #[tokio::test]
    async fn what_is_remembered_is_no_answer() {
        let world = World::new();
        let (lender, dialects) = lender();
        let head = bytes("GET /a");
        ask_of(&world, &dialects, &head);
        lender.is_forgetful.set(true);
        ask_of(&world, &dialects, &head);
        assert_eq!(lender.reads.get(), 2, "the dialect cannot answer it again, so it is read");
        lender.is_forgetful.set(false);
        world.pod.connections().close();
        let (answer, batch) = ask_of(&world, &dialects, &head);
        assert!(answer.contains("pod_gone") && matches!(batch.after, After::Close), "{answer}");
    }

    #[tokio::test]
    async fn nothing_is_remembered_among_strangers_or_of_whom_a_pod_may_be() {
        for caller in [Client::Anyone, Client::Unsettled] {
            let mut world = World::new();
            world.caller = caller;
            let (lender, dialects) = lender();
            for reads in 1..4 {
                ask_of(&world, &dialects, &bytes("GET /a"));
                assert_eq!(lender.reads.get(), reads);
            }
        }
    }

    #[tokio::test]
    async fn the_last_of_many_others_is_remembered_and_not_each_of_them() {
        let world = World::new();
        let (lender, dialects) = lender();
        let heads = [bytes("GET /a"), bytes("GET /b")];
        for head in heads.iter().cycle().take(40) {
            ask_of(&world, &dialects, head);
        }
        let reads = lender.reads.get();
        assert!((20..=24).contains(&reads), "one of the two is answered again and again: {reads}");
    }
}
