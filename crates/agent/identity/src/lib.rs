//! Which pod is at the other end of a connection, and what that pod may have.
//!
//! The strategy that is configured is started here; it keeps the registry of pods, gives them anew what they may have when the cluster
//! or the configuration changes, and resolves connections for the server. Refuses to know what a cloud grants: it asks the clouds.

mod attestation;
mod cluster_attester;
pub mod config;
pub mod downward_api;
pub mod entitlement_swap;
mod pod_registry;
pub mod pod_resolver;
mod reconcile;
pub mod redirect;
mod redirect_target;
pub mod service;
