//! Any page of metrics is read or refused, and what is read is what was written.

use proptest::prelude::*;
use seawall_invariants::lab::exposition;

#[test]
fn the_corpus_of_pages_holds() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/exposition");
    let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() > 5, "the corpus is missing");
    files.iter().for_each(|file| exposition::check(&std::fs::read(file).unwrap()));
}

fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c_:]{1,2}(_total|_sum)? [0-9.eE+-]{1,6}( [0-9]{1,3})?",
        "[a-c]\\{([a-c]=\"[^\"\\\\\n]{0,3}\",?){0,3}\\} (NaN|[+-]Inf|[0-9]{1,5})",
        "[a-c]\\{[a-c]=\"(\\\\[\\\\\"nt]|x){0,3}\"\\} 1( # \\{\\} 1)?",
        "# (TYPE|HELP) [a-c] (counter|gauge|summary|x)",
        "[ -~\t]{0,12}",
    ]
}

proptest! {
    #[test]
    fn what_looks_like_a_page_is_read_or_refused(
        format in 0_u8..2,
        lines in prop::collection::vec(line(), 0..8),
        end in prop::sample::select(vec!["", "\n", "\n# EOF", "\n# EOF\n"]),
    ) {
        let page = format!("{}{end}", lines.join("\n"));
        exposition::check(&[&[format], page.as_bytes()].concat());
    }
}
