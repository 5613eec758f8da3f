//! The check `dns`: the cost of a lookup in this pod, and the state of its name servers.
//!
//! The resolver tries a name with fewer than `ndots` dots under each search domain first, with one question for A and one for AAAA each
//! time. In a pod with Kubernetes' `ndots:5` and three domains, a lookup takes eight questions instead of two. The check sends the
//! questions as glibc does, so its results are measurements.

mod ask;
mod config;
mod lookup;
mod name_validation;
#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use seawall_probe::file_reader::{ProbeError, read_parsed};

use self::ask::{DnsExchange, MonotonicNow, NameServerPath, ask};
use self::config::ResolverConfig;
use self::lookup::{judge_lookup, look_up};
pub use self::name_validation::validated;
use crate::check::{CheckContext, DoctorCheck};
use crate::finding::{DoctorFinding, DoctorStatus, pluralize};

const SEARCH: &str = "dns.search";
const SERVERS: &str = "dns.servers";
const LOOKUP: &str = "dns.lookup";

pub(crate) const CHECK: DoctorCheck = DoctorCheck {
    id: "dns",
    about: "ndots and search domains; whether and how fast each name server responds; for each --lookup, the DNS questions that one lookup sends",
    finding_ids: &[SEARCH, SERVERS, LOOKUP],
    examine,
};

/// The time limits of this check.
#[derive(Clone, Copy)]
struct DnsTimeouts {
    /// The limit for all name servers together, and for all lookups together.
    all: Duration,
    /// The limit for both questions about one name.
    each: Duration,
}

/// The time limits of the queries. They keep the check within five seconds.
const PATIENCE: DnsTimeouts = DnsTimeouts { all: Duration::from_secs(2), each: Duration::from_millis(400) };

/// The number of questions for each server.
const TRIES: usize = 5;

/// The name that the check looks up. Every resolver answers it itself (RFC 6761 section 6.3), and a refusal is a response, too. A
/// server that knows only cluster names may fail, so the check also asks for the first search domain.
const USUAL: &str = "localhost";

fn examine(site: &CheckContext) -> Vec<DoctorFinding> {
    let links = site.files.read("/proc/net/if_inet6").unwrap_or_default();
    let config =
        read_parsed(site.files, site.resolv_conf_path, |text| Some(ResolverConfig::parse(text, &links)));
    match config {
        Ok(config) => examined(site, &config.with_environment(site.environment)),
        Err(why) => unknown(site, &why),
    }
}

fn examined(site: &CheckContext, config: &ResolverConfig) -> Vec<DoctorFinding> {
    let hosts = site.files.read(HOSTS).unwrap_or_default();
    let known: Vec<_> =
        site.names_to_look_up.iter().map(|name| name_validation::local_answer_reason(name, &hosts)).collect();
    let asked = site.names_to_look_up.iter().zip(&known).find(|(_, known)| known.is_none());
    let name = asked.map_or(USUAL, |(name, _)| name.trim_end_matches('.'));
    let polled = polled(config, name, PATIENCE, site.now);
    let mut found = vec![search(config), servers(config, &polled)];
    let begun = (site.now)();
    for (name, known) in site.names_to_look_up.iter().zip(known) {
        if let Some(why) = known {
            found.push(DoctorFinding::ok(LOOKUP, format!("{name} needs no lookup: {why}")));
            continue;
        }
        let all = PATIENCE.all.saturating_sub((site.now)().saturating_sub(begun));
        found.push(judge_lookup(
            config,
            name,
            &look_up(config, name, DnsTimeouts { all, ..PATIENCE }, site.now),
        ));
    }
    found
}

fn unknown(site: &CheckContext, why: &ProbeError) -> Vec<DoctorFinding> {
    let fix = "look at /etc/resolv.conf of the pod, or give its path with --resolv-conf FILE";
    let mut found = vec![DoctorFinding::unknown(SEARCH, why, fix), DoctorFinding::unknown(SERVERS, why, fix)];
    found.extend(site.names_to_look_up.iter().map(|_| DoctorFinding::unknown(LOOKUP, why, fix)));
    found
}

/// The file that the C library reads before it asks a server (nsswitch.conf(5), `hosts: files dns`).
const HOSTS: &str = "/etc/hosts";

/// A typical name of a service outside the cluster. Such names have at least two dots.
const FOREIGN: &str = "api.example.com";

/// Judges the cost of a name outside the cluster, from the configuration alone.
fn search(config: &ResolverConfig) -> DoctorFinding {
    let tried = config.candidates(FOREIGN);
    let before = tried.iter().position(|tried| !tried.is_from_search_domain).unwrap_or(0);
    let questions = 2 * (before + 1);
    let text = format!(
        "with ndots:{} and {}, the lookup of a name such as {FOREIGN} takes {questions} questions: A and AAAA for each tried name",
        config.ndots,
        domains(config)
    );
    let found = DoctorFinding::ok(SEARCH, text)
        .with_measurement("ndots", config.ndots as f64, "dots")
        .with_measurement("questions", questions as f64, "questions");
    if before == 0 {
        return found;
    }
    found.with_status(
        DoctorStatus::Warning,
        format!("the resolver tries the name in every search domain first, so each lookup takes {} rounds in sequence, and the first {before} fail", before + 1),
        fewer(FOREIGN),
    )
}

