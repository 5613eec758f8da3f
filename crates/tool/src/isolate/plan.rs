//! From flags to ways that can be gone. No load has been sent when a mistake is found.

use std::collections::BTreeSet;
use std::io::{BufRead, Cursor, IsTerminal as _, stdin};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use seawall_isolate::segment::{Design, Times};
use seawall_isolate::study::Asked;
use seawall_lab::find::answer::Arrivals;
use seawall_lab::find::plan::Plan as Search;
use seawall_lab::isolate::bench::Bench;
use seawall_lab::isolate::limits::{Searches, for_whole};
use seawall_lab::isolate::ways::{Named, Way};
use seawall_lab::isolate::{Plan, least, least_rate};
use seawall_lab::remote::segments::Ways as Told;
use seawall_load::engine::Travel;
use seawall_load::files::Files;
use seawall_load::proxy::Proxy;
use seawall_load::request::{Origin, Request, Style, Unsendable};
use seawall_load::resolve::{HostPort, Lifetime};
use seawall_load::target::{Format, Target};
use seawall_load::variant::MOST_NAME;
use seawall_search::profile::Profile;

use super::args::Args;
use super::file::{self, MOST_WAYS, Ways};
use super::pods::gap;
use super::vary::{self, Aimed, Vary};
use super::way::{Draft, takes_body};
use crate::attack::aim::{self, Aim, Waits};
use crate::find::args::goal;
use crate::find::plan::{connections, public, target};
use crate::find::reach::Reach;

/// An experiment, and what it takes to carry it out.
pub(crate) struct Order {
    pub(crate) plan: Plan,
    /// What follows it.
    pub(super) searches: Option<Searches>,
    pub(crate) bench: Bench,
    pub(crate) reaches: Vec<Reaching>,
}

/// One request that a way is tried with before any load.
pub(crate) struct Reaching {
    name: String,
    url: String,
    reach: Reach,
}

/// Whose names are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Looks {
    /// This machine's, which sends.
    Here,
    /// The same of one of several that have to come to the same ways, in whatever order their addresses are told.
    Alike,
    /// Nobody's: others send, who may know other names and have other addresses. What hangs on them they say.
    Elsewhere,
}

/// Ways that are asked for, how they are gone and what they are called.
struct Drawn {
    drafts: Ways,
    ways: Vec<Way>,
    travel: Travel,
    style: Style,
}

/// The plan of an experiment that sends with so many threads at most, of files that are read so.
pub(super) fn plan(args: &Args, cpus: usize, files: &Files) -> anyhow::Result<Order> {
    ordered(args, cpus, drawn(args, files, Looks::Here)?)
}

/// The same on one of several machines that send together.
pub(crate) fn plan_alike(args: &Args, cpus: usize, files: &Files) -> anyhow::Result<Order> {
    ordered(args, cpus, drawn(args, files, Looks::Alike)?)
}

/// What can be known to be wrong of an experiment that others send, who say then which ways there are.
pub(super) fn check(args: &Args, files: &Files, pods: usize) -> anyhow::Result<()> {
    let drawn = drawn(args, files, Looks::Elsewhere)?;
    enough(args, &asked(args, drawn.drafts.variants.iter().map(Draft::design), gap(pods)), pods)
}

/// The plan of an experiment whose ways so many pods have told.
pub(super) fn plan_told(args: &Args, told: Told, pods: usize) -> anyhow::Result<Plan> {
    let asked = asked(args, told.ways.iter().skip(1).map(|way| way.design), gap(pods));
    enough(args, &asked, pods)?;
    let ways = told.ways.into_iter().map(|way| Named { name: way.name, what: way.what }).collect();
    Ok(Plan { asked, ways, target: told.target })
}

fn enough(args: &Args, asked: &Asked, pods: usize) -> anyhow::Result<()> {
    let least = least_rate(asked.designs.len() + 1, pods, asked.times);
    ensure!(
        asked.rate >= least,
        "--rate must be {least:.0}/s or more from {pods} pods: each is to send every way in each cell"
    );
    enough_time(asked, args.find)
}

