//! The metadata service of EC2: sessions, roles, facts, what passes, and in which order it is refused.

use std::borrow::Cow;

use seawall_http::path::{BAD_PATH, canonicalise_target_with};
use seawall_http::{
    HeadLimits, HttpVersion, Refusal, RequestError, ResponseContext, parse_request, request::header_buffer,
};
use seawall_protocols::aws::imds::{
    BAD_TTL, METHOD_NOT_ALLOWED, NO_ROLE, NO_TOKEN, TOKEN_METHOD_NOT_ALLOWED, TOKEN_ONLY_AT_LATEST,
    WRONG_ROLE, is_imds_path, method_keeps_alive, respond,
};
use seawall_protocols::aws::session_token::{
    BAD_TOKEN, EXPIRED_TOKEN, TOKEN_POD_MISMATCH, UNKNOWN_POD_MAX_TTL,
};
use seawall_protocols::aws::{
    DocumentFormat, ImdsRequest, ImdsResource, NOT_FOUND, REPEATED_HEADER, REQUEST_PATH_CHARSET,
    RequestedRole, RoleName, TokenClient, UnixTime,
};
use seawall_protocols::request_head_rules::{PROXIED_REQUEST, UNEXPECTED_BODY};

use crate::support::aws::{NOW, POD_ADDRESS, Scene, credentials, pod, put, request};
use crate::support::{DATE, body, header, status};

const TTL: &str = "X-aws-ec2-metadata-token-ttl-seconds";
const OWN: &str = "/latest/meta-data/iam/security-credentials/cart";
const LISTING: &str = "/latest/meta-data/iam/security-credentials/";

fn get(target: &str) -> String {
    request(&format!("GET {target}"), &[])
}

fn with_token(target: &str, token: &str) -> String {
    request(&format!("GET {target}"), &[&format!("X-aws-ec2-metadata-token: {token}")])
}

/// Why a request is refused.
fn refusal(scene: &Scene, raw: &str) -> Option<Refusal> {
    scene.ask(raw, |_| ()).err()
}

/// What a request reads, as text; a look at its kind.
fn what(scene: &Scene, raw: &str) -> Result<String, Refusal> {
    scene.ask(raw, |asked| match asked {
        ImdsRequest::Token(_) => "a token".to_owned(),
        ImdsRequest::Read(query) => format!("{:?}", query.resource),
    })
}

#[test]
fn responses_are_these_byte_for_byte() {
    let scene = Scene::new();
    let token = scene.token(21_600);
    let requests = [
        put(21_600),
        with_token(LISTING, &token),
        with_token(OWN, &token),
        get("/latest/meta-data/iam/security-credentials-extended/cart"),
        get("/latest/meta-data/iam/info"),
        get("/latest/meta-data/placement/region"),
        get("/latest/dynamic/instance-identity/document"),
        get("/latest/meta-data/"),
        request("HEAD /latest/meta-data/iam/security-credentials/cart", &[]),
        with_token(LISTING, "forged"),
        get("/latest/user-data"),
        request("POST /latest/api/token", &[]),
        get("/latest/api/token"),
    ];
    let responses: Vec<_> = requests.iter().map(|raw| scene.exchange(raw).replace("\r\n", "\n")).collect();
    insta::assert_snapshot!(responses.join("\n----\n"));
}

#[test]
fn a_token_is_given_to_everybody_at_once_and_the_connection_goes_on() {
    for visitor in [pod("cart"), TokenClient::with_unknown_pod(POD_ADDRESS)] {
        let scene = Scene { visitor, role: None, ..Scene::strict() };
        let response = scene.exchange(&put(300));
        assert_eq!((status(&response), header(&response, TTL)), ("200", Some("300")));
        assert_eq!(header(&response, "Connection"), None);
        let token = body(&response);
        assert!(token.len() == 76 && !token.contains(|c: char| c.is_whitespace()), "{token:?}");
        assert_eq!(refusal(&scene, &with_token(LISTING, token)), None);
    }
    assert!(["PUT", "GET", "HEAD"].into_iter().all(method_keeps_alive) && !method_keeps_alive("POST"));
}

