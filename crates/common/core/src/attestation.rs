//! Values of attestation that others hold or say: what of a connection is looked at, what a verdict rests on, and what an entry of an
//! identity file may say beside who its pod is.
//!
//! Knows no way of attestation. `identity` has those; the server hands [`ConnectionEnds`] on, the registry of pods keeps a [`AttestedAddresses`], each cloud names
//! its [`IdentityFileKey`]s.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

/// A connection, as far as it tells who is at its other end: the same for all that is asked about it.
#[derive(Clone, Copy)]
pub struct ConnectionEnds<'a> {
    /// The other end.
    pub peer: SocketAddr,
    /// This end, which costs a call of the system: for those who need it.
    pub local: &'a (dyn Fn() -> Option<SocketAddr> + Sync),
}

/// The IP addresses by which a pod is told from others. Opaque to whoever keeps pods: when they are others, all that was decided for the
/// pod is decided anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttestedAddresses(Box<[IpAddr]>);

impl AttestedAddresses {
    /// These addresses.
    pub fn of(addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        Self(addresses.into_iter().collect())
    }

    /// The addresses, as attestation gave them.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.0
    }
}

/// A future that whoever tells who is at the other end of a connection returns.
pub type AttestFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What carries an annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnotatedObject {
    /// The pod itself.
    Pod,
    /// Its ServiceAccount.
    ServiceAccount,
    /// Its namespace.
    Namespace,
}

/// What an entry may say beside who the pod is: a key in the file that stands for an annotation, as there are no objects here
/// that could carry one. Each cloud names its own.
#[derive(Clone, Copy, Debug)]
pub struct IdentityFileKey {
    /// As it is written in the file.
    pub name: &'static str,
    /// What would carry the annotation that it stands for.
    pub object: AnnotatedObject,
    /// That annotation.
    pub annotation: &'static str,
    /// What is to stand there, for whoever wrote something else.
    pub expected: &'static str,
    /// Whether a text is that.
    pub is_valid: fn(&str) -> bool,
}
