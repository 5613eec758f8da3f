//! Fetches, caches and renews the credentials of one cloud. A principal is the cache key, and a lease is a cached credential.
//!
//! The agent has one [`PodLeaseClient`] per pod. [`PodLeaseClient::cached_lease`] answers from memory without a lock, I/O or
//! allocation. [`PodLeaseClient::lease`] fetches a missing credential once, however many requests wait for it. After that the
//! broker renews the credential before it reaches its floor, without any request. All calls to a cloud run on the control thread's
//! runtime and pass one limiter. The broker does not know pod addresses, and only `https` uses HTTP.
//!
//! Each cloud is a module ([`google`], [`aws`]) with a [`TokenExchange`] and its own types for principals and credentials. Each
//! cloud has its own [`Broker`], which reads no field of these types. To add a cloud, add a folder and its line here.
//!
//! Each file uses only the files before it in this list: `throttle_key`, `failure`, `settings`; `lease_error`, `principal`,
//! `exchange`; `counters`, `fetch_log`, `limiter`, `renewal_schedule`, `fetch_results`; `cache_entry`; `debug_view`,
//! `broker_state`; `fetch`; `lookup` and `renew`; `pod_credentials`; `broker`. A cloud's module uses the first six files and
//! `https`, the client for a cloud's services. No file here uses a cloud's module.

pub mod aws;
mod broker;
mod broker_state;
mod cache_entry;
mod counters;
mod credential_exchange;
mod debug_view;
mod failure;
mod fetch;
mod fetch_log;
mod fetch_waiters;
pub mod google;
mod https;
mod lease_error;
mod lease_lookup;
mod limiter;
mod pod_credentials;
mod principal;
mod renew;
mod renewal_schedule;
mod reply;
mod settings;
mod throttle_key;

pub use broker::Broker;
pub use counters::BrokerCounters;
pub use credential_exchange::{EntitlementOf, ExchangeFuture, IssuedCredential, RequestOf, TokenExchange};
pub use debug_view::PrincipalView;
pub use failure::{ExchangeError, ExchangeFault};
pub use lease_error::LeaseError;
pub use pod_credentials::{LeaseWatch, PodCredentialsSpec, PodLeaseClient};
pub use principal::Principal;
pub use settings::BrokerSettings;
pub use throttle_key::ThrottleKey;
