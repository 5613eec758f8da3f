//! `seawall-agent redirect`: lets an operator attach, inspect and detach the redirect. Only `main` calls this module.
//!
//! The process runs one command and ends. It opens no listener, reads no configuration, and does not contact the serving agent.
//! Attached programs intentionally stay attached after the process has ended.

mod drop_rule_keeper;
mod host_network_flag;
mod node_address_flag;
mod node_paths;
mod print_rules;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use lexopt::{Error, Parser};
use seawall_redirect::attach::AttachOutcome;
use seawall_redirect::{self as redirect, HostNetworkPods, attach, detach, netfilter, read_status};

use self::host_network_flag::{HOST_NETWORK_PODS, leaves_host_network_pods};
use self::node_address_flag::{AGENT_PORTS, AgentPortFlags, FIND_IPV4, NODE_ADDRESS, node_addresses};
use self::node_paths::{NodePaths, PATH_FLAGS};
use self::print_rules::{RuleSet, write_or_return_text};
use super::flag_parser::{Flags, next_word};

pub(crate) const HELP: &str = "\
seawall-agent redirect: sends pods' requests to the clouds' metadata addresses (169.254.169.254 and others, port 80) to the agent.

Usage:
  seawall-agent redirect attach --node-address ADDRESSES [RULES] [PATHS]
  seawall-agent redirect attach --host-network-pods=seawall [RULES] [PATHS]
      Attach this version's eBPF programs to the cgroup of the node's pods. They replace the programs of another version. While no agent
      is ready, the kernel refuses pods' connections to metadata addresses (EPERM). Then load the drop rules (see `print drop-rules`),
      unless --no-drop-rules is given or the kernel has no nf_tables. A second run changes nothing.
      Pods on the node's network (hostNetwork) keep the real metadata server, with and without an agent; the first of ADDRESSES must be
      bound on this node. With --host-network-pods=seawall they get their own credentials from the agent, like all other pods.
  seawall-agent redirect status [PATHS]
      Print the programs at each hook and their version, the numbers of captured and refused connections, and the agent that gets
      captured connections. Exit 1 if the state differs from the state that `attach` creates.
  seawall-agent redirect detach [--bpffs DIR]
      Detach everything and remove the drop rules. Pods then reach the real metadata server.
  seawall-agent redirect keep-drop-rules [--status-file FILE] [--node-address ADDRESSES --agent-ports PORTS]
      Look at the drop rules each minute and load them again if another program removed them, until SIGTERM. Needs CAP_NET_ADMIN.
      FILE says after each look whether the rules are loaded. An agent whose adminSocket is PATH reports the content of PATH.drop-rules.
  seawall-agent redirect print drop-rules
      Print rules for the host's network namespace. The rules drop forwarded packets to metadata addresses, except DNS.
      The eBPF programs do not see these packets: raw packets, and packets of gVisor and Kata pods.
      Example: seawall-agent redirect print drop-rules | nft -f -
  seawall-agent redirect print dnat-rules --node-address ADDRESSES --metadata-port PORT
                                          [--containers-port PORT] [PATHS]
                                          [--host-network-pods=seawall [--agent-pod-uid UID]]
      Print rules that replace the programs, for kernels that refuse them and for nodes that have cgroup v1 only.
      Pods on the node's network keep the real metadata server. With --host-network-pods=seawall the rules send their requests to the
      agent, too (needs cgroup v2). --agent-pod-uid UID then excludes the agent's own pod, which passes requests on to the real server.
  seawall-agent redirect print cleanup-rules
      Print rules that remove the drop rules and the dnat rules.
  seawall-agent redirect print RULES --output FILE
      Write the rules to a file, for a container that has nft but not this program.

Addresses:
  --node-address ADDRESSES  the node's addresses, such as 10.0.0.1,fd00::1. Of each list, the first address of each IP family counts. An empty list
                          has no addresses. The flag can be given several times.
  --find-ipv4             if ADDRESSES has no IPv4 address, add the one from which this node would send to 169.254.169.254, if it has one. Agents
                          whose configuration has identity.egressRanges for IPv4 listen there, too. Run it on the node's network.

Rules:
  --no-drop-rules         load no rules
  --agent-ports PORTS     ports of the agents at ADDRESSES, such as 8988,8986. A rule before all other translations keeps connections to
                          them, so no Service with externalIPs and no hostPort leads other pods' requests to another pod.
                          Connections that the node would masquerade from one of these ports are dropped.

