//! Federate mode: rules as tables, bodies and whole responses as golden files.

use std::borrow::Cow;
use std::fmt::Write;

use seawall_http::path::BAD_PATH;
use seawall_http::{Refusal, ResponseContext};
use seawall_protocols::google::federate::{
    METHOD_NOT_ALLOWED, NO_ACCOUNT, NO_ACCOUNT_FOR_ID_TOKEN, NOT_FOUND, RECURSIVE_REQUIRED,
};
use seawall_protocols::google::query::{
    BAD_AUDIENCE, BAD_PARAMETER_VALUE, BAD_QUERY, BOUND_TOKEN_UNSUPPORTED, REPEATED_PARAMETER,
};
use seawall_protocols::google::request_head_rules::MISSING_METADATA_FLAVOR;
use seawall_protocols::google::scopes::BAD_SCOPES;
use seawall_protocols::google::{
    CredentialQuery, MetadataServerKind, MetadataTree, NodeMetadata, ResponseFormat, Scopes, TreeRequest,
    TreeResource, TreeResponse,
};
use seawall_protocols::request_head_rules::{PROXIED_REQUEST, UNEXPECTED_BODY};

use crate::support::{DATE, V1, ask, body, direct, exchange, get, header, impersonating, node, status, with};

fn v1(tree: &MetadataTree, path: &str) -> String {
    exchange(tree, &get(&format!("{V1}/{path}")))
}

fn refused(tree: &MetadataTree, path: &str) -> Option<Refusal> {
    ask(tree, &get(&format!("{V1}/{path}")), |_| ()).err()
}

/// What is asked at this path must be a known body; its tag and whether to wait.
fn tag(tree: &MetadataTree, path: &str) -> (String, bool) {
    let look = |query: TreeRequest<'_, '_>| match query.resource {
        TreeResource::WithoutCredential(TreeResponse::Text(known)) => {
            let tag = known.etag.map(|etag| String::from_utf8_lossy(&etag.hex_digits()).into_owned());
            (tag.unwrap_or_default(), query.long_poll.is_some())
        }
        other => panic!("{other:?}"),
    };
    ask(tree, &get(&format!("{V1}/{path}")), look).unwrap()
}

/// Every path, in every form that it has.
fn walk(tree: &MetadataTree) -> String {
    let account = "instance/service-accounts/default/";
    let mut out = String::new();
    for path in [
        "",
        "instance/",
        "instance/attributes/",
        "instance/attributes/cluster-name",
        "instance/hostname",
        "instance/id",
        "instance/name",
        "instance/zone",
        "instance/service-accounts/",
        account,
        &format!("{account}aliases"),
        &format!("{account}email"),
        &format!("{account}scopes"),
        &format!("{account}token"),
        &format!("{account}identity?audience=a"),
        "project/",
        "project/attributes/",
        "project/numeric-project-id",
        "project/project-id",
        "universe/",
        "universe/universe-domain",
        "universe/universe_domain",
        "instance/id?alt=json",
        "instance/zone?alt=json",
        &format!("{account}scopes?alt=json"),
        &format!("{account}token?alt=text"),
        "?recursive=true",
        "?recursive=true&alt=text",
        &format!("{account}?recursive=true"),
        "project/attributes/?recursive=true",
    ] {
        let response = v1(tree, path);
        let content_type = header(&response, "Content-Type").unwrap();
        writeln!(out, "# {path}\n# {} {content_type}\n{}", status(&response), body(&response)).unwrap();
    }
    out
}

#[test]
fn the_whole_tree_of_an_impersonating_workload() {
    insta::assert_snapshot!(walk(&impersonating()));
}

#[test]
fn the_whole_tree_of_a_direct_workload() {
    insta::assert_snapshot!(walk(&direct()));
}

