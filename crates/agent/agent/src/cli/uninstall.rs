//! `seawall-agent retire`: what is done when the agent is taken out of a cluster, by the pods that `helm uninstall` makes (the chart's
//! `removal.yaml`), or by hand. Called by `main` alone.
//!
//! Does one step at the API server (`cluster`'s `retire` says in which order and why), or stays where a pod has done its step on its node.
//! Knows nothing of what is attached there: that is `redirect remove`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use seawall_cluster::{Access, Retirement};
use seawall_core::{Clock, duration};
use tokio::runtime::{Builder, Runtime};

use crate::app::signals::Signals;

pub(crate) const HELP: &str = "\
seawall-agent retire: takes the agent out of a cluster. `helm uninstall` has it done; each step waits, and says on which nodes in vain.

Usage:
  seawall-agent retire agents --namespace NAME --daemonset NAME [PLACES]
                                                   delete the agents' DaemonSet and wait until its pods are gone. Pods are refused from then on
  seawall-agent retire nodes --namespace NAME [--daemonset NAME] [--taint KEY] [PLACES]
                                                   wait until that DaemonSet (whose pods run `redirect remove` on their nodes) is ready
                                                   everywhere; then take that taint off all nodes
  seawall-agent retire stay                        do nothing until SIGTERM: what such a pod does when its node is clean

Places:
  --kubeconfig FILE   how to reach the API server (default: the credentials that Kubernetes gives a pod)
  --within DURATION   how long each step may take (default 4m)

Exit codes: 0 done; 1 not done in time, with the nodes' names; 2 bad usage. agents ends with 0 where pods are left on nodes that do not answer:
nodes, which comes next, names them again.
";

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Help,
    Agents { site: Site, daemonset: String },
    Nodes { site: Site, daemonset: Option<String>, taint: Option<String> },
    Stay,
}

/// Where, and how patiently.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Site {
    namespace: String,
    kubeconfig: Option<PathBuf>,
    within: Duration,
}

/// Shorter than helm's own patience with a hook, which is five minutes.
const WITHIN: Duration = Duration::from_secs(240);

#[derive(Default)]
struct Flags {
    namespace: Option<String>,
    daemonset: Option<String>,
    taint: Option<String>,
    kubeconfig: Option<PathBuf>,
    within: Option<Duration>,
}

impl Request {
    /// Of the words after `retire`.
    ///
    /// # Errors
    /// How the command is used.
    pub(crate) fn parse(args: &[OsString]) -> Result<Self, String> {
        let args: Option<Vec<&str>> = args.iter().map(|arg| arg.to_str()).collect();
        let args = args.ok_or("seawall-agent: retire: an argument is not UTF-8")?;
        let is_help = |arg: &&str| matches!(*arg, "--help" | "-h");
        match args.split_first() {
            None | Some((&"help", _)) => Ok(Self::Help),
            Some(_) if args.iter().any(is_help) => Ok(Self::Help),
            Some((step, flags)) => Self::of(step, Flags::read(flags)?),
        }
    }

    fn of(step: &str, mut flags: Flags) -> Result<Self, String> {
        let request = match step {
            "agents" => {
                let daemonset =
                    flags.daemonset.take().ok_or("seawall-agent: retire agents needs --daemonset NAME")?;
                Self::Agents { site: flags.site(step)?, daemonset }
            }
            "nodes" => Self::Nodes {
                site: flags.site(step)?,
                daemonset: flags.daemonset.take(),
                taint: flags.taint.take(),
            },
            "stay" => Self::Stay,
            _ => return Err(format!("seawall-agent: retire: there is no step {step}")),
        };
        flags.nothing_left(step)?;
        Ok(request)
    }
}

impl Flags {
    fn read(args: &[&str]) -> Result<Self, String> {
        let mut flags = Self::default();
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let (name, value) = arg.split_once('=').map_or((*arg, None), |(name, value)| (name, Some(value)));
            let value = value.or_else(|| rest.next().copied()).filter(|value| !value.is_empty());
            let value = value.ok_or_else(|| format!("seawall-agent: retire: {name} needs a value"))?;
            flags.set(name, value)?;
        }
        Ok(flags)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "--namespace" => self.namespace = Some(named(name, value)?),
            "--daemonset" => self.daemonset = Some(named(name, value)?),
            "--taint" => self.taint = Some(value.into()),
            "--kubeconfig" => self.kubeconfig = Some(value.into()),
            "--within" => {
                let span = duration::parse(value).filter(|span| !span.is_zero());
                let wanted =
                    || format!("seawall-agent: retire: --within is a duration such as 4m, not {value:?}");
                self.within = Some(span.ok_or_else(wanted)?);
            }
            _ => return Err(format!("seawall-agent: retire: there is no flag {name}")),
        }
        Ok(())
    }

    fn site(&mut self, step: &str) -> Result<Site, String> {
        let namespace = self.namespace.take();
        let missing = || format!("seawall-agent: retire {step} needs --namespace NAME");
        Ok(Site {
            namespace: namespace.ok_or_else(missing)?,
            kubeconfig: self.kubeconfig.take(),
            within: self.within.take().unwrap_or(WITHIN),
        })
    }

    /// A flag that the step did not take meant something to whoever wrote it.
    fn nothing_left(&self, step: &str) -> Result<(), String> {
        let left = [
            ("--namespace", self.namespace.is_some()),
            ("--daemonset", self.daemonset.is_some()),
            ("--taint", self.taint.is_some()),
            ("--kubeconfig", self.kubeconfig.is_some()),
            ("--within", self.within.is_some()),
        ];
        match left.iter().find(|(_, given)| *given) {
            Some((name, _)) => Err(format!("seawall-agent: retire {step} takes no {name}")),
            None => Ok(()),
        }
    }
}

