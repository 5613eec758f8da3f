//! Pods, or processes in their place, that are ready to be ordered.

use std::io::{Write as _, stderr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use seawall_core::Clock;
use seawall_fleet::async_runtime_thread::ApiRuntime;
use seawall_fleet::fleet::Fleet;
use seawall_fleet::job::{ClusterSession, Job, RunningPod};
use seawall_fleet::manifest::LoadJobSpec;
use seawall_fleet::manifest::spec::ResourceName;
use seawall_fleet::pod_channel::{CommandSender as _, PodChannel};
use seawall_fleet::pod_inputs::JobInputs;
use seawall_fleet::{job_obstacles, kubernetes_pod_channel, local_process_pods};
use seawall_kubectl::{Api, KubeconfigSelection};
use seawall_load::clock::{RunClock, nanos};
use seawall_load::input_files::InputFiles;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::pod_inputs;
use super::pod_options::{DistributedAction, DistributedOptions, DistributionFlags};
use crate::attack::signals::PendingSignals;
use crate::exit;

/// The longest wait until pods run: images are pulled, nodes are added.
const RUNNING: Duration = Duration::from_secs(10 * 60);

/// The longest wait for the deletion of the Job.
const DELETED: Duration = Duration::from_secs(10);

/// The longest wait until running pods are ready: names are looked up and connections opened.
const READY: Duration = Duration::from_secs(60);

/// Cleanup actions, such as the deletion of the Job, that run when this is dropped.
pub(crate) struct CleanupGuard(Vec<Box<dyn FnOnce() + Send>>);

impl Drop for CleanupGuard {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|end| end());
    }
}

/// Pods that are ready.
pub(crate) struct ReadyPods<W, P, R> {
    /// The pods.
    pub(crate) fleet: Fleet<W, P, R>,
    scale_up: ScaleUp,
    /// Deletes the Job of the pods when it is dropped.
    pub(crate) cleanup: CleanupGuard,
}

/// Makes so many pods of them, and says what the new ones are called; waits as long as it is told.
type ScaleUp = Box<dyn FnMut(usize, &mut dyn FnMut() -> bool) -> anyhow::Result<Vec<String>> + Send>;

impl<W: Serialize, P: DeserializeOwned, R: DeserializeOwned> ReadyPods<W, P, R> {
    /// Makes so many of them, all of which are ready then.
    ///
    /// # Errors
    /// There are none to be had; those that there were are still ready.
    pub(crate) fn scale_up_to(&mut self, pods: usize, mut waits: impl FnMut() -> bool) -> anyhow::Result<()> {
        let names = (self.scale_up)(pods, &mut waits)?;
        self.fleet.add_pods(names);
        self.assemble(waits)
    }

    fn assemble(&mut self, mut waits: impl FnMut() -> bool) -> anyhow::Result<()> {
        let (pods, mut told) = (self.fleet.size(), 0);
        let ready = self.fleet.wait_until_ready(READY, |ready| {
            if ready > told {
                told = ready;
                print_to_stderr(&format!("{ready} of {pods} pods are ready"));
            }
            !waits()
        });
        Ok(ready?)
    }
}

/// The outcome of the wait for pods.
pub(crate) enum AcquireOutcome<W, P, R> {
    /// The pods are ready, and no signal has come.
    Ready(Box<ReadyPods<W, P, R>>, PendingSignals),
    /// A signal came before the pods were ready.
    Interrupted(ExitCode),
}

/// Acquires pods with these input files, unless a signal comes before they are ready.
///
/// # Errors
/// As [`wait_for_pods`].
pub(crate) fn acquire_pods<W: Serialize, P: DeserializeOwned, R: DeserializeOwned>(
    asked: &DistributedOptions,
    beside: &DistributionFlags<'_>,
    files: &InputFiles,
) -> anyhow::Result<AcquireOutcome<W, P, R>> {
    let mut held = PendingSignals::catch()?;
    let mut signal = None;
    let waits = || {
        signal = signal.or(held.take_next());
        signal.is_none()
    };
    let gathered = wait_for_pods(asked, beside, files, waits);
    match (gathered, signal) {
        (Ok(crew), None) => Ok(AcquireOutcome::Ready(Box::new(crew), held)),
        (_, Some(signal)) => Ok(AcquireOutcome::Interrupted(ExitCode::from(exit::from_signal(signal)))),
        (Err(error), None) => Err(error),
    }
}

