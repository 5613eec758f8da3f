//! From flags to variants that can be sent. All mistakes are found before any load is sent.

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, stdin};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use seawall_isolate::segment::{SegmentTimes, VariantOrder};
use seawall_isolate::study::StudyConfig;
use seawall_lab::find::find_report::ReportedArrivals;
use seawall_lab::find::plan::FindPlan as Search;
use seawall_lab::isolate::local_runner::LocalVariantRunner;
use seawall_lab::isolate::variant_capacity::{CapacityPlan, total_budget};
use seawall_lab::isolate::variant_setup::{VariantLabel, VariantRequests};
use seawall_lab::isolate::{IsolatePlan, min_budget, min_rate};
use seawall_lab::remote_tasks::isolate_tasks::VariantList as Told;
use seawall_load::engine::TransportOptions;
use seawall_load::input_files::InputFiles;
use seawall_load::origin_resolution::{AddressLifetime, HostPort};
use seawall_load::proxy::HttpProxy;
use seawall_load::request::{Origin, PreparedRequest, RequestBuildError, RequestFraming};
use seawall_load::target::Target;
use seawall_load::variant::MOST_NAME;
use seawall_search::search_profile::Profile;

use super::args::IsolateArgs;
use super::experiment_file::{self, MAX_VARIANTS, VariantDrafts};
use super::factors::{self, FactorContext, FactorSpec};
use super::pods::segment_overhead;
use super::variant_draft::{VariantDraft, method_takes_body};
use crate::attack::request_args;
use crate::attack::targets::{RequestLimits, TargetFlags};
use crate::find::args::search_goal;
use crate::find::plan::{connection_policy, redact_url, target_info};
use crate::find::reach_check::ReachCheck;

/// An experiment with all that its run needs.
pub(crate) struct IsolateRun {
    pub(crate) plan: IsolatePlan,
    /// The plan of the searches that follow.
    pub(super) capacity_plan: Option<CapacityPlan>,
    pub(crate) runner: LocalVariantRunner,
    pub(crate) reach_checks: Vec<VariantReachCheck>,
}

/// The single request that tests a variant before any load.
pub(crate) struct VariantReachCheck {
    name: String,
    url: String,
    reach: ReachCheck,
}

/// The machine that looks up names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LookupScope {
    /// This machine, which alone sends.
    Local,
    /// This machine, one of several. Addresses are sorted, so that all machines make the same variants.
    LocalSortedAddresses,
    /// No lookup here: pods send, which may know other names and addresses. They report whatever depends on these.
    Remote,
}

/// The variants that flags and file ask for, and how to send each of them.
struct PreparedVariants {
    drafts: VariantDrafts,
    ways: Vec<VariantRequests>,
    travel: TransportOptions,
    style: RequestFraming,
}

/// Makes the plan of an experiment that sends with at most this many threads and reads these files.
pub(super) fn plan_local_run(
    args: &IsolateArgs,
    cpus: usize,
    files: &InputFiles,
) -> anyhow::Result<IsolateRun> {
    build_run(args, cpus, prepare_variants(args, files, LookupScope::Local)?)
}

/// Makes the plan on one of several machines that send together.
pub(crate) fn plan_inside_pod(
    args: &IsolateArgs,
    cpus: usize,
    files: &InputFiles,
) -> anyhow::Result<IsolateRun> {
    build_run(args, cpus, prepare_variants(args, files, LookupScope::LocalSortedAddresses)?)
}

/// Finds the mistakes of an experiment that pods send, as far as they show here; the pods then report their variants.
pub(super) fn check_plan_for_pods(args: &IsolateArgs, files: &InputFiles, pods: usize) -> anyhow::Result<()> {
    let drawn = prepare_variants(args, files, LookupScope::Remote)?;
    enough(
        args,
        &asked(
            args,
            drawn.drafts.variants.iter().map(VariantDraft::effective_design),
            segment_overhead(pods),
        ),
        pods,
    )
}