/// Why pods search nothing after a comparison.
pub(crate) const NO_SEARCH: &str =
    "--find: pods compare ways, and search them one at a time with seawall find --on";

fn drawn(args: &Args, files: &Files, looks: Looks) -> anyhow::Result<Drawn> {
    let mut style = args.travel.style(false)?;
    let waits = Waits { timeout: args.timeout, deadline: None, redirects: args.redirects };
    let mut travel = args.travel.engine(waits, &style, files)?;
    let file = args.experiment.as_deref().map(|path| file::read(path, files)).transpose()?;
    let targets = targets(args, file.as_ref().and_then(Ways::url), files)?;
    // What a factor comes to depends on it.
    if args.vary.iter().any(Vary::is_of_names) || file.as_ref().is_some_and(Ways::look_up) {
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
    if mistakes.is_empty() && !args.is_comparison() {
        mistakes = repetitions(&all, &ways, &travel);
    }
    ensure!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    Ok(Drawn { drafts, ways, travel, style })
}

fn ordered(args: &Args, cpus: usize, drawn: Drawn) -> anyhow::Result<Order> {
    let Drawn { drafts, ways, travel, style } = drawn;
    let all: Vec<_> = drafts.all().collect();
    let reaches = all.iter().zip(&ways).map(|(draft, way)| reaching(draft, way, &travel, &style));
    let reaches = reaches.collect::<anyhow::Result<_>>()?;
    let target = ways[0].requests.first().map(|request| public(&request.url)).unwrap_or_default();
    let ways_of_plan = all.iter().map(|draft| Named { name: draft.name.clone(), what: draft.what.clone() });
    let asked = asked(args, drafts.variants.iter().map(Draft::design), Duration::ZERO);
    enough_time(&asked, args.find)?;
    let plan = Plan { asked, ways: ways_of_plan.collect(), target };
    let searches = args.find.then(|| searches(args, &ways, &travel)).transpose()?;
    let bench = Bench::new(ways, travel, style, cpus).context("cannot raise the open files limit")?;
    Ok(Order { plan, searches, bench, reaches })
}

/// A lookup shows where there is one for each request, and in all ways alike.
fn look_up_each(travel: &mut Travel, style: &mut Style) {
    (travel.dial.lifetime, travel.keep_alive, style.close) = (Lifetime::Connection, false, true);
}

fn asked(args: &Args, designs: impl Iterator<Item = Design>, gap: Duration) -> Asked {
    Asked {
        designs: designs.collect(),
        rate: args.rate.0,
        margin: args.margin.0,
        tail: args.tail,
        budget: args.budget_of_comparison(),
        times: Times { gap, ..Times::USUAL },
        seed: args.seed,
    }
}

/// What has no time for a first look tells nothing, however long it sends.
fn enough_time(asked: &Asked, find: bool) -> anyhow::Result<()> {
    let least = least(asked);
    let (whole, with) = if find { (for_whole(least), " with --find") } else { (least, "") };
    ensure!(
        asked.budget >= least,
        "--budget must be {whole:?} or more{with}: the first look at so many ways, at this rate and in their turns, takes that"
    );
    Ok(())
}

/// Searches of ways, as they are compared.
fn searches(args: &Args, ways: &[Way], travel: &Travel) -> anyhow::Result<Searches> {
    let goal = goal(args.slo.as_ref())?;
    let plan = |way: &Way| {
        let travel = way.travel(travel);
        Search {
            goal,
            profile: Profile::QUICK,
            max_rate: args.max_rate.map(|most| most.0),
            budget: None,
            cause: false,
            target: target(&way.requests, travel),
            arrivals: Arrivals::Even,
            connections: connections(travel, &way.requests),
            timeout: travel.timeout,
            sent: None,
        }
    };
    // Two builds were named to be held beside each other.
    let all = args.is_comparison();
    Ok(Searches { plans: ways.iter().map(plan).collect(), budget: args.budget(), all })
}

/// Asks every way for one answer.
///
/// # Errors
/// Ways to which there is no connection, all of them.
pub(crate) fn reach(reaches: Vec<Reaching>, is_ended: impl Fn() -> bool) -> anyhow::Result<()> {
    let mut mistakes = Vec::new();
    for Reaching { name, url, reach } in reaches {
        if let Err(error) = reach.ask(&url, &is_ended) {
            mistakes.push(format!("{name}: {error:#}"));
        }
    }
    if mistakes.is_empty() { Ok(()) } else { bail!("{}", mistakes.join("\n")) }
}

fn reaching(draft: &Draft, way: &Way, travel: &Travel, style: &Style) -> anyhow::Result<Reaching> {
    let reach = Reach::of(&way.requests, way.travel(travel), style)?;
    let url = way.requests.first().map(|request| public(&request.url)).unwrap_or_default();
    Ok(Reaching { name: draft.name.clone(), url, reach })
}

/// What is sent, as it was written. An experiment file whose ways all have a URL is asked for by that of its reference, where nothing else is
/// said.
fn targets(args: &Args, of_file: Option<&str>, files: &Files) -> anyhow::Result<Vec<Target>> {
    let of_file = of_file.filter(|_| args.targets == "stdin");
    let url = args.url.as_deref().or(args.a.as_deref()).or(of_file);
    ensure!(
        url.is_some() || args.targets != "stdin" || !stdin().is_terminal(),
        "no target: seawall isolate URL, or -targets FILE, or targets on standard input"
    );
    let aim = Aim {
        name: "",
        targets: if url.is_some() { "URL" } else { &args.targets },
        format: if url.is_some() { Format::Http } else { args.format },
        header: &args.header,
        body: &args.body,
        template: None,
        files,
    };
    let input: Box<dyn BufRead + Send> = match url {
        Some(url) => Box::new(Cursor::new(format!("GET {}\n", one_word(url)?))),
        None => aim::open(&args.targets, files)?,
    };
    let targets = aim.written(input)?;
    ensure!(!targets.is_empty(), "{}: no targets", aim.targets);
    Ok(targets)
}

fn one_word(url: &str) -> anyhow::Result<&str> {
    let is_one = !url.contains(|letter: char| letter.is_whitespace() || letter.is_control());
    ensure!(is_one, "{url:?} is no URL: there is a space in it");
    Ok(url)
}

/// All ways that are asked for, by flags or by a file.
fn drafts(
    args: &Args,
    file: Option<Ways>,
    targets: &[Target],
    (travel, style): (&Travel, &Style),
    looks: Looks,
) -> anyhow::Result<Ways> {
    if let (Some(a), Some(b)) = (&args.a, &args.b) {
        let b = Draft { url: Some(one_word(b)?.to_owned()), ..Draft::named("b", public(b)) };
        return Ok(Ways { reference: Draft::named("a", public(a)), variants: vec![b] });
    }
    let flags_alone =
        || Ways { reference: Draft::named("reference", "as the flags have it"), variants: Vec::new() };
    let mut ways = file.unwrap_or_else(flags_alone);
    let reference = &ways.reference;
    let requests = requests(reference, targets, style).with_context(|| reference.name.clone())?;
    let travel = &apart(reference, travel);
    let is_known = looks != Looks::Elsewhere;
    let mut addresses =
        if is_known { travel.dial.addresses(&requests[0].origin).unwrap_or_default() } else { Vec::new() };
    if looks == Looks::Alike {
        addresses.sort_unstable();
    }
    let is_named = is_known && args.vary.iter().any(Vary::is_of_names);
    let absolute = is_named.then(|| absolute_name(&requests[0].origin, travel, &addresses)).flatten();
    let aimed = Aimed { request: &requests[0], requests: &requests, travel, addresses: &addresses, absolute };
    let mut mistakes = Vec::new();
    for vary in args.vary.iter().filter(|vary| is_known || !vary.looks_up()) {
        match vary.ways(&aimed) {
            Ok(more) => ways.variants.extend(more.into_iter().map(|way| way.on(&ways.reference))),
            // The same factor twice is one mistake.
            Err(why) if mistakes.contains(&why) => {}
            Err(why) => mistakes.push(why),
        }
    }
    mistakes.extend(unfit(&ways));
    ensure!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    Ok(ways.in_turns())
}

/// What is wrong with ways together, wherever they come from: how many there are, and what they are called.
fn unfit(ways: &Ways) -> Vec<String> {
    let mut mistakes = Vec::new();
    if ways.variants.len() > MOST_WAYS {
        mistakes.push(format!("{} ways: {MOST_WAYS} at most share the rate", ways.variants.len()));
    }
    let is_long = |way: &&Draft| way.name.len() > MOST_NAME;
    let long = ways.variants.iter().filter(is_long);
    mistakes.extend(long.map(|way| {
        let name = &way.name;
        format!("--vary {name}: more than {MOST_NAME} bytes: say it in an experiment file, with a name")
    }));
    let mut names = BTreeSet::new();
    let again = ways.all().filter(|way| !names.insert(&way.name));
    mistakes.extend(again.map(|way| format!("{:?} is the name of two ways", way.name)));
    mistakes
}

/// The name with a final dot that leads where this one does.
fn absolute_name(origin: &Origin, travel: &Travel, addresses: &[SocketAddr]) -> Option<String> {
    // A system without the file has no search domains.
    let conf = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let (host, port) = vary::place_of(origin);
    let leads_there = |name: &String| {
        let origin = Origin { host: name.clone(), port, variant: None, ..origin.clone() };
        let found = travel.dial.addresses(&origin).unwrap_or_default();
        found.iter().any(|address| addresses.contains(address))
    };
    vary::absolute(&host, &conf).into_iter().find(leads_there)
}

/// What is sent that way.
fn requests(draft: &Draft, targets: &[Target], style: &Style) -> Result<Vec<Request>, Unsendable> {
    let variant = Arc::new(draft.variant());
    let request = |target: &Target| {
        let mut target = Target { variant: Some(Arc::clone(&variant)), ..target.clone() };
        if let Some(url) = &draft.url {
            target.url.clone_from(url);
        }
        if let Some(bytes) = draft.body {
            target.body = vec![b'x'; bytes].into();
        }
        Request::new(&target, style)
    };
    targets.iter().map(request).collect()
}

/// A way that can be gone: its requests are sendable, and their names have addresses.
fn way(
    draft: &Draft,
    targets: &[Target],
    (travel, style): (&Travel, &Style),
    looks: Looks,
) -> anyhow::Result<Way> {
    let urls = targets.iter().map(|target| &target.url).collect::<BTreeSet<_>>().len();
    ensure!(
        draft.url.is_none() || urls == 1,
        "a URL takes the place of one, and the targets have {urls}: other requests would be compared"
    );
    let requests = requests(draft, targets, style)?;
    let bodiless = requests.iter().map(|request| &request.method).find(|method| !takes_body(method));
    if let (Some(_), Some(method)) = (draft.body, bodiless) {
        bail!("body: a {method} has none, and would be another request: say with -targets what is posted");
    }
    let apart = (draft.design() == Design::Blocks).then(|| apart(draft, travel));
    if looks != Looks::Elsewhere {
        can_be_gone(draft, &requests, apart.as_ref().unwrap_or(travel))?;
    }
    Ok(Way { requests, apart })
}

/// What the machine that sends must have: addresses of all names, and the one that is sent from.
fn can_be_gone(draft: &Draft, requests: &[Request], travel: &Travel) -> anyhow::Result<()> {
    if let Some(source) = draft.source {
        UdpSocket::bind((source, 0)).with_context(|| format!("nothing can be sent from {source}"))?;
    }
    let dial = &travel.dial;
    let origins: BTreeSet<&Origin> = requests.iter().map(|request| &request.origin).collect();
    for origin in origins {
        if let Err(fault) = dial.addresses(origin) {
            let place = |(host, port): &HostPort| format!("{host}:{port}");
            let proxies = draft.proxies.as_deref().unwrap_or(&dial.proxies);
            let named = match (proxies.of(origin), &draft.address) {
                (Some(proxy), _) => format!("the proxy {}", place(&proxy.place)),
                (None, Some(address)) => place(address),
                (None, None) => origin.to_string(),
            };
            bail!("no address was found for {named}: {}", seawall_load::fault::Fault::Resolve(fault));
        }
    }
    Ok(())
}

/// What a way cannot have, as its target and the reference are.
fn contradictions(drafts: &[&Draft], ways: &[Way], travel: &Travel) -> Vec<String> {
    let origins = |at: usize| ways[at].requests.iter().map(|request| &request.origin);
    let has_proxy = |at: usize| {
        let proxies = drafts[at].proxies.as_deref().unwrap_or(&travel.dial.proxies);
        origins(at).any(|origin| proxies.of(origin).is_some())
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
            "there is no proxy to go around: the reference is asked through none",
        );
        let is_plain = !origins(at).any(|origin| origin.tls);
        refuse(
            is_plain && draft.insecure,
            "insecure is for https://, and its URL is http://: there is no certificate",
        );
        refuse(
            is_plain && draft.server_name.is_some(),
            "server-name is for https://, and its URL is http://: there is no certificate",
        );
    }
    mistakes
}

