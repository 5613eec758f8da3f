//! Properties that hold for every byte string in the place of a response of STS or EKS Auth. The fuzz target `sts`, the replay of
//! its corpus and the property tests call this module.
//!
//! There are four properties. The texts read from a well-formed document equal those of another parser, and none is longer than
//! the input. A response written as STS writes it is read exactly, and a cut one is refused. An error about credentials is one of
//! a few sentences, so that it repeats nothing of the response. An AWS error repeats only the words of its code and message.

#![expect(clippy::expect_used, reason = "a broken invariant stops the test")]

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use roxmltree::{Document, Node};
use seawall_broker::aws::{AwsCredentialParts, fuzz_api};
use seawall_broker::{ExchangeError, ExchangeFault};
use serde_json::Value;

/// The properties that an input turned out to have. Tests count them, so that an unreached property is noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AwsResponseKinds {
    /// Another parser accepts it as XML.
    pub is_xml: bool,
    /// It is a session of STS.
    pub is_sts_session: bool,
    /// It is a session of EKS Auth.
    pub is_eks_auth_session: bool,
    /// It is an error of AWS.
    pub was_aws_error: bool,
}

/// Checks an input as an answer of each kind, and as the texts in an answer that is good.
pub fn check(input: &[u8]) -> AwsResponseKinds {
    let document = check_document(input);
    let session = ACTIONS.map(|action| check_session(action, input)).contains(&true);
    check_written(input);
    AwsResponseKinds {
        is_xml: document,
        is_sts_session: session,
        is_eks_auth_session: check_pod_identity(input),
        was_aws_error: check_refusal(input),
    }
}

const ACTIONS: [&str; 2] = ["AssumeRole", "AssumeRoleWithWebIdentity"];

/// Paths of the elements that are read, and of some other elements.
const PLACES: [&str; 7] = [
    "AssumeRoleResponse",
    "AssumeRoleResponse/AssumeRoleResult/Credentials/SecretAccessKey",
    "AssumeRoleResponse/AssumeRoleResult/Credentials/Expiration",
    "AssumeRoleWithWebIdentityResponse/AssumeRoleWithWebIdentityResult/Credentials/SessionToken",
    CODE,
    MESSAGE,
    "a/b",
];

const CODE: &str = "ErrorResponse/Error/Code";
const MESSAGE: &str = "ErrorResponse/Error/Message";

/// Checks that a document which another parser accepts is read equally or refused for a known reason, and that no text is longer
/// than the input. Returns true if both were compared.
fn check_document(input: &[u8]) -> bool {
    let read = fuzz_api::parse_element_texts(input, PLACES)
        .map(|texts| texts.map(|text| text.map(|text| text.expose().clone())));
    let length: usize = read.iter().flatten().flatten().map(String::len).sum();
    assert!(length <= input.len(), "{length} bytes of {}", input.len());
    let text = std::str::from_utf8(input).ok().filter(|text| !has_empty_prefix(text));
    let Some(document) = text.and_then(|text| Document::parse(text).ok()) else { return false };
    if document.descendants().filter(Node::is_text).any(|text| is_guessed(text, input)) {
        return false;
    }
    assert_eq!(read, reference(&document), "{}", input.escape_ascii());
    true
}

/// Returns true if a tag name may begin with a colon: `</a>` does not end `<:a>`, but the other parser says that it does.
fn has_empty_prefix(text: &str) -> bool {
    text.contains("<:") || text.contains("</:")
}

/// Returns true if the other parser replaced an invalid character reference by a character of its own.
fn is_guessed(text: Node<'_, '_>, input: &[u8]) -> bool {
    const INSTEAD: char = char::REPLACEMENT_CHARACTER;
    text.text().is_some_and(|text| text.contains(INSTEAD))
        && !String::from_utf8_lossy(input).contains(INSTEAD)
}

/// Deepest element that is read.
const DEPTH: usize = 16;

/// Returns the texts according to the other parser; `None` if the document is too deep or has one of the texts twice.
fn reference(document: &Document<'_>) -> Option<[Option<String>; PLACES.len()]> {
    let mut found = [const { None }; PLACES.len()];
    for element in document.descendants().filter(Node::is_element) {
        let place = place(element)?;
        let Some(index) = PLACES.iter().position(|asked| *asked == place) else { continue };
        let texts = element.children().filter(Node::is_text).filter_map(|text| text.text());
        if found[index].replace(texts.collect()).is_some() {
            return None;
        }
    }
    Some(found)
}

