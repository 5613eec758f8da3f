//! The flags of `--on`, checked beside those of the command: what is asked of a cluster.

use std::time::Duration;

use seawall_fleet::manifest::Spec;
use seawall_fleet::manifest::spec::Name;

use super::args::{On, OnArgs, WhenPodFails};

/// A command whose load pods can share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Attack,
    Find,
    Isolate,
}

impl Command {
    /// As it is typed.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Attack => "attack",
            Self::Find => "find",
            Self::Isolate => "isolate",
        }
    }
}

/// What of the command's other flags matters here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beside<'a> {
    /// Which it is.
    pub(crate) command: Command,
    /// `-targets`.
    pub(crate) targets: &'a str,
    /// `-output`, where records are to be written: a file, or [`STDOUT`].
    pub(crate) output: Option<&'a str>,
}

/// Standard output, as `-output` has it.
pub(crate) const STDOUT: &str = "stdout";

/// By whom records are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// There are none.
    Nowhere,
    /// By this program, which pods tell them.
    Here,
    /// By each pod, in a volume.
    InPods,
}

/// What is asked of a cluster.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Asked {
    /// Of the kubeconfig; none is its current one.
    pub(crate) context: Option<String>,
    /// None is the context's.
    pub(crate) namespace: Option<Name>,
    /// With which pods what is done.
    pub(crate) deed: Deed,
    /// How many pods there may be in the end.
    pub(crate) most_pods: Option<u32>,
    pub(crate) when_pod_fails: WhenPodFails,
    /// By whom records are written.
    pub(crate) written: Written,
    /// The Job stays.
    pub(crate) keep: bool,
}

/// What is done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Deed {
    /// Pods are made and ordered.
    Make(Spec),
    /// What makes them is printed.
    Print(Spec),
    /// Those of this Job are ordered.
    Join(Name),
    /// So many processes of this machine are started and ordered.
    Start(u32),
}

/// How much longer than its load a Job may take: images are fetched, connections warmed, late answers waited for.
const AROUND: Duration = Duration::from_secs(15 * 60);

/// How long a load without an end of its own may take.
const ENDLESS: Duration = Duration::from_secs(24 * 60 * 60);

impl Asked {
    /// The Job has time for a load that lasts so long; none: until it is stopped.
    pub(crate) fn lasting(&self, load: Option<Duration>) -> Self {
        let mut asked = self.clone();
        if let Deed::Make(spec) | Deed::Print(spec) = &mut asked.deed {
            spec.deadline_seconds = (load.unwrap_or(ENDLESS).saturating_add(AROUND)).as_secs();
        }
        asked
    }

    /// How many pods there are; of a Job that stands nobody knows, and then it is one.
    pub(crate) fn pods(&self) -> u64 {
        match &self.deed {
            Deed::Make(spec) | Deed::Print(spec) => spec.pods.into(),
            Deed::Join(_) => 1,
            Deed::Start(many) => (*many).into(),
        }
    }

    /// Where volumes are in pods.
    pub(crate) fn volumes(&self) -> Vec<&str> {
        match &self.deed {
            Deed::Make(spec) | Deed::Print(spec) => spec.volumes.iter().map(|volume| volume.path()).collect(),
            Deed::Join(_) | Deed::Start(_) => Vec::new(),
        }
    }
}

impl On {
    fn context(&self) -> Option<String> {
        match self {
            Self::Kubernetes { context } => context.clone(),
            Self::Processes => None,
        }
    }
}

impl OnArgs {
    /// What is asked for, if anything is, beside a command of which this is unlike what pods can do.
    ///
    /// # Errors
    /// All that does not go together.
    pub(crate) fn asked(&self, beside: &Beside<'_>, unlike: Vec<String>) -> anyhow::Result<Option<Asked>> {
        self.asked_by(beside, unlike, &word()?)
    }

    /// The same, of which a Job that is made is called by the command and this word.
    fn asked_by(
        &self,
        beside: &Beside<'_>,
        unlike: Vec<String>,
        word: &str,
    ) -> anyhow::Result<Option<Asked>> {
        let Some(on) = &self.on else { return Ok(None) };
        let mut mistakes = unlike;
        mistakes.extend(self.mistakes(beside));
        let deed = self.deed(beside.command, word).map_err(|why| mistakes.push(why));
        match deed {
            Ok(deed) if mistakes.is_empty() => Ok(Some(Asked {
                context: on.context(),
                namespace: self.namespace.clone(),
                deed,
                most_pods: self.most_pods,
                when_pod_fails: self.when_pod_fails.unwrap_or(WhenPodFails::GoOn),
                written: self.written(beside.output),
                keep: self.keep,
            })),
            _ => anyhow::bail!("{}", mistakes.join("\n")),
        }
    }

