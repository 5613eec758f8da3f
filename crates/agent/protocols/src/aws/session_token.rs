//! Grants and verifies session tokens of the metadata service (IMDSv2). A client requests a token with PUT and sends the token
//! with each GET.
//!
//! A token contains its subject and its expiry time, and one of this node's keys signs the token. The agent stores no tokens,
//! so a pod cannot exhaust the agent's memory with token requests.
//!
//! The security argument: the token does not prove an identity, because the agent identifies the client by its connection. The
//! token prevents *other parties* from sending requests in a pod's name. An attacker can misuse a URL fetcher in a pod (SSRF),
//! but such a fetcher can send neither a PUT nor an arbitrary header. A token has three properties:
//! - It cannot be guessed: HMAC-SHA256 covers the whole token, and the comparison takes constant time.
//! - Another pod cannot use it.
//! - It expires.
//!
//! The keys can be stored so that they survive a restart of the agent ([`TokenSigningKeys::to_bytes`]). After a restart with
//! other keys, the agent refuses the old tokens. The SDK for Rust uses a refused token until the token's granted lifetime is
//! over, which can take six hours. So an agent that does not store its keys grants short lifetimes ([`TtlLimit`]). If the wall
//! clock jumps forward, tokens also expire before the granted lifetime is over.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::{digest, hmac};
use seawall_core::{PodUid, Secret};

use super::time::UnixTime;
use seawall_http::Refusal;

/// The longest lifetime of a token. Clients may request 1 to 21600 seconds (EC2 user guide, "Use IMDSv2").
pub const MAX_TTL: Duration = Duration::from_secs(21_600);

/// The longest lifetime of a token that the agent grants before it knows the pod. This value is also the smallest [`TtlLimit`].
///
/// The SDK for Rust renews its token two minutes before the token expires. With a much shorter lifetime, that SDK would request
/// tokens continuously.
pub const UNKNOWN_POD_MAX_TTL: Duration = Duration::from_secs(300);

/// The number of characters of a token.
pub const TOKEN_LENGTH: usize = 76;

/// The refusal for a token that this node did not sign. The SDKs for Go, C++ and Ruby request a new token at once only after a
/// 401.
pub const BAD_TOKEN: Refusal = Refusal::new(
    401,
    "bad_token",
    "The session token is not valid. Request a new one with PUT at /latest/api/token.",
);
/// The refusal for an expired token.
pub const EXPIRED_TOKEN: Refusal = Refusal::new(
    401,
    "expired_token",
    "The session token has expired. Request a new one with PUT at /latest/api/token.",
);
/// The refusal for a token that was granted to another pod.
pub const TOKEN_POD_MISMATCH: Refusal = Refusal::new(
    401,
    "token_pod_mismatch",
    "The session token belongs to another pod. Request one with PUT at /latest/api/token.",
);

/// The owner of a token: a pod, or an IP address while its pod is unknown.
///
/// A connection cannot own a token, because clients use a token on several connections.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenSubject([u8; BEARER]);

const BEARER: usize = 17;
const POD: u8 = b'p';
const ADDRESS: u8 = b'a';

impl TokenSubject {
    /// Creates the subject of a pod. Call this function once per pod and keep the result, because the function computes a hash.
    pub fn from_pod_uid(uid: &PodUid) -> Self {
        Self::new(POD, uid.0.as_bytes())
    }

    fn address(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::new(ADDRESS, &address.octets()),
            IpAddr::V6(address) => Self::new(ADDRESS, &address.octets()),
        }
    }

    /// Hashes the identity with SHA-256 and keeps the first half of the hash.
    ///
    /// The token contains this hash instead of the identity. So the token does not reveal the UID and has a fixed length. A UID
    /// from the API server has 36 characters, but other identity strategies use UIDs of any length.
    fn new(kind: u8, identity: &[u8]) -> Self {
        let mut bytes = [kind; BEARER];
        bytes[1..].copy_from_slice(&digest::digest(&digest::SHA256, identity).as_ref()[..BEARER - 1]);
        Self(bytes)
    }

    fn is_address(&self) -> bool {
        self.0[0] == ADDRESS
    }
}

impl fmt::Debug for TokenSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_address() { "TokenSubject(address)" } else { "TokenSubject(pod)" })
    }
}

