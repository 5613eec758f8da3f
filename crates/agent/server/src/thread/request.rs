//! Handles one turn of a connection. The thread parses all complete requests in the bytes that it has read, and writes the answers
//! into one output buffer.

use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use seawall_core::Moment;
use seawall_core::cloud::CloudName;
use seawall_http::request::header_buffer;
use seawall_http::{Framing, HttpVersion, Parsed, Refusal, RequestHead, ResponseContext, parse_request};

use super::{BATCH, FULL, GONE, REQUESTS, ThreadPhase, TrafficThread};
use crate::connection_client::{Client, ClientId, ServedPod};
use crate::connection_table::ConnectionState;
use crate::fairness::tenants::Tenant;
use crate::handler::{HandlerOutcome, ListenerDialects, MetadataDialect, RequestContext};
use crate::repeated_request_cache::CachedRequest;
use crate::response::DeferredResponse;
use crate::route;
use crate::route::MetadataRoute;

/// The next action of the connection, after the thread has written the answers of the turn.
pub(super) enum NextAction {
    /// Wait for more bytes.
    Read,
    /// Parse the buffered bytes, because they may contain complete requests.
    ReadBuffered,
    /// Wait for an answer that is not ready yet.
    Deferred(Box<PendingResponse>),
    /// Wait for the client's identity or for its entitlements at this cloud, but at most for this duration.
    /// Then parse the request again. Its bytes stay in the buffer during the wait.
    AwaitIdentity(CloudName, Duration),
    /// Close the connection. The thread has read and parsed all bytes that the client has sent.
    Close,
    /// Close the connection after the client has had time to read the refusal.
    /// Some bytes of the client can still be unread. In that case, an immediate close would reset the connection, and the client
    /// could lose the refusal.
    Linger,
}

/// The outcome of one batch of requests: the number of processed bytes, the number of requests, and the next action.
pub(super) struct BatchOutcome {
    pub(super) consumed_bytes: usize,
    pub(super) request_count: u32,
    pub(super) next_action: NextAction,
}

/// The origin of a request: its client, dialects, tenant, IP address and arrival time.
pub(super) struct RequestOrigin<'a, P> {
    pub(super) dialects: &'a Rc<ListenerDialects<P>>,
    pub(super) client: &'a Client<P>,
    pub(super) tenant: &'a Tenant<P>,
    pub(super) peer_ip: IpAddr,
    /// The arrival time of the first request in the buffer.
    pub(super) received_at: Moment,
    /// True if the connection ends after this answer, because the client has reached its share of connections.
    pub(super) is_guest: bool,
}

impl<P> Clone for RequestOrigin<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for RequestOrigin<'_, P> {}

/// A request whose answer is not ready yet, and the data that the thread needs to send the answer.
pub(super) struct PendingResponse {
    pub(super) response: DeferredResponse,
    pub(super) version: HttpVersion,
    pub(super) keep_alive: bool,
    pub(super) head_only: bool,
    pub(super) handling_started: Moment,
}

impl NextAction {
    /// Returns the state of the connection during this action. `kept` is true if the connection has buffered bytes.
    /// A connection with complete requests in its buffer is busy.
    pub(super) fn connection_state(&self, kept: bool) -> ConnectionState {
        match self {
            Self::Deferred(_) | Self::AwaitIdentity(..) => ConnectionState::Busy,
            Self::ReadBuffered if kept => ConnectionState::Busy,
            Self::Linger => ConnectionState::AwaitingHead,
            _ if kept => ConnectionState::AwaitingHead,
            _ => ConnectionState::Idle,
        }
    }
}

impl<P: ServedPod> TrafficThread<P> {
    /// Answers the complete requests at the start of `bytes`, up to the limit of one turn.
    pub(super) fn answer_requests(
        &self,
        asker: RequestOrigin<'_, P>,
        bytes: &[u8],
        now: Moment,
        out: &mut Vec<u8>,
    ) -> BatchOutcome {
        let mut batch =
            BatchOutcome { consumed_bytes: 0, request_count: 0, next_action: NextAction::ReadBuffered };
        while batch.consumed_bytes < bytes.len() {
            if batch.request_count == REQUESTS || out.len() > BATCH {
                return batch;
            }
            if let Some(after) = self.answer_again(asker, bytes, &mut batch, now, out) {
                return BatchOutcome { next_action: after, ..batch };
            }
        }
        BatchOutcome { next_action: NextAction::Read, ..batch }
    }