Paths:
  --bpffs DIR             where a BPF file system is mounted (default /sys/fs/bpf). In a container, mount the host's BPF file
                          system at another path, because container runtimes deny writes below /sys.
  --cgroup-root DIR       where the host's cgroup tree is mounted (default /sys/fs/cgroup)
  --kubepods-cgroup PATH  the kubelet's cgroup of pods in that tree (default: kubepods, kubepods.slice or kind's, whichever exists)

`attach` first checks whether another program prevents the redirect. In each cgroup from the pods' cgroup up to the root, `attach`
attaches and detaches a program that does nothing. --conflict-check-root DIR ends this check at that directory.

Requirements of `attach`: CAP_BPF and CAP_NET_ADMIN, cgroup v2 (alone or beside cgroup v1), and Linux 5.15 or later. `attach` also accepts an
older kernel if it loads the programs and net_cls and net_prio of cgroup v1 are not in use. If another program prevents the redirect, `attach`
fails and names that program's cgroup.
";

/// The parsed `redirect` command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RedirectCommand {
    Help,
    Attach {
        places: NodePaths,
        host_network_pods: HostNetworkPods,
        /// The agents' ports, for the rules; `None` to load no rules.
        rules: Option<AgentPortFlags>,
        conflict_check_root: Option<PathBuf>,
    },
    KeepDropRules {
        status_file: Option<PathBuf>,
        ports: AgentPortFlags,
    },
    Status(NodePaths),
    Detach(NodePaths),
    Print {
        rules: RuleSet,
        output: Option<PathBuf>,
    },
}

