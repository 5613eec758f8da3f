//! What real vegeta 12.13 wrote is what we write, byte for byte, and read, field for field.
//!
//! `golden/results.*` come from `TZ=UTC vegeta encode` of `golden/source.json`; `tests/golden/make.sh` makes them anew.
//! Records there have at most one header name, because Go writes maps in random order; `golden/headers.*` have several.

#![expect(clippy::unwrap_used, reason = "tests")]

use seawall_load::record::{Record, RecordedConnection, ResponseHeaders, Zone, ZonedTimestamp};
use seawall_load::results::{Decoder, Encoder, ResultFormat};

fn at(ns: i64, zone: Zone) -> ZonedTimestamp {
    ZonedTimestamp::from_unix_ns(ns, zone)
}

fn headers(pairs: &[(&str, &str)]) -> ResponseHeaders {
    let mut headers = ResponseHeaders::new_present();
    pairs.iter().for_each(|(name, value)| headers.push(name.as_bytes(), value.as_bytes()));
    headers
}

const AWKWARD: &str = "a,\"b\"\n\t<&>\u{2028}\u{2029}\u{1}\u{7f}\\ é 漢 😀";
const REFUSED: &str = "Get \"http://127.0.0.1:1/\": dial tcp 127.0.0.1:1: connect: connection refused";

/// The content of `golden/source.json`, spelled independently of any decoder.
fn golden() -> Vec<Record> {
    let answered = Record {
        attack: "a".into(),
        code: 200,
        due_timestamp: at(1_735_787_045_000_000_006, Zone::Utc),
        latency_ns: 1_500_000,
        bytes_in: 2,
        response_body: b"ok".into(),
        method: "GET".into(),
        url: "http://127.0.0.1:80/x?a=1&b=%20".into(),
        response_headers: headers(&[("Content-Type", "text/plain")]),
        ..Record::default()
    };
    let kathmandu = Record {
        attack: "zones".into(),
        seq: 1,
        code: 404,
        due_timestamp: at(1_735_766_345_120_000_000, Zone::SecondsEast(20_700)),
        latency_ns: 999,
        bytes_out: 127,
        bytes_in: 128,
        error: "404 Not Found".into(),
        method: "POST".into(),
        url: "https://[::1]:8443/".into(),
        response_headers: ResponseHeaders::new_present(),
        ..Record::default()
    };
    let before_epoch = Record {
        attack: "zones".into(),
        seq: 2,
        code: 500,
        due_timestamp: at(-1, Zone::SecondsEast(-12_600)),
        latency_ns: -1,
        bytes_out: 255,
        bytes_in: 256,
        error: "500 Internal Server Error".into(),
        method: "PUT".into(),
        url: "/".into(),
        response_headers: headers(&[("Set-Cookie", "b=2"), ("Set-Cookie", "a=1"), ("Set-Cookie", "")]),
        ..Record::default()
    };
    let largest = Record {
        attack: "Größe, 漢字 😀".into(),
        seq: u64::MAX,
        code: u16::MAX,
        due_timestamp: at(i64::MAX, Zone::Utc),
        latency_ns: i64::MAX,
        bytes_out: u64::MAX,
        bytes_in: 65_536,
        error: AWKWARD.into(),
        response_body: vec![0, 0xff, 0xfe, 0x80],
        empty_body: false,
        method: "GET".into(),
        url: " leading space".into(),
        response_headers: ResponseHeaders::default(),
        connection: RecordedConnection::ConnectionNotRecorded,
    };
    let refused = Record {
        seq: 3,
        due_timestamp: at(1_748_737_800_000_000_000, Zone::SecondsEast(-1800)),
        latency_ns: i64::MIN,
        error: REFUSED.into(),
        response_body: b"a".into(),
        method: "GET".into(),
        url: "http://127.0.0.1:1/".into(),
        ..Record::default()
    };
    let quoted = Record {
        attack: "\\.".into(),
        code: 1,
        due_timestamp: at(1_748_685_600_500_000_000, Zone::SecondsEast(50_400)),
        error: "\u{a0}no-break".into(),
        method: "\u{3000}".into(),
        url: "\"".into(),
        response_headers: headers(&[("X-Latin", "café")]),
        ..Record::default()
    };
    vec![answered, Record::default(), kathmandu, before_epoch, largest, refused, quoted]
}

fn encode(format: ResultFormat, records: &[Record]) -> Vec<u8> {
    let mut encoder = Encoder::new(format, Vec::new());
    records.iter().for_each(|record| encoder.encode(record).unwrap());
    encoder.into_inner()
}

