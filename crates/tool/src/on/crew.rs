//! Pods, or processes in their place, that are ready to be ordered.

use std::io::{Write as _, stderr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use seawall_core::Clock;
use seawall_fleet::fleet::Fleet;
use seawall_fleet::job::{Job, Pod, Site};
use seawall_fleet::manifest::Spec;
use seawall_fleet::manifest::spec::Name;
use seawall_fleet::materials::Materials;
use seawall_fleet::runtime::Runtime;
use seawall_fleet::wire::{Hand as _, Wire};
use seawall_fleet::{pods, preflight, processes};
use seawall_kubectl::{Api, Choice};
use seawall_load::clock::{RunClock, nanos};
use seawall_load::files::Files;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::asked::{Asked, Beside, Deed};
use super::given;
use crate::attack::signals::Held;
use crate::exit;

/// How long pods may take to run: images are fetched, nodes added.
const RUNNING: Duration = Duration::from_secs(10 * 60);

/// How long the Job's deletion is waited for.
const DELETED: Duration = Duration::from_secs(10);

/// How long pods that run may take to get ready: names are looked up and connections opened.
const READY: Duration = Duration::from_secs(60);

/// What pods were made of; it goes when this is dropped.
pub(crate) struct Ended(Vec<Box<dyn FnOnce() + Send>>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|end| end());
    }
}

/// Pods that are ready.
pub(crate) struct Crew<W, P, R> {
    /// They.
    pub(crate) fleet: Fleet<W, P, R>,
    more: More,
    /// Takes away what they were made of, when it is dropped.
    pub(crate) ended: Ended,
}

/// Makes so many pods of them, and says what the new ones are called; waits as long as it is told.
type More = Box<dyn FnMut(usize, &mut dyn FnMut() -> bool) -> anyhow::Result<Vec<String>> + Send>;

impl<W: Serialize, P: DeserializeOwned, R: DeserializeOwned> Crew<W, P, R> {
    /// Makes so many of them, all of which are ready then.
    ///
    /// # Errors
    /// There are none to be had; those that there were are still ready.
    pub(crate) fn grow(&mut self, pods: usize, mut waits: impl FnMut() -> bool) -> anyhow::Result<()> {
        let names = (self.more)(pods, &mut waits)?;
        self.fleet.grow(names);
        self.assemble(waits)
    }

    fn assemble(&mut self, mut waits: impl FnMut() -> bool) -> anyhow::Result<()> {
        let (pods, mut told) = (self.fleet.size(), 0);
        let ready = self.fleet.assemble(READY, |ready| {
            if ready > told {
                told = ready;
                tell(&format!("{ready} of {pods} pods are ready"));
            }
            !waits()
        });
        Ok(ready?)
    }
}

/// What came of the wait for pods.
pub(crate) enum Called<W, P, R> {
    /// They are ready; a signal ended nothing so far.
    Ready(Box<Crew<W, P, R>>, Held),
    /// A signal came before they were, and there are none.
    Interrupted(ExitCode),
}

/// Pods for a command whose plan was made of these files, unless a signal comes before they are ready.
///
/// # Errors
/// As [`gathered`].
pub(crate) fn called<W: Serialize, P: DeserializeOwned, R: DeserializeOwned>(
    asked: &Asked,
    beside: &Beside<'_>,
    files: &Files,
) -> anyhow::Result<Called<W, P, R>> {
    let mut held = Held::hold()?;
    let mut signal = None;
    let waits = || {
        signal = signal.or(held.come());
        signal.is_none()
    };
    let gathered = gathered(asked, beside, files, waits);
    match (gathered, signal) {
        (Ok(crew), None) => Ok(Called::Ready(Box::new(crew), held)),
        (_, Some(signal)) => Ok(Called::Interrupted(ExitCode::from(exit::signalled(signal)))),
        (Err(error), None) => Err(error),
    }
}

/// Pods for a command whose plan was made of these files, ready for orders; waits no longer than `waits` says.
///
/// # Errors
/// What cannot be given to pods, why there are none, or none that is ready.
fn gathered<W: Serialize, P: DeserializeOwned, R: DeserializeOwned>(
    asked: &Asked,
    beside: &Beside<'_>,
    files: &Files,
    mut waits: impl FnMut() -> bool,
) -> anyhow::Result<Crew<W, P, R>> {
    let (wire, more, ended) = match &asked.deed {
        Deed::Start(many) => started(*many, asked, beside, files)?,
        Deed::Make(_) | Deed::Join(_) | Deed::Print(_) => of_cluster(asked, beside, files, &mut waits)?,
    };
    let mut crew = Crew { fleet: Fleet::new(wire), more, ended };
    crew.assemble(waits)?;
    Ok(crew)
}

