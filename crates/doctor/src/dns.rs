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

use self::ask::{Heard, Now, Unfit, Way, ask};
use self::config::{Candidate, Config};
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
    let links = site.files.read("/proc/net/if_inet6").unwrap_or_default();
    let config = parsed(site.files, site.resolv_conf, |text| Some(Config::parse(text, &links)));
    match config {
        Ok(config) => examined(site, &config.within(site.environment)),
        Err(why) => unknown(site, &why),
    }
}

fn examined(site: &Site, config: &Config) -> Vec<Finding> {
    let hosts = site.files.read(HOSTS).unwrap_or_default();
    let known: Vec<_> = site.names.iter().map(|name| names::known(name, &hosts)).collect();
    let asked = site.names.iter().zip(&known).find(|(_, known)| known.is_none());
    let name = asked.map_or(USUAL, |(name, _)| name.trim_end_matches('.'));
    let polled = polled(config, name, PATIENCE, site.now);
    let mut found = vec![search(config), servers(config, &polled)];
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
    let before = tried.iter().position(|tried| !tried.is_searched).unwrap_or(0);
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
        fewer(FOREIGN),
    )
}

fn domains(config: &Config) -> String {
    many(config.search.len() as f64, "search domain")
}

/// What takes fewer questions for a name.
fn fewer(name: &str) -> String {
    format!(
        "write it with a dot at its end ({name}.), or set dnsConfig.options ndots to 1 (then names of services in other namespaces are written \
         out, to .svc.cluster.local); else CoreDNS' autopath answers in one round, and a cache on the node shortens each"
    )
}

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

    /// Questions for whose answer the C library would have waited.
    fn waited_for(&self) -> u32 {
        self.heard
            .iter()
            .filter(|heard| heard.error.is_none())
            .map(|heard| heard.lost() - heard.cut_lost)
            .sum()
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
            let way = Way { server: *server, over_tcp: config.over_tcp };
            let Ok(both) =
                ask(way, name, patience.each, now).or_else(|_| ask(way, USUAL, patience.each, now))
            else {
                break;
            };
            heard.push(both);
        }
        Polled { server: *server, heard }
    };
    config.asked().iter().map(poll).collect()
}

/// Where others alert on a slow server (Coroot's inspection of DNS, its latency).
const SLOW: Duration = Duration::from_millis(100);

/// Whether the servers answer, and how soon.
fn servers(config: &Config, polled: &[Polled]) -> Finding {
    let count = |of: fn(&Polled) -> u32| polled.iter().map(of).sum::<u32>();
    let (asked, answered) = (count(Polled::asked), count(Polled::answered));
    let none = if config.names_none {
        "no name server is named, so the C library asks one on this machine: "
    } else {
        ""
    };
    let told: Vec<_> = polled.iter().map(tell).collect();
    let slowest = polled.iter().filter_map(Polled::median).max().unwrap_or_default();
    let found = Finding::ok(SERVERS, [none, &told.join("; ")].concat())
        .with("asked", f64::from(asked), "questions")
        .with("answered", f64::from(answered), "questions")
        .with("slowest", slowest.as_secs_f64() * 1e3, "ms");
    let fault = foremost(config, polled).filter(|polled| polled.answered() == 0);
    if let Some((verdict, reason, fix)) = fault.and_then(cannot_be_asked).or_else(|| useless(polled)) {
        return found.judged(verdict, reason, if config.names_none { NAME_ONE } else { fix });
    }
    let timeout = config.timeout.as_secs();
    match () {
        () if fault.is_some() => {
            let which = if config.rotates {
                "a server with which some lookups begin (options rotate)"
            } else {
                "the server that is asked first"
            };
            let lookups = if config.rotates { "each of them" } else { "every lookup" };
            let reason = format!(
                "{which} does not answer: {lookups} waits {timeout} s for it before it asks again or the next"
            );
            found.judged(Verdict::Fault, reason, if config.names_none { NAME_ONE } else { LOOK })
        }
        () if answered < asked => {
            let (reason, fix) = lossy(polled, timeout);
            found.judged(Verdict::Warning, reason, fix)
        }
        () if slowest > SLOW => found.judged(
            Verdict::Warning,
            "each lookup takes at least that long, and a searched name several times",
            LOOK,
        ),
        () => found,
    }
}

const NAME_ONE: &str = "name one: nameserver ADDRESS in resolv.conf, dnsPolicy of the pod";

const LOOK: &str = "look at the server: its pods' CPU (cpu.throttling there) and restarts, network policies that forbid port 53, ports.conntrack on the node; a cache on the \
                    node that asks over TCP avoids lost datagrams";

