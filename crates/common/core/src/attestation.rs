//! The types of attestation that several crates use: connection ends, a pod's attested addresses, and the keys of an identity
//! file.
//!
//! `identity` implements the attestation. The server forwards [`ConnectionEnds`], the registry of pods stores
//! [`AttestedAddresses`], and each cloud defines its [`IdentityFileKey`]s.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

/// The two ends of a connection, by which attestation identifies the client's pod. All requests of a connection have the same
/// ends.
#[derive(Clone, Copy)]
pub struct ConnectionEnds<'a> {
    /// The address of the client.
    pub peer: SocketAddr,
    /// Returns the local address. Each call makes a system call, so code should call this function only when needed.
    pub read_local_address: &'a (dyn Fn() -> Option<SocketAddr> + Sync),
}

/// The IP addresses by which attestation distinguishes a pod from other pods. The registry of pods does not interpret the
/// addresses. When they change, the agent repeats all decisions about the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttestedAddresses(Box<[IpAddr]>);

impl AttestedAddresses {
    /// Creates the value from these addresses.
    pub fn from_addresses(addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        Self(addresses.into_iter().collect())
    }

    /// Returns the addresses that attestation supplied.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.0
    }
}

/// The future of an attestation step.
pub type AttestFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The kind of object that has an annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnotatedObject {
    /// The pod itself.
    Pod,
    /// The pod's ServiceAccount.
    ServiceAccount,
    /// The pod's namespace.
    Namespace,
}

/// A key of an identity file that replaces an annotation, because `static` identity has no Kubernetes objects.
/// Each cloud defines its own keys.
#[derive(Clone, Copy, Debug)]
pub struct IdentityFileKey {
    /// The name of the key in the file.
    pub name: &'static str,
    /// The kind of object that would have the annotation.
    pub object: AnnotatedObject,
    /// The annotation that the key replaces.
    pub annotation: &'static str,
    /// A description of the expected value, for error messages.
    pub expected: &'static str,
    /// Returns true if a text is a valid value of the key.
    pub is_valid: fn(&str) -> bool,
}
