//! A full lookup of a name as glibc does it, over all tried names and servers, and the verdict on it.

use std::time::Duration;

use seawall_probe::file_reader::{ProbeError, ProbeResult};

use super::ask::{DnsExchange, InvalidDnsName, MonotonicNow, NameServerPath, ask};
use super::config::{CandidateName, ResolverConfig};
use super::{DnsTimeouts, LOOKUP, PATIENCE, TCP, domains, fewer};
use crate::finding::{DoctorFinding, DoctorStatus, pluralize};

/// The result of a lookup.
pub(super) struct DnsLookup {
    /// The tried names, in order.
    pub(super) rounds: Vec<LookupRound>,
    took: Duration,
}

/// One tried name with the results of each asked server, in order. The last server decides.
pub(super) struct LookupRound {
    pub(super) name: String,
    pub(super) exchanges: Vec<DnsExchange>,
}

impl DnsLookup {
    /// Returns the sum of a counter over all asked servers.
    fn sum(&self, of: fn(&DnsExchange) -> u32) -> u32 {
        self.rounds.iter().flat_map(|round| &round.exchanges).map(of).sum()
    }

    /// Returns the result of the last server for each name.
    fn decided(&self) -> impl Iterator<Item = &DnsExchange> {
        self.rounds.iter().filter_map(|round| round.exchanges.last())
    }

    /// Returns the number of servers that gave no usable response before another server did.
    fn passed_over(&self) -> usize {
        self.rounds.iter().map(|round| round.exchanges.len().saturating_sub(1)).sum()
    }
}

/// The C library's next action after a name without an address (`__res_context_search`, glibc `resolv/res_query.c`).
#[derive(Clone, Copy, PartialEq, Eq)]
enum NextTry {
    /// The library tries the next name.
    Next,
    /// The library skips the other search domains and tries the name as it is.
    AsItIs,
    /// The library gives up, because no server can be asked or a response timed out.
    StopLookup,
}

fn then(last: &DnsExchange) -> NextTry {
    match last {
        _ if last.address_count > 0 || last.answered_count == 0 => NextTry::StopLookup,
        _ if last.failure_responses > last.servfail_responses => NextTry::AsItIs,
        _ => NextTry::Next,
    }
}

/// Tries each candidate name until one has an address, as the C library does.
pub(super) fn look_up(
    config: &ResolverConfig,
    name: &str,
    patience: DnsTimeouts,
    now: MonotonicNow,
) -> ProbeResult<DnsLookup> {
    let begun = now();
    let mut rounds = Vec::new();
    let mut is_searching = true;
    for CandidateName { name, is_from_search_domain: is_searched } in config.candidates(name) {
        if is_searched && !is_searching {
            continue;
        }
        let first = if config.rotates { rounds.len() } else { 0 };
        let left = || patience.all.saturating_sub(now().saturating_sub(begun)).min(patience.each);
        let Some(heard) = in_turn(config, first, &name, &left, now)? else {
            if !is_searched {
                return Err(ProbeError::NotApplicable(
                    "the name is too long for a DNS query (at most 63 bytes between dots, 253 in total)",
                ));
            }
            is_searching = false;
            continue;
        };
        let then = heard.last().map_or(NextTry::StopLookup, then);
        rounds.push(LookupRound { name, exchanges: heard });
        is_searching &= !is_searched || then == NextTry::Next;
        if then == NextTry::StopLookup {
            break;
        }
    }
    Ok(DnsLookup { rounds, took: now().saturating_sub(begun) })
}

/// Asks one server after the other until a response is usable, starting at index `first`. The result is none if the name is too
/// long for a DNS query.
fn in_turn(
    config: &ResolverConfig,
    first: usize,
    name: &str,
    left: &dyn Fn() -> Duration,
    now: MonotonicNow,
) -> ProbeResult<Option<Vec<DnsExchange>>> {
    let servers = config.queried_servers();
    let mut all = Vec::new();
    for server in servers.iter().cycle().skip(first % servers.len().max(1)).take(servers.len()) {
        if left().is_zero() {
            return Err(ProbeError::NotApplicable("the lookup did not end within the time limit"));
        }
        // After one truncated response without a TCP response, further questions go over TCP.
        let over_tcp = config.over_tcp || all.iter().any(|heard: &DnsExchange| heard.tcp_lost_count > 0);
        let way = NameServerPath { server: *server, over_tcp };
        let Ok(heard): Result<_, InvalidDnsName> = ask(way, name, left(), now) else { return Ok(None) };
        all.push(heard);
        if !heard.tries_next_server() {
            break;
        }
    }
    Ok(Some(all))
}