/// Pods of a Job that is made, or stands.
fn of_cluster(
    asked: &Asked,
    beside: &Beside<'_>,
    files: &Files,
    mut waits: impl FnMut() -> bool,
) -> anyhow::Result<(Wire, More, Ended)> {
    let materials = given::materials(std::env::args_os(), beside, files.kept(), asked)?;
    let runtime = Runtime::start().context("cannot start a thread")?;
    let choice = Choice { context: asked.context.clone(), kubeconfig: None };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let opening = async move { Api::open(&choice, provider, Clock::system()).await };
    let (api, opened) = runtime.call(opening, &mut waits)??;
    if opened.is_unverified {
        tell(
            "the API server's certificate is not checked, as the kubeconfig says (insecure-skip-tls-verify)",
        );
    }
    let namespace = asked.namespace.as_ref().map_or(opened.namespace, ToString::to_string);
    let place = preflight::Place { context: asked.context.clone(), namespace: namespace.clone() };
    let site = Site::new(api, Clock::system(), place);
    let job = job(asked, &site, &runtime, materials, &namespace)?;
    let is_ours = matches!(asked.deed, Deed::Make(_));
    let ended = ended(&runtime, &site, &job, is_ours && !asked.keep);
    let pods = running(&runtime, &site, &job, &mut waits)?;
    let (wire, ways) = pods::join(&runtime, &site, &job, &pods);
    let mut standing = job;
    let more = move |many: usize, waits: &mut dyn FnMut() -> bool| {
        let (site_, mut job) = (site.clone(), standing.clone());
        let known = job.pods;
        let growing = async move { site_.grow(&mut job, many).await.map(|()| job) };
        standing = runtime.call(growing, &mut *waits)??;
        let pods = running(&runtime, &site, &standing, waits)?;
        Ok(ways.more(pods.get(known..).unwrap_or_default()))
    };
    Ok((wire, Box::new(more), ended))
}

/// All pods of a Job, once they run.
fn running(
    runtime: &Runtime,
    site: &Site,
    job: &Job,
    waits: impl FnMut() -> bool,
) -> anyhow::Result<Vec<Pod>> {
    let (site, job) = (site.clone(), job.clone());
    let running = async move { site.running(&job, RUNNING, told(job.pods)).await };
    Ok(runtime.call(running, waits)??)
}

/// The Job, if all is allowed that it takes.
fn job(
    asked: &Asked,
    site: &Site,
    runtime: &Runtime,
    materials: Materials,
    namespace: &str,
) -> anyhow::Result<Job> {
    let (site, deed) = (site.clone(), asked.deed.clone());
    let namespace: Option<Name> = namespace.parse().ok();
    let making = async move {
        site.preflight(matches!(deed, Deed::Join(_))).await?;
        match deed {
            Deed::Join(name) => site.join(&name.to_string(), &materials).await.map(Some),
            Deed::Make(spec) => site.make(&Spec { namespace, ..spec }, &materials).await.map(Some),
            Deed::Print(_) | Deed::Start(_) => Ok(None),
        }
    };
    // To its end, which is near: a Job that was made and nobody knows of would stay.
    let made = runtime.call(making, || true)??.context("there is no Job to be made")?;
    tell(&format!("{} pods of the Job {} are to run", made.pods, made.name));
    Ok(made)
}

/// Takes the Job away at the end, unless it is to stay.
fn ended(runtime: &Runtime, site: &Site, job: &Job, goes: bool) -> Ended {
    let (runtime, site, job) = (runtime.clone(), site.clone(), job.clone());
    if !goes {
        return Ended(Vec::new());
    }
    Ended(vec![Box::new(move || {
        let name = job.name.clone();
        let clock = RunClock::start();
        let left = || clock.now() < nanos(DELETED);
        let deleted = runtime.call(async move { site.delete(&job).await }, left);
        if !matches!(deleted, Ok(Ok(()))) {
            tell(&format!(
                "the Job {name} could not be deleted: its pods end by themselves; kubectl delete job {name}"
            ));
        }
    })])
}

/// Says how many pods run, when there are more.
fn told(pods: usize) -> impl FnMut(usize) + Send {
    let mut known = 0;
    move |running| {
        if running > known {
            known = running;
            tell(&format!("{running} of {pods} pods run"));
        }
    }
}

/// Says something to whoever waits.
pub(crate) fn tell(text: &str) {
    // Standard error may be closed; the run goes on.
    let _ = writeln!(stderr(), "seawall: {text}");
}

/// Processes of this machine. Their arguments are a file that is there for as long as they are.
fn started(
    many: u32,
    asked: &Asked,
    beside: &Beside<'_>,
    files: &Files,
) -> anyhow::Result<(Wire, More, Ended)> {
    let materials = given::materials(std::env::args_os(), beside, files.kept(), asked)?;
    let folder = tempfile::Builder::new().prefix("seawall-").tempdir().context("cannot make a folder")?;
    let arguments = folder.path().join("arguments");
    let mut text = materials.arguments().to_owned();
    if let Some((_, stdin)) = materials.values().find(|(key, _)| *key == "stdin") {
        let place = folder.path().join("stdin");
        std::fs::write(&place, stdin).with_context(|| format!("cannot write {}", place.display()))?;
        text = text.replace(seawall_fleet::materials::STDIN, &place.display().to_string());
    }
    std::fs::write(&arguments, text).with_context(|| format!("cannot write {}", arguments.display()))?;
    let program = std::env::current_exe().context("cannot tell which program this is")?;
    let pods = format!("--pods={many}");
    let words = ["pod".as_ref(), "--arguments".as_ref(), arguments.as_os_str(), pods.as_ref()];
    let started = processes::start(program.as_os_str(), &words, many as usize);
    let (wire, processes) = started.context("cannot start processes")?;
    let hand = wire.hand.clone();
    let ended = move || {
        hand.end();
        drop(folder);
    };
    let more = move |many: usize, _: &mut dyn FnMut() -> bool| {
        processes.more(many.saturating_sub(processes.size())).context("cannot start processes")
    };
    Ok((wire, Box::new(more), Ended(vec![Box::new(ended)])))
}