/// Describes the client of a connection for the token checks: the client's pod and the client's address.
#[derive(Clone, Copy, Debug)]
pub struct TokenClient {
    pod: Option<TokenSubject>,
    address: IpAddr,
}

impl TokenClient {
    /// Creates a client that is a known pod at this address.
    pub fn with_known_pod(pod: TokenSubject, address: IpAddr) -> Self {
        Self { pod: Some(pod), address }
    }

    /// Creates a client whose pod is unknown.
    ///
    /// The agent grants a token even to this client. Otherwise the client would continue without a token; the SDK for C++ would
    /// use no token until its process ends.
    pub fn with_unknown_pod(address: IpAddr) -> Self {
        Self { pod: None, address }
    }

    fn subject(&self) -> TokenSubject {
        self.pod.unwrap_or_else(|| TokenSubject::address(self.address))
    }

    /// True if this client is allowed to use a token of this subject.
    ///
    /// A known pod is allowed to use a token that the agent granted to its address before the agent knew the pod. An unknown
    /// client is allowed to use any pod's token for now, because the agent checks the token again after it has identified the
    /// client.
    fn may_show(&self, bearer: TokenSubject) -> bool {
        if bearer.is_address() {
            return bearer == TokenSubject::address(self.address);
        }
        self.pod.is_none_or(|pod| pod == bearer)
    }
}

/// The upper limit for a token's lifetime. The limit is between [`UNKNOWN_POD_MAX_TTL`] and [`MAX_TTL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TtlLimit(Duration);

impl TtlLimit {
    /// Creates the limit, or returns `None` if `ttl` is not between [`UNKNOWN_POD_MAX_TTL`] and [`MAX_TTL`].
    pub fn new(ttl: Duration) -> Option<Self> {
        (UNKNOWN_POD_MAX_TTL..=MAX_TTL).contains(&ttl).then_some(Self(ttl))
    }

    /// Returns the lifetime to grant for a requested lifetime.
    ///
    /// The granted lifetime can be shorter than the requested lifetime. The response states the granted lifetime, and every
    /// client accepts it. If the client requests at least [`UNKNOWN_POD_MAX_TTL`], it gets at least [`UNKNOWN_POD_MAX_TTL`].
    /// The granted lifetime is never longer than the requested lifetime, because a client can have a reason for a short
    /// lifetime.
    fn of(self, asked: Duration, visitor: &TokenClient) -> Duration {
        let longest = if visitor.pod.is_some() { self.0 } else { UNKNOWN_POD_MAX_TTL };
        asked.min(longest)
    }
}

impl Default for TtlLimit {
    /// Returns a limit equal to [`MAX_TTL`]. Use this limit only with stored keys: without them, a restart of the agent
    /// invalidates long-lived tokens.
    fn default() -> Self {
        Self(MAX_TTL)
    }
}

/// A newly granted token.
#[derive(Debug)]
pub struct GrantedToken {
    token: Secret<[u8; TOKEN_LENGTH]>,
    /// The granted lifetime, in whole seconds.
    pub ttl: Duration,
}

impl GrantedToken {
    /// Returns the token. It consists of letters, digits, `-` and `_`.
    pub fn token(&self) -> &[u8] {
        self.token.expose()
    }
}

/// The number of bytes of a key. It equals the size of the hash (RFC 2104 section 3).
pub const KEY_LENGTH: usize = 32;

/// Holds the keys that sign tokens: the current key and the previous key. Tokens that the previous key signed are still valid.
#[derive(Debug)]
pub struct TokenSigningKeys {
    current: Key,
    previous: Option<Key>,
}

/// A key in its stored form and in its form for HMAC.
///
/// Dropping the key does not overwrite the HMAC form in memory, because that form is a type of the library `ring`.
struct Key {
    bytes: Secret<[u8; KEY_LENGTH]>,
    made: UnixTime,
    hmac: hmac::Key,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("made", &self.made).finish_non_exhaustive()
    }
}

/// The error for bytes that are not a complete set of stored keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the content is damaged, is incomplete or does not hold session token keys")]
pub struct InvalidStoredTokenKeys;

