//! Properties that hold for every byte string that a pod can send to AWS's dialects, present as a token, or leave in a key file.
//! The fuzz target `aws`, the replay of its corpus and the property tests call this module.
//!
//! The keys and the time are fixed, so that a corpus can hold valid tokens.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;
use std::time::Duration;

use seawall_core::{PodUid, Secret};
use seawall_http::path::has_encoded_slash;
use seawall_http::{
    HeadLimits, Header, Parsed, Refusal, RequestHead, ResponseContext, parse_request, request,
};
use seawall_protocols::aws::imds::respond::{self, RoleInfo};
use seawall_protocols::aws::imds::{NO_ROLE, check_role};
use seawall_protocols::aws::{
    ContainerCredentialsEndpoint, CredentialsDocument, GrantedToken, Imds, ImdsQuery, ImdsRequest,
    ImdsResource, InstanceMetadata, Iso8601Time, OwnRole, Pattern, RequestedRole, RoleName, TokenClient,
    TokenRequirement, TokenRules, TokenSigningKeys, TokenSubject, TtlLimit, UnixTime, containers,
    session_token,
};

use super::{check_response, head, percent_decoded};

/// 2026-01-01T00:00:00Z.
pub const NOW: UnixTime = UnixTime(1_767_225_600);

/// The key that signs the tokens of the corpus.
pub const TOKEN_SIGNING_KEY: [u8; session_token::KEY_LENGTH] = [7; session_token::KEY_LENGTH];

/// The pod that they are of, and its role.
pub const POD_NAME: &str = "cart";

/// The pod's role.
const OWN: OwnRole<'_> = OwnRole { name: POD_NAME, arn: "arn:aws:iam::123456789012:role/pods/cart" };

/// Another pod, of which the corpus has a token.
pub const OTHER_POD_NAME: &str = "shop";

/// The pod's address.
pub const POD_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));

/// The properties that an input turned out to have. Tests count them, so that an unreached property is noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AwsRequestOutcome {
    /// The HTTP parser accepts it as a request.
    pub is_request: bool,
    /// It was given a session token.
    pub is_granted_token: bool,
    /// It presents a valid token.
    pub has_valid_token: bool,
    /// It was given the pod's credentials.
    pub is_granted_credentials: bool,
    /// It would be passed through to the real service if the operator's list allowed everything.
    pub would_be_passed_through: bool,
    /// The container endpoint took it.
    pub is_container_request: bool,
}

/// Checks an input as a whole request, as a bare target that no parser has looked at before, as a token, as keys and as an
/// expression.
pub fn check(input: &[u8]) -> AwsRequestOutcome {
    check_keys(input);
    let shown = [Header { name: "x-aws-ec2-metadata-token", value: input }];
    check_head(&head("/latest/meta-data/iam/security-credentials/", &shown));
    if let Ok(text) = std::str::from_utf8(input) {
        check_head(&head(text, &[]));
        let _ = Pattern::new(text).map(|pattern| pattern.matches(text));
    }
    let mut room = request::header_buffer();
    match parse_request(input, &mut room, &HeadLimits::default()) {
        Ok(Parsed::Complete(head, _)) => AwsRequestOutcome { is_request: true, ..check_head(&head) },
        _ => AwsRequestOutcome::default(),
    }
}

/// Keys that are read are those that were written.
fn check_keys(input: &[u8]) {
    if let Ok(keys) = TokenSigningKeys::from_bytes(input) {
        assert_eq!(keys.to_bytes().expose(), input);
    }
}

/// A service and by which rules it is asked.
struct Scene {
    imds: Imds,
    tokens: TokenRequirement,
    visitor: TokenClient,
    /// True if the requesting pod is not known.
    is_unsettled: bool,
    /// True if everything is passed through that an expression can name.
    passes: bool,
}

static KEYS: LazyLock<TokenSigningKeys> =
    LazyLock::new(|| TokenSigningKeys::with_first_key(Secret::new(TOKEN_SIGNING_KEY), NOW));

static SCENES: LazyLock<[Scene; 3]> = LazyLock::new(|| {
    let unsettled = scene(TokenRequirement::Optional, TokenClient::with_unknown_pod(POD_ADDRESS), &[]);
    [
        scene(TokenRequirement::Optional, pod(POD_NAME), &["(?s).*"]),
        scene(TokenRequirement::Required, pod(POD_NAME), &[]),
        Scene { is_unsettled: true, ..unsettled },
    ]
});

