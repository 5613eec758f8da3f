//! Conceal mode: which requests may go on to the real metadata server, and in which words. The agent sends what
//! [`admit`] returns and nothing else of the client's.
//!
//! The rules are those of the field's concealing proxy (GoogleCloudPlatform/k8s-metadata-proxy), in this order: GET or
//! HEAD without a body; no mark of a relay; a path of a known API version; the flavour header; no concealed resource;
//! known query keys; recursion only below `service-accounts`. They deny by default.
//!
//! The security argument. The request that goes upstream is *built*, not passed on: a path of the alphabet of
//! [`seawall_http::path`], and query values that were each parsed and are written anew in characters that need no encoding.
//! It holds no `%`, `+`, `;` or doubled slash, so decoding it once more, or any number of times, yields the same
//! text, and the rules judged exactly what the real server reads. The real server takes names in any case, so rules that
//! deny compare without regard to case (and to punctuation, for good measure), while the one rule that grants
//! recursion compares names in full and by position.

use std::borrow::Cow;

use seawall_http::RequestHead;

use super::head::{self, GuardHeaders};
use super::query::{QueryParams, ResponseFormat, UNKNOWN_KEY, UnknownKeyPolicy, WaitForChange};
use crate::head::require_no_body;
use seawall_http::Refusal;
use seawall_http::path::{self, CanonicalPath};

/// The refusal of a method other than GET and HEAD.
pub const METHOD: Refusal = Refusal::new(403, "method", "Pods may only read metadata, with GET or HEAD.");
/// As [`METHOD`], of what google-auth does where it finds a certificate.
pub const BINDING: Refusal = Refusal::new(403, "method", head::BINDING);
/// The refusal of a path outside the known API versions.
pub const UNKNOWN_PATH: Refusal =
    Refusal::new(403, "unknown_path", "The path is not in a metadata API version that is known here.");
/// The refusal of a concealed resource.
pub const CONCEALED: Refusal =
    Refusal::new(403, "concealed", "This metadata belongs to the node and is concealed from pods.");
/// The refusal of recursion.
pub const RECURSION: Refusal =
    Refusal::new(403, "recursion", "Recursive requests are allowed below instance/service-accounts only.");
/// The refusal of `alt` on a directory.
pub const DIRECTORY_ALT: Refusal = Refusal::new(
    403,
    "directory_alt",
    "The alt parameter on a directory is allowed below instance/service-accounts only.",
);

/// A request that may be sent upstream.
///
/// Send it as GET (also for HEAD: what the real server makes of HEAD is not documented, and the body is cut off
/// by the response's frame) with `Metadata-Flavor: Google` and no header of the client's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmittedRequest<'b> {
    /// Canonical path and query. Equal requests have equal text.
    pub target: Cow<'b, str>,
    /// Set when the real server will hold the request; the deadline of the call must allow for it. The target carries
    /// the same bound as `timeout_sec`.
    pub wait_for_change: Option<WaitForChange<'b>>,
}

/// Decides whether a request may go upstream, and in which words.
///
/// # Errors
/// The first rule that forbids it.
pub fn admit<'b>(head: &RequestHead<'_, 'b>) -> Result<AdmittedRequest<'b>, Refusal> {
    head::require_read_method(head, METHOD, BINDING)?;
    require_no_body(head)?;
    let marks = GuardHeaders::of(head);
    marks.require_direct()?;
    let target = path::canonicalise(head.target)?;
    let place = PathScope::of(&target.path).ok_or(UNKNOWN_PATH)?;
    if place != PathScope::Discovery {
        marks.require_flavor()?;
    }
    if is_concealed(&target.path) {
        return Err(CONCEALED);
    }
    let params = QueryParams::parse(target.query, UnknownKeyPolicy::Refused)?;
    place.allows(&target.path, &params)?;
    let hold = if place == PathScope::Discovery { None } else { params.hold() };
    let query = upstream_query(&params, hold.as_ref())?;
    Ok(AdmittedRequest { target: join(target.path, &query), wait_for_change: hold })
}