/// Ways that come out as the reference, whatever was written: "not the cause" said nothing of them.
fn repetitions(drafts: &[&Draft], ways: &[Way], travel: &Travel) -> Vec<String> {
    let reference = Gone::of(drafts[0], &ways[0], travel);
    let variants = drafts.iter().zip(ways).skip(1);
    let same = variants.filter(|(draft, way)| Gone::of(draft, way, travel) == reference);
    let told = |(draft, _): (&&Draft, &Way)| {
        format!("{}: it is gone exactly as {} is: nothing differs", draft.name, drafts[0].name)
    };
    same.map(told).collect()
}

/// What two ways that are one have in common.
#[derive(PartialEq)]
struct Gone<'a> {
    connections: usize,
    sources: &'a [IpAddr],
    body: Option<usize>,
    insecure: bool,
    requests: Vec<Sent<'a>>,
}

/// The same of a request.
#[derive(PartialEq)]
struct Sent<'a> {
    url: &'a str,
    close: bool,
    multiplexes: bool,
    proxy: Option<&'a Proxy>,
    /// Where else than where the URL says.
    address: Option<&'a HostPort>,
    server_name: Option<&'a str>,
}

impl<'a> Gone<'a> {
    fn of(draft: &'a Draft, way: &'a Way, travel: &'a Travel) -> Self {
        let travel = way.travel(travel);
        let proxies = draft.proxies.as_deref().unwrap_or(&travel.dial.proxies);
        let sent = |request: &'a Request| {
            let origin = &request.origin;
            let proxy = proxies.of(origin);
            let own = (origin.host.clone(), origin.port);
            let dial = &travel.dial;
            let elsewhere = |place: &&HostPort| **place != own || dial.connect_to.contains_key(&own);
            let is_dialled = proxy.is_none() && dial.unix_socket.is_none();
            Sent {
                url: &request.url,
                close: request.close,
                multiplexes: travel.multiplexes(origin),
                proxy,
                address: draft.address.as_ref().filter(|_| is_dialled).filter(elsewhere),
                server_name: draft.server_name.as_deref().filter(|name| *name != origin.host),
            }
        };
        Self {
            connections: travel.connections,
            sources: &travel.sources,
            body: draft.body,
            insecure: draft.insecure,
            requests: way.requests.iter().map(sent).collect(),
        }
    }
}

fn apart(draft: &Draft, travel: &Travel) -> Travel {
    let mut travel = travel.clone();
    if let Some(connections) = draft.connections {
        (travel.connections, travel.idle) = (connections, connections);
    }
    if let Some(source) = draft.source {
        travel.sources = vec![source];
    }
    travel
}
