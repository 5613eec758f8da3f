//! Implements conceal mode: decides which requests go to the real metadata server, and rewrites these requests.
//!
//! [`admit_request`] builds every request that the agent sends to the real server.
//!
//! The rules follow Google's concealing proxy (GoogleCloudPlatform/k8s-metadata-proxy) and deny by default. A request needs, in
//! this order:
//!
//! - GET or HEAD without a body;
//! - no header of a proxy;
//! - a path of a known API version;
//! - the flavour header, `Metadata-Flavor: Google`;
//! - no concealed resource;
//! - known query keys;
//! - recursion only below `service-accounts`.
//!
//! The security argument: the agent *builds* the upstream request and does not forward the client's request. The path contains
//! only the characters of [`PLAIN_CHARSET`](seawall_http::path::PLAIN_CHARSET). The agent parses each query value and writes it
//! again in characters that need no encoding. The upstream request contains no `%`, `+`, `;` or double slash. So a server gets
//! the same text even if it decodes the request several times. The rules therefore apply to exactly the text that the real
//! server interprets.
//!
//! The real server accepts names in any letter case. So the rules that deny a request ignore letter case, and for safety they
//! also ignore punctuation. The rule that allows recursion is stricter: it compares whole names at their positions.

use std::borrow::Cow;

use seawall_http::RequestHead;

use super::query::{QueryParams, ResponseFormat, UNKNOWN_PARAMETER, UnknownKeyPolicy, WaitForChange};
use super::request_head_rules::{self, GuardHeaders};
use crate::request_head_rules::require_no_body;
use seawall_http::Refusal;
use seawall_http::path::{self, CanonicalPath};

/// The refusal for a method other than GET and HEAD.
pub const READ_ONLY_METHODS_REFUSAL: Refusal =
    Refusal::new(403, "method_not_allowed", "Pods may only read metadata, with GET or HEAD.");
/// The refusal for the POST that google-auth sends if it finds a client certificate. Only the message differs from
/// [`READ_ONLY_METHODS_REFUSAL`].
pub const CERTIFICATE_BINDING_UNSUPPORTED: Refusal =
    Refusal::new(403, "method_not_allowed", request_head_rules::CERTIFICATE_BINDING_MESSAGE);
/// The refusal for a path outside the known API versions.
pub const UNKNOWN_PATH: Refusal =
    Refusal::new(403, "unknown_path", "The path is not in a metadata API version that the agent supports.");
/// The refusal for a concealed resource.
pub const CONCEALED: Refusal =
    Refusal::new(403, "concealed", "This metadata belongs to the node and is concealed from pods.");
/// The refusal for a recursive read where recursion is not allowed.
pub const RECURSION_NOT_ALLOWED: Refusal = Refusal::new(
    403,
    "recursion_not_allowed",
    "Recursive requests are allowed below instance/service-accounts only.",
);
/// The refusal for `alt` on a directory outside `service-accounts`.
pub const ALT_NOT_ALLOWED: Refusal = Refusal::new(
    403,
    "alt_not_allowed",
    "The alt parameter on a directory is allowed below instance/service-accounts only.",
);

/// A request that the agent is allowed to send to the real server.
///
/// The agent sends the request as GET with `Metadata-Flavor: Google` and without the client's headers. The agent sends GET even
/// for HEAD, because the real server's behaviour on HEAD is undocumented. The response writer then omits the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmittedRequest<'b> {
    /// The canonical path and query. Equal requests have equal text.
    pub target: Cow<'b, str>,
    /// The long poll that the request asks for.
    ///
    /// The caller's timeout must be longer than the long poll's timeout, which the target contains as `timeout_sec`.
    pub long_poll: Option<WaitForChange<'b>>,
    /// True if a successful response contains an access token of the node.
    pub is_token_request: bool,
}

/// Decides whether to send a request to the real server, and rewrites the request.
///
/// # Errors
/// The first rule that forbids the request.
pub fn admit_request<'b>(head: &RequestHead<'_, 'b>) -> Result<AdmittedRequest<'b>, Refusal> {
    request_head_rules::require_read_method(
        head,
        READ_ONLY_METHODS_REFUSAL,
        CERTIFICATE_BINDING_UNSUPPORTED,
    )?;
    require_no_body(head)?;
    let marks = GuardHeaders::from_request(head);
    marks.require_not_proxied()?;
    let target = path::canonicalise_target(head.target)?;
    let place = PathScope::of(&target.path).ok_or(UNKNOWN_PATH)?;
    if place != PathScope::Discovery {
        marks.require_flavor()?;
    }
    if is_concealed(&target.path) {
        return Err(CONCEALED);
    }
    let params = QueryParams::parse(target.query, UnknownKeyPolicy::RefusedUnlessHarmless)?;
    place.allows(&target.path, &params)?;
    let hold = if place == PathScope::Discovery { None } else { params.long_poll() };
    let query = upstream_query(&params, hold.as_ref())?;
    let is_token_request = is_token(&target.path);
    Ok(AdmittedRequest { target: join(target.path, &query), long_poll: hold, is_token_request })
}

