//! AWS's dialects as the agent uses them, for one pod with one role.

use std::net::IpAddr;

use seawall_core::{PodUid, Secret};
use seawall_http::{Refusal, RequestHead, ResponseContext};
use seawall_protocols::aws::imds::respond::{self, RoleInfo};
use seawall_protocols::aws::imds::{NO_ROLE, TokenRules, check_role};
use seawall_protocols::aws::{
    ContainerCredentialsEndpoint, CredentialsDocument, Imds, ImdsRequest, ImdsResource, InstanceMetadata,
    Iso8601Time, OwnRole, Pattern, RoleName, TokenClient, TokenRequirement, TokenSigningKeys, TokenSubject,
    TtlLimit, UnixTime, containers,
};

use super::{DATE, body, with_head};

/// 2026-01-01T00:00:00Z.
pub(crate) const NOW: UnixTime = UnixTime(1_767_225_600);

/// The ARN of a role in [`Scene`].
pub(crate) fn role_arn(name: &RoleName) -> String {
    format!("arn:aws:iam::123456789012:role/pods/{}", name.as_str())
}

/// Where the pod is.
pub(crate) const POD_ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 7));

/// Who asks, of whom, and when.
pub(crate) struct Scene {
    pub(crate) imds: Imds,
    pub(crate) keys: TokenSigningKeys,
    pub(crate) tokens: TokenRequirement,
    pub(crate) visitor: TokenClient,
    pub(crate) role: Option<RoleName>,
    pub(crate) now: UnixTime,
}

impl Scene {
    /// A pod with the role `cart`; both versions.
    pub(crate) fn new() -> Self {
        Self {
            imds: Imds::new(&node(), Vec::new()),
            keys: TokenSigningKeys::with_first_key(Secret::new([7; 32]), NOW),
            tokens: TokenRequirement::Optional,
            visitor: pod("cart"),
            role: RoleName::new("cart"),
            now: NOW,
        }
    }

    /// The same, where tokens are required.
    pub(crate) fn strict() -> Self {
        Self { tokens: TokenRequirement::Required, ..Self::new() }
    }

    /// The same, with these expressions.
    pub(crate) fn passing(expressions: &[&str]) -> Self {
        let pattern = |expression: &&str| Pattern::new(expression).expect("an expression");
        let passed = expressions.iter().map(pattern).collect();
        Self { imds: Imds::new(&node(), passed), ..Self::new() }
    }

    /// What a request asks for.
    pub(crate) fn ask<T>(
        &self,
        raw: &str,
        look: impl FnOnce(ImdsRequest<'_, '_>) -> T,
    ) -> Result<T, Refusal> {
        with_head(raw, |head| self.ask_head(head).map(look))
    }

    /// As [`Scene::ask`], of a head.
    pub(crate) fn ask_head<'t, 'b>(
        &'t self,
        head: &RequestHead<'_, 'b>,
    ) -> Result<ImdsRequest<'t, 'b>, Refusal> {
        let sessions =
            TokenRules { keys: &self.keys, requirement: self.tokens, ttl_limit: TtlLimit::default() };
        self.imds.parse_request(head, &sessions, &self.visitor, self.now)
    }

    /// Asks and answers as the agent does; the whole response.
    pub(crate) fn exchange(&self, raw: &str) -> String {
        let mut out = Vec::new();
        with_head(raw, |head| {
            let frame = ResponseContext::for_request(head, DATE);
            let answered = self.ask_head(head).and_then(|asked| self.answer(&mut out, &frame, asked));
            if let Err(refusal) = answered {
                respond::write_refusal(&mut out, &frame, &refusal);
            }
        });
        String::from_utf8(out).expect("text")
    }