#[test]
fn gob_is_what_vegeta_writes() {
    assert_eq!(encode(ResultFormat::Gob, &golden()), include_bytes!("golden/results.gob"));
}

#[test]
fn json_is_what_vegeta_writes() {
    let ours = String::from_utf8(encode(ResultFormat::Json, &golden())).unwrap();
    assert_eq!(ours, include_str!("golden/results.json"));
}

#[test]
fn csv_is_what_vegeta_writes() {
    let ours = String::from_utf8(encode(ResultFormat::Csv, &golden())).unwrap();
    assert_eq!(ours, include_str!("golden/results.csv"));
}

fn decode(bytes: &[u8]) -> (ResultFormat, Vec<Record>) {
    let mut decoder = Decoder::detect(bytes).unwrap();
    let (mut record, mut records) = (Record::default(), Vec::new());
    while decoder.decode(&mut record).unwrap() {
        records.push(record.clone());
    }
    (decoder.format(), records)
}

#[test]
fn vegetas_gob_is_read() {
    assert_eq!(decode(include_bytes!("golden/results.gob")), (ResultFormat::Gob, golden()));
}

#[test]
fn vegetas_json_is_read() {
    assert_eq!(decode(include_bytes!("golden/results.json")), (ResultFormat::Json, golden()));
    // vegeta takes an object without a timestamp for a result of the year 1; the next test is why this reader does not.
    let source = include_str!("golden/source.json").replace("\n{}\n", "\n");
    let mut expected = golden();
    expected.remove(1);
    assert_eq!(decode(source.as_bytes()), (ResultFormat::Json, expected));
}

/// `{"a":1}` was a result, and so was the first line of any other JSON.
#[test]
fn json_without_a_timestamp_is_no_result() {
    for line in ["{\"a\":1}\n", "{\"version\":1}\n", "{}\n", "{\"timestamp\":null}\n"] {
        let said = Decoder::detect(line.as_bytes()).unwrap().decode(&mut Record::default()).unwrap_err();
        assert!(said.to_string().contains("no \"timestamp\""), "{said}");
    }
}

#[test]
fn vegetas_csv_is_read_with_its_instants_in_utc() {
    let mut expected = golden();
    for record in &mut expected {
        let wrapped = record.due_timestamp.unix_ns() as i64;
        record.due_timestamp = ZonedTimestamp::from_unix_ns(wrapped, Zone::SecondsEast(0));
        record.empty_body = record.response_body.is_empty();
    }
    assert_eq!(decode(include_bytes!("golden/results.csv")), (ResultFormat::Csv, expected));
}

#[test]
fn several_header_names_are_read_in_whatever_order_go_wrote_them() {
    let expected = Record {
        attack: "h".into(),
        code: 200,
        due_timestamp: at(1_735_787_045_000_000_000, Zone::Utc),
        response_headers: headers(&[
            ("Content-Type", "text/plain"),
            ("Date", "Thu, 02 Jan 2025 03:04:05 GMT"),
            ("Set-Cookie", "b=2"),
            ("Set-Cookie", "a=1"),
            ("X-A", "1"),
        ]),
        ..Record::default()
    };
    let expected = vec![expected];
    assert_eq!(decode(include_bytes!("golden/headers.results.gob")).1, expected);
    assert_eq!(decode(include_bytes!("golden/headers.results.json")).1, expected);
    let from_csv = records_in(ResultFormat::Csv, &expected);
    assert_eq!(decode(include_bytes!("golden/headers.results.csv")).1, from_csv);
    // CSV sorts names, so here our bytes are vegeta's too.
    assert_eq!(encode(ResultFormat::Csv, &expected), include_bytes!("golden/headers.results.csv"));
}

/// Empty and absent bodies, headers and lists of values: three inputs of the same records, each to all three formats.
#[test]
fn what_is_empty_and_what_is_absent_come_out_as_in_vegeta() {
    let golden = |name: String| {
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/empty.").to_owned() + &name).unwrap()
    };
    for from in ["gob", "json", "csv"] {
        let (_, records) = decode(&golden(format!("source.{from}")));
        assert_eq!(records.len(), 9, "{from}");
        for to in [ResultFormat::Gob, ResultFormat::Json, ResultFormat::Csv] {
            let name = format!("{from}-to.{}", to.name());
            let (ours, theirs) = (encode(to, &records), golden(name.clone()));
            assert_eq!(ours.escape_ascii().to_string(), theirs.escape_ascii().to_string(), "{name}");
        }
    }
}

