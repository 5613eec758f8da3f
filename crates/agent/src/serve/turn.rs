//! One turn: the whole requests in the bytes that were read become answers in the buffer that is written next.

use std::time::Duration;

use seawall_cloud::{Frame, Refusal};
use seawall_core::Moment;
use seawall_wire::request::header_room;
use seawall_wire::{Framing, Parsed, RequestHead, Version, parse_request};

use super::{BATCH, REQUESTS, Thread};
use crate::callers::Caller;
use crate::cloud::names::CloudName;
use crate::connections::State;
use crate::dialect::{Asked, Dialect, Dialects, Step};
use crate::reply::Later;
use crate::route;
use crate::tenants::Tenant;

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

/// Who asks, whose shares that takes, and since when it waits.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    pub(super) dialects: &'a Dialects,
    pub(super) caller: &'a Caller,
    pub(super) tenant: &'a Tenant,
    /// When the first request came.
    pub(super) came: Moment,
}

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

impl Thread {
    /// Answers the whole requests at the start of `bytes`, as many as a turn has room for.
    pub(super) fn answer_all(&self, asker: Asker<'_>, bytes: &[u8], now: Moment, out: &mut Vec<u8>) -> Batch {
        let mut batch = Batch { taken: 0, requests: 0, after: After::Look };
        while batch.taken < bytes.len() {
            if batch.requests == REQUESTS || out.len() > BATCH {
                return batch;
            }
            if let Some(after) = self.answer_next(asker, bytes, &mut batch, now, out) {
                return Batch { after, ..batch };
            }
        }
        Batch { after: After::Read, ..batch }
    }

    /// Answers the next request; says what comes next unless it is simply the next one.
    fn answer_next(
        &self,
        asker: Asker<'_>,
        bytes: &[u8],
        batch: &mut Batch,
        now: Moment,
        out: &mut Vec<u8>,
    ) -> Option<After> {
        let mut room = header_room();
        match parse_request(&bytes[batch.taken..], &mut room, &self.shared.bounds.wire) {
            Ok(Parsed::Partial) => Some(After::Read),
            Ok(Parsed::Complete(head, used)) => {
                let after = self.answer_one(asker, &head, now, out);
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
        dialects: &Dialects,
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
        asker: Asker<'_>,
        head: &RequestHead<'_, '_>,
        now: Moment,
        out: &mut Vec<u8>,
    ) -> Option<After> {
        let Asker { dialects, caller, tenant, came } = asker;
        let dialect = dialects.of(head.target);
        let request = self.next_request();
        let mut date = self.date.borrow_mut();
        // No metadata request has a body. One that announces a body is refused by the dialect, and as
        // the body's bytes would be taken for the next request, its connection ends. A length of zero announces none.
        let bodiless = matches!(head.framing, Framing::None | Framing::Length(0));
        let goes_on = bodiless && dialect.goes_on_after(head.method);
        let keep_alive = head.keep_alive && goes_on && !self.draining.get() && !caller.is_passing();
        let date = date.at(&self.shared.clock, now);
        let frame = Frame { keep_alive, ..Frame::of(head, date) };
        let asked = Asked { head, frame: &frame, tenant, request, came, now };
        match answer(dialect, caller, asked, out) {
            Step::Answered { route, status } => {
                self.metrics.answered(route, status, self.shared.clock.now().since(now));
                if status == 200 && route.is_credential() {
                    self.metrics.warm();
                }
                let end = if bodiless { After::Close } else { After::Linger };
                (!keep_alive).then_some(end)
            }
            Step::NotYet => Some(After::Settle(dialect.cloud(), dialect.patience(head))),
            Step::Later(later) => {
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

/// Has the dialect answer, unless the pod is gone: its address may be another's by now, so no dialect is even asked.
fn answer(dialect: &dyn Dialect, caller: &Caller, asked: Asked<'_, '_, '_>, out: &mut Vec<u8>) -> Step {
    if caller.is_gone() {
        dialect.refuse(&GONE, asked.frame, asked.request, out);
        return Step::Answered { route: &route::REFUSED, status: GONE.status };
    }
    dialect.answer(caller, asked, out)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::callers::Callers;
    use crate::cloud::tests::{BOTH_BROKERED, World};
    use crate::connections::Timeouts;
    use crate::lifecycle;
    use crate::metrics::Traffic;
    use crate::ready::ProbeAddress;
    use crate::serve::{Bounds, Shared};

    fn thread(world: &World) -> Thread {
        let timeouts = Timeouts { head: Duration::from_secs(1), idle: Duration::from_secs(1) };
        let wire = seawall_wire::Limits::default();
        let shared = Shared {
            clock: world.clock.clone(),
            callers: Arc::new(Callers::anyone(ProbeAddress::default())),
            open: Arc::default(),
            strangers: Arc::default(),
            bounds: Bounds {
                connections: 8,
                connections_per_caller: 8,
                held: 8 * 1024,
                cores: None,
                timeouts,
                wire,
            },
        };
        Thread::new(shared, Vec::new(), Arc::new(Traffic::new(&[])), lifecycle::switch().1, 0).unwrap()
    }

    /// What comes of one request of the world's pod.
    fn ask(world: &World, request: &str) -> (String, Batch) {
        let World { dialects, caller, tenant, clock, .. } = world;
        let bytes = format!("{request} HTTP/1.1\r\nHost: a\r\nMetadata-Flavor: Google\r\n\r\n");
        let asker = Asker { dialects, caller, tenant, came: clock.now() };
        let mut out = Vec::new();
        let batch = thread(world).answer_all(asker, bytes.as_bytes(), clock.now(), &mut out);
        (String::from_utf8(out).unwrap(), batch)
    }

    #[tokio::test]
    async fn a_pod_that_is_gone_is_refused_whatever_dialect_it_asks() {
        let world = World::new();
        world.pod().connections.close();
        for request in ["PUT /tide/pass", "GET /computeMetadata/v1/", "GET /nobodys"] {
            let (answer, batch) = ask(&world, request);
            assert!(
                answer.starts_with("HTTP/1.1 503 ") && answer.contains("pod_gone"),
                "{request}: {answer}"
            );
            assert!(matches!(batch.after, After::Close), "{request}");
        }
    }

    #[tokio::test]
    async fn only_the_cloud_that_is_not_decided_holds_its_requests() {
        let world = World::of(BOTH_BROKERED);
        let (answer, batch) = ask(&world, "GET /computeMetadata/v1/instance/service-accounts/default/token");
        let half_a_second = Duration::from_millis(500);
        assert!(
            matches!(batch.after, After::Settle(CloudName::Google, patience) if patience == half_a_second)
        );
        assert!(answer.is_empty() && batch.taken == 0, "it is looked at again: {answer}");
        let (_, batch) = ask(&world, "PUT /tide/pass");
        assert!(matches!(batch.after, After::Later(_)), "at once, as far as Tide goes");
        let (answer, _) = ask(&world, "GET /");
        assert!(answer.starts_with("HTTP/1.1 200 "), "what is anybody's: {answer}");
    }
}