    /// Answers the next request from the replay cache if the request equals the recorded request. Otherwise parses the request.
    /// Returns the next action of the connection, or `None` if the thread must continue with the next request.
    fn answer_again(
        &self,
        asker: RequestOrigin<'_, P>,
        bytes: &[u8],
        batch: &mut BatchOutcome,
        now: Moment,
        out: &mut Vec<u8>,
    ) -> Option<NextAction> {
        let rest = &bytes[batch.consumed_bytes..];
        let again = |before: &CachedRequest<P>| {
            Some((before.bytes().len(), self.lend_again(asker, before, now, out)?))
        };
        let Some((used, keep_alive)) =
            asker.tenant.parsed_request_cache.replay(rest, asker.dialects.dialect_set_id, again)
        else {
            return self.answer_next(asker, bytes, batch, now, out);
        };
        batch.consumed_bytes += used;
        batch.request_count += 1;
        (!keep_alive).then_some(NextAction::Close)
    }

    /// Replays a recorded query.
    /// Returns whether the connection stays open, or `None` if the thread must parse the request.
    fn lend_again(
        &self,
        asker: RequestOrigin<'_, P>,
        before: &CachedRequest<P>,
        now: Moment,
        out: &mut Vec<u8>,
    ) -> Option<bool> {
        let caller = asker.client;
        if caller.is_pod_gone() || !owns(caller, asker.tenant) {
            return None;
        }
        let keep_alive = before.keep_alive && self.goes_on(asker);
        let mut date = self.date.borrow_mut();
        let date = date.at(&self.shared.clock, now);
        let frame =
            ResponseContext { date, version: before.http_version, keep_alive, head_only: before.head_only };
        let route = before.query.answer(caller, &frame, now, out)?;
        self.lent(caller, route, before.bytes(), now);
        Some(keep_alive)
    }

    fn lent(&self, caller: &Client<P>, route: &'static MetadataRoute, head: &[u8], since: Moment) {
        self.metrics.record_response(route, 200, self.shared.clock.now().since(since));
        self.metrics.record_cache_hit();
        self.count_credential_for_pod(caller, route, Some(head));
    }

    pub(super) fn count_credential_for_pod(
        &self,
        caller: &Client<P>,
        route: &MetadataRoute,
        head: Option<&[u8]>,
    ) {
        if let Client::Pod(pod) = caller {
            pod.record_fetch(route, head);
        }
    }

    /// True if the tenant is the shared tenant of all unknown clients.
    pub(super) fn is_unknown_client(&self, tenant: &Tenant<P>) -> bool {
        tenant.id == ClientId::UNKNOWN
    }

    /// True if the state of the client and of the thread allows the connection to stay open after the answer.
    /// The caller also checks the request.
    fn goes_on(&self, asker: RequestOrigin<'_, P>) -> bool {
        self.phase.get() == ThreadPhase::Serving
            && !asker.is_guest
            && !asker.client.can_address_change_client()
            && !asker.tenant.should_give_back_connection()
    }

    /// Parses and answers the next request.
    /// Returns the next action of the connection, or `None` if the thread must continue with the next request.
    fn answer_next(
        &self,
        asker: RequestOrigin<'_, P>,
        bytes: &[u8],
        batch: &mut BatchOutcome,
        now: Moment,
        out: &mut Vec<u8>,
    ) -> Option<NextAction> {
        let mut room = header_buffer();
        match parse_request(&bytes[batch.consumed_bytes..], &mut room, &self.shared.limits.head_limits) {
            Ok(Parsed::Partial) => Some(NextAction::Read),
            Ok(Parsed::Complete(head, used)) => {
                let after = self.answer_one(asker, &head, &bytes[batch.consumed_bytes..][..used], now, out);
                if !matches!(after, Some(NextAction::AwaitIdentity(..))) {
                    batch.consumed_bytes += used;
                    batch.request_count += 1;
                }
                after
            }
            Err(error) => {
                let refusal = Refusal::from(error);
                self.write_refusal(asker.dialects, &refusal, out);
                self.metrics.record_response(&route::REFUSED, refusal.status, Duration::ZERO);
                batch.consumed_bytes = bytes.len();
                Some(NextAction::Linger)
            }
        }
    }

