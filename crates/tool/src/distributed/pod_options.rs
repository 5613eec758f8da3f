//! The flags of `--on`, checked beside those of the command: what is asked of a cluster.

use std::time::Duration;

use seawall_fleet::manifest::LoadJobSpec;
use seawall_fleet::manifest::spec::ResourceName;

use super::args::{DistributedArgs, LoadBackend, OnPodLoss};

/// A command whose load pods can share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadCommand {
    Attack,
    Find,
    Isolate,
}

impl LoadCommand {
    /// Returns the name of the command as it is typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Attack => "attack",
            Self::Find => "find",
            Self::Isolate => "isolate",
        }
    }
}

/// The flags of the command that matter for the distribution to pods.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DistributionFlags<'a> {
    /// The command.
    pub(crate) command: LoadCommand,
    /// `-targets`.
    pub(crate) targets: &'a str,
    /// `-output`, where records are to be written: a file, or [`STDOUT_NAME`].
    pub(crate) output: Option<&'a str>,
}

/// Standard output, as `-output` has it.
pub(crate) const STDOUT_NAME: &str = "stdout";

/// The writer of the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordDestination {
    /// Nobody writes records.
    Discard,
    /// This program writes the records that pods report.
    Local,
    /// Each pod writes its own records into a volume.
    InPods,
}

/// The options for sending from a cluster.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DistributedOptions {
    /// The context of the kubeconfig; `None` means the current one.
    pub(crate) kube_context: Option<String>,
    /// The namespace; `None` means that of the context.
    pub(crate) namespace: Option<ResourceName>,
    /// The source of the pods, or the output of their manifest.
    pub(crate) action: DistributedAction,
    /// The largest number of pods that the run may have.
    pub(crate) max_pods: Option<u32>,
    pub(crate) on_pod_loss: OnPodLoss,
    /// The writer of the records.
    pub(crate) record_destination: RecordDestination,
    /// True if the Job is kept after the run.
    pub(crate) keep_job: bool,
}

/// The action for the pods.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DistributedAction {
    /// Creates a Job and controls its pods.
    CreateJob(LoadJobSpec),
    /// Prints the manifest of the Job.
    PrintManifest(LoadJobSpec),
    /// Controls the pods of this existing Job.
    AttachJob(ResourceName),
    /// Starts this many processes on this machine and controls them.
    SpawnProcesses(u32),
}

/// The time that a Job may take beyond its load: to pull images, warm up connections and await late responses.
const AROUND: Duration = Duration::from_secs(15 * 60);

/// The time that a load without an end of its own may take.
const ENDLESS: Duration = Duration::from_secs(24 * 60 * 60);

impl DistributedOptions {
    /// Sets the deadline of the Job for a load of this duration; `None` means a load without an end.
    pub(crate) fn with_load_duration(&self, load: Option<Duration>) -> Self {
        let mut asked = self.clone();
        if let DistributedAction::CreateJob(spec) | DistributedAction::PrintManifest(spec) = &mut asked.action
        {
            spec.deadline_seconds = (load.unwrap_or(ENDLESS).saturating_add(AROUND)).as_secs();
        }
        asked
    }

    /// Returns the number of pods; 1 for an existing Job, whose number is unknown here.
    pub(crate) fn pod_count(&self) -> u64 {
        match &self.action {
            DistributedAction::CreateJob(spec) | DistributedAction::PrintManifest(spec) => {
                spec.pod_count.into()
            }
            DistributedAction::AttachJob(_) => 1,
            DistributedAction::SpawnProcesses(many) => (*many).into(),
        }
    }

    /// Returns the paths of the volumes in pods.
    pub(crate) fn volume_paths(&self) -> Vec<&str> {
        match &self.action {
            DistributedAction::CreateJob(spec) | DistributedAction::PrintManifest(spec) => {
                spec.volumes.iter().map(|volume| volume.path()).collect()
            }
            DistributedAction::AttachJob(_) | DistributedAction::SpawnProcesses(_) => Vec::new(),
        }
    }
}

