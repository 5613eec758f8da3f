//! The flags, and what each of their groups stands for.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use seawall_emulator::google::{GceMachine, GoogleEmulator, GoogleEndpoint, ImpersonationPolicy};
use seawall_emulator::keys::{Algorithm, KeySet, SigningKey};

use crate::emulate::faults::FaultArgs;
use crate::emulate::parse::{GooglePodArg, ImpersonationGrant};
use crate::emulate::{ISSUER, files, parse};

/// Flags of `seawall emulate google`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example, with a cluster's own keys:
  kubectl get --raw /openid/v1/jwks > jwks.json
  seawall emulate google --jwks jwks.json --audience reef.svc.id.goog \\
    --allow reef/coral=coral@my-project.iam.gserviceaccount.com --listen 127.0.0.1:8790

Example, with three pods and a slow cloud that throttles above 50 requests per second:
  seawall emulate google --demo-pods ./pods reef/coral reef/kelp deep/squid \\
    --latency 80ms --jitter 40ms --throttle 50 --ready-file ./google.json

To see how many requests arrived: GET /emulator/counts. To see whose token it is: GET /tokeninfo?access_token=TOKEN.
Exit code: 0 after SIGTERM or SIGINT, 1 if a file or the address cannot be used, 2 if a flag is wrong.")]
pub(crate) struct EmulateGoogleArgs {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8790")]
    pub(super) listen: SocketAddr,
    /// File for the addresses as JSON; seawall creates the file when all servers listen
    #[arg(long, value_name = "FILE")]
    pub(super) ready_file: Option<PathBuf>,
    /// Print the JSON of --ready-file on one line instead of text
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) trust: GoogleTrustArgs,
    #[command(flatten)]
    pub(super) machine: MachineArgs,
    #[command(flatten)]
    pub(super) faults: FaultArgs,
    #[command(flatten)]
    pub(super) fault_on: GoogleFaultOnArgs,
    #[command(flatten)]
    pub(super) demo: GoogleDemoArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Tokens")]
pub(super) struct GoogleTrustArgs {
    /// File with the published keys of the issuer (a JSON web key set)
    #[arg(long, value_name = "FILE", required_unless_present = "demo_pods", conflicts_with = "demo_pods")]
    pub(super) jwks: Option<PathBuf>,
    /// Issuer (`iss`) of the Kubernetes tokens
    #[arg(long, value_name = "URL", default_value = ISSUER)]
    pub(super) issuer: String,
    /// Audience (`aud`) that the exchange expects in Kubernetes tokens; repeatable [default: the provider's name]
    #[arg(long, value_name = "AUD")]
    pub(super) audience: Vec<String>,
    /// Name of the workload identity provider (`audience` of an exchange): //iam.googleapis.com/…, or for POST
    /// /v1/identitybindingtoken identitynamespace:POOL:CLUSTER [default: a provider of the project]
    #[arg(long, value_name = "NAME")]
    pub(super) provider: Option<String>,
    /// Let a Kubernetes ServiceAccount impersonate a Google service account; repeatable
    #[arg(long, value_name = "NS/SA=EMAIL", value_parser = parse::parse_impersonation_grant, conflicts_with = "allow_all")]
    pub(super) allow: Vec<ImpersonationGrant>,
    /// Let every ServiceAccount impersonate every service account
    #[arg(long)]
    pub(super) allow_all: bool,
    /// Maximum lifetime of a token, even if a longer lifetime is requested
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse::parse_lifetime)]
    pub(super) token_lifetime: Duration,
    /// Allow token lifetimes of up to twelve hours instead of one hour, as an organisation policy can
    #[arg(long)]
    pub(super) long_lifetimes: bool,
    /// RSA key (PEM) that signs identity tokens [default: a new key]
    #[arg(long, value_name = "FILE")]
    pub(super) identity_key: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Machine of the metadata server")]
