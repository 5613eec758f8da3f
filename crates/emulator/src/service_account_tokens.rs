//! Issues ServiceAccount tokens like the Kubernetes API server.
//!
//! The claims and their order are those of kubernetes/kubernetes `pkg/serviceaccount/claims.go`, the key id that of
//! `pkg/serviceaccount/jwt.go`. Tests, the demo and `seawall emulate token` use this module. With the key file of a real API server, that
//! server accepts the tokens, too.

use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use seawall_core::Secret;
use serde_json::{Value, json};

use crate::jwt;
use crate::keys::{Algorithm, KeyError, KeySet, SigningKey};

/// A token issuer: its URL and its key.
#[derive(Debug)]
pub struct Issuer {
    url: String,
    key: SigningKey,
}

/// The workload of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The namespace of the ServiceAccount and of the pod.
    pub namespace: String,
    /// The name of the ServiceAccount.
    pub service_account_name: String,
    /// The pod to which the token is bound, if any.
    pub pod: Option<ObjectReference>,
    /// The node of the pod, if any.
    pub node: Option<ObjectReference>,
}

/// A Kubernetes object in a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectReference {
    /// The name of the object.
    pub name: String,
    /// The UID of the object.
    pub uid: String,
}

impl ObjectReference {
    /// Returns an object with a UID that is derived from its kind and name, so that it is the same on every run.
    pub fn named(kind: &str, name: &str) -> Self {
        Self { name: name.to_owned(), uid: uid(&format!("{kind}/{name}")) }
    }
}

impl Workload {
    /// Returns a workload without a pod.
    pub fn for_service_account(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), service_account_name: name.to_owned(), pod: None, node: None }
    }

    /// Returns the workload with a token bound to the pod of this name.
    #[must_use]
    pub fn in_pod(mut self, name: &str) -> Self {
        self.pod = Some(ObjectReference::named("pod", &format!("{}/{name}", self.namespace)).renamed(name));
        self
    }

    /// Returns the workload on the node of this name.
    #[must_use]
    pub fn on_node(mut self, name: &str) -> Self {
        self.node = Some(ObjectReference::named("node", name));
        self
    }

    /// Returns the `sub` of the workload's tokens.
    pub fn subject(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.service_account_name)
    }

    fn claims(&self) -> Value {
        let account = format!("serviceaccount/{}/{}", self.namespace, self.service_account_name);
        let mut claims = json!({
            "namespace": self.namespace,
            "serviceaccount": {"name": self.service_account_name, "uid": uid(&account)},
        });
        for (kind, object) in [("node", &self.node), ("pod", &self.pod)] {
            if let Some(object) = object {
                claims[kind] = json!({"name": object.name, "uid": object.uid});
            }
        }
        claims
    }
}

impl ObjectReference {
    fn renamed(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }
}

impl Issuer {
    /// Creates an issuer with a new key.
    ///
    /// # Errors
    /// No key can be made.
    pub fn generate(url: &str, algorithm: Algorithm) -> Result<Self, KeyError> {
        Ok(Self::new(url, SigningKey::generate(algorithm)?))
    }

    /// Creates an issuer with this key.
    pub fn new(url: &str, key: SigningKey) -> Self {
        Self { url: url.to_owned(), key }
    }

    /// Returns the `iss` of the issuer's tokens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the key of the issuer.
    pub fn key(&self) -> &SigningKey {
        &self.key
    }

    /// Returns the published key set, like the API server's `/openid/v1/jwks`.
    pub fn jwks(&self) -> String {
        self.key.jwks().to_string()
    }

    /// Returns the parsed key set of the issuer.
    ///
    /// # Errors
    /// The cryptographic library fails.
    pub fn key_set(&self) -> Result<KeySet, KeyError> {
        self.key.key_set()
    }

    /// Issues a token for `workload` that is valid from `now` for `lifetime`.
    ///
    /// # Errors
    /// The cryptographic library fails.
    pub fn mint(
        &self,
        workload: &Workload,
        audiences: &[&str],
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<Secret<String>, KeyError> {
        self.sign(&self.claims(workload, audiences, lifetime, now)).map(Secret::new)
    }

    /// Returns the claims that [`Issuer::mint`] signs. A test can change one of them and sign the result.
    pub fn claims(
        &self,
        workload: &Workload,
        audiences: &[&str],
        lifetime: Duration,
        now: SystemTime,
    ) -> Value {
        let issued = jwt::unix_seconds(now);
        let mut unique = [0; 16];
        // Only the uniqueness depends on this. Without randomness, signing would have failed before.
        let _ = aws_lc_rs::rand::fill(&mut unique);
        json!({
            "aud": audiences,
            "exp": issued.saturating_add(lifetime.as_secs()),
            "iat": issued,
            "iss": self.url,
            "jti": uuid(unique),
            "kubernetes.io": workload.claims(),
            "nbf": issued,
            "sub": workload.subject(),
        })
    }

    /// Signs any claims with this issuer's key id, for tests of a verifier's refusals.
    ///
    /// # Errors
    /// The cryptographic library fails.
    pub fn sign(&self, claims: &Value) -> Result<String, KeyError> {
        // The API server writes no `typ`.
        let header = json!({"alg": self.key.algorithm().name(), "kid": self.key.id()});
        jwt::sign(&self.key, &header, claims)
    }
}

/// Returns a UID that is computed from the name. It looks like a random UUID but is the same on every run.
fn uid(name: &str) -> String {
    let hash = digest(&SHA256, name.as_bytes());
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(hash.as_ref()).for_each(|(byte, hashed)| *byte = *hashed);
    uuid(bytes)
}

/// Formats a UUID of version 4, variant 10 (RFC 9562 section 5.4).
fn uuid(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let number = format!("{:032x}", u128::from_be_bytes(bytes));
    let (a, rest) = number.split_at(8);
    let (b, rest) = rest.split_at(4);
    let (c, rest) = rest.split_at(4);
    let (d, e) = rest.split_at(4);
    format!("{a}-{b}-{c}-{d}-{e}")
}
