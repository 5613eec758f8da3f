//! `dns`: what a lookup costs in this pod, and whether its name servers answer.
//!
//! A name with fewer dots than `ndots` is tried below each search domain first, each time with a question for A and one for AAAA: in a pod
//! with Kubernetes' `ndots:5` and three domains, eight questions for a name that needs two. The questions are really asked, as glibc asks
//! them, so that what is told is what was measured.

mod ask;
mod config;
mod names;
#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use seawall_probe::files::{Reading, Unread, parsed};

use self::ask::{Heard, Now, Unfit, ask};
use self::config::{Config, MOST_SERVERS};
pub use self::names::checked;
use crate::check::{Check, Site};
use crate::finding::{Finding, Verdict, many};

const SEARCH: &str = "dns.search";
const SERVERS: &str = "dns.servers";
const LOOKUP: &str = "dns.lookup";

pub(crate) const CHECK: Check = Check {
    id: "dns",
    about: "ndots and search domains, whether each name server answers and how soon, and for each --name the questions that a lookup takes, asked on the wire",
    findings: &[SEARCH, SERVERS, LOOKUP],
    examine,
};

/// For how long servers are waited for.
#[derive(Clone, Copy)]
struct Patience {
    /// All name servers together, and all lookups together.
    all: Duration,
    /// Both questions about one name.
    each: Duration,
}

/// So that the check ends within five seconds.
const PATIENCE: Patience = Patience { all: Duration::from_secs(2), each: Duration::from_millis(400) };

/// Questions for each server.
const TRIES: usize = 5;

/// Every resolver has an answer to it by itself (RFC 6761 section 6.3), and one that refuses answers, too. One that knows names of the cluster
/// alone may fail, so the first search domain is asked for as well.
const USUAL: &str = "localhost";

fn examine(site: &Site) -> Vec<Finding> {
    let config = parsed(site.files, site.resolv_conf, |text| Some(Config::parse(text)));
    match config {
        Ok(config) => examined(site, &config),
        Err(why) => unknown(site, &why),
    }
}

fn examined(site: &Site, config: &Config) -> Vec<Finding> {
    let hosts = site.files.read(HOSTS).unwrap_or_default();
    let known: Vec<_> = site.names.iter().map(|name| names::known(name, &hosts)).collect();
    let asked = site.names.iter().zip(&known).find(|(_, known)| known.is_none());
    let name = asked.map_or(USUAL, |(name, _)| name.trim_end_matches('.'));
    let polled = polled(config, name, PATIENCE, site.now);
    let mut found = vec![search(config), servers(&polled)];
    let begun = (site.now)();
    for (name, known) in site.names.iter().zip(known) {
        if let Some(why) = known {
            found.push(Finding::ok(LOOKUP, format!("no lookup is made for {name}: {why}")));
            continue;
        }
        let all = PATIENCE.all.saturating_sub((site.now)().saturating_sub(begun));
        found.push(lookup(config, name, &look_up(config, name, Patience { all, ..PATIENCE }, site.now)));
    }
    found
}

fn unknown(site: &Site, why: &Unread) -> Vec<Finding> {
    let fix = "look at /etc/resolv.conf of the pod, or name it: --resolv-conf FILE";
    let mut found = vec![Finding::unknown(SEARCH, why, fix), Finding::unknown(SERVERS, why, fix)];
    found.extend(site.names.iter().map(|_| Finding::unknown(LOOKUP, why, fix)));
    found
}

/// What the C library reads before it asks anybody (nsswitch.conf(5), `hosts: files dns`).
const HOSTS: &str = "/etc/hosts";

/// A name of somebody else's service has so many dots at least: `api.example.com`.
const FOREIGN: &str = "api.example.com";