/// Makes the plan of an experiment whose variants this many pods have reported.
pub(super) fn plan_from_pods(args: &IsolateArgs, told: Told, pods: usize) -> anyhow::Result<IsolatePlan> {
    let asked = asked(args, told.ways.iter().skip(1).map(|way| way.design), segment_overhead(pods));
    enough(args, &asked, pods)?;
    let ways =
        told.ways.into_iter().map(|way| VariantLabel { name: way.name, description: way.what }).collect();
    Ok(IsolatePlan { config: asked, variants: ways, target: told.target })
}

fn enough(args: &IsolateArgs, asked: &StudyConfig, pods: usize) -> anyhow::Result<()> {
    let least = min_rate(asked.designs.len() + 1, pods, asked.times);
    ensure!(
        asked.rate >= least,
        "--rate must be at least {least:.0}/s from {pods} pods, so that each pod sends to every variant in each time bucket"
    );
    enough_time(asked, args.capacity)
}

/// The error for `--capacity` with `--on`.
pub(crate) const CAPACITY_NOT_WITH_PODS: &str =
    "--capacity does not work with --on: find the limit of each variant with seawall find --on";

fn prepare_variants(
    args: &IsolateArgs,
    files: &InputFiles,
    looks: LookupScope,
) -> anyhow::Result<PreparedVariants> {
    let mut style = args.connection_args.request_framing(false)?;
    let waits = RequestLimits { timeout: args.timeout, deadline: None, max_redirects: args.redirects };
    let mut travel = args.connection_args.to_transport_options(waits, &style, files)?;
    let file = args
        .experiment
        .as_deref()
        .map(|path| experiment_file::read_experiment_file(path, files))
        .transpose()?;
    let targets = targets(args, file.as_ref().and_then(VariantDrafts::reference_url), files)?;
    // What a factor comes to depends on it.
    if args.factors.iter().any(FactorSpec::varies_name_resolution)
        || file.as_ref().is_some_and(VariantDrafts::any_looks_up_per_connection)
    {
        look_up_each(&mut travel, &mut style);
    }
    let drafts = drafts(args, file, &targets, (&travel, &style), looks)?;
    let all: Vec<_> = drafts.all().collect();
    let (mut ways, mut mistakes) = (Vec::new(), Vec::new());
    for draft in &all {
        match way(draft, &targets, (&travel, &style), looks) {
            Ok(way) => ways.push(way),
            Err(error) => mistakes.push(format!("{}: {error:#}", draft.name)),
        }
    }
    ensure!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    let mut mistakes = contradictions(&all, &ways, &travel);
    // Two URLs may be one, to see what is told of nothing.
    if mistakes.is_empty() && !args.compares_two_urls() {
        mistakes = repetitions(&all, &ways, &travel);
    }
    ensure!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    let requests = ways.iter().flat_map(|way| &way.requests);
    args.connection_args.warn_of_unused_connect_to(requests.map(PreparedRequest::origin));
    Ok(PreparedVariants { drafts, ways, travel, style })
}

fn build_run(args: &IsolateArgs, cpus: usize, drawn: PreparedVariants) -> anyhow::Result<IsolateRun> {
    let PreparedVariants { drafts, ways, travel, style } = drawn;
    let all: Vec<_> = drafts.all().collect();
    let reaches = all.iter().zip(&ways).map(|(draft, way)| reach_check(draft, way, &travel, &style));
    let reaches = reaches.collect::<anyhow::Result<_>>()?;
    let target = ways[0].requests.first().map(|request| redact_url(request.url())).unwrap_or_default();
    let ways_of_plan = all
        .iter()
        .map(|draft| VariantLabel { name: draft.name.clone(), description: draft.description.clone() });
    let asked = asked(args, drafts.variants.iter().map(VariantDraft::effective_design), Duration::ZERO);
    enough_time(&asked, args.capacity)?;
    let plan = IsolatePlan { config: asked, variants: ways_of_plan.collect(), target };
    let searches = args.capacity.then(|| searches(args, &ways, &travel)).transpose()?;
    let bench =
        LocalVariantRunner::new(ways, travel, style, cpus).context("cannot raise the open files limit")?;
    Ok(IsolateRun { plan, capacity_plan: searches, runner: bench, reach_checks: reaches })
}

