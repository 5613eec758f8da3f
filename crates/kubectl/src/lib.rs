//! The functions of a user's `kubectl`, with the same files: calls, logs, watches and attachments.
//!
//! This crate differs from `seawall-kube`, which works unattended. Here a kubeconfig may name a credential plugin, a proxy or another
//! identity. Both share the form of requests, the reading of failures, and the refresh of files. Only the tool uses this crate.

mod api;
mod api_connection;
pub mod attach;
mod kubeconfig;
mod plugin;

pub use api::{
    AccessVerdict, Api, ContextInfo, LogOptions, ObjectChange, ObjectList, ResourceAttributes, WatchStream,
    WriteMode,
};
pub use kubeconfig::KubeconfigSelection;
