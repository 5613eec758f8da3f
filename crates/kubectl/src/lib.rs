//! What a person's `kubectl` does at an API server, by the same files: calls, logs, watches, and attaching to a container.
//!
//! Apart from `seawall-kube`, which asks unattended: here a kubeconfig may name a program that gives credentials, a proxy, or somebody else to
//! act as. It shares with it how requests look, how failures read, and how files are kept fresh. Only the tool uses it.

mod api;
pub mod attach;
mod choice;
mod plugin;
mod reach;

pub use api::{
    AccessVerdict, Api, ContextInfo, LogOptions, ObjectChange, ObjectList, ResourceAttributes, WatchStream,
    WriteMode,
};
pub use choice::KubeconfigSelection;
