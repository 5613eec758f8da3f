//! Any profile is read or refused, and what is read makes a schedule that keeps its word.

use proptest::prelude::*;
use seawall_invariants::load::profiles;

#[test]
fn the_corpus_of_profiles_holds() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/profile");
    let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() > 5, "the corpus is missing");
    files.iter().for_each(|file| profiles::check(&std::fs::read(file).unwrap()));
}

fn rate() -> impl Strategy<Value = String> {
    prop_oneof![
        "[0-9]{1,4}/s",
        "[0-9]{1,9}(\\.[0-9]{1,3})?/[0-9]{1,3}(ns|us|ms|s|m|h)",
        Just("1/9000h".to_owned()),
    ]
}

fn time() -> impl Strategy<Value = String> {
    prop_oneof!["[0-9]{1,4}(ms|s)", "[0-9]{1,20}(ns|us|ms|s|m|h)"]
}

fn sentence() -> impl Strategy<Value = String> {
    prop_oneof![
        (rate(), time()).prop_map(|(at, length)| format!("hold {at} for {length}")),
        (rate(), rate(), time()).prop_map(|(from, to, length)| format!("ramp {from} to {to} for {length}")),
        (rate(), rate(), time(), time()).prop_map(|(mean, by, period, length)| {
            format!("sine {mean} by {by} every {period} for {length}")
        }),
        Just("replay offsets".to_owned()),
        rate().prop_map(|at| format!("hold {at}")),
    ]
}

proptest! {
    #[test]
    fn what_looks_like_a_profile_is_read_or_refused(
        sentences in prop::collection::vec(sentence(), 1..4),
        steps in prop::option::of((rate(), rate(), rate(), time())),
        offsets in prop::collection::vec(time(), 0..5),
    ) {
        let mut text = sentences.join(", ");
        if let Some((from, to, by, length)) = steps {
            text = format!("step {from} to {to} by {by} every {length}, {text}");
        }
        profiles::check(format!("{text}\n{}", offsets.join("\n")).as_bytes());
    }
}
