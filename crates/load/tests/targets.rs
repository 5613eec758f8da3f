//! Any target file is read or refused, and what is read is sent as it was written.

use proptest::prelude::*;
use seawall_invariants::load::targets;

#[test]
fn the_corpus_of_target_files_holds() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/target");
    let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!files.is_empty());
    files.iter().for_each(|file| targets::check(&std::fs::read(file).unwrap()));
}

proptest! {
    #[test]
    fn what_looks_like_a_target_is_read_or_refused(
        choice in 0..8u8,
        method in "[A-Z]{1,5}|[a-z]{3}",
        url in "https?://[a-z.\\[\\]:0-9@]{0,12}(/[!-~é ]{0,12})?(\\?[!-~]{0,6})?(#.{0,3})?",
        headers in proptest::collection::vec("[A-Za-z-]{1,8}: ?[ -~\t]{0,12}", 0..4),
        body in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        use base64::Engine as _;
        let body = base64::engine::general_purpose::STANDARD.encode(body);
        let file = if choice & 1 == 0 {
            format!("{method} {url}\n{}\n\n{method} {url}\n", headers.join("\n"))
        } else {
            let headers: std::collections::BTreeMap<_, _> =
                headers.iter().filter_map(|line| line.split_once(':')).map(|(k, v)| (k, vec![v])).collect();
            serde_json::json!({"method": method, "url": url, "header": headers, "body": body}).to_string()
        };
        targets::check(&[&[choice], file.as_bytes()].concat());
    }
}