/// What the configuration makes of a name outside the cluster, whatever the servers say.
fn search(config: &Config) -> Finding {
    let tried = config.candidates(FOREIGN);
    let before = tried.iter().position(|name| name == FOREIGN).unwrap_or(0);
    let questions = 2 * (before + 1);
    let text = format!(
        "ndots:{} and {}: a name such as {FOREIGN} takes {questions} questions, A and AAAA for each that is tried",
        config.ndots,
        domains(config)
    );
    let found = Finding::ok(SEARCH, text).with("ndots", config.ndots as f64, "dots").with(
        "questions",
        questions as f64,
        "questions",
    );
    if before == 0 {
        return found;
    }
    found.judged(
        Verdict::Warning,
        format!("it is tried below every search domain first, so {before} of {} rounds come to nothing, one after the other, in each lookup", before + 1),
        FEWER,
    )
}

fn domains(config: &Config) -> String {
    many(config.search.len() as f64, "search domain")
}

const FEWER: &str = "write it with a dot at its end (api.example.com.), or set dnsConfig.options ndots to 1 (then names of services in other namespaces are written \
                     out, to .svc.cluster.local); else CoreDNS' autopath answers in one round, and a cache on the node shortens each";

/// What one server did.
struct Polled {
    server: SocketAddr,
    heard: Vec<Heard>,
}

impl Polled {
    fn asked(&self) -> u32 {
        self.heard.iter().map(|heard| heard.sent).sum()
    }

    /// Over TCP, too.
    fn answered(&self) -> u32 {
        self.heard.iter().map(|heard| heard.sent - heard.lost()).sum()
    }

    /// Whether each answer said that it failed, or refuses.
    fn is_of_no_use(&self) -> bool {
        self.answered() > 0 && self.heard.iter().all(|heard| heard.failed == heard.answered)
    }

    /// Whether each said that it failed.
    fn is_broken(&self) -> bool {
        self.answered() > 0 && self.heard.iter().all(|heard| heard.broke == heard.answered)
    }

    /// Why it could not be asked, where the system said it.
    fn error(&self) -> Option<ErrorKind> {
        self.heard.iter().find_map(|heard| heard.error)
    }

    /// Of the pairs of questions that were answered.
    fn median(&self) -> Option<Duration> {
        let mut took: Vec<_> =
            self.heard.iter().filter(|heard| heard.answered > 1).map(|heard| heard.took).collect();
        took.sort_unstable();
        took.get(took.len() / 2).copied()
    }
}

/// Asks each server that is used some times; one that twice gave no answer is not asked again.
fn polled(config: &Config, name: &str, patience: Patience, now: Now) -> Vec<Polled> {
    let begun = now();
    let names: Vec<_> = std::iter::once(name).chain(config.search.first().map(String::as_str)).collect();
    let poll = |server: &SocketAddr| {
        let mut heard: Vec<Heard> = Vec::new();
        while heard.len() < TRIES
            && heard.iter().filter(|heard| heard.lost() > 0).count() < 2
            && now().saturating_sub(begun) < patience.all
        {
            let name = names[heard.len() % names.len()];
            // What fits no question is told of the name.
            let Ok(both) =
                ask(*server, name, patience.each, now).or_else(|_| ask(*server, USUAL, patience.each, now))
            else {
                break;
            };
            heard.push(both);
        }
        Polled { server: *server, heard }
    };
    config.servers.iter().take(MOST_SERVERS).map(poll).collect()
}

/// Where others alert on a slow server (Coroot's inspection of DNS, its latency).
const SLOW: Duration = Duration::from_millis(100);

/// Whether the servers answer, and how soon.
fn servers(polled: &[Polled]) -> Finding {
    let Some(first) = polled.first() else {
        let found = Finding::ok(SERVERS, "no name server is named".to_owned());
        return found.judged(
            Verdict::Fault,
            "the C library asks one on this machine then (127.0.0.1)",
            "name one: nameserver ADDRESS in resolv.conf, dnsPolicy of the pod",
        );
    };
    let (asked, answered) =
        (polled.iter().map(Polled::asked).sum::<u32>(), polled.iter().map(Polled::answered).sum::<u32>());
    let told: Vec<_> = polled.iter().map(tell).collect();
    let slowest = polled.iter().filter_map(Polled::median).max().unwrap_or_default();
    let found = Finding::ok(SERVERS, told.join("; ")).with("asked", f64::from(asked), "questions").with(
        "answered",
        f64::from(answered),
        "questions",
    );
    let found = found.with("slowest", slowest.as_secs_f64() * 1e3, "ms");
    if let Some((verdict, reason, fix)) = unfit(polled, first) {
        return found.judged(verdict, reason, fix);
    }
    let look = "look at the server: its pods' CPU (cpu.throttling there) and restarts, network policies that forbid port 53, ports.conntrack on the node; a cache on the \
                node that asks over TCP avoids lost datagrams";
    match () {
        () if first.answered() == 0 => {
            found.judged(Verdict::Fault, "the server that is asked first does not answer: every lookup waits 5 s for it before it asks again or the next", look)
        }
        () if answered < asked => {
            found.judged(Verdict::Warning, "a question that is lost costs its lookup the resolver's timeout, 5 s unless options timeout says less", look)
        }
        () if slowest > SLOW => found.judged(Verdict::Warning, "each lookup takes at least that long, and a searched name several times", look),
        () => found,
    }
}

