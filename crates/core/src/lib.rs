//! Words without I/O: what a pod, a lease, a secret and an instant are.
//!
//! Every other crate speaks these words. Nothing here opens a file or a socket; only [`clock`] asks the
//! system anything (the time). DESIGN's vocabulary and this crate's names are the same on purpose.

pub mod backoff;
pub mod clock;
pub mod lease;
pub mod limiter;
pub mod pod;
pub mod secret;
pub mod share;

pub use backoff::Backoff;
pub use clock::{Clock, ManualClock, Moment};
pub use lease::{Floor, Lease};
pub use limiter::Gcra;
pub use pod::{Pod, PodUid, ServiceAccount};
pub use secret::Secret;
