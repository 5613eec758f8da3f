//! Which pod is at the other end of a connection, and what that pod may have.
//!
//! The strategy that is configured is started here; it keeps the registry of pods, gives them anew what they may have when the cluster
//! or the configuration changes, and resolves connections for the server. Refuses to know what a cloud grants: it asks the clouds.

pub(crate) mod attester;
pub(crate) mod config;
pub(crate) mod downward_api;
pub(crate) mod entitlement_swap;
pub(crate) mod pod_registry;
pub(crate) mod reconcile;
pub(crate) mod redirect;
pub(crate) mod redirect_target;
pub(crate) mod resolver;
pub(crate) mod socket_owner;
pub(crate) mod strategy;