/// What is wrong with servers that cannot be asked, or answer that they fail.
fn unfit(polled: &[Polled], first: &Polled) -> Option<(Verdict, String, &'static str)> {
    if first.answered() == 0 {
        let reason = |error: ErrorKind| {
            format!(
                "the server that is asked first cannot be asked ({error}): every lookup goes on to the next, or fails at once"
            )
        };
        let fix = "look whether this machine has a way there (ip route get ADDRESS), whether a NetworkPolicy or a firewall forbids port 53, and whether a server listens \
                   at it";
        return first.error().map(|error| (Verdict::Fault, reason(error), fix));
    }
    let failing: Vec<_> = polled.iter().filter(|polled| polled.is_of_no_use()).collect();
    let who: Vec<_> = failing.iter().map(|polled| polled.server.ip().to_string()).collect();
    let is_harm = failing.len() == polled.len() && failing.iter().any(|polled| polled.is_broken());
    let verdict = if is_harm { Verdict::Fault } else { Verdict::Warning };
    let said = if failing.iter().any(|polled| polled.is_broken()) {
        "it failed (SERVFAIL)"
    } else {
        "it refuses (REFUSED and the like)"
    };
    let reason = format!(
        "{} said to everything that {said}: each lookup goes on to the next server, and without one comes to nothing",
        who.join(", ")
    );
    let fix = "look at that server's log and at the servers that it asks itself (CoreDNS: its forward plugin, and whether it may ask them)";
    (!failing.is_empty()).then_some((verdict, reason, fix))
}

fn tell(polled: &Polled) -> String {
    let Polled { server, .. } = polled;
    let took = polled.median().map_or_else(String::new, |median| {
        format!(", both of a name within {:.1} ms at the median", median.as_secs_f64() * 1e3)
    });
    let error = polled.error().map_or_else(String::new, |error| format!(" ({error})"));
    format!("{} answered {} of {} questions{took}{error}", server.ip(), polled.answered(), polled.asked())
}

/// What a lookup came to.
struct Lookup {
    /// Names that were tried, in order, each with what was heard.
    rounds: Vec<(String, Heard)>,
    took: Duration,
}

impl Lookup {
    fn sum(&self, of: fn(&Heard) -> u32) -> u32 {
        self.rounds.iter().map(|(_, heard)| of(heard)).sum()
    }
}

/// Asks the first server for each candidate until one has an address, as the C library does.
fn look_up(config: &Config, name: &str, patience: Patience, now: Now) -> Reading<Lookup> {
    let server = *config.servers.first().ok_or(Unread::Absent("no name server is named"))?;
    let begun = now();
    let mut rounds = Vec::new();
    for candidate in config.candidates(name) {
        let left = patience.all.saturating_sub(now().saturating_sub(begun));
        if left.is_zero() {
            return Err(Unread::Absent("the time for it was over before it had been tried to the end"));
        }
        let heard = ask(server, &candidate, left.min(patience.each), now);
        let heard = heard
            .map_err(|Unfit| Unread::Absent("it fits no question (63 bytes between dots, 253 together)"))?;
        rounds.push((candidate, heard));
        // The C library goes no further than a server that is silent, but asks it again.
        if heard.addresses > 0 || heard.answered == 0 {
            break;
        }
    }
    Ok(Lookup { rounds, took: now().saturating_sub(begun) })
}

