//! From a principal to a lease.
//!
//! The agent asks a [`Holder`], one per pod. What is held is answered from memory ([`Holder::held`]: no lock, no I/O, no
//! allocation). What is not held is fetched once, whoever and however many ask ([`Holder::lease`]), and from then on
//! renewed ahead of its floor, which is never a request's business. All calls to a cloud run on the control thread's
//! runtime and pass one limiter. The broker knows no HTTP and no address of a pod; how a cloud is asked is an [`Exchange`].

mod broker;
mod counters;
mod credential;
mod exchange;
mod flight;
mod fresh;
pub mod google;
mod holder;
mod limiter;
mod log;
mod schedule;
mod settings;
mod slot;
mod unavailable;
mod view;

pub use broker::Broker;
pub use counters::Counters;
pub use credential::{Credential, CredentialError};
pub use exchange::{Exchange, ExchangeError, ExchangeFuture, Fault, Issued};
pub use holder::{Changes, Holder, HolderSpec};
pub use settings::Settings;
pub use unavailable::Unavailable;
pub use view::PrincipalView;
