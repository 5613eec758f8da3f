//! Parses pages of metrics as text: Prometheus' format 0.0.4, and the part of OpenMetrics 1.0 that counters and gauges need.
//!
//! The parser never panics. It is strict: a page with one invalid line is refused as a whole, because the differences of a
//! truncated or wrong page would be wrong. Bytes, samples, labels and lengths are limited, because another program sends the
//! page. This module does not interpret metrics.
//!
//! Formats: <https://prometheus.io/docs/instrumenting/exposition_formats/>,
//! <https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md>. Names in quotes (UTF-8 names) are refused,
//! because servers send them only to clients that ask for them.

use std::collections::BTreeMap;

/// The most bytes of a page. Envoy's page with a thousand clusters has some five million; the query can reduce a larger one
/// (`?usedonly`, `?filter=`).
pub const MOST_BYTES: usize = 8 << 20;

/// The most samples of a page.
pub const MOST_SAMPLES: usize = 100_000;

/// The most labels of a sample. Prometheus itself sets no limit by default; its large users set 30.
pub const MOST_LABELS: usize = 64;

/// The most bytes of a name.
pub const MAX_NAME_BYTES: usize = 256;

/// The most bytes of a label's value.
pub const MAX_LABEL_VALUE_BYTES: usize = 4096;

/// The format of a page, from its `Content-Type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpositionFormat {
    /// The content type `text/plain`.
    Prometheus,
    /// The content type `application/openmetrics-text`. The page ends with `# EOF`, and a counter's samples end in `_total` if
    /// its name does not.
    OpenMetrics,
}

impl ExpositionFormat {
    /// Returns the format for a `Content-Type`. `text/plain` of Envoy and of older servers has no version, so every other type
    /// counts as Prometheus' text format. The parser rejects other content at its first line.
    #[must_use]
    pub fn of(content_type: &[u8]) -> Self {
        let openmetrics = b"application/openmetrics-text";
        let begin = content_type.get(..openmetrics.len());
        let is = begin.is_some_and(|begin| begin.eq_ignore_ascii_case(openmetrics));
        if is { Self::OpenMetrics } else { Self::Prometheus }
    }
}

/// A page of metrics.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MetricsPage {
    samples: BTreeMap<MetricSeries, MetricSample>,
}

/// The name and the labels of a metric. Series are ordered by name first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetricSeries {
    /// The name of the sample, with the suffix that its format adds to the metric (`_total`, `_sum`).
    pub name: String,
    /// The labels and their values, sorted by name.
    pub labels: Vec<(String, String)>,
}

/// The value of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MetricSample {
    /// The kind of the metric.
    pub kind: MetricKind,
    /// The value in the unit of the metric; may be infinite or NaN.
    pub value: f64,
}

/// The kind of a metric, which says how its values can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// The value only increases, so a difference shows what happened in between.
    Counter,
    /// The value describes one instant.
    Gauge,
    /// The type is unknown: quantiles and metrics without a type.
    Unknown,
}

/// The reason why bytes are not a page of metrics.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpositionError {
    /// The page has more than [`MOST_BYTES`] bytes.
    #[error("the page is larger than {} MiB", MOST_BYTES >> 20)]
    TooLarge,
    /// The page has more than [`MOST_SAMPLES`] samples.
    #[error("the page has more than {MOST_SAMPLES} samples")]
    TooManySamples,
    /// The page is not UTF-8.
    #[error("the page is not UTF-8")]
    NotText,
    /// The page lacks the end that its format requires.
    #[error("the page is truncated")]
    Truncated,
    /// A line does not have the format.
    #[error("line {line}: {why}")]
    Line {
        /// The line number, from 1.
        line: usize,
        /// The mistake in the line.
        why: &'static str,
    },
}

impl MetricsPage {
    /// Parses a page.
    ///
    /// # Errors
    /// The first error in the page.
    pub fn parse(bytes: &[u8], format: ExpositionFormat) -> Result<Self, ExpositionError> {
        if bytes.len() > MOST_BYTES {
            return Err(ExpositionError::TooLarge);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| ExpositionError::NotText)?;
        let mut reader = Reader::new(format);
        for (at, line) in whole(text, format)?.lines().enumerate() {
            reader.line(line).map_err(|why| ExpositionError::Line { line: at + 1, why })?;
            if reader.samples.len() > MOST_SAMPLES {
                return Err(ExpositionError::TooManySamples);
            }
        }
        Ok(Self { samples: reader.samples })
    }