/// Acquires pods with these input files, and waits until they are ready or `waits` returns false.
///
/// # Errors
/// An input cannot be given to pods, or no pod exists or becomes ready.
fn wait_for_pods<W: Serialize, P: DeserializeOwned, R: DeserializeOwned>(
    asked: &DistributedOptions,
    beside: &DistributionFlags<'_>,
    files: &InputFiles,
    mut waits: impl FnMut() -> bool,
) -> anyhow::Result<ReadyPods<W, P, R>> {
    let (wire, more, ended) = match &asked.action {
        DistributedAction::SpawnProcesses(many) => start_processes(*many, asked, beside, files)?,
        DistributedAction::CreateJob(_)
        | DistributedAction::AttachJob(_)
        | DistributedAction::PrintManifest(_) => pods_of_job(asked, beside, files, &mut waits)?,
    };
    let mut crew = ReadyPods { fleet: Fleet::new(wire), scale_up: more, cleanup: ended };
    crew.assemble(waits)?;
    Ok(crew)
}

/// Pods of a Job that is made, or stands.
fn pods_of_job(
    asked: &DistributedOptions,
    beside: &DistributionFlags<'_>,
    files: &InputFiles,
    mut waits: impl FnMut() -> bool,
) -> anyhow::Result<(PodChannel, ScaleUp, CleanupGuard)> {
    let materials = pod_inputs::build_job_inputs(std::env::args_os(), beside, files.captured(), asked)?;
    let runtime = ApiRuntime::start().context("cannot start a thread")?;
    let choice = KubeconfigSelection { context: asked.kube_context.clone(), kubeconfig: None };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let opening = async move { Api::open(&choice, provider, Clock::system()).await };
    let (api, opened) = runtime.call(opening, &mut waits)??;
    if opened.is_unverified {
        print_to_stderr(
            "warning: the API server's certificate is not checked (insecure-skip-tls-verify in the kubeconfig)",
        );
    }
    let namespace = asked.namespace.as_ref().map_or(opened.namespace, ToString::to_string);
    let place =
        job_obstacles::KubectlContext { context: asked.kube_context.clone(), namespace: namespace.clone() };
    let site = ClusterSession::new(api, Clock::system(), place);
    let job = job(asked, &site, &runtime, materials, &namespace)?;
    let is_ours = matches!(asked.action, DistributedAction::CreateJob(_));
    let ended = delete_on_drop(&runtime, &site, &job, is_ours && !asked.keep_job);
    let pods = wait_until_running(&runtime, &site, &job, &mut waits)?;
    let (wire, ways) = kubernetes_pod_channel::connect(&runtime, &site, &job, &pods);
    let mut standing = job;
    let more = move |many: usize, waits: &mut dyn FnMut() -> bool| {
        let (site_, mut job) = (site.clone(), standing.clone());
        let known = job.pod_count;
        let growing = async move { site_.scale_up(&mut job, many).await.map(|()| job) };
        standing = runtime.call(growing, &mut *waits)??;
        let pods = wait_until_running(&runtime, &site, &standing, waits)?;
        Ok(ways.add_pods(pods.get(known..).unwrap_or_default()))
    };
    Ok((wire, Box::new(more), ended))
}

/// All pods of a Job, once they run.
fn wait_until_running(
    runtime: &ApiRuntime,
    site: &ClusterSession,
    job: &Job,
    waits: impl FnMut() -> bool,
) -> anyhow::Result<Vec<RunningPod>> {
    let (site, job) = (site.clone(), job.clone());
    let running = async move { site.wait_running(&job, RUNNING, running_reporter(job.pod_count)).await };
    Ok(runtime.call(running, waits)??)
}

