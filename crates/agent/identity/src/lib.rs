//! Identifies the pod that opened a connection, and keeps each pod's entitlements current.
//!
//! A pod's entitlements define what the pod may get from each cloud. This crate starts the configured identity strategy:
//! `static`, `source-ip`, `kernel` or `anyone`. It keeps a registry of pods. It updates a pod's entitlements when the pod, the
//! pod's annotations or the configuration changes. When the server accepts a connection, this crate finds the pod that opened
//! the connection. The crate `clouds` decides what a pod gets.

mod attestation;
mod cluster_attester;
pub mod config;
pub mod downward_api;
pub mod entitlement_swap;
pub mod node_addresses;
mod pod_registry;
pub mod pod_resolver;
mod reconcile;
mod redirect_target;
pub mod redirected_connections;
pub mod start_identity;