    /// Returns all samples, sorted by name and labels.
    pub fn samples(&self) -> impl Iterator<Item = (&MetricSeries, &MetricSample)> {
        self.samples.iter()
    }

    /// Returns the sample with exactly these labels.
    #[must_use]
    pub fn sample(&self, series: &MetricSeries) -> Option<MetricSample> {
        self.samples.get(series).copied()
    }

    /// Returns the samples with this name.
    pub fn samples_named<'a>(
        &'a self,
        name: &'a str,
    ) -> impl Iterator<Item = (&'a MetricSeries, &'a MetricSample)> {
        let first = MetricSeries { name: name.to_owned(), labels: Vec::new() };
        self.samples.range(first..).take_while(move |(series, _)| series.name == name)
    }

    /// Returns the sum of the samples of a name; none if there are no samples.
    #[must_use]
    pub fn sum(&self, name: &str) -> Option<f64> {
        let mut values = self.samples_named(name).map(|(_, sample)| sample.value);
        let first = values.next()?;
        Some(values.fold(first, |sum, value| sum + value))
    }
}

/// Returns the text without its end marker.
fn whole(text: &str, format: ExpositionFormat) -> Result<&str, ExpositionError> {
    match format {
        ExpositionFormat::Prometheus if text.is_empty() || text.ends_with('\n') => Ok(text),
        ExpositionFormat::Prometheus => Err(ExpositionError::Truncated),
        ExpositionFormat::OpenMetrics => {
            let body = text
                .strip_suffix('\n')
                .unwrap_or(text)
                .strip_suffix("# EOF")
                .ok_or(ExpositionError::Truncated)?;
            if body.is_empty() || body.ends_with('\n') { Ok(body) } else { Err(ExpositionError::Truncated) }
        }
    }
}

/// The type in a `# TYPE` line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Counter,
    Gauge,
    /// The metric is a histogram or a summary: its sums, counts and buckets only increase.
    Distribution,
    Other,
}

impl Type {
    fn of(word: &str) -> Option<Self> {
        Some(match word {
            "counter" => Self::Counter,
            "gauge" => Self::Gauge,
            "histogram" | "summary" => Self::Distribution,
            "untyped" | "unknown" | "info" | "stateset" | "gaugehistogram" => Self::Other,
            _ => return None,
        })
    }
}

struct Reader {
    format: ExpositionFormat,
    types: BTreeMap<String, Type>,
    samples: BTreeMap<MetricSeries, MetricSample>,
}

impl Reader {
    fn new(format: ExpositionFormat) -> Self {
        Self { format, types: BTreeMap::new(), samples: BTreeMap::new() }
    }

    fn line(&mut self, line: &str) -> Result<(), &'static str> {
        let line = line.trim_matches(BLANKS);
        match line.strip_prefix('#') {
            Some(comment) => self.comment(comment),
            None if line.is_empty() => Ok(()),
            None => self.sample(line),
        }
    }

    /// Reads a line that begins with `#`. Only types matter.
    fn comment(&mut self, comment: &str) -> Result<(), &'static str> {
        let mut words = comment.split(BLANKS).filter(|word| !word.is_empty());
        match words.next() {
            Some("TYPE") => {}
            Some("EOF") if self.format == ExpositionFormat::OpenMetrics => {
                return Err("there is more text after the line '# EOF', which must be the last");
            }
            _ => return Ok(()),
        }
        let (Some(name), Some(word), None) = (words.next(), words.next(), words.next()) else {
            return Err("# TYPE needs a metric name and a type");
        };
        let stated = Type::of(word).ok_or("unknown metric type")?;
        let known = self.types.insert(checked_name(name)?.to_owned(), stated);
        if known.is_some_and(|known| known != stated) {
            Err("the page gives the metric two types")
        } else {
            Ok(())
        }
    }

    fn sample(&mut self, line: &str) -> Result<(), &'static str> {
        let end = line.find(['{', ' ', '\t']).ok_or("the sample has no value")?;
        let (name, rest) = line.split_at(end);
        let name = checked_name(name)?.to_owned();
        let rest = rest.trim_start_matches(BLANKS);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest)?,
            None => (Vec::new(), rest),
        };
        let value = self.value(rest)?;
        let kind = self.kind(&name);
        let known = self.samples.insert(MetricSeries { name, labels }, MetricSample { kind, value });
        if known.is_some() { Err("the sample occurs twice") } else { Ok(()) }
    }

    /// Reads a value. An unused time may follow, and an exemplar in OpenMetrics.
    fn value(&self, text: &str) -> Result<f64, &'static str> {
        let (text, example) = match text.split_once(" # ") {
            Some((text, example)) if self.format == ExpositionFormat::OpenMetrics => (text, Some(example)),
            _ => (text, None),
        };
        if let Some(example) = example {
            let example = example.trim_start_matches(BLANKS).strip_prefix('{');
            let (_, rest) = labels(example.ok_or("the exemplar has no labels")?)?;
            value_and_time(rest)?;
        }
        value_and_time(text)
    }

    fn kind(&self, name: &str) -> MetricKind {
        let of = |name: &str| self.types.get(name).copied();
        let without = |end: &str| name.strip_suffix(end).and_then(of);
        match of(name) {
            Some(Type::Counter) => return MetricKind::Counter,
            Some(Type::Gauge) => return MetricKind::Gauge,
            Some(Type::Distribution | Type::Other) => return MetricKind::Unknown,
            None => {}
        }
        // Without a known type, a name with this suffix belongs to a counter by convention.
        let counter = name.ends_with("_total") && matches!(without("_total"), None | Some(Type::Counter));
        let part = ["_sum", "_count", "_bucket"].iter().any(|end| without(end) == Some(Type::Distribution));
        if counter || part { MetricKind::Counter } else { MetricKind::Unknown }
    }
}

