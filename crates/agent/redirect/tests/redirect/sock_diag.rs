//! The invariants of the kernel's answers about sockets over the fuzzer's corpus, and over answers of which something was changed.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::sample::Index;
use seawall_invariants::redirect::{self, Seen};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/sock_diag")
}

#[test]
fn the_corpus_keeps_every_invariant() {
    let mut seen = Vec::new();
    for entry in std::fs::read_dir(corpus()).expect("the corpus is committed") {
        let path = entry.expect("a readable folder").path();
        let input = std::fs::read(&path).expect("a readable file");
        let result = std::panic::catch_unwind(|| redirect::check(&input));
        assert!(result.is_ok(), "{} breaks an invariant; the reason is above", path.display());
        seen.extend(result);
    }
    let count = |is: fn(&Seen) -> bool| seen.iter().filter(|seen| is(seen)).count();
    assert!(count(|seen| seen.group) > 5 && count(|seen| seen.reason) > 5, "{seen:?}");
    assert!(count(|seen| !seen.group && !seen.reason) > 6, "{seen:?}");
}

proptest! {
    #[test]
    fn an_answer_of_which_something_was_changed_keeps_every_invariant(
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 0..6),
        is_ipv6: bool,
    ) {
        let name = if is_ipv6 { "established-ipv6" } else { "established-ipv4" };
        let mut answer = std::fs::read(corpus().join(name)).expect("a readable file");
        for (at, byte) in changes {
            let at = at.index(answer.len());
            answer[at] = byte;
        }
        redirect::check(&answer);
    }

    #[test]
    fn bytes_keep_every_invariant(input in prop::collection::vec(any::<u8>(), 0..400)) {
        redirect::check(&input);
    }
}
