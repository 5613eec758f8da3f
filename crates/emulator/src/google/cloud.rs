//! The path of a request: it is counted, passes its endpoint's faults, and is answered by the service in its path.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use seawall_core::Clock;
use serde_json::json;

use super::endpoint::GoogleEndpoint;
use super::fault_replies::fault_reply;
use super::impersonation::ImpersonationPolicy;

use super::metadata::MetadataServer;
use super::options::GoogleEmulatorOptions;
use super::reply::{self, EmulatorReply};
use super::routing::GoogleRoute;
use super::services;
use super::state::GoogleState;
use super::token::EmulatedAccessToken;
use crate::faults::{FaultDecision, FaultInjector, Faults};
use crate::keys::KeyError;
use crate::reply::truncated;
use crate::request_counters::{CountedOutcome, EndpointCounts};
use crate::server::{CloseConnection, RequestHandler};

/// The emulator's own page with the request counts, for checks from outside the process.
const COUNTS: &str = "/emulator/counts";

#[derive(Debug)]
pub(super) struct GoogleCloud {
    state: GoogleState,
    gates: FaultInjector<GoogleEndpoint>,
    metadata: MetadataServer,
}

impl RequestHandler for GoogleCloud {
    async fn answer(&self, request: Request<Incoming>) -> Result<EmulatorReply, CloseConnection> {
        if request.uri().path() == COUNTS {
            return Ok(self.all_counts());
        }
        let route = GoogleRoute::of(request.method(), request.uri().path());
        let endpoint = route.endpoint();
        let mut visit = self.state.request_counters.start_request(endpoint);
        let fate = self.gates.delay_and_decide(endpoint, &self.state.clock).await;
        if fate == FaultDecision::Close {
            return Err(CloseConnection);
        }
        if let Some(reply) = fault_reply(endpoint, fate) {
            return Ok(reply);
        }
        let reply = self.serve(route, request).await;
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
}

impl GoogleCloud {
    pub(super) fn new(options: GoogleEmulatorOptions, clock: Clock) -> Result<Self, KeyError> {
        Ok(Self {
            gates: FaultInjector::new(
                &GoogleEndpoint::ALL,
                &GoogleEndpoint::FAULT_INJECTABLE,
                &options.faults,
            ),
            metadata: MetadataServer::new(&options.machine),
            state: GoogleState::new(options, clock)?,
        })
    }

    async fn serve(&self, route: GoogleRoute, request: Request<Incoming>) -> EmulatorReply {
        let state = &self.state;
        match route {
            GoogleRoute::Exchange(api) => services::handle_exchange(state, api, request).await,
            GoogleRoute::GenerateAccessToken(account) => {
                services::handle_generate_access_token(state, &account, request).await
            }
            GoogleRoute::GenerateIdToken(account) => {
                services::handle_generate_id_token(state, &account, request).await
            }
            GoogleRoute::Keys => services::published_keys_reply(state).await,
            GoogleRoute::TokenInfo => {
                services::token_info_reply(state, request.uri().query().unwrap_or_default())
            }
            GoogleRoute::Metadata => self.metadata.answer(state, &request).await,
        }
    }

    fn all_counts(&self) -> EmulatorReply {
        let endpoints = GoogleEndpoint::ALL.into_iter().map(|endpoint| {
            let counts = self.state.request_counters.counts(endpoint);
            let told = json!({"calls": counts.calls, "answered": counts.answered, "refused": counts.refused,
                              "faulted": counts.faulted, "in_flight": counts.in_flight, "peak": counts.peak});
            (endpoint.name().to_owned(), told)
        });
        let impersonations = self.state.impersonation_counts.all().into_iter().map(
            |((subject, account), tokens)| json!({"subject": subject, "account": account, "tokens": tokens}),
        );
        let told = json!({"endpoints": endpoints.collect::<serde_json::Map<_, _>>(),
                          "exchanges": self.state.exchange_counts.all(),
                          "impersonations": impersonations.collect::<Vec<_>>()});
        reply::json_reply(StatusCode::OK, &told)
    }
}

/// The functions behind [`super::GoogleEmulator`].
impl GoogleCloud {
    pub(super) fn set_faults(&self, endpoint: GoogleEndpoint, faults: Faults) {
        self.gates.set_faults(endpoint, faults);
    }

    pub(super) fn set_max_token_lifetime(&self, lifetime: Duration) {
        self.state.set_max_token_lifetime(lifetime);
    }

    pub(super) fn set_impersonation(&self, impersonation: ImpersonationPolicy) {
        self.state.set_impersonation(impersonation);
    }

    pub(super) fn set_instance_attribute(&self, name: &str, value: &str) {
        self.metadata.set_instance_attribute(name, value);
    }

    pub(super) fn endpoint_request_counts(&self, endpoint: GoogleEndpoint) -> EndpointCounts {
        self.state.request_counters.counts(endpoint)
    }

    pub(super) fn exchange_counts(&self) -> BTreeMap<String, u64> {
        self.state.exchange_counts.all()
    }

    pub(super) fn impersonation_counts(&self) -> BTreeMap<(String, String), u64> {
        self.state.impersonation_counts.all()
    }

    pub(super) fn read_access_token(&self, token: &str) -> Option<EmulatedAccessToken> {
        self.state.read_access_token(token)
    }
}