/// The characters between the parts of a line.
const BLANKS: [char; 2] = [' ', '\t'];

fn value_and_time(text: &str) -> Result<f64, &'static str> {
    let mut words = text.split(BLANKS).filter(|word| !word.is_empty());
    let value =
        words.next().ok_or("the sample has no value")?.parse().map_err(|_| "the value is not a number")?;
    if words.next().is_some_and(|time| !time.parse().is_ok_and(f64::is_finite)) {
        return Err("the timestamp is not a number");
    }
    if words.next().is_some() { Err("expected only a value and a timestamp") } else { Ok(value) }
}

fn checked_name(name: &str) -> Result<&str, &'static str> {
    let first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || byte == b':';
    let mut bytes = name.bytes();
    let is = bytes.next().is_some_and(first) && bytes.all(|byte| first(byte) || byte.is_ascii_digit());
    match is && name.len() <= MAX_NAME_BYTES {
        true => Ok(name),
        false if is => Err("the name is too long"),
        false => Err("the name has invalid characters"),
    }
}

type Labels = Vec<(String, String)>;

/// Returns the labels in the order of their names, and the text after their brace.
fn labels(mut rest: &str) -> Result<(Labels, &str), &'static str> {
    let mut labels = Labels::new();
    loop {
        rest = rest.trim_start_matches(BLANKS);
        if let Some(rest) = rest.strip_prefix('}') {
            labels.sort_unstable();
            let twice = labels.windows(2).any(|pair| pair[0].0 == pair[1].0);
            return if twice { Err("the label occurs twice") } else { Ok((labels, rest)) };
        }
        let (label, after) = label(rest)?;
        labels.push(label);
        if labels.len() > MOST_LABELS {
            return Err("too many labels");
        }
        let after = after.trim_start_matches(BLANKS);
        rest = match after.strip_prefix(',') {
            Some(rest) => rest,
            None if after.starts_with('}') => after,
            None => return Err("expected a comma between labels"),
        };
    }
}

fn label(text: &str) -> Result<((String, String), &str), &'static str> {
    let (name, rest) = text.split_once('=').ok_or("the label has no value")?;
    let name = checked_name(name.trim_end_matches(BLANKS))?;
    if name.contains(':') {
        return Err("the label name has invalid characters");
    }
    let quoted = rest.trim_start_matches(BLANKS).strip_prefix('"').ok_or("the label value has no quotes")?;
    let (value, rest) = unquoted(quoted)?;
    Ok(((name.to_owned(), value), rest))
}

