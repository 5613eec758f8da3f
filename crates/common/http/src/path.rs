//! Converts each path to one canonical form, before any rule uses it. Every dialect first calls [`canonicalise_target`] or
//! [`canonicalise_target_with`] and never uses the raw path.
//!
//! The rules that allow or deny a path rely on this step. These rules fail if the agent and the real server interpret a path
//! differently. So a path must have only one interpretation: the agent decodes percent escapes once, and each decoded character
//! must be in the dialect's [`PathCharset`]. The agent refuses an encoded slash, percent sign, backslash, NUL, semicolon or
//! question mark. It also refuses bytes outside ASCII. A dialect can decode an encoded slash
//! ([`PathCharset::decoding_slashes`]), if it then refuses all paths in which no client sends one. A canonical path contains no `%`, and no character that a server would
//! decode, split or strip again. So every server interprets a canonical path in the same way.
//!
//! A charset contains only the characters that its dialect needs. The real server to which the agent forwards a path can
//! interpret a character differently. For example, some servers read `+` as a space. Only the dialect knows which real server
//! gets the path.

use std::borrow::Cow;

use crate::Refusal;

/// The refusal for a path that has no canonical form.
pub const BAD_PATH: Refusal = Refusal::new(
    400,
    "bad_path",
    "The path contains a character or an encoding that is not allowed in a metadata path.",
);

/// The refusal for a target that is neither a path nor an http URL.
pub const BAD_TARGET: Refusal =
    Refusal::new(400, "bad_target", "The request target must be a path or a plain http URL.");

/// A request target, split into its canonical path and its raw query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestTarget<'b> {
    /// The canonical path.
    pub path: CanonicalPath<'b>,
    /// The text after the first question mark, as the client sent it.
    pub query: Option<&'b str>,
}

/// A canonical path. It starts with a slash and has no empty, `.` or `..` segment. It contains only characters of the dialect's
/// [`PathCharset`]. If the client sent the canonical form, the value borrows from the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanonicalPath<'b>(Cow<'b, str>);

impl<'b> CanonicalPath<'b> {
    /// Returns the path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the path as text. The text stays borrowed if the path was borrowed.
    pub fn into_text(self) -> Cow<'b, str> {
        self.0
    }

    /// True if the path ends with a slash.
    pub fn is_directory(&self) -> bool {
        self.0.ends_with('/')
    }

    /// Returns the segments between the slashes. No segment is empty.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &str> + Clone {
        segments(&self.0)
    }
}

/// Returns the segments of `path` between the slashes. No segment is empty.
pub fn segments(path: &str) -> impl DoubleEndedIterator<Item = &str> + Clone {
    path.split('/').filter(|segment| !segment.is_empty())
}

/// Splits a target and canonicalises its path with the charset [`PLAIN_CHARSET`].
///
/// # Errors
/// [`BAD_TARGET`] or [`BAD_PATH`].
pub fn canonicalise_target(target: &str) -> Result<RequestTarget<'_>, Refusal> {
    canonicalise_target_with(target, &PLAIN_CHARSET)
}

/// Splits a target and canonicalises its path with the given charset.
///
/// The function drops the host of an absolute target (RFC 9112 section 3.2.2). It checks neither that host nor the Host header,
/// because the path rules are the same for every host name.
///
/// # Errors
/// [`BAD_TARGET`] or [`BAD_PATH`].
pub fn canonicalise_target_with<'b>(
    target: &'b str,
    alphabet: &PathCharset,
) -> Result<RequestTarget<'b>, Refusal> {
    let origin = if target.starts_with('/') { target } else { after_authority(target)? };
    let end = canonical_prefix(origin, alphabet);
    let borrowed = |path, query| Ok(RequestTarget { path: CanonicalPath(Cow::Borrowed(path)), query });
    match origin.as_bytes().get(end) {
        None if end > 0 => borrowed(origin, None),
        Some(b'?') if end > 0 => borrowed(&origin[..end], Some(&origin[end + 1..])),
        _ => rebuilt(origin, alphabet),
    }
}

