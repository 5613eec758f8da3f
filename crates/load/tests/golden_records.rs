//! What real vegeta 12.13 wrote is what we write, byte for byte, and read, field for field.
//!
//! `golden/results.*` come from `TZ=UTC vegeta encode` of `golden/source.json`; `tests/golden/make.sh` makes them anew.
//! Records there have at most one header name, because Go writes maps in random order; `golden/headers.*` have several.

use seawall_load::record::{Headers, Record, Timestamp, Zone};
use seawall_load::results::{Encoder, Format};

fn at(ns: i64, zone: Zone) -> Timestamp {
    Timestamp::from_unix_ns(ns, zone)
}

fn headers(pairs: &[(&str, &str)]) -> Headers {
    let mut headers = Headers::present();
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
        timestamp: at(1_735_787_045_000_000_006, Zone::Utc),
        latency_ns: 1_500_000,
        bytes_in: 2,
        body: b"ok".into(),
        method: "GET".into(),
        url: "http://127.0.0.1:80/x?a=1&b=%20".into(),
        headers: headers(&[("Content-Type", "text/plain")]),
        ..Record::default()
    };
    let kathmandu = Record {
        attack: "zones".into(),
        seq: 1,
        code: 404,
        timestamp: at(1_735_766_345_120_000_000, Zone::Offset(20_700)),
        latency_ns: 999,
        bytes_out: 127,
        bytes_in: 128,
        error: "404 Not Found".into(),
        method: "POST".into(),
        url: "https://[::1]:8443/".into(),
        headers: Headers::present(),
        ..Record::default()
    };
    let before_epoch = Record {
        attack: "zones".into(),
        seq: 2,
        code: 500,
        timestamp: at(-1, Zone::Offset(-12_600)),
        latency_ns: -1,
        bytes_out: 255,
        bytes_in: 256,
        error: "500 Internal Server Error".into(),
        method: "PUT".into(),
        url: "/".into(),
        headers: headers(&[("Set-Cookie", "b=2"), ("Set-Cookie", "a=1"), ("Set-Cookie", "")]),
        ..Record::default()
    };
    let largest = Record {
        attack: "Größe, 漢字 😀".into(),
        seq: u64::MAX,
        code: u16::MAX,
        timestamp: at(i64::MAX, Zone::Utc),
        latency_ns: i64::MAX,
        bytes_out: u64::MAX,
        bytes_in: 65_536,
        error: AWKWARD.into(),
        body: vec![0, 0xff, 0xfe, 0x80],
        method: "GET".into(),
        url: " leading space".into(),
        headers: Headers::default(),
    };
    let refused = Record {
        seq: 3,
        timestamp: at(1_748_737_800_000_000_000, Zone::Offset(-1800)),
        latency_ns: i64::MIN,
        error: REFUSED.into(),
        body: b"a".into(),
        method: "GET".into(),
        url: "http://127.0.0.1:1/".into(),
        ..Record::default()
    };
    let quoted = Record {
        attack: "\\.".into(),
        code: 1,
        timestamp: at(1_748_685_600_500_000_000, Zone::Offset(50_400)),
        error: "\u{a0}no-break".into(),
        method: "\u{3000}".into(),
        url: "\"".into(),
        headers: headers(&[("X-Latin", "café")]),
        ..Record::default()
    };
    vec![answered, Record::default(), kathmandu, before_epoch, largest, refused, quoted]
}

fn encode(format: Format, records: &[Record]) -> Vec<u8> {
    let mut encoder = Encoder::new(format, Vec::new());
    records.iter().for_each(|record| encoder.encode(record).unwrap());
    encoder.into_inner()
}

#[test]
fn gob_is_what_vegeta_writes() {
    assert_eq!(encode(Format::Gob, &golden()), include_bytes!("golden/results.gob"));
}

#[test]
fn json_is_what_vegeta_writes() {
    let ours = String::from_utf8(encode(Format::Json, &golden())).unwrap();
    assert_eq!(ours, include_str!("golden/results.json"));
}

#[test]
fn csv_is_what_vegeta_writes() {
    let ours = String::from_utf8(encode(Format::Csv, &golden())).unwrap();
    assert_eq!(ours, include_str!("golden/results.csv"));
}