/// Java, C++, CRT, Rust and object_store announce no length at all; JavaScript and Go announce none of zero.
#[test]
fn a_put_without_a_length_has_an_empty_body() {
    let ttl = format!("{TTL}: 21600");
    for headers in [&[&*ttl][..], &[&ttl, "Content-Length: 0"], &["x-aws-ec2-metadata-token-ttl-seconds:60"]]
    {
        assert_eq!(status(&Scene::new().exchange(&request("PUT /latest/api/token", headers))), "200");
    }
    let refused = request("PUT /latest/api/token", &[&ttl, "Content-Length: 1"]);
    assert_eq!(refusal(&Scene::new(), &refused), Some(UNEXPECTED_BODY));
}

#[test]
fn a_token_is_asked_for_in_one_way() {
    let put = |line: &str, headers: &[&str]| refusal(&Scene::new(), &request(line, headers));
    let token = "PUT /latest/api/token";
    for value in [
        "",
        "0",
        "21601",
        "-1",
        "+60",
        "60s",
        "1e3",
        "0x10",
        "6 0",
        "99999",
        "100000",
        "4294967297",
        "\u{666}0",
    ] {
        assert_eq!(put(token, &[&format!("{TTL}: {value}")]), Some(BAD_TTL), "{value:?}");
    }
    for value in ["1", "21600", "00060", "  60  "] {
        assert_eq!(put(token, &[&format!("{TTL}: {value}")]), None, "{value:?}");
    }
    assert_eq!(put(token, &[]), Some(BAD_TTL));
    let ttl = "X-aws-ec2-metadata-token-ttl-seconds: 60";
    assert_eq!(put(token, &[ttl, ttl]), Some(REPEATED_HEADER));
    assert_eq!(put(token, &[ttl, "X-Forwarded-For: 10.0.0.1"]), Some(PROXIED_REQUEST));
    assert_eq!(put(token, &["X-Forwarded-For: 10.0.0.1"]), Some(PROXIED_REQUEST));
    for (line, refused) in [
        ("PUT /2021-01-03/api/token", TOKEN_ONLY_AT_LATEST),
        ("PUT /1.0/api/token", TOKEN_ONLY_AT_LATEST),
        ("PUT /latest/meta-data/instance-id", METHOD_NOT_ALLOWED),
        ("PUT /latest/api/token/x", METHOD_NOT_ALLOWED),
        ("PUT /", METHOD_NOT_ALLOWED),
        ("GET /latest/api/token", TOKEN_METHOD_NOT_ALLOWED),
        ("HEAD /2021-01-03/api/token", TOKEN_METHOD_NOT_ALLOWED),
        ("POST /latest/api/token", METHOD_NOT_ALLOWED),
        ("put /latest/api/token", METHOD_NOT_ALLOWED),
        ("DELETE /latest/meta-data/instance-id", METHOD_NOT_ALLOWED),
        ("OPTIONS /", METHOD_NOT_ALLOWED),
    ] {
        assert_eq!(put(line, &[ttl]), Some(refused), "{line}");
    }
}

/// Whom is refused what, with tokens required and not.
#[test]
fn a_token_that_is_shown_is_checked_and_one_that_is_required_is_missed() {
    let scene = Scene::new();
    let good = scene.token(60);
    let foreign = Scene { visitor: pod("shop"), ..Scene::new() }.token(60);
    let early = Scene { visitor: TokenClient::with_unknown_pod(POD_ADDRESS), ..Scene::new() }.token(60);
    let mut forged = good.clone();
    forged.replace_range(40..41, if &good[40..41] == "A" { "B" } else { "A" });
    let later = UnixTime(NOW.0 + 61);
    for (token, now, refused) in [
        (&*good, NOW, None),
        (&early, NOW, None),
        (&good, later, Some(EXPIRED_TOKEN)),
        (&foreign, NOW, Some(TOKEN_POD_MISMATCH)),
        (&forged, NOW, Some(BAD_TOKEN)),
        (&good[..75], NOW, Some(BAD_TOKEN)),
        (&good[1..], NOW, Some(BAD_TOKEN)),
        (&good.repeat(2), NOW, Some(BAD_TOKEN)),
        ("", NOW, Some(BAD_TOKEN)),
        (&"A".repeat(8000), NOW, Some(BAD_TOKEN)),
    ] {
        for scene in [Scene { now, ..Scene::new() }, Scene { now, ..Scene::strict() }] {
            for target in [LISTING, OWN, "/latest/meta-data/"] {
                assert_eq!(refusal(&scene, &with_token(target, token)), refused, "{token} {target}");
            }
        }
    }
    for target in [LISTING, "/", "/latest/meta-data/instance-id", "/latest/nowhere"] {
        assert_eq!(refusal(&Scene::strict(), &get(target)), Some(NO_TOKEN), "{target}");
    }
    let twice = format!("X-aws-ec2-metadata-token: {good}");
    let twice = request(&format!("GET {LISTING}"), &[&twice, &twice]);
    assert_eq!(refusal(&scene, &twice), Some(REPEATED_HEADER));
}

