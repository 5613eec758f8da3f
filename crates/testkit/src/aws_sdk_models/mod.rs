//! Models of AWS's SDKs as clients of a metadata service: when a call of a program begins with a fetch, what it asks on the wire, and
//! what becomes of the call when the fetch brings nothing.
//!
//! A model is data ([`Family`], of the table in `families`) and one small machine ([`SimulatedSdkClient`]), which knows no server, no socket and no
//! clock: it is told the time, whether a fetch brought something and when that ends. So the same models are driven against servers of
//! numbers (`rotating`), where they must give the figures that were measured with the SDKs themselves (`tests/aws_clients.rs`), and
//! against the agent (`observe/src/tests/aws_sdks.rs`), where they say what nobody could measure in seconds.
//!
//! Times are whole seconds, as `Expiration` states them, since whatever instant the driver likes; a life that is left is negative once
//! the credentials have ended.
//!
//! Where constants come from: from unmodified SDKs that were run against a server whose answers could be set (releases in their
//! User-Agents), or, where a comment says so, from their sources; what is fitted says so, too.

mod client;
mod families;
pub mod rotating_session_server;
mod sdk_rules;
mod wire;

pub use client::{CallOutcome, SimulatedSdkClient};
pub use families::{Family, JAVA_1_11, all, allowed_fetches_per_hour, family};
pub use sdk_rules::{ExpiredCredentialsPolicy, FailedFetchPolicy, RefreshTiming, Rule, UniformSeconds};
pub use wire::{ListingPathStyle, SessionTokenUse, Wire};

/// A minute, in seconds.
pub const MINUTE: i64 = 60;

/// An hour, in seconds.
pub const HOUR: i64 = 3600;
