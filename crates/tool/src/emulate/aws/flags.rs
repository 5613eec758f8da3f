//! The flags, and what each of their groups stands for.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use seawall_emulator::aws::{AwsEmulator, AwsEndpoint};
use seawall_emulator::keys::KeySet;

use crate::emulate::faults::FaultArgs;
use crate::emulate::parse::{AwsPodArg, RoleGrantArg, UserKeyFileArg};
use crate::emulate::{ISSUER, files, parse};

/// Flags of `seawall emulate aws`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example, with a cluster's own keys:
  kubectl get --raw /openid/v1/jwks > jwks.json
  seawall emulate aws --jwks jwks.json --allow reef/coral=coral --listen 127.0.0.1:8791

Example, with two pods, a node whose role can assume their roles, and an STS that throttles above 5 requests per second:
  seawall emulate aws --demo-pods ./pods reef/coral reef/kelp=arn:aws:iam::210987654321:role/kelp \\
    --node-may-assume --throttle 5 --ready-file ./aws.json

STS, EKS Auth and the metadata service share the address; --fault-on selects some of them. Tokens and signatures are checked.
To see whose credentials you have: aws sts get-caller-identity --endpoint-url http://127.0.0.1:8791. To see how many requests arrived: GET /emulator/counts.
Exit code: 0 after SIGTERM or SIGINT, 1 if a file or the address cannot be used, 2 if a flag is wrong.")]
pub(crate) struct EmulateAwsArgs {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8791")]
    pub(super) listen: SocketAddr,
    /// File for the addresses as JSON; seawall creates the file when all servers listen
    #[arg(long, value_name = "FILE")]
    pub(super) ready_file: Option<PathBuf>,
    /// Print the JSON of --ready-file on one line instead of text
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) trust: AwsTrustArgs,
    #[command(flatten)]
    pub(super) sessions: SessionArgs,
    #[command(flatten)]
    pub(super) instance: InstanceArgs,
    #[command(flatten)]
    pub(super) faults: FaultArgs,
    #[command(flatten)]
    pub(super) fault_on: AwsFaultOnArgs,
    #[command(flatten)]
    pub(super) demo: AwsDemoArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Tokens and roles")]
pub(super) struct AwsTrustArgs {
    /// File with the published keys of the issuer (a JSON web key set)
    #[arg(long, value_name = "FILE", required_unless_present = "demo_pods", conflicts_with = "demo_pods")]
    pub(super) jwks: Option<PathBuf>,
    /// Issuer (`iss`) of the Kubernetes tokens
    #[arg(long, value_name = "URL", default_value = ISSUER)]
    pub(super) issuer: String,
    /// Audience (`aud`) that STS expects in Kubernetes tokens; repeatable; EKS Auth expects pods.eks.amazonaws.com
    #[arg(long, value_name = "AUD", default_value = "sts.amazonaws.com")]
    pub(super) audience: Vec<String>,
    /// Let a ServiceAccount assume a role (name or ARN), and associate the two at EKS; repeatable
    #[arg(long, value_name = "NS/SA=ROLE", value_parser = parse::parse_role_grant)]
    pub(super) allow: Vec<RoleGrantArg>,
    /// At EKS, associate a ServiceAccount with this role instead of the role that --allow names; repeatable
    #[arg(long, value_name = "NS/SA=ROLE", value_parser = parse::parse_role_grant)]
    pub(super) associate: Vec<RoleGrantArg>,
    /// Let every caller assume any role that no other flag names
    #[arg(long)]
    pub(super) allow_all: bool,
    /// Let the instance's role assume every role given by a flag
    #[arg(long)]
    pub(super) node_may_assume: bool,
    /// Create a user that can assume every role given by a flag, and write the user's access keys to a file; repeatable
    #[arg(long, value_name = "NAME=FILE", value_parser = parse::parse_user_and_key_file_arg)]
    pub(super) user: Vec<UserKeyFileArg>,
    /// ExternalId that a signed request must carry to assume a role given by a flag
    #[arg(long, value_name = "ID")]
    pub(super) external_id: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sessions")]
pub(super) struct SessionArgs {
    /// Longest session that a caller can request for a role given by a flag
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse::parse_lifetime)]
    pub(super) max_session: Duration,
    /// Maximum lifetime of a session, even if a longer lifetime is requested and allowed
    #[arg(long, value_name = "DURATION", default_value = "12h", value_parser = parse::parse_lifetime)]
    pub(super) session_lifetime: Duration,
    /// Write expiry times of sessions with fractions of a second
    #[arg(long)]
    pub(super) fractions: bool,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Instance of the metadata service")]
