//! Identifies the pod at the other end of a connection, and keeps the entitlements of each pod.
//!
//! The configured strategy starts here. It keeps the registry of pods, decides their entitlements again when the cluster or the
//! configuration changes, and resolves connections for the server. It does not know what a cloud grants: it asks the clouds.

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
