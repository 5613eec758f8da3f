//! Properties that hold for every byte string that a pod can send to Google's dialect; [`aws`] has those of AWS's dialects. The
//! fuzz target `gce`, the replay of its corpus and the property tests call this module.

#![expect(clippy::expect_used, reason = "a broken invariant stops the test")]

pub mod aws;

use std::sync::LazyLock;

use seawall_http::{
    Framing, HeadLimits, Header, HttpVersion, Parsed, Refusal, RequestHead, ResponseContext, parse_request,
    parse_response, path, request,
};
use seawall_protocols::google::{
    self, AccessTokenBody, AccountScopes, AdmittedRequest, CredentialQuery, GoogleIdentity,
    MetadataServerKind, MetadataTree, NodeMetadata, TreeRequest, TreeResource, TreeResponse, node_metadata,
};

/// The properties that an input turned out to have. Tests count them, so that an unreached property is noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GoogleRequestOutcome {
    /// The HTTP parser accepts it as a request.
    pub is_request: bool,
    /// Conceal mode admits it.
    pub is_admitted_in_conceal_mode: bool,
    /// Federate mode answers it.
    pub is_answered_in_federate_mode: bool,
}

/// Checks an input as a whole request, and as a bare target that no parser has looked at before.
pub fn check(input: &[u8]) -> GoogleRequestOutcome {
    if let Ok(target) = std::str::from_utf8(input) {
        let headers = [Header { name: "Metadata-Flavor", value: b"Google" }];
        check_head(&head(target, &headers));
    }
    let mut room = request::header_buffer();
    match parse_request(input, &mut room, &HeadLimits::default()) {
        Ok(Parsed::Complete(head, _)) => check_head(&head),
        _ => GoogleRequestOutcome::default(),
    }
}