pub(super) struct InstanceArgs {
    /// AWS account of the instance
    #[arg(long, value_name = "ID", default_value = "123456789012", value_parser = parse::parse_aws_account)]
    pub(super) account: String,
    /// AWS region of the instance
    #[arg(long, value_name = "REGION", default_value = "eu-west-1")]
    pub(super) region: String,
    /// Id of the instance
    #[arg(long, value_name = "ID", default_value = "i-0123456789abcdef0")]
    pub(super) instance_id: String,
    /// Role of the instance: a name, or an ARN
    #[arg(long, value_name = "ROLE", default_value = "node")]
    pub(super) node_role: String,
    /// Also serve requests without a session token (IMDSv1)
    #[arg(long)]
    pub(super) without_tokens: bool,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Faults")]
pub(super) struct AwsFaultOnArgs {
    /// Apply the faults only to these endpoints [default: all four]
    #[arg(long, value_enum, value_name = "ENDPOINT")]
    fault_on: Vec<AwsFaultTarget>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum AwsFaultTarget {
    WebIdentity,
    AssumeRole,
    PodIdentity,
    Metadata,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Demo")]
pub(super) struct AwsDemoArgs {
    /// Create an issuer, and write a token file for each pod in PODS to this directory; with this token, the pod can assume
    /// its role
    #[arg(long, value_name = "DIR", requires = "pods")]
    pub(super) demo_pods: Option<PathBuf>,
    /// NAMESPACE/SERVICEACCOUNT[=ROLE]; the default role is SERVICEACCOUNT
    #[arg(value_name = "PODS", value_parser = parse::parse_aws_pod)]
    pub(super) pods: Vec<AwsPodArg>,
}

impl AwsTrustArgs {
    pub(super) fn read_jwks(&self) -> anyhow::Result<KeySet> {
        // clap demands --jwks unless there are demo pods.
        let file = self.jwks.as_ref().context("--jwks is missing")?;
        KeySet::parse(&files::read_file(file)?).with_context(|| format!("{} cannot be used", file.display()))
    }
}

impl InstanceArgs {
    /// The ARN of a role that is given by name, or as one.
    pub(super) fn role_arn_from(&self, role: &str) -> String {
        if role.starts_with("arn:") {
            role.to_owned()
        } else {
            format!("arn:aws:iam::{}:role/{role}", self.account)
        }
    }
}

impl EmulateAwsArgs {
    pub(super) fn apply_faults(&self, running: &AwsEmulator) {
        let chosen: Vec<_> = self.fault_on.fault_on.iter().map(|each| each.endpoint()).collect();
        for endpoint in if chosen.is_empty() { AwsEndpoint::FAULT_INJECTABLE.to_vec() } else { chosen } {
            running.set_faults_on(endpoint, self.faults.to_faults());
        }
    }
}

impl AwsFaultTarget {
    fn endpoint(self) -> AwsEndpoint {
        match self {
            Self::WebIdentity => AwsEndpoint::WebIdentity,
            Self::AssumeRole => AwsEndpoint::AssumeRole,
            Self::PodIdentity => AwsEndpoint::PodIdentity,
            Self::Metadata => AwsEndpoint::Metadata,
        }
    }
}