/// Returns the finding about the lookup of a name.
pub(super) fn judge_lookup(
    config: &ResolverConfig,
    name: &str,
    looked: &ProbeResult<DnsLookup>,
) -> DoctorFinding {
    let looked = match looked {
        Ok(looked) => looked,
        Err(why) => {
            return DoctorFinding::unknown(
                LOOKUP,
                why,
                format!("look the name up by hand: dig +search {name}"),
            );
        }
    };
    let (rounds, millis) = (looked.rounds.len(), looked.took.as_secs_f64() * 1e3);
    let tried: Vec<_> = looked.rounds.iter().map(|round| format!("{}.", round.name)).collect();
    let sent = looked.sum(|heard| heard.sent_count);
    let text = format!(
        "the lookup of {name} took {} in {} and {millis:.1} ms, and found {} (tried: {})",
        pluralize(f64::from(sent), "question"),
        pluralize(rounds as f64, "round"),
        addresses(looked.sum(|heard| heard.address_count)),
        tried.join(" ")
    );
    let found = DoctorFinding::ok(LOOKUP, text)
        .with_measurement("questions", f64::from(sent), "questions")
        .with_measurement("rounds", rounds as f64, "rounds")
        .with_measurement("took", millis, "ms")
        .with_measurement("over-tcp", f64::from(looked.sum(|heard| heard.truncated_count)), "questions");
    if let Some((reason, fix)) = broken(config, name, looked) {
        return found.with_status(DoctorStatus::Error, reason, fix);
    }
    match costly(config, name, looked) {
        Some((reason, fix)) => found.with_status(DoctorStatus::Warning, reason, fix),
        None => found,
    }
}

fn addresses(count: u32) -> String {
    if count == 1 { "1 address".to_owned() } else { format!("{count} addresses") }
}

/// Returns the reason and the fix if programs get the addresses too late or not at all.
fn broken(config: &ResolverConfig, name: &str, looked: &DnsLookup) -> Option<(String, String)> {
    if looked.decided().any(|heard| heard.tcp_lost_count > 0) {
        let reason = "a response was too long for UDP, and TCP gave no response";
        return Some((reason.to_owned(), TCP.to_owned()));
    }
    let lost: u32 = looked.decided().map(DnsExchange::lost_count).sum();
    let error = looked.decided().find_map(|heard| heard.error);
    if let (1.., Some(error)) = (lost, error) {
        let reason = format!(
            "{} unreachable: {error}",
            if looked.passed_over() > 0 { "some name servers are" } else { "the name server is" }
        );
        return Some((reason, "see dns.servers".to_owned()));
    }
    if lost > 0 {
        let (patience, timeout) = (PATIENCE.each.as_millis(), config.timeout.as_secs());
        let reason = format!(
            "{} got no response within {patience} ms; the C library waits {timeout} s for each response",
            pluralize(f64::from(lost), "question")
        );
        let fix = "see dns.servers; if only one of A and AAAA is lost, set options single-request-reopen, which avoids a race in conntrack";
        return Some((reason, fix.to_owned()));
    }
    let is_found = looked.sum(|heard| heard.address_count) > 0;
    let failed = |heard: &DnsExchange| heard.failure_responses > 0;
    // Another tried name may have had addresses although the servers failed for a search domain.
    let is_failure =
        if is_found { looked.decided().last().is_some_and(failed) } else { looked.decided().any(failed) };
    if is_failure {
        let reason = "each server responds with SERVFAIL or REFUSED, and the C library gives up";
        return Some((
            reason.to_owned(),
            format!(
                "look at the name server's log and check its upstream name servers; to test by hand: dig {name}"
            ),
        ));
    }
    let reason = "none of the tried names has an address".to_owned();
    (!is_found).then(|| (reason, format!("check the name: dig +search {name}")))
}

/// Returns the reason and the fix if programs get the addresses slowly.
fn costly(config: &ResolverConfig, name: &str, looked: &DnsLookup) -> Option<(String, String)> {
    let rounds = looked.rounds.len();
    if looked.passed_over() > 0 {
        let reason = format!(
            "{} first asked a server that failed, refused or was unreachable (perhaps only over TCP) and then asked the next server: every lookup repeats this",
            pluralize(looked.passed_over() as f64, "round")
        );
        return Some((
            reason,
            "repair that server or remove it from resolv.conf; see dns.servers".to_owned(),
        ));
    }
    if rounds > 1 {
        let reason = format!(
            "{} of {rounds} sequential rounds failed because of ndots:{} and {}",
            rounds - 1,
            config.ndots,
            domains(config)
        );
        return Some((reason, fewer(name)));
    }
    let reason =
        "the response is too long for UDP's 512 bytes: each lookup asks again over a new TCP connection"
            .to_owned();
    let is_cut = looked.sum(|heard| heard.truncated_count) > 0;
    is_cut.then(|| {
        (
            reason,
            "allow longer responses over UDP (options edns0), or give the name fewer addresses".to_owned(),
        )
    })
}
