//! One Kubernetes API server: how it is reached, a call, a stream of lines.
//!
//! It knows no kind of object and decides nothing: what is asked, how often, and what becomes of a [`Failure`] is for whoever calls.
//! `cluster` asks what the agent must know of its node. Nothing here names a provider of cryptography: whoever makes a [`Connector`]
//! hands one in, so that each program keeps the one that it has.

mod access;
mod client;
mod failure;
mod lines;
mod patience;
pub mod request;
mod server;

pub use access::{Access, StartError};
pub use client::{Client, Connector, Link};
pub use failure::{Failure, Pauses, Status, StatusDetails};
pub use lines::{LARGEST, Lines};
pub use patience::Patience;
pub use server::{Answering, Body, Carrier};