    fn deed(&self, command: Command, word: &str) -> Result<Deed, String> {
        if self.on == Some(On::Processes) {
            return Ok(Deed::Start(self.pods.unwrap_or(1)));
        }
        if let Some(job) = &self.job {
            return Ok(Deed::Join(job.clone()));
        }
        let image = self.image.clone().ok_or(
            "--on kubernetes needs --image: push what `make image` builds to a registry that the cluster reaches",
        )?;
        let name = format!("seawall-{}-{word}", command.word()).parse()?;
        let usual = Spec::new(name, self.pods.unwrap_or(1), image);
        let spec = Spec {
            namespace: self.namespace.clone(),
            pull_policy: self.image_pull_policy,
            cpu: self.cpu.clone().unwrap_or(usual.cpu),
            memory: self.memory.clone().unwrap_or(usual.memory),
            node_selector: self.node_selector.iter().cloned().collect(),
            tolerations: self.toleration.clone(),
            volumes: self.volume.clone(),
            ttl_seconds: if self.keep { None } else { usual.ttl_seconds },
            ..usual
        };
        Ok(if self.dry_run { Deed::Print(spec) } else { Deed::Make(spec) })
    }

    /// By whom records are written that go there.
    fn written(&self, output: Option<&str>) -> Written {
        match output {
            None => Written::Nowhere,
            // What is printed is applied, and joined, by commands whose standard output is another.
            Some(STDOUT) if self.dry_run || self.job.is_some() => Written::Nowhere,
            Some(STDOUT) => Written::Here,
            // Whether a Job that stands has a volume there is not known here.
            Some(_) if self.job.is_some() || !self.volume.is_empty() => Written::InPods,
            Some(_) => Written::Here,
        }
    }

    fn mistakes(&self, beside: &Beside<'_>) -> Vec<String> {
        let mut mistakes = Vec::new();
        let mut refuse = |wrong: bool, text: String| {
            if wrong {
                mistakes.push(text);
            }
        };
        refuse(
            self.most_pods.is_some() && beside.command != Command::Find,
            format!("--most-pods is for find: {} has as many pods as --pods says", beside.command.word()),
        );
        refuse(
            self.most_pods.is_some_and(|most| most < self.pods.unwrap_or(1)),
            "--most-pods is below --pods".to_owned(),
        );
        refuse(
            self.dry_run && self.keep,
            "--keep is of a Job that is made, and --dry-run makes none: what is applied by hand stays anyway"
                .to_owned(),
        );
        let is_in_volume = |path: &str| self.volume.iter().any(|volume| holds(volume.path(), path));
        let is_by_pods = (!self.volume.is_empty() || self.dry_run) && self.job.is_none();
        refuse(
            is_by_pods && beside.output.is_some_and(|path| path != STDOUT && !is_in_volume(path)),
            format!(
                "-output={}: pods write records there, and have no such place: say --volume pvc:CLAIM:/PATH, and -output in it, or -output=none",
                beside.output.unwrap_or_default()
            ),
        );
        let mut paths: Vec<_> = self.volume.iter().map(|volume| volume.path()).collect();
        paths.sort_unstable();
        let within = paths.windows(2).find(|pair| holds(pair[0], pair[1]) || pair[0] == pair[1]);
        refuse(within.is_some(), "two of --volume are at one path, or one in the other".to_owned());
        mistakes
    }
}

/// What tells one run's Job from another's: five letters and digits, without those that make words or look alike, as Kubernetes draws its own.
fn word() -> anyhow::Result<String> {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut drawn = [0; 5];
    aws_lc_rs::rand::fill(&mut drawn).map_err(|_| anyhow::anyhow!("the system gives no random numbers"))?;
    Ok(drawn.map(|byte| char::from(LETTERS[usize::from(byte) % LETTERS.len()])).iter().collect())
}

