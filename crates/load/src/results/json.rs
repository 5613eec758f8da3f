//! JSON lines as vegeta's generated encoder writes them: always the same twelve keys in the same order.
//!
//! If the run records connections, a thirteenth key describes the connection; vegeta ignores it. An absent body is `null`: vegeta
//! prints that for every result without a body that came through a gob pipe.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{BufRead, Write};

use base64::prelude::{BASE64_STANDARD, Engine};
use serde::{Deserialize, Deserializer};

use crate::record::{Record, RecordedConnection, ResponseHeaders};

use super::decode::{DecodeErrorKind, InputPosition, read_line};
use super::{EncodeError, rfc3339};

/// Appends one line.
pub(super) fn append(out: &mut Vec<u8>, record: &Record) -> Result<(), EncodeError> {
    out.extend_from_slice(b"{\"attack\":");
    string(out, record.attack.as_bytes());
    write!(out, ",\"seq\":{},\"code\":{},\"timestamp\":\"", record.seq, record.code)?;
    rfc3339::append(out, record.due_timestamp).ok_or(EncodeError::Year)?;
    write!(out, "\",\"latency\":{}", record.latency_ns)?;
    write!(out, ",\"bytes_out\":{},\"bytes_in\":{},\"error\":", record.bytes_out, record.bytes_in)?;
    string(out, record.error.as_bytes());
    out.extend_from_slice(b",\"body\":");
    body(out, record);
    out.extend_from_slice(b",\"method\":");
    string(out, record.method.as_bytes());
    out.extend_from_slice(b",\"url\":");
    string(out, record.url.as_bytes());
    out.extend_from_slice(b",\"headers\":");
    headers(out, &record.response_headers);
    carriage(out, record.connection)?;
    out.extend_from_slice(b"}\n");
    Ok(())
}

fn body(out: &mut Vec<u8>, record: &Record) {
    if record.response_body.is_empty() && !record.empty_body {
        out.extend_from_slice(b"null");
        return;
    }
    out.push(b'"');
    append_base64(out, &record.response_body);
    out.push(b'"');
}

/// Appends standard base64 with padding, without an intermediate string.
pub(super) fn append_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = BASE64_STANDARD.encode_slice(bytes, &mut out[start..]);
    out.truncate(start + written.unwrap_or(0));
}

fn carriage(out: &mut Vec<u8>, carriage: RecordedConnection) -> Result<(), EncodeError> {
    match carriage {
        RecordedConnection::ConnectionNotRecorded => {}
        RecordedConnection::None => out.extend_from_slice(b",\"connection\":null"),
        RecordedConnection::Timings(carrier) => {
            out.extend_from_slice(b",\"connection\":");
            serde_json::to_writer(out, &carrier).map_err(std::io::Error::from)?;
        }
    }
    Ok(())
}

fn headers(out: &mut Vec<u8>, headers: &ResponseHeaders) {
    if headers.is_absent() {
        out.extend_from_slice(b"null");
        return;
    }
    out.push(b'{');
    for (i, (name, values)) in headers.groups().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        string(out, name);
        out.push(b':');
        match values {
            Some(values) => list(out, values),
            None => out.extend_from_slice(b"null"),
        }
    }
    out.push(b'}');
}

fn list<'a>(out: &mut Vec<u8>, values: impl Iterator<Item = &'a [u8]>) {
    out.push(b'[');
    for (i, value) in values.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        string(out, value);
    }
    out.push(b']');
}

/// Appends a JSON string; each byte that is not UTF-8 becomes U+FFFD, as in easyjson.
fn string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for chunk in text.utf8_chunks() {
        chunk.valid().chars().for_each(|letter| escape(out, letter));
        chunk.invalid().iter().for_each(|_| out.extend_from_slice(b"\\ufffd"));
    }
    out.push(b'"');
}

