//! HDR logs in place of results: response times of several generators, added up exactly.
//!
//! A log holds distributions and nothing else, so it can be shown as text and as hdrplot; every other kind of report
//! needs the results themselves.

use std::fmt::Write;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use seawall_load::results::hdr;
use seawall_load::timeline::Spread;

use super::output::Output;
use super::{Args, Kind, complain, hdrplot, input};
use crate::go::{Duration, aligned};

/// True if all of these files are HDR logs.
pub(super) fn are_logs(files: &[String]) -> anyhow::Result<bool> {
    if input::reads_stdin(files) {
        return Ok(false);
    }
    let kinds = files
        .iter()
        .map(|file| Ok(hdr::is_log(open(file)?.fill_buf()?)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    match kinds.iter().filter(|is_log| **is_log).count() {
        0 => Ok(false),
        some if some == kinds.len() => Ok(true),
        _ => bail!("HDR logs and results cannot be reported together"),
    }
}

fn open(file: &str) -> anyhow::Result<BufReader<File>> {
    File::open(file).map(BufReader::new).with_context(|| format!("cannot read {file}"))
}

/// Adds the logs up and reports them.
pub(super) fn run(kind: &Kind, args: &Args) -> anyhow::Result<ExitCode> {
    let (mut sums, mut problems) = (Vec::new(), Vec::new());
    for file in &args.files {
        if let Err(damage) = hdr::add_log(&mut open(file)?, &mut sums) {
            problems.push(format!("{file}: {damage}"));
        }
    }
    let report = match kind {
        Kind::Text | Kind::Summary => table(&sums),
        Kind::HdrPlot => hdrplot::render(responses(&sums)?),
        _ => bail!("an HDR log holds times and nothing else: use -type=text or -type=hdrplot"),
    };
    Output::open(&args.output)?.write(&report, false)?;
    Ok(complain(&problems))
}

/// Of several tags the response times; of one, that one.
fn responses(sums: &[(String, Spread)]) -> anyhow::Result<&Spread> {
    let named = sums.iter().find(|(tag, _)| tag == "response");
    let chosen = named.or_else(|| sums.first().filter(|_| sums.len() == 1));
    chosen.map(|(_, values)| values).context("no histogram tagged \"response\" in these logs")
}

fn table(sums: &[(String, Spread)]) -> String {
    let mut rows = "Histogram\tvalues\tmin\tmean\t50\t90\t95\t99\t99.9\tmax\n".to_owned();
    for (tag, values) in sums {
        let tag = if tag.is_empty() { "(no tag)" } else { tag };
        let quantiles = [0.5, 0.9, 0.95, 0.99, 0.999].map(|q| values.quantile(q));
        let times = [values.min(), values.mean()].into_iter().chain(quantiles).chain([values.max()]);
        let times = times.map(|ns| Duration(ns).rounded().to_string()).collect::<Vec<_>>().join("\t");
        // Formatting into memory cannot fail.
        let _ = writeln!(rows, "{tag}\t{}\t{times}", values.count());
    }
    aligned(&rows)
}
