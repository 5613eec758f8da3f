//! The path of a request: it is counted, passes its endpoint's faults, and is answered by the service that it names.

use http::header::{DATE, HeaderValue};
use http::request::Parts;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use seawall_core::Clock;
use serde_json::json;

use super::endpoint::AwsEndpoint;
use super::fault_replies::fault_reply;
use super::options::AwsEmulatorOptions;
use super::reply::{self, EmulatorReply};
use super::state::AwsState;
use super::sts::{StsAction, StsForm};
use super::{eks_auth, imds, sts};
use crate::faults::{FaultDecision, FaultInjector};
use crate::keys::KeyError;
use crate::reply::truncated;
use crate::request_counters::CountedOutcome;
use crate::server::{CloseConnection, RequestHandler};

/// The emulator's own page with the request counts, for checks from outside the process.
const COUNTS: &str = "/emulator/counts";

#[derive(Debug)]
pub(super) struct AwsCloud {
    pub(super) state: AwsState,
    pub(super) fault_injector: FaultInjector<AwsEndpoint>,
}

/// A parsed request of one service.
enum AwsRequest {
    Sts(StsForm),
    PodIdentity,
    Metadata,
}

impl AwsRequest {
    fn endpoint(&self) -> AwsEndpoint {
        match self {
            Self::Metadata => AwsEndpoint::Metadata,
            Self::PodIdentity => AwsEndpoint::PodIdentity,
            Self::Sts(form) => match form.action() {
                StsAction::WebIdentity => AwsEndpoint::WebIdentity,
                StsAction::AssumeRole => AwsEndpoint::AssumeRole,
                StsAction::CallerIdentity | StsAction::Unknown => AwsEndpoint::CallerIdentity,
            },
        }
    }
}

impl RequestHandler for AwsCloud {
    async fn answer(&self, request: Request<Incoming>) -> Result<EmulatorReply, CloseConnection> {
        if request.uri().path() == COUNTS {
            return Ok(self.all_counts());
        }
        // The body names the action, so it is read first.
        let (head, body) = request.into_parts();
        let body = match reply::read_body(Request::from_parts(head.clone(), body)).await {
            Ok(body) => body,
            Err(unread) => return Ok(reply::html_reply(StatusCode::PAYLOAD_TOO_LARGE, &unread.to_string())),
        };
        self.pass(&head, &body).await.map(|reply| self.dated(reply))
    }
}

impl AwsCloud {
    pub(super) fn new(options: AwsEmulatorOptions, clock: Clock) -> Result<Self, KeyError> {
        let gates = FaultInjector::new(&AwsEndpoint::ALL, &AwsEndpoint::FAULT_INJECTABLE, &options.faults);
        Ok(Self { fault_injector: gates, state: AwsState::new(options, clock)? })
    }

    async fn pass(&self, head: &Parts, body: &[u8]) -> Result<EmulatorReply, CloseConnection> {
        let asked = asked(head, body);
        let endpoint = asked.endpoint();
        let mut visit = self.state.request_counters.start_request(endpoint);
        let fate = self.fault_injector.delay_and_decide(endpoint, &self.state.clock).await;
        if fate == FaultDecision::Close {
            return Err(CloseConnection);
        }
        if let Some(reply) = fault_reply(endpoint, fate) {
            return Ok(reply);
        }
        let reply = match asked {
            AwsRequest::Sts(form) => sts::answer(&self.state, &form, head, body),
            AwsRequest::PodIdentity => eks_auth::answer(&self.state, head, body),
            AwsRequest::Metadata => imds::answer(&self.state, head),
        };
        if fate == FaultDecision::Truncate {
            return Ok(truncated(reply).await);
        }
        visit.set_result(if reply.status().as_u16() < 400 {
            CountedOutcome::Answered
        } else {
            CountedOutcome::Refused
        });
        Ok(reply)
    }

    /// Sets the response's Date by the emulator's clock. hyper would write the machine's time, and clients that count from it would be
    /// wrong.
    fn dated(&self, mut reply: EmulatorReply) -> EmulatorReply {
        let now = jiff::Timestamp::try_from(self.state.clock.wall_time()).unwrap_or(jiff::Timestamp::MAX);
        let date = now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        if let Ok(date) = HeaderValue::try_from(date) {
            reply.headers_mut().insert(DATE, date);
        }
        reply
    }

    fn all_counts(&self) -> EmulatorReply {
        let endpoints = AwsEndpoint::ALL.into_iter().map(|endpoint| {
            let counts = self.state.request_counters.counts(endpoint);
            let told = json!({"calls": counts.calls, "answered": counts.answered, "refused": counts.refused,
                              "faulted": counts.faulted, "in_flight": counts.in_flight, "peak": counts.peak});
            (endpoint.name().to_owned(), told)
        });
        let sessions = self.state.session_counts.all().into_iter();
        let sessions = sessions
            .map(|((taken_by, role), count)| json!({"taken_by": taken_by, "role": role, "sessions": count}));
        let told = json!({"endpoints": endpoints.collect::<serde_json::Map<_, _>>(),
                          "sessions": sessions.collect::<Vec<_>>()});
        reply::json_reply(StatusCode::OK, &told)
    }
}

fn asked(head: &Parts, body: &[u8]) -> AwsRequest {
    match head.uri.path() {
        "/" if head.method == Method::POST => AwsRequest::Sts(StsForm::parse(body)),
        path if head.method == Method::POST && eks_auth::parse_cluster_name(path).is_some() => {
            AwsRequest::PodIdentity
        }
        _ => AwsRequest::Metadata,
    }
}