#[test]
fn responses_are_these_byte_for_byte() {
    let tree = impersonating();
    let token = "/computeMetadata/v1/instance/service-accounts/default/token";
    let keep = "Metadata-Flavor: Google\r\nConnection: keep-alive\r\n";
    let mut out = String::new();
    for raw in [
        get(token),
        get(token).replacen("GET", "HEAD", 1),
        get(token).replace("HTTP/1.1", "HTTP/1.0"),
        with(token, keep).replace("HTTP/1.1", "HTTP/1.0"),
        with(token, "Metadata-Flavor: Google\r\nConnection: close\r\n"),
        get("/computeMetadata/v1/instance/service-accounts/default/identity?audience=https://a.example"),
        get("/computeMetadata/v1/project/project-id"),
        get("/computeMetadata/v1/project/project-id").replacen("GET", "HEAD", 1),
        get("/computeMetadata/v1/instance/service-accounts/default?recursive=true"),
        with("/", ""),
        with("/computeMetadata/v1/project/project-id", ""),
        get("/computeMetadata/v1/nothing"),
        get("/computeMetadata/v1/").replacen("GET", "POST", 1),
    ] {
        let request = raw.lines().next().unwrap();
        writeln!(out, "> {request}\n{}\n", exchange(&tree, &raw).replace("\r\n", "\n")).unwrap();
    }
    insta::assert_snapshot!(out);
}

#[test]
fn refusals_of_others_are_written_as_our_own() {
    let closing = ResponseContext::for_invalid_request(DATE);
    let mut out = Vec::new();
    for refusal in [
        Refusal::new(503, "unknown_pod", "No pod is known at this address yet."),
        seawall_http::RequestError::TooLarge.into(),
    ] {
        MetadataServerKind::Vm.write_refusal(&mut out, &closing, &refusal);
    }
    insta::assert_snapshot!(String::from_utf8(out).unwrap().replace("\r\n", "\n"));
}

#[test]
fn every_response_names_its_flavour_and_its_length() {
    let tree = direct();
    for raw in [
        get("/"),
        with("/", ""),
        with("/x", ""),
        get("/%00"),
        get("/computeMetadata"),
        get("/x").replace("GET", "PUT"),
    ] {
        let response = exchange(&tree, &raw);
        assert_eq!(header(&response, "Metadata-Flavor"), Some("Google"), "{response}");
        assert_eq!(header(&response, "Server"), Some("GKE Metadata Server"), "{response}");
        let length = body(&response).len().to_string();
        assert_eq!(header(&response, "Content-Length"), Some(&*length), "{response}");
    }
}

#[test]
fn rules_on_the_head_come_first() {
    let tree = impersonating();
    let zone = "/computeMetadata/v1/instance/zone";
    let code = |raw: &str| ask(&tree, raw, |_| ()).err();
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "get"] {
        assert_eq!(code(&get(zone).replacen("GET", method, 1)), Some(METHOD_NOT_ALLOWED), "{method}");
    }
    for path in ["default/token?scopes=a", "default/identity?audience=a"] {
        let path = format!("{V1}/instance/service-accounts/{path}");
        let refusal = code(&get(&path).replacen("GET", "POST", 1)).unwrap();
        assert_eq!((refusal.status, refusal.code), (405, "method_not_allowed"));
        assert!(refusal.message.contains("GOOGLE_API_ENABLE_RUNTIME_BOUND_TOKEN=false"), "{refusal:?}");
        assert_eq!(code(&get(&path).replacen("GET", "PUT", 1)), Some(METHOD_NOT_ALLOWED));
    }
    for (headers, refusal) in [
        ("", MISSING_METADATA_FLAVOR),
        ("Metadata-Flavor: Something-Else\r\n", MISSING_METADATA_FLAVOR),
        ("Metadata-Flavor: Google\r\nX-Forwarded-For: 1.2.3.4\r\n", PROXIED_REQUEST),
        ("Metadata-Flavor: Google\r\nforwarded: for=x\r\n", PROXIED_REQUEST),
        ("Metadata-Flavor: Google\r\nContent-Length: 2\r\n", UNEXPECTED_BODY),
        ("Metadata-Flavor: Google\r\nTransfer-Encoding: chunked\r\n", UNEXPECTED_BODY),
    ] {
        assert_eq!(code(&with(zone, headers)), Some(refusal), "{headers}");
    }
    assert_eq!(code(&with(zone, "x-google-metadata-request: true\r\n")), None);
    assert_eq!(code(&with("/", "X-Forwarded-For: a\r\n")), Some(PROXIED_REQUEST));
    assert_eq!(code(&with("/", "")), None);
    assert_eq!(code(&with("/computeMetadata/?recursive=true", "")), None);
    assert_eq!(code(&with("/?recursive=true", "")), None);
    assert_eq!(code(&with("/computeMetadata/v1/", "")), Some(MISSING_METADATA_FLAVOR));
    assert_eq!(code(&with("/nothing", "")), Some(MISSING_METADATA_FLAVOR));
}

