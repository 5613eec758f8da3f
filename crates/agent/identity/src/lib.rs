//! Identifies the pod at the other end of a connection, and keeps the entitlements of each pod current.
//!
//! This crate starts the configured identity strategy. It keeps the registry of pods, and updates their entitlements when the
//! cluster or the configuration changes. For the server, it finds the pod that opened a connection. The clouds decide what a
//! pod gets.

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
