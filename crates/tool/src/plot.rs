//! `seawall plot`: results as one offline HTML page or as one SVG picture, and what targets do at which rate as one picture.

mod curves;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};

use crate::report::glossary::{GLOSSARY, RESULTS_LIMITS_NOTE};
use crate::report::input::{self, ClassifiedInputs, InputReader, InputSource, WakeReason};
use crate::report::output::ReportOutput;
use crate::report::runs::Runs;
use crate::report::series::RunSeries;
use crate::report::{hdr_logs, html, report_problems, svg};

/// Flags of `seawall plot`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP, args_override_self = true)]
pub(crate) struct PlotArgs {
    /// Title of the page
    #[arg(long, default_value = "Load report")]
    title: String,
    /// Maximum number of points per line; a longer run has wider intervals
    #[arg(long, value_name = "POINTS", default_value_t = crate::report::series::MAX_POINTS, value_parser = points)]
    threshold: usize,
    /// Output file: .html for a page, .svg for a picture
    #[arg(long, value_name = "FILE", default_value = "stdout")]
    output: String,
    /// Output format: html or svg [default: from the name of the output file, else html]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Results (gob, JSON or CSV), with or without HDR logs; or JSON of find --json and attack --summary=json; plot detects
    /// the format [default: stdin]
    #[arg(value_name = "FILE")]
    files: Vec<String>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Format {
    Html,
    Svg,
}

const HELP: &str = "\
The page needs no network and no other file. It shows a percentile curve; response time, rate
(offered, achieved, good, errors) and requests in flight over time; status codes, errors with
counts, and targets. Drag over a chart to zoom, click a line's name to hide it. The SVG has the
four charts.

Each attack name in each file is a separate run. plot draws several runs over each other, each
from its start, and compares them in a table. Lost or truncated results leave a gap in the charts.
Memory does not depend on the run's length. HDR logs (tags lag and service) add send lag and
service time if you give them together with results. Alone, they have no rate, status or error to
draw: see `seawall report`.

JSON of searches (find --json) and of attacks (--summary=json; a file can contain several summaries)
is drawn as one SVG with one line per file: good responses, 99 % response time, and the share of late
or failed requests, by offered rate. The SVG leaves out invalid trials and
bursts that use up a burst allowance.

Examples:
  seawall plot results.gob > plot.html
  seawall plot -title='new cache' -output=compare.html before.gob after.gob
  seawall plot -output=latency.svg results.gob";

fn points(text: &str) -> anyhow::Result<usize> {
    text.parse().context("expected a whole number of points, such as 300")
}

/// Runs the command.
///
/// # Errors
/// Bad flags, inputs that cannot be opened or hold no results, an output that cannot be written.
#[expect(clippy::needless_pass_by_value, reason = "the command owns its arguments")]
pub(crate) fn run(args: PlotArgs) -> anyhow::Result<ExitCode> {
    let inputs = match args.opened(input::open_inputs(&args.files)?)? {
        PlotInputs::Curves(curves) => return args.curves(curves),
        PlotInputs::Others(inputs) => inputs,
    };
    let format = args.format()?;
    let ClassifiedInputs { results, hdr_logs: logs, .. } =
        ClassifiedInputs::classify(inputs)?.reject_intervals("`seawall plot`")?;
    ensure!(!results.is_empty(), hdr_logs::LOG_HOLDS_ONLY_TIMES);
    let runs = Runs::new(&results);
    let inputs = input::merge_inputs(results);
    let mut output = ReportOutput::open(&args.output)?;
    let mut reading = InputReader::start(inputs, runs, input::reads_stdin(&args.files))?;
    let mut problems = match reading.wait(None) {
        WakeReason::Finished(problems) => problems,
        WakeReason::Interrupted | WakeReason::Tick => Vec::new(),
    };
    let mut runs = reading.lock_sum();
    if runs.iter_with_names().next().is_none() {
        bail!("no results{}", problems.iter().map(|problem| format!(": {problem}")).collect::<String>());
    }
    problems.extend(hdr_logs::add_logs_to_runs(&mut runs, logs));
    output.write(&args.draw(format, &runs)?, false)?;
    Ok(report_problems(&problems))
}

/// Inputs, grouped by content.
enum PlotInputs {
    /// Outputs of `find --json`, or summaries of attacks.
    Curves(Vec<InputSource>),
    /// All other inputs.
    Others(Vec<InputSource>),
}

impl PlotArgs {
    /// Groups inputs by their first bytes. Curves over rates and results over time have no common axis.
    fn opened(&self, mut inputs: Vec<InputSource>) -> anyhow::Result<PlotInputs> {
        let mut curves = 0;
        for input in &mut inputs {
            curves += usize::from(curves::is_curve_input(input.peek_start()?));
        }
        match curves {
            0 => Ok(PlotInputs::Others(inputs)),
            all if all == inputs.len() => Ok(PlotInputs::Curves(inputs)),
            _ => {
                bail!(
                    "some files contain results, others contain JSON of `find --json` or `attack --summary=json`: give files of one kind"
                )
            }
        }
    }

    /// Curves are drawn as a picture, whatever the default.
    fn curves(&self, inputs: Vec<InputSource>) -> anyhow::Result<ExitCode> {
        let html = matches!(self.format, Some(Format::Html)) || self.output.ends_with(".html");
        ensure!(
            !html,
            "JSON from `find` or `attack` can only be drawn as SVG: give an output file that ends in .svg. For an HTML page of a search, use `find --html`"
        );
        ReportOutput::open(&self.output)?.write(&curves::render_svg(&self.title, inputs)?, false)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the format that `-format` gives, or else the one that the output file's extension gives.
    ///
    /// # Errors
    /// The extension is neither HTML nor SVG: a browser would not open a page in a file with another extension.
    fn format(&self) -> anyhow::Result<Format> {
        let named = Path::new(&self.output).extension().map(|end| end.to_string_lossy().to_ascii_lowercase());
        Ok(match (self.format, named.as_deref()) {
            (Some(format), _) => format,
            (None, None | Some("html" | "htm")) => Format::Html,
            (None, Some("svg")) => Format::Svg,
            (None, Some(other)) => bail!(
                "{} ends in .{other}: expected .html or .svg, or give -format=html or -format=svg",
                self.output
            ),
        })
    }

    fn draw(&self, format: Format, runs: &Runs) -> anyhow::Result<String> {
        let series: Vec<RunSeries> =
            runs.iter_with_names().map(|(name, run)| RunSeries::new(name, run, self.threshold)).collect();
        match format {
            Format::Html => html::render(
                &self.title,
                html::format_subtitle(runs),
                Some(RESULTS_LIMITS_NOTE),
                &series,
                GLOSSARY,
            ),
            Format::Svg => Ok(svg::render(&self.title, &series)),
        }
    }
}