/// A warm answer: nothing of the request is copied, and the buffer of the answer before is large enough.
#[test]
fn what_clients_send_is_read_and_answered_without_a_copy() {
    let scene = Scene::new();
    let token = scene.token(21_600);
    for raw in [get(OWN), with_token(OWN, &token)] {
        let is_borrowed = scene.ask(&raw, |asked| match asked {
            ImdsRequest::Read(query) => {
                matches!(
                    query.resource,
                    ImdsResource::RoleCredentials { role: RequestedRole::Name(Cow::Borrowed("cart")), .. }
                )
            }
            ImdsRequest::Token(_) => false,
        });
        assert_eq!(is_borrowed, Ok(true));
    }
    let frame =
        ResponseContext { date: DATE, version: HttpVersion::Http11, keep_alive: true, head_only: false };
    let mut first = Vec::new();
    respond::write_credentials(&mut first, &frame, &credentials(), DocumentFormat::WithoutAccount);
    let mut second = Vec::with_capacity(first.len());
    let place = second.as_ptr();
    respond::write_credentials(&mut second, &frame, &credentials(), DocumentFormat::WithoutAccount);
    assert!(second == first && second.as_ptr() == place);
}

/// What the agent counts for who wants to require tokens, and what it must not take for good any longer.
#[test]
fn a_query_tells_whether_a_token_was_shown_and_until_when() {
    let scene = Scene::new();
    let session = |raw: &str| {
        let asked = scene.ask(raw, |asked| match asked {
            ImdsRequest::Token(_) => None,
            ImdsRequest::Read(query) => Some(query.token_expires_at),
        });
        asked.ok().flatten()
    };
    assert_eq!(session(&get(LISTING)), Some(None));
    assert_eq!(session(&with_token(LISTING, &scene.token(60))), Some(Some(UnixTime(NOW.0 + 61))));
}

#[test]
fn a_token_of_a_pod_that_is_not_known_is_short() {
    let scene = Scene { visitor: TokenClient::with_unknown_pod(POD_ADDRESS), ..Scene::new() };
    let response = scene.exchange(&put(21_600));
    assert_eq!(header(&response, TTL), Some(&*UNKNOWN_POD_MAX_TTL.as_secs().to_string()));
}

#[test]
fn the_header_with_a_tokens_life_is_on_tokens_alone() {
    let scene = Scene { role: None, ..Scene::passing(&["/latest/user-data"]) };
    let bare = Scene::strict();
    for (scene, raw) in [
        (&scene, request("PUT /latest/api/token", &[])),
        (&scene, request("PUT /latest/api/token", &[&format!("{TTL}: 60"), "X-Forwarded-For: a"])),
        (&scene, get(LISTING)),
        (&scene, get("/latest/user-data")),
        (&scene, get("/latest/meta-data/")),
        (&bare, get(LISTING)),
        (&bare, with_token(LISTING, "forged")),
        (&bare, with_token(LISTING, &bare.token(60))),
    ] {
        let response = scene.exchange(&raw);
        assert!(!response.to_ascii_lowercase().contains("ttl-seconds: "), "{response}");
        assert_eq!(header(&response, "Retry-After"), None, "{response}");
    }
}

