//! Reads gob streams of vegeta's `Result` with any type numbers of the writer's Go.
//!
//! Fields are found by name in the type that the stream describes, so older results (without method, URL or headers) and newer
//! ones (with unknown fields) are read, too. Two concatenated streams, which Go refuses, are read: the descriptions of the second
//! one replace those of the first. No stream can make the work or the memory exceed the bytes that arrived.

use std::collections::HashMap;
use std::io::{BufRead, Read};

use crate::record::{Record, ResponseHeaders, YEAR_ONE_TO_UNIX, Zone, ZonedTimestamp};
use crate::results::decode::{DecodeErrorKind, InputPosition, MAX_RECORD};

use super::types::{Builtin, GobField, GobLayout, GobStructPlan, GobTypes};

/// The state of the reader between messages.
#[derive(Debug, Default)]
pub(crate) struct GobReader {
    types: GobTypes,
    plans: HashMap<i64, GobStructPlan>,
    message: Vec<u8>,
    offset: u64,
    start: u64,
}

/// A mistake in a gob message.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum GobError {
    /// A value extends beyond the end of its message.
    #[error("a value is longer than its message")]
    Short,
    /// Bytes follow the value in its message.
    #[error("a message is longer than its value")]
    Long,
    /// A number has more than eight bytes.
    #[error("a number has more than eight bytes")]
    Wide,
    /// The type of a value was never described, or its description is invalid.
    #[error("the input does not describe the type of a value")]
    Type,
    /// There are more types, or deeper ones, than results need.
    #[error("the input describes too many types")]
    TooManyTypes,
    /// The values are not structs.
    #[error("the values are not results")]
    NotResults,
    /// A known field has the wrong type.
    #[error("field {0} has the wrong type")]
    WrongFieldType(&'static str),
    /// A number is outside the range of its field.
    #[error("field {0} is out of range")]
    Range(&'static str),
    /// The value is not an instant.
    #[error("a timestamp is invalid")]
    Time,
}

impl GobReader {
    pub(crate) fn record_position(&self) -> InputPosition {
        InputPosition::Byte(self.start)
    }

    pub(crate) fn next(
        &mut self,
        input: &mut impl BufRead,
        record: &mut Record,
    ) -> Result<bool, DecodeErrorKind> {
        loop {
            if !self.message(input)? {
                return Ok(false);
            }
            let mut cursor = GobCursor { rest: &self.message };
            match cursor.int()? {
                described if described < 0 => {
                    self.types
                        .read_definition(described.checked_neg().ok_or(GobError::Type)?, &mut cursor)?;
                    self.plans.clear();
                    cursor.end()?;
                }
                described => {
                    let plan = match self.plans.entry(described) {
                        std::collections::hash_map::Entry::Occupied(plan) => plan.into_mut(),
                        std::collections::hash_map::Entry::Vacant(free) => {
                            free.insert(self.types.plan(described)?)
                        }
                    };
                    plan.fill(&self.types, &mut cursor, record)?;
                    cursor.end()?;
                    return Ok(true);
                }
            }
        }
    }

    /// Reads the next message without its length into `self.message`; `false` at the end of the stream.
    fn message(&mut self, input: &mut impl BufRead) -> Result<bool, DecodeErrorKind> {
        self.start = self.offset;
        let Some(length) = self.length(input)? else { return Ok(false) };
        if length > MAX_RECORD {
            return Err(DecodeErrorKind::TooLong);
        }
        self.take(input, length)?;
        Ok(true)
    }

    fn length(&mut self, input: &mut impl BufRead) -> Result<Option<u64>, DecodeErrorKind> {
        if input.fill_buf()?.is_empty() {
            return Ok(None);
        }
        self.take(input, 1)?;
        let digits = self.message[0].wrapping_neg();
        match digits {
            129.. => return Ok(Some(u64::from(self.message[0]))),
            0 => return Ok(Some(0)),
            9.. => return Err(GobError::Wide.into()),
            _ => self.take(input, u64::from(digits))?,
        }
        Ok(Some(big_endian(&self.message)))
    }

    fn take(&mut self, input: &mut impl BufRead, length: u64) -> Result<(), DecodeErrorKind> {
        self.message.clear();
        let read = input.take(length).read_to_end(&mut self.message)? as u64;
        self.offset += read;
        if read == length { Ok(()) } else { Err(DecodeErrorKind::Truncated) }
    }
}

fn big_endian(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |sum, &digit| sum << 8 | u64::from(digit))
}

/// The unread part of one message.
#[derive(Debug)]
pub(super) struct GobCursor<'a> {
    rest: &'a [u8],
}

impl<'a> GobCursor<'a> {
    fn take(&mut self, length: u64) -> Result<&'a [u8], GobError> {
        let length = usize::try_from(length).map_err(|_| GobError::Short)?;
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(GobError::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn uint(&mut self) -> Result<u64, GobError> {
        let first = self.take(1)?[0];
        match first.wrapping_neg() {
            digits @ 1..=8 => Ok(big_endian(self.take(u64::from(digits))?)),
            9..=128 => Err(GobError::Wide),
            _ => Ok(u64::from(first)),
        }
    }

    pub(super) fn int(&mut self) -> Result<i64, GobError> {
        let folded = self.uint()?;
        Ok((folded >> 1).cast_signed() ^ -(folded & 1).cast_signed())
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], GobError> {
        let length = self.uint()?;
        self.take(length)
    }

    pub(super) fn text(&mut self) -> Result<std::borrow::Cow<'a, str>, GobError> {
        self.bytes().map(String::from_utf8_lossy)
    }

