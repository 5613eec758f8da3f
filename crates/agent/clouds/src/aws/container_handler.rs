//! The credentials endpoint of containers on one traffic thread. There is always an answer, and soon: five clients wait without end.

use std::sync::Arc;
use std::time::Duration;

use seawall_broker::aws::Credential;
use seawall_core::cloud::CloudName;
use seawall_core::{Clock, Lease, Moment};
use seawall_http::path::Alphabet;
use seawall_http::{Frame, Refusal, RequestHead};
use seawall_protocols::aws::containers::{self as endpoint, claims};
use seawall_protocols::aws::{ALPHABET, Containers, Credentials, UnixTime};
use seawall_server::handler::{Asked, Dialect};
use seawall_server::replay_cache::Again;
use seawall_server::response::{Later, Reply, Writing, Written};
use seawall_server::route;
use seawall_server::route::Route;

use super::awaited_credentials::Deadline;
use super::entitlement::{Entitlement, Own, Standing};
use super::{awaited_credentials, pod_token, response, routes};
use crate::entitlements::Decided;
use crate::pod::{Client, PodCaller, Step};
use crate::readiness_request::Probe;

/// Readiness has no pod's token: it is told that this is the endpoint.
pub(super) const PROBE: Probe = Probe {
    method: "GET",
    target: "/v1/credentials",
    headers: "",
    answer_has: "content-type: application/json",
};

/// The dialect on one thread.
#[derive(Debug)]
pub(super) struct ContainersDialect {
    endpoint: Containers,
    audience: Arc<str>,
    clock: Clock,
}

const ANYONE: Refusal =
    Refusal::new(403, "unknown_caller", "Credentials are given only to pods that are known.");

impl Dialect<PodCaller> for ContainersDialect {
    fn cloud(&self) -> CloudName {
        CloudName::Aws
    }

    fn alphabet(&self) -> &'static Alphabet {
        &ALPHABET
    }

    fn claims(&self, path: &str) -> bool {
        claims(path)
    }

    fn goes_on_after(&self, method: &str) -> bool {
        matches!(method, "GET" | "HEAD")
    }

    fn patience(&self, _: &RequestHead<'_, '_>) -> Duration {
        response::PATIENCE
    }

    fn answer(&self, caller: &Client, asked: Asked<'_, '_, '_>, out: &mut Vec<u8>) -> Step {
        let answered = match caller {
            Client::Probe => Ok(probed(asked.frame, out)),
            Client::Nobody(refusal) => Err(*refusal),
            Client::Anyone => Err(ANYONE),
            Client::Unsettled => self.endpoint.query(asked.head).map(|_| Step::NotYet),
            Client::Pod(pod) => self.of_pod(pod, asked, out),
        };
        answered.unwrap_or_else(|refusal| {
            self.refuse(&refusal, asked.frame, asked.request, out);
            Step::Answered { route: &route::REFUSED, status: refusal.status }
        })
    }

    fn refuse(&self, refusal: &Refusal, frame: &Frame<'_>, request: u64, out: &mut Vec<u8>) {
        endpoint::refusal(out, frame, refusal, request);
    }
}

fn probed(frame: &Frame<'_>, out: &mut Vec<u8>) -> Step {
    frame.begin(out, 200, b"Content-Type: application/json\r\n");
    frame.end(out, &[b"{}"]);
    Step::Answered { route: &route::PROBE, status: 200 }
}

impl ContainersDialect {
    pub(super) fn new(endpoint: Containers, audience: Arc<str>, clock: Clock) -> Self {
        Self { endpoint, audience, clock }
    }

    /// The token before the role: what is wrong with it is wrong whatever the pod may have.
    fn of_pod(
        &self,
        pod: &Arc<PodCaller>,
        asked: Asked<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<Step, Refusal> {
        let query = self.endpoint.query(asked.head)?;
        let now = UnixTime::from(self.clock.wall());
        let token_ends = pod_token::check(query.token, &pod.pod, &self.audience, now)?;
        match pod.entitlements().aws() {
            Decided::Is(own) => Ok(self.lend(pod, own.own()?, token_ends, asked, out)),
            Decided::NotYet => Ok(Step::NotYet),
            Decided::Off => Err(ANYONE),
        }
    }

    fn lend(
        &self,
        pod: &Arc<PodCaller>,
        own: &Own,
        token_ends: UnixTime,
        asked: Asked<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> Step {
        let Some(lease) = own.holder.held((), asked.now) else { return later(pod, asked) };
        endpoint::document(out, asked.frame, &credentials(own, &lease));
        let question = || {
            Box::new(CredentialsAgain { clock: self.clock.clone(), token_ends }) as Box<dyn Again<PodCaller>>
        };
        Step::Lent { route: &routes::CONTAINER, question: asked.is_to_be_remembered.then(question) }
    }
}

fn credentials<'a>(own: &'a Own, lease: &'a Lease<Credential>) -> Credentials<'a> {
    let role_arn = own.access.role().map(seawall_broker::aws::RoleArn::as_str);
    Credentials { role_arn, ..response::credentials(lease) }
}

fn later(pod: &Arc<PodCaller>, asked: Asked<'_, '_, '_>) -> Step {
    let deadline = Deadline { came: asked.came, now: asked.now, patience: response::PATIENCE };
    let pod = pod.clone();
    Step::Later(Later::new(&routes::CONTAINER, false, async move {
        Box::new(Came(awaited_credentials::lease(&pod, deadline).await)) as Box<dyn Reply>
    }))
}

/// What a request waited for.
#[derive(Debug)]
struct Came(Result<(Own, Arc<Lease<Credential>>), Refusal>);

impl Reply for Came {
    fn write(self: Box<Self>, writing: &Writing<'_>, out: &mut Vec<u8>) -> Written {
        match &self.0 {
            Ok((own, lease)) => {
                endpoint::document(out, writing.frame, &credentials(own, lease));
                Written::whole(200)
            }
            Err(refusal) => {
                endpoint::refusal(out, writing.frame, refusal, writing.request);
                Written::whole(refusal.status)
            }
        }
    }
}

/// Credentials that were asked for before, with the same token.
#[derive(Debug)]
struct CredentialsAgain {
    clock: Clock,
    /// When the token ends that stands in the request.
    token_ends: UnixTime,
}

impl Again<PodCaller> for CredentialsAgain {
    /// From the caller's own holder, as it is now. The token was found to be this caller's, because what is remembered is.
    fn answer(
        &self,
        caller: &Client,
        frame: &Frame<'_>,
        now: Moment,
        out: &mut Vec<u8>,
    ) -> Option<&'static Route> {
        let Client::Pod(pod) = caller else { return None };
        if self.token_ends <= UnixTime::from(self.clock.wall()) {
            return None;
        }
        let entitlements = pod.entitlements();
        let Decided::Is(Entitlement { standing: Standing::Role(own), .. }) = entitlements.aws() else {
            return None;
        };
        let lease = own.holder.held((), now)?;
        endpoint::document(out, frame, &credentials(own, &lease));
        Some(&routes::CONTAINER)
    }
}
