//! Issues ServiceAccount tokens as the Kubernetes API server does.
//!
//! The claims and their order are those of kubernetes/kubernetes `pkg/serviceaccount/claims.go`, the key id that of
//! `pkg/serviceaccount/jwt.go`. Used by tests, by the demo and by `seawall emulate token`; with the key file of a real
//! API server its tokens pass there, too.

use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use seawall_core::Secret;
use serde_json::{Value, json};

use crate::jwt;
use crate::keys::{Algorithm, KeyError, KeySet, SigningKey};

/// An issuer: its URL and its key.
#[derive(Debug)]
pub struct Issuer {
    url: String,
    key: SigningKey,
}

/// The workload that a token speaks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Namespace of the ServiceAccount and of the pod.
    pub namespace: String,
    /// Name of the ServiceAccount.
    pub service_account: String,
    /// The pod the token is bound to, if any.
    pub pod: Option<ObjectReference>,
    /// The node of that pod, if any.
    pub node: Option<ObjectReference>,
}

/// A Kubernetes object as a token names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectReference {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

impl ObjectReference {
    /// An object whose UID is derived from its kind and name, the same on every run.
    pub fn named(kind: &str, name: &str) -> Self {
        Self { name: name.to_owned(), uid: uid(&format!("{kind}/{name}")) }
    }
}

impl Workload {
    /// A ServiceAccount without a pod.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), service_account: name.to_owned(), pod: None, node: None }
    }

    /// The same, bound to the pod of this name.
    #[must_use]
    pub fn in_pod(mut self, name: &str) -> Self {
        self.pod = Some(ObjectReference::named("pod", &format!("{}/{name}", self.namespace)).renamed(name));
        self
    }

    /// The same, on the node of this name.
    #[must_use]
    pub fn on_node(mut self, name: &str) -> Self {
        self.node = Some(ObjectReference::named("node", name));
        self
    }

    /// The `sub` of its tokens.
    pub fn subject(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.service_account)
    }

    fn claims(&self) -> Value {
        let account = format!("serviceaccount/{}/{}", self.namespace, self.service_account);
        let mut claims = json!({
            "namespace": self.namespace,
            "serviceaccount": {"name": self.service_account, "uid": uid(&account)},
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
    /// An issuer with a new key.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn generate(url: &str, algorithm: Algorithm) -> Result<Self, KeyError> {
        Ok(Self::new(url, SigningKey::generate(algorithm)?))
    }

    /// An issuer with a given key.
    pub fn new(url: &str, key: SigningKey) -> Self {
        Self { url: url.to_owned(), key }
    }

    /// The `iss` of its tokens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its key.
    pub fn key(&self) -> &SigningKey {
        &self.key
    }

    /// Its published keys, as the API server's `/openid/v1/jwks` gives them.
    pub fn jwks(&self) -> String {
        self.key.jwks().to_string()
    }

    /// Its published keys, read.
    ///
    /// # Errors
    /// When the cryptographic library fails.
    pub fn key_set(&self) -> Result<KeySet, KeyError> {
        self.key.key_set()
    }

    /// A token for `workload`, valid from `now` for `lifetime`.
    ///
    /// # Errors
    /// When the cryptographic library fails.
    pub fn mint(
        &self,
        workload: &Workload,
        audiences: &[&str],
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<Secret<String>, KeyError> {
        self.sign(&self.claims(workload, audiences, lifetime, now)).map(Secret::new)
    }

    /// The claims that [`Issuer::mint`] signs; a test changes one and signs the rest.
    pub fn claims(
        &self,
        workload: &Workload,
        audiences: &[&str],
        lifetime: Duration,
        now: SystemTime,
    ) -> Value {
        let issued = jwt::seconds(now);
        let mut unique = [0; 16];
        // Only uniqueness rests on it; without randomness nothing could have been signed anyway.
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

    /// Signs any claims, as they are, under this issuer's key id. For tests of what a verifier refuses.
    ///
    /// # Errors
    /// When the cryptographic library fails.
    pub fn sign(&self, claims: &Value) -> Result<String, KeyError> {
        // The API server writes no `typ`.
        let header = json!({"alg": self.key.algorithm().name(), "kid": self.key.id()});
        jwt::sign(&self.key, &header, claims)
    }
}

/// A UID that is a function of the name: the shape of a random UUID, the same on every run.
fn uid(name: &str) -> String {
    let hash = digest(&SHA256, name.as_bytes());
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(hash.as_ref()).for_each(|(byte, hashed)| *byte = *hashed);
    uuid(bytes)
}

/// RFC 9562 section 5.4: version 4, variant 10.
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