/// Whether a path is of something in a volume.
fn holds(volume: &str, path: &str) -> bool {
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
        on: OnArgs,
    }

    fn typed(words: &str) -> Result<OnArgs, String> {
        let words = std::iter::once("it").chain(words.split_whitespace());
        Typed::try_parse_from(words).map(|typed| typed.on).map_err(|error| error.to_string())
    }

    fn of(words: &str, command: Command, output: Option<&str>) -> Result<Option<Asked>, String> {
        let beside = Beside { command, targets: "stdin", output };
        typed(words)?.asked_by(&beside, Vec::new(), "x1y2z").map_err(|error| error.to_string())
    }

    fn spec(words: &str) -> Spec {
        match of(words, Command::Attack, None).unwrap().unwrap().deed {
            Deed::Make(spec) | Deed::Print(spec) => spec,
            deed => panic!("{deed:?}"),
        }
    }

    #[test]
    fn without_on_every_flag_of_it_is_refused_and_nothing_is_asked_for() {
        assert_eq!(of("", Command::Attack, None), Ok(None));
        for flag in [
            "--pods 2",
            "--most-pods 2",
            "--image a",
            "--image-pull-policy Never",
            "--namespace a",
            "--node-selector a=b",
            "--toleration a",
            "--cpu 1",
            "--memory 64Mi",
            "--volume emptyDir:/a",
            "--when-pod-fails end",
            "--dry-run",
            "--job a",
            "--keep",
        ] {
            let told = typed(flag).unwrap_err();
            assert!(told.contains("--on <WHERE>"), "{flag}: {told}");
        }
    }

    #[test]
    fn pods_are_as_they_are_asked_for() {
        let asked = spec("--on kubernetes --image r.test/seawall:1");
        assert_eq!((asked.pods, asked.name.to_string()), (1, "seawall-attack-x1y2z".to_owned()));
        assert_eq!((asked.cpu.to_string(), asked.memory.to_string()), ("1".to_owned(), "128Mi".to_owned()));
        let asked = spec(
            "--on kubernetes:far --image r.test/seawall:1 --pods 20 --namespace load --node-selector a=b --node-selector c=d --cpu 2 \
             --memory 1Gi --image-pull-policy Always --keep --toleration t",
        );
        assert_eq!((asked.pods, asked.node_selector.len(), asked.ttl_seconds), (20, 2, None));
        assert_eq!(asked.namespace.unwrap().to_string(), "load");
        let far = of("--on kubernetes:far --job run", Command::Find, None).unwrap().unwrap();
        assert_eq!((far.context.as_deref(), far.deed), (Some("far"), Deed::Join("run".parse().unwrap())));
    }

    #[test]
    fn what_does_not_go_together_is_refused_all_at_once() {
        let told = of("--on kubernetes --most-pods 3 --pods 4 --dry-run --keep", Command::Attack, Some("/x"))
            .unwrap_err();
        for part in [
            "needs --image",
            "--most-pods is for find",
            "is below --pods",
            "--keep is of a Job",
            "-output=/x: pods write records there",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        for (words, part) in [
            ("--on ssh", "expected kubernetes or kubernetes:CONTEXT"),
            ("--on kubernetes:", "expected kubernetes"),
            ("--on kubernetes --pods 0", "1..=1000"),
            ("--on kubernetes --pods 1001", "1..=1000"),
            ("--on kubernetes --job a --image b", "cannot be used with"),
            ("--on kubernetes --image a --volume emptyDir:/a --volume pvc:b:/a/b", "at one path"),
        ] {
            let told = of(words, Command::Attack, None).unwrap_err();
            assert!(told.contains(part), "{words}: {told}");
        }
    }

    #[test]
    fn records_are_told_where_there_is_no_volume_and_no_job_is_for_later() {
        let written = |words, output| of(words, Command::Attack, Some(output)).unwrap().unwrap().written;
        assert_eq!(written("--on processes", STDOUT), Written::Here);
        assert_eq!(written("--on kubernetes --image a", "run.gob"), Written::Here);
        assert_eq!(
            written("--on kubernetes --image a --volume pvc:b:/records", "/records/a.gob"),
            Written::InPods
        );
        assert_eq!(written("--on kubernetes --image a --volume pvc:b:/records", STDOUT), Written::Here);
        assert_eq!(written("--on kubernetes --image a --dry-run", STDOUT), Written::Nowhere);
        assert_eq!(written("--on kubernetes --job a", STDOUT), Written::Nowhere);
        assert_eq!(written("--on kubernetes --job a", "/records/a.gob"), Written::InPods);
    }

    #[test]
    fn a_job_ends_some_time_after_its_load() {
        let asked = || of("--on kubernetes --image a", Command::Attack, None).unwrap().unwrap();
        let deadline = |load| match asked().lasting(load).deed {
            Deed::Make(spec) => spec.deadline_seconds,
            other => panic!("{other:?}"),
        };
        assert_eq!((deadline(Some(Duration::from_secs(60))), deadline(None)), (960, 87_300));
    }
}