/// Where a path is, as far as the rules care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathScope {
    /// Above the API versions: `/`, `/0.1/`, `/computeMetadata/`. Probes go there without the flavour header, and
    /// there is nothing to read but the names of versions.
    Discovery,
    /// Below `instance/service-accounts`, or `service-accounts` in 0.1, that directory included.
    ServiceAccounts,
    /// Elsewhere in a known version.
    Elsewhere,
}

impl PathScope {
    /// `None` is an unknown API: nobody knows what its paths reveal.
    ///
    /// The real server let 0.1 and v1beta1 be read without the flavour header while they lived, which made them the
    /// way around it. They are admitted because the field's proxy admits them, but with the header: whoever still
    /// asks for them can send it, and a forged request cannot.
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

    /// Recursion from anywhere above would print `attributes/kube-env` without naming it. Below `service-accounts` it is
    /// safe: tokens and identities are not part of recursion, and Python and Java need it.
    ///
    /// `alt` makes sense on a leaf and with recursion; what it prints for a directory is documented nowhere
    /// (today's server says 400), so outside `service-accounts` it is not tried on what [`is_directory`] takes for one. Keys of identity tokens are unknown
    /// here, because identity is concealed.
    fn allows(self, path: &CanonicalPath<'_>, params: &QueryParams<'_>) -> Result<(), Refusal> {
        let is_outside = self != Self::ServiceAccounts;
        params.refuse_binding()?;
        if params.concerns_identity() {
            Err(UNKNOWN_KEY)
        } else if is_outside && params.is_recursive() {
            Err(RECURSION)
        } else if is_outside && params.alt.is_some() && is_directory(path) {
            Err(DIRECTORY_ALT)
        } else {
            Ok(())
        }
    }
}

/// Whether the real server has a directory here, as far as that is known, with or without the slash at its end.
///
/// What must hold is that no directory *above* something concealed is asked for in another form, in whatever spelling. Those
/// are known in full and recognised by their place, not by a list that a new key could outgrow: the discovery paths, the
/// roots of the versions, in `v1` and `v1beta1` each child of a root (`instance`, `project`, `universe`, `oslogin`: none is a
/// leaf), and `attributes`. The directories of devices hide nothing; they are named so that the rule is one rule. Below
/// `attributes` stand only leaves, whatever their users called them.
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

/// Directories below `instance` and `project`, as [`FoldedName`] spells words (Compute Engine, "Predefined metadata keys").
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

/// Those among them whose children are directories, each named by its number.
const NUMBERED: [&str; 4] = ["accessconfigs", "disks", "licenses", "networkinterfaces"];

/// Names that are concealed wherever they stand, and everything below them, as [`FoldedName`] spells words.
///
/// The field's proxy concealed `kube-env` alone. The others hold, on the same nodes, what it was concealed for, and no
/// client library reads them: bootstrap and kubelet configuration, cloud-init data, scripts (which carry secrets as
/// often as not), who may log in, and the keys of the *machine's* workload certificates. What pods do read passes:
/// `cluster-name`, `cluster-location`, `cluster-uid`, `kube-labels`, a user's own keys.
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

/// Beginnings of names that are concealed as [`CONCEALED_NAMES`] are: families such as `startup-script-url`.
const CONCEALED_FAMILIES: [&str; 7] = [
    "kubeenv",
    "k8snodesetup",
    "shutdownscript",
    "startupscript",
    "sysprep",
    "windowsshutdownscript",
    "windowsstartupscript",
];

/// Whether any name on the path is concealed, or `identity` stands below `service-accounts`. The test does not ask at
/// which depth or in which version: a rule that is too wide hides a key that nobody named so, one that is too
/// narrow gives the node away.
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

/// The first letters and digits of a name, in lower case: `kube-env`, `Kube_Env` and `kubeEnv` read the same.
struct FoldedName {
    bytes: [u8; Self::ROOM],
    length: usize,
}

impl FoldedName {
    /// More than any word above has, so that a longer name equals none of them.
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

/// The query in canonical words. Every value was parsed to an alphabet that needs no encoding in a query (RFC 3986
/// section 3.4), so none is applied and none can be undone.
///
/// `last_etag` and `timeout_sec` mean nothing without `wait_for_change` and are left out then.
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

/// Borrowed from the request when the client sent just this.
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
