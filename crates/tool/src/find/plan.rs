//! From flags to a plan and what it takes to carry it out. Nothing has been sent when a mistake is found.

use std::io::{Cursor, IsTerminal, stdin};
use std::net::IpAddr;
use std::num::NonZero;

use anyhow::{Context as _, ensure};
use seawall_lab::find::answer::{Answer, Arrivals, Connections};
use seawall_lab::find::plan::{Plan, QUICK, Target};
use seawall_lab::find::resume;
use seawall_lab::server_side::{Endpoint, Group, ServerSide};
use seawall_load::engine::Travel;
use seawall_load::request::{Origin, Request, Style};
use seawall_load::supply::List;
use seawall_probe::files::System;
use seawall_search::profile::Profile;

use super::args::{Args, Spacing, goal};
use super::ground::Kit;
use super::sent;
use crate::attack::aim::{Aim, Waits};
pub(super) use seawall_lab::means::cores;

/// A run, and the one that it continues.
#[derive(Debug)]
pub(crate) struct Order {
    pub(super) plan: Plan,
    pub(super) before: Option<Answer>,
    /// Of clients in place of a rate.
    pub(super) closed: Option<Closed>,
}

/// What `--closed` asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Closed {
    /// `--max-clients`.
    pub(super) most: Option<u32>,
}

/// The plan of a run that sends with so many threads at most.
pub(crate) fn plan(args: &Args, cpus: usize) -> anyhow::Result<(Order, Kit)> {
    let style = args.travel.style(args.chunked)?;
    let waits = Waits { timeout: args.timeout, deadline: None, redirects: args.redirects };
    let travel = args.travel.engine(waits, &style)?;
    let before = args.from.as_deref().map(super::earlier).transpose()?;
    let list = targets(args, &style)?;
    let profile = if args.thorough { Profile::THOROUGH } else { Profile::QUICK };
    let plan = Plan {
        goal: goal(args.slo.as_ref())?,
        profile,
        max_rate: args.max_rate.map(|most| most.0),
        budget: args.budget.or((!args.thorough).then_some(QUICK)),
        cause: !args.no_cause,
        target: target(list.requests(), &travel),
        arrivals: match args.arrivals {
            Spacing::Even => Arrivals::Even,
            Spacing::Poisson => Arrivals::Poisson,
        },
        connections: connections(&travel, list.requests()),
        timeout: travel.timeout,
        sent: Some(sent::sent(&args.travel, &travel, &list, args.redirects)?),
    };
    // Before anybody is asked whether they are there: another way may lead to somebody else.
    before.iter().try_for_each(|before| resume::compatible(&plan, before)).context("--from")?;
    let late = plan.goal.late.map(|late| late.than);
    let kit =
        Kit { list, travel, style, cpus, arrivals: plan.arrivals, seed: args.seed, late, side: side(args)? };
    let closed = args.closed.then(|| Closed { most: args.max_clients.map(NonZero::get) });
    Ok((Order { plan, before, closed }, kit))
}

/// What is asked of the target's own side; whether it answers is found out when it is asked.
fn side(args: &Args) -> anyhow::Result<ServerSide> {
    let endpoint = args.metrics.as_deref().map(Endpoint::resolve).transpose().context("--metrics")?;
    let is_given = !args.cgroup.is_empty();
    let group = is_given.then(|| Group::open(&System, &args.cgroup)).transpose().context("--cgroup")?;
    Ok(ServerSide::new(endpoint, group))
}

fn targets(args: &Args, style: &Style) -> anyhow::Result<List> {
    ensure!(
        args.url.is_some() || args.targets != "stdin" || !stdin().is_terminal(),
        "no target: seawall find URL, or -targets FILE, or targets on standard input"
    );
    let aim = Aim {
        name: "",
        targets: if args.url.is_some() { "URL" } else { &args.targets },
        format: args.format,
        header: &args.header,
        body: &args.body,
        template: args.template.then_some(args.seed),
    };
    let intake = match &args.url {
        Some(url) => {
            let is_one = !url.contains(|letter: char| letter.is_whitespace() || letter.is_control());
            ensure!(is_one, "{url:?} is no URL: there is a space in it");
            let aim = Aim { format: seawall_load::target::Format::Http, ..aim };
            return aim.list(aim.intake_of(Box::new(Cursor::new(format!("GET {url}\n"))), style)?);
        }
        None => aim.intake(style)?,
    };
    aim.list(intake)
}

/// Whom these requests ask.
pub(crate) fn target(requests: &[Request], travel: &Travel) -> Target {
    let is_name = |request: &Request| request.origin.host.parse::<IpAddr>().is_err();
    Target {
        url: requests.first().map(|request| public(&request.url)).unwrap_or_default(),
        count: requests.len(),
        tls: requests.iter().any(|request| request.origin.tls),
        named: travel.dial.unix_socket.is_none() && requests.iter().any(is_name),
    }
}

/// A URL without what may be a secret: user, password, query and fragment.
pub(crate) fn public(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

/// What becomes of their connections.
pub(crate) fn connections(travel: &Travel, requests: &[Request]) -> Connections {
    let bound = |most: u64, none: u64| (most != none).then_some(most);
    let origins = || requests.iter().map(|request| &request.origin);
    let tls = origins().any(|origin| origin.tls);
    let multiplexes = |origin: &Origin| origin.tls == tls && travel.multiplexes(origin);
    let protocol = match (tls, origins().any(multiplexes)) {
        (true, true) => "h2",
        (false, true) => "h2c",
        _ => "http/1.1",
    };
    Connections {
        keep_alive: origins().any(|origin| travel.keeps(origin)),
        most: bound(travel.connections as u64, usize::MAX as u64),
        requests: bound(travel.requests_per_connection, u64::MAX),
        protocol: protocol.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_url_nothing_is_told_that_may_be_a_secret() {
        for (url, told) in [
            ("http://user:pass@a.test:81/b/c?key=1#d", "http://a.test:81/b/c"),
            ("https://a.test?key=1", "https://a.test"),
            ("http://[::1]:80/p@th", "http://[::1]:80/p@th"),
        ] {
            assert_eq!(public(url), told);
        }
    }
}
