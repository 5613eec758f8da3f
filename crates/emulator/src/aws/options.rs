//! The options of the AWS emulator.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use seawall_core::Secret;

use super::role::IamRole;
use crate::faults::Faults;
use crate::keys::{KeyError, KeySet};

/// The options of the AWS emulator.
#[derive(Clone, Debug)]
pub struct AwsEmulatorOptions {
    /// The address to listen on; port 0 takes a free port.
    pub listen: SocketAddr,
    /// The OpenID Connect providers whose Kubernetes tokens are accepted.
    pub providers: Vec<OidcProvider>,
    /// The roles with their trust policies.
    pub roles: Vec<IamRole>,
    /// True if a role that is not in [`AwsEmulatorOptions::roles`] exists and trusts every caller, for sessions of at most an hour.
    pub unknown_roles_trust_everyone: bool,
    /// The users with permanent keys.
    pub users: Vec<IamUser>,
    /// The EKS associations: the role of each subject (`system:serviceaccount:NS:NAME`), in every cluster.
    pub associations: BTreeMap<String, String>,
    /// The instance of the metadata service.
    pub instance: Ec2Instance,
    /// The initial faults; see [`set_faults`](super::AwsEmulator::set_faults).
    pub faults: Faults,
    /// The longest lifetime of a session, whatever lifetime is requested and allowed.
    pub max_session_lifetime: Duration,
    /// True if session ends have fractions of a second. AWS writes both forms.
    pub fractional_expiry: bool,
}

impl Default for AwsEmulatorOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            providers: Vec::new(),
            roles: Vec::new(),
            unknown_roles_trust_everyone: false,
            users: Vec::new(),
            associations: BTreeMap::new(),
            instance: Ec2Instance::default(),
            faults: Faults::default(),
            max_session_lifetime: Duration::from_secs(12 * 3600),
            fractional_expiry: false,
        }
    }
}

/// An OpenID Connect provider of IAM.
#[derive(Clone, Debug)]
pub struct OidcProvider {
    /// The required `iss` of its tokens.
    pub issuer: String,
    /// The issuer's published keys.
    pub keys: KeySet,
    /// The accepted `aud` values (client ids), such as `sts.amazonaws.com`. A token needs one of them.
    pub audiences: BTreeSet<String>,
}

/// A user with permanent keys.
#[derive(Clone, Debug)]
pub struct IamUser {
    /// The ARN `arn:aws:iam::ACCOUNT:user/NAME`.
    pub arn: String,
    /// The access key id `AKIA…`.
    pub access_key_id: String,
    /// The secret key for signatures.
    pub secret_access_key: Secret<String>,
}

impl IamUser {
    /// Creates a user with new keys.
    ///
    /// # Errors
    /// [`KeyError::Library`] if there is no randomness.
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
    /// The instance id `i-…`.
    pub id: String,
    /// The region, such as `eu-west-1`.
    pub region: String,
    /// The role of the instance profile; `None` without a profile.
    pub role: Option<String>,
    /// True if requests need a token (IMDSv2 only).
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
