//! The clouds on loopback, good enough that real libraries cannot tell.
//!
//! [`google`] is one listener that answers as Google's security token service, as IAM Credentials and as a
//! virtual machine's metadata server; [`aws`] is one that answers as AWS's security token service, as EKS Auth and as an
//! instance's metadata service. [`kubernetes`] issues ServiceAccount tokens of the shape the API server
//! gives. [`faults`] says how a cloud misbehaves, and may change while it runs.
//!
//! The default of the demo, the upstream of the agent's tests and the command `seawall emulate` are these. Nothing
//! here knows the agent. Every instant that a caller can see comes from the [`seawall_core::Clock`] it passed in.

pub mod aws;
pub mod faults;
pub mod google;
mod jwt;
pub mod keys;
pub mod kubernetes;
mod ledger;
mod reply;
mod server;
