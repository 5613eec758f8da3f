//! What a family sends: whole requests, and how many of them.

/// How a family comes by session tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokens {
    /// It asks for none.
    None,
    /// One for each fetch, of this many seconds.
    EachFetch(u32),
    /// One before each `GET`.
    EachGet(u32),
    /// One is kept until so many seconds (the second number) before its end.
    Kept(u32, u32),
}

/// What its requests look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// How it comes by session tokens.
    pub tokens: Tokens,
    /// Its User-Agent at the metadata service.
    pub agent: Option<&'static str>,
    /// Its User-Agent at the credentials endpoint of containers.
    pub container_agent: Option<&'static str>,
    /// How it asks for the listing and the document.
    pub shape: Shape,
}

/// How the listing and the document are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The listing with a slash at its end, the role's name as it is.
    Slash,
    /// The listing without a slash, the role's name as it is.
    Bare,
    /// The listing without a slash, the role's `+ = , @` percent-encoded.
    BareEncoded,
}

/// Where roles are listed.
const LISTING: &str = "/latest/meta-data/iam/security-credentials";

/// Where a container's credentials are, by EKS's convention.
const CONTAINER: &str = "/v1/credentials";

impl Wire {
    /// The life that is asked of a session token, in seconds; none if it asks for none.
    pub fn token_life(&self) -> Option<u32> {
        match self.tokens {
            Tokens::None => None,
            Tokens::EachFetch(life) | Tokens::EachGet(life) | Tokens::Kept(life, _) => Some(life),
        }
    }

    /// Until when a token is used that was granted at `now` for `life` seconds: not beyond this fetch unless it is kept.
    pub fn token_until(&self, now: i64, life: u32) -> i64 {
        match self.tokens {
            Tokens::Kept(_, early) => now + i64::from(life.saturating_sub(early)),
            Tokens::None | Tokens::EachFetch(_) | Tokens::EachGet(_) => now,
        }
    }

    /// Whether another token is asked for between the listing and the document.
    pub fn asks_token_twice(&self) -> bool {
        matches!(self.tokens, Tokens::EachGet(_))
    }

    /// Requests of a fetch, by whether a token is still kept.
    pub fn requests(&self, has_token: bool) -> u32 {
        match self.tokens {
            Tokens::None => 2,
            Tokens::EachFetch(_) => 3,
            Tokens::EachGet(_) => 4,
            Tokens::Kept(..) => 2 + u32::from(!has_token),
        }
    }

    /// `PUT` of a session token; nothing if it asks for none.
    pub fn put(&self) -> Option<String> {
        let life = self.token_life()?;
        let more = format!("X-aws-ec2-metadata-token-ttl-seconds: {life}\r\n");
        Some(request("PUT", "/latest/api/token", "169.254.169.254", self.agent, &more))
    }

    /// `GET` of the listing.
    pub fn listing(&self, token: Option<&str>) -> String {
        let slash = if self.shape == Shape::Slash { "/" } else { "" };
        self.get(&format!("{LISTING}{slash}"), token)
    }

    /// `GET` of a role's document.
    pub fn document(&self, role: &str, token: Option<&str>) -> String {
        let role = if self.shape == Shape::BareEncoded { encoded(role) } else { role.to_owned() };
        self.get(&format!("{LISTING}/{role}"), token)
    }

    fn get(&self, target: &str, token: Option<&str>) -> String {
        let shown = token.map(|token| format!("X-aws-ec2-metadata-token: {token}\r\n")).unwrap_or_default();
        request("GET", target, "169.254.169.254", self.agent, &shown)
    }

    /// `GET` of a container's credentials, showing the content of its token file.
    pub fn container(&self, bearer: &str) -> String {
        let shown = format!("Authorization: {bearer}\r\n");
        request("GET", CONTAINER, "169.254.170.23", self.container_agent, &shown)
    }
}

fn request(method: &str, target: &str, host: &str, agent: Option<&str>, more: &str) -> String {
    let agent = agent.map(|agent| format!("User-Agent: {agent}\r\n")).unwrap_or_default();
    format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{agent}{more}\r\n")
}

/// What the SDK for C++ encodes of the characters that a role's name may have (measured).
fn encoded(role: &str) -> String {
    role.replace('+', "%2B").replace('=', "%3D").replace(',', "%2C").replace('@', "%40")
}
