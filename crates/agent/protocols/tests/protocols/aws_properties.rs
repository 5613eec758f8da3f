//! The invariants of AWS's dialects over the fuzzer's corpus, over scrambled requests, over tokens that are nearly good, and over
//! every spelling of what a pod must not read.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use seawall_http::{Framing, Header, HttpVersion, Refusal, RequestHead};
use seawall_invariants::protocols::aws as invariants;
use seawall_protocols::aws::session_token::BAD_TOKEN;
use seawall_protocols::aws::{ImdsRequest, ImdsResource, OwnRole, RequestedRole};

use crate::support::aws::{Scene, request};
use crate::support::spelling::{honest, scrambled, spelled};
use crate::support::status;

#[test]
fn the_corpus_keeps_every_invariant() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/aws");
    let mut seen = Vec::new();
    for entry in std::fs::read_dir(&corpus).expect("the corpus is committed") {
        let path = entry.expect("a readable folder").path();
        let input = std::fs::read(&path).expect("a readable file");
        let result = std::panic::catch_unwind(|| invariants::check(&input));
        assert!(result.is_ok(), "{} breaks an invariant; the reason is above", path.display());
        seen.extend(result);
    }
    let count = |is: fn(&invariants::AwsRequestOutcome) -> bool| seen.iter().filter(|seen| is(seen)).count();
    assert!(count(|seen| seen.is_request) > 20 && count(|seen| !seen.is_request) > 3, "{seen:?}");
    assert!(count(|seen| seen.is_granted_token) > 2 && count(|seen| seen.has_valid_token) > 2, "{seen:?}");
    assert!(
        count(|seen| seen.is_granted_credentials) > 3 && count(|seen| seen.would_be_passed_through) > 1,
        "{seen:?}"
    );
    assert!(count(|seen| seen.is_container_request) > 1, "{seen:?}");
}

const OWN: &str = "/latest/meta-data/iam/security-credentials/cart";
const OWN_ARN: &str = "/latest/meta-data/iam/security-credentials/arn:aws:iam::123456789012:role/pods/cart";

/// What a pod must never be given, in the words of the real service; of the last no expression may let it have.
fn forbidden() -> impl Strategy<Value = String> {
    let paths = vec![
        "latest/user-data",
        "latest/meta-data/iam/security-credentials/shop",
        "latest/meta-data/iam/security-credentials-extended/shop",
        "latest/meta-data/iam/security-credentials/arn:aws:iam::123456789012:role/pods/shop",
        "latest/meta-data/identity-credentials/ec2/security-credentials/ec2-instance",
    ];
    let starts = vec!["", "", "http://169.254.169.254"];
    let ends = vec!["", "/", "//", "/.", "/x", "/%2e", "?", "?x=/latest/meta-data/"];
    (select(starts), select(paths).prop_flat_map(spelled), select(ends))
        .prop_map(|(start, path, end)| format!("{start}{path}{end}"))
}

/// What is asked for with a target that the wire would not let through.
fn read(scene: &Scene, target: &str) -> Result<String, Refusal> {
    let (version, framing, headers) = (HttpVersion::Http11, Framing::None, &[] as &[Header<'_>]);
    let head = RequestHead { method: "GET", target, version, headers, framing, keep_alive: true };
    scene.ask_head(&head).map(|asked| match asked {
        ImdsRequest::Read(query) => match query.resource {
            ImdsResource::RoleCredentials { role, .. } if !is_own(&role) => "another's role".to_owned(),
            what => format!("{what:?}"),
        },
        ImdsRequest::Token(_) => "a token".to_owned(),
    })
}

fn is_own(role: &RequestedRole<'_>) -> bool {
    role.is_own(OwnRole { name: "cart", arn: "arn:aws:iam::123456789012:role/pods/cart" })
}

/// What [`scrambled`] requests are made of.
const PIECES: &str = "/ // .. . %2e %2f %25 ; latest 2021-01-03 1.0 meta-data dynamic iam info security-credentials \
    security-credentials-extended cart shop a%2Bb + = , @ : api token user-data placement region instance-identity \
    document identity-credentials /latest/meta-data/iam/security-credentials/ /v1/credentials v1 credentials \
    http://m ? & %00 é %43redentials arn:aws:iam::123456789012:role %2Fpods%2F";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_spelling_of_what_is_forbidden_is_answered(target in forbidden()) {
        let read = read(&Scene::new(), &target);
        let is_refused = read.as_ref().map_or(true, |what| what == "another's role");
        prop_assert!(is_refused, "{} is {:?}", target, read);
    }

    #[test]
    fn no_expression_lets_a_spelling_of_credentials_pass(target in forbidden()) {
        let passed = read(&Scene::passing(&["(?s).*"]), &target).unwrap_or_default();
        let passed = passed.to_ascii_lowercase();
        prop_assert!(!passed.contains("credentials") && !passed.contains("user-data"), "{} is {}", target, passed);
    }

    #[test]
    fn an_honest_spelling_of_the_own_role_is_answered(target in honest(OWN)) {
        let response = Scene::new().exchange(&request(&format!("GET {target}"), &[]));
        prop_assert_eq!(status(&response), "200");
    }

    #[test]
    fn an_honest_spelling_of_the_own_roles_arn_is_answered(target in honest(OWN_ARN)) {
        let response = Scene::new().exchange(&request(&format!("GET {target}"), &[]));
        prop_assert_eq!(status(&response), "200");
    }

    #[test]
    fn a_token_with_one_other_byte_is_none(at in any::<Index>(), byte in any::<u8>(), ttl in 1..=21_600_u32) {
        let scene = Scene::strict();
        let good = scene.token(ttl).into_bytes();
        let mut shown = good.clone();
        let at = at.index(shown.len());
        shown[at] = byte;
        let headers = [Header { name: "X-aws-ec2-metadata-token", value: &shown }];
        let (version, framing) = (HttpVersion::Http11, Framing::None);
        let head =
            RequestHead { method: "GET", target: OWN, version, headers: &headers, framing, keep_alive: true };
        let refused = scene.ask_head(&head).map(drop).err();
        prop_assert_eq!(refused, (shown != good).then_some(BAD_TOKEN));
    }

    #[test]
    fn scrambled_requests_keep_every_invariant(target in scrambled(PIECES), method in select(vec!["GET", "PUT", "HEAD"])) {
        invariants::check(target.as_bytes());
        let ttl = "X-aws-ec2-metadata-token-ttl-seconds: 60";
        let raw = request(&format!("{method} {target}"), &[ttl, "Authorization: a.b.c"]);
        invariants::check(raw.as_bytes());
        let token = format!("X-aws-ec2-metadata-token: {}", Scene::new().token(60));
        let raw = request(&format!("{method} {target}"), &[&token]);
        invariants::check(raw.replace("169.254.169.254", "169.254.170.23").as_bytes());
    }

    #[test]
    fn random_bytes_keep_every_invariant(input in proptest::collection::vec(any::<u8>(), 0..200)) {
        invariants::check(&input);
    }
}