fn place(element: Node<'_, '_>) -> Option<String> {
    let around = element.ancestors().filter(Node::is_element).take(DEPTH + 1);
    let mut names: Vec<&str> = around.map(|node| node.tag_name().name()).collect();
    names.reverse();
    (names.len() <= DEPTH).then(|| names.join("/"))
}

/// A session that is read holds no more than was sent; an error about one is one of a few sentences.
fn check_session(action: &str, input: &[u8]) -> bool {
    let read = fuzz_api::parse_sts_session(action, input);
    check_parts(input, &read, &NONSENSE);
    read.is_ok()
}

fn check_parts(input: &[u8], read: &Result<AwsCredentialParts, ExchangeError>, nonsense: &BTreeSet<String>) {
    match read {
        Ok(parts) => {
            let length: usize = texts(parts).map(str::len).iter().sum();
            assert!(length <= input.len(), "{length} bytes of {}", input.len());
        }
        Err(error) => {
            assert_eq!(error.fault, ExchangeFault::Unavailable);
            assert!(nonsense.contains(&without_numbers(error)), "{error}: {}", input.escape_ascii());
        }
    }
}

fn texts(parts: &AwsCredentialParts) -> [&str; 4] {
    [
        &parts.access_key_id,
        parts.secret_access_key.expose().as_str(),
        parts.session_token.expose().as_str(),
        &parts.assumed_role_arn,
    ]
}

/// Without the place in the input that it names.
fn without_numbers(error: &ExchangeError) -> String {
    error.to_string().replace(|c: char| c.is_ascii_digit(), "")
}

/// All that is said of an answer that is no session of STS's: of what is no XML, of one that lacks a part, of an odd end.
static NONSENSE: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let empty = "<AssumeRoleResponse/>".to_owned();
    let odd = answer(ACTIONS[0], ["a", "b", "c"], "soon");
    let error =
        |body: &String| fuzz_api::parse_sts_session(ACTIONS[0], body.as_bytes()).expect_err("nonsense");
    [String::new(), empty, odd].iter().map(|body| without_numbers(&error(body))).collect()
});

/// Every error about a body that is not a session of EKS Auth: not JSON, or an expiry that no clock can show.
static NONSENSE_IN_JSON: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let odd = r#"{"subject":{"namespace":"shop","serviceAccount":"cart"},"assumedRoleUser":{"arn":""},"credentials":{"accessKeyId":"","secretAccessKey":"","sessionToken":"","expiration":1e99}}"#;
    let error = |body: &str| fuzz_api::parse_pod_identity_session(body.as_bytes()).expect_err("nonsense");
    ["", odd].map(|body| without_numbers(&error(body))).into()
});

/// A session of EKS Auth's is what any reader of JSON reads.
fn check_pod_identity(input: &[u8]) -> bool {
    let read = fuzz_api::parse_pod_identity_session(input);
    if let Err(ExchangeError { fault: ExchangeFault::ExchangeRejected, .. }) = read {
        let whose =
            |at| serde_json::from_slice::<Value>(input).ok()?.pointer(at)?.as_str().map(str::to_owned);
        let whose = ["/subject/namespace", "/subject/serviceAccount"].map(whose);
        assert_ne!(whose, ["shop", "cart"].map(|own| Some(own.to_owned())), "{}", input.escape_ascii());
        return false;
    }
    check_parts(input, &read, &NONSENSE_IN_JSON);
    let Ok(parts) = read else { return false };
    // What nobody asked for is passed over, and not made a text of: a number that is no character's may stand there.
    let Ok(json) = serde_json::from_slice::<Value>(input) else { return true };
    let is = |at: &str| json.pointer(at).and_then(Value::as_str).expect("a text, since it was read");
    let [id, secret, token] =
        ["accessKeyId", "secretAccessKey", "sessionToken"].map(|name| is(&format!("/credentials/{name}")));
    assert_eq!(texts(&parts), [id, secret, token, is("/assumedRoleUser/arn")]);
    true
}

/// Longest word of AWS's that is repeated, in bytes.
const LONGEST_WORD: usize = 160;

/// Longest detail, in characters.
const LONGEST: usize = 200;