/// Makes each request of every variant look up the name: otherwise the cost of a lookup is invisible.
fn look_up_each(travel: &mut TransportOptions, style: &mut RequestFraming) {
    (travel.dial.address_lifetime, travel.keep_alive, style.close) =
        (AddressLifetime::Connection, false, true);
}

fn asked(args: &IsolateArgs, designs: impl Iterator<Item = VariantOrder>, gap: Duration) -> StudyConfig {
    StudyConfig {
        designs: designs.collect(),
        rate: args.rate.0,
        margin: args.margin.0,
        until_p99: args.until_p99,
        budget: args.comparison_budget(),
        times: SegmentTimes { idle_before_settle: gap, ..SegmentTimes::DEFAULT_DURATIONS },
        seed: args.seed,
    }
}

/// Checks that the budget suffices for a first evaluation; without one, the experiment would tell nothing.
fn enough_time(asked: &StudyConfig, find: bool) -> anyhow::Result<()> {
    let least = min_budget(asked);
    let (whole, with) = if find { (total_budget(least), " with --capacity") } else { (least, "") };
    ensure!(
        asked.budget >= least,
        "--budget must be at least {whole:?}{with}: the first evaluation of this many variants takes that long at this rate"
    );
    Ok(())
}

/// Plans a search of each variant, as it is compared.
fn searches(
    args: &IsolateArgs,
    ways: &[VariantRequests],
    travel: &TransportOptions,
) -> anyhow::Result<CapacityPlan> {
    let goal = search_goal(&args.slo)?;
    let plan = |way: &VariantRequests| {
        let travel = way.transport(travel);
        Search {
            goal,
            profile: Profile::QUICK,
            max_rate: args.max_rate.map(|most| most.0),
            budget: None,
            looks_for_cause: false,
            target_info: target_info(&way.requests, travel),
            arrivals: ReportedArrivals::Constant,
            connections: connection_policy(travel, &way.requests),
            timeout: travel.timeout,
            fingerprint: None,
        }
    };
    // Two builds were named to be held beside each other.
    let all = args.compares_two_urls();
    Ok(CapacityPlan {
        plans: ways.iter().map(plan).collect(),
        whole_run_budget: args.total_budget(),
        searches_all: all,
    })
}

/// Sends one request over each variant.
///
/// # Errors
/// Some variants have no connection; the error names all of them.
pub(crate) fn check_reachability(
    reaches: Vec<VariantReachCheck>,
    is_ended: impl Fn() -> bool,
) -> anyhow::Result<()> {
    let mut mistakes = Vec::new();
    for VariantReachCheck { name, url, reach } in reaches {
        if let Err(error) = reach.run(&url, &is_ended) {
            mistakes.push(format!("{name}: {error:#}"));
        }
    }
    if mistakes.is_empty() { Ok(()) } else { bail!("{}", mistakes.join("\n")) }
}

fn reach_check(
    draft: &VariantDraft,
    way: &VariantRequests,
    travel: &TransportOptions,
    style: &RequestFraming,
) -> anyhow::Result<VariantReachCheck> {
    let reach = ReachCheck::for_first_target(&way.requests, way.transport(travel), style)?;
    let url = way.requests.first().map(|request| redact_url(request.url())).unwrap_or_default();
    Ok(VariantReachCheck { name: draft.name.clone(), url, reach })
}

