//! The facts that do not change during a run, as text: the target and the load.

use seawall_load::clock::nanos;
use seawall_load::engine::RunPlan;
use seawall_load::interval_row::RunInfo;
use seawall_load::request_source::RequestSource;
use seawall_load::schedule::ArrivalModel;

use crate::attack::args::AttackArgs;
use crate::brief_time::format_brief_time;
use crate::find::formatting::pluralize;

/// Facts of a plan that came from these flags.
pub(super) fn build_run_info(args: &AttackArgs, plan: &RunPlan) -> RunInfo {
    let open = matches!(plan.load.arrivals, ArrivalModel::Open(_));
    RunInfo {
        target: target(args, &plan.session.source),
        load_description: load(args, plan),
        end: plan.load.known_end(),
        max_requests: Some(plan.load.stop_condition.max_requests).filter(|&hits| hits != u64::MAX),
        max_in_flight: plan.load.in_flight_limit.limit,
        is_open_loop: open,
        // The other shards would go on at the old rate.
        steerable: open && plan.load.shard.is_whole(),
        warm_up_end: nanos(plan.load.warm_up),
    }
}

/// The target, the load and its end, on one line.
pub(super) fn format_headline(facts: &RunInfo) -> String {
    let mut text = format!("{}, {}", facts.target, facts.load_description);
    if let Some(hits) = facts.max_requests {
        text += &format!(", {}", pluralize(hits, "request"));
    }
    if let Some(end) = facts.end {
        text += &format!(", for {}", format_brief_time(end));
    }
    text
}

fn target(args: &AttackArgs, source: &RequestSource) -> String {
    let RequestSource::List(list) = source else { return format!("targets read from {}", args.targets) };
    let requests = list.requests();
    let first =
        requests.first().map(|first| format!("{} {}", first.method(), first.url())).unwrap_or_default();
    match requests.len() {
        0 | 1 => first,
        many => format!("{many} targets, starting with {first}"),
    }
}

fn load(args: &AttackArgs, plan: &RunPlan) -> String {
    let whole = whole_load(args, plan);
    if plan.load.shard.is_whole() { whole } else { format!("shard {} of {whole}", plan.load.shard) }
}

fn whole_load(args: &AttackArgs, plan: &RunPlan) -> String {
    match (&plan.load.arrivals, &args.stages) {
        // ab opens a connection per request, and hey and oha do not: the same flags, another load.
        (ArrivalModel::Closed, _) if !plan.session.transport.keep_alive => {
            format!("closed loop of {}, a connection per request", plan.load.in_flight_limit.limit)
        }
        (ArrivalModel::Closed, _) => format!("closed loop of {}", plan.load.in_flight_limit.limit),
        (ArrivalModel::Open(_), Some(profile)) => profile.clone(),
        (ArrivalModel::Open(schedule), None) => format!("open loop at {}/s", schedule.rate_at(0)),
    }
}