/// The age at which a new key replaces the current key. This age is four times the longest lifetime of a token. So all tokens
/// of the previous key have expired before the agent drops that key.
const KEY_LIFE: Duration = Duration::from_secs(24 * 3600);

/// The first bytes of stored keys. They identify the format and its version.
const MAGIC: &[u8; 8] = b"swtokens";

/// The size of one stored key: the creation time in big-endian order, and the key bytes.
const KEPT_KEY: usize = 8 + KEY_LENGTH;

/// The size of the hash at the end of the stored keys. The hash detects a truncated or damaged file.
const CHECK: usize = 8;

impl TokenSigningKeys {
    /// Creates keys with this first key. The bytes must be random and unknown to other processes.
    pub fn with_first_key(bytes: Secret<[u8; KEY_LENGTH]>, now: UnixTime) -> Self {
        Self { current: Key::new(bytes, now), previous: None }
    }

    /// True if the current key is old enough to be replaced. The agent checks this at its start and about every hour.
    pub fn is_rotation_due(&self, now: UnixTime) -> bool {
        now.since(self.current.made) >= KEY_LIFE
    }

    /// Returns the keys with a new current key.
    ///
    /// The old current key becomes the previous key. The tokens of the previous key expire before the next rotation.
    #[must_use]
    pub fn rotated(self, bytes: Secret<[u8; KEY_LENGTH]>, now: UnixTime) -> Self {
        Self { current: Key::new(bytes, now), previous: Some(self.current) }
    }

    /// Returns the bytes to store, so that tokens survive a restart of the agent. These bytes need the same protection as the
    /// agent's memory.
    ///
    /// An attacker with these bytes can sign tokens for this node's pods. The tokens help only an attacker who can already send
    /// requests in a pod's name.
    pub fn to_bytes(&self) -> Secret<Vec<u8>> {
        // The buffer has its full size from the start. A growing buffer would leave copies of the keys in memory.
        let mut kept = Secret::new(Vec::with_capacity(MAGIC.len() + 2 * KEPT_KEY + CHECK));
        let out = kept.expose_mut();
        out.extend_from_slice(MAGIC);
        for key in std::iter::once(&self.current).chain(&self.previous) {
            out.extend_from_slice(&key.made.0.to_be_bytes());
            out.extend_from_slice(key.bytes.expose());
        }
        let check = check(out);
        out.extend_from_slice(&check);
        kept
    }

    /// Reads stored keys.
    ///
    /// # Errors
    /// [`InvalidStoredTokenKeys`].
    pub fn from_bytes(kept: &[u8]) -> Result<Self, InvalidStoredTokenKeys> {
        let (content, end) = kept.split_last_chunk::<CHECK>().ok_or(InvalidStoredTokenKeys)?;
        let keys =
            content.strip_prefix(MAGIC).filter(|_| check(content) == *end).ok_or(InvalidStoredTokenKeys)?;
        let (keys, []) = keys.as_chunks::<KEPT_KEY>() else { return Err(InvalidStoredTokenKeys) };
        match keys {
            [current] => Ok(Self { current: Key::kept(current), previous: None }),
            [current, previous] => {
                Ok(Self { current: Key::kept(current), previous: Some(Key::kept(previous)) })
            }
            _ => Err(InvalidStoredTokenKeys),
        }
    }

    /// Issues a token to this client.
    pub(super) fn issue(
        &self,
        visitor: &TokenClient,
        asked: Duration,
        longest: TtlLimit,
        now: UnixTime,
    ) -> GrantedToken {
        let ttl = longest.of(asked, visitor);
        let signed = TokenContent { bearer: visitor.subject(), expires: now.plus(ttl) };
        let mut token = Secret::new([b'-'; TOKEN_LENGTH]);
        let sealed = signed.sealed(&self.current);
        // `TOKEN_LENGTH` is the length of `SEALED` bytes in base64, so the encoding cannot fail.
        let written = URL_SAFE_NO_PAD.encode_slice(sealed, token.expose_mut());
        debug_assert_eq!(written, Ok(TOKEN_LENGTH));
        GrantedToken { token, ttl }
    }