/// Canonicalises a path that can contain escapes, `.` or `..` segments, or no leading slash.
fn rebuilt<'b>(origin: &'b str, alphabet: &PathCharset) -> Result<RequestTarget<'b>, Refusal> {
    let (path, query) = match origin.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (origin, None),
    };
    let path = rebuild(if path.is_empty() { "/" } else { path }, alphabet)?;
    Ok(RequestTarget { path: CanonicalPath(path.into()), query })
}

/// True if the path of a target has an encoded slash. The query does not count.
pub fn has_encoded_slash(target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    // Nearly no path has a percent sign, and the search for one byte is fast.
    path.contains('%') && path.as_bytes().windows(3).any(|bytes| bytes.eq_ignore_ascii_case(b"%2f"))
}

/// Returns the text after `http://authority`. The function refuses other schemes, because they would mean another server. It
/// also refuses user information, which could only disguise the host.
fn after_authority(target: &str) -> Result<&str, Refusal> {
    const SCHEME: &str = "http://";
    let (scheme, rest) = target.split_at_checked(SCHEME.len()).ok_or(BAD_TARGET)?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, origin) = rest.split_at(end);
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    if scheme.eq_ignore_ascii_case(SCHEME) && !authority.is_empty() && authority.bytes().all(is_host) {
        Ok(origin)
    } else {
        Err(BAD_TARGET)
    }
}

/// Returns the length of a canonical prefix of the target. For nearly every client the prefix is the whole path. The prefix can
/// end too early, at a segment that begins with a dot, but it never ends too late. An early end is harmless: the caller then
/// rebuilds the path, and rebuilding does not change a canonical path.
fn canonical_prefix(origin: &str, PathCharset { kinds, .. }: &PathCharset) -> usize {
    // This loop takes a tenth of the time of a response from the cache. So it uses a table instead of a branch for each kind of
    // character.
    let mut refused = OTHER;
    let mut is_fit = |byte: u8| {
        let kind = kinds[usize::from(byte)];
        let is_fit = kind & refused == 0;
        refused = if kind == SLASH { OTHER | SLASH | DOT } else { OTHER };
        is_fit
    };
    if !origin.starts_with('/') {
        return 0;
    }
    origin.bytes().position(|byte| !is_fit(byte)).unwrap_or(origin.len())
}

const SLASH: u8 = 1;
const DOT: u8 = 2;
const OTHER: u8 = 4;

/// The characters that the paths of a dialect may contain.
///
/// The table has flags for each byte: the byte separates segments, can begin a special segment such as `..`, or is not allowed.
#[derive(Debug)]
pub struct PathCharset {
    kinds: [u8; 256],
    /// True if an encoded slash separates segments, as a plain slash does.
    decodes_slashes: bool,
}

/// The charset for key names, e-mail addresses and domain-scoped projects. Every other charset includes these characters.
pub static PLAIN_CHARSET: PathCharset = PathCharset::with_extra(b"");

impl PathCharset {
    /// Creates a charset of letters, digits, `/ - . _ ~ @ :`, and the characters in `more`. `more` can contain the
    /// sub-delimiters of RFC 3986 except the semicolon, at which some servers split a segment.
    ///
    /// # Panics
    /// Panics if `more` contains any other character. For a constant, the compiler reports the panic.
    pub const fn with_extra(more: &[u8]) -> Self {
        let mut kinds = [OTHER; 256];
        let mut byte = 0;
        while byte < 128 {
            kinds[byte as usize] = match byte {
                b'/' => SLASH,
                b'.' => DOT,
                _ if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~' | b'@' | b':') => 0,
                _ => OTHER,
            };
            byte += 1;
        }
        let mut at = 0;
        while at < more.len() {
            assert!(matches!(more[at], b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b'='));
            kinds[more[at] as usize] = 0;
            at += 1;
        }
        Self { kinds, decodes_slashes: false }
    }

    /// Returns this charset for a dialect in which an encoded slash separates segments, as a plain slash does.
    ///
    /// The agent and another server could split such a path differently. So the dialect must refuse each target with
    /// [`has_encoded_slash`] whose canonical path it forwards, or for which it has no need of the encoding.
    #[must_use]
    pub const fn decoding_slashes(self) -> Self {
        Self { decodes_slashes: true, ..self }
    }

