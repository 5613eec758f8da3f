//! AWS: what its section says, what a pod is entitled to, and its dialects on each traffic thread.

mod annotations;
mod arn;
mod namespace;
mod policy;
mod session;
