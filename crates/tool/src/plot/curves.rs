//! Curves of several targets over the offered rate, in one picture: good responses, response time, and late or failed requests.
//!
//! From `find --json` it reads only the breaking rate and the trials. It also reads summaries of attacks at one rate each
//! (`attack --summary=json`), one after the other. Each file is a line with the name of the file. This module does not know how
//! rates were chosen, and adds no points: a line goes from one tried rate to the next.

use std::io::{BufRead, Read as _};
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::report::axis_scale::AxisScale;
use crate::report::chart::{ChartLine, ChartPoints, Charts, Panel, Stroke, run_colour};
use crate::report::input::InputSource;
use crate::report::svg;

/// More than any search writes: some thousand trials with their windows.
const MOST_BYTES: u64 = 64 << 20;

/// The content of one file.
#[derive(Debug, Default)]
struct Curve {
    /// The rate above which the target breaks, in requests per second.
    cliff: Option<f64>,
    trials: Vec<Trial>,
}

/// One document of a file. Its `kind` says which command wrote it.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum CurveDocument {
    Find { breaking_rate: Option<Limit>, trials: Vec<Trial>, closed_loop: Option<IgnoredAny> },
    Attack(Summary),
}

#[derive(Debug, Deserialize)]
struct Limit {
    /// Requests a second.
    upper: Option<f64>,
}

/// The part of the summary of an attack that makes it a trial.
#[derive(Debug, Deserialize)]
struct Summary {
    offered_rate: f64,
    goodput: f64,
    error_ratio: f64,
    response_time: ResponseTime,
}

#[derive(Debug, Deserialize)]
struct ResponseTime {
    p99_seconds: f64,
}

/// One trial of a search, or one attack.
#[derive(Debug, Clone, Deserialize)]
struct Trial {
    /// The purpose of the trial; empty for an attack.
    #[serde(default)]
    purpose: String,
    /// The reason why the trial says nothing about the target; `None` if it is valid.
    #[serde(default)]
    invalid_reason: Option<String>,
    /// The verdict of the trial; empty for an attack.
    #[serde(default)]
    verdict: String,
    /// Offered requests per second.
    rate: f64,
    /// Correct responses per second.
    goodput: Option<f64>,
    /// The 99th percentile of the response time of an attack, in seconds.
    #[serde(skip)]
    p99: Option<f64>,
    /// The ratio of failed requests.
    error_ratio: Option<f64>,
    /// The ratio of late requests; none without a latency objective. A request without a response is late.
    late_ratio: Option<f64>,
}

impl From<Summary> for Trial {
    fn from(run: Summary) -> Self {
        let (rate, goodput, error_ratio) = (run.offered_rate, Some(run.goodput), Some(run.error_ratio));
        let p99 = Some(run.response_time.p99_seconds);
        Self {
            purpose: String::new(),
            invalid_reason: None,
            verdict: String::new(),
            rate,
            goodput,
            p99,
            error_ratio,
            late_ratio: None,
        }
    }
}

impl Trial {
    /// Returns true if the trial says what the target does at its rate.
    ///
    /// A `burst-drain` measures a burst allowance, and an invalid trial measures the generator.
    fn is_of_its_rate(&self) -> bool {
        self.invalid_reason.is_none()
            && self.purpose != "burst-drain"
            && self.rate.is_finite()
            && self.rate > 0.0
    }

    /// Returns the percentage of late or failed requests. It is unknown for a trial that ended because its queue grew before any
    /// request was late: "no trouble" would be wrong.
    fn troubled(&self) -> Option<f64> {
        let share = self.error_ratio.into_iter().chain(self.late_ratio).reduce(f64::max)?;
        (self.verdict != "bad" || share > 0.0).then_some(100.0 * share)
    }
}

/// True for what a search wrote, and for summaries: objects with keys that neither results nor intervals have.
pub(super) fn is_curve_input(head: &[u8]) -> bool {
    let has = |key: &[u8]| head.windows(key.len()).any(|part| part == key);
    let attack = has(b"\"offered_rate\"") && has(b"\"error_ratio\"");
    head.trim_ascii_start().starts_with(b"{") && (has(b"\"outcome\"") || attack)
}

/// The picture of these files.
///
/// # Errors
/// A file that is of neither kind, or holds no trial.
pub(super) fn render_svg(title: &str, inputs: Vec<InputSource>) -> anyhow::Result<String> {
    let curves = inputs.into_iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(svg::render_charts(title, &charts(&curves)))
}

const KINDS: &str =
    "expected documents of kind \"find\" or \"attack\", as find --json and attack --summary=json write";

