//! CSV as Go's `encoding/csv` writes it: twelve columns, quotes only where needed, `\n` after each row.

use std::io::Write;

use crate::record::Record;

use super::{json::append_base64, mime};

/// Appends one row; `scratch` is emptied and used.
pub(super) fn append(out: &mut Vec<u8>, scratch: &mut Vec<u8>, record: &Record) {
    // Formatting into memory cannot fail.
    let _ = write!(
        out,
        "{},{},{},{},{},",
        unix_nano(record),
        record.code,
        record.latency_ns,
        record.bytes_out,
        record.bytes_in
    );
    field(out, &record.error);
    out.push(b',');
    append_base64(out, &record.body);
    out.push(b',');
    field(out, &record.attack);
    let _ = write!(out, ",{},", record.seq);
    field(out, &record.method);
    out.push(b',');
    field(out, &record.url);
    out.push(b',');
    scratch.clear();
    mime::append(scratch, &record.headers);
    append_base64(out, scratch);
    out.push(b'\n');
}

/// Go's `Time.UnixNano`, which wraps outside the years 1678 to 2262.
fn unix_nano(record: &Record) -> i64 {
    let timestamp = record.timestamp;
    timestamp.unix_seconds().wrapping_mul(1_000_000_000).wrapping_add(i64::from(timestamp.subsec_nanos()))
}

fn field(out: &mut Vec<u8>, text: &str) {
    if !needs_quotes(text) {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    out.push(b'"');
    for byte in text.bytes() {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}

/// Go's `fieldNeedsQuotes`: separators, quotes, line breaks, leading white space, and PostgreSQL's end mark `\.`.
fn needs_quotes(text: &str) -> bool {
    text == "\\." || text.starts_with(char::is_whitespace) || text.contains([',', '"', '\r', '\n'])
}
