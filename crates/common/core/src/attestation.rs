//! Values of attestation that other crates hold or pass on: the ends of a connection, the addresses that a verdict rests on, and the
//! keys of an identity file.
//!
//! The module implements no attestation; `identity` does. The server passes [`ConnectionEnds`] on, the registry of pods keeps
//! [`AttestedAddresses`], and each cloud defines its [`IdentityFileKey`]s.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

/// The two ends of a connection, by which attestation identifies the pod at the other end. They do not change with the request.
#[derive(Clone, Copy)]
pub struct ConnectionEnds<'a> {
    /// The address of the other end.
    pub peer: SocketAddr,
    /// The address of this end. It costs a system call, so it is read only when needed.
    pub local: &'a (dyn Fn() -> Option<SocketAddr> + Sync),
}

/// The IP addresses by which a pod is told from others. Opaque to the registry of pods: when they change, all decisions about the
/// pod are made anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttestedAddresses(Box<[IpAddr]>);

impl AttestedAddresses {
    /// Creates the value from these addresses.
    pub fn of(addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        Self(addresses.into_iter().collect())
    }

    /// The addresses, as attestation gave them.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.0
    }
}

/// The future that attestation of a connection returns.
pub type AttestFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The kind of object that carries an annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnotatedObject {
    /// The pod itself.
    Pod,
    /// Its ServiceAccount.
    ServiceAccount,
    /// Its namespace.
    Namespace,
}

/// A key of an identity file that stands for an annotation, because `static` identity has no objects that could carry one. Each cloud
/// defines its own.
#[derive(Clone, Copy, Debug)]
pub struct IdentityFileKey {
    /// The key as it is written in the file.
    pub name: &'static str,
    /// The kind of object that would carry the annotation.
    pub object: AnnotatedObject,
    /// The annotation that the key stands for.
    pub annotation: &'static str,
    /// The expected value, for error messages.
    pub expected: &'static str,
    /// True if a text is a valid value.
    pub is_valid: fn(&str) -> bool,
}
