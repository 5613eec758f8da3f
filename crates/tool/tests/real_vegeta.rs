//! Results go into a real vegeta and come back unchanged, through all three formats, and its reports of ours agree.
//!
//! Needs a vegeta 12: `scripts/setup test-parts` builds one. Without it these tests say loudly that they were skipped.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The one that `scripts/setup` built, or any on the PATH.
fn vegeta() -> Option<PathBuf> {
    let cache = std::env::var_os("SEAWALL_CACHE").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/seawall")));
    let path = std::env::var_os("PATH")?;
    let places = cache.map(|cache| cache.join("bin")).into_iter().chain(std::env::split_paths(&path));
    let found = places.map(|place| place.join("vegeta")).find(|file| file.is_file());
    if found.is_none() {
        // Written past the test harness, which would hide it.
        let said = "SKIPPED: no vegeta in the cache or on the PATH; `scripts/setup test-parts` builds it\n";
        std::io::stderr().write_all(said.as_bytes()).unwrap();
    }
    found
}

fn pipe(program: &Path, args: &[&str], input: &[u8]) -> Vec<u8> {
    // Zones are kept by gob and JSON; CSV has none, and each program takes its own.
    let mut command = Command::new(program);
    command.args(args).env("TZ", "UTC").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let done = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(done.status.success(), "{program:?} {args:?}");
    done.stdout
}

fn ours(args: &[&str], input: &[u8]) -> Vec<u8> {
    pipe(Path::new(env!("CARGO_BIN_EXE_seawall")), args, input)
}

/// Every field, extreme values, awkward texts; one header name per record, because Go writes maps in random order. Without the object that
/// has no timestamp: vegeta takes it for a result of the year 1, and this reader refuses it.
fn awkward() -> Vec<u8> {
    include_str!("../../load/tests/golden/source.json").replace("\n{}\n", "\n").into_bytes()
}

#[test]
fn vegeta_reads_ours_and_writes_the_same() {
    let Some(vegeta) = vegeta() else { return };
    for format in ["gob", "json", "csv"] {
        // A year that CSV cannot hold comes back as another one, so all start from what CSV holds.
        let csv = ours(&["encode", "-to=csv"], &awkward());
        let source = ours(&["encode", "-to", format], &csv);
        let theirs = pipe(&vegeta, &["encode", "-to=json"], &source);
        let expected = ours(&["encode", "-to=json"], &source);
        assert_eq!(String::from_utf8(theirs), String::from_utf8(expected), "{format}");
    }
}

#[test]
fn every_direction_is_vegetas_byte_for_byte() {
    let Some(vegeta) = vegeta() else { return };
    let empty = include_bytes!("../../load/tests/golden/empty.source.json");
    for from in ["gob", "json", "csv"] {
        let source = pipe(&vegeta, &["encode", "-to", from], empty);
        for to in ["gob", "json", "csv"] {
            let theirs = pipe(&vegeta, &["encode", "-to", to], &source);
            assert!(ours(&["encode", "-to", to], &source) == theirs, "{from} to {to}");
        }
    }
}

#[test]
fn we_read_vegetas_and_write_the_same_bytes() {
    let Some(vegeta) = vegeta() else { return };
    let gob = pipe(&vegeta, &["encode", "-to=gob"], &awkward());
    assert_eq!(ours(&["encode", "-to=gob"], &gob), gob);
    for format in ["json", "csv"] {
        let theirs = pipe(&vegeta, &["encode", "-to", format], &gob);
        assert_eq!(ours(&["encode", "-to", format], &gob), theirs, "{format}");
        assert_eq!(ours(&["encode", "-to", format], &theirs), theirs, "{format} again");
    }
}

#[test]
fn vegeta_reports_our_gob_as_we_do() {
    let Some(vegeta) = vegeta() else { return };
    let constant = include_bytes!("golden/constant.json");
    let gob = ours(&["encode", "-to=gob"], constant);
    for kind in ["-type=text", "-type=json", "-type=hdrplot", "-type=hist[0,1ms,2ms]"] {
        let theirs = pipe(&vegeta, &["report", kind], &gob);
        assert_eq!(String::from_utf8(ours(&["report", kind], &gob)), String::from_utf8(theirs), "{kind}");
    }
}