/// The part of the metadata tree to which a path belongs. Each part has its own rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathScope {
    /// A path above the API versions: `/`, `/0.1/`, `/computeMetadata/`.
    ///
    /// Libraries that look for a metadata server read these paths without the flavour header. The directories at these paths
    /// list only the names of versions.
    Discovery,
    /// The directory `instance/service-accounts`, or `service-accounts` in 0.1, and everything below it.
    ServiceAccounts,
    /// Any other path of a known version.
    Elsewhere,
}

impl PathScope {
    /// Returns the scope of a path, or `None` for an unknown API version, whose content is unknown.
    ///
    /// The real server once answered requests for 0.1 and v1beta1 without the flavour header, so attackers could avoid the
    /// check. Like k8s-metadata-proxy, the agent admits these versions but requires the header. Legitimate clients can send the
    /// header. An attacker who forges a request cannot add the header.
    fn of(path: &CanonicalPath<'_>) -> Option<Self> {
        let mut names = path.segments();
        let mut name = || names.next().unwrap_or_default();
        let [first, second, third, fourth] = [name(), name(), name(), name()];
        let is = str::eq_ignore_ascii_case;
        let in_accounts = match second {
            "" if first.is_empty() || is(first, "0.1") || is(first, "computeMetadata") => {
                return Some(Self::Discovery);
            }
            _ if is(first, "0.1") && is(second, "meta-data") => is(third, "service-accounts"),
            _ if is(first, "computeMetadata") && (is(second, "v1") || is(second, "v1beta1")) => {
                is(third, "instance") && is(fourth, "service-accounts")
            }
            _ => return None,
        };
        Some(if in_accounts { Self::ServiceAccounts } else { Self::Elsewhere })
    }

    /// Checks the query parameters with the rules of this scope.
    ///
    /// A recursive read above `service-accounts` would return `attributes/kube-env`, although the path does not contain that
    /// name. Below `service-accounts` recursion is safe, because a recursive response contains no tokens. The Python and Java
    /// SDKs need recursion there.
    ///
    /// `alt` is useful on a leaf and with recursion. The real server's response to `alt` on a directory is undocumented (today
    /// it is 400). So outside `service-accounts` the agent refuses `alt` where [`is_directory`] is true. The agent conceals
    /// identity tokens, so it refuses the query keys for identity tokens like unknown keys.
    fn allows(self, path: &CanonicalPath<'_>, params: &QueryParams<'_>) -> Result<(), Refusal> {
        let is_outside = self != Self::ServiceAccounts;
        params.refuse_certificate_binding()?;
        if params.has_id_token_key() {
            Err(UNKNOWN_PARAMETER)
        } else if is_outside && params.is_recursive() {
            Err(RECURSION_NOT_ALLOWED)
        } else if is_outside && params.alt.is_some() && is_directory(path) {
            Err(ALT_NOT_ALLOWED)
        } else {
            Ok(())
        }
    }
}

/// True if the real server is known to have a directory at this path, with or without a final slash.
///
/// The rule must recognise each directory *above* a concealed entry, in any spelling. Otherwise a client could read the entry
/// with `alt` on the directory. All these directories are known. The rule finds them by their position, so a new metadata key
/// does not make the rule incomplete:
///
/// - the discovery paths and the roots of the versions;
/// - in `v1` and `v1beta1` each child of a root (`instance`, `project`, `universe`, `oslogin`; all of them are directories);
/// - `attributes`.
///
/// The directories of devices, such as `disks`, contain no concealed entry. [`DIRECTORIES`] includes them so that all
/// directories follow one rule. Below `attributes` there are only leaves, with any names.
fn is_directory(path: &CanonicalPath<'_>) -> bool {
    let depth = path.segments().count();
    let is_root = match path.segments().next() {
        Some(first) if first.eq_ignore_ascii_case("computeMetadata") => depth <= 3,
        _ => depth <= 2,
    };
    let mut from_the_end = path.segments().rev();
    let (last, above) = (from_the_end.next().unwrap_or_default(), from_the_end.next().unwrap_or_default());
    let is = |name: &str, word: &str| FoldedName::of(name).as_bytes() == word.as_bytes();
    let is_numbered =
        || last.bytes().all(|byte| byte.is_ascii_digit()) && NUMBERED.iter().any(|word| is(above, word));
    path.is_directory()
        || is_root
        || !is(above, "attributes") && (DIRECTORIES.iter().any(|word| is(last, word)) || is_numbered())
}

/// The directories below `instance` and `project`, spelled as [`FoldedName`]s (Compute Engine, "Predefined metadata keys").
const DIRECTORIES: [&str; 10] = [
    "accessconfigs",
    "attributes",
    "disks",
    "guestattributes",
    "licenses",
    "networkinterfaces",
    "partnerattributes",
    "scheduling",
    "serviceaccounts",
    "virtualclock",
];

/// The entries of [`DIRECTORIES`] whose children are numbered directories.
const NUMBERED: [&str; 4] = ["accessconfigs", "disks", "licenses", "networkinterfaces"];