/// The Job, if all is allowed that it takes.
fn job(
    asked: &DistributedOptions,
    site: &ClusterSession,
    runtime: &ApiRuntime,
    materials: JobInputs,
    namespace: &str,
) -> anyhow::Result<Job> {
    let (site, deed) = (site.clone(), asked.action.clone());
    let namespace: Option<ResourceName> = namespace.parse().ok();
    let making = async move {
        site.preflight(matches!(deed, DistributedAction::AttachJob(_))).await?;
        match deed {
            DistributedAction::AttachJob(name) => {
                site.open_existing_job(&name.to_string(), &materials).await.map(Some)
            }
            DistributedAction::CreateJob(spec) => {
                site.create_job(&LoadJobSpec { namespace, ..spec }, &materials).await.map(Some)
            }
            DistributedAction::PrintManifest(_) | DistributedAction::SpawnProcesses(_) => Ok(None),
        }
    };
    // To its end, which is near: a Job that was made and nobody knows of would stay.
    let made = runtime.call(making, || true)??.context("cannot create the Job")?;
    print_to_stderr(&format!("starting {} pods of the Job {}", made.pod_count, made.name));
    Ok(made)
}

/// Takes the Job away at the end, unless it is to stay.
fn delete_on_drop(runtime: &ApiRuntime, site: &ClusterSession, job: &Job, goes: bool) -> CleanupGuard {
    let (runtime, site, job) = (runtime.clone(), site.clone(), job.clone());
    if !goes {
        return CleanupGuard(Vec::new());
    }
    CleanupGuard(vec![Box::new(move || {
        let name = job.name.clone();
        let clock = RunClock::start();
        let left = || clock.now() < nanos(DELETED);
        let deleted = runtime.call(async move { site.delete_job(&job).await }, left);
        if !matches!(deleted, Ok(Ok(()))) {
            print_to_stderr(&format!(
                "cannot delete the Job {name}; its pods end by themselves. To delete it: kubectl delete job {name}"
            ));
        }
    })])
}

/// Says how many pods run, when there are more.
fn running_reporter(pods: usize) -> impl FnMut(usize) + Send {
    let mut known = 0;
    move |running| {
        if running > known {
            known = running;
            print_to_stderr(&format!("{running} of {pods} pods are running"));
        }
    }
}

/// Says something to whoever waits.
pub(crate) fn print_to_stderr(text: &str) {
    // Standard error may be closed; the run goes on.
    let _ = writeln!(stderr(), "seawall: {text}");
}

/// Processes of this machine. Their arguments are a file that is there for as long as they are.
fn start_processes(
    many: u32,
    asked: &DistributedOptions,
    beside: &DistributionFlags<'_>,
    files: &InputFiles,
) -> anyhow::Result<(PodChannel, ScaleUp, CleanupGuard)> {
    let materials = pod_inputs::build_job_inputs(std::env::args_os(), beside, files.captured(), asked)?;
    let folder =
        tempfile::Builder::new().prefix("seawall-").tempdir().context("cannot create a directory")?;
    let arguments = folder.path().join("arguments");
    let mut text = materials.arguments().to_owned();
    if let Some((_, stdin)) = materials.secret_entries().find(|(key, _)| *key == "stdin") {
        let place = folder.path().join("stdin");
        std::fs::write(&place, stdin).with_context(|| format!("cannot write {}", place.display()))?;
        text = text.replace(seawall_fleet::pod_inputs::STDIN_PATH, &place.display().to_string());
    }
    std::fs::write(&arguments, text).with_context(|| format!("cannot write {}", arguments.display()))?;
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let pods = format!("--pods={many}");
    let words = ["pod".as_ref(), "--arguments".as_ref(), arguments.as_os_str(), pods.as_ref()];
    let started = local_process_pods::start(program.as_os_str(), &words, many as usize);
    let (wire, processes) = started.context("cannot start processes")?;
    let hand = wire.command_sender.clone();
    let ended = move || {
        hand.kill_all();
        drop(folder);
    };
    let more = move |many: usize, _: &mut dyn FnMut() -> bool| {
        processes.start_more(many.saturating_sub(processes.pod_count())).context("cannot start processes")
    };
    Ok((wire, Box::new(more), CleanupGuard(vec![Box::new(ended)])))
}
