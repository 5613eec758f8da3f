//! Everything that is decided and made before the listener is bound: options, and the demo's issuer and tokens.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use seawall_core::{Clock, Secret};
use seawall_emulator::faults::Faults;
use seawall_emulator::google::{GceMachine, GoogleEmulator, GoogleEmulatorOptions, WorkloadIdentityProvider};
use seawall_emulator::keys::{Algorithm, KeySet};
use seawall_emulator::service_account_tokens::{Issuer, Workload};
use serde_json::{Value, json};

use super::flags::{EmulateGoogleArgs, gke_pool};
use crate::emulate::files;
use crate::emulate::parse::GooglePodArg;

/// Life of the demo's token files: nobody renews them as a kubelet would, so they outlive any demo.
const DEMO_TOKEN: Duration = Duration::from_secs(24 * 3600);

/// Everything that is decided before the listener is bound.
pub(super) struct GoogleEmulatorPlan {
    pub(super) options: GoogleEmulatorOptions,
    pub(super) provider: String,
    audiences: Vec<String>,
    issuer: String,
    pub(super) pods: Vec<GoogleDemoPod>,
}

/// A pod of the demo with its token.
pub(super) struct GoogleDemoPod {
    workload: Workload,
    email: String,
    pub(super) token_file: PathBuf,
    token: Secret<String>,
}

impl GoogleEmulatorPlan {
    pub(super) fn new(args: &EmulateGoogleArgs) -> anyhow::Result<Self> {
        let machine = args.machine.to_gce_machine();
        // clap forgets a required flag that conflicts with one given.
        anyhow::ensure!(
            args.demo.demo_pods.is_some() || args.demo.pods.is_empty(),
            "PODS need --demo-pods DIR"
        );
        let provider = args.trust.provider.clone().unwrap_or_else(|| provider_of(&machine));
        anyhow::ensure!(
            provider.starts_with("//") || gke_pool(&provider).is_some(),
            "--provider {provider}: expected a name that begins with //, or identitynamespace:POOL:CLUSTER"
        );
        let audiences = args.trust.audiences_or_default(&provider);
        let (keys, pods) = match &args.demo.demo_pods {
            Some(folder) => args.demo_issuer(folder, &audiences, &machine)?,
            None => (args.trust.read_jwks()?, Vec::new()),
        };
        let trusted = WorkloadIdentityProvider {
            name: provider.clone(),
            issuer: args.trust.issuer.clone(),
            keys,
            audiences: args.trust.audience.iter().cloned().collect(),
        };
        let options = GoogleEmulatorOptions {
            listen: args.listen,
            providers: vec![trusted],
            impersonation: args.trust.to_impersonation(pods.iter().map(GoogleDemoPod::grant)),
            machine,
            faults: Faults::default(),
            max_token_lifetime: args.trust.token_lifetime,
            allows_long_token_lifetimes: args.trust.long_lifetimes,
            identity_key: Some(Arc::new(args.trust.read_or_generate_identity_key()?)),
        };
        Ok(Self { options, provider, audiences, issuer: args.trust.issuer.clone(), pods })
    }

    /// Returns the facts that a script needs, as JSON.
    pub(super) fn ready_document(&self, running: &GoogleEmulator) -> Value {
        let url = running.url();
        let pods = self.pods.iter().map(GoogleDemoPod::ready_document);
        json!({
            "url": url,
            "address": running.address().to_string(),
            "pid": std::process::id(),
            "sts_url": format!("{url}/v1/token"),
            "iam_credentials_url": url,
            "metadata_url": url,
            "counts_url": format!("{url}/emulator/counts"),
            "provider": self.provider,
            "issuer": self.issuer,
            "audiences": self.audiences,
            "project": self.options.machine.project,
            "project_number": self.options.machine.project_number,
            "zone": self.options.machine.zone,
            "pods": pods.collect::<Vec<_>>(),
        })
    }
}

impl GoogleDemoPod {
    /// Returns the subject of the workload and the service account that it may impersonate.
    fn grant(&self) -> (String, String) {
        (self.workload.subject(), self.email.clone())
    }

    /// The file is named after both; a namespace has no dot, so no two pods share one.
    pub(super) fn write_token(&self) -> anyhow::Result<()> {
        files::write_file_atomically(&self.token_file, self.token.expose(), files::SECRET_FILE_MODE)
    }

    fn ready_document(&self) -> Value {
        let pod = self.workload.pod.as_ref();
        json!({
            "namespace": self.workload.namespace,
            "service_account": self.workload.service_account_name,
            "pod": pod.map(|pod| &pod.name),
            "pod_uid": pod.map(|pod| &pod.uid),
            "account": self.email,
            "token_file": self.token_file,
        })
    }
}

fn provider_of(machine: &GceMachine) -> String {
    let number = machine.project_number;
    format!(
        "//iam.googleapis.com/projects/{number}/locations/global/workloadIdentityPools/seawall/providers/cluster"
    )
}

impl EmulateGoogleArgs {
    /// An issuer of this run alone, and a token for each pod.
    fn demo_issuer(
        &self,
        folder: &Path,
        audiences: &[String],
        machine: &GceMachine,
    ) -> anyhow::Result<(KeySet, Vec<GoogleDemoPod>)> {
        files::create_secret_directory(folder)?;
        let issuer = Issuer::generate(&self.trust.issuer, Algorithm::Rs256).context("cannot make a key")?;
        let audiences: Vec<_> = audiences.iter().map(String::as_str).collect();
        let pods = self.demo.pods.iter().map(|demo| {
            let workload = demo.on(machine);
            let token = issuer.mint(&workload, &audiences, DEMO_TOKEN, Clock::system().wall_time());
            let token_file =
                folder.join(format!("{}.{}.token", workload.namespace, workload.service_account_name));
            let token = token.context("cannot sign a token")?;
            Ok(GoogleDemoPod { workload, email: demo.email_in(machine), token_file, token })
        });
        let pods = pods.collect::<anyhow::Result<Vec<_>>>()?;
        Ok((issuer.key_set().context("cannot publish the key")?, pods))
    }
}

impl GooglePodArg {
    fn on(&self, machine: &GceMachine) -> Workload {
        let name = format!("{}-0", self.workload.service_account_name);
        self.workload.clone().in_pod(&name).on_node(&machine.name)
    }

    fn email_in(&self, machine: &GceMachine) -> String {
        let default =
            || format!("{}@{}.iam.gserviceaccount.com", self.workload.service_account_name, machine.project);
        self.email.clone().unwrap_or_else(default)
    }
}