/// The concealed names, spelled as [`FoldedName`]s. A path that contains such a name at any position is concealed.
///
/// k8s-metadata-proxy conceals only `kube-env`. The entries with the other names contain similar secrets on the same nodes, and
/// no client library reads these entries:
///
/// - bootstrap and kubelet configuration;
/// - cloud-init data;
/// - scripts, which often contain secrets;
/// - login rights;
/// - the keys of the *machine's* workload certificates.
///
/// Names that pods do read are allowed: `cluster-name`, `cluster-location`, `cluster-uid`, `kube-labels` and a user's own keys.
const CONCEALED_NAMES: [&str; 11] = [
    "authorizedkeys",
    "configuresh",
    "credentials",
    "gceworkloadcertificates",
    "kubeconfig",
    "kubeletconfig",
    "oslogin",
    "sshkeys",
    "userdata",
    "windowskeys",
    "workloadidentities",
];

/// Prefixes of concealed names: `startupscript` also conceals `startup-script-url`. See [`CONCEALED_NAMES`].
const CONCEALED_FAMILIES: [&str; 7] = [
    "kubeenv",
    "k8snodesetup",
    "shutdownscript",
    "startupscript",
    "sysprep",
    "windowsshutdownscript",
    "windowsstartupscript",
];

/// True if any name on the path is concealed, or if `identity` occurs below `service-accounts`.
///
/// The rule ignores depth and version. At worst, the rule also conceals a user's own key with such a name. A narrower rule
/// could expose the node's secrets.
fn is_concealed(path: &CanonicalPath<'_>) -> bool {
    let mut in_accounts = false;
    path.segments().any(|name| {
        let letters = FoldedName::of(name);
        let letters = letters.as_bytes();
        let is_identity = in_accounts && letters == b"identity";
        in_accounts |= letters == b"serviceaccounts";
        is_identity
            || CONCEALED_NAMES.iter().any(|word| letters == word.as_bytes())
            || CONCEALED_FAMILIES.iter().any(|word| letters.starts_with(word.as_bytes()))
    })
}

/// True if the real server has an access token at this path: `service-accounts/ACCOUNT/token`, or in 0.1
/// `service-accounts/ACCOUNT/acquire` and `auth-token`.
fn is_token(path: &CanonicalPath<'_>) -> bool {
    let mut from_the_end = path.segments().rev();
    let mut name = || FoldedName::of(from_the_end.next().unwrap_or_default());
    let [last, _account, directory] = [name(), name(), name()];
    match last.as_bytes() {
        b"token" | b"acquire" => directory.as_bytes() == b"serviceaccounts",
        last => last == b"authtoken",
    }
}

/// The first 24 letters and digits of a name, in lower case. So `kube-env`, `Kube_Env` and `kubeEnv` have the same folded name.
struct FoldedName {
    bytes: [u8; Self::ROOM],
    length: usize,
}

impl FoldedName {
    /// The maximum length of a folded name. Every word in the lists of this file is shorter, so a shortened name never equals
    /// one of these words.
    const ROOM: usize = 24;

    fn of(name: &str) -> Self {
        let mut letters = Self { bytes: [0; Self::ROOM], length: 0 };
        let plain = name.bytes().filter(u8::is_ascii_alphanumeric);
        for (place, byte) in letters.bytes.iter_mut().zip(plain) {
            *place = byte.to_ascii_lowercase();
            letters.length += 1;
        }
        letters
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Returns the query in canonical form.
///
/// Parsed values need no encoding in a query (RFC 3986 section 3.4).
///
/// Without `wait_for_change`, the keys `last_etag` and `timeout_sec` have no effect, so the function omits them.
fn upstream_query(params: &QueryParams<'_>, hold: Option<&WaitForChange<'_>>) -> Result<String, Refusal> {
    let mut query = String::new();
    let mut push = |key: &str, value: &str| {
        query.push(if query.is_empty() { '?' } else { '&' });
        query.extend([key, "=", value]);
    };
    if params.is_recursive() {
        push("recursive", "true");
    }
    if let Some(alt) = params.alt {
        push("alt", if alt == ResponseFormat::Json { "json" } else { "text" });
    }
    if let Some(scopes) = params.scopes()? {
        push("scopes", &scopes.replace(' ', ","));
    }
    if let Some(hold) = hold {
        push("wait_for_change", "true");
        hold.last_etag.iter().for_each(|etag| push("last_etag", etag));
        push("timeout_sec", &hold.timeout.as_secs().to_string());
    }
    Ok(query)
}

/// Joins path and query. If the query is empty and the request's path was already canonical, the result borrows from the request.
fn join<'b>(path: CanonicalPath<'b>, query: &str) -> Cow<'b, str> {
    let path = path.into_text();
    if query.is_empty() { path } else { (path.into_owned() + query).into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_leave_room_for_one_letter_more() {
        for word in CONCEALED_NAMES.iter().chain(&CONCEALED_FAMILIES).chain(&DIRECTORIES).chain(&NUMBERED) {
            assert!(word.len() < FoldedName::ROOM, "{word}");
            assert_eq!(FoldedName::of(word).as_bytes(), word.as_bytes());
        }
    }
}
