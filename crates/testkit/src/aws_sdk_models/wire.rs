//! The requests that a family sends, and their number.

/// The way in which a family gets session tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionTokenUse {
    /// It asks for none.
    None,
    /// One for each fetch, of this many seconds.
    EachFetch(u32),
    /// One before each `GET`.
    EachGet(u32),
    /// One is kept until so many seconds (the second number) before its end.
    Kept(u32, u32),
}

/// The form of the requests of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// The way in which the family gets session tokens.
    pub session_token_use: SessionTokenUse,
    /// Its User-Agent at the metadata service.
    pub imds_user_agent: Option<&'static str>,
    /// Its User-Agent at the credentials endpoint of containers.
    pub container_user_agent: Option<&'static str>,
    /// The path style of the requests for the role listing and for the credentials document.
    pub path_style: ListingPathStyle,
}

/// The path style of the requests for the role listing and for the credentials document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListingPathStyle {
    /// The listing with a slash at its end, the role's name as it is.
    TrailingSlash,
    /// The listing without a slash, the role's name as it is.
    NoTrailingSlash,
    /// The listing without a slash, the role's `+ = , @` percent-encoded.
    NoTrailingSlashEncodedRole,
}

/// The path of the role listing.
const LISTING: &str = "/latest/meta-data/iam/security-credentials";

/// The path of the credentials of a container, by the convention of EKS.
const CONTAINER: &str = "/v1/credentials";

impl Wire {
    /// The life that is asked of a session token, in seconds; none if it asks for none.
    pub fn token_life_seconds(&self) -> Option<u32> {
        match self.session_token_use {
            SessionTokenUse::None => None,
            SessionTokenUse::EachFetch(life)
            | SessionTokenUse::EachGet(life)
            | SessionTokenUse::Kept(life, _) => Some(life),
        }
    }

    /// Until when a token is used that was granted at `now` for `life` seconds: not beyond this fetch unless it is kept.
    pub fn token_used_until(&self, now: i64, life: u32) -> i64 {
        match self.session_token_use {
            SessionTokenUse::Kept(_, early) => now + i64::from(life.saturating_sub(early)),
            SessionTokenUse::None | SessionTokenUse::EachFetch(_) | SessionTokenUse::EachGet(_) => now,
        }
    }

    /// Returns true if the family requests another token between the listing and the document.
    pub fn asks_token_twice(&self) -> bool {
        matches!(self.session_token_use, SessionTokenUse::EachGet(_))
    }

    /// Requests of a fetch, by whether a token is still kept.
    pub fn requests_per_fetch(&self, has_token: bool) -> u32 {
        match self.session_token_use {
            SessionTokenUse::None => 2,
            SessionTokenUse::EachFetch(_) => 3,
            SessionTokenUse::EachGet(_) => 4,
            SessionTokenUse::Kept(..) => 2 + u32::from(!has_token),
        }
    }

    /// Formats the `PUT` request for a session token; `None` if the family uses no tokens.
    pub fn format_token_request(&self) -> Option<String> {
        let life = self.token_life_seconds()?;
        let more = format!("X-aws-ec2-metadata-token-ttl-seconds: {life}\r\n");
        Some(request("PUT", "/latest/api/token", "169.254.169.254", self.imds_user_agent, &more))
    }

    /// Formats the `GET` request for the role listing.
    pub fn format_listing_request(&self, token: Option<&str>) -> String {
        let slash = if self.path_style == ListingPathStyle::TrailingSlash { "/" } else { "" };
        self.get(&format!("{LISTING}{slash}"), token)
    }

    /// Formats the `GET` request for the credentials document of a role.
    pub fn format_document_request(&self, role: &str, token: Option<&str>) -> String {
        let role = if self.path_style == ListingPathStyle::NoTrailingSlashEncodedRole {
            encoded(role)
        } else {
            role.to_owned()
        };
        self.get(&format!("{LISTING}/{role}"), token)
    }

    fn get(&self, target: &str, token: Option<&str>) -> String {
        let shown = token.map(|token| format!("X-aws-ec2-metadata-token: {token}\r\n")).unwrap_or_default();
        request("GET", target, "169.254.169.254", self.imds_user_agent, &shown)
    }

    /// Formats the `GET` request for the credentials of a container, with the content of its token file.
    pub fn format_container_request(&self, bearer: &str) -> String {
        let shown = format!("Authorization: {bearer}\r\n");
        request("GET", CONTAINER, "169.254.170.23", self.container_user_agent, &shown)
    }
}

fn request(method: &str, target: &str, host: &str, agent: Option<&str>, more: &str) -> String {
    let agent = agent.map(|agent| format!("User-Agent: {agent}\r\n")).unwrap_or_default();
    format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{agent}{more}\r\n")
}

/// Percent-encodes those characters of a role name that the SDK for C++ encodes (measured).
fn encoded(role: &str) -> String {
    role.replace('+', "%2B").replace('=', "%3D").replace(',', "%2C").replace('@', "%40")
}