/// A name becomes a part of a path.
fn named(flag: &str, value: &str) -> Result<String, String> {
    let is_name = seawall_core::names::is_dns_subdomain(value);
    let wanted = || format!("seawall-agent: retire: {flag} is a name of Kubernetes', not {value:?}");
    is_name.then(|| value.to_owned()).ok_or_else(wanted)
}

impl Site {
    fn retirement(&self) -> anyhow::Result<Retirement> {
        let access = self.kubeconfig.clone().map_or(Access::InCluster, Access::Kubeconfig);
        Ok(Retirement::new(access, self.namespace.clone(), self.within, Clock::system())?)
    }
}

/// Does it. What is to be printed.
///
/// # Errors
/// It could not be done in time, or at all.
pub(crate) fn run(request: &Request) -> anyhow::Result<String> {
    match request {
        Request::Help => Ok(HELP.to_owned()),
        Request::Agents { site, daemonset } => runtime()?.block_on(agents(site, daemonset)),
        Request::Nodes { site, daemonset, taint } => {
            runtime()?.block_on(nodes(site, daemonset.as_deref(), taint.as_deref()))
        }
        Request::Stay => runtime()?.block_on(stay()),
    }
}

fn runtime() -> anyhow::Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .context("cannot start a runtime")
}

/// A node that does not answer keeps its agent's pod; whether it is clean is asked next, and that it is not stops the removal there.
async fn agents(site: &Site, daemonset: &str) -> anyhow::Result<String> {
    match site.retirement()?.agents(daemonset).await {
        Ok(()) => Ok("no agent is left\n".to_owned()),
        Err(left @ seawall_cluster::Left::Nodes { .. }) => Ok(format!("agents that end: {left}\n")),
        Err(left) => Err(left).context("whether agents are left"),
    }
}

async fn nodes(site: &Site, daemonset: Option<&str>, taint: Option<&str>) -> anyhow::Result<String> {
    let retirement = site.retirement()?;
    let mut done = String::new();
    if let Some(daemonset) = daemonset {
        retirement.nodes(daemonset).await.context(DIRTY)?;
        done += "nothing is left on any node\n";
    }
    if let Some(taint) = taint {
        let opened = retirement.untaint(taint).await.with_context(|| format!("the taint {taint}"))?;
        done += &format!("the taint {taint} is off, on {opened} node(s) just now\n");
    }
    Ok(done)
}

const DIRTY: &str = "programs, pins or rules may be left, and pods there are refused; when the node is back, or taken out of the cluster \
                     (kubectl delete node), uninstall again; a restart of the node takes them away, too";

async fn stay() -> anyhow::Result<String> {
    let mut signals = Signals::new().context("cannot listen for signals")?;
    signals.next().await;
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, String> {
        Request::parse(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    fn site() -> Site {
        Site { namespace: "seawall".into(), kubeconfig: None, within: WITHIN }
    }

    #[test]
    fn each_step_is_read_with_its_flags() {
        assert_eq!(
            parsed("agents --namespace seawall --daemonset=seawall-agent"),
            Ok(Request::Agents { site: site(), daemonset: "seawall-agent".into() })
        );
        let site = Site { kubeconfig: Some("/k".into()), within: Duration::from_secs(30), ..site() };
        assert_eq!(
            parsed("nodes --namespace seawall --kubeconfig /k --within 30s --taint a/b"),
            Ok(Request::Nodes { site, daemonset: None, taint: Some("a/b".into()) })
        );
        assert_eq!(parsed("stay"), Ok(Request::Stay));
        for line in ["", "help", "nodes --help"] {
            assert_eq!(parsed(line), Ok(Request::Help), "{line}");
        }
    }

    #[test]
    fn what_means_nothing_is_refused_by_name() {
        for (line, named) in [
            ("everything", "everything"),
            ("agents --namespace x", "--daemonset"),
            ("nodes", "--namespace"),
            ("nodes --namespace", "--namespace needs"),
            ("nodes --namespace a/b", "\"a/b\""),
            ("nodes --namespace x --within soon", "\"soon\""),
            ("nodes --namespace x --within 0s", "\"0s\""),
            ("agents --namespace x --daemonset y --taint z", "takes no --taint"),
            ("stay --within 1s", "takes no --within"),
            ("nodes --force x", "--force"),
        ] {
            let refused = parsed(line).unwrap_err();
            assert!(refused.contains(named), "{line}: {refused}");
        }
    }
}
