//! The way of one request: it is counted in, passes its endpoint's gate (where faults wait and decide), and is answered by
//! the service that it names.

use http::header::{DATE, HeaderValue};
use http::request::Parts;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use seawall_core::Clock;
use serde_json::json;

use super::broken::broken;
use super::endpoint::Endpoint;
use super::options::Options;
use super::reply::{self, Reply};
use super::state::State;
use super::sts::{Action, Form};
use super::{eks_auth, imds, sts};
use crate::faults::{Fate, Gates};
use crate::keys::KeyError;
use crate::ledger::End;
use crate::reply::garbled;
use crate::server::{Closed, Service};

/// The emulator's own page, for checkers outside of the process: what [`super::Running`] tells those within.
const COUNTS: &str = "/emulator/counts";

#[derive(Debug)]
pub(super) struct Cloud {
    pub(super) state: State,
    pub(super) gates: Gates<Endpoint>,
}

/// A request that was read, and whose it is.
enum Asked {
    Sts(Form),
    PodIdentity,
    Metadata,
}

impl Asked {
    fn endpoint(&self) -> Endpoint {
        match self {
            Self::Metadata => Endpoint::Metadata,
            Self::PodIdentity => Endpoint::PodIdentity,
            Self::Sts(form) => match form.action() {
                Action::WebIdentity => Endpoint::WebIdentity,
                Action::AssumeRole => Endpoint::AssumeRole,
                Action::CallerIdentity | Action::Unknown => Endpoint::CallerIdentity,
            },
        }
    }
}

impl Service for Cloud {
    async fn answer(&self, request: Request<Incoming>) -> Result<Reply, Closed> {
        if request.uri().path() == COUNTS {
            return Ok(self.all_counts());
        }
        // The body names what is asked, so it is read first.
        let (head, body) = request.into_parts();
        let body = match reply::body(Request::from_parts(head.clone(), body)).await {
            Ok(body) => body,
            Err(unread) => return Ok(reply::html(StatusCode::PAYLOAD_TOO_LARGE, &unread.to_string())),
        };
        self.pass(&head, &body).await.map(|reply| self.dated(reply))
    }
}

impl Cloud {
    pub(super) fn new(options: Options, clock: Clock) -> Result<Self, KeyError> {
        let gates = Gates::new(&Endpoint::ALL, &Endpoint::FAULTY, &options.faults);
        Ok(Self { gates, state: State::new(options, clock)? })
    }

    async fn pass(&self, head: &Parts, body: &[u8]) -> Result<Reply, Closed> {
        let asked = asked(head, body);
        let endpoint = asked.endpoint();
        let mut visit = self.state.ledger.arrive(endpoint);
        let fate = self.gates.pass(endpoint, &self.state.clock).await;
        if fate == Fate::Close {
            return Err(Closed);
        }
        if let Some(reply) = broken(endpoint, fate) {
            return Ok(reply);
        }
        let reply = match asked {
            Asked::Sts(form) => sts::answer(&self.state, &form, head, body),
            Asked::PodIdentity => eks_auth::answer(&self.state, head, body),
            Asked::Metadata => imds::answer(&self.state, head),
        };
        if fate == Fate::Garble {
            return Ok(garbled(reply).await);
        }
        visit.ends(if reply.status().as_u16() < 400 { End::Answered } else { End::Refused });
        Ok(reply)
    }

    /// The answer with the time of our clock: hyper would write the machine's, and a client that counts from it would err by the
    /// difference.
    fn dated(&self, mut reply: Reply) -> Reply {
        let now = jiff::Timestamp::try_from(self.state.clock.wall()).unwrap_or(jiff::Timestamp::MAX);
        let date = now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        if let Ok(date) = HeaderValue::try_from(date) {
            reply.headers_mut().insert(DATE, date);
        }
        reply
    }

    fn all_counts(&self) -> Reply {
        let endpoints = Endpoint::ALL.into_iter().map(|endpoint| {
            let counts = self.state.ledger.counts(endpoint);
            let told = json!({"calls": counts.calls, "answered": counts.answered, "refused": counts.refused,
                              "faulted": counts.faulted, "in_flight": counts.in_flight, "peak": counts.peak});
            (endpoint.name().to_owned(), told)
        });
        let sessions = self.state.sessions.all().into_iter();
        let sessions = sessions
            .map(|((taken_by, role), count)| json!({"taken_by": taken_by, "role": role, "sessions": count}));
        let told = json!({"endpoints": endpoints.collect::<serde_json::Map<_, _>>(),
                          "sessions": sessions.collect::<Vec<_>>()});
        reply::json(StatusCode::OK, &told)
    }
}

fn asked(head: &Parts, body: &[u8]) -> Asked {
    match head.uri.path() {
        "/" if head.method == Method::POST => Asked::Sts(Form::parse(body)),
        path if head.method == Method::POST && eks_auth::cluster(path).is_some() => Asked::PodIdentity,
        _ => Asked::Metadata,
    }
}
