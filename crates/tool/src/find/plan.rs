//! From flags to a plan and what it takes to carry it out. Nothing has been sent when a mistake is found.

use std::io::{IsTerminal, stdin};
use std::net::IpAddr;
use std::num::NonZero;

use anyhow::{Context as _, ensure};
use seawall_lab::find::find_report::{ConnectionPolicy, FindReport, ReportedArrivals};
use seawall_lab::find::plan::{FindPlan, QUICK_BUDGET, TargetInfo};
use seawall_lab::find::resume;
use seawall_lab::server_side::{MetricsEndpoint, ServerCgroup, ServerSideReader};
use seawall_load::engine::TransportOptions;
use seawall_load::input_files::InputFiles;
use seawall_load::request::{Origin, PreparedRequest, RequestFraming};
use seawall_load::request_source::RequestList;
use seawall_probe::file_reader::LocalFiles;
use seawall_search::search_profile::Profile;

use super::args::{FindArgs, FindArrivals, search_goal};
use super::request_fingerprint;
use super::search_setup::FindSessionConfig;
use crate::attack::targets::{RequestLimits, TargetFlags};
pub(super) use seawall_lab::generator_resources::available_cores;

/// A run, and the one that it continues.
#[derive(Debug)]
pub(crate) struct FindCommandPlan {
    pub(super) plan: FindPlan,
    pub(super) previous_report: Option<FindReport>,
    /// The options of a closed loop, which has clients in place of a rate.
    pub(super) closed_loop: Option<ClosedLoopOptions>,
}

/// The options of `--closed-loop`.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClosedLoopOptions {
    /// `--max-clients`.
    pub(super) max_clients: Option<u32>,
}

/// Makes the plan of a run that sends with at most this many threads and reads these files.
pub(crate) fn plan_find(
    args: &FindArgs,
    cpus: usize,
    files: &InputFiles,
) -> anyhow::Result<(FindCommandPlan, FindSessionConfig)> {
    let style = args.connection_args.request_framing(args.chunked)?;
    let waits = RequestLimits { timeout: args.timeout, deadline: None, max_redirects: args.redirects };
    let travel = args.connection_args.to_transport_options(waits, &style, files)?;
    let before = args.resume.as_deref().map(super::read_earlier_report).transpose()?;
    let list = targets(args, &style, files)?;
    args.connection_args.warn_of_unused_connect_to(list.requests().iter().map(PreparedRequest::origin));
    let profile = if args.thorough { Profile::THOROUGH } else { Profile::QUICK };
    let plan = FindPlan {
        goal: search_goal(&args.slo)?,
        profile,
        max_rate: args.max_rate.map(|most| most.0),
        budget: args.budget.or((!args.thorough).then_some(QUICK_BUDGET)),
        looks_for_cause: !args.no_cause,
        target_info: target_info(list.requests(), &travel),
        arrivals: match args.arrivals {
            FindArrivals::Constant => ReportedArrivals::Constant,
            FindArrivals::Poisson => ReportedArrivals::Poisson,
        },
        connections: connection_policy(&travel, list.requests()),
        timeout: travel.timeout,
        fingerprint: Some(request_fingerprint::fingerprint_requests(
            &args.connection_args,
            &travel,
            &list,
            args.redirects,
        )?),
    };
    // Before anybody is asked whether they are there: another way may lead to somebody else.
    before.iter().try_for_each(|before| resume::check_compatible(&plan, before)).context("--resume")?;
    let late = plan.goal.latency_goal.map(|late| late.latency_limit);
    let kit = FindSessionConfig {
        requests: list,
        transport: travel,
        framing: style,
        max_threads: cpus,
        arrivals: plan.arrivals,
        seed: args.seed,
        latency_bound: late,
        server_side_reader: server_side(args)?,
    };
    let closed =
        args.closed_loop.then(|| ClosedLoopOptions { max_clients: args.max_clients.map(NonZero::get) });
    Ok((FindCommandPlan { plan, previous_report: before, closed_loop: closed }, kit))
}

/// Makes the reader of the server side. Whether the metrics endpoint responds shows at the first reading.
fn server_side(args: &FindArgs) -> anyhow::Result<ServerSideReader> {
    let endpoint = args
        .server_metrics
        .as_deref()
        .map(MetricsEndpoint::resolve)
        .transpose()
        .context("--server-metrics")?;
    let is_given = !args.server_cgroup.is_empty();
    let group = is_given
        .then(|| ServerCgroup::open_directories(&LocalFiles, &args.server_cgroup))
        .transpose()
        .context("--server-cgroup")?;
    Ok(ServerSideReader::new(endpoint, group))
}

fn targets(args: &FindArgs, style: &RequestFraming, files: &InputFiles) -> anyhow::Result<RequestList> {
    ensure!(
        args.url.is_some() || args.targets != "stdin" || !stdin().is_terminal(),
        "no target: give a URL, -targets FILE, or targets on standard input"
    );
    let aim = TargetFlags {
        attack_name: "",
        urls: args.url.as_deref().into_iter().collect(),
        targets_file: &args.targets,
        format: args.format,
        request_args: &args.request_args,
        expectation_args: &args.expectation_args,
        template_seed: args.template.then_some(args.seed),
        files,
    };
    aim.read_request_list(aim.open_request_reader(style)?)
}

/// Whom these requests ask.
pub(crate) fn target_info(requests: &[PreparedRequest], travel: &TransportOptions) -> TargetInfo {
    let is_name = |request: &PreparedRequest| request.origin().host.parse::<IpAddr>().is_err();
    TargetInfo {
        url: requests.first().map(|request| redact_url(request.url())).unwrap_or_default(),
        count: requests.len(),
        uses_tls: requests.iter().any(|request| request.origin().tls),
        has_host_name: travel.dial.unix_socket.is_none() && requests.iter().any(is_name),
    }
}

/// A URL without what may be a secret: user, password, query and fragment.
pub(crate) fn redact_url(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

/// Describes the connections of these requests.
pub(crate) fn connection_policy(travel: &TransportOptions, requests: &[PreparedRequest]) -> ConnectionPolicy {
    let bound = |most: u64, none: u64| (most != none).then_some(most);
    let origins = || requests.iter().map(PreparedRequest::origin);
    let tls = origins().any(|origin| origin.tls);
    let multiplexes = |origin: &Origin| origin.tls == tls && travel.multiplexes(origin);
    let protocol = match (tls, origins().any(multiplexes)) {
        (true, true) => "h2",
        (false, true) => "h2c",
        _ => "http/1.1",
    };
    ConnectionPolicy {
        keep_alive: origins().any(|origin| travel.reuses_connections(origin)),
        max_connections: bound(travel.max_connections as u64, usize::MAX as u64),
        requests_per_connection: bound(travel.max_requests_per_connection, u64::MAX),
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
            assert_eq!(redact_url(url), told);
        }
    }
}
