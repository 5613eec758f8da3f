//! Pods, or processes in their place, that are ready to be ordered.

use std::io::{Write as _, stderr};
use std::time::Duration;

use anyhow::{Context as _, bail};
use seawall_fleet::fleet::{Fleet, Unready};
use seawall_fleet::processes;
use seawall_fleet::wire::Wire;
use seawall_load::files::Files;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::asked::{Asked, Beside, Deed};
use super::given;

/// How long pods that run may take to get ready: names are looked up and connections opened.
const READY: Duration = Duration::from_secs(60);

/// What pods were made of; it goes when this is dropped.
pub(crate) struct Ended(Vec<Box<dyn FnOnce() + Send>>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|end| end());
    }
}

/// Pods for a command whose plan was made of these files, ready for orders; waits no longer than `waits` says.
///
/// # Errors
/// What cannot be given to pods, why there are none, or none that is ready.
pub(crate) fn gathered<W: Serialize, P: DeserializeOwned, R: DeserializeOwned>(
    asked: &Asked,
    beside: &Beside<'_>,
    files: &Files,
    mut waits: impl FnMut() -> bool,
) -> anyhow::Result<(Fleet<W, P, R>, Ended)> {
    let (wire, ended) = match &asked.deed {
        Deed::Start(many) => started(*many, asked, beside, files)?,
        Deed::Make(_) | Deed::Join(_) | Deed::Print(_) => bail!("to come"),
    };
    let mut fleet = Fleet::new(wire);
    let (pods, mut told) = (fleet.size(), 0);
    let ready = fleet.assemble(READY, |ready| {
        if ready > told {
            told = ready;
            // Standard error may be closed; the run goes on.
            let _ = writeln!(stderr(), "seawall: {ready} of {pods} pods are ready");
        }
        !waits()
    });
    match ready {
        Ok(()) => Ok((fleet, ended)),
        Err(unready) => {
            fleet.end();
            Err(named(&unready))
        }
    }
}

fn named(unready: &Unready) -> anyhow::Error {
    anyhow::anyhow!("{unready}")
}

/// Processes of this machine. Their arguments are a file that is there for as long as they are.
fn started(many: u32, asked: &Asked, beside: &Beside<'_>, files: &Files) -> anyhow::Result<(Wire, Ended)> {
    let materials = given::materials(std::env::args_os(), beside, files.kept(), &asked.volumes())?;
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
    let wire =
        processes::start(program.as_os_str(), &words, many as usize).context("cannot start processes")?;
    let hand = wire.hand.clone();
    let ended = move || {
        hand.end();
        drop(folder);
    };
    Ok((wire, Ended(vec![Box::new(ended)])))
}