/// What a lookup of a name took.
fn lookup(config: &Config, name: &str, looked: &Reading<Lookup>) -> Finding {
    let looked = match looked {
        Ok(looked) => looked,
        Err(why) => {
            return Finding::unknown(LOOKUP, why, format!("look at {name} by hand: dig +search {name}"));
        }
    };
    let (rounds, millis) = (looked.rounds.len(), looked.took.as_secs_f64() * 1e3);
    let tried: Vec<_> = looked.rounds.iter().map(|(name, _)| format!("{name}.")).collect();
    let sent = looked.sum(|heard| heard.sent);
    let text = format!(
        "{name} took {} in {} and {millis:.1} ms, and has {} (tried: {})",
        many(f64::from(sent), "question"),
        many(rounds as f64, "round"),
        addresses(looked.sum(|heard| heard.addresses)),
        tried.join(" ")
    );
    let found = Finding::ok(LOOKUP, text)
        .with("questions", f64::from(sent), "questions")
        .with("rounds", rounds as f64, "rounds")
        .with("took", millis, "ms")
        .with("over-tcp", f64::from(looked.sum(|heard| heard.cut)), "questions");
    if let Some((reason, fix)) = broken(config, name, looked) {
        return found.judged(Verdict::Fault, reason, fix);
    }
    match costly(config, looked) {
        Some((reason, fix)) => found.judged(Verdict::Warning, reason, fix),
        None => found,
    }
}

fn addresses(count: u32) -> String {
    if count == 1 { "1 address".to_owned() } else { format!("{count} addresses") }
}

/// Why programs here do not get the addresses in time or at all, and what to do.
fn broken(config: &Config, name: &str, looked: &Lookup) -> Option<(String, String)> {
    if looked.sum(|heard| heard.cut_lost) > 0 {
        let reason =
            "an answer was too long for UDP, and did not come over TCP, by which the rest is asked for";
        return Some((
            reason.to_owned(),
            "allow TCP to port 53 of the server (network policies, firewalls)".to_owned(),
        ));
    }
    let lost = looked.sum(Heard::lost);
    let error = looked.rounds.iter().find_map(|(_, heard)| heard.error);
    if let (1.., Some(error)) = (lost, error) {
        let reason = format!("the server cannot be asked: {error}");
        return Some((reason, "see dns.servers".to_owned()));
    }
    if lost > 0 {
        let (patience, timeout) = (PATIENCE.each.as_millis(), config.timeout.as_secs());
        let reason = format!(
            "{} had no answer within {patience} ms; the C library waits {timeout} s for it",
            many(f64::from(lost), "question")
        );
        let fix = "see dns.servers; where only one of A and AAAA is lost, options single-request-reopen keeps them apart (conntrack's race)";
        return Some((reason, fix.to_owned()));
    }
    if looked.sum(|heard| heard.failed) > 0 {
        let reason = "the server says that it failed or refuses (SERVFAIL, REFUSED); the C library asks the next one, or gives up";
        return Some((
            reason.to_owned(),
            format!("look at the server's log and at the servers that it asks itself: dig {name}"),
        ));
    }
    let is_found = looked.sum(|heard| heard.addresses) > 0;
    let reason = "no name that was tried has an address".to_owned();
    (!is_found).then(|| (reason, format!("look at the name: dig +search {name}")))
}

/// Why they get them late, and what to do.
fn costly(config: &Config, looked: &Lookup) -> Option<(String, &'static str)> {
    let rounds = looked.rounds.len();
    if rounds > 1 {
        let reason = format!(
            "{} of {rounds} rounds came to nothing, one after the other: ndots:{} and {} say what is tried first",
            rounds - 1,
            config.ndots,
            domains(config)
        );
        return Some((reason, FEWER));
    }
    let reason =
        "its answer is too long for UDP's 512 bytes: each lookup asks again over TCP, in a new connection"
            .to_owned();
    let is_cut = looked.sum(|heard| heard.cut) > 0;
    is_cut.then_some((
        reason,
        "let longer answers come over UDP (options edns0), or give the name fewer addresses",
    ))
}
