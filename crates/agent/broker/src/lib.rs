//! From a principal to a lease, at one cloud.
//!
//! The agent asks a [`PodLeaseClient`], one per pod. What is held is answered from memory ([`PodLeaseClient::cached_lease`]: no lock, no I/O, no
//! allocation). What is not held is fetched once, whoever and however many ask ([`PodLeaseClient::lease`]), and from then on
//! renewed ahead of its floor, which is never a request's business. All calls to a cloud run on the control thread's
//! runtime and pass one limiter. The broker knows no address of a pod, and no HTTP outside of `https`.
//!
//! A cloud is a room ([`google`], [`aws`]): an [`TokenExchange`] with principals and credentials of its own. Each has a [`Broker`] of its own,
//! which reads no field of either. Another cloud is another folder and its line here.
//!
//! Files know only those before them: `throttle_key`, `failure`, `settings`; `unavailable`, `principal`, `exchange`; `counters`, `fetch_log`,
//! `limiter`, `renewal_schedule`, `fetch_results`; `cache_entry`; `debug_view`, `shared`; `fetch`; `lookup` and `renew`; `holder`; `broker`. A cloud's room knows the
//! first six and `https`, the way to a cloud's services; nothing here knows a room.

pub mod aws;
mod broker;
mod broker_state;
mod cache_entry;
mod counters;
mod debug_view;
mod exchange;
mod failure;
mod fetch;
mod fetch_log;
mod fetch_results;
pub mod google;
mod https;
mod lease_error;
mod limiter;
mod lookup;
mod pod_credentials;
mod principal;
mod renew;
mod renewal_schedule;
mod reply;
mod settings;
mod throttle_key;

pub use broker::Broker;
pub use counters::BrokerCounters;
pub use debug_view::PrincipalView;
pub use exchange::{EntitlementOf, ExchangeFuture, IssuedCredential, RequestOf, TokenExchange};
pub use failure::{ExchangeError, ExchangeFault};
pub use lease_error::LeaseError;
pub use pod_credentials::{LeaseWatch, PodCredentialsSpec, PodLeaseClient};
pub use principal::Principal;
pub use settings::BrokerSettings;
pub use throttle_key::ThrottleKey;
