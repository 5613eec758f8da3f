//! `-type=html`, `seawall plot` and `seawall find --html`: one page that holds everything it needs, and works from a file without a network.
//!
//! The page's script and style are ours and stand in `page/`; here the numbers are put between them. A library would
//! have been larger than all of it, and a page that loads one is blank on a plane and tells its source who reads it.

use serde::Serialize;

use super::chart::{self, Charts};
use super::runs::Runs;
use super::series::Series;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    title: &'a str,
    subtitle: String,
    /// What the figures leave out, if anything.
    note: Option<&'a str>,
    runs: &'a [Series],
    /// Of each run in tables.
    colours: Vec<&'static str>,
    charts: Charts,
    /// For each run whether it was offered another load than the first.
    other_load: Vec<bool>,
    words: &'a [(&'a str, &'a str)],
}

/// The whole page.
pub(crate) fn render(
    title: &str,
    subtitle: String,
    note: Option<&str>,
    runs: &[Series],
    words: &[(&str, &str)],
) -> anyhow::Result<String> {
    page(title, &Data::of(title, subtitle, note, runs, words))
}

impl<'a> Data<'a> {
    fn of(
        title: &'a str,
        subtitle: String,
        note: Option<&'a str>,
        runs: &'a [Series],
        words: &'a [(&'a str, &'a str)],
    ) -> Self {
        let first = runs.first().map(|first| first.figures.rates);
        let is_other = |run: &Series| first.is_some_and(|first| run.figures.rates.is_other_load(&first));
        let other_load = runs.iter().map(is_other).collect();
        let charts = chart::charts(runs);
        let colours = (0..runs.len()).map(chart::of_run).collect();
        Self { title, subtitle, note, runs, colours, charts, other_load, words }
    }
}

/// The page of whatever data its script knows.
pub(crate) fn page(title: &str, data: &impl Serialize) -> anyhow::Result<String> {
    // A script element ends at the first "</script", whatever it holds.
    let data = serde_json::to_string(data)?.replace('<', "\\u003c");
    Ok(fill([
        ("{{title}}", &escaped(title)),
        ("{{style}}", STYLE),
        ("{{data}}", &data),
        ("{{script}}", SCRIPT),
    ]))
}

/// Puts each value where its mark stands in the page, in the page's order. What a value contains is never looked at.
fn fill(values: [(&str, &str); 4]) -> String {
    let mut page =
        String::with_capacity(PAGE.len() + values.iter().map(|(_, value)| value.len()).sum::<usize>());
    let mut rest = PAGE;
    for (mark, value) in values {
        let (before, after) = rest.split_once(mark).unwrap_or((rest, ""));
        page.push_str(before);
        page.push_str(value);
        rest = after;
    }
    page + rest
}

/// When it was and what was asked, of results.
pub(crate) fn subtitle(runs: &Runs) -> String {
    let named: Vec<_> = runs.named().collect();
    let start = named.iter().map(|(_, run)| run.totals.earliest()).min_by_key(|at| at.unix_ns());
    let start = start.and_then(super::json::second).map_or_else(String::new, |at| format!("Started {at}. "));
    let [(_, run)] = named.as_slice() else { return format!("{start}{} runs", named.len()) };
    match run.targets.iter().collect::<Vec<_>>().as_slice() {
        [only] => format!("{start}{}", only.name()),
        many => format!("{start}{} targets", many.len()),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