/// Reads the targets. Without a target, an experiment file whose variants all have a URL supplies the URL of its reference.
fn targets(args: &IsolateArgs, of_file: Option<&str>, files: &InputFiles) -> anyhow::Result<Vec<Target>> {
    let of_file = of_file.filter(|_| args.targets == "stdin");
    let url = args.url.as_deref().or(args.a.as_deref()).or(of_file);
    ensure!(
        url.is_some() || args.targets != "stdin" || !stdin().is_terminal(),
        "no target: give a URL, -targets FILE, or targets on standard input"
    );
    let aim = TargetFlags {
        attack_name: "",
        urls: url.into_iter().collect(),
        targets_file: &args.targets,
        format: args.format,
        request_args: &args.request_args,
        expectation_args: &args.expectation_args,
        template_seed: None,
        files,
    };
    let targets = aim.read_targets()?;
    ensure!(!targets.is_empty(), "{}: no targets", aim.source_name());
    Ok(targets)
}

/// Makes all variants that flags or a file ask for.
fn drafts(
    args: &IsolateArgs,
    file: Option<VariantDrafts>,
    targets: &[Target],
    (travel, style): (&TransportOptions, &RequestFraming),
    looks: LookupScope,
) -> anyhow::Result<VariantDrafts> {
    if let (Some(a), Some(b)) = (&args.a, &args.b) {
        let (a, b) = (request_args::parse_url(a)?, request_args::parse_url(b)?);
        let reference = VariantDraft::new("a", redact_url(&a));
        let b = VariantDraft { url: Some(b.clone()), ..VariantDraft::new("b", redact_url(&b)) };
        return Ok(VariantDrafts { reference, variants: vec![b] });
    }
    let flags_alone = || VariantDrafts {
        reference: VariantDraft::new("reference", "as given by the flags"),
        variants: Vec::new(),
    };
    let mut ways = file.unwrap_or_else(flags_alone);
    let reference = &ways.reference;
    let requests = requests(reference, targets, style).with_context(|| reference.name.clone())?;
    let travel = &separate_session_transport(reference, travel);
    let is_known = looks != LookupScope::Remote;
    let mut addresses = if is_known {
        travel.dial.resolve_tcp_addresses(requests[0].origin()).unwrap_or_default()
    } else {
        Vec::new()
    };
    if looks == LookupScope::LocalSortedAddresses {
        addresses.sort_unstable();
    }
    let is_named = is_known && args.factors.iter().any(FactorSpec::varies_name_resolution);
    let absolute = is_named.then(|| absolute_name(requests[0].origin(), travel, &addresses)).flatten();
    let aimed = FactorContext {
        first_request: &requests[0],
        requests: &requests,
        transport: travel,
        addresses: &addresses,
        absolute_name: absolute,
    };
    let mut mistakes = Vec::new();
    for vary in args.factors.iter().filter(|vary| is_known || !vary.needs_resolved_addresses()) {
        match vary.build_drafts(&aimed) {
            Ok(more) => ways.variants.extend(more.into_iter().map(|way| way.inherit_from(&ways.reference))),
            // The same factor twice is one mistake.
            Err(why) if mistakes.contains(&why) => {}
            Err(why) => mistakes.push(why),
        }
    }
    mistakes.extend(unfit(&ways));
    ensure!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    Ok(ways.use_block_design_if_reference_does())
}

/// Returns the mistakes of the variants as a whole, from any source: their number and their names.
fn unfit(ways: &VariantDrafts) -> Vec<String> {
    let mut mistakes = Vec::new();
    if ways.variants.len() > MAX_VARIANTS {
        mistakes.push(format!("{} variants: expected at most {MAX_VARIANTS}", ways.variants.len()));
    }
    let is_long = |way: &&VariantDraft| way.name.len() > MOST_NAME;
    let long = ways.variants.iter().filter(is_long);
    mistakes.extend(long.map(|way| {
        let name = &way.name;
        format!("--factors {name}: a name has at most {MOST_NAME} bytes; use an experiment file and give the variant a name")
    }));
    let mut names = BTreeSet::new();
    let again = ways.all().filter(|way| !names.insert(&way.name));
    mistakes.extend(again.map(|way| format!("two variants have the name {:?}", way.name)));
    mistakes
}

