//! One Kubernetes API server: how it is reached, a call, a stream of lines, an attachment.
//!
//! It knows no kind of object and decides nothing: what is asked, how often, and what becomes of a [`Failure`] is for whoever calls.
//! Nothing here names a provider of cryptography: whoever asks hands one in, so that each program keeps the one that it has.
//!
//! There are two ways in. By a [`Connector`] and its [`Client`], `cluster` asks what the agent must know of its node: unattended, so what
//! would run a program or believe anybody is refused. By an [`Api`], a program at a person's hands does what the person's `kubectl` would,
//! by the same files. They share how requests look, how failures read, and how files are kept fresh; the agent calls nothing of the second,
//! so its program holds nothing of it.

mod access;
mod api;
pub mod attach;
mod client;
mod failure;
mod lines;
mod patience;
mod reach;
pub mod request;
mod server;

pub use access::choice::Choice;
pub use access::{Access, StartError};
pub use api::{Api, Change, Deed, Listed, Log, Opened, Run, Verdict, Watching};
pub use client::{Client, Connector, Link};
pub use failure::{Failure, Pauses, Status, StatusDetails};
pub use lines::{LARGEST, Lines};
pub use patience::Patience;
pub use server::{Answering, Body, Carrier};