#[test]
fn paths_are_found_in_any_spelling_and_others_are_not_found() {
    let tree = impersonating();
    for path in
        ["/project//project-id", "x/../project/project-id", "project/%70roject-id", "./project/project-id"]
    {
        assert_eq!(body(&v1(&tree, path)), "shop-prod", "{path}");
    }
    for path in [
        "foo",
        "project/bar",
        "project/project-id/",
        "project/project-id/x",
        "project/projectId",
        "instance/service-accounts/other@shop-prod.iam.gserviceaccount.com/token",
        "instance/service-accounts/default/token/",
        "instance/service-accounts/default/scopes/0",
        "instance/attributes/kube-env",
        "instance/attributes/cluster_name",
        "instance/disks/",
    ] {
        assert_eq!(refused(&tree, path), Some(NOT_FOUND), "{path}");
    }
    assert_eq!(refused(&tree, "project%2Fproject-id"), Some(BAD_PATH));
    for path in ["/computeMetadata/v1beta1/project/project-id", "/0.1/meta-data/", "/latest/meta-data/"] {
        assert_eq!(ask(&tree, &get(path), |_| ()), Err(NOT_FOUND), "{path}");
    }
}

#[test]
fn facts_nobody_knows_are_absent() {
    let node = NodeMetadata {
        project_id: "p".into(),
        universe_domain: "googleapis.com".into(),
        ..NodeMetadata::default()
    };
    let tree = MetadataTree::for_workload(&node, None);
    assert_eq!(body(&v1(&tree, "instance/")), "attributes/\nservice-accounts/\n");
    assert_eq!(body(&v1(&tree, "instance/attributes/")), "");
    assert_eq!(refused(&tree, "instance/zone"), Some(NOT_FOUND));
}

#[test]
fn a_workload_without_an_account_is_told_so() {
    let tree = MetadataTree::for_workload(&node(), None);
    for path in ["default/token", "default/", "default/email", "a@b/token"] {
        assert_eq!(refused(&tree, &format!("instance/service-accounts/{path}")), Some(NO_ACCOUNT), "{path}");
    }
    assert_eq!(body(&v1(&tree, "instance/service-accounts/")), "");
    assert_eq!(body(&v1(&tree, "project/project-id")), "shop-prod");
}

#[test]
fn directories_without_a_slash_are_redirected_with_their_query() {
    let tree = impersonating();
    for (target, location) in [
        ("/computeMetadata", "/computeMetadata/"),
        ("/computeMetadata/v1", "/computeMetadata/v1/"),
        ("/computeMetadata/v1/instance", "/computeMetadata/v1/instance/"),
        ("//computeMetadata/v1/instance", "/computeMetadata/v1/instance/"),
        ("http://metadata/computeMetadata/v1/instance", "/computeMetadata/v1/instance/"),
        (
            "/computeMetadata/v1/instance/service-accounts/default?recursive=true&x=%0d%0aSet-Cookie:a",
            "/computeMetadata/v1/instance/service-accounts/default/?recursive=true&x=%0d%0aSet-Cookie:a",
        ),
    ] {
        let response = exchange(&tree, &get(target));
        assert_eq!((status(&response), header(&response, "Location")), ("301", Some(location)), "{target}");
    }
}

