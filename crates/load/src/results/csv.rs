//! CSV as Go's `encoding/csv` writes it: twelve columns, quotes only where needed, `\n` after each row. Six further columns
//! describe the connection, if the run records connections; they are empty for a request without one.

use std::borrow::Cow;
use std::io::{BufRead, Write};
use std::str::FromStr;

use base64::prelude::{BASE64_STANDARD, Engine};

use crate::record::{ConnectionTimings, Record, RecordedConnection, Zone, ZonedTimestamp};

use super::decode::{DecodeErrorKind, InputPosition, read_line};
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
    append_base64(out, &record.response_body);
    out.push(b',');
    field(out, &record.attack);
    let _ = write!(out, ",{},", record.seq);
    field(out, &record.method);
    out.push(b',');
    field(out, &record.url);
    out.push(b',');
    scratch.clear();
    mime::append(scratch, &record.response_headers);
    append_base64(out, scratch);
    carriage(out, record.connection);
    out.push(b'\n');
}

/// Appends six columns: connection id, reuse count, and idle, connect, TLS and first-byte time. Times are in nanoseconds, as
/// vegeta's latency is.
fn carriage(out: &mut Vec<u8>, carriage: RecordedConnection) {
    let columns = match carriage {
        RecordedConnection::ConnectionNotRecorded => return,
        RecordedConnection::None => [None; CARRIER],
        RecordedConnection::Timings(ConnectionTimings {
            connection_id: number,
            reuse_count: before,
            idle,
            connect,
            tls,
            first_byte,
        }) => [Some(number), Some(before), Some(idle), Some(connect), tls, first_byte],
    };
    for column in columns {
        out.push(b',');
        // Formatting into memory cannot fail.
        let _ = column.map_or(Ok(()), |value| write!(out, "{value}"));
    }
}

/// Returns Go's `Time.UnixNano`, which wraps outside the years 1678 to 2262.
fn unix_nano(record: &Record) -> i64 {
    let timestamp = record.due_timestamp;
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

/// Implements Go's `fieldNeedsQuotes`: separators, quotes, line breaks, leading white space, and PostgreSQL's end mark `\.`.
fn needs_quotes(text: &str) -> bool {
    text == "\\." || text.starts_with(char::is_whitespace) || text.contains([',', '"', '\r', '\n'])
}

const COLUMNS: usize = 12;

/// The number of columns that describe the connection.
const CARRIER: usize = 6;

/// The mistake in a row.
#[derive(Debug, thiserror::Error)]
pub enum CsvError {
    /// The row has too many or too few columns.
    #[error("the row has {0} columns: expected {COLUMNS}, or {ALL} with connection timings", ALL = COLUMNS + CARRIER)]
    Columns(usize),
    /// A quote is inside a field that does not start with a quote, or text follows a closing quote.
    #[error("column {0} has a quote in the wrong place")]
    Quote(usize),
    /// The field is not a number, or is out of range.
    #[error("column {0} is not a number in the allowed range")]
    Number(usize),
    /// The field is not base64.
    #[error("column {0} is not base64")]
    Base64(usize),
    /// The field is not a block of headers.
    #[error("column {COLUMNS} is not a complete block of headers")]
    Headers,
}

/// The state of the reader between rows.
#[derive(Debug, Default)]
pub(super) struct CsvReader {
    row: Vec<u8>,
    block: Vec<u8>,
    lines: u64,
    start: u64,
}

impl CsvReader {
    pub(super) fn record_position(&self) -> InputPosition {
        InputPosition::Line(self.start)
    }

    pub(super) fn next(
        &mut self,
        input: &mut impl BufRead,
        record: &mut Record,
    ) -> Result<bool, DecodeErrorKind> {
        if !self.row(input)? {
            return Ok(false);
        }
        let (columns, count) = split(&self.row)?;
        fill(&columns, &mut self.block, record)?;
        if count > COLUMNS {
            record.connection = carrier(&columns)?;
        }
        Ok(true)
    }

    /// Reads one row without its line break into `self.row`; line breaks inside quotes belong to the row.
    fn row(&mut self, input: &mut impl BufRead) -> Result<bool, DecodeErrorKind> {
        self.row.clear();
        while self.row.trim_ascii().is_empty() {
            self.row.clear();
            self.start = self.lines + 1;
            if !self.line(input)? {
                return Ok(false);
            }
        }
        let mut quotes = quotes(&self.row);
        while quotes % 2 == 1 {
            let seen = self.row.len();
            if !self.line(input)? {
                return Err(DecodeErrorKind::Truncated);
            }
            quotes += self::quotes(&self.row[seen..]);
        }
        // A row without a line break may have lost the end of its headers, which would go unnoticed.
        let whole = self.row.pop_if(|last| *last == b'\n').ok_or(DecodeErrorKind::Truncated);
        self.row.pop_if(|last| *last == b'\r');
        whole.map(|_| true)
    }

    fn line(&mut self, input: &mut impl BufRead) -> Result<bool, DecodeErrorKind> {
        self.lines += 1;
        read_line(input, &mut self.row)
    }
}

fn quotes(text: &[u8]) -> usize {
    memchr::memchr_iter(b'"', text).count()
}

type Column<'a> = Cow<'a, [u8]>;
type Columns<'a> = [Column<'a>; COLUMNS + CARRIER];

