//! One lookup of a name as glibc makes it, from candidate to candidate and from server to server, and what it comes to.

use std::time::Duration;

use seawall_probe::files::{Reading, Unread};

use super::ask::{Heard, Now, Unfit, Way, ask};
use super::config::{Candidate, Config};
use super::{LOOKUP, PATIENCE, Patience, TCP, domains, fewer};
use crate::finding::{Finding, Verdict, many};

/// What a lookup came to.
pub(super) struct Lookup {
    /// Names that were tried, in order.
    pub(super) rounds: Vec<Round>,
    took: Duration,
}

/// One name, and what each server that was asked for it said, in order: the last decides.
pub(super) struct Round {
    pub(super) name: String,
    pub(super) heard: Vec<Heard>,
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
pub(super) fn look_up(config: &Config, name: &str, patience: Patience, now: Now) -> Reading<Lookup> {
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
        // What was cut once is asked for over TCP from then on.
        let over_tcp = config.over_tcp || all.iter().any(|heard: &Heard| heard.cut_lost > 0);
        let way = Way { server: *server, over_tcp };
        let Ok(heard): Result<_, Unfit> = ask(way, name, left(), now) else { return Ok(None) };
        all.push(heard);
        if !heard.goes_on() {
            break;
        }
    }
    Ok(Some(all))
}

/// What a lookup of a name took.
pub(super) fn lookup(config: &Config, name: &str, looked: &Reading<Lookup>) -> Finding {
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
            "{} came to a server that fails, refuses or cannot be asked (or not over TCP, for what it cut), before the next one answered: so does each lookup",
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