#[test]
fn known_keys_are_checked_and_unknown_ones_ignored() {
    let tree = impersonating();
    let token = "instance/service-accounts/default/token";
    for (path, refusal) in [
        ("project/?alt=json", RECURSIVE_REQUIRED),
        ("project?alt=text", RECURSIVE_REQUIRED),
        ("project/?wait_for_change=true", RECURSIVE_REQUIRED),
        ("project/?recursive=xyz", BAD_PARAMETER_VALUE),
        ("project/?recursive=true&recursive=true", REPEATED_PARAMETER),
        ("project/project-id?alt=xml", BAD_PARAMETER_VALUE),
        ("project/project-id?timeout_sec=soon", BAD_PARAMETER_VALUE),
        ("project/project-id?wait_for_change=maybe", BAD_PARAMETER_VALUE),
        ("project/project-id?alt=%", BAD_QUERY),
        ("instance/service-accounts/default/token?scopes=%22", BAD_SCOPES),
        (
            "instance/service-accounts/default/token?transport=mtls&binding-enforcement=on",
            BOUND_TOKEN_UNSUPPORTED,
        ),
        ("instance/service-accounts/default/identity", BAD_AUDIENCE),
        ("instance/service-accounts/default/identity?audience=", BAD_AUDIENCE),
        ("instance/service-accounts/default/identity?audience=a%20b", BAD_AUDIENCE),
        ("instance/service-accounts/default/identity?audience=a&format=long", BAD_PARAMETER_VALUE),
    ] {
        assert_eq!(refused(&tree, path), Some(refusal), "{path}");
    }
    for path in [
        format!("{token}?transport=mtls&binding-enforcement=iam-policy"),
        format!("{token}?bindCertificateFingerprint=x&new=%C3%A9"),
        format!("{token}?last_etag=abc&timeout_sec=5&foo=blah&recursive=true"),
    ] {
        assert_eq!(refused(&tree, &path), None, "{path}");
    }
}

#[test]
fn token_requests_carry_canonical_scopes() {
    let tree = impersonating();
    let own = "https://www.googleapis.com/auth/cloud-platform https://www.googleapis.com/auth/userinfo.email";
    assert_eq!(&**tree.default_scopes(), own);
    let asked = |query: &str| {
        let raw = get(&format!("{V1}/instance/service-accounts/default/token{query}"));
        ask(&tree, &raw, |query| match query.resource {
            TreeResource::Credential(CredentialQuery::AccessToken { scopes, alt }) => {
                (scopes.canonical_text().to_owned(), matches!(scopes, Scopes::Default(_)), alt)
            }
            other => panic!("{other:?}"),
        })
        .unwrap()
    };
    assert_eq!(asked(""), (own.into(), true, ResponseFormat::Json));
    assert_eq!(asked("?scopes="), (own.into(), true, ResponseFormat::Json));
    let swapped = "?scopes=https://www.googleapis.com/auth/userinfo.email,https%3A%2F%2Fwww.googleapis.com%2Fauth%2Fcloud-platform";
    assert_eq!(asked(swapped), (own.into(), true, ResponseFormat::Json));
    assert_eq!(asked("?scopes=b%2Ca,+b&alt=text"), ("a b".into(), false, ResponseFormat::Text));
}