fn pod(uid: &str) -> TokenClient {
    TokenClient::with_known_pod(TokenSubject::from_pod_uid(&PodUid(uid.into())), POD_ADDRESS)
}

fn scene(tokens: TokenRequirement, visitor: TokenClient, passed: &[&str]) -> Scene {
    let node = InstanceMetadata { region: Some("eu-central-1".to_owned()), ..InstanceMetadata::default() };
    let pattern = |expression: &&str| Pattern::new(expression).expect("an expression");
    let imds = Imds::new(&node, passed.iter().map(pattern).collect());
    Scene { imds, tokens, visitor, is_unsettled: false, passes: !passed.is_empty() }
}

impl Scene {
    fn ask<'b>(&self, head: &RequestHead<'_, 'b>) -> Result<ImdsRequest<'_, 'b>, Refusal> {
        self.ask_as(head, &self.visitor)
    }

    fn ask_as<'b>(
        &self,
        head: &RequestHead<'_, 'b>,
        visitor: &TokenClient,
    ) -> Result<ImdsRequest<'_, 'b>, Refusal> {
        let sessions = TokenRules { keys: &KEYS, requirement: self.tokens, ttl_limit: TtlLimit::default() };
        self.imds.parse_request(head, &sessions, visitor, NOW)
    }

    /// A token that would be refused from then on, for this visitor.
    fn token_until(&self, end: UnixTime, visitor: &TokenClient) -> Option<GrantedToken> {
        let ttl = (end.since(NOW).as_secs() - 1).to_string();
        let headers = [Header { name: "X-aws-ec2-metadata-token-ttl-seconds", value: ttl.as_bytes() }];
        let head = RequestHead { method: "PUT", ..head("/latest/api/token", &headers) };
        match self.ask_as(&head, visitor) {
            Ok(ImdsRequest::Token(grant)) => Some(grant),
            _ => None,
        }
    }
}

fn check_head(head: &RequestHead<'_, '_>) -> AwsRequestOutcome {
    let mut seen =
        AwsRequestOutcome { is_container_request: check_container(head), ..AwsRequestOutcome::default() };
    for scene in &*SCENES {
        let asked = scene.ask(head);
        match &asked {
            Ok(ImdsRequest::Token(grant)) => {
                check_grant(head, grant);
                seen.is_granted_token = true;
            }
            Ok(ImdsRequest::Read(query)) => {
                check_query(scene, head, query);
                seen.has_valid_token |= query.token_expires_at.is_some();
                seen.would_be_passed_through |= matches!(query.resource, ImdsResource::Passthrough(_));
            }
            Err(refusal) => assert!((400..500).contains(&refusal.status), "{refusal:?}"),
        }
        seen.is_granted_credentials |= check_answer(head, &asked);
    }
    seen
}

fn header<'b>(head: &RequestHead<'_, 'b>, name: &str) -> Vec<&'b [u8]> {
    let is_meant = |header: &&Header<'_>| header.name.eq_ignore_ascii_case(name);
    head.headers.iter().filter(is_meant).map(|header| header.value).collect()
}

/// Nothing is given to who relays, or sends more than a head.
fn check_direct(head: &RequestHead<'_, '_>) {
    assert!(header(head, "x-forwarded-for").is_empty() && header(head, "forwarded").is_empty(), "{head:?}");
    assert!(
        matches!(head.framing, seawall_http::Framing::None | seawall_http::Framing::Length(0)),
        "{head:?}"
    );
}

/// A token is given to who asked with PUT for a life that it can have, and for no more of it.
fn check_grant(head: &RequestHead<'_, '_>, grant: &GrantedToken) {
    check_direct(head);
    assert_eq!(head.method, "PUT");
    let [asked] = header(head, "x-aws-ec2-metadata-token-ttl-seconds")[..] else {
        unreachable!("one life: {head:?}")
    };
    let asked: u64 = std::str::from_utf8(asked).ok().and_then(|text| text.parse().ok()).expect("a number");
    assert!((1..=21_600).contains(&asked) && grant.ttl <= Duration::from_secs(asked), "{head:?}");
    assert!(grant.ttl >= Duration::from_secs(asked.min(300)), "{head:?}");
}

