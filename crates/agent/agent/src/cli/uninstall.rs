//! `seawall-agent uninstall`: removes the agent from a cluster. Only `main` calls this module.
//!
//! The hook pods of `helm uninstall` run this command (the chart's `uninstall-hook.yaml`), or an operator runs it. The command
//! runs one step at the API server (`uninstall` in the crate `cluster` explains the order of the steps). With `idle`, the command
//! waits for a signal in a pod whose node is already clean. The module does not detach the programs on nodes. `redirect detach`
//! detaches these programs.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context;
use lexopt::{Error, Parser};
use seawall_cluster::{ClientConfigSource, Uninstaller};
use seawall_core::{Clock, duration};
use tokio::runtime::{Builder, Runtime};

use super::flag_parser::{Flags, next_word};
use crate::app::signals::AgentSignals;

pub(crate) const HELP: &str = "\
seawall-agent uninstall: removes the agent from a cluster. `helm uninstall` runs these steps. Each step waits until
it is complete on all nodes. On a timeout, the step lists the nodes on which it is not complete.

Usage:
  seawall-agent uninstall delete-agents --namespace NAME --daemonset NAME [OPTIONS]
                                                   delete the agents' DaemonSet and wait until its pods are gone. From then on, pods' metadata requests fail.
  seawall-agent uninstall wait-for-nodes --namespace NAME [--daemonset NAME] [--skip-not-ready-nodes] [--taint KEY] [OPTIONS]
                                                   wait until the pods of that DaemonSet are ready on all nodes; then remove that taint
                                                   from all nodes. The pods run `redirect detach` before they become ready.
                                                   With --skip-not-ready-nodes, nodes that are not ready after half of the time limit are
                                                   named and skipped. Their pods stay refused until a restart of the node.
  seawall-agent uninstall idle                     do nothing until SIGTERM. The pods of that DaemonSet run this step after `redirect detach`.

Options:
  --kubeconfig FILE   credentials for the API server (default: the credentials of this pod's service account)
  --timeout DURATION  time limit of each step (default 4m)

Exit codes: 0 done; 1 timed out, with the names of the nodes; 2 bad usage. `delete-agents` exits 0 even if pods of agents remain on nodes that
do not answer; `wait-for-nodes`, the next step, lists these nodes again.
";

/// The parsed `uninstall` command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum UninstallCommand {
    Help,
    DeleteAgents {
        site: UninstallOptions,
        daemonset: String,
    },
    WaitForNodes {
        site: UninstallOptions,
        daemonset: Option<String>,
        skips_not_ready_nodes: bool,
        taint: Option<String>,
    },
    Idle,
}

/// The namespace, the API server and the time limit of an uninstall step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UninstallOptions {
    namespace: String,
    kubeconfig: Option<PathBuf>,
    timeout: Duration,
}

/// The default time limit. It is shorter than helm's limit for a hook (five minutes).
const TIMEOUT: Duration = Duration::from_secs(240);

/// The flags that set an [`UninstallOptions`].
const SITE: [&str; 3] = ["namespace=", "kubeconfig=", "timeout="];

impl UninstallCommand {
    /// Parses the words after `uninstall`.
    ///
    /// # Errors
    /// The words are not a valid `uninstall` command.
    pub(crate) fn parse(mut args: Parser) -> Result<Self, Error> {
        let step = next_word(&mut args)?.unwrap_or_else(|| "help".to_owned());
        let [namespace, kubeconfig, timeout] = SITE;
        let takes: &[_] = match &*step {
            "help" => return Ok(Self::Help),
            "delete-agents" => &[namespace, kubeconfig, timeout, "daemonset="],
            "wait-for-nodes" => {
                &[namespace, kubeconfig, timeout, "daemonset=", "skip-not-ready-nodes", "taint="]
            }
            "idle" => &[],
            _ => return Err(Error::Custom(format!("uninstall: unknown step {step:?}").into())),
        };
        let Some(flags) = Flags::read(&mut args, takes)? else { return Ok(Self::Help) };
        Ok(match &*step {
            "delete-agents" => Self::DeleteAgents {
                site: UninstallOptions::of(&flags)?,
                daemonset: flags.required::<Name>("daemonset", NAME)?.0,
            },
            "wait-for-nodes" => Self::WaitForNodes {
                site: UninstallOptions::of(&flags)?,
                daemonset: flags.value::<Name>("daemonset", NAME)?.map(|name| name.0),
                skips_not_ready_nodes: flags.has("skip-not-ready-nodes"),
                taint: flags.value("taint", "the key of a taint")?,
            },
            _ => Self::Idle,
        })
    }
}

const NAME: &str = "the name of a Kubernetes object";

/// A valid name of a Kubernetes object. No other text may become part of a request path.
struct Name(String);

impl FromStr for Name {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        seawall_core::name_syntax::is_dns_subdomain(text).then(|| Self(text.to_owned())).ok_or(())
    }
}

impl UninstallOptions {
    fn of(flags: &Flags) -> Result<Self, Error> {
        let timeout = flags.value::<String>("timeout", "a duration")?;
        let span = |text: String| duration::parse(&text).filter(|span| !span.is_zero());
        let wanted = || flags.invalid_value_error("timeout", "a duration such as 4m");
        Ok(Self {
            namespace: flags.required::<Name>("namespace", NAME)?.0,
            kubeconfig: flags.path("kubeconfig"),
            timeout: timeout.map_or(Ok(TIMEOUT), |text| span(text).ok_or_else(wanted))?,
        })
    }

