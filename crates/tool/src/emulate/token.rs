//! `seawall emulate token`: one ServiceAccount token.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use seawall_core::Clock;
use seawall_emulator::keys::SigningKey;
use seawall_emulator::service_account_tokens::{Issuer, Workload};

use super::{ISSUER, files, parse, print_line};

/// Flags of `seawall emulate token`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  seawall emulate token --key ./issuer/key.pem --namespace reef --service-account coral --pod coral-0 \\
    --audience reef.svc.id.goog --lifetime 1h --output ./coral.token")]
pub(super) struct EmulateTokenArgs {
    /// Private key that signs: PEM, RSA or P-256, such as the API server's own
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// The issuer (`iss`)
    #[arg(long, value_name = "URL", default_value = ISSUER)]
    issuer: String,
    /// Namespace of the ServiceAccount
    #[arg(long, value_name = "NAME")]
    namespace: String,
    /// Name of the ServiceAccount
    #[arg(long, value_name = "NAME")]
    service_account: String,
    /// Pod that the token is bound to
    #[arg(long, value_name = "NAME")]
    pod: Option<String>,
    /// UID of that pod [default: derived from its name]
    #[arg(long, value_name = "UID", requires = "pod")]
    pod_uid: Option<String>,
    /// Node of that pod
    #[arg(long, value_name = "NAME", requires = "pod")]
    node: Option<String>,
    /// Audience (`aud`); repeatable
    #[arg(long, value_name = "AUD", required = true)]
    audience: Vec<String>,
    /// How long the token is valid
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse::parse_lifetime)]
    lifetime: Duration,
    /// File for the token (mode 0600) [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(args: &EmulateTokenArgs) -> anyhow::Result<()> {
    let key = SigningKey::from_pem(&files::read_file(&args.key)?);
    let key = key.with_context(|| format!("{} cannot be used", args.key.display()))?;
    let audiences: Vec<_> = args.audience.iter().map(String::as_str).collect();
    let token = Issuer::new(&args.issuer, key)
        .mint(&args.workload(), &audiences, args.lifetime, Clock::system().wall_time())
        .context("cannot sign the token")?;
    match &args.output {
        Some(file) => files::write_file_atomically(file, token.expose(), files::SECRET_FILE_MODE),
        None => print_line(token.expose()),
    }
}

impl EmulateTokenArgs {
    fn workload(&self) -> Workload {
        let mut workload = Workload::for_service_account(&self.namespace, &self.service_account);
        if let Some(pod) = &self.pod {
            workload = workload.in_pod(pod);
        }
        if let Some((pod, uid)) = workload.pod.as_mut().zip(self.pod_uid.as_ref()) {
            uid.clone_into(&mut pod.uid);
        }
        match &self.node {
            Some(node) => workload.on_node(node),
            None => workload,
        }
    }
}