fn escape(out: &mut Vec<u8>, letter: char) {
    match letter {
        '\t' => out.extend_from_slice(b"\\t"),
        '\r' => out.extend_from_slice(b"\\r"),
        '\n' => out.extend_from_slice(b"\\n"),
        '"' => out.extend_from_slice(b"\\\""),
        '\\' => out.extend_from_slice(b"\\\\"),
        '\0'..' ' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
            // Formatting into memory cannot fail.
            let _ = write!(out, "\\u{:04x}", u32::from(letter));
        }
        _ => out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// The mistake in a line.
#[derive(Debug, thiserror::Error)]
pub enum JsonRecordError {
    /// The line is not an object with the fields' types.
    #[error(transparent)]
    Syntax(#[from] serde_json::Error),
    /// The line is other JSON: vegeta writes a timestamp into each result.
    #[error("the line has no \"timestamp\", so it is not a result")]
    NoTimestamp,
    /// The timestamp is not RFC 3339.
    #[error("timestamp {0:?} is invalid: expected RFC 3339")]
    Timestamp(String),
    /// The body is not base64.
    #[error("the body is not base64: {0}")]
    Body(#[from] base64::DecodeError),
}

/// The state of the reader between lines.
#[derive(Debug, Default)]
pub(super) struct JsonRecordReader {
    line: Vec<u8>,
    number: u64,
}

impl JsonRecordReader {
    pub(super) fn record_position(&self) -> InputPosition {
        InputPosition::Line(self.number)
    }

    pub(super) fn next(
        &mut self,
        input: &mut impl BufRead,
        record: &mut Record,
    ) -> Result<bool, DecodeErrorKind> {
        loop {
            self.line.clear();
            self.number += 1;
            if !read_line(input, &mut self.line)? {
                return Ok(false);
            }
            if !self.line.trim_ascii().is_empty() {
                return self.fill(record).map(|()| true);
            }
        }
    }

    fn fill(&self, record: &mut Record) -> Result<(), DecodeErrorKind> {
        // Only the last line can lack its newline: if it is invalid then, it was truncated, not damaged.
        let whole = self.line.ends_with(b"\n");
        parse(&self.line, record)
            .map_err(|damage| if whole { DecodeErrorKind::Json(damage) } else { DecodeErrorKind::Truncated })
    }
}

/// vegeta's keys. Unknown keys are ignored, and `null` means zero, as in easyjson.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    attack: Option<Cow<'a, str>>,
    seq: Option<u64>,
    code: Option<u16>,
    #[serde(borrow)]
    timestamp: Option<Cow<'a, str>>,
    latency: Option<i64>,
    bytes_out: Option<u64>,
    bytes_in: Option<u64>,
    #[serde(borrow)]
    error: Option<Cow<'a, str>>,
    #[serde(borrow)]
    body: Option<Cow<'a, str>>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    url: Option<Cow<'a, str>>,
    #[serde(borrow)]
    headers: Option<BTreeMap<Cow<'a, str>, Values<'a>>>,
    #[serde(default, deserialize_with = "told")]
    connection: RecordedConnection,
}

/// Reads the key of the connection; a key that is present is meaningful even if it is `null`.
fn told<'de, D: Deserializer<'de>>(connection: D) -> Result<RecordedConnection, D::Error> {
    Ok(Option::deserialize(connection)?.map_or(RecordedConnection::None, RecordedConnection::Timings))
}

type Values<'a> = Option<Vec<Cow<'a, str>>>;

fn parse(line: &[u8], record: &mut Record) -> Result<(), JsonRecordError> {
    let line: Line<'_> = serde_json::from_slice(line)?;
    let push =
        |field: &mut String, text: &Option<Cow<'_, str>>| field.push_str(text.as_deref().unwrap_or(""));
    push(&mut record.attack, &line.attack);
    push(&mut record.error, &line.error);
    push(&mut record.method, &line.method);
    push(&mut record.url, &line.url);
    record.seq = line.seq.unwrap_or(0);
    record.code = line.code.unwrap_or(0);
    record.latency_ns = line.latency.unwrap_or(0);
    record.bytes_out = line.bytes_out.unwrap_or(0);
    record.bytes_in = line.bytes_in.unwrap_or(0);
    let text = line.timestamp.ok_or(JsonRecordError::NoTimestamp)?;
    record.due_timestamp =
        rfc3339::parse(&text).ok_or_else(|| JsonRecordError::Timestamp(text.into_owned()))?;
    BASE64_STANDARD.decode_vec(line.body.as_deref().unwrap_or(""), &mut record.response_body)?;
    record.empty_body = line.body.is_some() && record.response_body.is_empty();
    for (name, values) in line.headers.iter().flatten() {
        match values.as_deref() {
            None => record.response_headers.add_name_with_nil_values(name.as_bytes()),
            Some([]) => record.response_headers.add_name_without_values(name.as_bytes()),
            Some(values) => {
                values
                    .iter()
                    .for_each(|value| record.response_headers.push(name.as_bytes(), value.as_bytes()));
            }
        }
    }
    if line.headers.is_some() {
        record.response_headers.mark_present();
    }
    record.connection = line.connection;
    Ok(())
}
