//! `seawall plot` of what targets do at which rate: searches and summaries of attacks over each other.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SEARCH: &str = "{\"kind\":\"find\",\"version\":1,\"outcome\":\"found\",\
    \"breaking_rate\":{\"lower\":155,\"upper\":160},\"trials\":[\
    {\"rate\":100,\"goodput\":100,\"error_ratio\":0,\"late_ratio\":null},\
    {\"rate\":200,\"goodput\":157,\"error_ratio\":0.2,\"late_ratio\":0.3}]}\n";

fn file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn plot(arguments: &[&str], files: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_seawall")).arg("plot").args(arguments).args(files).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_search_is_drawn_as_a_picture_without_being_asked() {
    let search = file("managed.json", SEARCH);
    let drawn = plot(&["-title", "both"], &[&search, &search]);
    assert!(drawn.status.success(), "{}", said(&drawn));
    let picture = String::from_utf8(drawn.stdout).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("Good responses"), "{picture}");
}

#[test]
fn a_page_of_curves_and_results_beside_them_are_refused_by_name() {
    let search = file("search.json", SEARCH);
    let page = plot(&["-output", "curves.html"], &[&search]);
    assert!(!page.status.success() && said(&page).contains("find --html"), "{}", said(&page));
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/mixed.json");
    let mixed = plot(&[], &[&search, &results]);
    assert!(!mixed.status.success() && said(&mixed).contains("give files of one kind"), "{}", said(&mixed));
}

/// The summary that `attack` prints today is one that is drawn: its keys are not written down twice.
#[test]
fn what_attack_says_of_a_run_is_a_point() {
    let target = file("nobody.http", "GET http://127.0.0.1:1/\n");
    let attack = Command::new(env!("CARGO_BIN_EXE_seawall"))
        .args(["attack", "-rate", "20", "-duration", "100ms", "-output", "/dev/null", "--summary=json"])
        .arg(format!("-targets={}", target.display()))
        .output()
        .unwrap();
    let summary = String::from_utf8(attack.stdout).unwrap();
    let drawn = plot(&[], &[&file("attack.json", &summary)]);
    assert!(drawn.status.success(), "{}: {summary}", said(&drawn));
    assert!(String::from_utf8(drawn.stdout).unwrap().contains("99 % response time"));
}
