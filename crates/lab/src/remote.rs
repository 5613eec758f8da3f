//! What a generator elsewhere says of what it was asked to do, as data: [`load`] of a load, with what spoke against it second by second.
//!
//! Knows nothing of pods and lines. Written by the program in a pod, read by whoever orders and adds the parts up.

pub mod load;
mod quota;

pub use self::quota::Quota;
