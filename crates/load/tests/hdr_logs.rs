//! HDR logs of other implementations are read. `golden/python.hlog` was written by the Python package `hdrhistogram`
//! 0.10.8, which names the quantiles below itself.

use proptest::prelude::*;
use seawall_invariants::load::hdr_logs;
use seawall_load::results::hdr;

#[test]
fn a_log_written_by_another_implementation_is_read_exactly() {
    let log = include_bytes!("golden/python.hlog");
    assert!(hdr::is_log(log));
    let mut sums = Vec::new();
    hdr::add_log_by_tag(&mut &log[..], &mut sums).unwrap();
    let [(tag, values)] = &sums[..] else { panic!("one histogram expected") };
    assert_eq!((tag.as_str(), values.count()), ("", 2000));
    let quantiles = [0.5, 0.9, 0.99, 0.999].map(|q| values.quantile(q));
    assert_eq!(quantiles, [14_057_471, 3_510_632_447, 23_337_107_455, 27_699_183_615]);
}

#[test]
fn a_damaged_line_is_named_and_what_stood_before_it_is_kept() {
    let log = include_str!("golden/python.hlog");
    let cut = format!("{log}{}", &log[log.len() / 2..]);
    let mut sums = Vec::new();
    let error = hdr::add_log_by_tag(&mut cut.as_bytes(), &mut sums).unwrap_err();
    assert_eq!(error.to_string(), "line 5 does not have the format of an HDR log");
    assert_eq!(sums[0].1.count(), 2000);
}

#[test]
fn the_corpus_of_logs_holds() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/hdr");
    let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() > 3, "the corpus is missing");
    files.iter().for_each(|file| hdr_logs::check(&std::fs::read(file).unwrap()));
}

proptest! {
    #[test]
    fn what_looks_like_a_histogram_is_read_or_refused(
        digits in 0..7_u32,
        low in prop_oneof![0..3_u64, any::<u64>()],
        high in prop_oneof![2..1_u64 << 40, any::<u64>()],
        counts in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let header = [&0x1c84_9313_u32.to_be_bytes()[..], &(counts.len() as u32).to_be_bytes(), &[0; 4], &digits.to_be_bytes()];
        let plain = [&header.concat()[..], &low.to_be_bytes(), &high.to_be_bytes(), &1.0_f64.to_be_bytes(), &counts].concat();
        hdr_logs::check(&[&[1], &plain[..]].concat());
    }
}
