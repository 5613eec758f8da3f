//! Reports of the same results are the same text as real vegeta 12.13 prints.
//!
//! `golden/*.txt` were printed by vegeta (`golden/make.sh`). Where all latencies are equal every quantile is exact in both
//! programs and whole reports are compared; elsewhere vegeta's t-digest interpolates, so quantiles alone are left out.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn report(input: &str, flags: &[&str]) -> String {
    let done = Command::new(env!("CARGO_BIN_EXE_seawall"))
        .arg("report")
        .args(flags)
        .arg(golden(&format!("{input}.json")))
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn vegetas(name: &str) -> String {
    std::fs::read_to_string(golden(name)).unwrap()
}

#[test]
fn exact_reports_are_vegetas_letter_by_letter() {
    for input in ["constant", "one"] {
        assert_eq!(report(input, &["-type=text"]), vegetas(&format!("{input}.text.txt")));
        assert_eq!(report(input, &["-type", "json"]), vegetas(&format!("{input}.json.txt")));
        assert_eq!(report(input, &["--type=hdrplot"]), vegetas(&format!("{input}.hdrplot.txt")));
    }
}

#[test]
fn bucket_counts_are_vegetas_letter_by_letter() {
    for input in ["constant", "mixed", "one"] {
        let typed = report(input, &["-type=hist[0,1ms,10ms]"]);
        assert_eq!(typed, vegetas(&format!("{input}.hist-ms.txt")));
        let flagged = report(input, &["-type=hist", "-buckets=[1us,100us,1s]"]);
        assert_eq!(flagged, vegetas(&format!("{input}.hist-us.txt")));
    }
    let json = report("constant", &["-type=json", "-buckets=[1us,100us,1s]"]);
    assert_eq!(json, vegetas("constant.json-buckets.txt"));
}

#[test]
fn all_but_quantiles_is_vegetas_for_any_results() {
    let no_latencies =
        |text: String| text.lines().filter(|line| !line.starts_with("Lat")).collect::<Vec<_>>().join("\n");
    let ours = report("mixed", &["-type=text"]);
    assert_eq!(no_latencies(ours), no_latencies(vegetas("mixed.text.txt")));
    let no_quantiles = |text: String| {
        let (before, rest) = text.split_once("\"50th\"").unwrap();
        let (_, after) = rest.split_once("\"max\"").unwrap();
        format!("{before}\"max\"{after}")
    };
    let ours = report("mixed", &["-type=json"]);
    assert_eq!(no_quantiles(ours), no_quantiles(vegetas("mixed.json.txt")));
    let without_values = |text: String| {
        text.lines()
            .map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
    };
    let ours = report("mixed", &["-type=hdrplot"]);
    assert_eq!(without_values(ours), without_values(vegetas("mixed.hdrplot.txt")));
}