fn domains(config: &ResolverConfig) -> String {
    pluralize(config.search.len() as f64, "search domain")
}

/// Advice that reduces the questions for a name.
fn fewer(name: &str) -> String {
    format!(
        "write the name with a final dot ({name}.); or set ndots to 1 in the pod's dnsConfig.options and \
         write full names for services in other namespaces (such as web.shop.svc.cluster.local). Otherwise use \
         CoreDNS's plugin autopath, which needs one round, or a DNS cache on the node, which shortens each round"
    )
}

/// The responses of one server.
struct ServerPoll {
    server: SocketAddr,
    heard: Vec<DnsExchange>,
}

impl ServerPoll {
    fn asked(&self) -> u32 {
        self.heard.iter().map(|heard| heard.sent_count).sum()
    }

    /// Returns the number of answered questions, including those over TCP.
    fn answered(&self) -> u32 {
        self.heard.iter().map(|heard| heard.sent_count - heard.lost_count()).sum()
    }

    /// Returns whether every response was a failure or a refusal.
    fn is_of_no_use(&self) -> bool {
        self.answered() > 0 && self.heard.iter().all(|heard| heard.failure_responses == heard.answered_count)
    }

    /// Returns whether every response was a failure (SERVFAIL).
    fn is_broken(&self) -> bool {
        self.answered() > 0 && self.heard.iter().all(|heard| heard.servfail_responses == heard.answered_count)
    }

    /// Returns the system's error if the server is unreachable.
    fn error(&self) -> Option<ErrorKind> {
        self.heard.iter().find_map(|heard| heard.error)
    }

    /// Returns the number of lost responses that the C library would have waited for.
    fn waited_for(&self) -> u32 {
        self.heard
            .iter()
            .filter(|heard| heard.error.is_none())
            .map(|heard| heard.lost_count() - heard.tcp_lost_count)
            .sum()
    }

    /// Returns the median time of answered pairs of questions.
    fn median(&self) -> Option<Duration> {
        let mut took: Vec<_> =
            self.heard.iter().filter(|heard| heard.answered_count > 1).map(|heard| heard.took).collect();
        took.sort_unstable();
        took.get(took.len() / 2).copied()
    }
}

/// Asks each configured server several times. A server without a response to two pairs is not asked again.
fn polled(config: &ResolverConfig, name: &str, patience: DnsTimeouts, now: MonotonicNow) -> Vec<ServerPoll> {
    let begun = now();
    let names: Vec<_> = std::iter::once(name).chain(config.search.first().map(String::as_str)).collect();
    let poll = |server: &SocketAddr| {
        let mut heard: Vec<DnsExchange> = Vec::new();
        while heard.len() < TRIES
            && heard.iter().filter(|heard| heard.lost_count() > 0).count() < 2
            && now().saturating_sub(begun) < patience.all
        {
            let name = names[heard.len() % names.len()];
            // The lookup reports a name that is too long for a DNS query.
            let way = NameServerPath { server: *server, over_tcp: config.over_tcp };
            let Ok(both) =
                ask(way, name, patience.each, now).or_else(|_| ask(way, USUAL, patience.each, now))
            else {
                break;
            };
            heard.push(both);
        }
        ServerPoll { server: *server, heard }
    };
    config.queried_servers().iter().map(poll).collect()
}

/// The latency at which other tools alert (Coroot's DNS inspection).
const SLOW: Duration = Duration::from_millis(100);

/// Judges whether and how fast the servers respond.
fn servers(config: &ResolverConfig, polled: &[ServerPoll]) -> DoctorFinding {
    let count = |of: fn(&ServerPoll) -> u32| polled.iter().map(of).sum::<u32>();
    let (asked, answered) = (count(ServerPoll::asked), count(ServerPoll::answered));
    let none = if config.lists_no_server {
        "resolv.conf names no name server, so the C library asks a name server on this machine: "
    } else {
        ""
    };
    let told: Vec<_> = polled.iter().map(tell).collect();
    let slowest = polled.iter().filter_map(ServerPoll::median).max().unwrap_or_default();
    let found = DoctorFinding::ok(SERVERS, [none, &told.join("; ")].concat())
        .with_measurement("asked", f64::from(asked), "questions")
        .with_measurement("answered", f64::from(answered), "questions")
        .with_measurement("slowest", slowest.as_secs_f64() * 1e3, "ms");
    let silent = foremost(config, polled).filter(|polled| polled.answered() == 0);
    if let Some((status, reason, fix)) = silent.and_then(cannot_be_asked).or_else(|| useless(polled)) {
        return found.with_status(status, reason, if config.lists_no_server { NAME_ONE } else { fix });
    }
    let timeout = config.timeout.as_secs();
    match () {
        () if silent.is_some() => {
            let which = if config.rotates {
                "a server that is asked first in some lookups, because resolv.conf has `options rotate`"
            } else {
                "the first server"
            };
            let lookups = if config.rotates { "each such lookup" } else { "every lookup" };
            let reason = format!(
                "{which} does not respond: {lookups} waits {timeout} s for that server, and then repeats the question or asks the next server"
            );
            found.with_status(DoctorStatus::Error, reason, if config.lists_no_server { NAME_ONE } else { LOOK })
        }
        () if answered < asked => {
            let (reason, fix) = lossy(polled, timeout);
            found.with_status(DoctorStatus::Warning, reason, fix)
        }
        () if slowest > SLOW => found.with_status(
            DoctorStatus::Warning,
            "each lookup takes at least as long as a response; a name with search domains takes several times as long",
            LOOK,
        ),
        () => found,
    }
}