const WAY: &str = "look whether this machine has a way there (ip route get ADDRESS), whether a NetworkPolicy or a firewall forbids port 53, and whether a server listens \
                   at it";

/// The server with which lookups begin; of several of them, the one that answers least.
fn foremost<'a>(config: &Config, polled: &'a [Polled]) -> Option<&'a Polled> {
    let silent = polled.iter().find(|polled| polled.answered() == 0).filter(|_| config.rotates);
    silent.or_else(|| polled.first())
}

/// What a lookup pays for answers that did not come, though others did.
fn lossy(polled: &[Polled], timeout: u64) -> (String, &'static str) {
    if polled.iter().any(|polled| polled.waited_for() > 0) {
        return (
            format!(
                "a question that is lost costs its lookup the resolver's timeout, {timeout} s (options timeout)"
            ),
            LOOK,
        );
    }
    let refused = polled.iter().find_map(|polled| Some((shown(polled.server), polled.error()?)));
    match refused {
        Some((ip, error)) => {
            (format!("{ip} cannot be asked ({error}): a lookup that comes to it goes on to the next at once, and without one fails"), WAY)
        }
        None => (
            "answers that are too long for UDP did not come over TCP, by which the rest is asked for: such a lookup goes on to the next server, and without one fails".to_owned(),
            TCP,
        ),
    }
}

const TCP: &str = "allow TCP to port 53 of the server (network policies, firewalls)";

/// A server that cannot be asked, where the system says why.
fn cannot_be_asked(foremost: &Polled) -> Option<(Verdict, String, &'static str)> {
    let error = foremost.error()?;
    let reason = format!(
        "the server that is asked first cannot be asked ({error}): every lookup goes on to the next, or fails at once"
    );
    Some((Verdict::Fault, reason, WAY))
}

/// Servers that answer, and nothing but that they fail or refuse.
fn useless(polled: &[Polled]) -> Option<(Verdict, String, &'static str)> {
    let failing: Vec<_> = polled.iter().filter(|polled| polled.is_of_no_use()).collect();
    let who: Vec<_> = failing.iter().map(|polled| shown(polled.server)).collect();
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

/// The address of a server, with its link if it is one's.
fn shown(server: SocketAddr) -> String {
    match server {
        SocketAddr::V6(server) if server.scope_id() > 0 => format!("{}%{}", server.ip(), server.scope_id()),
        _ => server.ip().to_string(),
    }
}

fn tell(polled: &Polled) -> String {
    let Polled { server, .. } = polled;
    let took = polled.median().map_or_else(String::new, |median| {
        format!(", both of a name within {:.1} ms at the median", median.as_secs_f64() * 1e3)
    });
    let error = polled.error().map_or_else(String::new, |error| format!(" ({error})"));
    format!("{} answered {} of {} questions{took}{error}", shown(*server), polled.answered(), polled.asked())
}

/// What a lookup came to.
struct Lookup {
    /// Names that were tried, in order.
    rounds: Vec<Round>,
    took: Duration,
}

/// One name, and what each server that was asked for it said, in order: the last decides.
struct Round {
    name: String,
    heard: Vec<Heard>,
}

impl Lookup {
    /// Of all servers that were asked.
    fn sum(&self, of: fn(&Heard) -> u32) -> u32 {
        self.rounds.iter().flat_map(|round| &round.heard).map(of).sum()
    }

    /// What the last server that was asked for each name said.
    fn decided(&self) -> impl Iterator<Item = &Heard> {
        self.rounds.iter().filter_map(|round| round.heard.last())
    }

    /// Servers that were asked for a name before another one said something of use.
    fn passed_over(&self) -> usize {
        self.rounds.iter().map(|round| round.heard.len().saturating_sub(1)).sum()
    }
}

/// What the C library does after a name for which it has no address (`__res_context_search`, glibc `resolv/res_query.c`).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// It tries the next.
    Next,
    /// It searches no further, and tries the name as it is, if it has not.
    AsItIs,
    /// It gives up: nobody can be asked, or somebody is waited for.
    End,
}

fn then(last: &Heard) -> Then {
    match last {
        _ if last.addresses > 0 || last.answered == 0 => Then::End,
        _ if last.failed > last.broke => Then::AsItIs,
        _ => Then::Next,
    }
}