/// The SDK for C++ leaves the slash away; nobody follows a redirect but it.
#[test]
fn roles_are_listed_with_and_without_a_slash_and_without_an_end_of_line() {
    let scene = Scene::new();
    for directory in ["security-credentials", "security-credentials-extended"] {
        for (version, end) in [("latest", ""), ("latest", "/"), ("2021-01-03", "/"), ("1.0", "")] {
            let response = scene.exchange(&get(&format!("/{version}/meta-data/iam/{directory}{end}")));
            assert_eq!((status(&response), body(&response)), ("200", "cart"));
            assert_eq!(header(&response, "Content-Type"), Some("text/plain"));
        }
    }
    let none = Scene { role: None, ..Scene::new() };
    for end in ["", "/", "/cart"] {
        let response = none.exchange(&get(&format!("/latest/meta-data/iam/security-credentials{end}")));
        assert_eq!(status(&response), NO_ROLE.status.to_string());
    }
}

#[test]
fn the_document_of_a_role_is_the_pods_own_or_refused() {
    let scene = Scene::new();
    let document = |target: &str| scene.exchange(&get(target));
    for (target, extended) in [
        ("/latest/meta-data/iam/security-credentials/cart", false),
        ("/latest/meta-data/iam/security-credentials/cart/", false),
        ("//latest/./meta-data//iam/security-credentials/%63art", false),
        ("/2021-01-03/meta-data/iam/security-credentials-extended/cart", true),
    ] {
        let response = document(target);
        assert_eq!(status(&response), "200", "{target}");
        assert!(body(&response).contains("\"Expiration\" : \"2026-01-01T01:00:00Z\""), "{response}");
        assert!(body(&response).contains("\"Code\" : \"Success\""), "{response}");
        assert_eq!(body(&response).contains("AccountId"), extended, "{response}");
        assert_eq!(header(&response, "Cache-Control"), Some("no-store"));
    }
    for other in ["shop", "Cart", "cart2", "car"] {
        let response = document(&format!("/latest/meta-data/iam/security-credentials/{other}"));
        assert_eq!(status(&response), WRONG_ROLE.status.to_string(), "{other}");
        assert!(!response.contains("ASIA"), "{response}");
    }
    for no_role in ["a:b", "~", "cart/x", "cart//x", &"r".repeat(65)] {
        let target = format!("/latest/meta-data/iam/security-credentials/{no_role}");
        assert_eq!(refusal(&scene, &get(&target)), Some(NOT_FOUND), "{no_role}");
    }
}

/// The SDK for C++ writes `+ = , @` with percent signs, all others as they are.
#[test]
fn a_role_is_found_in_every_spelling_of_its_name() {
    let role = "a+b=c,d.e@f_g-h";
    let scene = Scene { role: RoleName::new(role), ..Scene::new() };
    for spelling in [role, "a%2Bb%3Dc%2Cd.e%40f_g-h", "%61%2bb%3dc%2cd%2ee%40f%5fg%2dh"] {
        for directory in ["security-credentials", "security-credentials-extended"] {
            let target = format!("/latest/meta-data/iam/{directory}/{spelling}");
            assert_eq!(status(&scene.exchange(&get(&target))), "200", "{target}");
        }
    }
    let asked = scene.ask(&get("/latest/meta-data/iam/security-credentials/x%2By"), |asked| match asked {
        ImdsRequest::Read(query) => {
            query.resource
                == ImdsResource::RoleCredentials {
                    role: RequestedRole::Name("x+y".into()),
                    shape: DocumentFormat::WithoutAccount,
                }
        }
        ImdsRequest::Token(_) => false,
    });
    assert_eq!(asked, Ok(true));
}