impl LoadBackend {
    fn context(&self) -> Option<String> {
        match self {
            Self::Kubernetes { context } => context.clone(),
            Self::Processes => None,
        }
    }
}

impl DistributedArgs {
    /// Returns the options if `--on` is given. `unlike` has an error for each other flag that pods do not support.
    ///
    /// # Errors
    /// The flags contradict each other.
    pub(crate) fn distributed_options(
        &self,
        beside: &DistributionFlags<'_>,
        unlike: Vec<String>,
    ) -> anyhow::Result<Option<DistributedOptions>> {
        self.options_with_suffix(beside, unlike, &random_suffix()?)
    }

    /// Returns the options; the name of a created Job consists of the command and this word.
    fn options_with_suffix(
        &self,
        beside: &DistributionFlags<'_>,
        unlike: Vec<String>,
        word: &str,
    ) -> anyhow::Result<Option<DistributedOptions>> {
        let Some(on) = &self.on else { return Ok(None) };
        let mut mistakes = unlike;
        mistakes.extend(self.mistakes(beside));
        let deed = self.action(beside.command, word).map_err(|why| mistakes.push(why));
        match deed {
            Ok(deed) if mistakes.is_empty() => Ok(Some(DistributedOptions {
                kube_context: on.context(),
                namespace: self.namespace.clone(),
                action: deed,
                max_pods: self.max_pods,
                on_pod_loss: self.on_pod_loss.unwrap_or(OnPodLoss::Continue),
                record_destination: self.record_destination(beside.output),
                keep_job: self.keep_job,
            })),
            _ => anyhow::bail!("{}", mistakes.join("\n")),
        }
    }

    fn action(&self, command: LoadCommand, word: &str) -> Result<DistributedAction, String> {
        if self.on == Some(LoadBackend::Processes) {
            return Ok(DistributedAction::SpawnProcesses(self.pods.unwrap_or(1)));
        }
        if let Some(job) = &self.attach_job {
            return Ok(DistributedAction::AttachJob(job.clone()));
        }
        let image = self.image.clone().ok_or(
            "--on kubernetes needs --image: build an image with `make image`, push it to a registry that the cluster reaches, and give its name",
        )?;
        let name = format!("seawall-{}-{word}", command.name()).parse()?;
        let usual = LoadJobSpec::new(name, self.pods.unwrap_or(1), image);
        let spec = LoadJobSpec {
            namespace: self.namespace.clone(),
            pull_policy: self.image_pull_policy,
            cpu: self.cpu.clone().unwrap_or(usual.cpu),
            memory: self.memory.clone().unwrap_or(usual.memory),
            node_selector: self.node_selector.iter().cloned().collect(),
            tolerations: self.toleration.clone(),
            volumes: self.volume.clone(),
            ttl_seconds: if self.keep_job { None } else { usual.ttl_seconds },
            ..usual
        };
        Ok(if self.dry_run {
            DistributedAction::PrintManifest(spec)
        } else {
            DistributedAction::CreateJob(spec)
        })
    }

    /// Returns the writer of records with this `-output`.
    fn record_destination(&self, output: Option<&str>) -> RecordDestination {
        match output {
            None => RecordDestination::Discard,
            // What is printed is applied, and joined, by commands whose standard output is another.
            Some(STDOUT_NAME) if self.dry_run || self.attach_job.is_some() => RecordDestination::Discard,
            Some(STDOUT_NAME) => RecordDestination::Local,
            // Whether a Job that stands has a volume there is not known here.
            Some(_) if self.attach_job.is_some() || !self.volume.is_empty() => RecordDestination::InPods,
            Some(_) => RecordDestination::Local,
        }
    }

