//! What must hold for any bytes whatever, in one place for the tests and the fuzzers.

use crate::record::{Record, Zone};

use super::{Decoder, Encoder, Format};

/// Reads `bytes` as `format` to the end or to the first fault, which must not panic; writes what was read; reads it
/// again. Returns the records of both readings, which must be equal.
#[must_use]
pub fn reread(format: Format, bytes: &[u8]) -> (Vec<Record>, Vec<Record>) {
    let first = read(format, bytes);
    let mut encoder = Encoder::new(format, Vec::new());
    let written: Vec<Record> =
        first.into_iter().filter(|record| has_a_form(record) && encoder.encode(record).is_ok()).collect();
    let second = read(format, &encoder.into_inner());
    (written, second)
}

/// Offsets of -1 minute are the one thing that can be read and not written: Go's mark for UTC.
fn has_a_form(record: &Record) -> bool {
    !matches!(record.timestamp.zone(), Zone::Offset(seconds) if seconds / 60 == -1)
}

fn read(format: Format, bytes: &[u8]) -> Vec<Record> {
    let mut decoder = Decoder::new(format, bytes);
    let (mut record, mut records) = (Record::default(), Vec::new());
    while let Ok(true) = decoder.decode(&mut record) {
        records.push(record.clone());
    }
    records
}