fn check_query(scene: &Scene, head: &RequestHead<'_, '_>, query: &ImdsQuery<'_, '_>) {
    check_direct(head);
    assert!(matches!(head.method, "GET" | "HEAD"), "{head:?}");
    let is_by_arn =
        matches!(query.resource, ImdsResource::RoleCredentials { role: RequestedRole::Arn(_), .. });
    assert!(is_by_arn || !has_encoded_slash(head.target), "{head:?}");
    check_session(scene, head, query.token_expires_at);
    match &query.resource {
        ImdsResource::RoleCredentials { role, .. } => check_role_syntax(role),
        ImdsResource::Passthrough(path) => check_pass(scene, head, path),
        ImdsResource::RoleListing(_) | ImdsResource::RoleInfo | ImdsResource::Text(_) => {}
    }
}

/// Checks that a role is a name, or an ARN without special segments in its path.
fn check_role_syntax(role: &RequestedRole<'_>) {
    match role {
        RequestedRole::Name(name) => assert!(RoleName::new(name).is_some(), "{name:?}"),
        RequestedRole::Arn(arn) => {
            let role = arn.split_once(":role/").expect("a role").1;
            assert!(
                arn.starts_with("arn:aws")
                    && RoleName::new(role.rsplit('/').next().expect("a part")).is_some(),
                "{arn:?}"
            );
            assert!(role.split('/').all(|part| !matches!(part, "" | "." | "..")), "{arn:?}");
        }
    }
}

/// Checks that an accepted token is exactly one that was issued, and that a token is present where one is required.
fn check_session(scene: &Scene, head: &RequestHead<'_, '_>, session: Option<UnixTime>) {
    let shown = header(head, "x-aws-ec2-metadata-token");
    let Some(end) = session else {
        return assert!(shown.is_empty() && scene.tokens == TokenRequirement::Optional, "{head:?}");
    };
    assert!(end > NOW && end <= NOW.plus(session_token::MAX_TTL + Duration::from_secs(1)), "{end:?}");
    let [token] = shown[..] else { unreachable!("one token: {head:?}") };
    let is_of =
        |visitor: &TokenClient| scene.token_until(end, visitor).is_some_and(|given| given.token() == token);
    let early = TokenClient::with_unknown_pod(POD_ADDRESS);
    // While it is not known which pod asks, each pod's is let be.
    let is_unsettled = is_of(&pod(OTHER_POD_NAME)) && scene.is_unsettled;
    assert!(is_of(&pod(POD_NAME)) || is_of(&early) || is_unsettled, "{head:?}");
}

/// Checks that a passed-through path leads to no credentials, however often decoded, and that the filter leaves it unchanged.
fn check_pass(scene: &Scene, head: &RequestHead<'_, '_>, path: &str) {
    assert!(scene.passes, "{path}");
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~@:+=,".contains(&byte);
    assert!(path.starts_with('/') && path.bytes().all(is_plain), "{path}");
    let mut reading = path.to_ascii_lowercase();
    for _ in 0..3 {
        assert!(!reading.contains("credentials") && !reading.contains("/../"), "{path}");
        // The expression is one of everything, and names neither.
        assert!(!reading.contains("user-data") && !reading.contains("managed-ssh-keys"), "{path}");
        reading = percent_decoded(&reading).to_ascii_lowercase();
    }
    let again = scene.ask(&RequestHead { target: path, ..*head });
    let Ok(ImdsRequest::Read(ImdsQuery { resource: ImdsResource::Passthrough(again), .. })) = again else {
        unreachable!("passed once, passed again: {path}")
    };
    assert_eq!(again, path);
}

/// The container endpoint takes one path at its own hosts, and gives back the token as it was sent.
fn check_container(head: &RequestHead<'_, '_>) -> bool {
    let asked = ContainerCredentialsEndpoint::new(containers::ADDRESSES).parse_request(head);
    let frame = ResponseContext::for_request(head, DATE);
    let mut out = Vec::new();
    match &asked {
        Ok(query) => {
            check_direct(head);
            assert_eq!(header(head, "authorization"), [query.token.as_bytes()]);
            assert!(query.token.len() <= containers::MAX_TOKEN_BYTES, "{}", query.token.len());
            assert_eq!(query.token.split('.').filter(|part| !part.is_empty()).count(), 3);
            let host = header(head, "host").concat();
            assert!(host.starts_with(b"169.254.170.2") || host.starts_with(b"["), "{head:?}");
            containers::write_credentials(&mut out, &frame, &credentials());
        }
        Err(refusal) => containers::write_refusal(&mut out, &frame, refusal),
    }
    check_response(head, &frame, &out, &WRITTEN);
    assert_eq!(holds(&out, SECRET), asked.is_ok() && !frame.head_only);
    asked.is_ok()
}

