//! Properties that hold for any metrics page: reading it never panics, the samples stay within their bounds and survive being
//! written and read again, and a page without its end is refused. Called by `metrics_pages.rs` of `lab` and by the fuzz target
//! `exposition`.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write;

use seawall_lab::server_side::exposition::{
    ExpositionFormat, MAX_LABEL_VALUE_BYTES, MAX_NAME_BYTES, MOST_LABELS, MOST_SAMPLES, MetricSample,
    MetricSeries, MetricsPage,
};

/// The first byte chooses the format, the rest is the page.
pub fn check(input: &[u8]) {
    let Some((format, bytes)) = input.split_first() else { return };
    let format = if format % 2 == 0 { ExpositionFormat::Prometheus } else { ExpositionFormat::OpenMetrics };
    let Ok(page) = MetricsPage::parse(bytes, format) else { return };
    let samples: Vec<_> = page.samples().collect();
    assert!(samples.len() <= MOST_SAMPLES);
    samples.iter().for_each(|(series, _)| is_bounded(series));
    reads_back(&samples);
    misses_no_end(bytes, format);
}

fn is_bounded(MetricSeries { name, labels }: &MetricSeries) {
    assert!(!name.is_empty() && name.len() <= MAX_NAME_BYTES, "{name}");
    assert!(labels.len() <= MOST_LABELS, "{labels:?}");
    assert!(
        labels.iter().all(|(name, value)| !name.is_empty() && value.len() <= MAX_LABEL_VALUE_BYTES),
        "{labels:?}"
    );
    assert!(labels.is_sorted_by(|(one, _), (other, _)| one < other), "{labels:?}");
}

/// Written anew, without types, it has the same samples.
fn reads_back(samples: &[(&MetricSeries, &MetricSample)]) {
    let text: String = samples.iter().map(|(series, sample)| written(series, sample.value)).collect();
    let page = MetricsPage::parse(text.as_bytes(), ExpositionFormat::Prometheus).unwrap();
    let again: Vec<_> = page.samples().collect();
    assert_eq!(again.len(), samples.len(), "{text}");
    for ((series, sample), (same, value)) in samples.iter().zip(again) {
        assert_eq!(*series, same);
        assert!(sample.value == value.value || (sample.value.is_nan() && value.value.is_nan()), "{text}");
    }
}

fn written(series: &MetricSeries, value: f64) -> String {
    let mut text = series.name.clone();
    text.push('{');
    for (name, value) in &series.labels {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        write!(text, "{name}=\"{value}\",").unwrap();
    }
    format!("{text}}} {value}\n")
}

/// A page that lost its last letter is no page.
fn misses_no_end(bytes: &[u8], format: ExpositionFormat) {
    let end = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let Some(cut) = end.len().checked_sub(1) else { return };
    // What ends with a line, or holds nothing, is a page in the format that has no mark.
    let at_a_line = (cut == 0 || bytes[..cut].ends_with(b"\n")) && format == ExpositionFormat::Prometheus;
    assert!(at_a_line || MetricsPage::parse(&bytes[..cut], format).is_err(), "{:?}", &bytes[..cut]);
}
