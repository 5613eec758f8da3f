//! Fetches, caches and renews the credentials of one cloud. A principal is the cache key, and a lease is a cached credential.
//!
//! For each pod, the agent has one [`PodLeaseClient`] per cloud. [`PodLeaseClient::cached_lease`] reads a lease from memory
//! without a lock, I/O or allocation. [`PodLeaseClient::lease`] fetches a missing credential; requests that need the same
//! credential wait for the same fetch. While pods use a credential, the broker renews it before its remaining lifetime falls
//! below the floor. The floor is the least remaining lifetime of a credential in a response. All calls to a cloud run on the
//! control thread's runtime, and one limiter per cloud limits their rate. The broker does not know the pods' IP addresses.
//! Outside the clouds' modules, only `https` uses HTTP.
//!
//! Each cloud is a module ([`google`], [`aws`]) with a [`TokenExchange`] and its own types for principals and credentials. Each
//! cloud has its own [`Broker`], which reads no field of these types. To add a cloud, add the cloud's folder, and the folder's
//! `pub mod` line in this file.
//!
//! Each file uses only the files before it in this list: `throttle_key`, `failure`, `settings`; `lease_error`, `principal`,
//! `credential_exchange`; `counters`, `fetch_log`, `limiter`, `renewal_schedule`, `fetch_waiters`; `cache_entry`; `debug_view`,
//! `broker_state`; `fetch`; `lease_lookup` and `renew`; `broker`; `pod_broker`. A cloud's module uses the first six files and two
//! more: `https`, the client for a cloud's services, and `upstream_bodies`, which has helpers for requests and responses. The
//! type aliases of a cloud's module also use the broker's public types. No file in this folder uses a cloud's module.

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
mod pod_broker;
mod pod_limits;
mod principal;
mod renew;
mod renewal_schedule;
mod settings;
mod throttle_key;
mod upstream_bodies;

pub use broker::Broker;
pub use counters::BrokerCounters;
pub use credential_exchange::{EntitlementOf, ExchangeFuture, IssuedCredential, RequestOf, TokenExchange};
pub use debug_view::PrincipalView;
pub use failure::{ExchangeError, ExchangeFault};
pub use lease_error::LeaseError;
pub use pod_broker::{LeaseWatch, PodCredentialsSpec, PodLeaseClient, RefetchProgress};
pub use principal::Principal;
pub use settings::BrokerSettings;
pub use throttle_key::ThrottledAccountOrWorkload;