fn read(InputSource { name, reader }: InputSource) -> anyhow::Result<(String, Curve)> {
    let text = limited(reader).with_context(|| format!("cannot read {name}"))?;
    let mut curve = Curve::default();
    for said in serde_json::Deserializer::from_str(&text).into_iter() {
        let said = said.with_context(|| format!("{name}: {KINDS}"))?;
        let is_of_rates = !matches!(said, CurveDocument::Find { closed_loop: Some(_), .. });
        ensure!(
            is_of_rates,
            "{name} is a search for a number of clients (--closed-loop), which has no rates to draw: give a search for a rate"
        );
        curve.add(said);
    }
    curve.trials.retain(Trial::is_of_its_rate);
    ensure!(!curve.trials.is_empty(), "{name} has no trial");
    curve.trials.sort_by(|one, other| one.rate.total_cmp(&other.rate));
    let stem = Path::new(&name).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    Ok((stem.unwrap_or(name), curve))
}

impl Curve {
    fn add(&mut self, said: CurveDocument) {
        match said {
            CurveDocument::Find { breaking_rate, trials, .. } => {
                self.cliff = self.cliff.or(breaking_rate.and_then(|limit| limit.upper));
                self.trials.extend(trials);
            }
            CurveDocument::Attack(summary) => self.trials.push(summary.into()),
        }
    }
}

fn limited(reader: impl BufRead) -> anyhow::Result<String> {
    let mut text = String::new();
    reader.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    ensure!(text.len() as u64 <= MOST_BYTES, "the file is larger than {} MiB", MOST_BYTES >> 20);
    Ok(text)
}

/// One panel for each thing that any trial has.
fn charts(curves: &[(String, Curve)]) -> Charts {
    let fastest = curves.iter().filter_map(|(_, curve)| curve.trials.last()).map(|trial| trial.rate);
    let x = AxisScale::linear_counts(fastest);
    // The first one's, for that is whose story it is.
    let few = curves
        .first()
        .and_then(|(_, curve)| Some((curve.cliff?, "above the breaking rate of the first file")));
    let panel = |name, unit, suffix, of: fn(&Trial) -> Option<f64>, scale: fn(Vec<f64>) -> AxisScale| {
        let lines = lines(curves, of);
        let values: Vec<f64> =
            lines.iter().flat_map(|line| &line.points).filter_map(|point| point.1).collect();
        let (x, y) = (x.clone(), (!values.is_empty()).then(|| scale(values))?);
        Some(Panel { name, unit, suffix, below: "requests offered per second", x, y, few, lines })
    };
    let counts = |values: Vec<f64>| AxisScale::linear_counts(values.into_iter());
    let times = |values: Vec<f64>| AxisScale::log_nanoseconds(values.into_iter());
    let p99 = |trial: &Trial| trial.p99.map(|seconds| seconds * 1e9);
    let panels = [
        panel("Good responses", "good responses per second", " /s", |trial| trial.goodput, counts),
        panel("99 % response time", "response time", "", p99, times),
        panel("Late or failed", "% of the requests", " %", Trial::troubled, counts),
    ];
    Charts { panels: panels.into_iter().flatten().collect(), left_out: Vec::new() }
}

fn lines(curves: &[(String, Curve)], of: fn(&Trial) -> Option<f64>) -> Vec<ChartLine> {
    let line = |(at, (name, curve)): (usize, &(String, Curve))| ChartLine {
        name: name.clone(),
        colour: run_colour(at),
        stroke: Stroke::Solid,
        points: points(&curve.trials, of),
    };
    curves.iter().enumerate().map(line).collect()
}