/// Checks that the description of a failed call is short and plain, and that each word of it is from the code or message of AWS.
fn check_refusal(input: &[u8]) -> bool {
    let said = fuzz_api::parse_refusal(input).detail;
    assert!(said.chars().count() <= LONGEST && !said.contains(char::is_control), "{said:?}");
    assert!(said.split(' ').all(|word| word.len() <= LONGEST_WORD), "{said}");
    if said == *NO_ERROR {
        return false;
    }
    let Some(meant) = meant(input) else { return true };
    let meant = meant.join(" ").replace(char::is_control, " ");
    let words = said.strip_prefix("400 Bad Request: ").expect("the status first");
    for word in words.split(' ').filter(|word| *word != "…") {
        assert!(meant.contains(word), "{word:?} of {said:?}");
    }
    true
}

/// The description of a failed call without an error of AWS.
static NO_ERROR: LazyLock<String> = LazyLock::new(|| fuzz_api::parse_refusal(b"").detail);

/// The texts of an error that are meant to be read; nothing where a reader of the whole JSON reads less of it, as of a session
/// ([`check_pod_identity`]).
fn meant(input: &[u8]) -> Option<Vec<String>> {
    if let Some(texts) = fuzz_api::parse_element_texts(input, [CODE, MESSAGE]) {
        return Some(texts.into_iter().flatten().map(|text| text.expose().clone()).collect());
    }
    let json: Value = serde_json::from_slice(input).ok()?;
    let members = ["__type", "code", "message", "Message"].map(|name| json[name].as_str().map(str::to_owned));
    Some(members.into_iter().flatten().collect())
}

/// An input as what stands in an answer: read as it was written. Cut where it says, or with a part of it twice, it is none; and as
/// the body of a failed call nothing of it is repeated.
fn check_written(input: &[u8]) {
    let text: String = String::from_utf8_lossy(input).chars().filter(|c| is_of_xml(*c)).collect();
    let number = input.iter().take(8).fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte));
    let parts = thirds(&text);
    let (action, other) =
        if number.is_multiple_of(2) { (ACTIONS[0], ACTIONS[1]) } else { (ACTIONS[1], ACTIONS[0]) };
    let (end, millis) = if number % 4 < 2 { ("01:00:00Z", 0) } else { ("01:00:00.250Z", 250) };
    let written = answer(action, parts, &format!("1970-01-01T{end}"));
    let read = fuzz_api::parse_sts_session(action, written.as_bytes()).expect("a good answer");
    assert_eq!(texts(&read), [parts[0], parts[1], parts[2], ROLE]);
    assert_eq!(read.expires, SystemTime::UNIX_EPOCH + Duration::from_millis(3_600_000 + millis));
    let cut = &written.as_bytes()[..number % written.len()];
    let token = "<SessionToken>";
    let twice = written.replacen(token, &format!("<SessionToken/>{token}"), 1);
    for body in [cut, twice.as_bytes()] {
        assert!(!check_session(action, body), "{}", body.escape_ascii());
    }
    assert!(!check_session(other, written.as_bytes()), "of another action: {written}");
    assert!(!check_refusal(written.as_bytes()) && !check_refusal(cut), "{written}");
}

/// Characters that a document may hold (XML 1.0, production 2).
fn is_of_xml(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

fn thirds(text: &str) -> [&str; 3] {
    let at = |third: usize| (0..=text.len() * third / 3).rev().find(|at| text.is_char_boundary(*at));
    let (first, second) = (at(1).unwrap_or_default(), at(2).unwrap_or_default());
    [&text[..first], &text[first..second], &text[second..]]
}

const ROLE: &str = "arn:aws:sts::123456789012:assumed-role/cart/shop.cart";

/// An answer of STS's in its own shape (botocore `botocore/data/sts/2011-06-15/service-2.json`).
fn answer(action: &str, texts: [&str; 3], end: &str) -> String {
    let [id, secret, token] = texts.map(escaped);
    format!(
        "<{action}Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\n  <{action}Result>\n    <Credentials>\n      \
         <AccessKeyId>{id}</AccessKeyId>\n      <SecretAccessKey>{secret}</SecretAccessKey>\n      \
         <SessionToken>{token}</SessionToken>\n      <Expiration>{end}</Expiration>\n    </Credentials>\n    \
         <AssumedRoleUser>\n      <AssumedRoleId>AROAEXAMPLE:shop.cart</AssumedRoleId>\n      <Arn>{ROLE}</Arn>\n    \
         </AssumedRoleUser>\n  </{action}Result>\n  <ResponseMetadata>\n    <RequestId>c6104cbe</RequestId>\n  \
         </ResponseMetadata>\n</{action}Response>"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\r', "&#13;")
}