#[test]
fn identity_requests_carry_their_audience() {
    let asked = |query: &str| {
        let raw = get(&format!("{V1}/instance/service-accounts/default/identity?{query}"));
        ask(&impersonating(), &raw, |query| match query.resource {
            TreeResource::Credential(CredentialQuery::IdToken { audience, include_email }) => {
                (audience.into_owned(), include_email)
            }
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(asked("audience=https%3A%2F%2Fa.example%2F"), Ok(("https://a.example/".into(), false)));
    assert_eq!(
        asked("format=full&audience=https://a.example/?b=c"),
        Ok(("https://a.example/?b=c".into(), true))
    );
    assert_eq!(asked("audience=a&format=standard&licenses=FALSE"), Ok(("a".into(), false)));
    let direct = refused(&direct(), "instance/service-accounts/default/identity?audience=a");
    assert_eq!(direct, Some(NO_ACCOUNT_FOR_ID_TOKEN));
}

#[test]
fn a_watcher_waits_only_while_it_has_the_content() {
    let tree = impersonating();
    let path = "instance/attributes/?recursive=true";
    let (etag, waits) = tag(&tree, path);
    assert!(!waits && etag.len() == 16, "{etag}");
    for (query, waits) in [
        ("wait_for_change=true".to_owned(), true),
        (format!("wait_for_change=true&last_etag={etag}&timeout_sec=5"), true),
        (format!("last_etag={etag}"), false),
        ("wait_for_change=true&last_etag=NONE".to_owned(), false),
        ("wait_for_change=true&last_etag=".to_owned(), false),
        ("wait_for_change=true&last_etag=0000000000000000".to_owned(), false),
    ] {
        assert_eq!(tag(&tree, &format!("{path}&{query}")), (etag.clone(), waits), "{query}");
    }
}

#[test]
fn tags_follow_the_content_of_what_is_asked_for() {
    let (before, same) = (impersonating(), impersonating());
    let other = NodeMetadata { cluster_name: Some("bakery".into()), ..node() };
    let after = MetadataTree::for_workload(&other, None);
    let changes = |path: &str| tag(&before, path).0 != tag(&after, path).0;
    for path in ["?recursive=true", "instance/", "instance/attributes/", "instance/attributes/cluster-name"] {
        assert!(changes(path), "{path}");
        assert_eq!(tag(&before, path), tag(&same, path), "{path}");
    }
    for path in ["project/", "instance/zone", "instance/attributes/cluster-uid"] {
        assert!(!changes(path), "{path}");
    }
    assert_eq!(tag(&before, "instance/zone").0, tag(&before, "instance/zone?alt=json").0);
}

#[test]
fn attributes_of_the_configuration_are_listed_beside_the_clusters() {
    let attributes = [("team".into(), "shop & co".into()), ("a_b.c".into(), String::new())].into();
    let tree = MetadataTree::for_workload(&NodeMetadata { attributes, ..node() }, None);
    for (path, expected) in [
        ("", "a_b.c\ncluster-location\ncluster-name\ncluster-uid\nteam\n"),
        ("team", "shop & co"),
        ("a_b.c", ""),
    ] {
        assert_eq!(body(&v1(&tree, &format!("instance/attributes/{path}"))), expected, "{path}");
    }
}

#[test]
fn a_token_watcher_is_left_to_whoever_knows_the_lease() {
    let raw =
        get(&format!("{V1}/instance/service-accounts/default/token?wait_for_change=true&last_etag=abc"));
    let hold =
        ask(&impersonating(), &raw, |query| query.long_poll.map(|hold| hold.last_etag.map(Cow::into_owned)));
    assert_eq!(hold, Ok(Some(Some("abc".into()))));
}

#[test]
fn warm_requests_borrow_everything() {
    let tree = impersonating();
    let is_borrowed = |path: &str| {
        ask(&tree, &get(&format!("{V1}/{path}")), |query| match query.resource {
            TreeResource::Credential(CredentialQuery::AccessToken { scopes, .. }) => {
                matches!(scopes, Scopes::Default(_))
            }
            TreeResource::WithoutCredential(TreeResponse::Text(known)) => {
                matches!(known.body, Cow::Borrowed(_))
            }
            other => panic!("{other:?}"),
        })
    };
    for path in [
        "instance/service-accounts/default/token",
        "project/project-id",
        "instance/id",
        "instance/service-accounts/default/scopes",
    ] {
        assert_eq!(is_borrowed(path), Ok(true), "{path}");
    }
}

#[test]
fn a_reused_buffer_does_not_grow() {
    let tree = impersonating();
    let mut out = Vec::with_capacity(1024);
    crate::support::with_head(&get(&format!("{V1}/instance/service-accounts/default/token")), |head| {
        let frame = ResponseContext::for_request(head, DATE);
        for _ in 0..3 {
            out.clear();
            crate::support::answer(&mut out, &frame, &tree.parse_request(head).unwrap());
        }
    });
    assert_eq!(out.capacity(), 1024);
}

#[test]
fn an_upstream_answer_keeps_what_clients_read_and_loses_the_rest() {
    let headers: [(&str, &[u8]); 9] = [
        ("content-type", b"application/json"),
        ("content-encoding", b"gzip"),
        ("etag", b"0123456789abcdef"),
        ("metadata-flavor", b"Google"),
        ("server", b"Metadata Server for VM"),
        ("content-length", b"999"),
        ("transfer-encoding", b"chunked"),
        ("location", b"/a\r\nX: y"),
        ("set-cookie", b"a=b"),
    ];
    let mut out = Vec::new();
    MetadataServerKind::Vm.write_forwarded(
        &mut out,
        &ResponseContext::for_invalid_request(DATE),
        200,
        headers,
        b"{}",
    );
    insta::assert_snapshot!(String::from_utf8(out).unwrap().replace("\r\n", "\n"));
}
