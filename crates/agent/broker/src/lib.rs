//! Gets, caches and renews credentials of one cloud: from a principal to a lease.
//!
//! The agent asks a [`PodLeaseClient`], one per pod. [`PodLeaseClient::cached_lease`] answers from memory: no lock, no I/O, no
//! allocation. [`PodLeaseClient::lease`] fetches a missing credential once, however many requests wait for it. From then on the
//! broker renews the credential ahead of its floor, which is never a request's business. All calls to a cloud run on the control
//! thread's runtime and pass one limiter. The broker knows no address of a pod, and no HTTP outside of `https`.
//!
//! Each cloud is a module ([`google`], [`aws`]): a [`TokenExchange`] with principals and credentials of its own. Each cloud has its
//! own [`Broker`], which reads no field of either. To add a cloud, add a folder and its line here.
//!
//! Files know only those before them: `throttle_key`, `failure`, `settings`; `lease_error`, `principal`, `exchange`; `counters`,
//! `fetch_log`, `limiter`, `renewal_schedule`, `fetch_results`; `cache_entry`; `debug_view`, `broker_state`; `fetch`; `lookup` and
//! `renew`; `pod_credentials`; `broker`. A cloud's module knows the first six and `https`, the client for a cloud's services. No
//! file here knows a cloud's module.

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
