//! What to run: everything that the emulator is told before it starts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use seawall_core::Secret;

use super::role::IamRole;
use crate::faults::Faults;
use crate::keys::{KeyError, KeySet};

/// What to run.
#[derive(Clone, Debug)]
pub struct AwsEmulatorOptions {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The OpenID Connect providers whose Kubernetes tokens are taken.
    pub providers: Vec<OidcProvider>,
    /// The roles that there are, and whom each trusts.
    pub roles: Vec<IamRole>,
    /// Whether a role that is not among [`AwsEmulatorOptions::roles`] is one that trusts everybody, for an hour at most.
    pub everyone: bool,
    /// Users with keys of their own.
    pub users: Vec<IamUser>,
    /// EKS's associations: the role of each subject (`system:serviceaccount:NS:NAME`), whatever the cluster.
    pub associations: BTreeMap<String, String>,
    /// The instance of the metadata service.
    pub instance: Ec2Instance,
    /// What goes wrong from the start; see [`set_faults`](super::AwsEmulator::set_faults).
    pub faults: Faults,
    /// The longest life of any session issued, however long a one is asked for and allowed.
    pub session_lifetime: Duration,
    /// Whether ends of sessions are stated with fractions of a second: AWS does both.
    pub fractions: bool,
}

impl Default for AwsEmulatorOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            providers: Vec::new(),
            roles: Vec::new(),
            everyone: false,
            users: Vec::new(),
            associations: BTreeMap::new(),
            instance: Ec2Instance::default(),
            faults: Faults::default(),
            session_lifetime: Duration::from_secs(12 * 3600),
            fractions: false,
        }
    }
}

/// An OpenID Connect provider of IAM: whose tokens are taken.
#[derive(Clone, Debug)]
pub struct OidcProvider {
    /// The `iss` its tokens must have.
    pub issuer: String,
    /// The issuer's published keys.
    pub keys: KeySet,
    /// The `aud` values (client ids), of which one must be in the token; such as `sts.amazonaws.com`.
    pub audiences: BTreeSet<String>,
}

/// A user with keys that do not end.
#[derive(Clone, Debug)]
pub struct IamUser {
    /// `arn:aws:iam::ACCOUNT:user/NAME`.
    pub arn: String,
    /// `AKIA…`.
    pub access_key_id: String,
    /// The key that it signs with.
    pub secret_access_key: Secret<String>,
}

impl IamUser {
    /// A user with new keys.
    ///
    /// # Errors
    /// [`KeyError::Library`] only: no randomness.
    pub fn generate(arn: &str) -> Result<Self, KeyError> {
        let (mut id, mut secret) = ([0; 8], [0; 30]);
        aws_lc_rs::rand::fill(&mut id)
            .and_then(|()| aws_lc_rs::rand::fill(&mut secret))
            .map_err(|_| KeyError::Library)?;
        Ok(Self {
            arn: arn.to_owned(),
            access_key_id: format!("AKIA{:016X}", u64::from_be_bytes(id)),
            secret_access_key: Secret::new(STANDARD.encode(secret)),
        })
    }
}

/// The instance of the metadata service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ec2Instance {
    /// `i-…`.
    pub id: String,
    /// The region, such as `eu-west-1`.
    pub region: String,
    /// The role of its instance profile; `None` has no profile.
    pub role: Option<String>,
    /// Whether requests need a token (IMDSv2 only).
    pub tokens_required: bool,
}

impl Default for Ec2Instance {
    fn default() -> Self {
        Self {
            id: "i-0123456789abcdef0".into(),
            region: "eu-west-1".into(),
            role: Some("arn:aws:iam::123456789012:role/node".into()),
            tokens_required: true,
        }
    }
}
