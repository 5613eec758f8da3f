//! Properties that hold for any HDR log: reading it ends and never panics, and writing and reading the sums again changes
//! nothing. Called by `hdr_logs.rs` and by the fuzz target `hdr`.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::Write;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use seawall_load::latency_distribution::Distribution;
use seawall_load::results::hdr;

/// The first byte says what the rest is: a log, or the uncompressed histogram of a log of three lines. Nobody finds the
/// inside of a deflated histogram by chance.
pub fn check(input: &[u8]) {
    match input.split_first() {
        Some((0, log)) => adds_up(log),
        Some((_, histogram)) => adds_up(&log_of(histogram)),
        None => {}
    }
}

/// The histogram twice under one tag and once under another.
fn log_of(plain: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    let body = encoder.write_all(plain).and_then(|()| encoder.finish()).unwrap();
    // The cookie of a deflated histogram, version 2, and its length.
    let framed = [&0x1c84_9314_u32.to_be_bytes()[..], &(body.len() as u32).to_be_bytes(), &body].concat();
    let blob = BASE64_STANDARD.encode(framed);
    format!("Tag=a,0,1,1,{blob}\nTag=a,1,1,1,{blob}\n0,1,1,{blob}\n").into_bytes()
}

fn adds_up(log: &[u8]) {
    let mut sums = sums(log);
    // Beyond what one histogram of a log may count.
    sums.retain(|(_, values)| values.count() <= 1 << 40);
    let mut again = Vec::new();
    let mut writer = hdr::HdrLogWriter::start(&mut again, 0.0).unwrap();
    for (tag, values) in &sums {
        assert!((values.min()..=values.max()).contains(&values.quantile(0.99)));
        writer.add(tag, 0.0, 1.0, values).unwrap();
    }
    assert_eq!(counted(&sums), counted(&self::sums(&again)), "written and read again");
}

/// Returns the buckets of each tag that has any values.
fn counted(sums: &[(String, Distribution)]) -> Vec<(&str, Vec<(u64, u64)>)> {
    let spreads = sums.iter().filter(|(_, values)| values.count() > 0);
    spreads.map(|(tag, values)| (tag.as_str(), values.buckets().collect())).collect()
}

/// Returns the distribution of each tag, as far as the log can be read.
fn sums(mut log: &[u8]) -> Vec<(String, Distribution)> {
    let mut sums = Vec::new();
    // Damage is said, and what stood before it is kept.
    let _ = hdr::add_log_by_tag(&mut log, &mut sums);
    sums
}
