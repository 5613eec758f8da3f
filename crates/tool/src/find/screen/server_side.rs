//! The evidence from the target itself: each fact once, with all causes that it concerns. Counters that did not rise only exclude
//! causes, and there are many: they come last, and if they do not all fit, the output says how many more there are.

use seawall_lab::find::find_report::FindReport;
use seawall_lab::find::server_evidence::{ServerEvidence, server_evidence};

use super::{EVIDENCE, WORDS, fits};
use crate::find::formatting::format_rate_without_unit;

/// Returns names and texts of the evidence, the strongest first; without any evidence, the reason why it is not available.
pub(super) fn evidence_rows(answer: &FindReport, wide: usize) -> Vec<(&'static str, String)> {
    if server_evidence(&answer.server_metrics).is_empty() {
        let why = answer.server_metrics.iter().flat_map(|window| &window.unavailable).next();
        return why.map(|why| ("server", format!("not available: {why}"))).into_iter().collect();
    }
    // What is among the signs already need not be told twice.
    let shown = |says: &str| {
        let signs = answer.cause.iter().flat_map(|cause| cause.evidence.iter().take(EVIDENCE));
        signs.into_iter().any(|sign| sign.observation == says)
    };
    listed(answer, wide, WORDS, |word| !word.only_excludes && !shown(word.text))
}

/// Returns names and texts of the counters that did not rise.
pub(super) fn unchanged_counter_rows(answer: &FindReport, wide: usize) -> Vec<(&'static str, String)> {
    listed(answer, wide, usize::MAX, |word| word.only_excludes)
}

fn listed(
    answer: &FindReport,
    wide: usize,
    most: usize,
    is_wanted: impl Fn(&ServerEvidence<'_>) -> bool,
) -> Vec<(&'static str, String)> {
    let words = server_evidence(&answer.server_metrics);
    let mut facts: Vec<(&str, Vec<&ServerEvidence<'_>>)> = Vec::new();
    for word in words.iter().filter(|word| is_wanted(word)) {
        match facts.iter_mut().find(|fact| fact.0 == word.text) {
            Some(fact) => fact.1.push(word),
            None => facts.push((word.text, vec![word])),
        }
    }
    let row = |(at, (says, on)): (usize, &(&str, Vec<&ServerEvidence<'_>>))| {
        let on = likelier(on);
        let text = |says: &str| format!("- {says}: {on}");
        (if at == 0 { "server says" } else { "" }, shorten_list(says, wide, text))
    };
    facts.iter().take(most).enumerate().map(row).collect()
}

/// Names the causes that a fact makes more or less likely, grouped by factor.
fn likelier(on: &[&ServerEvidence<'_>]) -> String {
    let mut groups: Vec<(String, String, Vec<&str>)> = Vec::new();
    for word in on {
        let (side, times) = if word.likelihood_ratio < 1.0 {
            (
                "against",
                format!("{} times less likely", format_rate_without_unit(1.0 / word.likelihood_ratio)),
            )
        } else {
            ("for", format!("{} times likelier", format_rate_without_unit(word.likelihood_ratio)))
        };
        match groups.iter_mut().find(|group| group.0 == side && group.1 == times) {
            Some(group) => group.2.push(word.cause),
            None => groups.push((side.to_owned(), times, vec![word.cause])),
        }
    }
    let group = |(side, times, classes): &(String, String, Vec<&str>)| {
        format!("{side} {}, {times}", classes.join(", "))
    };
    groups.iter().map(group).collect::<Vec<_>>().join("; ")
}

/// A row's text that is made of a list: of one that has no room by its first items, and how many more there are; of anything else as it is.
pub(super) fn shorten_list(says: &str, wide: usize, text: impl Fn(&str) -> String) -> String {
    let items: Vec<_> = says.split(", ").collect();
    let whole = text(says);
    if fits(&whole, wide) || items.len() < LIST {
        return whole;
    }
    let first =
        |count: usize| text(&format!("{} and {} more", items[..count].join(", "), items.len() - count));
    (1..items.len()).rev().map(first).find(|shorter| fits(shorter, wide)).unwrap_or_else(|| first(1))
}

/// Items of what is a list and no sentence with commas in it.
const LIST: usize = 4;
