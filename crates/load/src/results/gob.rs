//! Go's gob encoding of vegeta's `Result`: writing here, reading in `read`.
//!
//! A gob stream is a sequence of messages, each with its length in front. The first messages describe the types. Every later
//! message is a value: the type's number, then the fields that are not zero, each with the distance from the previous field's
//! number. Source: Go `encoding/gob/doc.go`. The description is the one that vegeta 12.13 sends, built with Go's standard
//! library.

pub(super) mod read;
mod types;

use crate::record::{Record, YEAR_ONE_TO_UNIX, Zone, ZonedTimestamp};

/// The messages that describe `Result`, `Time`, `Header` and its list of strings (type numbers 64 to 67).
///
/// Go numbers types as it meets them, so another build may number them differently; a reader uses the numbers of the stream. This
/// encoder always writes the same description.
pub(super) const TYPE_DEFINITIONS: &[u8] = b"\
    \xff\x96\x7f\x03\x01\x01\x06Result\x01\xff\x80\x00\x01\x0c\
    \x01\x06Attack\x01\x0c\x00\
    \x01\x03Seq\x01\x06\x00\
    \x01\x04Code\x01\x06\x00\
    \x01\x09Timestamp\x01\xff\x82\x00\
    \x01\x07Latency\x01\x04\x00\
    \x01\x08BytesOut\x01\x06\x00\
    \x01\x07BytesIn\x01\x06\x00\
    \x01\x05Error\x01\x0c\x00\
    \x01\x04Body\x01\x0a\x00\
    \x01\x06Method\x01\x0c\x00\
    \x01\x03URL\x01\x0c\x00\
    \x01\x07Headers\x01\xff\x86\x00\
    \x00\x00\
    \x10\xff\x81\x05\x01\x01\x04Time\x01\xff\x82\x00\x00\x00\
    \x17\xff\x85\x04\x01\x01\x06Header\x01\xff\x86\x00\x01\x0c\x01\xff\x84\x00\x00\
    \x0c\xff\x83\x02\x01\x02\xff\x84\x00\x01\x0c\x00\x00";

/// The number of `Result`, 64, as a gob int.
const RESULT: &[u8] = b"\xff\x80";

/// Appends one value message; `scratch` is emptied and used.
pub(super) fn append(out: &mut Vec<u8>, scratch: &mut Vec<u8>, record: &Record) {
    scratch.clear();
    scratch.extend_from_slice(RESULT);
    let mut fields = Fields { out: scratch, last: -1 };
    fields.bytes(0, record.attack.as_bytes());
    fields.uint(1, record.seq);
    fields.uint(2, u64::from(record.code));
    fields.time(3, record.due_timestamp);
    fields.int(4, record.latency_ns);
    fields.uint(5, record.bytes_out);
    fields.uint(6, record.bytes_in);
    fields.bytes(7, record.error.as_bytes());
    fields.bytes(8, &record.response_body);
    fields.bytes(9, record.method.as_bytes());
    fields.bytes(10, record.url.as_bytes());
    fields.headers(11, record);
    scratch.push(0);
    uint(out, scratch.len() as u64);
    out.extend_from_slice(scratch);
}

/// The fields of one struct, in order, without those that are zero.
struct Fields<'a> {
    out: &'a mut Vec<u8>,
    last: i8,
}

impl Fields<'_> {
    fn start(&mut self, field: i8) {
        self.out.push((field - self.last).unsigned_abs());
        self.last = field;
    }

    fn uint(&mut self, field: i8, value: u64) {
        if value != 0 {
            self.start(field);
            uint(self.out, value);
        }
    }

    fn int(&mut self, field: i8, value: i64) {
        self.uint(field, zigzag(value));
    }

    fn bytes(&mut self, field: i8, value: &[u8]) {
        if !value.is_empty() {
            self.start(field);
            bytes(self.out, value);
        }
    }

    fn time(&mut self, field: i8, value: ZonedTimestamp) {
        if value != ZonedTimestamp::default() {
            self.start(field);
            time(self.out, value);
        }
    }

    fn headers(&mut self, field: i8, record: &Record) {
        if record.response_headers.is_absent() {
            return;
        }
        self.start(field);
        uint(self.out, record.response_headers.name_count() as u64);
        for (name, values) in record.response_headers.groups() {
            bytes(self.out, name);
            uint(self.out, values.as_ref().map_or(0, ExactSizeIterator::len) as u64);
            values.into_iter().flatten().for_each(|value| bytes(self.out, value));
        }
    }
}

/// Appends an unsigned number. Below 128 it is the byte itself; else the negated count of bytes, then the bytes, most significant
/// first.
fn uint(out: &mut Vec<u8>, value: u64) {
    if value < 128 {
        out.push(value as u8);
        return;
    }
    let skip = value.leading_zeros() as usize / 8;
    let digits = &value.to_be_bytes()[skip..];
    out.push((digits.len() as u8).wrapping_neg());
    out.extend_from_slice(digits);
}

/// Moves the sign to the lowest bit; the other bits of a negative number are flipped.
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

fn bytes(out: &mut Vec<u8>, value: &[u8]) {
    uint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Appends an instant like Go's `Time.MarshalBinary`: version, seconds since year 1, nanoseconds, minutes east (-1 is UTC), and
/// in version 2 the odd seconds of the offset.
///
/// An offset that rounds to -1 minute has no form of its own; it is written as UTC, which is the same instant.
fn time(out: &mut Vec<u8>, value: ZonedTimestamp) {
    let (minutes, odd) = match value.zone() {
        Zone::Utc => (-1, 0),
        Zone::SecondsEast(seconds) => match i16::try_from(seconds / 60) {
            Ok(minutes) if minutes != -1 => (minutes, (seconds % 60) as i8),
            _ => (-1, 0),
        },
    };
    let version = if odd == 0 { 1 } else { 2 };
    uint(out, if odd == 0 { 15 } else { 16 });
    out.push(version);
    out.extend_from_slice(&value.unix_seconds().wrapping_add(YEAR_ONE_TO_UNIX).to_be_bytes());
    out.extend_from_slice(&value.subsec_nanos().to_be_bytes());
    out.extend_from_slice(&minutes.to_be_bytes());
    if odd != 0 {
        out.push(odd.cast_unsigned());
    }
}
