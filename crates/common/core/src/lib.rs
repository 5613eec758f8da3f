//! Words without I/O: what a pod, a lease, a secret and an instant are.
//!
//! Every other crate speaks these words. Nothing here opens a socket; only [`clock`] and [`mod@file`] ask the system anything
//! (the time; a named file, which three crates must read with the same care), and `disk` has a thread for what a disk can hold up. ARCHITECTURE's words and this crate's names are the same on purpose.

pub mod annotations;
pub mod attestation;
pub mod backoff;
pub mod clock;
pub mod cloud;
#[cfg(feature = "sleep")]
pub mod disk;
pub mod duration;
pub mod endpoint;
pub mod events;
pub mod fair_share;
pub mod file;
pub mod lease;
pub mod limiter;
pub mod names;
pub mod pod;
pub mod secret;
#[cfg(feature = "sleep")]
pub mod shutdown;
pub mod terminal_safe;

pub use annotations::PodAnnotations;
pub use backoff::Backoff;
pub use clock::{Clock, ManualClock, Moment};
pub use lease::{Floor, Lease};
pub use limiter::Gcra;
pub use pod::{Pod, PodUid, ServiceAccount};
pub use secret::Secret;
