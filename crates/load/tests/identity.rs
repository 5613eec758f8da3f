//! Writing and reading is identity in all three formats, and bytes from anywhere do no harm.

#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::collection::vec;
use proptest::prelude::*;
use seawall_invariants::load::results;
use seawall_load::record::{
    ConnectionTimings, Record, RecordedConnection, ResponseHeaders, Zone, ZonedTimestamp,
};
use seawall_load::results::{Decoder, Encoder, ResultFormat};

/// Zones that every format can express: whole minutes, less than a day.
fn zone() -> impl Strategy<Value = Zone> {
    prop_oneof![
        Just(Zone::Utc),
        (-1439..1440_i32).prop_filter_map("has no form in gob", |minutes| {
            (minutes != 0 && minutes != -1).then_some(Zone::SecondsEast(minutes * 60))
        })
    ]
}

/// Canonical names and trimmed values, as a response brings them.
fn headers() -> impl Strategy<Value = ResponseHeaders> {
    let pair = ("[A-Z][a-z0-9]{0,6}(-[A-Z][a-z]{1,3})?", "([!-~é漢]([ -~é]{0,12}[!-~])?)?");
    let filled = vec(pair, 0..5).prop_map(|pairs| {
        let mut headers = ResponseHeaders::new_present();
        pairs.iter().for_each(|(name, value)| headers.push(name.as_bytes(), value.as_bytes()));
        headers
    });
    prop_oneof![Just(ResponseHeaders::default()), filled]
}

fn carriage() -> impl Strategy<Value = RecordedConnection> {
    let times = (any::<Option<u64>>(), any::<Option<u64>>());
    let by = (any::<[u64; 4]>(), times).prop_map(|([number, before, idle, connect], (tls, first_byte))| {
        RecordedConnection::Timings(ConnectionTimings {
            connection_id: number,
            reuse_count: before,
            idle,
            connect,
            tls,
            first_byte,
        })
    });
    prop_oneof![Just(RecordedConnection::ConnectionNotRecorded), Just(RecordedConnection::None), by]
}

fn record() -> impl Strategy<Value = Record> {
    let texts = (any::<String>(), any::<String>(), "[A-Z]{0,7}", any::<String>(), vec(any::<u8>(), 0..40));
    let numbers = (any::<u64>(), any::<u16>(), any::<i64>(), any::<u64>(), any::<u64>());
    // Nanoseconds that CSV can hold in any zone's year.
    let where_from = (any::<i64>(), zone(), headers(), carriage());
    (texts, numbers, where_from).prop_map(|(texts, numbers, (ns, zone, headers, carriage))| Record {
        attack: texts.0,
        seq: numbers.0,
        code: numbers.1,
        due_timestamp: ZonedTimestamp::from_unix_ns(ns, zone),
        latency_ns: numbers.2,
        bytes_out: numbers.3,
        bytes_in: numbers.4,
        error: texts.1,
        response_body: texts.4,
        empty_body: false,
        method: texts.2,
        url: texts.3,
        response_headers: headers,
        connection: carriage,
    })
}

fn there_and_back(format: ResultFormat, records: &[Record]) -> Vec<Record> {
    let mut encoder = Encoder::new(format, Vec::new());
    records.iter().for_each(|record| encoder.encode(record).unwrap());
    let bytes = encoder.into_inner();
    let mut decoder = Decoder::detect(&bytes[..]).unwrap();
    assert_eq!(decoder.format(), format);
    let (mut record, mut read) = (Record::default(), Vec::new());
    while decoder.decode(&mut record).unwrap() {
        read.push(record.clone());
    }
    read
}

proptest! {
    #[test]
    fn gob_returns_every_record(records in vec(record(), 1..4)) {
        let untold = |record: &Record| Record { connection: RecordedConnection::ConnectionNotRecorded, ..record.clone() };
        let expected: Vec<Record> = records.iter().map(untold).collect();
        prop_assert_eq!(there_and_back(ResultFormat::Gob, &records), expected);
    }

    #[test]
    fn json_returns_every_record(records in vec(record(), 1..4)) {
        prop_assert_eq!(there_and_back(ResultFormat::Json, &records), records);
    }

    #[test]
    fn csv_returns_every_record_with_its_instant_in_utc(records in vec(record(), 1..4)) {
        let utc = |record: &Record| Record {
            due_timestamp: ZonedTimestamp::from_unix_ns(i64::try_from(record.due_timestamp.unix_ns()).unwrap(), Zone::SecondsEast(0)),
            empty_body: record.response_body.is_empty(),
            ..record.clone()
        };
        let expected: Vec<Record> = records.iter().map(utc).collect();
        prop_assert_eq!(there_and_back(ResultFormat::Csv, &records), expected);
    }

    #[test]
    fn a_flipped_byte_is_read_or_refused(at in 0..849_usize, byte: u8) {
        let mut bytes = include_bytes!("golden/results.gob").to_vec();
        bytes[at] = byte;
        results::check(ResultFormat::Gob, &bytes);
    }

    #[test]
    fn text_from_anywhere_is_read_or_refused(bytes in "[0-9,\"{}:a-z\n\r =]{0,80}") {
        for format in [ResultFormat::Gob, ResultFormat::Json, ResultFormat::Csv] {
            results::check(format, bytes.as_bytes());
        }
    }
}

/// Every file of the fuzzers' corpus, through the function that the fuzzers call.
#[test]
fn the_corpus_keeps_the_invariants() {
    for (target, format) in
        [("gob", ResultFormat::Gob), ("json", ResultFormat::Json), ("csv", ResultFormat::Csv)]
    {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/").to_owned() + target;
        let mut replayed = 0;
        for entry in std::fs::read_dir(corpus).unwrap() {
            results::check(format, &std::fs::read(entry.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed > 5, "the corpus of {target} is missing");
    }
}
