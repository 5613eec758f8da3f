//! `seawall-agent retire`: takes the agent out of a cluster. Called by `main` alone.
//!
//! The pods that `helm uninstall` creates run it (the chart's `removal.yaml`), or an operator does. It runs one step at the API
//! server (`cluster`'s `uninstall` has the order of steps and the reasons), or waits in a pod that has finished its step on its node.
//! It knows nothing of the programs that are attached there; `redirect remove` removes them.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context;
use lexopt::{Error, Parser};
use seawall_cluster::{KubeAccess, Uninstaller};
use seawall_core::{Clock, duration};
use tokio::runtime::{Builder, Runtime};

use super::flags::{Flags, next_word};
use crate::app::signals::AgentSignals;

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

/// The parsed `retire` command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum UninstallCommand {
    Help,
    Agents { site: UninstallTarget, daemonset: String },
    Nodes { site: UninstallTarget, daemonset: Option<String>, taint: Option<String> },
    Stay,
}

/// The namespace and the API server of an uninstall step, and its time limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UninstallTarget {
    namespace: String,
    kubeconfig: Option<PathBuf>,
    within: Duration,
}

/// The default time limit: shorter than helm's own limit for a hook, which is five minutes.
const WITHIN: Duration = Duration::from_secs(240);

/// The flags that set an [`UninstallTarget`].
const SITE: [&str; 3] = ["namespace=", "kubeconfig=", "within="];

impl UninstallCommand {
    /// Parses the words after `retire`.
    ///
    /// # Errors
    /// The command is used wrongly.
    pub(crate) fn parse(mut args: Parser) -> Result<Self, Error> {
        let step = next_word(&mut args)?.unwrap_or_else(|| "help".to_owned());
        let [namespace, kubeconfig, within] = SITE;
        let takes: &[_] = match &*step {
            "help" => return Ok(Self::Help),
            "agents" => &[namespace, kubeconfig, within, "daemonset="],
            "nodes" => &[namespace, kubeconfig, within, "daemonset=", "taint="],
            "stay" => &[],
            _ => return Err(Error::Custom(format!("retire: there is no step {step}").into())),
        };
        let Some(flags) = Flags::read(&mut args, takes)? else { return Ok(Self::Help) };
        Ok(match &*step {
            "agents" => Self::Agents {
                site: UninstallTarget::of(&flags)?,
                daemonset: flags.required::<Name>("daemonset", NAME)?.0,
            },
            "nodes" => Self::Nodes {
                site: UninstallTarget::of(&flags)?,
                daemonset: flags.one::<Name>("daemonset", NAME)?.map(|name| name.0),
                taint: flags.one("taint", "a taint's key")?,
            },
            _ => Self::Stay,
        })
    }
}

const NAME: &str = "a name of Kubernetes'";

/// A Kubernetes name, which is checked because it becomes a part of a path.
struct Name(String);

impl FromStr for Name {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        seawall_core::names::is_dns_subdomain(text).then(|| Self(text.to_owned())).ok_or(())
    }
}

impl UninstallTarget {
    fn of(flags: &Flags) -> Result<Self, Error> {
        let within = flags.one::<String>("within", "a duration")?;
        let span = |text: String| duration::parse(&text).filter(|span| !span.is_zero());
        let wanted = || flags.invalid("within", "a duration such as 4m");
        Ok(Self {
            namespace: flags.required::<Name>("namespace", NAME)?.0,
            kubeconfig: flags.path("kubeconfig"),
            within: within.map_or(Ok(WITHIN), |text| span(text).ok_or_else(wanted))?,
        })
    }

    fn retirement(&self) -> anyhow::Result<Uninstaller> {
        let access = self.kubeconfig.clone().map_or(KubeAccess::InCluster, KubeAccess::Kubeconfig);
        Ok(Uninstaller::new(access, self.namespace.clone(), self.within, Clock::system())?)
    }
}