/// Asks for each candidate until one has an address, as the C library does.
fn look_up(config: &Config, name: &str, patience: Patience, now: Now) -> Reading<Lookup> {
    let begun = now();
    let mut rounds = Vec::new();
    let mut is_searching = true;
    for Candidate { name, is_searched } in config.candidates(name) {
        if is_searched && !is_searching {
            continue;
        }
        let first = if config.rotates { rounds.len() } else { 0 };
        let left = || patience.all.saturating_sub(now().saturating_sub(begun)).min(patience.each);
        let Some(heard) = in_turn(config, first, &name, &left, now)? else {
            if !is_searched {
                return Err(Unread::Absent("it fits no question (63 bytes between dots, 253 together)"));
            }
            is_searching = false;
            continue;
        };
        let then = heard.last().map_or(Then::End, then);
        rounds.push(Round { name, heard });
        is_searching &= !is_searched || then == Then::Next;
        if then == Then::End {
            break;
        }
    }
    Ok(Lookup { rounds, took: now().saturating_sub(begun) })
}

/// Asks one server after the other until one says something of use, the first of them so far behind that of the file; none if the name fits no question.
fn in_turn(
    config: &Config,
    first: usize,
    name: &str,
    left: &dyn Fn() -> Duration,
    now: Now,
) -> Reading<Option<Vec<Heard>>> {
    let servers = config.asked();
    let mut all = Vec::new();
    for server in servers.iter().cycle().skip(first % servers.len().max(1)).take(servers.len()) {
        if left().is_zero() {
            return Err(Unread::Absent("the time for it was over before it had been tried to the end"));
        }
        let way = Way { server: *server, over_tcp: config.over_tcp };
        let Ok(heard): Result<_, Unfit> = ask(way, name, left(), now) else { return Ok(None) };
        all.push(heard);
        if !heard.goes_on() {
            break;
        }
    }
    Ok(Some(all))
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
    let tried: Vec<_> = looked.rounds.iter().map(|round| format!("{}.", round.name)).collect();
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
    match costly(config, name, looked) {
        Some((reason, fix)) => found.judged(Verdict::Warning, reason, fix),
        None => found,
    }
}

fn addresses(count: u32) -> String {
    if count == 1 { "1 address".to_owned() } else { format!("{count} addresses") }
}

/// Why programs here do not get the addresses in time or at all, and what to do.
fn broken(config: &Config, name: &str, looked: &Lookup) -> Option<(String, String)> {
    if looked.decided().any(|heard| heard.cut_lost > 0) {
        let reason =
            "an answer was too long for UDP, and did not come over TCP, by which the rest is asked for";
        return Some((reason.to_owned(), TCP.to_owned()));
    }
    let lost: u32 = looked.decided().map(Heard::lost).sum();
    let error = looked.decided().find_map(|heard| heard.error);
    if let (1.., Some(error)) = (lost, error) {
        let reason = format!(
            "{} cannot be asked: {error}",
            if looked.passed_over() > 0 { "servers" } else { "the server" }
        );
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
    let is_found = looked.sum(|heard| heard.addresses) > 0;
    let failed = |heard: &Heard| heard.failed > 0;
    // After a search domain of which servers knew nothing, another name had its addresses all the same.
    let is_failure =
        if is_found { looked.decided().last().is_some_and(failed) } else { looked.decided().any(failed) };
    if is_failure {
        let reason = "each server that is asked says that it failed or refuses (SERVFAIL, REFUSED), and the C library gives up";
        return Some((
            reason.to_owned(),
            format!("look at the server's log and at the servers that it asks itself: dig {name}"),
        ));
    }
    let reason = "no name that was tried has an address".to_owned();
    (!is_found).then(|| (reason, format!("look at the name: dig +search {name}")))
}

/// Why they get them late, and what to do.
fn costly(config: &Config, name: &str, looked: &Lookup) -> Option<(String, String)> {
    let rounds = looked.rounds.len();
    if looked.passed_over() > 0 {
        let reason = format!(
            "{} came to a server that fails, refuses or cannot be asked, before the next one answered: so does each lookup",
            many(looked.passed_over() as f64, "round")
        );
        return Some((reason, "mend that server or take it out of resolv.conf; see dns.servers".to_owned()));
    }
    if rounds > 1 {
        let reason = format!(
            "{} of {rounds} rounds came to nothing, one after the other: ndots:{} and {} say what is tried first",
            rounds - 1,
            config.ndots,
            domains(config)
        );
        return Some((reason, fewer(name)));
    }
    let reason =
        "its answer is too long for UDP's 512 bytes: each lookup asks again over TCP, in a new connection"
            .to_owned();
    let is_cut = looked.sum(|heard| heard.cut) > 0;
    is_cut.then(|| {
        (
            reason,
            "let longer answers come over UDP (options edns0), or give the name fewer addresses".to_owned(),
        )
    })
}