impl RedirectCommand {
    /// Parses the words after `redirect`.
    ///
    /// # Errors
    /// The words are not a valid `redirect` command.
    pub(crate) fn parse(mut args: Parser) -> Result<Self, Error> {
        let mut words: Vec<String> = next_word(&mut args)?.into_iter().collect();
        if words == ["print"] {
            words.extend(next_word(&mut args)?);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let [bpffs, cgroup_root, kubepods_cgroup] = PATH_FLAGS;
        let takes: &[_] = match *words {
            [] | ["help"] | ["print", "help"] => return Ok(Self::Help),
            ["attach"] => &[
                bpffs,
                cgroup_root,
                kubepods_cgroup,
                "no-drop-rules",
                "conflict-check-root=",
                HOST_NETWORK_PODS,
                NODE_ADDRESS,
                FIND_IPV4,
                AGENT_PORTS,
            ],
            ["status" | "detach"] => &PATH_FLAGS,
            ["keep-drop-rules"] => &["status-file=", NODE_ADDRESS, FIND_IPV4, AGENT_PORTS],
            ["print", "drop-rules" | "cleanup-rules"] => &["output="],
            ["print", "dnat-rules"] => &[
                bpffs,
                cgroup_root,
                kubepods_cgroup,
                NODE_ADDRESS,
                "metadata-port=",
                "containers-port=",
                "agent-pod-uid=",
                HOST_NETWORK_PODS,
                "output=",
            ],
            _ => {
                return Err(Error::Custom(format!("redirect: unknown command {:?}", words.join(" ")).into()));
            }
        };
        let Some(flags) = Flags::read(&mut args, takes)? else { return Ok(Self::Help) };
        let places = || NodePaths::from_flags(&flags);
        Ok(match *words {
            ["attach"] => Self::Attach {
                rules: if flags.has("no-drop-rules") { None } else { Some(AgentPortFlags::read(&flags)?) },
                conflict_check_root: flags.path("conflict-check-root"),
                host_network_pods: host_network_pods(&flags)?,
                places: places(),
            },
            ["status"] => Self::Status(places()),
            ["detach"] => Self::Detach(places()),
            ["keep-drop-rules"] => {
                let ports = AgentPortFlags::read(&flags)?;
                Self::KeepDropRules { status_file: flags.path("status-file"), ports }
            }
            ["print", what] => {
                Self::Print { rules: RuleSet::parse(what, &flags)?, output: flags.path("output") }
            }
            _ => Self::Help,
        })
    }
}

fn host_network_pods(flags: &Flags) -> Result<HostNetworkPods, Error> {
    let address = node_addresses(flags)?.first().copied();
    match (leaves_host_network_pods(flags)?, address) {
        (false, _) => Ok(HostNetworkPods::Seawall),
        (true, Some(address)) => Ok(HostNetworkPods::Node(address)),
        (true, None) => Err(Error::Custom(
            "--node-address is missing: expected an IP address of this node, by which `attach` recognises the node's network; or give \
             --host-network-pods=seawall"
                .into(),
        )),
    }
}

/// Runs the command and returns the text to print.
///
/// # Errors
/// The command failed, or `status` found the redirect incomplete.
pub(crate) fn run(request: &RedirectCommand) -> anyhow::Result<String> {
    match request {
        RedirectCommand::Help => Ok(HELP.to_owned()),
        RedirectCommand::Attach { places, host_network_pods, rules, conflict_check_root } => {
            attached(places, *host_network_pods, rules.as_ref(), conflict_check_root.as_deref())
        }
        RedirectCommand::KeepDropRules { status_file, ports } => {
            drop_rule_keeper::run(status_file.as_deref(), ports)
        }
        RedirectCommand::Status(places) => told(places),
        RedirectCommand::Detach(places) => detached(places),
        RedirectCommand::Print { rules, output } => {
            write_or_return_text(&rules.format_rules()?, output.as_deref())
        }
    }
}

fn attached(
    places: &NodePaths,
    host_network_pods: HostNetworkPods,
    rules: Option<&AgentPortFlags>,
    conflict_check_root: Option<&Path>,
) -> anyhow::Result<String> {
    let (pins, mut site) = (places.pins()?, places.find_pods_parent_cgroup()?);
    if let Some(outermost) = conflict_check_root {
        site = site.limit_conflict_check_to(outermost);
    }
    let outcome = attach(&pins, &site, host_network_pods)?;
    // Load the drop rules last. In the opposite order, the rules would drop pods' packets until the programs are attached.
    let rules = match rules.map(|ports| netfilter::load_drop_rules(&ports.now())) {
        None => String::new(),
        Some(Ok(_)) => "the drop rules are loaded\n".to_owned(),
        // The programs work without the rules, and pods need the agent. The container `drop-rules` tries again, and `/readyz` says so.
        Some(Err(error)) => format!("the drop rules are not loaded: {error}. {WITHOUT_RULES}\n"),
    };
    let done = match outcome {
        AttachOutcome::AlreadyAttached => "already attached",
        AttachOutcome::Attached => "attached",
        AttachOutcome::Replaced => "attached in place of another version",
    };
    Ok(format!("{done}: {}\n{rules}", site.kubepods_directory().display()))
}

fn told(places: &NodePaths) -> anyhow::Result<String> {
    let status = read_status(&places.pins()?, &places.find_pods_parent_cgroup()?)?;
    if !status.is_fully_attached() {
        bail!(
            "the redirect differs from what this version attaches; run `seawall-agent redirect attach`:\n{status}"
        );
    }
    Ok(status.to_string())
}

fn detached(places: &NodePaths) -> anyhow::Result<String> {
    let detached = detach_programs(places)?;
    netfilter::remove_rules().with_context(|| format!("{detached}, but the rules are not removed"))?;
    Ok(format!("{detached}, and removed the rules\n"))
}

fn detach_programs(places: &NodePaths) -> anyhow::Result<String> {
    match places.pins() {
        Ok(pins) => detach(&pins)?,
        // Without a BPF file system, no program was ever pinned there. `detach` must also succeed on a node where the agent could
        // not start, and in mode nft.
        Err(redirect::Error::NoBpffs { path }) => {
            return Ok(format!("found no BPF file system at {}, so nothing is pinned there", path.display()));
        }
        Err(error) => return Err(error.into()),
    }
    Ok("detached the programs".to_owned())
}

/// The consequence of missing drop rules.
const WITHOUT_RULES: &str = "Raw packets, and pods of gVisor and Kata, reach the real metadata server";

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::num::NonZeroU16;

    use seawall_redirect::AgentAddress;
    use seawall_redirect::netfilter::AgentPorts;

    use super::*;

    fn parsed(line: &str) -> Result<RedirectCommand, String> {
        RedirectCommand::parse(Parser::from_args(line.split_whitespace())).map_err(|error| error.to_string())
    }

    fn places() -> NodePaths {
        NodePaths::from_flags(&Flags::default())
    }

