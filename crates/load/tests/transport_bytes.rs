//! Whatever a server says, and in whatever pieces, the transport comes through it.

use proptest::prelude::*;
use seawall_invariants::load::transport::{Protocol, check_script};

/// Every file of the fuzzers' corpus, through the function that the fuzzers call.
#[test]
fn the_corpus_of_connections_holds() {
    for (protocol, target) in [(Protocol::Http1, "http1"), (Protocol::Http2, "http2")] {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/").to_owned() + target;
        let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(files.len() > 5, "the corpus of {target} is missing");
        files.iter().for_each(|file| check_script(protocol, &std::fs::read(file).unwrap()));
    }
}

/// Acts that open connections and begin hits, so that what is said is heard.
fn scene() -> impl Strategy<Value = Vec<u8>> {
    let act = prop_oneof![
        2 => Just(vec![14]),
        1 => (0..16_u8).prop_map(|with| vec![with << 4]),
        2 => (0..16_u8).prop_map(|with| vec![13 | with << 4]),
        3 => prop::collection::vec(any::<u8>(), 1..20),
    ];
    prop::collection::vec(act, 1..30).prop_map(|acts| acts.concat())
}

proptest! {
    #[test]
    fn any_scene_is_come_through(scene in scene()) {
        check_script(Protocol::Http1, &scene);
        check_script(Protocol::Http2, &scene);
    }
}