pub(super) struct MachineArgs {
    /// Project id
    #[arg(long, value_name = "ID", default_value = "seawall-emulator")]
    pub(super) project: String,
    /// Project number
    #[arg(long, value_name = "NUMBER", default_value_t = 123_456_789_012, value_parser = clap::value_parser!(i64).range(1..))]
    pub(super) project_number: i64,
    /// Zone
    #[arg(long, value_name = "ZONE", default_value = "europe-west1-b")]
    pub(super) zone: String,
    /// Name of the machine
    #[arg(long, value_name = "NAME", default_value = "node-1")]
    pub(super) node: String,
    /// Service account of the machine [default: a service account of the project]
    #[arg(long, value_name = "EMAIL")]
    pub(super) node_service_account: Option<String>,
    /// Name of the cluster
    #[arg(long, value_name = "NAME", default_value = "reef")]
    pub(super) cluster: String,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Faults")]
pub(super) struct GoogleFaultOnArgs {
    /// Apply the faults only to these endpoints [default: all four]
    #[arg(long, value_enum, value_name = "ENDPOINT")]
    fault_on: Vec<GoogleFaultTarget>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum GoogleFaultTarget {
    Exchange,
    AccessToken,
    IdToken,
    Metadata,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Demo")]
pub(super) struct GoogleDemoArgs {
    /// Create an issuer, and write a token file for each pod in PODS to this directory; with this token, the pod can impersonate
    /// its service account
    #[arg(long, value_name = "DIR", requires = "pods")]
    pub(super) demo_pods: Option<PathBuf>,
    /// NAMESPACE/SERVICEACCOUNT[=EMAIL]; the default is SERVICEACCOUNT@PROJECT.iam.gserviceaccount.com
    #[arg(value_name = "PODS", value_parser = parse::parse_google_pod)]
    pub(super) pods: Vec<GooglePodArg>,
}

/// Returns the pool in `identitynamespace:POOL:CLUSTER`, the name of a provider of GKE's own pools. Such a provider expects tokens for
/// the pool, and every other provider expects tokens for itself.
pub(super) fn gke_pool(provider: &str) -> Option<&str> {
    let (pool, cluster) = provider.strip_prefix("identitynamespace:")?.split_once(':')?;
    (!pool.is_empty() && !cluster.is_empty()).then_some(pool)
}

impl GoogleTrustArgs {
    /// The audiences that a token may be minted for.
    pub(super) fn audiences_or_default(&self, provider: &str) -> Vec<String> {
        if !self.audience.is_empty() {
            return self.audience.clone();
        }
        vec![gke_pool(provider).unwrap_or(provider).to_owned()]
    }

    pub(super) fn read_jwks(&self) -> anyhow::Result<KeySet> {
        // clap demands --jwks unless there are demo pods.
        let file = self.jwks.as_ref().context("--jwks is missing")?;
        KeySet::parse(&files::read_file(file)?).with_context(|| format!("{} cannot be used", file.display()))
    }

    /// Read or made now: the first identity token must not wait for a key.
    pub(super) fn read_or_generate_identity_key(&self) -> anyhow::Result<SigningKey> {
        let Some(file) = &self.identity_key else {
            return SigningKey::generate(Algorithm::Rs256).context("cannot make a key");
        };
        let key = SigningKey::from_pem(&files::read_file(file)?);
        let key = key.with_context(|| format!("{} cannot be used", file.display()))?;
        anyhow::ensure!(key.algorithm() == Algorithm::Rs256, "{} is not an RSA key", file.display());
        Ok(key)
    }

    pub(super) fn to_impersonation(
        &self,
        demo: impl Iterator<Item = (String, String)>,
    ) -> ImpersonationPolicy {
        if self.allow_all {
            return ImpersonationPolicy::Everyone;
        }
        let allowed = self.allow.iter().map(|grant| (grant.workload.subject(), grant.email.clone()));
        ImpersonationPolicy::Only(allowed.chain(demo).collect())
    }
}

impl MachineArgs {
    pub(super) fn to_gce_machine(&self) -> GceMachine {
        let email = self.node_service_account.clone();
        GceMachine {
            project: self.project.clone(),
            project_number: self.project_number,
            zone: self.zone.clone(),
            name: self.node.clone(),
            service_account: email
                .unwrap_or_else(|| format!("node@{}.iam.gserviceaccount.com", self.project)),
            cluster: self.cluster.clone(),
            ..GceMachine::default()
        }
    }
}

impl EmulateGoogleArgs {
    pub(super) fn apply_faults(&self, running: &GoogleEmulator) {
        let chosen: Vec<_> = self.fault_on.fault_on.iter().map(|each| each.endpoint()).collect();
        for endpoint in if chosen.is_empty() { GoogleEndpoint::FAULT_INJECTABLE.to_vec() } else { chosen } {
            running.set_faults_on(endpoint, self.faults.to_faults());
        }
    }
}

impl GoogleFaultTarget {
    fn endpoint(self) -> GoogleEndpoint {
        match self {
            Self::Exchange => GoogleEndpoint::Exchange,
            Self::AccessToken => GoogleEndpoint::AccessToken,
            Self::IdToken => GoogleEndpoint::IdToken,
            Self::Metadata => GoogleEndpoint::Metadata,
        }
    }
}