/// Returns a label's value up to its quote, and the rest. A backslash escapes a backslash, a quote, and the n of a line end.
fn unquoted(text: &str) -> Result<(String, &str), &'static str> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => value.push(match letters.next() {
                Some((_, 'n')) => '\n',
                Some((_, letter @ ('\\' | '"'))) => letter,
                _ => return Err("only a backslash, a quote or n can follow a backslash"),
            }),
            letter => value.push(letter),
        }
        if value.len() > MAX_LABEL_VALUE_BYTES {
            return Err("the label value is too long");
        }
    }
    Err("the label value has no closing quote")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The metrics of a program with Prometheus' library for Go (a concealing metadata proxy under 50 requests).
    const GO: &[u8] = include_bytes!("../../tests/pages/go.txt");
    /// The metrics of an agent after twenty requests, in OpenMetrics.
    const AGENT: &[u8] = include_bytes!("../../tests/pages/agent.txt");

    fn prometheus(text: &str) -> Result<MetricsPage, ExpositionError> {
        MetricsPage::parse(text.as_bytes(), ExpositionFormat::Prometheus)
    }

    fn refused(text: &str) -> &'static str {
        match prometheus(text) {
            Err(ExpositionError::Line { line: 1, why }) => why,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    fn kind(page: &MetricsPage, name: &str) -> MetricKind {
        page.samples_named(name).next().unwrap().1.kind
    }

    #[test]
    fn a_page_of_prometheus_library_is_read_whole() {
        let page = MetricsPage::parse(GO, ExpositionFormat::Prometheus).unwrap();
        assert_eq!(page.sum("process_max_fds"), Some(20_000.0));
        assert_eq!(page.sum("process_cpu_seconds_total"), Some(0.04));
        assert_eq!(page.sum("process_virtual_memory_max_bytes"), Some(18_446_744_073_709_552_000.0));
        assert_eq!(kind(&page, "process_cpu_seconds_total"), MetricKind::Counter);
        assert_eq!(kind(&page, "process_open_fds"), MetricKind::Gauge);
        assert_eq!(kind(&page, "go_gc_duration_seconds_sum"), MetricKind::Counter);
        assert_eq!(kind(&page, "go_gc_duration_seconds"), MetricKind::Unknown, "quantiles");
        let labels = &page.samples_named("request_count").next().unwrap().0.labels;
        assert_eq!(labels[0], ("code".to_owned(), "502".to_owned()));
    }

    #[test]
    fn a_page_in_openmetrics_is_read_whole() {
        let page = MetricsPage::parse(AGENT, ExpositionFormat::OpenMetrics).unwrap();
        assert_eq!(page.sum("seawall_requests_total"), Some(21.0));
        assert_eq!(
            kind(&page, "seawall_requests_total"),
            MetricKind::Counter,
            "its type is that of seawall_requests"
        );
        assert_eq!(kind(&page, "seawall_request_duration_seconds_bucket"), MetricKind::Counter);
        assert_eq!(kind(&page, "seawall_connections_open"), MetricKind::Gauge);
        assert_eq!(page.sum("seawall_requests"), None);
    }

    #[test]
    fn what_has_no_type_counts_up_if_its_name_says_so() {
        let page = prometheus("a_total 1\na 1\n# TYPE b gauge\nb_total 1\n").unwrap();
        assert_eq!(
            ["a_total", "a", "b_total"].map(|name| kind(&page, name)),
            [MetricKind::Counter, MetricKind::Unknown, MetricKind::Unknown]
        );
    }

    #[test]
    fn a_page_that_is_cut_anywhere_is_none() {
        for length in 1..AGENT.len() - 1 {
            assert!(MetricsPage::parse(&AGENT[..length], ExpositionFormat::OpenMetrics).is_err(), "{length}");
        }
        for length in (1..GO.len()).filter(|&length| GO[length - 1] != b'\n') {
            assert_eq!(
                MetricsPage::parse(&GO[..length], ExpositionFormat::Prometheus),
                Err(ExpositionError::Truncated),
                "{length}"
            );
        }
        assert_eq!(
            MetricsPage::parse(b"a 1\n# EOF\nb 2\n# EOF\n", ExpositionFormat::OpenMetrics)
                .unwrap_err()
                .to_string(),
            "line 2: there is more text after the line '# EOF', which must be the last"
        );
    }

    #[test]
    fn labels_may_hold_anything_between_their_quotes() {
        let page = prometheus("a{x=\"1, } \\\"\\\\\\n\", b = \"ü\" ,} 1 1395066363000\n").unwrap();
        let labels =
            [("b", "ü"), ("x", "1, } \"\\\n")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(page.samples().next().unwrap().0.labels, labels);
    }

    #[test]
    fn values_may_be_infinite_or_none() {
        let page = prometheus("a +Inf\nb -Inf\nc NaN\nd 1.5e-3\n").unwrap();
        assert_eq!(page.sum("a"), Some(f64::INFINITY));
        assert_eq!(page.sum("b"), Some(f64::NEG_INFINITY));
        assert!(page.sum("c").unwrap().is_nan());
        assert_eq!(page.sum("d"), Some(0.0015));
    }

    #[test]
    fn an_exemplar_is_passed_over_in_openmetrics_alone() {
        let line = "a_bucket{le=\"1\"} 5 # {trace=\"x # y\"} 0.4 1.5\n";
        let page =
            MetricsPage::parse(format!("{line}# EOF").as_bytes(), ExpositionFormat::OpenMetrics).unwrap();
        assert_eq!(page.sum("a_bucket"), Some(5.0));
        assert_eq!(refused(line), "the timestamp is not a number");
    }

    #[test]
    fn what_is_no_sample_is_refused_with_its_reason() {
        for (text, why) in [
            ("<!doctype html>\n", "the name has invalid characters"),
            ("a\n", "the sample has no value"),
            ("a{} \n", "the sample has no value"),
            ("a x\n", "the value is not a number"),
            ("a 1 x\n", "the timestamp is not a number"),
            ("a 1 NaN\n", "the timestamp is not a number"),
            ("a 1 2 3\n", "expected only a value and a timestamp"),
            ("9a 1\n", "the name has invalid characters"),
            ("{\"utf-8\"} 1\n", "the name has invalid characters"),
            ("a{b} 1\n", "the label has no value"),
            ("a{b=c} 1\n", "the label value has no quotes"),
            ("a{b=\"c} 1\n", "the label value has no closing quote"),
            ("a{b=\"\\t\"} 1\n", "only a backslash, a quote or n can follow a backslash"),
            ("a{b=\"1\" c=\"2\"} 1\n", "expected a comma between labels"),
            ("a{b=\"1\",b=\"2\"} 1\n", "the label occurs twice"),
            ("a{b:c=\"1\"} 1\n", "the label name has invalid characters"),
            ("# TYPE a\n", "# TYPE needs a metric name and a type"),
            ("# TYPE a clock\n", "unknown metric type"),
        ] {
            assert_eq!(refused(text), why, "{text:?}");
        }
        let second = |text| prometheus(text).unwrap_err().to_string();
        assert_eq!(second("a 1\na 2\n"), "line 2: the sample occurs twice");
        assert_eq!(
            second("# TYPE a gauge\n# TYPE a counter\n"),
            "line 2: the page gives the metric two types"
        );
    }

    #[test]
    fn a_page_is_bounded_in_every_direction() {
        assert_eq!(
            MetricsPage::parse(&vec![b'#'; MOST_BYTES + 1], ExpositionFormat::Prometheus),
            Err(ExpositionError::TooLarge)
        );
        let many: String = (0..=MOST_SAMPLES).map(|at| format!("a{at} 1\n")).collect();
        assert_eq!(prometheus(&many), Err(ExpositionError::TooManySamples));
        assert_eq!(refused(&format!("{} 1\n", "a".repeat(MAX_NAME_BYTES + 1))), "the name is too long");
        assert_eq!(
            refused(&format!("a{{b=\"{}\"}} 1\n", "c".repeat(MAX_LABEL_VALUE_BYTES + 1))),
            "the label value is too long"
        );
        let labels: String = (0..=MOST_LABELS).map(|at| format!("l{at}=\"\",")).collect();
        assert_eq!(refused(&format!("a{{{labels}}} 1\n")), "too many labels");
        assert_eq!(
            MetricsPage::parse(b"a \xff\n", ExpositionFormat::Prometheus),
            Err(ExpositionError::NotText)
        );
    }

    #[test]
    fn the_format_is_what_content_type_says() {
        assert_eq!(
            ExpositionFormat::of(b"application/openmetrics-text; version=1.0.0; charset=utf-8"),
            ExpositionFormat::OpenMetrics
        );
        assert_eq!(
            ExpositionFormat::of(b"text/plain; version=0.0.4; charset=utf-8; escaping=underscores"),
            ExpositionFormat::Prometheus
        );
        assert_eq!(ExpositionFormat::of(b""), ExpositionFormat::Prometheus);
    }
}
