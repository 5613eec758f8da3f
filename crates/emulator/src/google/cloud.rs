//! The way of one request: it is counted in, passes its endpoint's gate (where faults wait and decide), and is answered by
//! the service that its path names.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use seawall_core::Clock;
use serde_json::json;

use super::broken::broken;
use super::endpoint::Endpoint;
use super::impersonation::Impersonation;

use super::metadata::Metadata;
use super::options::Options;
use super::reply::{self, Reply};
use super::routing::Route;
use super::services;
use super::state::State;
use super::token::AccessToken;
use crate::faults::{Fate, Faults, Gates};
use crate::keys::KeyError;
use crate::ledger::{Counts, End};
use crate::reply::garbled;
use crate::server::{Closed, Service};

/// The emulator's own page, for checkers outside of the process: what [`super::Running`] tells those within.
const COUNTS: &str = "/emulator/counts";

#[derive(Debug)]
pub(super) struct Cloud {
    state: State,
    gates: Gates<Endpoint>,
    metadata: Metadata,
}

impl Service for Cloud {
    async fn answer(&self, request: Request<Incoming>) -> Result<Reply, Closed> {
        if request.uri().path() == COUNTS {
            return Ok(self.all_counts());
        }
        let route = Route::of(request.method(), request.uri().path());
        let endpoint = route.endpoint();
        let mut visit = self.state.ledger.arrive(endpoint);
        let fate = self.gates.pass(endpoint, &self.state.clock).await;
        if fate == Fate::Close {
            return Err(Closed);
        }
        if let Some(reply) = broken(endpoint, fate) {
            return Ok(reply);
        }
        let reply = self.serve(route, request).await;
        if fate == Fate::Garble {
            return Ok(garbled(reply).await);
        }
        visit.ends(if reply.status().as_u16() < 400 { End::Answered } else { End::Refused });
        Ok(reply)
    }
}

impl Cloud {
    pub(super) fn new(options: Options, clock: Clock) -> Result<Self, KeyError> {
        Ok(Self {
            gates: Gates::new(&Endpoint::ALL, &Endpoint::FAULTY, &options.faults),
            metadata: Metadata::new(&options.machine),
            state: State::new(options, clock)?,
        })
    }

    async fn serve(&self, route: Route, request: Request<Incoming>) -> Reply {
        let state = &self.state;
        match route {
            Route::Exchange => services::exchange(state, request).await,
            Route::AccessToken(account) => services::access_token_for(state, &account, request).await,
            Route::IdToken(account) => services::id_token_for(state, &account, request).await,
            Route::Keys => services::published_keys(state).await,
            Route::TokenInfo => services::token_info(state, request.uri().query().unwrap_or_default()),
            Route::Metadata => self.metadata.answer(state, &request).await,
        }
    }

    fn all_counts(&self) -> Reply {
        let endpoints = Endpoint::ALL.into_iter().map(|endpoint| {
            let counts = self.state.ledger.counts(endpoint);
            let told = json!({"calls": counts.calls, "answered": counts.answered, "refused": counts.refused,
                              "faulted": counts.faulted, "in_flight": counts.in_flight, "peak": counts.peak});
            (endpoint.name().to_owned(), told)
        });
        let impersonations = self.state.impersonations.all().into_iter().map(
            |((subject, account), tokens)| json!({"subject": subject, "account": account, "tokens": tokens}),
        );
        let told = json!({"endpoints": endpoints.collect::<serde_json::Map<_, _>>(),
                          "exchanges": self.state.exchanges.all(),
                          "impersonations": impersonations.collect::<Vec<_>>()});
        reply::json(StatusCode::OK, &told)
    }
}

/// What [`super::Running`] passes on.
impl Cloud {
    pub(super) fn set_faults(&self, endpoint: Endpoint, faults: Faults) {
        self.gates.set(endpoint, faults);
    }

    pub(super) fn set_token_lifetime(&self, lifetime: Duration) {
        self.state.set_token_lifetime(lifetime);
    }

    pub(super) fn set_impersonation(&self, impersonation: Impersonation) {
        self.state.set_impersonation(impersonation);
    }

    pub(super) fn set_attribute(&self, name: &str, value: &str) {
        self.metadata.set_attribute(name, value);
    }

    pub(super) fn counts(&self, endpoint: Endpoint) -> Counts {
        self.state.ledger.counts(endpoint)
    }

    pub(super) fn exchanges(&self) -> BTreeMap<String, u64> {
        self.state.exchanges.all()
    }

    pub(super) fn impersonations(&self) -> BTreeMap<(String, String), u64> {
        self.state.impersonations.all()
    }

    pub(super) fn access_token(&self, token: &str) -> Option<AccessToken> {
        self.state.access_token(token)
    }
}