/// Clients that were configured for KIAM ask at the ARN that the pod's annotation holds.
#[test]
fn a_role_is_found_at_its_arn_and_no_other_is() {
    let scene = Scene::new();
    let at = |spelling: &str| scene.exchange(&get(&format!("{LISTING}{spelling}")));
    for own in [
        "arn:aws:iam::123456789012:role/pods/cart",
        "arn:aws:iam::123456789012:role/pods/cart/",
        "arn%3Aaws%3Aiam%3A%3A123456789012%3Arole/pods/cart",
        "arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Fpods%2Fcart",
        "arn:aws:iam::123456789012:role%2fpods/%63art",
        "arn:aws:iam::123456789012:role//pods/./cart",
    ] {
        let response = at(own);
        assert_eq!(status(&response), "200", "{own}: {response}");
        let extended = format!("/1.0/meta-data/iam/security-credentials-extended/{own}");
        assert!(scene.exchange(&get(&extended)).contains("AccountId"), "{own}");
        let none = Scene { role: None, ..Scene::new() };
        let response = none.exchange(&get(&format!("{LISTING}{own}")));
        assert_eq!(status(&response), NO_ROLE.status.to_string(), "{own}");
        let strict = Scene::strict();
        assert_eq!(refusal(&strict, &get(&format!("{LISTING}{own}"))), Some(NO_TOKEN), "{own}");
    }
    for other in [
        "arn:aws:iam::123456789012:role/cart",
        "arn:aws:iam::123456789012:role/pods/shop",
        "arn:aws:iam::210987654321:role/pods/cart",
        "arn:aws-cn:iam::123456789012:role%2Fpods%2Fcart",
        "arn:aws:iam::123456789012:role/pods/cart/../shop",
        "arn:aws:iam::123456789012:role%2fpods%2fcart%2f..%2fshop",
    ] {
        let response = at(other);
        assert_eq!(status(&response), WRONG_ROLE.status.to_string(), "{other}");
        assert!(!response.contains("ASIA"), "{response}");
    }
    for (no_role, refused) in [
        ("arn:aws:iam::123456789012:role", NOT_FOUND),
        ("arn:aws:iam::123456789012:user/pods/cart", NOT_FOUND),
        ("arn:aws:sts::123456789012:assumed-role/cart/x", NOT_FOUND),
        ("arn:aws:iam::123456789012:role/pods:x/cart", NOT_FOUND),
        ("x/arn:aws:iam::123456789012:role/pods/cart", NOT_FOUND),
        ("arn:aws:iam::123456789012:user%2Fpods%2Fcart", BAD_PATH),
        ("arn:aws:iam::123456789012:role%252Fpods/cart", BAD_PATH),
        ("arn:aws:iam::123456789012:role%5cpods/cart", BAD_PATH),
        ("arn:aws:iam::123456789012:role%2F..%2Fcart", BAD_PATH),
        ("arn:aws:iam::123456789012:role%2F..%2F..%2F..%2F..%2Fuser-data", BAD_PATH),
        ("%2F", BAD_PATH),
    ] {
        let scene = Scene::passing(&["(?s).*"]);
        assert_eq!(refusal(&scene, &get(&format!("{LISTING}{no_role}"))), Some(refused), "{no_role}");
    }
    // An encoded slash opens no other path, and no token.
    let put = request("PUT /latest%2Fapi/token", &["X-aws-ec2-metadata-token-ttl-seconds: 60"]);
    assert_eq!(refusal(&scene, &put), Some(BAD_PATH));
    for target in
        ["/latest%2fuser-data", "/latest/meta-data%2Fplacement/region", "/latest/meta-data/iam%2finfo"]
    {
        assert_eq!(refusal(&Scene::passing(&["(?s).*"]), &get(target)), Some(BAD_PATH), "{target}");
    }
}

#[test]
fn no_encoding_of_a_path_is_another_path() {
    // Everything is let pass that an expression can name.
    let scene = Scene::passing(&["(?s).*"]);
    let roles = "/latest/meta-data/iam/security-credentials";
    for (target, refused) in [
        ("..%2f..%2fuser-data", BAD_PATH),
        ("..%2F..%2Fuser-data", BAD_PATH),
        ("%2e%2e%2f%2e%2e%2fuser-data", BAD_PATH),
        ("cart%2f..%2fshop", BAD_PATH),
        ("cart%252fshop", BAD_PATH),
        ("cart%00", BAD_PATH),
        ("cart;x", BAD_PATH),
        ("cart%3bx", BAD_PATH),
        ("cart%0a", BAD_PATH),
        ("cart%20", BAD_PATH),
        ("cart%5c..%5cshop", BAD_PATH),
        ("../identity-credentials/ec2/security-credentials/ec2-instance", NOT_FOUND),
        ("../%49dentity-Credentials/ec2/", NOT_FOUND),
        ("../security-credentials-other/", NOT_FOUND),
        ("../../../../foo/meta-data/iam/Security-Credentials/", NOT_FOUND),
        ("../Security-Credentials/cart", NOT_FOUND),
    ] {
        assert_eq!(refusal(&scene, &get(&format!("{roles}/{target}"))), Some(refused), "{target}");
    }
    // A dot that is encoded is a dot: what it leads to is what is judged.
    let traversals = ["/%2e%2e/../../user-data", "/x/%2E%2e/../../../user-data"];
    for target in traversals.map(|end| format!("{roles}{end}")) {
        assert_eq!(refusal(&Scene::new(), &get(&target)), Some(NOT_FOUND), "{target}");
        assert_eq!(refusal(&scene, &get(&target)), Some(NOT_FOUND), "{target}");
        let named = Scene::passing(&["(?s).*user-data"]);
        assert_eq!(what(&named, &get(&target)), Ok("Passthrough(\"/latest/user-data\")".into()), "{target}");
    }
    let back = get("/latest/user-data/../meta-data/iam/security-credentials/cart");
    let cart = "RoleCredentials { role: Name(\"cart\"), shape: WithoutAccount }";
    assert_eq!(what(&scene, &back), Ok(cart.into()));
}

