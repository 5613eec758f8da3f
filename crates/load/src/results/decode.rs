//! Reads bytes as records: detects the format, and reports the position of damage and the number of records before it.
//!
//! A run that was killed leaves a file cut inside its last record; a copy may be damaged. Neither is fatal: every record before
//! the damage is returned first, then the error describes the damage and its position. vegeta stops silently there.

use std::io::{self, BufRead, Read};

use crate::record::Record;

use super::{ResultFormat, csv, gob, json};

/// The maximum size of a record that is read. It is generous, because vegeta keeps whole response bodies. It prevents that a
/// damaged length reserves all memory; memory grows only with the bytes that really arrive.
pub const MAX_RECORD: u64 = 1 << 30;

/// Reads the records of one input in its detected format.
#[derive(Debug)]
pub struct Decoder<R> {
    input: R,
    state: State,
    read: u64,
}

#[derive(Debug)]
enum State {
    Gob(gob::read::GobReader),
    Json(json::JsonRecordReader),
    Csv(csv::CsvReader),
}

/// The position at which an input is broken, and the number of good records before it.
#[derive(Debug, thiserror::Error)]
#[error("{fault} ({record_position}, after {record_count} records)")]
pub struct DecodeError {
    /// The number of records before the damage.
    pub record_count: u64,
    /// The start of the broken record.
    pub record_position: InputPosition,
    /// The mistake.
    pub fault: DecodeErrorKind,
}

/// A position in an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputPosition {
    /// The number of bytes from the start.
    Byte(u64),
    /// The number of the line, from 1.
    Line(u64),
}

impl std::fmt::Display for InputPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Byte(byte) => write!(f, "at byte {byte}"),
            Self::Line(line) => write!(f, "at line {line}"),
        }
    }
}

/// A mistake in an input.
#[derive(Debug, thiserror::Error)]
pub enum DecodeErrorKind {
    /// The operating system refused to read on.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The input is empty.
    #[error("the input is empty")]
    Empty,
    /// The first record is not valid in any of the formats.
    #[error("the input is not results in gob, JSON or CSV: {0}")]
    Unrecognised(Box<DecodeErrorKind>),
    /// The input ends inside a record.
    #[error("the input is truncated: it ends inside a record")]
    Truncated,
    /// The record is longer than [`MAX_RECORD`].
    #[error("a record is longer than {MAX_RECORD} bytes")]
    TooLong,
    /// A gob message that Go would not have written.
    #[error("damaged gob: {0}")]
    Gob(#[from] gob::read::GobError),
    /// A line that is not a record in JSON.
    #[error("damaged JSON: {0}")]
    Json(#[from] json::JsonRecordError),
    /// A row that is not a record in CSV.
    #[error("damaged CSV: {0}")]
    Csv(#[from] csv::CsvError),
}

impl<R: BufRead> Decoder<R> {
    /// Looks at the first bytes, consumes none, and chooses the format.
    ///
    /// # Errors
    /// [`DecodeErrorKind::Empty`] and [`DecodeErrorKind::Io`]. An input in no known format fails with the first record.
    pub fn detect(mut input: R) -> Result<Self, DecodeError> {
        let start = |fault| DecodeError { record_count: 0, record_position: InputPosition::Byte(0), fault };
        let head = input.fill_buf().map_err(|error| start(error.into()))?;
        if head.is_empty() {
            return Err(start(DecodeErrorKind::Empty));
        }
        let format = sniff(head);
        Ok(Self::new(format, input))
    }

    /// Makes a decoder for a known format.
    pub fn new(format: ResultFormat, input: R) -> Self {
        let state = match format {
            ResultFormat::Gob => State::Gob(gob::read::GobReader::default()),
            ResultFormat::Json => State::Json(json::JsonRecordReader::default()),
            ResultFormat::Csv => State::Csv(csv::CsvReader::default()),
        };
        Self { input, state, read: 0 }
    }

    /// Returns the format of this input.
    #[must_use]
    pub fn format(&self) -> ResultFormat {
        match self.state {
            State::Gob(_) => ResultFormat::Gob,
            State::Json(_) => ResultFormat::Json,
            State::Csv(_) => ResultFormat::Csv,
        }
    }

    /// Fills `record` with the next record; `false` at the end of the input.
    ///
    /// # Errors
    /// [`DecodeError`]; the input cannot be used afterwards.
    pub fn decode(&mut self, record: &mut Record) -> Result<bool, DecodeError> {
        record.clear();
        let (outcome, place) = match &mut self.state {
            State::Gob(reader) => (reader.next(&mut self.input, record), reader.record_position()),
            State::Json(reader) => (reader.next(&mut self.input, record), reader.record_position()),
            State::Csv(reader) => (reader.next(&mut self.input, record), reader.record_position()),
        };
        let more = outcome.map_err(|fault| self.describe(place, fault))?;
        self.read += u64::from(more);
        Ok(more)
    }

    fn describe(&self, place: InputPosition, fault: DecodeErrorKind) -> DecodeError {
        let known = self.read > 0 || matches!(fault, DecodeErrorKind::Io(_) | DecodeErrorKind::Empty);
        let fault = if known { fault } else { DecodeErrorKind::Unrecognised(Box::new(fault)) };
        DecodeError { record_count: self.read, record_position: place, fault }
    }
}

/// Chooses the format by the first bytes. A gob stream starts with a message length and the number of a type. That number is a
/// byte that text does not have there: Go numbers its first type 64, and describes it under -64, so the byte is 0x7f or above.
fn sniff(head: &[u8]) -> ResultFormat {
    let text = head.trim_ascii_start();
    match *text {
        [b'{', ref rest @ ..] if matches!(rest.trim_ascii_start().first(), None | Some(b'"' | b'}')) => {
            ResultFormat::Json
        }
        [b'0'..=b'9' | b'-' | b'"', b'0'..=b'9' | b',' | b'"', ..] => ResultFormat::Csv,
        _ => ResultFormat::Gob,
    }
}

/// Appends bytes up to and including the next newline to `line`; `false` at the end of the input.
pub(super) fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> Result<bool, DecodeErrorKind> {
    let room = MAX_RECORD.saturating_sub(line.len() as u64);
    let read = input.take(room).read_until(b'\n', line)? as u64;
    if read == room && line.last() != Some(&b'\n') {
        return Err(DecodeErrorKind::TooLong);
    }
    Ok(read > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_tell_the_format() {
        assert_eq!(sniff(b"{\"attack\""), ResultFormat::Json);
        assert_eq!(sniff(b"\n { }"), ResultFormat::Json);
        assert_eq!(sniff(b"{"), ResultFormat::Json);
        assert_eq!(sniff(b"17357,200"), ResultFormat::Csv);
        assert_eq!(sniff(b"-67,0"), ResultFormat::Csv);
        assert_eq!(sniff(b"\"17\",0"), ResultFormat::Csv);
        assert_eq!(sniff(b"\xff\x96\x7f"), ResultFormat::Gob);
        // A short description can have a length that is the code of a brace or a digit.
        assert_eq!(sniff(b"{\x7f\x03"), ResultFormat::Gob);
        assert_eq!(sniff(b"1\xff\x81\x03"), ResultFormat::Gob);
    }
}