    fn has(&self, byte: u8) -> bool {
        self.kinds[usize::from(byte)] != OTHER
    }

    fn has_encoded(&self, byte: u8) -> bool {
        self.has(byte) && (byte != b'/' || self.decodes_slashes)
    }
}

/// Decodes the path, drops empty and `.` segments, and lets each `..` remove the segment before it. The result never leaves the
/// root.
fn rebuild(raw: &str, alphabet: &PathCharset) -> Result<String, Refusal> {
    let decoded = decode(raw, alphabet)?;
    let mut names = Vec::new();
    for name in decoded.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    let last = decoded.rsplit('/').next().unwrap_or_default();
    let mut path = String::with_capacity(decoded.len() + 1);
    for name in &names {
        path.push('/');
        path.push_str(name);
    }
    if names.is_empty() || matches!(last, "" | "." | "..") {
        path.push('/');
    }
    Ok(path)
}

fn decode(raw: &str, alphabet: &PathCharset) -> Result<String, Refusal> {
    let mut decoded = String::with_capacity(raw.len());
    let mut bytes = raw.bytes();
    while let Some(byte) = bytes.next() {
        let plain = match byte {
            b'%' => decode_percent_digits(&mut bytes).filter(|&byte| alphabet.has_encoded(byte)),
            byte => Some(byte).filter(|&byte| alphabet.has(byte)),
        };
        decoded.push(char::from(plain.ok_or(BAD_PATH)?));
    }
    Ok(decoded)
}

