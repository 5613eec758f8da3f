//! The state behind the listener, and the way of one request through it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use seawall_core::Clock;

use super::reply::{Reply, api_error};
use super::token::{AccessToken, Mint};
use super::{Endpoint, Impersonation, Options};
use crate::faults::Faults;
use crate::jwt;
use crate::keys::{Algorithm, KeyError, SigningKey};

/// What happened at an endpoint so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that arrived.
    pub calls: u64,
    /// Requests answered with 2xx.
    pub answered: u64,
    /// Requests refused for what they asked.
    pub refused: u64,
    /// Requests that a fault took: failed, throttled, hung, cut off.
    pub faulted: u64,
    /// Requests being answered now.
    pub in_flight: u64,
    /// Most requests that were in the air at one time.
    pub peak: u64,
}

#[derive(Debug)]
pub(crate) struct Cloud {
    clock: Clock,
    key: SigningKey,
    mint: Mint,
    changing: Mutex<Changing>,
}

#[derive(Debug)]
struct Changing {
    options: Options,
    faults: BTreeMap<Endpoint, Faults>,
    counts: BTreeMap<Endpoint, Counts>,
    exchanges: BTreeMap<String, u64>,
    impersonations: BTreeMap<(String, String), u64>,
}

impl Cloud {
    pub(crate) fn new(options: Options, clock: Clock) -> Result<Self, KeyError> {
        let faults = Endpoint::FAULTY.into_iter().map(|each| (each, options.faults.clone())).collect();
        let changing = Changing {
            options,
            faults,
            counts: BTreeMap::new(),
            exchanges: BTreeMap::new(),
            impersonations: BTreeMap::new(),
        };
        Ok(Self {
            clock,
            key: SigningKey::generate(Algorithm::Rs256)?,
            mint: Mint::new()?,
            changing: Mutex::new(changing),
        })
    }

    pub(crate) async fn answer(&self, _request: Request<Incoming>) -> Reply {
        api_error(StatusCode::NOT_FOUND, "NOT_FOUND", "no such path")
    }

    fn lock(&self) -> MutexGuard<'_, Changing> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_faults(&self, endpoint: Endpoint, faults: Faults) {
        self.lock().faults.insert(endpoint, faults);
    }

    pub(crate) fn set_token_lifetime(&self, lifetime: Duration) {
        self.lock().options.token_lifetime = lifetime;
    }

    pub(crate) fn set_impersonation(&self, impersonation: Impersonation) {
        self.lock().options.impersonation = impersonation;
    }

    pub(crate) fn set_attribute(&self, _name: &str, _value: &str) {}

    pub(crate) fn counts(&self, endpoint: Endpoint) -> Counts {
        self.lock().counts.get(&endpoint).copied().unwrap_or_default()
    }

    pub(crate) fn exchanges(&self) -> BTreeMap<String, u64> {
        self.lock().exchanges.clone()
    }

    pub(crate) fn impersonations(&self) -> BTreeMap<(String, String), u64> {
        self.lock().impersonations.clone()
    }

    pub(crate) fn access_token(&self, token: &str) -> Option<AccessToken> {
        self.mint.read(token, jwt::seconds(self.clock.wall()))
    }
}