    /// Returns the number of the next field of a struct, given the one before; `None` after the last field.
    pub(super) fn next_field_number(&mut self, last: Option<u64>) -> Result<Option<u64>, GobError> {
        match self.uint()? {
            0 => Ok(None),
            delta => {
                last.map_or(Some(delta - 1), |last| last.checked_add(delta)).map(Some).ok_or(GobError::Type)
            }
        }
    }

    fn end(&self) -> Result<(), GobError> {
        if self.rest.is_empty() { Ok(()) } else { Err(GobError::Long) }
    }
}

impl GobStructPlan {
    /// Reads one struct into the record.
    fn fill(
        &self,
        types: &GobTypes,
        cursor: &mut GobCursor<'_>,
        record: &mut Record,
    ) -> Result<(), GobError> {
        let mut last = None;
        while let Some(number) = cursor.next_field_number(last)? {
            let index = usize::try_from(number).map_err(|_| GobError::Type)?;
            match self.fields.get(index).ok_or(GobError::Type)? {
                GobField::Known(name) => fill_field(name, cursor, record)?,
                GobField::Unknown(kind) => types.skip(*kind, cursor, 0)?,
            }
            last = Some(number);
        }
        Ok(())
    }
}

fn fill_field(name: &'static str, cursor: &mut GobCursor<'_>, record: &mut Record) -> Result<(), GobError> {
    match name {
        "Attack" => record.attack.push_str(&cursor.text()?),
        "Seq" => record.seq = cursor.uint()?,
        "Code" => record.code = u16::try_from(cursor.uint()?).map_err(|_| GobError::Range("Code"))?,
        "Timestamp" => record.due_timestamp = time(cursor.bytes()?).ok_or(GobError::Time)?,
        "Latency" => record.latency_ns = cursor.int()?,
        "BytesOut" => record.bytes_out = cursor.uint()?,
        "BytesIn" => record.bytes_in = cursor.uint()?,
        "Error" => record.error.push_str(&cursor.text()?),
        "Body" => record.response_body.extend_from_slice(cursor.bytes()?),
        "Method" => record.method.push_str(&cursor.text()?),
        "URL" => record.url.push_str(&cursor.text()?),
        _ => headers(cursor, &mut record.response_headers)?,
    }
    Ok(())
}

fn headers(cursor: &mut GobCursor<'_>, headers: &mut ResponseHeaders) -> Result<(), GobError> {
    headers.mark_present();
    for _ in 0..cursor.uint()? {
        let name = cursor.bytes()?;
        let count = cursor.uint()?;
        if count == 0 {
            // Go reads a list without elements as nil.
            headers.add_name_with_nil_values(name);
        }
        for _ in 0..count {
            headers.push(name, cursor.bytes()?);
        }
    }
    Ok(())
}

/// Reads an instant like Go's `Time.UnmarshalBinary`, except that the odd seconds of a western offset keep their sign.
fn time(bytes: &[u8]) -> Option<ZonedTimestamp> {
    let (version, rest) = bytes.split_first()?;
    let (seconds, rest) = rest.split_first_chunk::<8>()?;
    let (nanos, rest) = rest.split_first_chunk::<4>()?;
    let (minutes, odd) = rest.split_first_chunk::<2>()?;
    let odd = match (version, odd) {
        (1, []) => 0,
        (2, [odd]) => i32::from(odd.cast_signed()),
        _ => return None,
    };
    let zone = match (i16::from_be_bytes(*minutes), odd) {
        (-1, 0) => Zone::Utc,
        (minutes, odd) => Zone::SecondsEast(i32::from(minutes) * 60 + odd),
    };
    let seconds = i64::from_be_bytes(*seconds).checked_sub(YEAR_ONE_TO_UNIX)?;
    ZonedTimestamp::from_unix(seconds, u32::from_be_bytes(*nanos), zone)
}

/// The maximum nesting of types in fields that are skipped.
const MAX_DEPTH: u8 = 32;

impl GobTypes {
    /// Skips a value of an unknown field. Every element takes a byte or more, so the message's length bounds the loops.
    fn skip(&self, kind: i64, cursor: &mut GobCursor<'_>, depth: u8) -> Result<(), GobError> {
        if depth > MAX_DEPTH {
            return Err(GobError::TooManyTypes);
        }
        match self.layout(kind)? {
            GobLayout::Builtin(Builtin::Number) => cursor.uint().map(drop),
            GobLayout::Builtin(Builtin::Complex) => cursor.uint().and_then(|_| cursor.uint()).map(drop),
            GobLayout::Builtin(Builtin::Bytes) | GobLayout::Opaque => cursor.bytes().map(drop),
            GobLayout::List(element) => {
                (0..cursor.uint()?).try_for_each(|_| self.skip(*element, cursor, depth + 1))
            }
            GobLayout::Map(key, element) => (0..cursor.uint()?).try_for_each(|_| {
                self.skip(*key, cursor, depth + 1)?;
                self.skip(*element, cursor, depth + 1)
            }),
            GobLayout::Struct(fields) => self.skip_struct(fields, cursor, depth),
        }
    }

    fn skip_struct(
        &self,
        fields: &[(String, i64)],
        cursor: &mut GobCursor<'_>,
        depth: u8,
    ) -> Result<(), GobError> {
        let mut last = None;
        while let Some(number) = cursor.next_field_number(last)? {
            let index = usize::try_from(number).map_err(|_| GobError::Type)?;
            self.skip(fields.get(index).ok_or(GobError::Type)?.1, cursor, depth + 1)?;
            last = Some(number);
        }
        Ok(())
    }
}
