//! Keys that sign JSON web tokens, and published key sets that verify them.
//!
//! The key decides the algorithm, never the token. An RSA key verifies only RS256, so a token with `none`, or with `HS256` and the public
//! key as its secret, cannot be accepted. The code uses aws-lc-rs directly. A JWT library would bring a process-wide provider, a panic if
//! two providers are compiled in, and algorithms that no Kubernetes issuer uses.
//!
//! Formats: RFC 7515 (compact form), RFC 7517 and 7518 (key sets), RFC 7468 (PEM). The key id is that of the Kubernetes API server:
//! base64url of SHA-256 over the public key's DER (kubernetes/kubernetes pkg/serviceaccount/jwt.go).

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, ParsedPublicKey,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, RsaPublicKeyComponents,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD as BASE64URL};
use seawall_core::Secret;
use serde::Deserialize;
use serde_json::{Value, json};

/// The two algorithms that Kubernetes issuers use and Google's STS accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
}

impl Algorithm {
    /// Returns the name in a token's header (RFC 7518 section 3.1).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
        }
    }
}

/// The reason why a key cannot be made, read or used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text has no block with a private key.
    #[error("expected a PEM block of a private key (PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY)")]
    NotPem,
    /// The block has another kind of key, or is damaged.
    #[error("the key is neither an RSA key of at least 2048 bits nor an EC key on P-256")]
    Unusable,
    /// The cryptographic library failed, for lack of randomness.
    #[error("the cryptographic library failed")]
    Library,
    /// The text is not a JSON web key set.
    #[error("the text is not a JSON web key set")]
    NotKeySet,
    /// The key set has no RS256 or ES256 key.
    #[error("the key set has neither an RSA nor a P-256 key for signatures")]
    NoKey,
}

/// A private key with its key id.
pub struct SigningKey {
    pair: Pair,
    id: String,
}

enum Pair {
    Rsa(Box<RsaKeyPair>),
    Ec(Box<EcdsaKeyPair>),
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({} {})", self.algorithm().name(), self.id)
    }
}

impl SigningKey {
    /// Generates a key. RSA has 2048 bits and takes some tenths of a second; P-256 takes no noticeable time.
    ///
    /// # Errors
    /// [`KeyError::Library`] if the cryptographic library fails.
    pub fn generate(algorithm: Algorithm) -> Result<Self, KeyError> {
        let pair = match algorithm {
            Algorithm::Rs256 => RsaKeyPair::generate(KeySize::Rsa2048).map(Box::new).map(Pair::Rsa),
            Algorithm::Es256 => {
                EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map(Box::new).map(Pair::Ec)
            }
        };
        Self::with_id(pair.map_err(|_| KeyError::Library)?)
    }

    /// Reads the first private key of a PEM text: PKCS#8, PKCS#1 or SEC 1, as `kube-apiserver --service-account-signing-key-file` does.
    ///
    /// # Errors
    /// [`KeyError::NotPem`] without a key, [`KeyError::Unusable`] for an unsupported one.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let (label, der) = private_block(text).ok_or(KeyError::NotPem)?;
        let pair = match label {
            "RSA PRIVATE KEY" => RsaKeyPair::from_der(&der).ok().map(Box::new).map(Pair::Rsa),
            "EC PRIVATE KEY" => EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_FIXED_SIGNING, &der)
                .ok()
                .map(Box::new)
                .map(Pair::Ec),
            _ => from_pkcs8(&der),
        };
        Self::with_id(pair.ok_or(KeyError::Unusable)?)
    }

    fn with_id(pair: Pair) -> Result<Self, KeyError> {
        let id = match &pair {
            Pair::Rsa(pair) => key_id(pair.public_key().as_der()),
            Pair::Ec(pair) => key_id(pair.public_key().as_der()),
        };
        Ok(Self { pair, id: id? })
    }

    /// Writes the key as PKCS#8 PEM, which `kube-apiserver` and OpenSSL read.
    ///
    /// # Errors
    /// [`KeyError::Library`] if the cryptographic library fails.
    pub fn to_pem(&self) -> Result<Secret<String>, KeyError> {
        let body = match &self.pair {
            Pair::Rsa(pair) => {
                let der: Pkcs8V1Der<'_> = pair.as_der().map_err(|_| KeyError::Library)?;
                STANDARD.encode(der.as_ref())
            }
            Pair::Ec(pair) => STANDARD.encode(pair.to_pkcs8v1().map_err(|_| KeyError::Library)?.as_ref()),
        };
        Ok(Secret::new(pem("PRIVATE KEY", &body)))
    }

    /// Returns the algorithm of the key's signatures.
    pub fn algorithm(&self) -> Algorithm {
        match self.pair {
            Pair::Rsa(_) => Algorithm::Rs256,
            Pair::Ec(_) => Algorithm::Es256,
        }
    }

    /// Returns the `kid` of the key's tokens and of its entry in the published set.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the public key as a JSON web key.
    pub fn jwk(&self) -> Value {
        match &self.pair {
            Pair::Rsa(pair) => {
                let public = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public_key());
                json!({"use": "sig", "kty": "RSA", "kid": self.id, "alg": "RS256",
                       "n": BASE64URL.encode(public.n), "e": BASE64URL.encode(public.e)})
            }
            Pair::Ec(pair) => {
                // SEC 1 section 2.3.3: 0x04, then both coordinates of 32 bytes.
                let point = pair.public_key().as_ref().get(1..).unwrap_or_default();
                let (x, y) = point.split_at(point.len() / 2);
                json!({"use": "sig", "kty": "EC", "crv": "P-256", "kid": self.id, "alg": "ES256",
                       "x": BASE64URL.encode(x), "y": BASE64URL.encode(y)})
            }
        }
    }

    /// Returns the published key set with this key alone.
    pub fn jwks(&self) -> Value {
        json!({ "keys": [self.jwk()] })
    }

    /// Returns a key set that verifies this key's signatures.
    ///
    /// # Errors
    /// [`KeyError::Library`] if the cryptographic library fails.
    pub fn key_set(&self) -> Result<KeySet, KeyError> {
        KeySet::from_value(self.jwks()).map_err(|_| KeyError::Library)
    }

    /// Signs `message`, in the form of a compact token.
    ///
    /// # Errors
    /// [`KeyError::Library`] if the cryptographic library fails.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
                    .map_err(|_| KeyError::Library)?;
                Ok(signature)
            }
            Pair::Ec(pair) => {
                pair.sign(&random, message).map(|s| s.as_ref().to_vec()).map_err(|_| KeyError::Library)
            }
        }
    }
}

