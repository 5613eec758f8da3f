//! `seawall emulate google`: flags to options, a ready file, and the wait for the end.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use seawall_core::{Clock, Secret};
use seawall_emulator::faults::{Excess, Faults, Throttle};
use seawall_emulator::google::{self, Endpoint, Impersonation, Machine, Options, Provider, Running};
use seawall_emulator::keys::{Algorithm, KeySet, SigningKey};
use seawall_emulator::kubernetes::{Issuer, Workload};
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::parse::{DemoPod, Grant};
use super::{ISSUER, files, parse, say};

/// Flags of `seawall emulate google`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example, with a cluster's own keys:
  kubectl get --raw /openid/v1/jwks > jwks.json
  seawall emulate google --jwks jwks.json --audience reef.svc.id.goog \\
    --allow reef/coral=coral@my-project.iam.gserviceaccount.com --listen 127.0.0.1:8790

Example, with three pods and a slow cloud that refuses above 50 requests per second:
  seawall emulate google --demo-pods ./pods reef/coral reef/kelp deep/squid \\
    --latency 80ms --jitter 40ms --throttle 50 --ready-file ./google.json

What was asked so far: GET /emulator/counts. Whose a token is: GET /tokeninfo?access_token=TOKEN.
Ends with 0 on SIGTERM or SIGINT, with 1 when a flag, a file or the address cannot be used.")]
pub(super) struct Args {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8790")]
    listen: SocketAddr,
    /// File that says, as JSON, where everything is, once it is; written whole
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Print that JSON on one line instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    faults: FaultArgs,
    #[command(flatten)]
    demo: DemoArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Tokens")]
struct TrustArgs {
    /// Published keys of the issuer (a JSON web key set)
    #[arg(long, value_name = "FILE", required_unless_present = "demo_pods", conflicts_with = "demo_pods")]
    jwks: Option<PathBuf>,
    /// Issuer (`iss`) of the Kubernetes tokens
    #[arg(long, value_name = "URL", default_value = ISSUER)]
    issuer: String,
    /// Audience (`aud`) expected of the Kubernetes tokens; may be repeated; the provider's name when not given
    #[arg(long, value_name = "AUD")]
    audience: Vec<String>,
    /// Name of the workload identity provider (`audience` of an exchange); one of the project's when not given
    #[arg(long, value_name = "//iam.googleapis.com/…")]
    provider: Option<String>,
    /// Let a ServiceAccount become a service account; may be repeated
    #[arg(long, value_name = "NS/SA=EMAIL", value_parser = parse::grant, conflicts_with = "allow_all")]
    allow: Vec<Grant>,
    /// Let anyone become anything
    #[arg(long)]
    allow_all: bool,
    /// Longest life of a token, however long a one is asked for
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse::lifetime)]
    token_lifetime: Duration,
    /// Allow lifetimes above one hour, up to twelve, as an organisation policy can
    #[arg(long)]
    long_lifetimes: bool,
    /// RSA key (PEM) that signs identity tokens; a new one when not given
    #[arg(long, value_name = "FILE")]
    identity_key: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Machine of the metadata server")]