/// Decodes the two hexadecimal digits after a percent sign into a byte. Both letter cases are allowed.
pub fn decode_percent_digits(bytes: &mut impl Iterator<Item = u8>) -> Option<u8> {
    let mut digit = || char::from(bytes.next()?).to_digit(16);
    let value = digit()? << 4 | digit()?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn canonical(target: &str) -> Result<String, Refusal> {
        canonicalise_target(target).map(|target| target.path.into_text().into_owned())
    }

    /// The rest of the charset stays as it is: only the slash is decoded, and only once.
    #[test]
    fn a_dialect_can_decode_slashes_and_tell_that_there_were_any() {
        static SLASHES: PathCharset = PathCharset::with_extra(b"").decoding_slashes();
        let canonical_in =
            |raw| canonicalise_target_with(raw, &SLASHES).map(|target| target.path.into_text());
        for (raw, path) in [
            ("/a%2fb%2Fc", "/a/b/c"),
            ("/a/b%2f..%2f..%2Fc", "/c"),
            ("/a%2f%2e%2e%2f%2e%2e%2fc", "/c"),
            ("/a%2f", "/a/"),
            ("%2fa", "/a"),
        ] {
            let refused = raw.starts_with('%');
            let expected = if refused { Err(BAD_TARGET) } else { Ok(path.into()) };
            assert_eq!((canonical_in(raw), has_encoded_slash(raw)), (expected, true), "{raw}");
        }
        for raw in ["/a%252fb", "/a%5cb", "/a%3bb", "/a%3fb", "/a%00", "/a%2", "/a%"] {
            assert_eq!((canonical_in(raw), has_encoded_slash(raw)), (Err(BAD_PATH), false), "{raw}");
        }
        assert!(!has_encoded_slash("/a?b=%2f") && !has_encoded_slash("/a/b"));
    }

    #[test]
    fn what_clients_send_is_borrowed() {
        for path in [
            "/",
            "/computeMetadata/v1/instance/service-accounts/default/token",
            "/computeMetadata/v1/instance/service-accounts/me@shop.iam.gserviceaccount.com/email",
            "/computeMetadata/v1/instance/service-accounts/",
            "/0.1/meta-data/",
        ] {
            let target = canonicalise_target(path).unwrap();
            assert!(matches!(target.path.into_text(), Cow::Borrowed(text) if text == path), "{path}");
        }
    }

    #[test]
    fn every_spelling_of_a_path_has_one_canonical_form() {
        for (raw, canonical_form) in [
            ("//a", "/a"),
            ("/a//b///", "/a/b/"),
            ("/a/./b", "/a/b"),
            ("/a/../b", "/b"),
            ("/../../a", "/a"),
            ("/a/..", "/"),
            ("/a/b/..", "/a/"),
            ("/a/b/.", "/a/b/"),
            ("/%61/%62%2e/%2E%2e/c", "/a/c"),
            ("/a%40b", "/a@b"),
            ("/.hidden/...", "/.hidden/..."),
            ("/%2e", "/"),
        ] {
            assert_eq!(canonical(raw).as_deref(), Ok(canonical_form), "{raw}");
        }
    }

    #[test]
    fn what_two_servers_could_read_differently_is_refused() {
        for raw in [
            "/a%2fb", "/a%2Fb", "/a%252fb", "/a%2561", "/a%25", "/a%5cb", "/a\\b", "/a%00", "/a\0", "/a;b=1",
            "/a%3bb", "/a%3Fb", "/a%23b", "/a#b", "/a%", "/a%4", "/a%zz", "/a%+1", "/é", "/%c3%a9", "/a%0ab",
            "/a b", "/a%20b", "/a+b", "/a,b", "/a%ff", "/%u0061",
        ] {
            assert_eq!(canonical(raw), Err(BAD_PATH), "{raw}");
        }
    }

    #[test]
    fn an_alphabet_lets_pass_what_it_names_and_nothing_else() {
        let roles = const { PathCharset::with_extra(b"+=,") };
        let canonical_in =
            |raw| canonicalise_target_with(raw, &roles).map(|target| target.path.into_text().into_owned());
        for raw in ["/roles/a+b=c,d@e", "/roles/a%2bb%3Dc%2Cd%40e"] {
            assert_eq!(canonical_in(raw).as_deref(), Ok("/roles/a+b=c,d@e"));
            assert_eq!(canonical(raw), Err(BAD_PATH), "not in another's: {raw}");
        }
        for raw in ["/a%2fb", "/a%25", "/a\\b", "/a;b", "/a%3Fb", "/a#b", "/a%00", "/a b", "/a*b", "/%c3%a9"]
        {
            assert_eq!(canonical_in(raw), Err(BAD_PATH), "{raw}");
        }
    }

    #[test]
    fn an_absolute_target_is_read_as_its_path() {
        for (raw, path, query) in [
            ("http://metadata.google.internal/computeMetadata/v1/", "/computeMetadata/v1/", None),
            ("HTTP://169.254.169.254:80/a?b=c", "/a", Some("b=c")),
            ("http://metadata", "/", None),
            ("http://metadata?x", "/", Some("x")),
            ("http://[fd20:ce::254]/a?b?c", "/a", Some("b?c")),
        ] {
            let target = canonicalise_target(raw).unwrap();
            assert_eq!((target.path.as_str(), target.query), (path, query), "{raw}");
        }
        for raw in [
            "https://metadata/a",
            "http:///a",
            "http://u@metadata/a",
            "ftp://x/",
            "*",
            "",
            "a",
            "m:80",
            "http:/",
        ] {
            assert_eq!(canonical(raw), Err(BAD_TARGET), "{raw}");
        }
    }

    #[test]
    fn a_directory_is_a_path_that_ends_in_a_slash() {
        for (raw, is_directory) in [("/", true), ("/a", false), ("/a/", true), ("/a/%2e", true)] {
            assert_eq!(canonicalise_target(raw).unwrap().path.is_directory(), is_directory, "{raw}");
        }
    }

    proptest! {
        #[test]
        fn canonicalising_twice_changes_nothing(raw in "/([a-c./%@:25eEfF]|%2[eEfF5]|%61|//|/\\.\\./|/\\./){0,24}") {
            if let Ok(once) = canonical(&raw) {
                prop_assert!(once.starts_with('/') && !once.contains("//") && !once.contains('%'), "{}", once);
                prop_assert!(once.split('/').all(|name| name != "." && name != ".."), "{}", once);
                prop_assert_eq!(canonical(&once), Ok(once.clone()));
            }
        }

        #[test]
        fn the_quick_look_agrees_with_the_rebuild(raw in "/[a-c./@]{0,16}") {
            prop_assert_eq!(canonical(&raw), rebuild(&raw, &PLAIN_CHARSET));
        }
    }
}