    fn mistakes(&self, beside: &DistributionFlags<'_>) -> Vec<String> {
        let mut mistakes = Vec::new();
        let mut refuse = |wrong: bool, text: String| {
            if wrong {
                mistakes.push(text);
            }
        };
        refuse(
            self.max_pods.is_some() && beside.command != LoadCommand::Find,
            format!("--max-pods works with find only: {} always uses --pods pods", beside.command.name()),
        );
        refuse(
            self.max_pods.is_some_and(|most| most < self.pods.unwrap_or(1)),
            "--max-pods must be at least --pods".to_owned(),
        );
        refuse(
            self.dry_run && self.keep_job,
            "--keep-job does not work with --dry-run, which creates no Job: leave out --keep-job".to_owned(),
        );
        let is_in_volume = |path: &str| self.volume.iter().any(|volume| volume_contains(volume.path(), path));
        let is_by_pods = (!self.volume.is_empty() || self.dry_run) && self.attach_job.is_none();
        refuse(
            is_by_pods && beside.output.is_some_and(|path| path != STDOUT_NAME && !is_in_volume(path)),
            format!(
                "-output={}: the pods write the records, but this path does not exist in the pods: give --volume pvc:CLAIM:/PATH and an -output below /PATH, or give -output=none",
                beside.output.unwrap_or_default()
            ),
        );
        let mut paths: Vec<_> = self.volume.iter().map(|volume| volume.path()).collect();
        paths.sort_unstable();
        let within = paths.windows(2).find(|pair| volume_contains(pair[0], pair[1]) || pair[0] == pair[1]);
        refuse(
            within.is_some(),
            "two --volume flags have the same path, or one path contains the other".to_owned(),
        );
        mistakes
    }
}

/// Returns five random letters and digits that make the name of a Job unique. As in Kubernetes, letters that form words or look
/// alike are left out.
fn random_suffix() -> anyhow::Result<String> {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut drawn = [0; 5];
    aws_lc_rs::rand::fill(&mut drawn)
        .map_err(|_| anyhow::anyhow!("cannot get random numbers from the system"))?;
    Ok(drawn.map(|byte| char::from(LETTERS[usize::from(byte) % LETTERS.len()])).iter().collect())
}

