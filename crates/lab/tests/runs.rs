//! Any file of a run is read or refused, and what is read is gone on with or refused.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use seawall_invariants::lab::find_reports;

static CORPUS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/find");
    let files = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path());
    files.map(|file| std::fs::read(file).unwrap()).collect()
});

#[test]
fn the_corpus_of_runs_holds() {
    assert!(CORPUS.len() > 5, "the corpus is missing");
    CORPUS.iter().for_each(|file| find_reports::check(file));
}

/// Where numbers begin and end.
fn numbers(text: &[u8]) -> Vec<(usize, usize)> {
    let is_digit = |at: usize| text.get(at).is_some_and(|byte| b"0123456789.-e".contains(byte));
    let begins = (1..text.len()).filter(|&at| is_digit(at) && b":[,".contains(&text[at - 1]));
    begins.map(|at| (at, (at..).find(|&end| !is_digit(end)).unwrap_or(at))).collect()
}

proptest! {
    #[test]
    fn a_run_with_other_numbers_in_it_is_read_or_refused(
        file in any::<Index>(),
        changes in prop::collection::vec((any::<Index>(), select(vec!["0", "1", "0.5", "1e11", "1e-300", "1073741823", "-1", "20.0", "null"])), 1..4),
    ) {
        let mut text = file.get(&CORPUS).clone();
        for (at, number) in changes {
            let places = numbers(&text);
            if !places.is_empty() {
                let &(begin, end) = at.get(&places);
                text.splice(begin..end, number.bytes());
            }
        }
        find_reports::check(&text);
    }
}
