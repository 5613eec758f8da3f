//! The words for a run with `--closed`: clients where rates would be.

use seawall_lab::find::answer::{ClosedLoopResult, FindConfig, FindOutcome, FindReport, ReportedClientLimit};

use super::bounds;
use crate::find::words::{clients, count, rate, seconds};

pub(super) fn headline(closed: &ClosedLoopResult, answer: &FindReport) -> String {
    let ReportedClientLimit { good, bad, .. } = closed.limit;
    let held = good.map_or_else(|| "nothing was held".to_owned(), |good| format!("{} held", were(good)));
    let between = match (tile(closed), good, bad) {
        (Some(bracket), ..) if closed.limit.lower.is_some() => {
            format!("the most it bears is {bracket} clients")
        }
        (_, Some(good), Some(bad)) => format!("it bears {good} clients and not {bad}, as far as tested"),
        (_, None, Some(bad)) => format!("it does not bear {}", clients(bad)),
        _ => held.clone(),
    };
    match answer.outcome {
        FindOutcome::Found | FindOutcome::Metastable => format!("FOUND: {between}"),
        FindOutcome::Capped => format!("CAPPED: nothing broke up to {}; {held}", clients(closed.most)),
        FindOutcome::GeneratorLimited => {
            format!("GENERATOR-LIMITED: nothing is said of the target's limit; {held}")
        }
        FindOutcome::Gone => "GONE: nothing is answered any more".to_owned(),
        FindOutcome::UnstableBaseline => "UNSTABLE BASELINE: a single client has no good answer".to_owned(),
        FindOutcome::Interrupted => format!("INTERRUPTED: no limit was found; {held}"),
    }
}

fn were(number: u32) -> String {
    format!("{} {}", clients(number), if number == 1 { "was" } else { "were" })
}

pub(super) fn goal(closed: &ClosedLoopResult, asked: &FindConfig) -> String {
    let connections = if asked.connections.keep_alive { "kept" } else { "one per request" };
    format!(
        "{}; clients that wait for their answers, at most {}; connections {connections} ({}), {}",
        bounds(asked),
        count(closed.most.into()),
        asked.connections.protocol,
        asked.profile
    )
}

/// The bracket in a few words; without one what was tested.
pub(in crate::find) fn tile(closed: &ClosedLoopResult) -> Option<String> {
    let ReportedClientLimit { lower, upper, good, bad, .. } = closed.limit;
    match (lower.zip(upper), good, bad) {
        (Some((lower, upper)), ..) if lower == upper => Some(lower.to_string()),
        (Some((lower, upper)), ..) => Some(format!("{lower} to {upper}")),
        (None, Some(good), Some(bad)) => Some(format!("{good} / {bad}")),
        (None, Some(good), None) => Some(format!("> {good}")),
        _ => None,
    }
}

/// Names and texts.
pub(super) fn rows(closed: &ClosedLoopResult, answer: &FindReport) -> Vec<(&'static str, String)> {
    let mut rows = vec![("clients", limit(&closed.limit, answer))];
    rows.extend(answer.fails.map(|fails| ("above it", super::in_words_of(fails).to_owned())));
    if let Some(found) = closed.saturation {
        let short = found.short.map_or_else(String::new, |short| format!(", {short} did not"));
        let more = if found.reached { "" } else { "; more clients may get more" };
        rows.push((
            "saturation",
            format!("{}/s (± {}) good answers at most{more}", rate(found.rate), rate(found.deviation)),
        ));
        rows.push(("enough", format!("{} got nearly all of it{short}", clients(found.clients))));
        rows.push(("Little's law", format!("{} if nobody waited for another", count(found.little.ceil()))));
    }
    rows.extend(
        closed.service.map(|service| ("one client", format!("has its answers after {}", seconds(service)))),
    );
    rows
}

fn limit(limit: &ReportedClientLimit, answer: &FindReport) -> String {
    let bracket = match (limit.lower, limit.point, limit.upper) {
        (Some(lower), Some(point), Some(upper)) => {
            let so_far = if answer.is_found() { "" } else { " so far" };
            format!("{point}, {lower} to {upper} with 97 %{so_far}; ")
        }
        _ if answer.is_found() => "no bracket can be stated; tested: ".to_owned(),
        _ => "not found; tested: ".to_owned(),
    };
    let good = limit.good.map(|good| {
        let time = limit.good_for.map_or_else(String::new, |time| format!(" for {}", seconds(time)));
        format!("GOOD {good}{time}")
    });
    let tested: Vec<_> = good.into_iter().chain(limit.bad.map(|bad| format!("BAD {bad}"))).collect();
    format!("{bracket}{}", if tested.is_empty() { "none".to_owned() } else { tested.join(", ") })
}