fn head<'h, 'b>(target: &'b str, headers: &'h [Header<'b>]) -> RequestHead<'h, 'b> {
    let (version, framing) = (HttpVersion::Http11, Framing::None);
    RequestHead { method: "GET", target, version, headers, framing, keep_alive: true }
}

fn check_head(head: &RequestHead<'_, '_>) -> GoogleRequestOutcome {
    check_path(head.target);
    let admitted = google::admit_request(head);
    if let Ok(forward) = &admitted {
        check_forward(head, forward);
    }
    let mut answered = false;
    for tree in TREES.iter() {
        let asked = tree.parse_request(head);
        answered |= asked.is_ok();
        check_answer(head, &asked);
    }
    GoogleRequestOutcome {
        is_request: true,
        is_admitted_in_conceal_mode: admitted.is_ok(),
        is_answered_in_federate_mode: answered,
    }
}

static TREES: LazyLock<[MetadataTree; 2]> = LazyLock::new(|| [tree(true), tree(false)]);

fn tree(impersonated: bool) -> MetadataTree {
    let email = if impersonated { "me@p.iam.gserviceaccount.com" } else { "p.svc.id.goog" }.into();
    let scopes = AccountScopes::new(&node_metadata::DEFAULT_ACCOUNT_SCOPES);
    let universe_domain = "googleapis.com".into();
    let node = NodeMetadata {
        project_id: "p".into(),
        zone: Some("z".into()),
        universe_domain,
        ..NodeMetadata::default()
    };
    MetadataTree::for_workload(
        &node,
        Some(&GoogleIdentity { email_or_workload_pool: email, is_impersonated: impersonated, scopes }),
    )
}

/// A canonical path is its own canonical form, and has nothing left in it to resolve.
fn check_path(target: &str) {
    let Ok(target) = path::canonicalise_target(target) else { return };
    let text = target.path.as_str();
    assert!(text.starts_with('/') && !text.contains("//") && !text.contains('%'), "{text}");
    assert!(text.split('/').all(|name| name != "." && name != ".."), "{text}");
    let again = path::canonicalise_target(text).expect("a canonical path");
    assert_eq!(again.path.as_str(), text);
    assert_eq!(again.query, None);
}

/// Checks that a forwarded target reveals nothing, however often it is decoded, and that filtering it again changes nothing.
fn check_forward(head: &RequestHead<'_, '_>, forward: &AdmittedRequest<'_>) {
    let target = &*forward.target;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~@:?&=,".contains(&byte);
    assert!(target.starts_with('/') && target.bytes().all(is_plain), "{target}");
    let mut reading = target.to_owned();
    for _ in 0..3 {
        assert!(!reveals(&reading), "{target} reveals the node");
        reading = percent_decoded(&reading);
    }
    let flavored = head.headers.iter().any(|header| {
        header.value == b"Google" || header.name.eq_ignore_ascii_case("x-google-metadata-request")
    });
    assert!(
        flavored
            || ["/", "/0.1", "/0.1/", "/computeMetadata", "/computeMetadata/"]
                .iter()
                .any(|probe| probe.eq_ignore_ascii_case(target)),
        "{target} without the flavour header"
    );
    let again =
        google::admit_request(&RequestHead { target, ..*head }).expect("admitted once, admitted again");
    assert_eq!(again.target, target);
    let query = target.split_once('?').map_or("", |(_, query)| query);
    let waits = query.split('&').any(|pair| pair == "wait_for_change=true");
    assert_eq!((forward.long_poll.is_some(), again.long_poll.is_some()), (waits, waits), "{target}");
}

/// A model of the real server, told apart from the filter: it reads names in any case, takes any key that looks
/// like recursion for recursion, prints a directory whole where another form is asked for, and says whether the answer holds `kube-env` or the identity of the machine.
fn reveals(target: &str) -> bool {
    let target = target.to_ascii_lowercase();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let mut names: Vec<&str> = Vec::new();
    for name in path.split(['/', '\\']) {
        match name.split(';').next().unwrap_or_default() {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    let is = |place: usize, name: &str| names.get(place).is_some_and(|found| *found == name);
    let instance = match names.first() {
        Some(&"0.1") => 2,
        _ => 3,
    };
    let in_accounts = is(instance, "service-accounts") && (instance == 2 || is(2, "instance"));
    let recursive = query
        .split(['&', ';'])
        .any(|pair| pair.starts_with("recursive") && !pair.ends_with("=false") && !pair.ends_with("=0"));
    let in_another_form = query.split(['&', ';']).any(|pair| pair.starts_with("alt"));
    // Each directory from which recursion would reach `attributes/kube-env`.
    let is_above = match names[..] {
        [] | [_] | [_, _] => true,
        [_, _, "instance"] => instance == 3,
        [.., "attributes"] => names.len() == instance + 1,
        _ => false,
    };
    (recursive && !in_accounts)
        || (in_another_form && is_above)
        || (in_accounts && names[instance..].contains(&"identity"))
        || (is(instance, "attributes") && is(instance + 1, "kube-env"))
}

/// One round of percent-decoding, lenient: what is not an encoding stays.
fn percent_decoded(text: &str) -> String {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => (out.push(byte), rest = &tail[2..]).1,
            None => (out.push(*first), rest = tail).1,
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Whatever is asked, the answer is one response that the strict parser reads back whole, with the flavour on it and
/// no header that the request brought.
fn check_answer(head: &RequestHead<'_, '_>, asked: &Result<TreeRequest<'_, '_>, Refusal>) {
    let date = b"Sun, 06 Nov 1994 08:49:37 GMT";
    let frame = ResponseContext::for_request(head, date);
    let mut out = Vec::new();
    match asked {
        Ok(query) => write_answer(&mut out, &frame, query),
        Err(refusal) => MetadataServerKind::Gke.write_refusal(&mut out, &frame, refusal),
    }
    check_response(head, &frame, &out, &WRITTEN);
    let flavor = b"\r\nMetadata-Flavor: Google\r\n";
    assert!(out.windows(flavor.len()).any(|part| part == flavor), "{}", out.escape_ascii());
}

/// An answer is one response that the strict parser reads back whole, with no header but those that its dialect writes.
fn check_response(head: &RequestHead<'_, '_>, frame: &ResponseContext<'_>, out: &[u8], written: &[&str]) {
    let mut room = request::header_buffer();
    let parsed =
        parse_response(out, head.method, &mut room, &HeadLimits::default()).expect("a valid response");
    let Parsed::Complete(response, length) = parsed else {
        unreachable!("a whole head: {}", out.escape_ascii())
    };
    let body = (out.len() - length) as u64;
    let expected = if frame.head_only { Framing::None } else { Framing::Length(body) };
    assert!(response.framing == expected || body == 0, "{}", out.escape_ascii());
    assert!(frame.head_only || response.framing == expected, "{}", out.escape_ascii());
    assert_eq!(response.keep_alive, frame.keep_alive, "{}", out.escape_ascii());
    for header in response.headers {
        assert!(written.contains(&header.name), "{}", out.escape_ascii());
    }
}

/// Every header that federate mode writes.
const WRITTEN: [&str; 13] = [
    "Allow",
    "Cache-Control",
    "Connection",
    "Content-Length",
    "Content-Type",
    "Date",
    "ETag",
    "Location",
    "Metadata-Flavor",
    "Retry-After",
    "Server",
    "X-Frame-Options",
    "X-XSS-Protection",
];

fn write_answer(out: &mut Vec<u8>, frame: &ResponseContext<'_>, query: &TreeRequest<'_, '_>) {
    match &query.resource {
        TreeResource::WithoutCredential(TreeResponse::Text(known)) => {
            MetadataServerKind::Gke.write_text(out, frame, known);
        }
        TreeResource::Credential(CredentialQuery::AccessToken { scopes, alt }) => {
            assert!(scopes.canonical_text().bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()));
            assert!(!scopes.canonical_text().contains(['"', '\\', '%', ',']), "{scopes:?}");
            let token = AccessTokenBody { token: "t", expires_in: 1, response_format: *alt, etag: None };
            MetadataServerKind::Gke.write_access_token(out, frame, &token);
        }
        TreeResource::Credential(CredentialQuery::IdToken { audience, .. }) => {
            assert!(
                (1..=2048).contains(&audience.len()) && audience.bytes().all(|byte| byte.is_ascii_graphic())
            );
            MetadataServerKind::Gke.write_id_token(out, frame, "j.w.t");
        }
        TreeResource::WithoutCredential(TreeResponse::Redirect(redirect)) => {
            assert!(redirect.path.ends_with('/') && !redirect.path.starts_with("//"), "{redirect:?}");
            MetadataServerKind::Gke.write_redirect(out, frame, redirect);
        }
    }
    assert!(query.long_poll.as_ref().is_none_or(|hold| hold.timeout <= google::query::MAX_LONG_POLL_WAIT));
}