    fn uninstaller(&self) -> anyhow::Result<Uninstaller> {
        let access =
            self.kubeconfig.clone().map_or(ClientConfigSource::InCluster, ClientConfigSource::Kubeconfig);
        Ok(Uninstaller::new(access, self.namespace.clone(), self.timeout, Clock::system())?)
    }
}

/// Runs the step and returns the text to print.
///
/// # Errors
/// The step failed or did not finish in time.
pub(crate) fn run_cluster_uninstall_step(request: &UninstallCommand) -> anyhow::Result<String> {
    match request {
        UninstallCommand::Help => Ok(HELP.to_owned()),
        UninstallCommand::DeleteAgents { site, daemonset } => {
            runtime()?.block_on(delete_agents(site, daemonset))
        }
        UninstallCommand::WaitForNodes { site, daemonset, skips_not_ready_nodes, taint } => runtime()?
            .block_on(wait_for_nodes(site, daemonset.as_deref(), *skips_not_ready_nodes, taint.as_deref())),
        UninstallCommand::Idle => runtime()?.block_on(idle()),
    }
}

fn runtime() -> anyhow::Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .context("cannot start a runtime")
}

/// Deletes the agents. If a node does not respond, the agent's pod on that node stays, and this step still succeeds. The next
/// step checks whether the node is clean, and fails if the node is not clean.
async fn delete_agents(site: &UninstallOptions, daemonset: &str) -> anyhow::Result<String> {
    match site.uninstaller()?.delete_agents(daemonset).await {
        Ok(()) => Ok("all agents are deleted\n".to_owned()),
        Err(left @ seawall_cluster::UninstallError::UnfinishedNodes { .. }) => {
            Ok(format!("agents are still terminating: {left}\n"))
        }
        Err(left) => Err(left).context("cannot check whether any agents remain"),
    }
}

async fn wait_for_nodes(
    site: &UninstallOptions,
    daemonset: Option<&str>,
    skips_not_ready_nodes: bool,
    taint: Option<&str>,
) -> anyhow::Result<String> {
    let uninstaller = site.uninstaller()?;
    let mut done = String::new();
    if let Some(daemonset) = daemonset {
        let skipped =
            uninstaller.wait_until_daemonset_ready(daemonset, skips_not_ready_nodes).await.context(DIRTY)?;
        done += &match &skipped[..] {
            [] => "all nodes are clean\n".to_owned(),
            skipped => format!(
                "all nodes that are ready are clean. Not ready, so skipped, and pods there stay refused until the node restarts: {}\n",
                skipped.join(", ")
            ),
        };
    }
    if let Some(taint) = taint {
        let opened = uninstaller
            .remove_taint(taint)
            .await
            .with_context(|| format!("cannot remove the taint {taint} from every node"))?;
        done += &format!("removed the taint {taint} from {opened} node(s); no node has this taint now\n");
    }
    Ok(done)
}

const DIRTY: &str = "some nodes may still have eBPF programs, their pins or netfilter rules, which refuse pods' metadata requests. Uninstall again \
                     when each node is reachable or deleted (`kubectl delete node`); a restart of a node also removes these programs and rules";

async fn idle() -> anyhow::Result<String> {
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

    fn site() -> UninstallOptions {
        UninstallOptions { namespace: "seawall".into(), kubeconfig: None, timeout: TIMEOUT }
    }

    #[test]
    fn each_step_is_read_with_its_flags() {
        assert_eq!(
            parsed("delete-agents --namespace seawall --daemonset=seawall-agent"),
            Ok(UninstallCommand::DeleteAgents { site: site(), daemonset: "seawall-agent".into() })
        );
        let site =
            UninstallOptions { kubeconfig: Some("/k".into()), timeout: Duration::from_secs(30), ..site() };
        assert_eq!(
            parsed("wait-for-nodes --namespace seawall --kubeconfig /k --timeout 30s --taint a/b"),
            Ok(UninstallCommand::WaitForNodes {
                site,
                daemonset: None,
                skips_not_ready_nodes: false,
                taint: Some("a/b".into())
            })
        );
        assert_eq!(parsed("idle"), Ok(UninstallCommand::Idle));
        for line in ["", "help", "wait-for-nodes --help"] {
            assert_eq!(parsed(line), Ok(UninstallCommand::Help), "{line}");
        }
    }

    #[test]
    fn what_means_nothing_is_refused_by_name() {
        for (line, named) in [
            ("everything", "everything"),
            ("delete-agents --namespace x", "--daemonset"),
            ("wait-for-nodes", "--namespace"),
            ("wait-for-nodes --namespace", "--namespace"),
            ("wait-for-nodes --namespace a/b", "\"a/b\""),
            ("wait-for-nodes --namespace x --timeout soon", "\"soon\""),
            ("wait-for-nodes --namespace x --timeout 0s", "\"0s\""),
            ("delete-agents --namespace x --daemonset y --taint z", "--taint"),
            ("idle --timeout 1s", "--timeout"),
            ("wait-for-nodes --force x", "--force"),
        ] {
            let refused = parsed(line).unwrap_err();
            assert!(refused.contains(named), "{line}: {refused}");
        }
    }
}