    /// Handles bytes that do not fit into the buffer.
    /// If the bytes are an incomplete request head, the thread refuses the request. If the bytes are pipelined requests that
    /// follow an unanswered request, the thread cannot refuse these requests. In this case, the function returns `None`, and the
    /// connection ends.
    pub(super) fn refuse_unbufferable_head(
        &self,
        dialects: &ListenerDialects<P>,
        after: &NextAction,
        out: &mut Vec<u8>,
    ) -> Option<NextAction> {
        const FULL: Refusal = Refusal::new(
            503,
            "too_many_incomplete_requests",
            "Too many requests are incomplete; send each request in one piece, or try again shortly.",
        );
        if !matches!(after, NextAction::Read) {
            return None;
        }
        self.write_refusal(dialects, &FULL, out);
        self.metrics.record_response(&route::REFUSED, FULL.status, Duration::ZERO);
        Some(NextAction::Linger)
    }

    /// Answers one request.
    /// Returns the next action of the connection, or `None` if the thread must continue with the next request.
    fn answer_one(
        &self,
        asker: RequestOrigin<'_, P>,
        head: &RequestHead<'_, '_>,
        bytes: &[u8],
        now: Moment,
        out: &mut Vec<u8>,
    ) -> Option<NextAction> {
        let RequestOrigin { dialects, client: caller, tenant, peer_ip: peer, received_at: came, is_guest } =
            asker;
        let dialect = dialects.dialect_for_target(head.target);
        let mut date = self.date.borrow_mut();
        // Metadata requests have no body. The dialect refuses a request with a body. After this refusal, the connection ends,
        // because otherwise the thread would parse the body as the next request. A request with `Content-Length: 0` has no body.
        let bodiless = matches!(head.framing, Framing::None | Framing::Length(0));
        let goes_on = head.keep_alive && bodiless && dialect.keeps_alive_after(head.method);
        let keep_alive = goes_on && self.goes_on(asker);
        let date = date.at(&self.shared.clock, now);
        let frame = ResponseContext { keep_alive, ..ResponseContext::for_request(head, date) };
        let end = || (!keep_alive).then_some(if bodiless { NextAction::Close } else { NextAction::Linger });
        let is_to_be_remembered =
            bodiless && owns(caller, tenant) && tenant.parsed_request_cache.should_record();
        let is_expected = matches!(caller, Client::Unidentified) && !self.is_unknown_client(tenant);
        let asked = RequestContext {
            head,
            response_context: &frame,
            shares: tenant.client_shares(),
            peer_ip: peer,
            received_at: came,
            now,
            has_likely_pod: is_expected,
            should_return_replayable_query: is_to_be_remembered,
        };
        match answer(dialect, caller, asked, out) {
            HandlerOutcome::Answered { route, status } => {
                self.metrics.record_response(route, status, self.shared.clock.now().since(now));
                if status == 200 && route.is_credential() {
                    self.metrics.record_cache_hit();
                    self.count_credential_for_pod(caller, route, Some(bytes));
                }
                end()
            }
            HandlerOutcome::CacheHit { route, question } => {
                self.lent(caller, route, bytes, now);
                let request =
                    |question| CachedRequest::new(bytes, dialects.dialect_set_id, &frame, goes_on, question);
                if let Some(request) = question.and_then(request) {
                    tenant.parsed_request_cache.record_parsed_request(request);
                }
                end()
            }
            HandlerOutcome::AwaitIdentity => {
                Some(NextAction::AwaitIdentity(dialect.cloud(), dialect.identity_timeout(head)))
            }
            // A long poll keeps its connection open for minutes, but a shard has only few slots for guests.
            HandlerOutcome::Deferred(later) if is_guest && later.is_long_poll => {
                dialect.refuse(&FULL, &frame, out);
                self.metrics.record_response(&route::REFUSED, FULL.status, Duration::ZERO);
                Some(NextAction::Close)
            }
            HandlerOutcome::Deferred(later) => {
                if let Client::Pod(pod) = caller
                    && later.route.is_credential()
                    && !later.is_long_poll
                {
                    pod.record_pending_fetch(later.route, bytes);
                }
                let ResponseContext { version, head_only, .. } = frame;
                Some(NextAction::Deferred(Box::new(PendingResponse {
                    response: later,
                    version,
                    keep_alive,
                    head_only,
                    handling_started: now,
                })))
            }
        }
    }
}

