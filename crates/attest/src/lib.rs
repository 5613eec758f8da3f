//! Which pod is at the other end of a connection.
//!
//! A way of attestation is a file here: it answers with a [`Verdict`], and says what that rests on. One of them per
//! configuration, named in it, and no fallback from one to another: an address that it does not know is nobody's, and the caller
//! is refused whatever it asks. There is no default pod and no node identity to fall back to, because a wrong credential is
//! worse than none. Refuses to know what a pod may have, and how a refusal is worded; both are the agent's, which asks once
//! per connection.

mod source_ip;
mod static_identity;
mod token_file;

use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

use seawall_core::PodUid;

pub use source_ip::{NoPod, Pods, SourceIp};
pub use static_identity::{Attested, ByFile, Carrier, FileKey, IdentityError, StaticIdentity};
pub use token_file::TokenFile;

/// Who is at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This pod.
    Pod(PodUid),
    /// Nobody known at this moment. Waiting can help.
    NotYet,
    /// Nobody, and waiting does not help.
    Nobody(Reason),
}

/// Why no pod is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No pod has this address, and none will.
    Unknown,
    /// It comes from the node's own network, where pods cannot be told apart by their addresses.
    HostNetwork,
    /// No pod that has been told of has this address. One that has not may.
    Untold,
    /// Nothing has been told of the node's pods at all.
    NotListed,
    /// More than one pod has this address, or may have.
    Ambiguous,
    /// One was told of, and it is not proven that nothing else has been told since.
    Lagging,
}

/// A connection, as far as it tells who is at its other end.
pub struct Ends<'a> {
    /// The other end.
    pub peer: SocketAddr,
    /// This end, which costs a call of the system: for those who need it.
    pub local: &'a dyn Fn() -> Option<SocketAddr>,
}

/// What it rests on that a pod is told from others. Opaque to whoever keeps pods: when it is another, all that was decided for
/// the pod is decided anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Basis(Box<[IpAddr]>);

impl Basis {
    /// The addresses among it, for people.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.0
    }
}

/// A future that [`Attestation::proven`] and [`Pods::current`] return.
pub type Wait<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A way of attestation at work, asked by all traffic threads.
pub trait Attestation: Debug + Send + Sync {
    /// Who it is, decided without waiting.
    fn verdict(&self, ends: &Ends<'_>) -> Verdict;

    /// Who it probably is, after [`Verdict::NotYet`]: by what was told last, proven or not. For shares and for reasons, never
    /// for credentials.
    ///
    /// # Errors
    /// Why nobody is named.
    fn likely(&self, peer: SocketAddr) -> Result<PodUid, Reason>;

    /// Who it is, after [`Verdict::NotYet`], as soon as that can be proven. Put a limit around it.
    fn proven(&self, peer: SocketAddr) -> Wait<'_, Result<PodUid, Reason>>;

    /// Whether what is known of a pod was known when this peer was taken for it: who keeps pods may be a moment behind.
    fn rests_on(&self, basis: &Basis, peer: SocketAddr) -> bool;
}

/// A pod as a view of the cluster tells of it.
pub struct Sighting<'a> {
    /// Its own addresses.
    pub addresses: &'a [IpAddr],
    /// Whether it shares the node's network.
    pub host_network: bool,
    /// Whether it alone claims an address in this view.
    pub claims: &'a dyn Fn(IpAddr) -> bool,
}

/// A way of attestation whose pods come and go as the cluster tells.
pub trait Founding: Debug + Send + Sync {
    /// What it rests on, in one view, that this pod is told from others; nothing for a pod that cannot be.
    fn basis(&self, pod: &Sighting<'_>) -> Option<Basis>;
}
