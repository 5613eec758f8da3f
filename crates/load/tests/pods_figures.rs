//! What pods tell of a load, as any bytes at all.

use seawall_invariants::load::pod_reports;

#[test]
fn the_corpus_of_figures_holds() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/interval");
    let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() > 3, "the corpus is missing");
    files.iter().for_each(|file| pod_reports::check(&std::fs::read(file).unwrap()));
}