/// True if the client is the pod that owns this tenant. Only such a client can use the tenant's recorded queries.
/// Unknown clients share one tenant, and an unidentified client uses the tenant of its likely pod.
fn owns<P: ServedPod>(caller: &Client<P>, tenant: &Tenant<P>) -> bool {
    matches!(caller, Client::Pod(pod) if pod.id() == tenant.id)
}

/// Lets the dialect answer the request. For a deleted pod, the dialect answers only public requests.
/// Another pod may already have the address of the deleted pod.
fn answer<P: ServedPod>(
    dialect: &dyn MetadataDialect<P>,
    caller: &Client<P>,
    asked: RequestContext<'_, '_, '_>,
    out: &mut Vec<u8>,
) -> HandlerOutcome<P> {
    if caller.is_pod_gone() {
        if dialect.answers_any_client(asked.head.method) {
            return dialect.answer(&Client::Refused(GONE), asked, out);
        }
        dialect.refuse(&GONE, asked.response_context, out);
        return HandlerOutcome::Answered { route: &route::REFUSED, status: GONE.status };
    }
    dialect.answer(caller, asked, out)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use seawall_core::Clock;

    use super::*;
    use crate::fairness::tenants::Tenants;
    use crate::repeated_request_cache::ReplayableQuery;
    use crate::testing::{FakePod, new_test_thread};

    /// A pod and its tenant on a thread.
    struct World {
        pod: Arc<FakePod>,
        caller: Client<FakePod>,
        tenant: Rc<Tenant<FakePod>>,
        clock: Clock,
    }

    impl World {
        fn new() -> Self {
            let pod = Arc::<FakePod>::default();
            let tenant = Tenants::new(1024, Arc::default()).tenant_of_pod(&*pod);
            Self { caller: Client::Pod(pod.clone()), pod, tenant, clock: Clock::manual().0 }
        }
    }

    fn bytes(request: &str) -> String {
        format!("{request} HTTP/1.1\r\nHost: a\r\nMetadata-Flavor: Google\r\n\r\n")
    }

    /// Returns the thread's answers to these bytes of the pod.
    fn ask_of(
        world: &World,
        dialects: &Rc<ListenerDialects<FakePod>>,
        bytes: &str,
    ) -> (String, BatchOutcome) {
        let World { caller, tenant, clock, .. } = world;
        let peer = IpAddr::from([127, 0, 0, 1]);
        let asker = RequestOrigin {
            dialects,
            client: caller,
            tenant,
            peer_ip: peer,
            received_at: clock.now(),
            is_guest: false,
        };
        let mut out = Vec::new();
        let batch =
            new_test_thread(clock, &[&LOAN]).answer_requests(asker, bytes.as_bytes(), clock.now(), &mut out);
        (String::from_utf8(out).unwrap(), batch)
    }

    /// A dialect that answers from memory. The answer shows the target, the version, and whether the connection stays open.
    #[derive(Debug, Default)]
    struct Lender {
        reads: Cell<u32>,
        is_forgetful: Rc<Cell<bool>>,
    }

    #[derive(Debug)]
    struct Question(String, Rc<Cell<bool>>);

    impl ReplayableQuery<FakePod> for Question {
        fn answer(
            &self,
            _: &Client<FakePod>,
            frame: &ResponseContext<'_>,
            _: Moment,
            out: &mut Vec<u8>,
        ) -> Option<&'static MetadataRoute> {
            (!self.1.get()).then(|| say(&self.0, frame, out))
        }
    }

    fn say(target: &str, frame: &ResponseContext<'_>, out: &mut Vec<u8>) -> &'static MetadataRoute {
        let ResponseContext { version, keep_alive, head_only, .. } = frame;
        out.extend(format!("{target} {version:?} {keep_alive} {head_only}\n").into_bytes());
        &LOAN
    }

    static LOAN: MetadataRoute = MetadataRoute::with_credential(CloudName::Google, "loan");

    impl MetadataDialect<FakePod> for Lender {
        fn cloud(&self) -> CloudName {
            CloudName::Google
        }

        fn serves_path(&self, _: &str) -> bool {
            true
        }

        fn keeps_alive_after(&self, method: &str) -> bool {
            method != "POST"
        }

        fn identity_timeout(&self, _: &RequestHead<'_, '_>) -> Duration {
            Duration::ZERO
        }

        fn answer(
            &self,
            _: &Client<FakePod>,
            asked: RequestContext<'_, '_, '_>,
            out: &mut Vec<u8>,
        ) -> HandlerOutcome<FakePod> {
            self.reads.set(self.reads.get() + 1);
            let target = asked.head.target;
            let question = || {
                Box::new(Question(target.to_owned(), self.is_forgetful.clone()))
                    as Box<dyn ReplayableQuery<FakePod>>
            };
            let route = say(target, asked.response_context, out);
            HandlerOutcome::CacheHit { route, question: asked.should_return_replayable_query.then(question) }
        }

        fn refuse(&self, refusal: &Refusal, _: &ResponseContext<'_>, out: &mut Vec<u8>) {
            out.extend_from_slice(refusal.code.as_bytes());
        }
    }

    fn lender() -> (Rc<Lender>, Rc<ListenerDialects<FakePod>>) {
        let lender = Rc::new(Lender::default());
        let dialects = ListenerDialects::new([lender.clone() as Rc<dyn MetadataDialect<FakePod>>]).unwrap();
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
                (first.consumed_bytes, first.request_count, matches!(first.next_action, NextAction::Close)),
                (
                    second.consumed_bytes,
                    second.request_count,
                    matches!(second.next_action, NextAction::Close)
                )
            );
            world.tenant.parsed_request_cache.forget();
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
        assert!(answer.is_empty() && batch.consumed_bytes == 0, "an incomplete head gets no answer");
    }

    #[tokio::test]
    async fn a_pipeline_of_what_came_before_and_of_others_is_answered_in_its_order() {
        let world = World::new();
        let (lender, dialects) = lender();
        let (a, b) = (bytes("GET /a"), bytes("GET /b"));
        let (answers, batch) = ask_of(&world, &dialects, &[&a[..], &a, &b, &a].concat());
        let targets: Vec<_> = answers.lines().map(|line| &line[..2]).collect();
        assert_eq!(targets, ["/a", "/a", "/b", "/a"]);
        assert_eq!((batch.request_count, lender.reads.get()), (4, 2));
    }

    #[tokio::test]
    async fn what_is_remembered_is_no_answer() {
        let world = World::new();
        let (lender, dialects) = lender();
        let head = bytes("GET /a");
        ask_of(&world, &dialects, &head);
        lender.is_forgetful.set(true);
        ask_of(&world, &dialects, &head);
        assert_eq!(
            lender.reads.get(),
            2,
            "the dialect cannot replay the query, so the thread parses the request"
        );
        lender.is_forgetful.set(false);
        world.pod.connections().close();
        let (answer, batch) = ask_of(&world, &dialects, &head);
        assert!(answer.contains("pod_gone") && matches!(batch.next_action, NextAction::Close), "{answer}");
    }

    #[tokio::test]
    async fn nothing_is_remembered_among_strangers_or_of_whom_a_pod_may_be() {
        for caller in [Client::Anyone, Client::Unidentified] {
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
        assert!((20..=24).contains(&reads), "the thread replays one of the two requests: {reads}");
    }
}