/// Runs the step. Returns the text to print.
///
/// # Errors
/// The step did not finish in time, or failed.
pub(crate) fn run(request: &UninstallCommand) -> anyhow::Result<String> {
    match request {
        UninstallCommand::Help => Ok(HELP.to_owned()),
        UninstallCommand::Agents { site, daemonset } => runtime()?.block_on(agents(site, daemonset)),
        UninstallCommand::Nodes { site, daemonset, taint } => {
            runtime()?.block_on(nodes(site, daemonset.as_deref(), taint.as_deref()))
        }
        UninstallCommand::Stay => runtime()?.block_on(stay()),
    }
}

fn runtime() -> anyhow::Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .context("cannot start a runtime")
}

/// Deletes the agents. A node that does not answer keeps its agent's pod and is not an error here.
/// The next step checks whether that node is clean. If it is not, the removal stops there.
async fn agents(site: &UninstallTarget, daemonset: &str) -> anyhow::Result<String> {
    match site.retirement()?.delete_agents(daemonset).await {
        Ok(()) => Ok("no agent is left\n".to_owned()),
        Err(left @ seawall_cluster::UninstallError::Nodes { .. }) => Ok(format!("agents that end: {left}\n")),
        Err(left) => Err(left).context("whether agents are left"),
    }
}

async fn nodes(
    site: &UninstallTarget,
    daemonset: Option<&str>,
    taint: Option<&str>,
) -> anyhow::Result<String> {
    let retirement = site.retirement()?;
    let mut done = String::new();
    if let Some(daemonset) = daemonset {
        retirement.wait_for_nodes(daemonset).await.context(DIRTY)?;
        done += "nothing is left on any node\n";
    }
    if let Some(taint) = taint {
        let opened = retirement.remove_taint(taint).await.with_context(|| format!("the taint {taint}"))?;
        done += &format!("the taint {taint} is off, on {opened} node(s) just now\n");
    }
    Ok(done)
}

const DIRTY: &str = "programs, pins or rules may be left, and pods there are refused; when the node is back, or taken out of the cluster \
                     (kubectl delete node), uninstall again; a restart of the node takes them away, too";

async fn stay() -> anyhow::Result<String> {
    let mut signals = AgentSignals::new().context("cannot listen for signals")?;
    signals.next().await;
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<UninstallCommand, String> {
        UninstallCommand::parse(Parser::from_args(line.split_whitespace())).map_err(|error| error.to_string())
    }

    fn site() -> UninstallTarget {
        UninstallTarget { namespace: "seawall".into(), kubeconfig: None, within: WITHIN }
    }

    #[test]
    fn each_step_is_read_with_its_flags() {
        assert_eq!(
            parsed("agents --namespace seawall --daemonset=seawall-agent"),
            Ok(UninstallCommand::Agents { site: site(), daemonset: "seawall-agent".into() })
        );
        let site =
            UninstallTarget { kubeconfig: Some("/k".into()), within: Duration::from_secs(30), ..site() };
        assert_eq!(
            parsed("nodes --namespace seawall --kubeconfig /k --within 30s --taint a/b"),
            Ok(UninstallCommand::Nodes { site, daemonset: None, taint: Some("a/b".into()) })
        );
        assert_eq!(parsed("stay"), Ok(UninstallCommand::Stay));
        for line in ["", "help", "nodes --help"] {
            assert_eq!(parsed(line), Ok(UninstallCommand::Help), "{line}");
        }
    }

    #[test]
    fn what_means_nothing_is_refused_by_name() {
        for (line, named) in [
            ("everything", "everything"),
            ("agents --namespace x", "--daemonset"),
            ("nodes", "--namespace"),
            ("nodes --namespace", "--namespace"),
            ("nodes --namespace a/b", "\"a/b\""),
            ("nodes --namespace x --within soon", "\"soon\""),
            ("nodes --namespace x --within 0s", "\"0s\""),
            ("agents --namespace x --daemonset y --taint z", "--taint"),
            ("stay --within 1s", "--within"),
            ("nodes --force x", "--force"),
        ] {
            let refused = parsed(line).unwrap_err();
            assert!(refused.contains(named), "{line}: {refused}");
        }
    }
}