/// Returns the absolute name (with a final dot) that leads to the same addresses.
fn absolute_name(origin: &Origin, travel: &TransportOptions, addresses: &[SocketAddr]) -> Option<String> {
    // A system without the file has no search domains.
    let conf = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let (host, port) = factors::connect_address(origin);
    let leads_there = |name: &String| {
        let origin = Origin { host: name.clone(), port, variant: None, ..origin.clone() };
        let found = travel.dial.resolve_tcp_addresses(&origin).unwrap_or_default();
        found.iter().any(|address| addresses.contains(address))
    };
    factors::absolute_name_candidates(&host, &conf).into_iter().find(leads_there)
}

/// Makes the requests of a variant.
fn requests(
    draft: &VariantDraft,
    targets: &[Target],
    style: &RequestFraming,
) -> Result<Vec<PreparedRequest>, RequestBuildError> {
    let variant = Arc::new(draft.to_variant());
    let request = |target: &Target| {
        let mut target = Target { variant: Some(Arc::clone(&variant)), ..target.clone() };
        if let Some(url) = &draft.url {
            target.url.clone_from(url);
        }
        if let Some(bytes) = draft.body_bytes {
            target.body = vec![b'x'; bytes].into();
        }
        PreparedRequest::new(&target, style)
    };
    targets.iter().map(request).collect()
}

/// Sets a variant up: its requests can be sent, and their names have addresses.
fn way(
    draft: &VariantDraft,
    targets: &[Target],
    (travel, style): (&TransportOptions, &RequestFraming),
    looks: LookupScope,
) -> anyhow::Result<VariantRequests> {
    let urls = targets.iter().map(|target| &target.url).collect::<BTreeSet<_>>().len();
    ensure!(
        draft.url.is_none() || urls == 1,
        "url replaces a single URL, but the targets have {urls} different URLs"
    );
    let requests = requests(draft, targets, style)?;
    let bodiless = requests.iter().map(PreparedRequest::method).find(|method| !method_takes_body(method));
    if let (Some(_), Some(method)) = (draft.body_bytes, bodiless) {
        bail!(
            "body: a {method} request has no body: list POST, PUT or PATCH targets in a file and pass it with -targets"
        );
    }
    let apart = (draft.effective_design() == VariantOrder::OneVariantPerBlock)
        .then(|| separate_session_transport(draft, travel));
    if looks != LookupScope::Remote {
        check_sendable(draft, &requests, apart.as_ref().unwrap_or(travel))?;
    }
    Ok(VariantRequests { requests, separate_transport: apart })
}

/// Checks that this machine can send the variant: all names have addresses, and the source address exists.
fn check_sendable(
    draft: &VariantDraft,
    requests: &[PreparedRequest],
    travel: &TransportOptions,
) -> anyhow::Result<()> {
    if let Some(source) = draft.source_address {
        UdpSocket::bind((source, 0)).with_context(|| format!("cannot send from {source}"))?;
    }
    let dial = &travel.dial;
    let origins: BTreeSet<&Origin> = requests.iter().map(PreparedRequest::origin).collect();
    for origin in origins {
        if let Err(fault) = dial.resolve_tcp_addresses(origin) {
            let place = |(host, port): &HostPort| format!("{host}:{port}");
            let proxies = draft.proxies.as_deref().unwrap_or(&dial.proxies);
            let named = match (proxies.for_origin(origin), &draft.address) {
                (Some(proxy), _) => format!("the proxy {}", place(&proxy.address)),
                (None, Some(address)) => place(address),
                (None, None) => origin.to_string(),
            };
            bail!(
                "found no address for {named}: {}",
                seawall_load::request_failure_reason::RequestFault::Resolve(fault)
            );
        }
    }
    Ok(())
}