fn from_pkcs8(der: &[u8]) -> Option<Pair> {
    let rsa = RsaKeyPair::from_pkcs8(der).map(Box::new).map(Pair::Rsa);
    rsa.or_else(|_| {
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der).map(Box::new).map(Pair::Ec)
    })
    .ok()
}

fn key_id(der: Result<PublicKeyX509Der<'_>, Unspecified>) -> Result<String, KeyError> {
    Ok(BASE64URL.encode(digest(&SHA256, der.map_err(|_| KeyError::Library)?.as_ref())))
}

fn pem(label: &str, body: &str) -> String {
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in body.as_bytes().chunks(64) {
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}

fn private_block(text: &str) -> Option<(&str, Vec<u8>)> {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("-----BEGIN ") {
        let (label, after) = after.split_once("-----")?;
        let (body, after) = after.split_once("-----END ")?;
        if label.ends_with("PRIVATE KEY") {
            let packed: String = body.split_ascii_whitespace().collect();
            return Some((label, STANDARD.decode(packed).ok()?));
        }
        rest = after;
    }
    None
}

/// Public keys by key id.
#[derive(Clone, Debug)]
pub struct KeySet(Vec<PublicKey>);

#[derive(Clone)]
pub(crate) struct PublicKey {
    id: String,
    algorithm: Algorithm,
    key: ParsedPublicKey,
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.algorithm.name(), self.id)
    }
}

impl PublicKey {
    pub(crate) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.key.verify_sig(message, signature).is_ok()
    }
}

impl KeySet {
    /// Parses a JSON web key set, such as the API server's `/openid/v1/jwks`. Keys of other kinds or for encryption are ignored, as RFC
    /// 7517 section 5 requires.
    ///
    /// # Errors
    /// [`KeyError::NotKeySet`] for another text, [`KeyError::NoKey`] without a usable key.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        Self::from_value(serde_json::from_str(text).map_err(|_| KeyError::NotKeySet)?)
    }

    fn from_value(value: Value) -> Result<Self, KeyError> {
        let set: JwkSet = serde_json::from_value(value).map_err(|_| KeyError::NotKeySet)?;
        let keys: Vec<_> = set.keys.into_iter().filter_map(Jwk::public_key).collect();
        if keys.is_empty() { Err(KeyError::NoKey) } else { Ok(Self(keys)) }
    }

    /// Returns the keys that may have signed a token with this `kid`: the key with that id, or all keys without a `kid`.
    pub(crate) fn candidates<'k>(&'k self, id: Option<&str>) -> impl Iterator<Item = &'k PublicKey> {
        self.0.iter().filter(move |key| id.is_none_or(|id| key.id == id))
    }
}

#[derive(Deserialize)]
struct JwkSet {
    keys: Vec<Jwk>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(default)]
    kid: String,
    #[serde(rename = "use")]
    purpose: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Jwk {
    fn public_key(self) -> Option<PublicKey> {
        if self.purpose.as_deref().is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let (algorithm, key) = match self.kty.as_str() {
            "RSA" => (Algorithm::Rs256, self.rsa()?),
            "EC" if self.crv.as_deref() == Some("P-256") => (Algorithm::Es256, self.ec()?),
            _ => return None,
        };
        Some(PublicKey { id: self.kid, algorithm, key })
    }

    fn rsa(&self) -> Option<ParsedPublicKey> {
        let components = RsaPublicKeyComponents { n: part(self.n.as_ref())?, e: part(self.e.as_ref())? };
        components.to_parsed_public_key(&RSA_PKCS1_2048_8192_SHA256).ok()
    }

    fn ec(&self) -> Option<ParsedPublicKey> {
        let mut point = vec![4];
        point.extend(part(self.x.as_ref())?);
        point.extend(part(self.y.as_ref())?);
        ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).ok()
    }
}

fn part(text: Option<&String>) -> Option<Vec<u8>> {
    BASE64URL.decode(text?).ok()
}