/// One point for each rate: the median of its trials, of those in which there is a value.
fn points(trials: &[Trial], of: fn(&Trial) -> Option<f64>) -> ChartPoints {
    let point = |same: &[Trial]| {
        let mut values: Vec<f64> = same.iter().filter_map(of).filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        (same.first().map_or(0.0, |trial| trial.rate), values.get(values.len() / 2).copied())
    };
    trials.chunk_by(|one, other| one.rate == other.rate).map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(name: &str, text: &str) -> InputSource {
        InputSource {
            name: name.to_owned(),
            reader: Box::new(std::io::Cursor::new(text.to_owned().into_bytes())),
        }
    }

    /// A report of `find`, reduced to the fields that count here.
    const MANAGED: &str = "{\"kind\":\"find\",\"version\":1,\"outcome\":\"found\",
        \"breaking_rate\":{\"lower\":155.0,\"upper\":160.0,\"estimate\":157.0},\"trials\":[
        {\"purpose\":\"ramp\",\"rate\":200,\"goodput\":150,\"error_ratio\":0.25,\"late_ratio\":0.3},
        {\"rate\":100,\"goodput\":100,\"error_ratio\":0,\"late_ratio\":null},
        {\"rate\":200,\"goodput\":158,\"error_ratio\":0.2,\"late_ratio\":null},
        {\"rate\":200,\"goodput\":0,\"error_ratio\":1,\"late_ratio\":null}]}";
    /// Two summaries of `attack --summary=json`.
    const AGENT: &str = "{\"kind\":\"attack\",\"version\":1,\"offered_rate\":400.0,\"goodput\":400,\"error_ratio\":0.0,\"response_time\":{\"p50_seconds\":0.001,\"p99_seconds\":0.002}}
        {\"kind\":\"attack\",\"version\":1,\"offered_rate\":100.0,\"goodput\":100,\"error_ratio\":0.01,\"response_time\":{\"p99_seconds\":0.001}}\n";

    /// The begin of a search without a limit, up to its trials.
    const FIND: &str =
        "{\"kind\":\"find\",\"version\":1,\"outcome\":\"found\",\"breaking_rate\":null,\"trials\":[";

    #[test]
    fn what_makes_a_curve_is_told_from_results() {
        assert!(is_curve_input(MANAGED.as_bytes()) && is_curve_input(AGENT.as_bytes()));
        assert!(!is_curve_input(b"{\"attack\":\"\",\"seq\":0,\"code\":200}\n"));
        assert!(!is_curve_input(b"\"outcome\""));
        assert!(!is_curve_input(b""));
    }

    #[test]
    fn a_rate_that_was_tried_again_is_one_point_and_points_are_in_order() {
        let (name, curve) = read(input("out/managed.json", MANAGED)).unwrap();
        assert_eq!((&*name, curve.cliff), ("managed", Some(160.0)));
        assert_eq!(
            points(&curve.trials, |trial| trial.goodput),
            [(100.0, Some(100.0)), (200.0, Some(150.0))]
        );
        assert_eq!(points(&curve.trials, Trial::troubled), [(100.0, Some(0.0)), (200.0, Some(30.0))]);
        assert_eq!(points(&curve.trials, |trial| trial.p99), [(100.0, None), (200.0, None)]);
    }

    #[test]
    fn what_does_not_say_what_the_target_does_at_a_rate_is_no_point() {
        let trial = |purpose: &str, rate: u32, goodput: u32, invalid_reason: &str| {
            format!(
                r#"{{"purpose":"{purpose}","rate":{rate},"goodput":{goodput},"error_ratio":0,"late_ratio":0,"invalid_reason":{invalid_reason}}}"#
            )
        };
        let drain = trial("burst-drain", 400, 400, "null");
        let late = trial("narrow-bracket", 300, 9, "\"sent late\"");
        let narrow = trial("narrow-bracket", 200, 157, "null");
        let text = format!("{FIND}{drain},{late},{narrow}]}}");
        let (_, curve) = read(input("a.json", &text)).unwrap();
        assert_eq!(points(&curve.trials, |trial| trial.goodput), [(200.0, Some(157.0))]);
    }

    #[test]
    fn a_trial_that_ended_before_anything_was_late_is_not_without_trouble() {
        let trial = |verdict, late| {
            format!(
                r#"{{"verdict":"{verdict}","rate":320,"goodput":210,"error_ratio":0,"late_ratio":{late}}}"#
            )
        };
        let troubled = |verdict, late| {
            let text = format!("{FIND}{}]}}", trial(verdict, late));
            let (_, curve) = read(input("a.json", &text)).unwrap();
            points(&curve.trials, Trial::troubled)
        };
        assert_eq!(troubled("bad", 0.0), [(320.0, None)]);
        assert_eq!(troubled("bad", 0.25), [(320.0, Some(25.0))]);
        assert_eq!(troubled("undecided", 0.0), [(320.0, Some(0.0))]);
    }

    #[test]
    fn summaries_of_attacks_are_trials() {
        let (_, curve) = read(input("agent.json", AGENT)).unwrap();
        assert_eq!(points(&curve.trials, |trial| trial.p99), [(100.0, Some(0.001)), (400.0, Some(0.002))]);
        assert_eq!(points(&curve.trials, Trial::troubled), [(100.0, Some(1.0)), (400.0, Some(0.0))]);
    }

    #[test]
    fn each_file_has_a_line_in_each_panel_and_the_first_ones_cliff_is_shaded() {
        let both = || vec![input("managed.json", MANAGED), input("agent.json", AGENT)];
        let picture = render_svg("both", both()).unwrap();
        for name in ["Good responses", "99 % response time", "Late or failed"] {
            assert_eq!(picture.matches(&format!(">{name}</text>")).count(), 1, "{name}: {picture}");
        }
        for in_each in [">managed</text>", ">agent</text>", ">above the breaking rate of the first"] {
            assert_eq!(picture.matches(in_each).count(), 3, "{in_each}: {picture}");
        }
        let alone = render_svg("alone", both().into_iter().take(1).collect()).unwrap();
        assert!(!alone.contains("99 % response time"), "no trial has one: {alone}");
    }

    #[test]
    fn what_holds_no_trial_is_named() {
        let refused = |text| render_svg("x", vec![input("a.json", text)]).unwrap_err().to_string();
        assert_eq!(refused(&format!("{FIND}]}}")), "a.json has no trial");
    }

    #[test]
    fn a_document_that_is_not_of_kind_find_or_attack_is_refused() {
        for head in ["\"kind\":\"isolate\",", "\"kind\":\"report\",", ""] {
            let text = MANAGED.replace("\"kind\":\"find\",", head);
            let refused = render_svg("x", vec![input("a.json", &text)]).unwrap_err().to_string();
            assert!(
                refused.starts_with("a.json: expected documents of kind \"find\" or \"attack\""),
                "{refused}"
            );
        }
    }
}