/// Splits a row like Go's reader with `TrimLeadingSpace`, into twelve columns or twelve and those of the connection. Returns the
/// number of columns, too.
fn split(row: &[u8]) -> Result<(Columns<'_>, usize), CsvError> {
    let mut columns = Columns::default();
    let (mut count, mut rest) = (0, Some(row));
    while let Some(text) = rest {
        let (column, after) = column(text.trim_ascii_start()).ok_or(CsvError::Quote(count + 1))?;
        if let Some(place) = columns.get_mut(count) {
            *place = column;
        }
        (count, rest) = (count + 1, after);
    }
    let fits = count == COLUMNS || count == COLUMNS + CARRIER;
    if fits { Ok((columns, count)) } else { Err(CsvError::Columns(count)) }
}

/// Reads the columns after vegeta's columns.
fn carrier(columns: &Columns<'_>) -> Result<RecordedConnection, CsvError> {
    let value = |column: usize| {
        let at = COLUMNS + column;
        if columns[at].is_empty() { Ok(None) } else { number(columns, at).map(Some) }
    };
    let [number, before, idle, connect, tls, first_byte] =
        [value(0)?, value(1)?, value(2)?, value(3)?, value(4)?, value(5)?];
    let some = |column: usize, value: Option<u64>| value.ok_or(CsvError::Number(COLUMNS + column + 1));
    if number.is_none() {
        return Ok(RecordedConnection::None);
    }
    Ok(RecordedConnection::Timings(ConnectionTimings {
        connection_id: some(0, number)?,
        reuse_count: some(1, before)?,
        idle: some(2, idle)?,
        connect: some(3, connect)?,
        tls,
        first_byte,
    }))
}

/// Returns the first column and the text after its comma; `None` for a stray quote.
fn column(text: &[u8]) -> Option<(Column<'_>, Option<&[u8]>)> {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let end = memchr::memchr(b',', text).unwrap_or(text.len());
        let plain = !text[..end].contains(&b'"');
        return plain.then(|| (Cow::Borrowed(&text[..end]), text.get(end + 1..)));
    };
    let mut value = Vec::new();
    let mut rest = quoted;
    loop {
        let end = memchr::memchr(b'"', rest)?;
        value.extend_from_slice(&rest[..end]);
        match rest[end + 1..] {
            [b'"', ref more @ ..] => {
                value.push(b'"');
                rest = more;
            }
            [b',', ref more @ ..] => return Some((Cow::Owned(value), Some(more))),
            [] => return Some((Cow::Owned(value), None)),
            _ => return None,
        }
    }
}

/// The zone that vegeta uses on a machine in UTC; gob distinguishes it from UTC itself.
const ZONE: Zone = Zone::SecondsEast(0);

/// Fills the record from the columns. The format has no time zone: instants are UTC here, where vegeta uses the reader's zone.
fn fill(columns: &Columns<'_>, block: &mut Vec<u8>, record: &mut Record) -> Result<(), CsvError> {
    record.due_timestamp = ZonedTimestamp::from_unix_ns(number(columns, 0)?, ZONE);
    record.code = number(columns, 1)?;
    record.latency_ns = number(columns, 2)?;
    record.bytes_out = number(columns, 3)?;
    record.bytes_in = number(columns, 4)?;
    let text = |column: usize| String::from_utf8_lossy(&columns[column]);
    record.error.push_str(&text(5));
    BASE64_STANDARD.decode_vec(&columns[6], &mut record.response_body).map_err(|_| CsvError::Base64(7))?;
    record.empty_body = record.response_body.is_empty();
    record.attack.push_str(&text(7));
    record.seq = number(columns, 8)?;
    record.method.push_str(&text(9));
    record.url.push_str(&text(10));
    if !columns[11].is_empty() {
        block.clear();
        BASE64_STANDARD.decode_vec(&columns[11], block).map_err(|_| CsvError::Base64(12))?;
        mime::parse(block, &mut record.response_headers).ok_or(CsvError::Headers)?;
    }
    Ok(())
}

fn number<N: FromStr>(columns: &Columns<'_>, column: usize) -> Result<N, CsvError> {
    let digits = str::from_utf8(&columns[column]).ok();
    digits.and_then(|digits| digits.parse().ok()).ok_or(CsvError::Number(column + 1))
}
