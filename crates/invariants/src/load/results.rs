//! Properties that hold for any bytes that are read as results, in one place for the tests and the fuzz targets.
//!
//! Reading ends and never panics. Writing the records in the same format and reading them again changes nothing. The same bytes
//! are read equally when they arrive one at a time.

use std::io::{BufRead, BufReader};

use seawall_load::record::{Record, Zone};
use seawall_load::results::{Decoder, Encoder, ResultFormat};

/// Checks all of it.
pub fn check(format: ResultFormat, bytes: &[u8]) {
    let read = records(Decoder::new(format, bytes));
    assert_eq!(
        read,
        records(Decoder::new(format, BufReader::with_capacity(1, bytes))),
        "arriving byte by byte"
    );
    if let Ok(decoder) = Decoder::detect(bytes)
        && decoder.format() == format
    {
        assert_eq!(read, records(decoder), "with the format found out");
    }
    let mut encoder = Encoder::new(format, Vec::new());
    let written: Vec<Record> =
        read.into_iter().filter(|record| has_a_form(record) && encoder.encode(record).is_ok()).collect();
    let again = encoder.into_inner();
    assert_eq!(written, records(Decoder::new(format, &again[..])), "written and read again");
}

/// Offsets of -1 minute are the one thing that can be read and not written: that is Go's mark for UTC.
fn has_a_form(record: &Record) -> bool {
    !matches!(record.due_timestamp.zone(), Zone::SecondsEast(seconds) if seconds / 60 == -1)
}

fn records<R: BufRead>(mut decoder: Decoder<R>) -> Vec<Record> {
    let (mut record, mut records) = (Record::default(), Vec::new());
    while let Ok(true) = decoder.decode(&mut record) {
        records.push(record.clone());
    }
    records
}
