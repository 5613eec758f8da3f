//! JSON lines as vegeta's generated encoder writes them: twelve keys, always all of them, always in this order.
//!
//! An empty body is `null`: that is what vegeta prints for every result that came through a gob pipe.

use std::io::Write;

use base64::prelude::{BASE64_STANDARD, Engine};

use crate::record::{Headers, Record};

use super::{EncodeError, rfc3339};

/// Appends one line.
pub(super) fn append(out: &mut Vec<u8>, record: &Record) -> Result<(), EncodeError> {
    out.extend_from_slice(b"{\"attack\":");
    string(out, record.attack.as_bytes());
    write!(out, ",\"seq\":{},\"code\":{},\"timestamp\":\"", record.seq, record.code)?;
    rfc3339::append(out, record.timestamp).ok_or(EncodeError::Year)?;
    write!(out, "\",\"latency\":{}", record.latency_ns)?;
    write!(out, ",\"bytes_out\":{},\"bytes_in\":{},\"error\":", record.bytes_out, record.bytes_in)?;
    string(out, record.error.as_bytes());
    out.extend_from_slice(b",\"body\":");
    body(out, &record.body);
    out.extend_from_slice(b",\"method\":");
    string(out, record.method.as_bytes());
    out.extend_from_slice(b",\"url\":");
    string(out, record.url.as_bytes());
    out.extend_from_slice(b",\"headers\":");
    headers(out, &record.headers);
    out.extend_from_slice(b"}\n");
    Ok(())
}

fn body(out: &mut Vec<u8>, body: &[u8]) {
    if body.is_empty() {
        out.extend_from_slice(b"null");
        return;
    }
    out.push(b'"');
    append_base64(out, body);
    out.push(b'"');
}

/// Appends standard base64 with padding, without an intermediate string.
pub(super) fn append_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = BASE64_STANDARD.encode_slice(bytes, &mut out[start..]);
    out.truncate(start + written.unwrap_or(0));
}

fn headers(out: &mut Vec<u8>, headers: &Headers) {
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
        out.extend_from_slice(b":[");
        for (j, value) in values.enumerate() {
            if j > 0 {
                out.push(b',');
            }
            string(out, value);
        }
        out.push(b']');
    }
    out.push(b'}');
}

/// Appends a JSON string; bytes that are not UTF-8 become U+FFFD, one each, as in easyjson.
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