const NAME_ONE: &str = "set a name server: nameserver ADDRESS in resolv.conf, or the pod's dnsPolicy";

const LOOK: &str = "look at the server's pods: CPU (run the check cpu.throttling there), restarts, network policies that forbid port 53; and run the check ports.conntrack on the node. A cache on the node that uses TCP avoids lost datagrams";

const WAY: &str = "check the route (ip route get ADDRESS), network policies and firewalls for port 53, and that a \
                   server listens there";

/// Returns the server that lookups ask first. With `rotate`, it is the server with the fewest responses.
fn foremost<'a>(config: &ResolverConfig, polled: &'a [ServerPoll]) -> Option<&'a ServerPoll> {
    let silent = polled.iter().find(|polled| polled.answered() == 0).filter(|_| config.rotates);
    silent.or_else(|| polled.first())
}

/// Returns the cost of lost responses if other responses came, with advice.
fn lossy(polled: &[ServerPoll], timeout: u64) -> (String, &'static str) {
    if polled.iter().any(|polled| polled.waited_for() > 0) {
        return (
            format!(
                "each lost question delays its lookup by the resolver's timeout, {timeout} s (options timeout)"
            ),
            LOOK,
        );
    }
    let refused = polled.iter().find_map(|polled| Some((shown(polled.server), polled.error()?)));
    match refused {
        Some((ip, error)) => {
            (format!("{ip} is unreachable ({error}): a lookup continues with the next server at once, and fails if there is no next server"), WAY)
        }
        None => (
            "the server gave no response over TCP, which long responses need: a lookup with a long response continues with the next server, and fails if there is no next server".to_owned(),
            TCP,
        ),
    }
}

const TCP: &str = "allow TCP to port 53 of the server (network policies, firewalls)";

/// Returns the verdict on an unreachable first server.
fn cannot_be_asked(foremost: &ServerPoll) -> Option<(DoctorStatus, String, &'static str)> {
    let error = foremost.error()?;
    let reason = format!(
        "the first server is unreachable ({error}): every lookup continues with the next server, or fails at once"
    );
    Some((DoctorStatus::Error, reason, WAY))
}

/// Returns the verdict on servers that respond only with failures or refusals.
fn useless(polled: &[ServerPoll]) -> Option<(DoctorStatus, String, &'static str)> {
    let failing: Vec<_> = polled.iter().filter(|polled| polled.is_of_no_use()).collect();
    let who: Vec<_> = failing.iter().map(|polled| shown(polled.server)).collect();
    let is_harm = failing.len() == polled.len() && failing.iter().any(|polled| polled.is_broken());
    let status = if is_harm { DoctorStatus::Error } else { DoctorStatus::Warning };
    let said = if failing.iter().any(|polled| polled.is_broken()) {
        "SERVFAIL"
    } else {
        "REFUSED or a similar code"
    };
    let reason = format!(
        "{} responded to every question with {said}: each lookup continues with the next server, and fails if there is no next server",
        who.join(", ")
    );
    let fix = "look at that server's log and at its upstream servers (in CoreDNS: the plugin forward, and whether network policies let CoreDNS reach these servers)";
    (!failing.is_empty()).then_some((status, reason, fix))
}

/// Returns the address of a server, with its interface for a link-local address.
fn shown(server: SocketAddr) -> String {
    match server {
        SocketAddr::V6(server) if server.scope_id() > 0 => format!("{}%{}", server.ip(), server.scope_id()),
        _ => server.ip().to_string(),
    }
}

fn tell(polled: &ServerPoll) -> String {
    let ServerPoll { server, .. } = polled;
    let took = polled.median().map_or_else(String::new, |median| {
        format!("; the median time for A and AAAA of a name was {:.1} ms", median.as_secs_f64() * 1e3)
    });
    let error = polled.error().map_or_else(String::new, |error| format!(" ({error})"));
    format!("{} answered {} of {} questions{took}{error}", shown(*server), polled.answered(), polled.asked())
}