    #[test]
    fn each_command_is_read_with_its_flags() {
        assert_eq!(
            parsed("attach --node-address 10.0.0.1"),
            Ok(RedirectCommand::Attach {
                places: places(),
                host_network_pods: HostNetworkPods::Node([10, 0, 0, 1].into()),
                rules: Some(AgentPortFlags::default()),
                conflict_check_root: None
            })
        );
        assert_eq!(
            parsed(
                "attach --no-drop-rules --conflict-check-root /host/cgroup/a --bpffs=/bpf --cgroup-root /host/cgroup \
                 --kubepods-cgroup /a/kubepods --host-network-pods=seawall"
            ),
            Ok(RedirectCommand::Attach {
                places: NodePaths {
                    bpffs: "/bpf".into(),
                    cgroup_root: "/host/cgroup".into(),
                    kubepods_cgroup: Some("a/kubepods".into())
                },
                host_network_pods: HostNetworkPods::Seawall,
                rules: None,
                conflict_check_root: Some("/host/cgroup/a".into())
            })
        );
        // The found address is not one by which `attach` could recognise the node's network: every network has such a one.
        let found = parsed("attach --find-ipv4 --agent-ports=8988 --node-address=fd00::1");
        let Ok(RedirectCommand::Attach { host_network_pods, rules: Some(rules), .. }) = found else {
            panic!("{found:?}")
        };
        let v6 = [0xfd00, 0, 0, 0, 0, 0, 0, 1].into();
        assert_eq!((host_network_pods, rules.finds_ipv4), (HostNetworkPods::Node(v6), true));
        assert!(parsed("attach --find-ipv4").unwrap_err().contains("--node-address is missing"));
        assert_eq!(parsed("status"), Ok(RedirectCommand::Status(places())));
        assert_eq!(parsed("detach"), Ok(RedirectCommand::Detach(places())));
        assert_eq!(
            parsed("keep-drop-rules --status-file /run/a --node-address 10.0.0.1 --agent-ports=8988,8986"),
            Ok(RedirectCommand::KeepDropRules {
                status_file: Some("/run/a".into()),
                ports: AgentPortFlags {
                    given: AgentPorts { addresses: vec![[10, 0, 0, 1].into()], ports: vec![8988, 8986] },
                    finds_ipv4: false,
                },
            })
        );
        assert_eq!(
            parsed("print drop-rules"),
            Ok(RedirectCommand::Print { rules: RuleSet::Drop, output: None })
        );
        let output = Some("/rules/a.nft".into());
        assert_eq!(
            parsed("print cleanup-rules --output=/rules/a.nft"),
            Ok(RedirectCommand::Print { rules: RuleSet::Cleanup, output })
        );
        let agent = AgentAddress {
            v4: "10.0.0.1".parse().ok(),
            v6: "fd00::1".parse().ok(),
            metadata_port: NonZeroU16::new(8988),
            container_credentials_port: None,
            ..AgentAddress::default()
        };
        assert_eq!(
            parsed("print dnat-rules --node-address 10.0.0.1 --node-address fd00::1 --metadata-port 8988"),
            Ok(RedirectCommand::Print {
                rules: RuleSet::Dnat { places: places(), agent, captured: None },
                output: None
            })
        );
    }

    /// The chart gives `status.hostIP` and then `status.hostIPs`, which begins with the same address or is empty.
    #[test]
    fn the_node_has_each_address_of_its_lists_once_and_the_first_one_is_the_nodes_own() {
        let attach = |addresses: &str| match parsed(&format!("attach --agent-ports 1 {addresses}")).unwrap() {
            RedirectCommand::Attach { host_network_pods, rules, .. } => {
                (host_network_pods, rules.unwrap().given.addresses)
            }
            other => panic!("{other:?}"),
        };
        let [v4, v6] = ["10.0.0.1", "fd00::1"].map(|address| address.parse::<IpAddr>().unwrap());
        for (lists, expected) in [
            ("--node-address=10.0.0.1 --node-address=", &[v4][..]),
            ("--node-address=10.0.0.1 --node-address=10.0.0.1", &[v4]),
            ("--node-address=10.0.0.1 --node-address=10.0.0.1,fd00::1", &[v4, v6]),
            ("--node-address=fd00::1 --node-address=fd00::1,10.0.0.1", &[v6, v4]),
        ] {
            assert_eq!(attach(lists), (HostNetworkPods::Node(expected[0]), expected.to_vec()), "{lists}");
        }
        let dnat = parsed(
            "print dnat-rules --node-address=fd00::1 --node-address=fd00::1,10.0.0.1 --metadata-port 1",
        );
        let rules = run(&dnat.unwrap()).unwrap();
        assert!(
            rules.contains("dnat ip to 10.0.0.1:1") && rules.contains("dnat ip6 to [fd00::1]:1"),
            "{rules}"
        );
    }