/// `.*` used to let them through, and it is what careless flags of KIAM's come to.
#[test]
fn what_is_as_good_as_a_credential_passes_only_where_an_expression_names_it() {
    let user_data = [
        "/latest/user-data",
        "/latest/user-data/",
        "/2021-01-03/user-data",
        "/latest/User-Data",
        "/x/user-data/y",
    ];
    let keys = ["/latest/managed-ssh-keys/signer-cert", "/latest/meta-data/managed-ssh-keys/active-keys/x"];
    let signed = ["pkcs7", "signature", "rsa2048", "RSA2048"]
        .map(|name| format!("/latest/dynamic/instance-identity/{name}"));
    let signed: Vec<&str> = signed.iter().map(String::as_str).collect();
    let all = [&user_data[..], &keys, &signed].concat();
    for broad in
        [".*", "(?s).*", "/latest/.*", "(?i).*USER-DATA.*", ".*(user|vendor)-data.*", ".*(?:).*", ".*ssh.*"]
    {
        let scene = Scene::passing(&[broad, "/latest/meta-data/user-data-not"]);
        for target in &all {
            assert_eq!(refusal(&scene, &get(target)), Some(NOT_FOUND), "{target} by {broad}");
        }
    }
    for (named, passed, other) in [
        ("(?i).*user-data.*", &user_data[..], keys[0]),
        (".*/managed-ssh-keys/.*", &keys, user_data[0]),
        (".*/instance-identity/pkcs7", &signed[..1], signed[1]),
    ] {
        let scene = Scene::passing(&[".*", named]);
        for target in passed {
            assert_eq!(what(&scene, &get(target)), Ok(format!("Passthrough({target:?})")), "{named}");
        }
        assert_eq!(refusal(&scene, &get(other)), Some(NOT_FOUND), "{other} by {named}");
    }
}

#[test]
fn nothing_of_the_real_service_passes_but_what_an_expression_names_whole() {
    let scene = Scene::passing(&["/latest/meta-data/local-ipv4", "/latest/meta-data/network/.*"]);
    let pass = |path: &str| Ok(format!("Passthrough({path:?})"));
    assert_eq!(what(&scene, &get("/latest/meta-data/local-ipv4")), pass("/latest/meta-data/local-ipv4"));
    let mac = "/latest/meta-data/network/interfaces/macs/0e:49:61:0f:c3:11/vpc-id";
    assert_eq!(what(&scene, &get(&format!("{mac}?a=b"))), pass(mac), "without its query");
    for target in [
        "/latest/meta-data/local-ipv4/x",
        "/x/latest/meta-data/local-ipv4",
        "/2021-01-03/meta-data/local-ipv4",
        "/latest/user-data",
        "/latest/user-data?/latest/meta-data/network/x",
        "/latest/meta-data/network/../../user-data",
        "/latest/meta-data/network/security-credentials",
        "/nowhere",
    ] {
        assert_eq!(refusal(&scene, &get(target)), Some(NOT_FOUND), "{target}");
        assert_eq!(refusal(&Scene::new(), &get(target)), Some(NOT_FOUND), "{target}");
    }
    let known = get("/latest/meta-data/placement/region");
    let what = what(&Scene::passing(&[".*"]), &known);
    assert_eq!(
        what,
        Ok("Text(MetadataText { body: \"eu-central-1\" })".into()),
        "ours goes before the real one's"
    );
}