    /// Verifies a token that this client sent. Returns the time from which the agent refuses the token.
    ///
    /// # Errors
    /// [`BAD_TOKEN`], [`EXPIRED_TOKEN`], [`TOKEN_POD_MISMATCH`].
    pub(super) fn verify(
        &self,
        token: &[u8],
        visitor: &TokenClient,
        now: UnixTime,
    ) -> Result<UnixTime, Refusal> {
        let mut sealed = [0; SEALED];
        // The function checks the length first. The later steps take the same time for every token of this length.
        if token.len() != TOKEN_LENGTH || URL_SAFE_NO_PAD.decode_slice(token, &mut sealed) != Ok(SEALED) {
            return Err(BAD_TOKEN);
        }
        let signed = self.signed(&sealed).ok_or(BAD_TOKEN)?;
        let end = signed.end();
        if end <= now {
            return Err(EXPIRED_TOKEN);
        }
        if visitor.may_show(signed.bearer) { Ok(end) } else { Err(TOKEN_POD_MISMATCH) }
    }

    fn signed(&self, sealed: &[u8; SEALED]) -> Option<TokenContent> {
        let (content, signature) = sealed.split_first_chunk::<CONTENT>()?;
        let is_by = |key: &Key| hmac::verify(&key.hmac, content, signature).is_ok();
        (is_by(&self.current) || self.previous.as_ref().is_some_and(is_by))
            .then(|| TokenContent::read(content))?
    }
}

impl Key {
    fn new(bytes: Secret<[u8; KEY_LENGTH]>, made: UnixTime) -> Self {
        let hmac = hmac::Key::new(hmac::HMAC_SHA256, bytes.expose());
        Self { bytes, made, hmac }
    }

    fn kept(kept: &[u8; KEPT_KEY]) -> Self {
        let (mut made, mut bytes) = ([0; 8], Secret::new([0; KEY_LENGTH]));
        made.copy_from_slice(&kept[..8]);
        bytes.expose_mut().copy_from_slice(&kept[8..]);
        Self::new(bytes, UnixTime(u64::from_be_bytes(made)))
    }
}

fn check(content: &[u8]) -> [u8; CHECK] {
    let mut check = [0; CHECK];
    check.copy_from_slice(&digest::digest(&digest::SHA256, content).as_ref()[..CHECK]);
    check
}

/// The signed content of a token.
struct TokenContent {
    bearer: TokenSubject,
    /// The expiry time: the start of the second in which the agent granted the token, plus the lifetime.
    expires: UnixTime,
}

/// The size of a token's content: the subject, and the expiry time in seconds in big-endian order.
const CONTENT: usize = BEARER + 8;

/// The size of the content with its signature. This size is a multiple of three, so each token has exactly one base64 form.
const SEALED: usize = CONTENT + 32;

impl TokenContent {
    /// Returns the expiry time, rounded up. So a token is valid for at least the granted lifetime, even if that lifetime is one
    /// second.
    fn end(&self) -> UnixTime {
        self.expires.plus(Duration::from_secs(1))
    }

    fn sealed(&self, key: &Key) -> [u8; SEALED] {
        let mut sealed = [0; SEALED];
        sealed[..BEARER].copy_from_slice(&self.bearer.0);
        sealed[BEARER..CONTENT].copy_from_slice(&self.expires.0.to_be_bytes());
        let signature = hmac::sign(&key.hmac, &sealed[..CONTENT]);
        sealed[CONTENT..].copy_from_slice(signature.as_ref());
        sealed
    }

