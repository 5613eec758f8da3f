//! `seawall-agent redirect`: an operator's hand on what brings metadata addresses to the agent. Called by `main` alone.
//!
//! Does what one command says and ends: no listener, no configuration, and nothing of the serving agent. What is attached stays when this
//! program has ended, which is the point of it.

use std::ffi::OsString;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use seawall_core::PodUid;
use seawall_redirect::attach::Outcome;
use seawall_redirect::{Agent, Error, Pins, Site, attach, nft, remove, status};

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

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Help,
    Attach { places: Places, net: bool, within: Option<PathBuf> },
    Status(Places),
    Remove(Places),
    Print { rules: Rules, into: Option<PathBuf> },
}

/// Which of netfilter's rules.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    Net,
    Translation { places: Places, agent: Agent, own: Option<PodUid> },
    Removal,
}

/// Where things are on this node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Places {
    bpffs: PathBuf,
    cgroup: PathBuf,
    kubepods: Option<PathBuf>,
}

/// Flags as they come; which of them a command takes is decided once all are read.
#[derive(Default)]
struct Flags {
    bpffs: Option<PathBuf>,
    cgroup: Option<PathBuf>,
    kubepods: Option<PathBuf>,
    net: bool,
    within: Option<PathBuf>,
    nodes: Vec<IpAddr>,
    metadata: Option<NonZeroU16>,
    containers: Option<NonZeroU16>,
    into: Option<PathBuf>,
    own: Option<PodUid>,
}

impl Request {
    /// Of the words after `redirect`.
    ///
    /// # Errors
    /// How the command is used.
    pub(crate) fn parse(args: &[OsString]) -> Result<Self, String> {
        let args: Option<Vec<&str>> = args.iter().map(|arg| arg.to_str()).collect();
        let args = args.ok_or("seawall-agent: redirect: an argument is not UTF-8")?;
        let end = args.iter().position(|arg| arg.starts_with('-')).unwrap_or(args.len());
        let (words, flags) = args.split_at(end);
        if matches!(words, [] | ["help"]) || flags.iter().any(|flag| matches!(*flag, "--help" | "-h")) {
            return Ok(Self::Help);
        }
        Self::of(words, Flags::read(flags)?)
    }

    fn of(words: &[&str], mut flags: Flags) -> Result<Self, String> {
        let request = match words {
            ["attach"] => Self::Attach {
                net: std::mem::take(&mut flags.net),
                within: flags.within.take(),
                places: flags.places(),
            },
            ["status"] => Self::Status(flags.places()),
            ["remove"] => Self::Remove(flags.places()),
            ["print", what @ ("net" | "translation" | "removal")] => {
                Self::Print { rules: Rules::of(what, &mut flags)?, into: flags.into.take() }
            }
            _ => return Err(format!("seawall-agent: redirect: cannot make sense of: {}", words.join(" "))),
        };
        flags.nothing_left(words)?;
        Ok(request)
    }
}

impl Rules {
    fn of(what: &str, flags: &mut Flags) -> Result<Self, String> {
        Ok(match what {
            "net" => Self::Net,
            "translation" => {
                Self::Translation { agent: flags.agent()?, own: flags.own.take(), places: flags.places() }
            }
            _ => Self::Removal,
        })
    }

    fn text(&self) -> Result<String, Error> {
        match self {
            Self::Net => Ok(nft::safety_net()),
            Self::Translation { places, agent, own } => translation(places, agent, own.as_ref()),
            Self::Removal => Ok(nft::removal()),
        }
    }
}

