//! `-type=html` and `seawall plot`: one page that holds everything it needs, and works from a file without a network.
//!
//! The page's script and style are ours and stand in `page/`; here the numbers are put between them. A library would
//! have been larger than all of it, and a page that loads one is blank on a plane and tells its source who reads it.

use serde::Serialize;

use super::runs::Runs;
use super::series::Series;
use super::words::WORDS;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

#[derive(Serialize)]
struct Data<'a> {
    title: &'a str,
    subtitle: String,
    runs: Vec<Series>,
    words: &'a [(&'a str, &'a str)],
}

/// The whole page.
pub(crate) fn render(title: &str, runs: &Runs, series: Vec<Series>) -> anyhow::Result<String> {
    let data = Data { title, subtitle: subtitle(runs), runs: series, words: WORDS };
    // A script element ends at the first "</script", whatever it holds.
    let data = serde_json::to_string(&data)?.replace('<', "\\u003c");
    let page =
        PAGE.replace("{{title}}", &escaped(title)).replace("{{style}}", STYLE).replace("{{script}}", SCRIPT);
    // Last, so that nothing inside the data is taken for a place to fill.
    Ok(page.replacen("{{data}}", &data, 1))
}

fn subtitle(runs: &Runs) -> String {
    let named: Vec<_> = runs.named().collect();
    let start = named.iter().map(|(_, run)| run.totals.earliest()).min_by_key(|at| at.unix_ns());
    let start = start.and_then(super::json::shown).map_or_else(String::new, |at| format!("Started {at}. "));
    match named.as_slice() {
        [(_, run)] => {
            match run.targets.iter().map(super::runs::Target::name).collect::<Vec<_>>().as_slice() {
                [only] => format!("{start}{only}"),
                many => format!("{start}{} targets", many.len()),
            }
        }
        many => format!("{start}{} runs", many.len()),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