#[test]
fn facts_are_read_in_every_version_with_and_without_a_slash() {
    let scene = Scene::new();
    for (target, text) in [
        ("/", "latest"),
        ("/latest", "dynamic/\nmeta-data/"),
        ("/latest/", "dynamic/\nmeta-data/"),
        ("/2021-01-03/", "dynamic/\nmeta-data/"),
        ("/latest/meta-data", "iam/\ninstance-id\nplacement/"),
        ("/latest/meta-data/iam/", "info\nsecurity-credentials/"),
        ("/latest/meta-data/placement/availability-zone/", "eu-central-1a"),
        ("/latest/meta-data/placement/availability-zone", "eu-central-1a"),
        ("/1.0/meta-data/placement/region", "eu-central-1"),
        ("/latest/meta-data/instance-id?x=y", "i-0123456789abcdef0"),
    ] {
        let response = scene.exchange(&get(target));
        assert_eq!((status(&response), body(&response)), ("200", text), "{target}");
    }
    for absent in
        ["/latest/meta-data/ami-id", "/latest/x", "/2021-1-3/meta-data/", "/late/", "/v1/credentials"]
    {
        assert_eq!(refusal(&scene, &get(absent)), Some(NOT_FOUND), "{absent}");
    }
}

#[test]
fn a_version_and_what_is_below_it_is_claimed_and_nothing_else() {
    for (path, is_claimed) in [
        ("/latest", true),
        ("/latest/", true),
        ("/latest/meta-data/", true),
        ("/2021-01-03/meta-data/", true),
        ("/1.0/", true),
        ("/", false),
        ("", false),
        ("latest/", false),
        ("/latestx/", false),
        ("/computeMetadata/v1/", false),
        ("/0.1/meta-data/", false),
        ("/v1/credentials", false),
    ] {
        assert_eq!(is_imds_path(path), is_claimed, "{path}");
    }
    let target =
        canonicalise_target_with("/latest/meta-data/iam/security-credentials/a+b", &REQUEST_PATH_CHARSET)
            .unwrap();
    assert!(is_imds_path(target.path.as_str()));
}

/// The order in which two faults of one request are told.
#[test]
fn what_concerns_the_request_is_refused_before_its_session_and_that_before_its_path() {
    let scene = Scene::strict();
    for (line, headers, refused) in [
        ("POST /latest/x%", &["X-Forwarded-For: a", "Content-Length: 1"][..], METHOD_NOT_ALLOWED),
        ("GET /latest/x%", &["X-Forwarded-For: a", "Content-Length: 1"], UNEXPECTED_BODY),
        ("GET /latest/x%", &["Forwarded: for=a"], PROXIED_REQUEST),
        ("GET /latest/x%", &[], BAD_PATH),
        ("GET /latest/nowhere", &[], NO_TOKEN),
        ("GET /latest/nowhere", &["X-aws-ec2-metadata-token: x"], BAD_TOKEN),
    ] {
        assert_eq!(refusal(&scene, &request(line, headers)), Some(refused), "{line} {headers:?}");
    }
}

#[test]
fn a_header_of_64_kib_is_no_request() {
    let raw = with_token(LISTING, &"A".repeat(64 * 1024));
    let mut room = header_buffer();
    let parsed = parse_request(raw.as_bytes(), &mut room, &HeadLimits::default());
    assert_eq!(parsed.map(drop), Err(RequestError::TooLarge));
}

#[test]
fn a_refusal_says_why_in_a_form_that_sdks_show() {
    let refused = Refusal::new(503, "not_yet", "A \"word\".");
    let mut out = Vec::new();
    respond::write_refusal(&mut out, &ResponseContext::for_invalid_request(DATE), &refused);
    let response = String::from_utf8(out).unwrap();
    assert_eq!(header(&response, "Content-Type"), Some("application/json"));
    assert_eq!(header(&response, "Retry-After"), None);
    assert_eq!(body(&response), r#"{"code":"not_yet","message":"seawall: A \"word\".","is_retryable":true}"#);
}