struct MachineArgs {
    /// Project id
    #[arg(long, value_name = "ID", default_value = "seawall-emulator")]
    project: String,
    /// Project number
    #[arg(long, value_name = "NUMBER", default_value_t = 123_456_789_012, value_parser = clap::value_parser!(i64).range(1..))]
    project_number: i64,
    /// Zone
    #[arg(long, value_name = "ZONE", default_value = "europe-west1-b")]
    zone: String,
    /// Name of the machine
    #[arg(long, value_name = "NAME", default_value = "node-1")]
    node: String,
    /// Service account of the machine; node@PROJECT… when not given
    #[arg(long, value_name = "EMAIL")]
    node_service_account: Option<String>,
    /// Name of the cluster
    #[arg(long, value_name = "NAME", default_value = "reef")]
    cluster: String,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Faults")]
struct FaultArgs {
    /// Hold every answer back
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse::duration)]
    latency: Duration,
    /// Up to this much more, drawn evenly
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse::duration)]
    jitter: Duration,
    /// Share of requests that fail
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = parse::share)]
    error_rate: f64,
    /// Status of those
    #[arg(long, value_name = "STATUS", default_value_t = 500, value_parser = clap::value_parser!(u16).range(400..600))]
    error_status: u16,
    /// Answer those with an HTML page instead of JSON
    #[arg(long)]
    html_errors: bool,
    /// Share of requests that never get an answer
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = parse::share)]
    hang_rate: f64,
    /// Share of requests whose connection is closed instead of an answer
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = parse::share)]
    close_rate: f64,
    /// Share of requests answered with half of the JSON
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = parse::share)]
    garbage_rate: f64,
    /// Limit requests per second, per endpoint
    #[arg(long, value_name = "RATE[:BURST]", value_parser = parse::throttle)]
    throttle: Option<Throttle>,
    /// What becomes of the requests above that
    #[arg(long, value_enum, default_value_t = Above::Refuse, requires = "throttle")]
    above: Above,
    /// Break only these endpoints; all four when not given
    #[arg(long, value_enum, value_name = "ENDPOINT")]
    fault_on: Vec<FaultOn>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Above {
    /// 429 with Retry-After
    Refuse,
    /// Wait in line: latency without bound
    Queue,
    /// Never an answer
    Hang,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum FaultOn {
    Exchange,
    AccessToken,
    IdToken,
    Metadata,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Demo")]
struct DemoArgs {
    /// Make an issuer, and in this folder a token file for each of the PODS, who may each become their account
    #[arg(long, value_name = "DIR", requires = "pods")]
    demo_pods: Option<PathBuf>,
    /// NAMESPACE/SERVICEACCOUNT, or NAMESPACE/SERVICEACCOUNT=EMAIL if not SERVICEACCOUNT@PROJECT.iam.gserviceaccount.com
    #[arg(value_name = "PODS", value_parser = parse::demo_pod)]
    pods: Vec<DemoPod>,
}

/// Life of the demo's token files: nobody renews them as a kubelet would, so they outlive any demo.
const DEMO_TOKEN: Duration = Duration::from_secs(24 * 3600);

pub(super) fn run(args: Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(serve(args))
}

async fn serve(args: Args) -> anyhow::Result<()> {
    // Before anyone can be told that it runs: a signal sent right after must not be lost.
    let (mut terminate, mut interrupt) = signals()?;
    let plan = Plan::new(&args)?;
    args.withdraw_ready_file()?;
    let running = google::start(plan.options.clone(), Clock::system()).await;
    let running = running.with_context(|| format!("cannot listen on {}", args.listen))?;
    args.faults.apply(&running);
    // Only now that the address is ours: another emulator's pods may live in the same folder.
    plan.pods.iter().try_for_each(Pod::write_token)?;
    announce(&args, &plan, &running)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    running.shutdown().await;
    args.withdraw_ready_file()
}

fn signals() -> anyhow::Result<(Signal, Signal)> {
    let listen = |kind| signal(kind).context("cannot listen for signals");
    Ok((listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?))
}

fn announce(args: &Args, plan: &Plan, running: &Running) -> anyhow::Result<()> {
    let statement = plan.statement(running);
    if let Some(file) = &args.ready_file {
        files::write(file, &format!("{statement:#}\n"), files::PUBLIC)?;
    }
    if args.json {
        return say(&statement.to_string());
    }
    say(&format!("google listens on {}", running.url()))?;
    say(&format!("provider  {}", plan.provider))?;
    plan.pods.iter().try_for_each(|pod| say(&format!("token     {}", pod.token_file.display())))
}

/// Everything that is decided before the listener is bound.
struct Plan {
    options: Options,
    provider: String,
    audiences: Vec<String>,
    issuer: String,
    pods: Vec<Pod>,
}

/// A pod of the demo with its token.
struct Pod {
    workload: Workload,
    email: String,
    token_file: PathBuf,
    token: Secret<String>,
}

impl Plan {
    fn new(args: &Args) -> anyhow::Result<Self> {
        let machine = args.machine.machine();
        // clap forgets a required flag that conflicts with one given.
        anyhow::ensure!(
            args.demo.demo_pods.is_some() || args.demo.pods.is_empty(),
            "PODS need --demo-pods DIR"
        );
        let provider = args.trust.provider.clone().unwrap_or_else(|| provider_of(&machine));
        anyhow::ensure!(provider.starts_with("//"), "--provider {provider} does not begin with //");
        let audiences = args.trust.audiences_or(&provider);
        let (keys, pods) = match &args.demo.demo_pods {
            Some(folder) => args.demo_issuer(folder, &audiences, &machine)?,
            None => (args.trust.read_keys()?, Vec::new()),
        };
        let trusted = Provider {
            name: provider.clone(),
            issuer: args.trust.issuer.clone(),
            keys,
            audiences: args.trust.audience.iter().cloned().collect(),
        };
        let options = Options {
            listen: args.listen,
            providers: vec![trusted],
            impersonation: args.trust.impersonation(&pods),
            machine,
            faults: Faults::default(),
            token_lifetime: args.trust.token_lifetime,
            long_lifetimes: args.trust.long_lifetimes,
            identity_key: Some(Arc::new(args.trust.identity_key()?)),
        };
        Ok(Self { options, provider, audiences, issuer: args.trust.issuer.clone(), pods })
    }

    /// What a script needs to know, as JSON.
    fn statement(&self, running: &Running) -> Value {
        let url = running.url();
        let pods = self.pods.iter().map(Pod::statement);
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

impl Pod {
    fn statement(&self) -> Value {
        let pod = self.workload.pod.as_ref();
        json!({
            "namespace": self.workload.namespace,
            "service_account": self.workload.service_account,
            "pod": pod.map(|pod| &pod.name),
            "pod_uid": pod.map(|pod| &pod.uid),
            "account": self.email,
            "token_file": self.token_file,
        })
    }
}

fn provider_of(machine: &Machine) -> String {
    let number = machine.project_number;
    format!(
        "//iam.googleapis.com/projects/{number}/locations/global/workloadIdentityPools/seawall/providers/cluster"
    )
}

impl TrustArgs {
    /// The audiences that a token may be minted for.
    fn audiences_or(&self, provider: &str) -> Vec<String> {
        if self.audience.is_empty() { vec![provider.to_owned()] } else { self.audience.clone() }
    }

    fn read_keys(&self) -> anyhow::Result<KeySet> {
        // clap demands --jwks unless there are demo pods.
        let file = self.jwks.as_ref().context("--jwks is missing")?;
        KeySet::parse(&files::read(file)?).with_context(|| format!("{} cannot be used", file.display()))
    }

    /// Read or made now: the first identity token must not wait for a key.
    fn identity_key(&self) -> anyhow::Result<SigningKey> {
        let Some(file) = &self.identity_key else {
            return SigningKey::generate(Algorithm::Rs256).context("cannot make a key");
        };
        let key = SigningKey::from_pem(&files::read(file)?);
        let key = key.with_context(|| format!("{} cannot be used", file.display()))?;
        anyhow::ensure!(key.algorithm() == Algorithm::Rs256, "{} is not an RSA key", file.display());
        Ok(key)
    }

    fn impersonation(&self, pods: &[Pod]) -> Impersonation {
        if self.allow_all {
            return Impersonation::Everyone;
        }
        let allowed = self.allow.iter().map(|grant| (grant.workload.subject(), grant.email.clone()));
        let demo = pods.iter().map(|pod| (pod.workload.subject(), pod.email.clone()));
        Impersonation::Only(allowed.chain(demo).collect::<BTreeSet<_>>())
    }
}

impl MachineArgs {
    fn machine(&self) -> Machine {
        let email = self.node_service_account.clone();
        Machine {
            project: self.project.clone(),
            project_number: self.project_number,
            zone: self.zone.clone(),
            name: self.node.clone(),
            service_account: email
                .unwrap_or_else(|| format!("node@{}.iam.gserviceaccount.com", self.project)),
            cluster: self.cluster.clone(),
            ..Machine::default()
        }
    }
}

impl FaultArgs {
    fn apply(&self, running: &Running) {
        let chosen: Vec<_> = self.fault_on.iter().map(|each| each.endpoint()).collect();
        for endpoint in if chosen.is_empty() { Endpoint::FAULTY.to_vec() } else { chosen } {
            running.set_faults_on(endpoint, self.faults());
        }
    }

    fn faults(&self) -> Faults {
        let excess = match self.above {
            Above::Refuse => Excess::Refuse,
            Above::Queue => Excess::Queue,
            Above::Hang => Excess::Hang,
        };
        Faults {
            latency: self.latency,
            jitter: self.jitter,
            error_rate: self.error_rate,
            error_status: Some(self.error_status),
            html_errors: self.html_errors,
            hang_rate: self.hang_rate,
            close_rate: self.close_rate,
            garbage_rate: self.garbage_rate,
            throttle: self.throttle.map(|throttle| Throttle { excess, ..throttle }),
        }
    }
}

impl FaultOn {
    fn endpoint(self) -> Endpoint {
        match self {
            Self::Exchange => Endpoint::Exchange,
            Self::AccessToken => Endpoint::AccessToken,
            Self::IdToken => Endpoint::IdToken,
            Self::Metadata => Endpoint::Metadata,
        }
    }
}

impl Args {
    /// Takes back what an earlier run said, so that nobody believes it of this one.
    fn withdraw_ready_file(&self) -> anyhow::Result<()> {
        self.ready_file.as_deref().map_or(Ok(()), files::remove)
    }

    /// An issuer of this run alone, and a token for each pod.
    fn demo_issuer(
        &self,
        folder: &Path,
        audiences: &[String],
        machine: &Machine,
    ) -> anyhow::Result<(KeySet, Vec<Pod>)> {
        files::secret_directory(folder)?;
        let issuer = Issuer::generate(&self.trust.issuer, Algorithm::Rs256).context("cannot make a key")?;
        let audiences: Vec<_> = audiences.iter().map(String::as_str).collect();
        let pods = self.demo.pods.iter().map(|demo| {
            let workload = demo.on(machine);
            let token = issuer.mint(&workload, &audiences, DEMO_TOKEN, Clock::system().wall());
            let token_file =
                folder.join(format!("{}.{}.token", workload.namespace, workload.service_account));
            let token = token.context("cannot sign a token")?;
            Ok(Pod { workload, email: demo.email_in(machine), token_file, token })
        });
        let pods = pods.collect::<anyhow::Result<Vec<_>>>()?;
        Ok((issuer.key_set().context("cannot publish the key")?, pods))
    }
}

impl DemoPod {
    fn on(&self, machine: &Machine) -> Workload {
        let name = format!("{}-0", self.workload.service_account);
        self.workload.clone().in_pod(&name).on_node(&machine.name)
    }

    fn email_in(&self, machine: &Machine) -> String {
        let default =
            || format!("{}@{}.iam.gserviceaccount.com", self.workload.service_account, machine.project);
        self.email.clone().unwrap_or_else(default)
    }
}

impl Pod {
    /// The file is named after both; a namespace has no dot, so no two pods share one.
    fn write_token(&self) -> anyhow::Result<()> {
        files::write(&self.token_file, self.token.expose(), files::SECRET)
    }
}