/// Whatever is asked, the answer is one response with no header that the request brought. Credentials are in it if the pod's own
/// role was asked for, the life of a token if one is.
fn check_answer(head: &RequestHead<'_, '_>, asked: &Result<ImdsRequest<'_, '_>, Refusal>) -> bool {
    let frame = ResponseContext::for_request(head, DATE);
    let mut out = Vec::new();
    let role = RoleName::new(POD_NAME);
    let answered = match asked {
        Ok(asked) => answer(&mut out, &frame, asked, role.as_ref()),
        Err(refusal) => Err(*refusal),
    };
    if let Err(refusal) = &answered {
        respond::write_refusal(&mut out, &frame, refusal);
    }
    check_response(head, &frame, &out, &WRITTEN);
    let is_token = matches!(asked, Ok(ImdsRequest::Token(_)));
    assert_eq!(holds(&out, "ttl-seconds: "), is_token, "{}", out.escape_ascii());
    let own = |asked: &ImdsRequest<'_, '_>| matches!(asked, ImdsRequest::Read(ImdsQuery { resource: ImdsResource::RoleCredentials { role, .. }, .. }) if role.is_own(OWN));
    let is_own = asked.as_ref().is_ok_and(own);
    assert_eq!(holds(&out, SECRET), is_own && !frame.head_only, "{}", out.escape_ascii());
    is_own
}

fn holds(out: &[u8], text: &str) -> bool {
    out.windows(text.len()).any(|part| part == text.as_bytes())
}

/// Every header that the two dialects write.
const WRITTEN: [&str; 9] = [
    "Allow",
    "Cache-Control",
    "Connection",
    "Content-Length",
    "Content-Type",
    "Date",
    "ETag",
    "Server",
    "X-aws-ec2-metadata-token-ttl-seconds",
];

const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";

const SECRET: &str = "c2VjcmV0/+";

fn credentials() -> CredentialsDocument<'static> {
    CredentialsDocument {
        access_key_id: "ASIAEXAMPLE",
        secret_access_key: SECRET,
        session_token: "t",
        expiration: Iso8601Time::from_unix_time(NOW.plus(Duration::from_secs(3600))),
        last_updated: Iso8601Time::from_unix_time(NOW),
        account_id: Some("123456789012"),
        role_arn: None,
    }
}

fn answer(
    out: &mut Vec<u8>,
    frame: &ResponseContext<'_>,
    asked: &ImdsRequest<'_, '_>,
    role: Option<&RoleName>,
) -> Result<(), Refusal> {
    let query = match asked {
        ImdsRequest::Token(grant) => {
            respond::write_token(out, frame, grant);
            return Ok(());
        }
        ImdsRequest::Read(query) => query,
    };
    match &query.resource {
        ImdsResource::Text(known) => respond::write_text(out, frame, known),
        ImdsResource::RoleListing(_) => respond::write_role_name(out, frame, role.ok_or(NO_ROLE)?),
        ImdsResource::RoleCredentials { role, shape } => {
            check_role(role, Some(OWN))?;
            respond::write_credentials(out, frame, &credentials(), *shape);
        }
        ImdsResource::RoleInfo => {
            let info = RoleInfo {
                profile_arn: "a",
                profile_id: Some("b"),
                last_updated: Iso8601Time::from_unix_time(NOW),
            };
            respond::write_role_info(out, frame, &info);
        }
        ImdsResource::Passthrough(path) => {
            let headers: [(&str, &[u8]); 2] =
                [("ETag", b"\"a\""), ("X-aws-ec2-metadata-token-ttl-seconds", b"5")];
            respond::write_passthrough(out, frame, 200, headers, path.as_bytes());
        }
    }
    Ok(())
}