impl Flags {
    fn read(args: &[&str]) -> Result<Self, String> {
        let mut flags = Self::default();
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            if *arg == "--net" {
                flags.net = true;
                continue;
            }
            let (name, value) = arg.split_once('=').map_or((*arg, None), |(name, value)| (name, Some(value)));
            let value = value.or_else(|| rest.next().copied());
            let value = value.ok_or_else(|| format!("seawall-agent: redirect: {name} needs a value"))?;
            flags.set(name, value)?;
        }
        Ok(flags)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let wanted = |what: &str| format!("seawall-agent: redirect: {name} is {what}, not {value:?}");
        match name {
            "--bpffs" => self.bpffs = Some(value.into()),
            "--cgroup" => self.cgroup = Some(value.into()),
            "--kubepods" => self.kubepods = Some(value.trim_start_matches('/').into()),
            "--ask-within" => self.within = Some(value.into()),
            "--into" => self.into = Some(value.into()),
            "--own" => self.own = Some(PodUid(value.into())),
            "--node" => self.nodes.push(value.parse().map_err(|_| wanted("an address of the node's"))?),
            "--metadata" => self.metadata = Some(value.parse().map_err(|_| wanted("a port"))?),
            "--containers" => self.containers = Some(value.parse().map_err(|_| wanted("a port"))?),
            _ => return Err(format!("seawall-agent: redirect: there is no flag {name}")),
        }
        Ok(())
    }

    fn places(&mut self) -> Places {
        Places {
            bpffs: self.bpffs.take().unwrap_or_else(|| "/sys/fs/bpf".into()),
            cgroup: self.cgroup.take().unwrap_or_else(|| "/sys/fs/cgroup".into()),
            kubepods: self.kubepods.take(),
        }
    }

    fn agent(&mut self) -> Result<Agent, String> {
        let mut agent =
            Agent { metadata: self.metadata.take(), containers: self.containers.take(), ..Agent::default() };
        for address in std::mem::take(&mut self.nodes) {
            let twice = match address {
                IpAddr::V4(address) => agent.v4.replace(address).is_some(),
                IpAddr::V6(address) => agent.v6.replace(address).is_some(),
            };
            if twice {
                return Err(format!("seawall-agent: redirect: a second address of one family: {address}"));
            }
        }
        Ok(agent)
    }

    /// A flag that the command did not take meant something to whoever wrote it.
    fn nothing_left(&self, words: &[&str]) -> Result<(), String> {
        let left = [
            ("--bpffs", self.bpffs.is_some()),
            ("--cgroup", self.cgroup.is_some()),
            ("--kubepods", self.kubepods.is_some()),
            ("--net", self.net),
            ("--ask-within", self.within.is_some()),
            ("--node", !self.nodes.is_empty()),
            ("--metadata", self.metadata.is_some()),
            ("--containers", self.containers.is_some()),
            ("--into", self.into.is_some()),
            ("--own", self.own.is_some()),
        ];
        match left.iter().find(|(_, given)| *given) {
            Some((name, _)) => Err(format!("seawall-agent: redirect {} takes no {name}", words.join(" "))),
            None => Ok(()),
        }
    }
}

impl Places {
    fn pins(&self) -> Result<Pins, Error> {
        Pins::at(&self.bpffs)
    }

    fn site(&self) -> Result<Site, Error> {
        Site::find(&self.cgroup, self.kubepods.as_deref())
    }
}

/// Does it. What is to be printed.
///
/// # Errors
/// It could not be done, or what `status` found is not complete.
pub(crate) fn run(request: &Request) -> anyhow::Result<String> {
    match request {
        Request::Help => Ok(HELP.to_owned()),
        Request::Attach { places, net, within } => attached(places, *net, within.as_deref()),
        Request::Status(places) => told(places),
        Request::Remove(places) => removed(places),
        Request::Print { rules, into } => printed(&rules.text()?, into.as_deref()),
    }
}

fn printed(rules: &str, into: Option<&Path>) -> anyhow::Result<String> {
    let Some(file) = into else { return Ok(rules.to_owned()) };
    std::fs::write(file, rules).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(format!("written: {}\n", file.display()))
}

fn attached(places: &Places, net: bool, within: Option<&Path>) -> anyhow::Result<String> {
    let (pins, mut site) = (places.pins()?, places.site()?);
    if let Some(outermost) = within {
        site = site.asking_within(outermost);
    }
    let outcome = attach(&pins, &site)?;
    // After the programs: pods that it would cut off are with the agent by then.
    if net {
        nft::apply(&nft::safety_net())
            .context("the programs are attached, but not the net's rules loaded")?;
    }
    let done = match outcome {
        Outcome::AlreadyThere => "attached already",
        Outcome::Attached => "attached",
        Outcome::Replaced => "attached in place of what was there",
    };
    Ok(format!("{done}: {}\n", site.directory().display()))
}

/// The way for nodes on which there may be no control groups of version 2 to find pods in.
fn translation(places: &Places, agent: &Agent, own: Option<&PodUid>) -> Result<String, Error> {
    let site = match places.site() {
        Err(Error::NotVersionTwo { .. }) => None,
        found => Some(found?),
    };
    nft::translation(agent, site.as_ref(), own)
}

fn told(places: &Places) -> anyhow::Result<String> {
    let status = status(&places.pins()?, &places.site()?)?;
    if !status.is_complete() {
        bail!("not all is attached as this version does it:\n{status}");
    }
    Ok(status.to_string())
}

