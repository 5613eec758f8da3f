//! The credentials endpoint of containers: its one path, its Host rule, the form of its token.

use seawall_http::Refusal;
use seawall_http::path::{BAD_PATH, BAD_TARGET};
use seawall_protocols::aws::containers::{
    ADDRESSES, BAD_AUTHORIZATION, INVALID_HOST, MAX_TOKEN_BYTES, METHOD_NOT_ALLOWED, NO_AUTHORIZATION,
    is_endpoint_path,
};
use seawall_protocols::aws::{ContainerCredentialsEndpoint, NOT_FOUND, REPEATED_HEADER};
use seawall_protocols::request_head_rules::{PROXIED_REQUEST, UNEXPECTED_BODY};

use crate::support::aws::container;
use crate::support::{body, header, status, with_head};

const TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln_-";

/// A request to EKS's address.
fn request(line: &str, headers: &[&str]) -> String {
    let mut raw = format!("{line} HTTP/1.1\r\nHost: 169.254.170.23\r\n");
    headers.iter().for_each(|header| raw.extend([header, "\r\n"]));
    raw + "\r\n"
}

fn authorized(line: &str) -> String {
    request(line, &[&format!("Authorization: {TOKEN}")])
}

fn refusal(raw: &str) -> Option<Refusal> {
    with_head(raw, |head| ContainerCredentialsEndpoint::new(ADDRESSES).parse_request(head).err())
}

#[test]
fn responses_are_these_byte_for_byte() {
    let requests = [
        authorized("GET /v1/credentials"),
        authorized("HEAD /v1/credentials"),
        request("GET /v1/credentials", &[]),
        authorized("POST /v1/credentials"),
    ];
    let responses: Vec<_> = requests.iter().map(|raw| container(raw).replace("\r\n", "\n")).collect();
    insta::assert_snapshot!(responses.join("\n----\n"));
}

#[test]
fn a_query_holds_the_token_as_it_was_sent() {
    for line in
        ["GET /v1/credentials", "GET /v1/credentials/", "GET //v1/./credentials?a=b", "HEAD /v1/credentials"]
    {
        let raw = authorized(line);
        let token = with_head(&raw, |head| {
            let query = ContainerCredentialsEndpoint::new(ADDRESSES).parse_request(head);
            query.map(|query| query.token.to_owned())
        });
        assert_eq!(token.as_deref(), Ok(TOKEN), "{line}");
    }
}

#[test]
fn whatever_is_not_that_question_is_refused() {
    let token = format!("Authorization: {TOKEN}");
    for (line, headers, refused) in [
        ("POST /v1/credentials", &[&*token][..], METHOD_NOT_ALLOWED),
        ("PUT /latest/api/token", &[&token], METHOD_NOT_ALLOWED),
        ("GET /v1/credentials", &[&token, "Content-Length: 2"], UNEXPECTED_BODY),
        ("GET /v1/credentials", &[&token, "X-Forwarded-For: 10.0.0.1"], PROXIED_REQUEST),
        ("GET /v1/credentials", &[&token, "forwarded: for=a"], PROXIED_REQUEST),
        ("GET http://169.254.170.23/v1/credentials", &[&token], BAD_TARGET),
        ("GET /v1/credentials%2f", &[&token], BAD_PATH),
        ("GET /v1/credentials;a", &[&token], BAD_PATH),
        ("GET /", &[&token], NOT_FOUND),
        ("GET /v2/credentials/3", &[&token], NOT_FOUND),
        ("GET /v1/credentials/x", &[&token], NOT_FOUND),
        ("GET /v1/credentials/../../latest/meta-data/", &[&token], NOT_FOUND),
        ("GET /latest/meta-data/iam/security-credentials/", &[&token], NOT_FOUND),
        ("GET /v1/credentials", &[], NO_AUTHORIZATION),
        ("GET /v1/credentials", &[&token, &token], REPEATED_HEADER),
    ] {
        assert_eq!(refusal(&request(line, headers)), Some(refused), "{line} {headers:?}");
    }
}

#[test]
fn the_host_is_one_of_the_endpoints_addresses_at_any_port() {
    for (host, is_ours) in [
        ("169.254.170.23", true),
        ("169.254.170.23:80", true),
        ("169.254.170.2", true),
        ("[fd00:ec2::23]", true),
        ("[fd00:ec2::23]:80", true),
        ("[fd00:0ec2:0:0::23]", true),
        ("169.254.169.254", false),
        ("169.254.170.23:http", false),
        ("169.254.170.23:808080", false),
        ("169.254.170.23.evil.example", false),
        ("169.254.170.023", false),
        ("fd00:ec2::23", false),
        ("[fd00:ec2::23", false),
        ("[fd00:ec2::23]evil", false),
        ("[169.254.170.23]", false),
        ("localhost", false),
        ("evil.example", false),
        ("", false),
    ] {
        let raw = format!("GET /v1/credentials HTTP/1.1\r\nHost: {host}\r\nAuthorization: {TOKEN}\r\n\r\n");
        assert_eq!(refusal(&raw), (!is_ours).then_some(INVALID_HOST), "{host:?}");
    }
    let none = format!("GET /v1/credentials HTTP/1.0\r\nAuthorization: {TOKEN}\r\n\r\n");
    assert_eq!(refusal(&none), Some(INVALID_HOST), "a client that names no host");
}

#[test]
fn a_token_has_the_form_of_a_jwt_and_a_bound() {
    let of_length = |length: usize| format!("a.b.{}", "c".repeat(length - 4));
    for (value, refused) in [
        (TOKEN, None),
        (&*format!("  {TOKEN}\t"), None),
        (&of_length(MAX_TOKEN_BYTES), None),
        (&of_length(MAX_TOKEN_BYTES + 1), Some(BAD_AUTHORIZATION)),
        ("", Some(NO_AUTHORIZATION)),
        ("   ", Some(NO_AUTHORIZATION)),
        (&format!("Bearer {TOKEN}"), Some(BAD_AUTHORIZATION)),
        ("a.b", Some(BAD_AUTHORIZATION)),
        ("a.b.c.d", Some(BAD_AUTHORIZATION)),
        ("a..c", Some(BAD_AUTHORIZATION)),
        (".b.c", Some(BAD_AUTHORIZATION)),
        ("a.b.", Some(BAD_AUTHORIZATION)),
        ("a.b.c=", Some(BAD_AUTHORIZATION)),
        ("a.b.c d", Some(BAD_AUTHORIZATION)),
        ("a.b.\u{e9}", Some(BAD_AUTHORIZATION)),
    ] {
        let raw = request("GET /v1/credentials", &[&format!("Authorization: {value}")]);
        assert_eq!(refusal(&raw), refused, "{value:?}");
    }
}

#[test]
fn a_refusal_has_the_code_and_the_message_that_sdks_show() {
    let response = container(&request("GET /v1/credentials", &[]));
    assert_eq!((status(&response), header(&response, "Content-Type")), ("401", Some("application/json")));
    assert!(body(&response).starts_with(r#"{"code":"no_authorization","message":"seawall: The request"#));
    assert_eq!((header(&response, "Retry-After"), header(&response, "WWW-Authenticate")), (None, None));
}

#[test]
fn one_path_is_claimed() {
    assert!(is_endpoint_path("/v1/credentials") && is_endpoint_path("/v1/credentials/"));
    assert!(
        !is_endpoint_path("/")
            && !is_endpoint_path("/v1")
            && !is_endpoint_path("/v1/credentials/x")
            && !is_endpoint_path("/latest/")
    );
}
