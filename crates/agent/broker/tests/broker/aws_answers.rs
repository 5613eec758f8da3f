//! The invariants of AWS's answers over the fuzzer's corpus, and over pieces of answers in any order.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::select;
use seawall_invariants::broker::{self, AwsResponseKinds};

#[test]
fn the_corpus_keeps_every_invariant() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/sts");
    let mut seen = Vec::new();
    for entry in std::fs::read_dir(&corpus).expect("the corpus is committed") {
        let path = entry.expect("a readable folder").path();
        let input = std::fs::read(&path).expect("a readable file");
        let result = std::panic::catch_unwind(|| broker::check(&input));
        assert!(result.is_ok(), "{} breaks an invariant; the reason is above", path.display());
        seen.extend(result);
    }
    let count = |is: fn(&AwsResponseKinds) -> bool| seen.iter().filter(|seen| is(seen)).count();
    assert!(count(|seen| seen.is_xml) > 15 && count(|seen| !seen.is_xml) > 10, "{seen:?}");
    assert!(count(|seen| seen.is_sts_session) > 6 && count(|seen| seen.is_eks_auth_session) > 2, "{seen:?}");
    assert!(count(|seen| seen.was_aws_error) > 6, "{seen:?}");
}

/// The pieces that responses consist of, and similar pieces.
const PIECES: [&str; 32] = [
    "<a>",
    "</a>",
    "<b>",
    "</b>",
    "<b/>",
    "<x:a xmlns:x='u'>",
    "</x:a>",
    "<ErrorResponse>",
    "</ErrorResponse>",
    "<Error>",
    "</Error>",
    "<Code>",
    "</Code>",
    "<Message>",
    "</Message>",
    "<?xml version=\"1.0\"?>",
    "<!-- c -->",
    "<![CDATA[",
    "]]>",
    "&lt;",
    "&#13;",
    "&#x0;",
    "&secret;",
    "<!DOCTYPE a>",
    "ExpiredToken",
    " ",
    "\r\n",
    "é",
    "\u{7f}",
    "{\"__type\":\"a#b:c\"",
    ",\"message\":\"no\"}",
    "\u{feff}",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn pieces_of_answers_in_any_order_keep_them(pieces in prop::collection::vec(select(&PIECES[..]), 0..24)) {
        broker::check(pieces.concat().as_bytes());
    }

    #[test]
    fn so_do_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        broker::check(&bytes);
    }
}
