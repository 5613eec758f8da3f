//! The inputs of pods: their command line, and every file that the command has read here.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::CommandFactory as _;
use seawall_fleet::pod_inputs::{JobInputs, STDIN_PATH};
use seawall_load::input_files::CapturedInputs;

use super::forwarded_command_line::{self, FlagOverrides};
use super::pod_options::{
    DistributedOptions, DistributionFlags, LoadCommand, RecordDestination, STDOUT_NAME,
};
use crate::{Cli, go_flags};

/// The materials of a command that was typed so, asks for this and has read these files.
///
/// # Errors
/// All that cannot be given.
pub(crate) fn build_job_inputs(
    typed: impl IntoIterator<Item = OsString>,
    beside: &DistributionFlags<'_>,
    kept: CapturedInputs,
    asked: &DistributedOptions,
) -> anyhow::Result<JobInputs> {
    let kept = piped(kept, beside.targets);
    // Standard output is a pod's log, in which nothing may stand but what it tells: records in lines of their own.
    let output = match asked.record_destination {
        RecordDestination::Discard => Some("none"),
        RecordDestination::Local => Some(STDOUT_NAME),
        RecordDestination::InPods => None,
    };
    let output = output.filter(|_| beside.command == LoadCommand::Attack);
    let anew = FlagOverrides { targets: kept.stdin.is_some().then_some(STDIN_PATH), output };
    let mut definition = Cli::command();
    definition.build();
    let arguments = forwarded_command_line::pod_command_line(
        go_flags::normalise_flags(typed),
        beside.command,
        &definition,
        anew,
    )?;
    let working_dir = std::env::current_dir().context("cannot find the working directory")?;
    given(&arguments, kept, &working_dir, &asked.volume_paths())
}

fn given(
    arguments: &[String],
    kept: CapturedInputs,
    working_dir: &Path,
    volumes: &[&str],
) -> anyhow::Result<JobInputs> {
    match JobInputs::new(arguments, kept, working_dir, volumes) {
        Ok(materials) => Ok(materials),
        Err(unfit) => {
            let unfit: Vec<_> = unfit.iter().map(ToString::to_string).collect();
            bail!("--on kubernetes: {}", unfit.join("\n"))
        }
    }
}

/// Targets of a pipe that has a name, as the shell's `<(...)` makes them, are those of standard input to pods.
fn piped(mut kept: CapturedInputs, targets: &str) -> CapturedInputs {
    let is_pipe = targets.starts_with("/dev/") || targets.starts_with("/proc/");
    let place = kept.files.iter().position(|named| named.path == Path::new(targets));
    if let Some(place) = place.filter(|_| is_pipe && kept.stdin.is_none()) {
        kept.stdin = Some(kept.files.remove(place).bytes);
    }
    kept
}

#[cfg(test)]
mod tests {
    use seawall_load::input_files::CapturedFile;

    use super::*;
    use crate::distributed::args::OnPodLoss;
    use crate::distributed::pod_options::DistributedAction;

    fn of(typed: &str, beside: &DistributionFlags<'_>, kept: CapturedInputs) -> Result<String, String> {
        let typed = typed.split_whitespace().map(OsString::from);
        let asked = DistributedOptions {
            kube_context: None,
            namespace: None,
            action: DistributedAction::SpawnProcesses(1),
            max_pods: None,
            on_pod_loss: OnPodLoss::Continue,
            record_destination: RecordDestination::Discard,
            keep_job: false,
        };
        let materials = build_job_inputs(typed, beside, kept, &asked).map_err(|error| error.to_string())?;
        let (_, arguments) = materials.secret_entries().next().unwrap();
        Ok(String::from_utf8(arguments.to_vec()).unwrap())
    }

    fn attack(targets: &str) -> DistributionFlags<'_> {
        DistributionFlags { command: LoadCommand::Attack, targets, output: None }
    }

    #[test]
    fn targets_of_a_pipe_are_a_file_of_pods() {
        let bytes = || b"GET http://a/\n".to_vec();
        let expected = r#"["attack","--targets=/run/seawall/stdin","--output=none","--rate=1"]"#;
        let stdin = CapturedInputs { stdin: Some(bytes()), ..CapturedInputs::default() };
        assert_eq!(of("seawall attack -rate=1 --on kubernetes", &attack("stdin"), stdin).unwrap(), expected);
        let path = "/dev/fd/63";
        let named =
            CapturedInputs { files: vec![CapturedFile { path: path.into(), bytes: bytes() }], stdin: None };
        assert_eq!(of("seawall attack -targets /dev/fd/63 -rate=1", &attack(path), named).unwrap(), expected);
    }

    #[test]
    fn a_body_that_cannot_be_mounted_is_refused() {
        let kept = CapturedInputs {
            files: vec![CapturedFile { path: "/dev/fd/63".into(), bytes: Vec::new() }],
            stdin: None,
        };
        let told = of("seawall attack -body /dev/fd/63 -targets t", &attack("t"), kept).unwrap_err();
        assert!(told.contains("cannot give /dev/fd/63 to pods: pods cannot mount files there"), "{told}");
    }

    #[test]
    fn a_search_writes_no_records() {
        let beside = DistributionFlags { command: LoadCommand::Find, targets: "stdin", output: None };
        assert_eq!(
            of("seawall find http://a/ --on kubernetes", &beside, CapturedInputs::default()).unwrap(),
            r#"["find","http://a/"]"#
        );
    }
}
