//! The types that all crates share, such as pods, leases, secrets and moments.
//!
//! This crate opens no socket. Only three modules use the operating system: [`clock`] reads the time, [`mod@file`] reads files,
//! and `disk_thread` runs blocking disk work on separate threads. [`mod@file`] is in this crate because several crates must read
//! files with the same checks. This crate uses the terms of ARCHITECTURE.md.

pub mod annotations;
pub mod atomic_rate_limiter;
pub mod attestation;
pub mod backoff;
pub mod clock;
pub mod cloud;
pub mod credential_variables;
#[cfg(feature = "sleep")]
pub mod disk_thread;
pub mod duration;
pub mod endpoint;
pub mod fair_share;
pub mod file;
pub mod kubernetes_events;
pub mod lease;
pub mod name_syntax;
pub mod pod;
pub mod secret;
#[cfg(feature = "sleep")]
pub mod shutdown;
pub mod terminal_safe;

pub use annotations::PodAnnotations;
pub use atomic_rate_limiter::Gcra;
pub use backoff::Backoff;
pub use clock::{Clock, ManualClock, Moment};
pub use lease::{Lease, LifetimeFloor};
pub use pod::{Pod, PodUid, ServiceAccount};
pub use secret::Secret;
