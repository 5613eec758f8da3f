//! From a principal to a lease, at one cloud.
//!
//! The agent asks a [`Holder`], one per pod. What is held is answered from memory ([`Holder::held`]: no lock, no I/O, no
//! allocation). What is not held is fetched once, whoever and however many ask ([`Holder::lease`]), and from then on
//! renewed ahead of its floor, which is never a request's business. All calls to a cloud run on the control thread's
//! runtime and pass one limiter. The broker knows no address of a pod, and no HTTP outside of `https`.
//!
//! A cloud is a room ([`google`], [`aws`]): an [`Exchange`] with principals and credentials of its own. Each has a [`Broker`] of its own,
//! which reads no field of either. Another cloud is another folder and its line here.
//!
//! Files know only those before them: `throttle_key`, `failure`, `settings`; `unavailable`, `principal`, `exchange`; `counters`, `fetch_log`,
//! `limiter`, `renewal_schedule`, `fetch_results`; `cache_entry`; `debug_view`, `shared`; `fetch`; `lookup` and `renew`; `holder`; `broker`. A cloud's room knows the
//! first six and `https`, the way to a cloud's services; nothing here knows a room.

pub mod aws;
mod broker;
mod cache_entry;
mod counters;
mod debug_view;
mod exchange;
mod failure;
mod fetch;
mod fetch_log;
mod fetch_results;
pub mod google;
mod holder;
mod https;
mod limiter;
mod lookup;
mod principal;
mod renew;
mod renewal_schedule;
mod reply;
mod settings;
mod shared;
mod throttle_key;
mod unavailable;

pub use broker::Broker;
pub use counters::Counters;
pub use debug_view::PrincipalView;
pub use exchange::{EntitlementOf, Exchange, ExchangeFuture, Issued, WantOf};
pub use failure::{ExchangeError, Fault};
pub use holder::{Changes, Holder, HolderSpec};
pub use principal::Principal;
pub use settings::Settings;
pub use throttle_key::Account;
pub use unavailable::Unavailable;
