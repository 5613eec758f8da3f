//! Properties that hold for any figures that a pod reports: reading them ends and never panics, no count is lost when they are
//! reported again, and they can be added to themselves. Called by `pods_figures.rs` and by the fuzz target `interval`.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::Write;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use seawall_load::interval::{CompactInterval, IntervalStats};

/// The first byte says what the rest is: a line as it stands in a log, or what is packed in one, with so many digits. Nobody finds the inside of
/// deflated figures by chance.
pub fn check(input: &[u8]) {
    match input.split_first() {
        Some((&digits @ 0..=3, inside)) => adds_up(line_of(digits, inside).as_bytes()),
        Some((_, line)) => adds_up(line),
        None => {}
    }
}

fn line_of(digits: u8, inside: &[u8]) -> String {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    let deflated = encoder.write_all(inside).and_then(|()| encoder.finish()).unwrap();
    let packed = BASE64_STANDARD.encode(deflated);
    format!(
        r#"{{"start_seconds":0,"end_seconds":0.000000001,"significant_digits":{digits},"packed_stats":"{packed}"}}"#
    )
}

fn adds_up(line: &[u8]) {
    let Ok(read) = serde_json::from_slice::<IntervalStats>(line) else { return };
    let told = serde_json::to_string(&CompactInterval::exact(&read)).unwrap();
    let again: IntervalStats = serde_json::from_str(&told).unwrap();
    assert_eq!(again, read, "told and read again");
    let mut twice = read.stats.clone();
    twice.merge(&read.stats);
    let count = read.stats.all_times().response_time.count();
    assert_eq!(twice.all_times().response_time.count(), count.saturating_mul(2));
    if let Some(small) = CompactInterval::compacted_to_fit(&read, 4096) {
        let small = serde_json::to_string(&small).unwrap();
        assert!(small.len() <= 4096);
        let small: IntervalStats = serde_json::from_str(&small).unwrap();
        assert_eq!(small.stats.largest_counter(), read.stats.largest_counter(), "every count is there");
        assert_eq!(small.stats.all_times().response_time.count(), count);
    }
}