    #[test]
    fn help_is_given_to_who_asks_and_to_who_says_nothing() {
        for line in ["", "help", "--help", "attach --help", "print -h"] {
            assert_eq!(parsed(line), Ok(RedirectCommand::Help), "{line}");
        }
    }

    #[test]
    fn what_means_nothing_is_refused_by_name() {
        for (line, named) in [
            ("unload", "unload"),
            ("attach now", "now"),
            ("attach --force x", "--force"),
            ("attach --bpffs", "--bpffs"),
            ("attach --bpffs=/a --bpffs=/b", "twice"),
            ("status --no-drop-rules", "--no-drop-rules"),
            ("status --conflict-check-root /x", "--conflict-check-root"),
            ("detach --metadata-port 1", "--metadata-port"),
            ("status --output x", "--output"),
            ("print drop-rules --cgroup-root /x", "--cgroup-root"),
            ("print dnat-rules --node-address here", "\"here\""),
            ("print dnat-rules --metadata-port 0", "a port"),
            ("print dnat-rules --node-address 10.0.0.1 --node-address 10.0.0.2", "10.0.0.2"),
            ("attach --node-address 10.0.0.1,here", "\"10.0.0.1,here\""),
            ("attach --node-address=", "--node-address is missing"),
            ("attach", "--node-address is missing"),
            ("keep-drop-rules --agent-ports 8988", "needs --node-address"),
            ("keep-drop-rules --node-address 10.0.0.1 --agent-ports 8988,0", "8988,0"),
            ("attach --host-network-pods node", "--node-address is missing"),
            ("attach --host-network-pods both", "expected node or seawall"),
            ("print dnat-rules --agent-pod-uid a", "--host-network-pods=seawall"),
        ] {
            let refused = parsed(line).unwrap_err();
            assert!(refused.contains(named), "{line}: {refused}");
        }
    }

    /// On nodes without cgroup v2, `print dnat-rules` once failed with the advice to use `print dnat-rules`.
    #[test]
    fn the_dnat_rules_are_printed_where_there_are_no_groups_of_version_two() {
        let line = "print dnat-rules --cgroup-root /proc --node-address 10.0.0.1 --metadata-port 8988";
        let rules = run(&parsed(line).unwrap()).unwrap();
        assert!(rules.contains("dnat ip to 10.0.0.1:8988") && !rules.contains("hostpods"), "{rules}");
        let captured = run(&parsed(&format!("{line} --host-network-pods=seawall")).unwrap()).unwrap_err();
        assert!(captured.to_string().contains("cgroup2"), "{captured}");
    }

    #[test]
    fn where_no_bpf_file_system_is_there_is_nothing_to_detach() {
        let folder = tempfile::TempDir::with_prefix("seawall-no-bpffs-").unwrap();
        let at = |path: PathBuf| detach_programs(&NodePaths { bpffs: path, ..places() });
        assert!(at(folder.path().into()).unwrap().contains("nothing is pinned there"));
        assert!(at(folder.path().join("misspelt")).is_err());
    }

    #[test]
    fn rules_are_printed_without_a_right_and_into_a_file_where_one_is_named() {
        let print = |rules, output: Option<&Path>| {
            run(&RedirectCommand::Print { rules, output: output.map(Into::into) })
        };
        assert!(print(RuleSet::Drop, None).unwrap().contains("169.254.169.254"));
        let folder = tempfile::TempDir::with_prefix("seawall-rules-").unwrap();
        let file = folder.path().join("rules.nft");
        assert!(print(RuleSet::Cleanup, Some(&file)).unwrap().starts_with("written: "));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), redirect::nft_rules::format_cleanup_rules());
        let nowhere = print(RuleSet::Drop, Some(&folder.path().join("no/rules.nft"))).unwrap_err();
        assert!(nowhere.to_string().contains("cannot write"), "{nowhere}");
    }
}
