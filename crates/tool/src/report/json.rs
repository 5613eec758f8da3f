//! `-type=json`: one line with vegeta's keys in vegeta's order, as Go's `encoding/json` writes it.

use std::fmt::Write;

use seawall_load::record::ZonedTimestamp;
use seawall_load::results::rfc3339::Rfc3339;

use super::hist::BucketCounts;
use super::text::sorted_codes;
use super::totals::Totals;

/// The whole report.
pub(crate) fn render(totals: &Totals, buckets: Option<&BucketCounts>) -> String {
    let mut out = String::new();
    // Formatting into memory cannot fail.
    let _ = object(&mut out, totals, buckets);
    out
}

fn object(out: &mut String, totals: &Totals, buckets: Option<&BucketCounts>) -> std::fmt::Result {
    latencies(out, totals)?;
    if let Some(histogram) = buckets {
        write!(out, ",\"buckets\":{}", histogram.to_json())?;
    }
    for (name, total) in [("bytes_in", totals.bytes_in), ("bytes_out", totals.bytes_out)] {
        write!(out, ",\"{name}\":{{\"total\":{total},\"mean\":{}}}", float(totals.mean_per_request(total)))?;
    }
    for (name, at) in [
        ("earliest", totals.earliest()),
        ("latest", totals.latest_request_start()),
        ("end", totals.end_time()),
    ] {
        write!(out, ",\"{name}\":\"{}\"", instant(at))?;
    }
    write!(out, ",\"duration\":{},\"wait\":{}", totals.duration().0, totals.wait_duration().0)?;
    write!(out, ",\"requests\":{},\"rate\":{}", totals.requests, float(totals.rate()))?;
    write!(
        out,
        ",\"throughput\":{},\"success\":{}",
        float(totals.throughput()),
        float(totals.success_ratio())
    )?;
    let codes =
        sorted_codes(totals).iter().map(|(code, count)| format!("\"{code}\":{count}")).collect::<Vec<_>>();
    write!(out, ",\"status_codes\":{{{}}}", codes.join(","))?;
    let remainder = totals.errors.omitted_message();
    let texts = totals.errors.iter().map(|(text, _)| text).chain(remainder.as_deref());
    let errors = texts.map(quote_json).collect::<Vec<_>>();
    writeln!(out, ",\"errors\":[{}]}}", errors.join(","))
}

fn latencies(out: &mut String, totals: &Totals) -> std::fmt::Result {
    let [p50, p90, p95, p99] = [0.5, 0.9, 0.95, 0.99].map(|q| totals.latency_quantile(q).0);
    let (total, mean) = (totals.latency.sum(), totals.mean_latency().0);
    write!(out, "{{\"latencies\":{{\"total\":{total},\"mean\":{mean},\"50th\":{p50},\"90th\":{p90}")?;
    write!(
        out,
        ",\"95th\":{p95},\"99th\":{p99},\"max\":{},\"min\":{}}}",
        totals.max_latency().0,
        totals.min_latency().0
    )
}

/// Years that RFC 3339 does not have come out as Go's zero time; vegeta prints no report at all then.
fn instant(at: ZonedTimestamp) -> String {
    shown(at).unwrap_or_else(|| "0001-01-01T00:00:00Z".to_owned())
}

fn shown(at: ZonedTimestamp) -> Option<String> {
    Rfc3339::new(at).map(|text| text.to_string())
}

/// An instant to the second, for people, if RFC 3339 has a form for it.
pub(super) fn format_to_second(at: ZonedTimestamp) -> Option<String> {
    shown(ZonedTimestamp::from_unix(at.unix_seconds(), 0, at.zone())?)
}

/// The shortest digits that return the same number; powers of ten below 1e-6 and from 1e21.
fn float(value: f64) -> String {
    let plain = value == 0.0 || (1e-6..1e21).contains(&value.abs());
    if plain { format!("{value}") } else { format!("{value:e}") }
}

/// A JSON string with Go's escapes: those of JSON, and what HTML or JavaScript could misread.
pub(crate) fn quote_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..' ' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            _ => out.push(letter),
        }
    }
    out.push('"');
    out
}