/// Cut anywhere, the whole records in front of the cut come out, then the cut is told unless it fell between records.
fn survives_every_cut(format: ResultFormat) {
    let records = golden();
    let whole = encode(format, &records);
    let ends: Vec<usize> = (1..=records.len()).map(|n| encode(format, &records[..n]).len()).collect();
    for cut in 1..whole.len() {
        let mut decoder = Decoder::new(format, &whole[..cut]);
        let (mut record, mut read) = (Record::default(), 0);
        let broke = loop {
            match decoder.decode(&mut record) {
                Ok(true) => assert_eq!(record, records_in(format, &records)[read], "cut at {cut}"),
                Ok(false) => break false,
                Err(error) => {
                    assert_eq!(error.record_count as usize, read);
                    break true;
                }
            }
            read += 1;
        };
        let kept = ends.iter().filter(|&&end| end <= cut).count();
        // JSON's closing brace tells that a record is whole even if its line break is missing.
        let brace = format == ResultFormat::Json && ends.contains(&(cut + 1));
        assert_eq!(read, kept + usize::from(brace), "cut at {cut}");
        let between = brace || ends.contains(&cut) || description_ends(format, cut);
        assert_eq!(broke, !between, "cut at {cut}");
    }
}

/// What remains of the records in a format that keeps less.
fn records_in(format: ResultFormat, records: &[Record]) -> Vec<Record> {
    let lose = |record: &Record| match format {
        ResultFormat::Csv => Record {
            due_timestamp: ZonedTimestamp::from_unix_ns(
                record.due_timestamp.unix_ns() as i64,
                Zone::SecondsEast(0),
            ),
            empty_body: record.response_body.is_empty(),
            ..record.clone()
        },
        ResultFormat::Gob | ResultFormat::Json => record.clone(),
    };
    records.iter().map(lose).collect()
}

/// The ends of gob's four description messages, which stand in front of the first record.
fn description_ends(format: ResultFormat, at: usize) -> bool {
    format == ResultFormat::Gob && [152, 169, 193, 206].contains(&at)
}

#[test]
fn a_gob_cut_at_any_byte_keeps_what_was_read() {
    survives_every_cut(ResultFormat::Gob);
}

#[test]
fn json_cut_at_any_byte_keeps_what_was_read() {
    survives_every_cut(ResultFormat::Json);
}

#[test]
fn csv_cut_at_any_byte_keeps_what_was_read() {
    survives_every_cut(ResultFormat::Csv);
}

/// `cat a.gob b.gob`, which Go's reader refuses as "duplicate type received".
#[test]
fn two_gob_streams_behind_each_other_are_one_input() {
    let twice = [include_bytes!("golden/results.gob"), &include_bytes!("golden/results.gob")[..]].concat();
    assert_eq!(decode(&twice).1, [golden(), golden()].concat());
}

/// Made by Go programs whose `Result` has fewer or more fields than vegeta 12.13's.
#[test]
fn results_of_older_and_newer_versions_are_read() {
    let old = |code: u16, seconds: i64, latency_ns: i64, bytes_in: u64, error: &str| Record {
        attack: "old".into(),
        code,
        due_timestamp: at(1_735_787_045_000_000_006 + seconds * 1_000_000_000, Zone::Utc),
        latency_ns,
        bytes_in,
        error: error.into(),
        ..Record::default()
    };
    let expected = vec![old(200, 0, 1500, 7, ""), old(500, 1, 2500, 8, "500 Internal Server Error")];
    assert_eq!(decode(include_bytes!("golden/older.gob")).1, expected);
    let new = |seq: u64, code: u16, latency_ns: i64| Record {
        attack: "new".into(),
        seq,
        code,
        due_timestamp: at(1_735_787_045_000_000_006, Zone::Utc),
        latency_ns,
        ..Record::default()
    };
    assert_eq!(decode(include_bytes!("golden/newer.gob")).1, [new(41, 201, 1500), new(42, 204, 0)]);
}

#[test]
fn gobs_of_something_else_are_refused_by_name() {
    let mut decoder = Decoder::detect(&include_bytes!("golden/foreign.gob")[..]).unwrap();
    let error = decoder.decode(&mut Record::default()).unwrap_err();
    let expected = "the input is not results in gob, JSON or CSV: damaged gob: the values are not results";
    assert_eq!(error.to_string(), format!("{expected} (at byte 15, after 0 records)"));
}