/// Returns the settings of variants that contradict their target or the reference.
fn contradictions(
    drafts: &[&VariantDraft],
    ways: &[VariantRequests],
    travel: &TransportOptions,
) -> Vec<String> {
    let origins = |at: usize| ways[at].requests.iter().map(PreparedRequest::origin);
    let has_proxy = |at: usize| {
        let proxies = drafts[at].proxies.as_deref().unwrap_or(&travel.dial.proxies);
        origins(at).any(|origin| proxies.for_origin(origin).is_some())
    };
    let mut mistakes = Vec::new();
    for (at, draft) in drafts.iter().enumerate() {
        let mut refuse = |wrong: bool, why: &str| {
            if wrong {
                mistakes.push(format!("{}: {why}", draft.name));
            }
        };
        let is_around = draft.proxies.as_ref().is_some_and(|proxies| proxies.is_empty());
        refuse(
            at > 0 && is_around && !has_proxy(0),
            "the reference uses no proxy, so there is no proxy to leave out",
        );
        let is_plain = !origins(at).any(|origin| origin.tls);
        refuse(is_plain && draft.insecure, "insecure needs an https:// URL, but the URL is http://");
        refuse(
            is_plain && draft.server_name.is_some(),
            "server-name needs an https:// URL, but the URL is http://",
        );
    }
    mistakes
}

/// Returns an error for each variant that equals the reference: "not the cause" would say nothing about it.
fn repetitions(drafts: &[&VariantDraft], ways: &[VariantRequests], travel: &TransportOptions) -> Vec<String> {
    let reference = VariantKey::of(drafts[0], &ways[0], travel);
    let variants = drafts.iter().zip(ways).skip(1);
    let same = variants.filter(|(draft, way)| VariantKey::of(draft, way, travel) == reference);
    let told = |(draft, _): (&&VariantDraft, &VariantRequests)| {
        format!("{}: the variant does not differ from {}", draft.name, drafts[0].name)
    };
    same.map(told).collect()
}

/// The properties of a variant. Variants with equal properties are the same.
#[derive(PartialEq)]
struct VariantKey<'a> {
    connections: usize,
    sources: &'a [IpAddr],
    body: Option<usize>,
    insecure: bool,
    requests: Vec<RequestKey<'a>>,
}

/// The properties of a request of a variant.
#[derive(PartialEq)]
struct RequestKey<'a> {
    url: &'a str,
    close: bool,
    multiplexes: bool,
    proxy: Option<&'a HttpProxy>,
    /// The address to connect to in place of that of the URL.
    address: Option<&'a HostPort>,
    server_name: Option<&'a str>,
}

impl<'a> VariantKey<'a> {
    fn of(draft: &'a VariantDraft, way: &'a VariantRequests, travel: &'a TransportOptions) -> Self {
        let travel = way.transport(travel);
        let proxies = draft.proxies.as_deref().unwrap_or(&travel.dial.proxies);
        let sent = |request: &'a PreparedRequest| {
            let origin = request.origin();
            let proxy = proxies.for_origin(origin);
            let own = (origin.host.clone(), origin.port);
            let dial = &travel.dial;
            let elsewhere = |place: &&HostPort| **place != own || dial.connect_to.contains_key(&own);
            let is_dialled = proxy.is_none() && dial.unix_socket.is_none();
            RequestKey {
                url: request.url(),
                close: request.closes(),
                multiplexes: travel.multiplexes(origin),
                proxy,
                address: draft.address.as_ref().filter(|_| is_dialled).filter(elsewhere),
                server_name: draft.server_name.as_deref().filter(|name| *name != origin.host),
            }
        };
        Self {
            connections: travel.max_connections,
            sources: &travel.source_addresses,
            body: draft.body_bytes,
            insecure: draft.insecure,
            requests: way.requests.iter().map(sent).collect(),
        }
    }
}

fn separate_session_transport(draft: &VariantDraft, travel: &TransportOptions) -> TransportOptions {
    let mut travel = travel.clone();
    if let Some(connections) = draft.connections {
        (travel.max_connections, travel.max_idle_connections) = (connections, connections);
    }
    if let Some(source) = draft.source_address {
        travel.source_addresses = vec![source];
    }
    travel
}