/// Returns true if a path is inside a volume.
fn volume_contains(volume: &str, path: &str) -> bool {
    path.strip_prefix(volume).is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
        && !path.contains("/../")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        on: DistributedArgs,
    }

    fn typed(words: &str) -> Result<DistributedArgs, String> {
        let words = std::iter::once("it").chain(words.split_whitespace());
        Typed::try_parse_from(words).map(|typed| typed.on).map_err(|error| error.to_string())
    }

    fn of(
        words: &str,
        command: LoadCommand,
        output: Option<&str>,
    ) -> Result<Option<DistributedOptions>, String> {
        let beside = DistributionFlags { command, targets: "stdin", output };
        typed(words)?.options_with_suffix(&beside, Vec::new(), "x1y2z").map_err(|error| error.to_string())
    }

    fn spec(words: &str) -> LoadJobSpec {
        match of(words, LoadCommand::Attack, None).unwrap().unwrap().action {
            DistributedAction::CreateJob(spec) | DistributedAction::PrintManifest(spec) => spec,
            deed => panic!("{deed:?}"),
        }
    }

    #[test]
    fn without_on_every_flag_of_it_is_refused_and_nothing_is_asked_for() {
        assert_eq!(of("", LoadCommand::Attack, None), Ok(None));
        for flag in [
            "--pods 2",
            "--max-pods 2",
            "--image a",
            "--image-pull-policy Never",
            "--namespace a",
            "--node-selector a=b",
            "--toleration a",
            "--cpu 1",
            "--memory 64Mi",
            "--volume emptyDir:/a",
            "--on-pod-loss abort",
            "--dry-run",
            "--attach-job a",
            "--keep-job",
        ] {
            let told = typed(flag).unwrap_err();
            assert!(told.contains("--on <WHERE>"), "{flag}: {told}");
        }
    }

    #[test]
    fn pods_are_as_they_are_asked_for() {
        let asked = spec("--on kubernetes --image r.test/seawall:1");
        assert_eq!((asked.pod_count, asked.name.to_string()), (1, "seawall-attack-x1y2z".to_owned()));
        assert_eq!((asked.cpu.to_string(), asked.memory.to_string()), ("1".to_owned(), "128Mi".to_owned()));
        let asked = spec(
            "--on kubernetes:far --image r.test/seawall:1 --pods 20 --namespace load --node-selector a=b --node-selector c=d --cpu 2 \
             --memory 1Gi --image-pull-policy Always --keep-job --toleration t",
        );
        assert_eq!((asked.pod_count, asked.node_selector.len(), asked.ttl_seconds), (20, 2, None));
        assert_eq!(asked.namespace.unwrap().to_string(), "load");
        let far = of("--on kubernetes:far --attach-job run", LoadCommand::Find, None).unwrap().unwrap();
        assert_eq!(
            (far.kube_context.as_deref(), far.action),
            (Some("far"), DistributedAction::AttachJob("run".parse().unwrap()))
        );
    }

    #[test]
    fn what_does_not_go_together_is_refused_all_at_once() {
        let told =
            of("--on kubernetes --max-pods 3 --pods 4 --dry-run --keep-job", LoadCommand::Attack, Some("/x"))
                .unwrap_err();
        for part in [
            "needs --image",
            "--max-pods works with find only",
            "must be at least --pods",
            "--keep-job does not work with --dry-run",
            "-output=/x: the pods write the records",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        for (words, part) in [
            ("--on ssh", "expected kubernetes or kubernetes:CONTEXT"),
            ("--on kubernetes:", "expected kubernetes"),
            ("--on kubernetes --pods 0", "1..=1000"),
            ("--on kubernetes --pods 1001", "1..=1000"),
            ("--on kubernetes --attach-job a --image b", "cannot be used with"),
            ("--on kubernetes --image a --volume emptyDir:/a --volume pvc:b:/a/b", "the same path"),
        ] {
            let told = of(words, LoadCommand::Attack, None).unwrap_err();
            assert!(told.contains(part), "{words}: {told}");
        }
    }

    #[test]
    fn records_are_told_where_there_is_no_volume_and_no_job_is_for_later() {
        let written =
            |words, output| of(words, LoadCommand::Attack, Some(output)).unwrap().unwrap().record_destination;
        assert_eq!(written("--on processes", STDOUT_NAME), RecordDestination::Local);
        assert_eq!(written("--on kubernetes --image a", "run.gob"), RecordDestination::Local);
        assert_eq!(
            written("--on kubernetes --image a --volume pvc:b:/records", "/records/a.gob"),
            RecordDestination::InPods
        );
        assert_eq!(
            written("--on kubernetes --image a --volume pvc:b:/records", STDOUT_NAME),
            RecordDestination::Local
        );
        assert_eq!(written("--on kubernetes --image a --dry-run", STDOUT_NAME), RecordDestination::Discard);
        assert_eq!(written("--on kubernetes --attach-job a", STDOUT_NAME), RecordDestination::Discard);
        assert_eq!(written("--on kubernetes --attach-job a", "/records/a.gob"), RecordDestination::InPods);
    }

    #[test]
    fn a_job_ends_some_time_after_its_load() {
        let asked = || of("--on kubernetes --image a", LoadCommand::Attack, None).unwrap().unwrap();
        let deadline = |load| match asked().with_load_duration(load).action {
            DistributedAction::CreateJob(spec) => spec.deadline_seconds,
            other => panic!("{other:?}"),
        };
        assert_eq!((deadline(Some(Duration::from_secs(60))), deadline(None)), (960, 87_300));
    }
}
