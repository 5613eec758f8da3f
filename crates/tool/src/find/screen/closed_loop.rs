//! The words for a run with `--closed-loop`: clients where rates would be.

use seawall_lab::find::find_report::{
    ClosedLoopResult, FindConfig, FindOutcome, FindReport, ReportedMaxClients,
};

use super::format_slo;
use crate::find::formatting::{format_clients, format_count, format_rate_without_unit, format_seconds};

pub(super) fn format_headline(closed: &ClosedLoopResult, answer: &FindReport) -> String {
    let ReportedMaxClients { most_good_clients: good, fewest_bad_clients: bad, .. } = closed.client_limit;
    let held =
        good.map_or_else(|| "no client was sustained".to_owned(), |good| format!("{} sustained", were(good)));
    let between = match (format_bracket(closed), good, bad) {
        (Some(bracket), ..) if closed.client_limit.lower.is_some() => {
            format!("the target sustains at most {bracket} clients")
        }
        (_, Some(good), Some(bad)) => {
            format!("the target sustains {good} clients but not {bad}, as far as tested")
        }
        (_, None, Some(bad)) => format!("the target does not sustain {}", format_clients(bad)),
        _ => held.clone(),
    };
    match answer.outcome {
        FindOutcome::Found | FindOutcome::Metastable => format!("FOUND: {between}"),
        FindOutcome::NoLimitFound => {
            format!(
                "NO LIMIT FOUND: the target did not break up to {}; {held}",
                format_clients(closed.max_clients)
            )
        }
        FindOutcome::GeneratorLimited => {
            format!(
                "GENERATOR-LIMITED: the target's limit is unknown, because the generator was the limit; {held}"
            )
        }
        FindOutcome::TargetDied => "TARGET DIED: the target stopped answering".to_owned(),
        FindOutcome::UnstableBaseline => {
            "UNSTABLE BASELINE: even a single client gets no good response".to_owned()
        }
        FindOutcome::Undecided => format!("UNDECIDED: the trials do not agree on a limit; {held}"),
        FindOutcome::Interrupted => format!("INTERRUPTED: no limit was found; {held}"),
    }
}

fn were(number: u32) -> String {
    format!("{} {}", format_clients(number), if number == 1 { "was" } else { "were" })
}

pub(super) fn format_goal(closed: &ClosedLoopResult, asked: &FindConfig) -> String {
    let connections = if asked.connections.keep_alive { "keep-alive" } else { "one connection per request" };
    format!(
        "{}; closed loop, at most {} clients; {connections} ({}), {}",
        format_slo(asked),
        format_count(closed.max_clients.into()),
        asked.connections.protocol,
        asked.effort
    )
}

/// The bracket in a few words; without one what was tested.
pub(in crate::find) fn format_bracket(closed: &ClosedLoopResult) -> Option<String> {
    let ReportedMaxClients { lower, upper, most_good_clients: good, fewest_bad_clients: bad, .. } =
        closed.client_limit;
    match (lower.zip(upper), good, bad) {
        (Some((lower, upper)), ..) if lower == upper => Some(lower.to_string()),
        (Some((lower, upper)), ..) => Some(format!("{lower} to {upper}")),
        (None, Some(good), Some(bad)) => Some(format!("{good} / {bad}")),
        (None, Some(good), None) => Some(format!("> {good}")),
        _ => None,
    }
}

/// Names and texts.
pub(super) fn closed_loop_rows(
    closed: &ClosedLoopResult,
    answer: &FindReport,
) -> Vec<(&'static str, String)> {
    let mut rows = vec![("clients", limit(&closed.client_limit, answer))];
    rows.extend(answer.failure_mode.map(|fails| ("overloaded", super::in_words_of(fails).to_owned())));
    if let Some(found) = closed.saturation {
        let short = found
            .highest_unsaturated_clients
            .map_or_else(String::new, |short| format!("; {short} clients do not"));
        let more = if found.is_confirmed { "" } else { "; more clients may reach a higher rate" };
        rows.push((
            "saturation",
            format!(
                "at most {} good responses/s (± {}){more}",
                format_rate_without_unit(found.rate),
                format_rate_without_unit(found.standard_deviation)
            ),
        ));
        rows.push((
            "enough",
            format!("{} reach at least 95 % of the saturation rate{short}", format_clients(found.clients)),
        ));
        rows.push((
            "Little's law",
            format!(
                "{} clients would reach the saturation rate if no request waited for another",
                format_count(found.littles_law_clients.ceil())
            ),
        ));
    }
    rows.extend(
        closed
            .service_time_seconds
            .map(|service| ("one client", format!("gets a response after {}", format_seconds(service)))),
    );
    rows
}

fn limit(limit: &ReportedMaxClients, answer: &FindReport) -> String {
    let bracket = match (limit.lower, limit.estimate, limit.upper) {
        (Some(lower), Some(point), Some(upper)) => {
            let so_far = if answer.is_found() { "" } else { " so far" };
            format!("{point}, 97 % interval {lower} to {upper}{so_far}; ")
        }
        _ if answer.is_found() => "no interval; tested: ".to_owned(),
        _ => "not found; tested: ".to_owned(),
    };
    let good = limit.most_good_clients.map(|good| {
        let time =
            limit.held_seconds.map_or_else(String::new, |time| format!(" for {}", format_seconds(time)));
        format!("GOOD {good}{time}")
    });
    let tested: Vec<_> =
        good.into_iter().chain(limit.fewest_bad_clients.map(|bad| format!("BAD {bad}"))).collect();
    format!("{bracket}{}", if tested.is_empty() { "none".to_owned() } else { tested.join(", ") })
}
