//! `-type=html`, `seawall plot` and `seawall find --html`: one page that holds everything it needs, and works from a file without a network.
//! `--live-page` serves the same page while a run or a search goes on: it asks where it came from for what changes, and nobody else.
//!
//! The page's script and style are ours and stand in `page/`; here the numbers are put between them. A library would
//! have been larger than all of it, and a page that loads one is blank on a plane and tells its source who reads it.

use serde::Serialize;
use serde_json::Value;

use super::chart::{self, Charts};
use super::pod_table::PodTable;
use super::runs::Runs;
use super::series::RunSeries;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");
const LIVE_SCRIPT: &str = concat!(include_str!("page/link.js"), include_str!("page/live.js"));

/// The script of the page of a running search; the drawing script follows it.
pub(crate) const SEARCH_PAGE_SCRIPT: &str =
    concat!(include_str!("page/link.js"), include_str!("page/search.js"));

/// The policy of offline pages: nothing is loaded.
const OFFLINE_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// The policy of live pages: only updates are loaded, from the server of the page.
pub(crate) const LIVE_PAGE_CSP: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; connect-src 'self'";

/// The data of a report's page.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReportPageData<'a> {
    title: &'a str,
    subtitle: String,
    /// A note about data that the figures leave out, if any.
    note: Option<&'a str>,
    runs: &'a [RunSeries],
    /// The colour of each run in tables.
    colours: Vec<&'static str>,
    charts: Charts,
    /// For each run, true if its offered load differs from that of the first run.
    other_load: Vec<bool>,
    words: &'a [(&'a str, &'a str)],
    /// The pods that shared the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pods: Option<PodTable>,
    /// The status of a running attack, and the possible actions.
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<Value>,
}

/// Renders the whole page.
pub(crate) fn render(
    title: &str,
    subtitle: String,
    note: Option<&str>,
    runs: &[RunSeries],
    words: &[(&str, &str)],
) -> anyhow::Result<String> {
    render_page(title, &ReportPageData::from_runs(title, subtitle, note, runs, words))
}

impl<'a> ReportPageData<'a> {
    /// Collects the data of runs; the first run is the one to compare with.
    pub(crate) fn from_runs(
        title: &'a str,
        subtitle: String,
        note: Option<&'a str>,
        runs: &'a [RunSeries],
        words: &'a [(&'a str, &'a str)],
    ) -> Self {
        let first = runs.first().map(|first| first.figures.rates);
        let is_other =
            |run: &RunSeries| first.is_some_and(|first| run.figures.rates.differs_in_offered_load(&first));
        let other_load = runs.iter().map(is_other).collect();
        let charts = chart::build_charts(runs);
        let colours = (0..runs.len()).map(chart::run_colour).collect();
        Self { title, subtitle, note, runs, colours, charts, other_load, words, pods: None, live: None }
    }

    /// Adds the pods that shared the load.
    pub(crate) fn with_pods(mut self, pods: Option<PodTable>) -> Self {
        if let Some(pods) = &pods {
            self.charts.add_pod_rates(&pods.completion_rates, self.runs);
        }
        Self { pods, ..self }
    }

    /// Adds the status of a run that is or was live.
    pub(crate) fn with_live_status(self, live: Value) -> Self {
        Self { live: Some(live), ..self }
    }
}

/// Renders the page of data that the script knows.
pub(crate) fn render_page(title: &str, data: &impl Serialize) -> anyhow::Result<String> {
    fill_in((OFFLINE_POLICY, ""), title, data)
}

/// Renders the live page of a running search.
pub(crate) fn render_live_search_page(title: &str, data: &impl Serialize) -> anyhow::Result<String> {
    fill_in((LIVE_PAGE_CSP, SEARCH_PAGE_SCRIPT), title, data)
}

/// Renders the live page of a running attack.
pub(crate) fn render_live_page(data: &ReportPageData<'_>) -> anyhow::Result<String> {
    fill_in((LIVE_PAGE_CSP, LIVE_SCRIPT), data.title, data)
}

/// Formats data as JSON for a script element, which would end at the first "</script".
pub(crate) fn to_script_json(data: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string(data)?.replace('<', "\\u003c"))
}

fn fill_in((policy, live): (&str, &str), title: &str, data: &impl Serialize) -> anyhow::Result<String> {
    let data = to_script_json(data)?;
    Ok(fill([
        ("{{policy}}", policy),
        ("{{title}}", &escaped(title)),
        ("{{style}}", STYLE),
        ("{{data}}", &data),
        ("{{live}}", live),
        ("{{script}}", SCRIPT),
    ]))
}

/// Puts each value where its mark stands in the page, in the page's order. What a value contains is never looked at.
fn fill(values: [(&str, &str); 6]) -> String {
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
pub(crate) fn format_subtitle(runs: &Runs) -> String {
    let named: Vec<_> = runs.iter_with_names().collect();
    let start = named.iter().map(|(_, run)| run.totals.earliest()).min_by_key(|at| at.unix_ns());
    let start = start
        .and_then(super::json::format_to_second)
        .map_or_else(String::new, |at| format!("Started {at}. "));
    let [(_, run)] = named.as_slice() else { return format!("{start}{} runs", named.len()) };
    match run.targets.iter().collect::<Vec<_>>().as_slice() {
        [only] => format!("{start}{}", only.name()),
        many => format!("{start}{} targets", many.len()),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
