//! One Kubernetes API server: how it is reached, a call, a stream of lines.
//!
//! It knows no kind of object and decides nothing: what is asked, how often, and what becomes of a [`Failure`] is for whoever calls.
//! Nothing here names a provider of cryptography: whoever asks hands one in, so that each program keeps the one that it has.
//!
//! By a [`Connector`] and its [`Client`], `cluster` asks what the agent must know of its node: unattended, so what would run a program or believe
//! anybody is refused. `seawall-kubectl` has more of its own, for the tool, and takes from here how requests look, how failures read, and how
//! files are kept fresh.

pub mod access;
pub mod client;
mod failure;
mod line_reader;
pub mod request;
pub mod server;
mod timeouts;

pub use access::{Access, StartError};
pub use client::{Client, Connector, Link};
pub use failure::{Failure, Pauses, Status, StatusDetails};
pub use line_reader::{LARGEST, Lines};
pub use server::{Answering, Body, Carrier};
pub use timeouts::Patience;