    fn answer(
        &self,
        out: &mut Vec<u8>,
        frame: &ResponseContext<'_>,
        asked: ImdsRequest<'_, '_>,
    ) -> Result<(), Refusal> {
        let query = match asked {
            ImdsRequest::Token(grant) => {
                respond::write_token(out, frame, &grant);
                return Ok(());
            }
            ImdsRequest::Read(query) => query,
        };
        match query.resource {
            ImdsResource::Text(known) => respond::write_text(out, frame, &known),
            ImdsResource::RoleListing(_) => {
                respond::write_role_name(out, frame, self.role.as_ref().ok_or(NO_ROLE)?);
            }
            ImdsResource::RoleCredentials { role, shape } => {
                let own = self.role.as_ref().map(|own| (own.as_str(), role_arn(own)));
                check_role(&role, own.as_ref().map(|(name, arn)| OwnRole { name, arn }))?;
                respond::write_credentials(out, frame, &credentials(), shape);
            }
            ImdsResource::RoleInfo => {
                let role = self.role.as_ref().ok_or(NO_ROLE)?.as_str();
                let profile_arn = format!("arn:aws:iam::123456789012:instance-profile/{role}");
                let last_updated = Iso8601Time::from_unix_time(NOW);
                let info = RoleInfo { profile_arn: &profile_arn, profile_id: None, last_updated };
                respond::write_role_info(out, frame, &info);
            }
            ImdsResource::Passthrough(path) => {
                let headers: [(&str, &[u8]); 3] = [
                    ("content-type", b"text/plain"),
                    ("X-aws-ec2-metadata-token-ttl-seconds", b"21600"),
                    ("Connection", b"close"),
                ];
                respond::write_passthrough(out, frame, 200, headers, path.as_bytes());
            }
        }
        Ok(())
    }

    /// A token, as a client asks for one.
    pub(crate) fn token(&self, ttl: u32) -> String {
        body(&self.exchange(&put(ttl))).to_owned()
    }
}

/// A pod that is known, at [`POD_ADDRESS`].
pub(crate) fn pod(uid: &str) -> TokenClient {
    TokenClient::with_known_pod(TokenSubject::from_pod_uid(&PodUid(uid.into())), POD_ADDRESS)
}

/// Credentials that a document holds whole.
pub(crate) fn credentials() -> CredentialsDocument<'static> {
    CredentialsDocument {
        access_key_id: "ASIAEXAMPLE",
        secret_access_key: "c2VjcmV0/+",
        session_token: "IQoJb3JpZ2luX2Vj//+=",
        expiration: Iso8601Time::from_unix_time(UnixTime(NOW.0 + 3600)),
        last_updated: Iso8601Time::from_unix_time(NOW),
        account_id: Some("123456789012"),
        role_arn: Some("arn:aws:iam::123456789012:role/team/cart"),
    }
}

fn node() -> InstanceMetadata {
    let text = |text: &str| Some(text.to_owned());
    InstanceMetadata {
        region: text("eu-central-1"),
        availability_zone: text("eu-central-1a"),
        instance_id: text("i-0123456789abcdef0"),
        account_id: text("123456789012"),
        ..InstanceMetadata::default()
    }
}

/// A request for a token.
pub(crate) fn put(ttl: u32) -> String {
    request("PUT /latest/api/token", &[&format!("X-aws-ec2-metadata-token-ttl-seconds: {ttl}")])
}

/// A request from a request line without version and header lines.
pub(crate) fn request(line: &str, headers: &[&str]) -> String {
    let mut raw = format!("{line} HTTP/1.1\r\nHost: 169.254.169.254\r\n");
    headers.iter().for_each(|header| raw.extend([header, "\r\n"]));
    raw + "\r\n"
}

/// Asks the container endpoint and answers as the agent does, without a look at the token; the whole response.
pub(crate) fn container(raw: &str) -> String {
    let mut out = Vec::new();
    with_head(raw, |head| {
        let frame = ResponseContext::for_request(head, DATE);
        match ContainerCredentialsEndpoint::new(containers::ADDRESSES).parse_request(head) {
            Ok(_) => containers::write_credentials(&mut out, &frame, &credentials()),
            Err(refusal) => containers::write_refusal(&mut out, &frame, &refusal),
        }
    });
    String::from_utf8(out).expect("text")
}