fn removed(places: &Places) -> anyhow::Result<String> {
    match places.pins() {
        Ok(pins) => remove(&pins)?,
        // Nothing was ever pinned there, and a node on which the agent could not start is one to leave, too.
        Err(Error::NoBpffs { path }) => {
            return Ok(format!(
                "no BPF file system is mounted at {}, so nothing is pinned there\n",
                path.display()
            ));
        }
        Err(error) => return Err(error.into()),
    }
    match nft::apply(&nft::removal()) {
        Ok(()) => Ok("removed, the net's rules too\n".to_owned()),
        Err(Error::NoNft) => {
            Ok("removed; there is no nft here, so rules that were loaded are left (redirect print removal)\n"
                .to_owned())
        }
        Err(error) => Err(error).context("the programs are removed, but not the net's rules"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, String> {
        Request::parse(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    fn places() -> Places {
        Flags::default().places()
    }

    #[test]
    fn each_command_is_read_with_its_flags() {
        assert_eq!(parsed("attach"), Ok(Request::Attach { places: places(), net: false, within: None }));
        assert_eq!(
            parsed(
                "attach --net --ask-within /host/cgroup/a --bpffs=/bpf --cgroup /host/cgroup --kubepods /a/kubepods"
            ),
            Ok(Request::Attach {
                places: Places {
                    bpffs: "/bpf".into(),
                    cgroup: "/host/cgroup".into(),
                    kubepods: Some("a/kubepods".into())
                },
                net: true,
                within: Some("/host/cgroup/a".into())
            })
        );
        assert_eq!(parsed("status"), Ok(Request::Status(places())));
        assert_eq!(parsed("remove"), Ok(Request::Remove(places())));
        assert_eq!(parsed("print net"), Ok(Request::Print { rules: Rules::Net, into: None }));
        let into = Some("/rules/a.nft".into());
        assert_eq!(
            parsed("print removal --into=/rules/a.nft"),
            Ok(Request::Print { rules: Rules::Removal, into })
        );
        let agent = Agent {
            v4: "10.0.0.1".parse().ok(),
            v6: "fd00::1".parse().ok(),
            metadata: NonZeroU16::new(8988),
            containers: None,
            ..Agent::default()
        };
        assert_eq!(
            parsed("print translation --node 10.0.0.1 --node fd00::1 --metadata 8988"),
            Ok(Request::Print {
                rules: Rules::Translation { places: places(), agent, own: None },
                into: None
            })
        );
    }

    #[test]
    fn help_is_given_to_who_asks_and_to_who_says_nothing() {
        for line in ["", "help", "--help", "attach --help", "print -h"] {
            assert_eq!(parsed(line), Ok(Request::Help), "{line}");
        }
    }

    #[test]
    fn what_means_nothing_is_refused_by_name() {
        for (line, named) in [
            ("detach", "detach"),
            ("attach now", "attach now"),
            ("attach --force x", "--force"),
            ("attach --bpffs", "--bpffs needs"),
            ("status --net", "takes no --net"),
            ("status --ask-within /x", "takes no --ask-within"),
            ("remove --metadata 1", "takes no --metadata"),
            ("status --into x", "takes no --into"),
            ("print net --cgroup /x", "takes no --cgroup"),
            ("print translation --node here", "\"here\""),
            ("print translation --metadata 0", "a port"),
            ("print translation --node 10.0.0.1 --node 10.0.0.2", "10.0.0.2"),
        ] {
            let refused = parsed(line).unwrap_err();
            assert!(refused.contains(named), "{line}: {refused}");
        }
    }

    /// It was refused there with the advice to use it.
    #[test]
    fn the_translation_is_printed_where_there_are_no_groups_of_version_two() {
        let line = "print translation --cgroup /proc --node 10.0.0.1 --metadata 8988";
        let rules = run(&parsed(line).unwrap()).unwrap();
        assert!(rules.contains("dnat ip to 10.0.0.1:8988") && !rules.contains("hostpods"), "{rules}");
    }

    #[test]
    fn where_no_bpf_file_system_is_there_is_nothing_to_remove() {
        let folder = tempfile::TempDir::with_prefix("seawall-no-bpffs-").unwrap();
        let at = |path: PathBuf| run(&Request::Remove(Places { bpffs: path, ..places() }));
        assert!(at(folder.path().into()).unwrap().contains("nothing is pinned there"));
        assert!(at(folder.path().join("misspelt")).is_err());
    }

    #[test]
    fn rules_are_printed_without_a_right_and_into_a_file_where_one_is_named() {
        let print = |rules, into: Option<&Path>| run(&Request::Print { rules, into: into.map(Into::into) });
        assert!(print(Rules::Net, None).unwrap().contains("169.254.169.254"));
        let folder = tempfile::TempDir::with_prefix("seawall-rules-").unwrap();
        let file = folder.path().join("rules.nft");
        assert!(print(Rules::Removal, Some(&file)).unwrap().starts_with("written: "));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), nft::removal());
        let nowhere = print(Rules::Net, Some(&folder.path().join("no/rules.nft"))).unwrap_err();
        assert!(nowhere.to_string().contains("cannot write"), "{nowhere}");
    }
}
