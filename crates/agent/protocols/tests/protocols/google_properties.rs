//! The invariants over the fuzzer's corpus, over scrambled requests, and over every spelling of concealed paths that
//! an attacker's toolbox holds.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::select;
use seawall_invariants::protocols as invariants;
use seawall_protocols::google::conceal::CONCEALED;

use crate::support::get;
use crate::support::spelling::{honest, scrambled, spelled};

#[test]
fn the_corpus_keeps_every_invariant() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/gce");
    let mut seen = Vec::new();
    for entry in std::fs::read_dir(&corpus).expect("the corpus is committed") {
        let path = entry.expect("a readable folder").path();
        let input = std::fs::read(&path).expect("a readable file");
        let result = std::panic::catch_unwind(|| invariants::check(&input));
        assert!(result.is_ok(), "{} breaks an invariant; the reason is above", path.display());
        seen.extend(result);
    }
    let count =
        |is: fn(&invariants::GoogleRequestOutcome) -> bool| seen.iter().filter(|seen| is(seen)).count();
    assert!(count(|seen| seen.is_request) > 20 && count(|seen| !seen.is_request) > 0, "{seen:?}");
    assert!(
        count(|seen| seen.is_admitted_in_conceal_mode) > 5
            && count(|seen| seen.is_answered_in_federate_mode) > 5,
        "{seen:?}"
    );
    assert!(count(|seen| seen.is_request && !seen.is_admitted_in_conceal_mode) > 5, "{seen:?}");
}

/// Paths that must never be read through the filter, in the words of the real server.
fn concealed() -> impl Strategy<Value = String> {
    let instance =
        select(vec!["0.1/meta-data", "computeMetadata/v1beta1/instance", "computeMetadata/v1/instance"]);
    let name = select(vec![
        "attributes/kube-env",
        "service-accounts/default/identity",
        "service-accounts/me@p.iam.gserviceaccount.com/identity",
    ]);
    (instance, name).prop_map(|(instance, name)| format!("{instance}/{name}"))
}

/// Ways to write such a path, honest and not.
fn spelling() -> impl Strategy<Value = String> {
    let ends = vec!["", "/", "//", "/.", "/x", "/%2e", "?", "?alt=text", "?recursive=true", "?audience=a"];
    let starts = vec!["", "", "", "http://metadata", "http://169.254.169.254"];
    (select(starts), concealed().prop_flat_map(|path| spelled(&path)), select(ends))
        .prop_map(|(start, path, end)| format!("{start}{path}{end}"))
}

/// What [`scrambled`] requests are made of, beside what a list of words cannot hold.
const PIECES: &str = "/ // .. . %2e %2f %25 ; 0.1 meta-data computeMetadata v1 v1beta1 instance attributes \
    kube-env service-accounts default identity token project universe universe-domain email \
    scopes /computeMetadata/v1/ /computeMetadata/v1/instance/service-accounts/ ? & = recursive \
    true false %72ecursive alt=json alt=text wait_for_change=true last_etag= timeout_sec=5 \
    scopes=a,b audience=https://a format=full transport=mtls http://m ?recursive=true \
    &recursive=1 @ : % %00 é A me@p.iam.gserviceaccount.com";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_spelling_of_a_concealed_path_is_admitted(target in spelling()) {
        let refusal = crate::support::refusal_of_target(&target);
        prop_assert!(refusal.is_some(), "{} was admitted", target);
    }

    #[test]
    fn an_honest_spelling_of_a_concealed_path_is_concealed(
        target in honest("/computeMetadata/v1/instance/attributes/kube-env"),
    ) {
        prop_assert_eq!(crate::support::refusal_of_target(&target), Some(CONCEALED));
    }

    #[test]
    fn an_honest_spelling_of_a_token_is_served(
        target in honest("/computeMetadata/v1/instance/service-accounts/default/token"),
    ) {
        let canonical = "/computeMetadata/v1/instance/service-accounts/default/token";
        prop_assert_eq!(crate::support::admit(&get(&target)), Ok(canonical.to_owned()));
        let response = crate::support::exchange(&crate::support::direct(), &get(&target));
        prop_assert_eq!(crate::support::status(&response), "200");
    }

    #[test]
    fn scrambled_requests_keep_every_invariant(target in scrambled(PIECES), flavored in any::<bool>()) {
        invariants::check(target.as_bytes());
        let raw = if flavored { get(&target) } else { crate::support::with(&target, "") };
        invariants::check(raw.as_bytes());
        invariants::check(raw.replacen("GET", "HEAD", 1).replace("1.1", "1.0").as_bytes());
    }

    #[test]
    fn random_bytes_keep_every_invariant(input in proptest::collection::vec(any::<u8>(), 0..200)) {
        invariants::check(&input);
    }
}
