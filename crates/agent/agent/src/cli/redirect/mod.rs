//! `seawall-agent redirect`: lets an operator attach, inspect and remove the redirect. Called by `main` alone.
//!
//! It runs one command and ends: it opens no listener, reads no configuration, and does not contact the serving agent. On purpose,
//! attached programs stay when this process has ended.

mod node_paths;
mod print_rules;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use lexopt::{Error, Parser};
use seawall_redirect::attach::AttachOutcome;
use seawall_redirect::{self as redirect, attach, nft_rules, remove, status};

use self::node_paths::{NodePaths, PATH_FLAGS};
use self::print_rules::{RuleSet, print_or_write};
use super::flags::{Flags, next_word};

pub(crate) const HELP: &str = "\
seawall-agent redirect: brings the clouds' metadata addresses (169.254.169.254 and its like, port 80) to the agent.

Usage:
  seawall-agent redirect attach [--net] [PLACES]   attach this version's programs to the group of the node's pods, in place of
                                                   another version's if there is one. Pods that ask a metadata address are refused
                                                   (EPERM) until an agent is ready, and whenever none is. With --net, load the
                                                   net's rules too (see print net). Again: changes nothing.
  seawall-agent redirect status [PLACES]           what is attached to each hook, by which version, how many connections were
                                                   captured and refused, and where they go; exit 1 unless all is as attach leaves it
  seawall-agent redirect remove [--bpffs DIR]      detach everything and leave nothing; the net's rules go too, where there is an nft.
                                                   Pods then reach the real metadata server.
  seawall-agent redirect print net                 rules that drop what pods send to metadata addresses without a socket (packets
                                                   written by hand, gVisor, Kata), for the node's own network: pipe to `nft -f -`
  seawall-agent redirect print translation --node ADDRESS [--node ADDRESS] --metadata PORT [--containers PORT] [--own UID] [PLACES]
                                                   rules instead of programs, for kernels before 5.15 and nodes with cgroup v1 alone. What
                                                   the pod UID sends goes where the node's does: the agent's own, which passes requests on
  seawall-agent redirect print removal             rules that take either away
  print WHAT --into FILE                           writes them to a file instead, for a container that has nft and none of this

Places:
  --bpffs DIR       where a BPF file system is mounted (default /sys/fs/bpf). In a container: the host's, at another path, because
                    runtimes deny writing below /sys.
  --cgroup DIR      where the host's control groups are mounted (default /sys/fs/cgroup)
  --kubepods PATH   the kubelet's group of pods below that (default: found; kubepods, kubepods.slice, and kind's)

attach asks the groups around the pods', up to the root, whether a program there excludes ours: it attaches one that does nothing
to each and takes it off again. --ask-within DIR asks no further out than in that directory.

Needs CAP_BPF and CAP_NET_ADMIN, a kernel from 5.15 on, and cgroup v2 (beside v1, too). Refuses, and says why, where a program of
somebody else's excludes its own.
";

/// The parsed `redirect` command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RedirectCommand {
    Help,
    Attach { places: NodePaths, net: bool, within: Option<PathBuf> },
    Status(NodePaths),
    Remove(NodePaths),
    Print { rules: RuleSet, into: Option<PathBuf> },
}