    fn read(content: &[u8; CONTENT]) -> Option<Self> {
        let (bearer, expires) = content.split_first_chunk::<BEARER>()?;
        let expires = UnixTime(u64::from_be_bytes(expires.try_into().ok()?));
        Some(Self { bearer: TokenSubject(*bearer), expires })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixTime = UnixTime(1_767_225_600);
    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 7));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 8));

    fn key(byte: u8) -> Secret<[u8; KEY_LENGTH]> {
        Secret::new([byte; KEY_LENGTH])
    }

    fn keys() -> TokenSigningKeys {
        TokenSigningKeys::with_first_key(key(1), NOW)
    }

    fn pod(uid: &str) -> TokenSubject {
        TokenSubject::from_pod_uid(&PodUid(uid.into()))
    }

    fn cart() -> TokenClient {
        TokenClient::with_known_pod(pod("cart"), HERE)
    }

    fn token(keys: &TokenSigningKeys, visitor: &TokenClient, ttl: u64) -> Vec<u8> {
        keys.issue(visitor, Duration::from_secs(ttl), TtlLimit::default(), NOW).token().to_vec()
    }

    #[test]
    fn a_token_is_good_for_its_bearer_until_its_end() {
        let keys = keys();
        let (token, end) = (token(&keys, &cart(), 60), UnixTime(NOW.0 + 61));
        for now in [NOW, UnixTime(NOW.0 + 60)] {
            assert_eq!(keys.verify(&token, &cart(), now), Ok(end));
        }
        assert_eq!(keys.verify(&token, &cart(), end), Err(EXPIRED_TOKEN));
        assert_eq!(
            keys.verify(&token, &TokenClient::with_known_pod(pod("cart"), THERE), NOW),
            Ok(end),
            "on any connection"
        );
        assert_eq!(
            keys.verify(&token, &TokenClient::with_known_pod(pod("shop"), HERE), NOW),
            Err(TOKEN_POD_MISMATCH)
        );
        assert_eq!(
            TokenSigningKeys::with_first_key(key(2), NOW).verify(&token, &cart(), NOW),
            Err(BAD_TOKEN),
            "another node's"
        );
    }

    /// Regression: a token with a lifetime of one second expired at the end of the second in which it was granted.
    #[test]
    fn a_token_lives_at_least_as_long_as_its_client_is_told() {
        let keys = keys();
        for (ttl, tenths) in [(1, 0), (1, 9), (300, 9), (21_600, 5)] {
            let at = |after: Duration| {
                let granted = Duration::from_secs(NOW.0) + Duration::from_millis(100 * tenths);
                UnixTime::from(std::time::SystemTime::UNIX_EPOCH + granted + after)
            };
            let grant =
                keys.issue(&cart(), Duration::from_secs(ttl), TtlLimit::default(), at(Duration::ZERO));
            let opened = |after| keys.verify(grant.token(), &cart(), at(after)).is_ok();
            assert!(opened(grant.ttl - Duration::from_millis(1)), "{ttl} s, {tenths} tenths into a second");
            assert!(!opened(grant.ttl + Duration::from_secs(1)), "and no more than a second longer");
        }
    }

    #[test]
    fn a_token_that_an_address_was_given_is_good_there_and_once_it_is_known_whose_it_is() {
        let keys = keys();
        let early = token(&keys, &TokenClient::with_unknown_pod(HERE), 21_600);
        for (visitor, good) in [
            (TokenClient::with_unknown_pod(HERE), true),
            (cart(), true),
            (TokenClient::with_unknown_pod(THERE), false),
            (TokenClient::with_known_pod(pod("cart"), THERE), false),
        ] {
            let opened = keys.verify(&early, &visitor, NOW);
            assert_eq!(
                opened,
                if good {
                    Ok(NOW.plus(UNKNOWN_POD_MAX_TTL + Duration::from_secs(1)))
                } else {
                    Err(TOKEN_POD_MISMATCH)
                },
                "{visitor:?}"
            );
        }
        let mapped = TokenClient::with_unknown_pod("::ffff:10.0.0.7".parse().unwrap());
        assert!(keys.verify(&early, &mapped, NOW).is_ok(), "one address in two spellings");
        let uid_like_address = TokenSubject::from_pod_uid(&PodUid("\u{a}\0\0\u{7}".into()));
        assert_ne!(uid_like_address, TokenSubject::address(HERE));
    }

    #[test]
    fn whatever_is_not_the_token_itself_is_refused() {
        let keys = keys();
        let good = token(&keys, &cart(), 60);
        for at in 0..good.len() {
            let mut forged = good.clone();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(keys.verify(&forged, &cart(), NOW), Err(BAD_TOKEN), "character {at}");
            assert_eq!(keys.verify(&good[..at], &cart(), NOW), Err(BAD_TOKEN), "cut at {at}");
        }
        let twice = [&*good, &*good].concat();
        let padded = [&*good, b"=".as_slice()].concat();
        let spaced = [b" ", &good[1..]].concat();
        for other in [&*twice, &padded, &spaced, b"", &[0xff; TOKEN_LENGTH], &vec![b'A'; 64 * 1024]] {
            assert_eq!(keys.verify(other, &cart(), NOW), Err(BAD_TOKEN));
        }
    }

    #[test]
    fn a_token_may_stand_in_a_header() {
        let token = token(&keys(), &cart(), 60);
        assert_eq!(token.len(), TOKEN_LENGTH);
        assert!(token.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte)));
    }

    #[test]
    fn less_may_be_granted_and_never_more() {
        let (short, middle) =
            (TtlLimit::new(UNKNOWN_POD_MAX_TTL).unwrap(), TtlLimit::new(MAX_TTL / 2).unwrap());
        for (longest, visitor, asked, granted) in [
            (TtlLimit::default(), cart(), 21_600, 21_600),
            (TtlLimit::default(), cart(), 1, 1),
            (middle, cart(), 21_600, 10_800),
            (middle, cart(), 300, 300),
            (short, cart(), 21_600, 300),
            (short, cart(), 10, 10),
            (TtlLimit::default(), TokenClient::with_unknown_pod(HERE), 21_600, 300),
            (TtlLimit::default(), TokenClient::with_unknown_pod(HERE), 60, 60),
        ] {
            let grant = keys().issue(&visitor, Duration::from_secs(asked), longest, NOW);
            assert_eq!(grant.ttl.as_secs(), granted, "{asked} of {longest:?}");
        }
        for seconds in [0, 299, 21_601] {
            assert_eq!(TtlLimit::new(Duration::from_secs(seconds)), None);
        }
    }

    #[test]
    fn the_tokens_of_the_key_before_are_good_and_of_the_one_before_that_no_more() {
        let first = keys();
        let token = token(&first, &cart(), 21_600);
        let second = first.rotated(key(2), NOW);
        assert!(second.verify(&token, &cart(), NOW).is_ok());
        let third = second.rotated(key(3), NOW);
        assert_eq!(third.verify(&token, &cart(), NOW), Err(BAD_TOKEN));
    }

    #[test]
    fn a_key_is_replaced_when_the_one_before_it_has_no_token_left() {
        let keys = keys();
        assert!(!keys.is_rotation_due(NOW) && !keys.is_rotation_due(UnixTime(0)));
        assert!(keys.is_rotation_due(NOW.plus(KEY_LIFE)));
        assert!(KEY_LIFE > MAX_TTL);
    }

    #[test]
    fn keys_outlive_the_agent() {
        let first = keys();
        let token = token(&first, &cart(), 60);
        let once = TokenSigningKeys::from_bytes(first.to_bytes().expose()).unwrap();
        assert!(once.verify(&token, &cart(), NOW).is_ok());
        let twice = TokenSigningKeys::from_bytes(once.rotated(key(2), NOW).to_bytes().expose()).unwrap();
        assert!(twice.verify(&token, &cart(), NOW).is_ok());
        assert!(!twice.is_rotation_due(NOW) && twice.is_rotation_due(NOW.plus(KEY_LIFE)));
    }

    #[test]
    fn damaged_keys_are_no_keys() {
        let whole = keys().rotated(key(2), NOW).to_bytes();
        let whole = whole.expose();
        for at in 0..whole.len() {
            assert!(TokenSigningKeys::from_bytes(&whole[..at]).is_err(), "cut at {at}");
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert!(TokenSigningKeys::from_bytes(&damaged).is_err(), "byte {at}");
        }
        let checked = |content: &[u8]| [content, &check(content)].concat();
        let none = checked(MAGIC);
        let three = checked(&[&MAGIC[..], &[0; 3 * KEPT_KEY]].concat());
        for bytes in [&*none, &three, b"", &[0; 96]] {
            assert_eq!(TokenSigningKeys::from_bytes(bytes).map(drop), Err(InvalidStoredTokenKeys));
        }
    }

    #[test]
    fn nothing_of_a_key_or_a_token_is_shown() {
        let keys = keys();
        let grant = keys.issue(&cart(), MAX_TTL, TtlLimit::default(), NOW);
        let shown = format!("{keys:?} {grant:?}");
        let token = String::from_utf8(grant.token().to_vec()).unwrap();
        assert!(!shown.contains(&token) && !shown.contains("1, 1"), "{shown}");
    }
}