impl RedirectCommand {
    /// Parses the words after `redirect`.
    ///
    /// # Errors
    /// The command is used wrongly.
    pub(crate) fn parse(mut args: Parser) -> Result<Self, Error> {
        let mut words: Vec<String> = next_word(&mut args)?.into_iter().collect();
        if words == ["print"] {
            words.extend(next_word(&mut args)?);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let [bpffs, cgroup, kubepods] = PATH_FLAGS;
        let takes: &[_] = match *words {
            [] | ["help"] | ["print", "help"] => return Ok(Self::Help),
            ["attach"] => &[bpffs, cgroup, kubepods, "net", "ask-within="],
            ["status" | "remove"] => &PATH_FLAGS,
            ["print", "net" | "removal"] => &["into="],
            ["print", "translation"] => {
                &[bpffs, cgroup, kubepods, "node=*", "metadata=", "containers=", "own=", "into="]
            }
            _ => return Err(Error::Custom(format!("redirect: there is no {}", words.join(" ")).into())),
        };
        let Some(flags) = Flags::read(&mut args, takes)? else { return Ok(Self::Help) };
        let places = || NodePaths::of(&flags);
        Ok(match *words {
            ["attach"] => {
                Self::Attach { net: flags.has("net"), within: flags.path("ask-within"), places: places() }
            }
            ["status"] => Self::Status(places()),
            ["remove"] => Self::Remove(places()),
            ["print", what] => Self::Print { rules: RuleSet::of(what, &flags)?, into: flags.path("into") },
            _ => Self::Help,
        })
    }
}

/// Runs the command. Returns the text to print.
///
/// # Errors
/// The command failed, or `status` found the redirect incomplete.
pub(crate) fn run(request: &RedirectCommand) -> anyhow::Result<String> {
    match request {
        RedirectCommand::Help => Ok(HELP.to_owned()),
        RedirectCommand::Attach { places, net, within } => attached(places, *net, within.as_deref()),
        RedirectCommand::Status(places) => told(places),
        RedirectCommand::Remove(places) => removed(places),
        RedirectCommand::Print { rules, into } => print_or_write(&rules.text()?, into.as_deref()),
    }
}

fn attached(places: &NodePaths, net: bool, within: Option<&Path>) -> anyhow::Result<String> {
    let (pins, mut site) = (places.pins()?, places.site()?);
    if let Some(outermost) = within {
        site = site.with_conflict_scope(outermost);
    }
    let outcome = attach(&pins, &site)?;
    // After the programs: pods that it would cut off are with the agent by then.
    if net {
        nft_rules::apply(&nft_rules::safety_net())
            .context("the programs are attached, but not the net's rules loaded")?;
    }
    let done = match outcome {
        AttachOutcome::AlreadyAttached => "attached already",
        AttachOutcome::Attached => "attached",
        AttachOutcome::Replaced => "attached in place of what was there",
    };
    Ok(format!("{done}: {}\n", site.directory().display()))
}

fn told(places: &NodePaths) -> anyhow::Result<String> {
    let status = status(&places.pins()?, &places.site()?)?;
    if !status.is_complete() {
        bail!("not all is attached as this version does it:\n{status}");
    }
    Ok(status.to_string())
}

fn removed(places: &NodePaths) -> anyhow::Result<String> {
    match places.pins() {
        Ok(pins) => remove(&pins)?,
        // Nothing was ever pinned there, and a node on which the agent could not start is one to leave, too.
        Err(redirect::Error::NoBpffs { path }) => {
            return Ok(format!(
                "no BPF file system is mounted at {}, so nothing is pinned there\n",
                path.display()
            ));
        }
        Err(error) => return Err(error.into()),
    }
    match nft_rules::apply(&nft_rules::cleanup_rules()) {
        Ok(()) => Ok("removed, the net's rules too\n".to_owned()),
        Err(redirect::Error::NoNft) => {
            Ok("removed; there is no nft here, so rules that were loaded are left (redirect print removal)\n"
                .to_owned())
        }
        Err(error) => Err(error).context("the programs are removed, but not the net's rules"),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use seawall_redirect::AgentAddress;

    use super::*;

    fn parsed(line: &str) -> Result<RedirectCommand, String> {
        RedirectCommand::parse(Parser::from_args(line.split_whitespace())).map_err(|error| error.to_string())
    }

    fn places() -> NodePaths {
        NodePaths::of(&Flags::default())
    }

    #[test]
    fn each_command_is_read_with_its_flags() {
        assert_eq!(
            parsed("attach"),
            Ok(RedirectCommand::Attach { places: places(), net: false, within: None })
        );
        assert_eq!(
            parsed(
                "attach --net --ask-within /host/cgroup/a --bpffs=/bpf --cgroup /host/cgroup --kubepods /a/kubepods"
            ),
            Ok(RedirectCommand::Attach {
                places: NodePaths {
                    bpffs: "/bpf".into(),
                    cgroup: "/host/cgroup".into(),
                    kubepods: Some("a/kubepods".into())
                },
                net: true,
                within: Some("/host/cgroup/a".into())
            })
        );
        assert_eq!(parsed("status"), Ok(RedirectCommand::Status(places())));
        assert_eq!(parsed("remove"), Ok(RedirectCommand::Remove(places())));
        assert_eq!(parsed("print net"), Ok(RedirectCommand::Print { rules: RuleSet::Net, into: None }));
        let into = Some("/rules/a.nft".into());
        assert_eq!(
            parsed("print removal --into=/rules/a.nft"),
            Ok(RedirectCommand::Print { rules: RuleSet::Removal, into })
        );
        let agent = AgentAddress {
            v4: "10.0.0.1".parse().ok(),
            v6: "fd00::1".parse().ok(),
            metadata: NonZeroU16::new(8988),
            containers: None,
            ..AgentAddress::default()
        };
        assert_eq!(
            parsed("print translation --node 10.0.0.1 --node fd00::1 --metadata 8988"),
            Ok(RedirectCommand::Print {
                rules: RuleSet::Translation { places: places(), agent, own: None },
                into: None
            })
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
            ("detach", "detach"),
            ("attach now", "now"),
            ("attach --force x", "--force"),
            ("attach --bpffs", "--bpffs"),
            ("attach --bpffs=/a --bpffs=/b", "twice"),
            ("status --net", "--net"),
            ("status --ask-within /x", "--ask-within"),
            ("remove --metadata 1", "--metadata"),
            ("status --into x", "--into"),
            ("print net --cgroup /x", "--cgroup"),
            ("print translation --node here", "\"here\""),
            ("print translation --metadata 0", "a port"),
            ("print translation --node 10.0.0.1 --node 10.0.0.2", "10.0.0.2"),
        ] {
            let refused = parsed(line).unwrap_err();
            assert!(refused.contains(named), "{line}: {refused}");
        }
    }

    /// `print translation` was refused there with the advice to use it.
    #[test]
    fn the_translation_is_printed_where_there_are_no_groups_of_version_two() {
        let line = "print translation --cgroup /proc --node 10.0.0.1 --metadata 8988";
        let rules = run(&parsed(line).unwrap()).unwrap();
        assert!(rules.contains("dnat ip to 10.0.0.1:8988") && !rules.contains("hostpods"), "{rules}");
    }

    #[test]
    fn where_no_bpf_file_system_is_there_is_nothing_to_remove() {
        let folder = tempfile::TempDir::with_prefix("seawall-no-bpffs-").unwrap();
        let at = |path: PathBuf| run(&RedirectCommand::Remove(NodePaths { bpffs: path, ..places() }));
        assert!(at(folder.path().into()).unwrap().contains("nothing is pinned there"));
        assert!(at(folder.path().join("misspelt")).is_err());
    }

    #[test]
    fn rules_are_printed_without_a_right_and_into_a_file_where_one_is_named() {
        let print =
            |rules, into: Option<&Path>| run(&RedirectCommand::Print { rules, into: into.map(Into::into) });
        assert!(print(RuleSet::Net, None).unwrap().contains("169.254.169.254"));
        let folder = tempfile::TempDir::with_prefix("seawall-rules-").unwrap();
        let file = folder.path().join("rules.nft");
        assert!(print(RuleSet::Removal, Some(&file)).unwrap().starts_with("written: "));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), nft_rules::cleanup_rules());
        let nowhere = print(RuleSet::Net, Some(&folder.path().join("no/rules.nft"))).unwrap_err();
        assert!(nowhere.to_string().contains("cannot write"), "{nowhere}");
    }
}
