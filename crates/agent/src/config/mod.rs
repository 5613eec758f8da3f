//! The configuration file: raw text to checked values, every mistake at once.
//!
//! What leaves this module needs no further check. It knows YAML and ranges; it opens nothing but the file itself
//! and those that it names (an identity file is `attest`'s), and resolves no names. `default.yaml` is both the documentation and the source of `config-default`; a test
//! keeps it equal to the defaults here.

mod effective;
mod identity;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use seawall_attest::file;
use seawall_document::{Document, Mistakes, Table};

pub(crate) use effective::effective;
pub(crate) use identity::{Identity, SourceIp};

/// The documented default, as `config-default` prints it.
pub(crate) const DEFAULT: &str = include_str!("default.yaml");

/// Largest configuration, and largest file that one names and that is not an identity file, in bytes. All public roots together
/// take a quarter of it.
const LARGEST: usize = 1024 * 1024;

/// A checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    pub(crate) listen: Vec<SocketAddr>,
    pub(crate) admin: SocketAddr,
    pub(crate) mode: Mode,
    /// The real metadata server: behind all of `conceal`, and behind the passthrough of `source-ip`.
    pub(crate) conceal: Conceal,
    pub(crate) identity: Identity,
    pub(crate) limits: Limits,
    pub(crate) threads: Threads,
    pub(crate) log_level: tracing::Level,
}

/// How Google's metadata server is answered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Mode {
    Federate(Box<Federate>),
    Conceal,
}

/// What `federate` answers and whom it asks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Federate {
    pub(crate) project_id: String,
    pub(crate) numeric_project_id: u64,
    pub(crate) zone: String,
    pub(crate) instance_id: u64,
    pub(crate) instance_name: String,
    pub(crate) hostname: String,
    pub(crate) cluster_name: String,
    pub(crate) cluster_location: String,
    pub(crate) cluster_uid: String,
    pub(crate) universe_domain: String,
    pub(crate) workload_pool: String,
    pub(crate) provider: String,
    pub(crate) token_audience: String,
    pub(crate) exchange: Exchange,
    pub(crate) sts_url: String,
    pub(crate) iam_url: String,
    /// More roots to trust at both URLs.
    pub(crate) ca_file: Option<PathBuf>,
    /// The HTTP proxy through which both are reached.
    pub(crate) proxy: Option<String>,
}

/// How a Kubernetes token becomes a federated one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exchange {
    /// RFC 8693 at STS, for a workload identity pool provider.
    Sts,
    /// As GKE's own workload identity pools: JSON at `identitybindingtoken`.
    IdentityBindingToken,
}

/// The real metadata server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conceal {
    pub(crate) upstream: String,
}

/// What a pod may hold open, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limits {
    /// `None`: as many as memory and open files allow.
    pub(crate) connections: Option<u32>,
    /// `None`: a share of those.
    pub(crate) connections_per_pod: Option<u32>,
    pub(crate) head_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) long_polls: u32,
    pub(crate) long_polls_per_pod: u32,
    pub(crate) forwards: u32,
}

/// How many threads answer pods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Threads {
    Auto,
    Fixed(usize),
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("cannot read the configuration {path}: {reason}")]
    Unreadable { path: PathBuf, reason: String },
    #[error("{path} has {} mistake(s):\n{mistakes}", mistakes.0.len())]
    Mistaken { path: PathBuf, mistakes: Mistakes },
}

impl Config {
    /// Reads and checks a file; relative paths in it are relative to its folder.
    ///
    /// # Errors
    /// The file cannot be read, or every mistake in it.
    pub(crate) fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = file::read(path, LARGEST)
            .map_err(|reason| ConfigError::Unreadable { path: path.into(), reason })?;
        let base = path.parent().unwrap_or(Path::new(""));
        // The downward API gives a pod its node's name this way and no other.
        let node = std::env::var("NODE_NAME").ok();
        Self::parse(text.expose(), base, node.as_deref())
            .map_err(|mistakes| ConfigError::Mistaken { path: path.into(), mistakes })
    }

    /// Checks a text; `base` is where its relative paths start, `node` the node's name where the text leaves it out.
    ///
    /// # Errors
    /// Every mistake.
    pub(crate) fn parse(text: &str, base: &Path, node: Option<&str>) -> Result<Self, Mistakes> {
        let document = Document::parse(text)?;
        let config = Self::read(&document.root(), base, node);
        document.finish(config)
    }

    fn read(root: &Table<'_>, base: &Path, node: Option<&str>) -> Self {
        let mode = Mode::read(root, base);
        let identity = Identity::read(&root.key("identity").table(), &mode, base, node);
        let listen = listen(root);
        let conceal = Conceal::read(&root.key("conceal").table());
        if (mode == Mode::Conceal || identity.passes_through()) && conceal.is_one_of(&listen) {
            let own = "the real metadata server; the agent itself listens at this address";
            root.key("conceal").table().key("upstream").mistake(own);
        }
        Self {
            listen,
            admin: root.key("admin").text(ADDRESS, |t| t.parse().ok()).unwrap_or(loopback(8989)),
            identity,
            mode,
            conceal,
            limits: Limits::read(&root.key("limits").table()),
            threads: Threads::read(root),
            log_level: root.key("logLevel").text(LEVEL, log_level).unwrap_or(tracing::Level::INFO),
        }
    }
}

const ADDRESS: &str = "an address and port such as 127.0.0.1:8988";
const LEVEL: &str = "error, warn, info or debug";

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn listen(root: &Table<'_>) -> Vec<SocketAddr> {
    let node = root.key("listen");
    if !node.is_present() {
        return vec![loopback(8988)];
    }
    let items = node.list();
    if items.is_empty() {
        node.mistake("at least one address and port");
    }
    items.iter().filter_map(|item| item.text(ADDRESS, |t| t.parse().ok())).collect()
}

fn log_level(text: &str) -> Option<tracing::Level> {
    ["error", "warn", "info", "debug"].contains(&text).then(|| text.parse().ok())?
}

impl Mode {
    fn read(root: &Table<'_>, base: &Path) -> Self {
        // Both sections are read whichever mode is on, so that a file prepared for both is checked as a whole.
        let mode = root.key("mode");
        let wanted =
            mode.text("federate or conceal", |t| ["federate", "conceal"].iter().find(|m| **m == t).copied());
        let conceals = wanted == Some("conceal");
        let federate = root.key("federate");
        if !conceals && !federate.is_present() {
            federate.mistake("the section that `mode: federate` needs");
        }
        let federate = federate.is_present().then(|| Federate::read(&federate.table(), base));
        match federate {
            Some(federate) if !conceals => Self::Federate(Box::new(federate)),
            _ => Self::Conceal,
        }
    }
}

/// Longest name or URL part that is accepted; Google's own names are far shorter.
const NAME_LENGTH: usize = 253;

fn name(text: &str) -> Option<String> {
    let fits = !text.is_empty()
        && text.len() <= NAME_LENGTH
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:".contains(&b));
    fits.then(|| text.to_owned())
}

fn required_name(table: &Table<'_>, key: &'static str, example: &str) -> String {
    let expected = format!("a name of letters, digits, `-`, `_`, `.` and `:`, such as {example}");
    table.required(key, &expected).text(&expected, name).unwrap_or_default()
}

fn name_or(table: &Table<'_>, key: &'static str, default: &str) -> String {
    table
        .key(key)
        .text("a name of letters, digits, `-`, `_`, `.` and `:`", name)
        .unwrap_or_else(|| default.to_owned())
}

fn provider(text: &str, start: &str) -> Option<String> {
    let plain = text.len() <= 512 && text.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\');
    (plain && text.starts_with(start)).then(|| text.to_owned())
}

/// An upstream's base URL. A Kubernetes token or a cloud credential travels in every request to it, so plain http is
/// accepted only where the traffic cannot leave the machine.
fn upstream_url(text: &str) -> Option<String> {
    let url: http::Uri = text.parse().ok()?;
    let host = url.host()?;
    let no_path = matches!(url.path(), "" | "/") && url.query().is_none();
    let sealed = url.scheme_str() == Some("https") || (url.scheme_str() == Some("http") && is_loopback(host));
    (no_path && sealed).then(|| text.trim_end_matches('/').to_owned())
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The real metadata server speaks plain http on a link-local address and never leaves the node.
fn metadata_url(text: &str) -> Option<String> {
    let url: http::Uri = text.parse().ok()?;
    let no_path = matches!(url.path(), "" | "/") && url.query().is_none();
    (url.scheme_str() == Some("http") && url.host().is_some() && no_path)
        .then(|| text.trim_end_matches('/').to_owned())
}

impl Federate {
    fn read(table: &Table<'_>, base: &Path) -> Self {
        let project_id = required_name(table, "projectId", "my-project");
        let pool = name_or(table, "workloadPool", &format!("{project_id}.svc.id.goog"));
        let instance = table.key("instance").table();
        let cluster = table.key("cluster").table();
        let number = "the project's number, such as 123456789012";
        let instance_name = name_or(&instance, "name", "node");
        let exchange = Exchange::read(table);
        let (sts_url, iam_url) = (url(table, "stsUrl", exchange.url()), url(table, "iamUrl", IAM));
        Self {
            numeric_project_id: table
                .required("numericProjectId", number)
                .number(1..=u64::MAX)
                .unwrap_or_default(),
            zone: required_name(table, "zone", "europe-west1-b"),
            instance_id: instance.key("id").number(0..=u64::MAX).unwrap_or_default(),
            hostname: name_or(&instance, "hostname", &instance_name),
            instance_name,
            cluster_name: required_name(&cluster, "name", "my-cluster"),
            cluster_location: required_name(&cluster, "location", "europe-west1"),
            cluster_uid: cluster
                .key("uid")
                .text("a name or nothing", |t| if t.is_empty() { Some(String::new()) } else { name(t) })
                .unwrap_or_default(),
            universe_domain: name_or(table, "universeDomain", "googleapis.com"),
            provider: exchange.provider(table),
            token_audience: table
                .key("tokenAudience")
                .text("text without spaces, quotes or backslashes", audience)
                .unwrap_or_else(|| pool.clone()),
            workload_pool: pool,
            ca_file: table.key("caFile").text("the path of a PEM file", |t| path(t, base)),
            proxy: proxy(table, &[&sts_url, &iam_url]),
            exchange,
            sts_url,
            iam_url,
            project_id,
        }
    }
}

const IAM: &str = "https://iamcredentials.googleapis.com";

fn path(text: &str, base: &Path) -> Option<PathBuf> {
    (!text.is_empty()).then(|| base.join(text))
}

fn url(table: &Table<'_>, key: &'static str, default: &str) -> String {
    let form = "an https URL without a path, or http to a loopback address";
    table.key(key).text(form, upstream_url).unwrap_or_else(|| default.to_owned())
}

/// Through a proxy, https is a tunnel that the proxy cannot look into; plain http is not.
fn proxy(table: &Table<'_>, upstreams: &[&str]) -> Option<String> {
    let key = table.key("proxy");
    let proxy = key.text("an http URL without a path, such as http://proxy.example:3128", metadata_url)?;
    let is_near = proxy.parse::<http::Uri>().is_ok_and(|uri| uri.host().is_some_and(is_loopback));
    if !is_near && upstreams.iter().any(|url| url.starts_with("http://")) {
        key.mistake("a loopback address, because stsUrl or iamUrl is plain http");
    }
    Some(proxy)
}

impl Exchange {
    fn read(table: &Table<'_>) -> Self {
        let known = |text: &str| match text {
            "sts" => Some(Self::Sts),
            "identitybindingtoken" => Some(Self::IdentityBindingToken),
            _ => None,
        };
        table.key("exchange").text("sts or identitybindingtoken", known).unwrap_or(Self::Sts)
    }

    /// Where it is asked for.
    fn url(self) -> &'static str {
        match self {
            Self::Sts => "https://sts.googleapis.com",
            Self::IdentityBindingToken => "https://securetoken.googleapis.com",
        }
    }

    /// The exchange's `audience`, whose form is the exchange's.
    fn provider(self, table: &Table<'_>) -> String {
        let (form, start) = match self {
            Self::Sts => (
                "a provider's full name: //iam.googleapis.com/projects/NUMBER/locations/global/\
                 workloadIdentityPools/POOL/providers/PROVIDER",
                "//iam.googleapis.com/",
            ),
            Self::IdentityBindingToken => (
                "identitynamespace:PROJECT.svc.id.goog:https://container.googleapis.com/v1/projects/PROJECT/\
                 locations/LOCATION/clusters/CLUSTER",
                "identitynamespace:",
            ),
        };
        table.required("provider", form).text(form, |text| provider(text, start)).unwrap_or_default()
    }
}

fn audience(text: &str) -> Option<String> {
    let plain = text.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\');
    (!text.is_empty() && text.len() <= 512 && plain).then(|| text.to_owned())
}

impl Federate {
    /// The text of `caFile`, if there is one.
    ///
    /// # Errors
    /// Which file cannot be read, and why.
    pub(crate) fn more_roots(&self) -> anyhow::Result<Option<String>> {
        self.ca_file.as_deref().map(named_file).transpose()
    }
}

fn named_file(path: &Path) -> anyhow::Result<String> {
    let text = file::read(path, LARGEST)
        .map_err(|reason| anyhow::anyhow!("cannot read {}: {reason}", path.display()))?;
    Ok(text.expose().clone())
}

impl Conceal {
    fn read(table: &Table<'_>) -> Self {
        let upstream = table
            .key("upstream")
            .text("an http URL without a path, such as http://169.254.169.254", metadata_url)
            .unwrap_or("http://169.254.169.254".into());
        Self { upstream }
    }

    /// Whether the upstream is one of these listeners. It would ask itself for each answer, until no place is left.
    fn is_one_of(&self, listeners: &[SocketAddr]) -> bool {
        let Ok(url) = self.upstream.parse::<http::Uri>() else { return false };
        let (host, port) = (url.host().unwrap_or_default(), url.port_u16().unwrap_or(80));
        let is_own = |own: &SocketAddr| {
            let is_same = host.trim_matches(['[', ']']).parse() == Ok(own.ip());
            own.port() == port && (is_same || is_loopback(host) && own.ip().is_unspecified())
        };
        listeners.iter().any(is_own)
    }
}

impl Limits {
    fn read(table: &Table<'_>) -> Self {
        let count = |key, default: u32, most: u32| {
            table.key(key).number(1..=u64::from(most)).and_then(|n| u32::try_from(n).ok()).unwrap_or(default)
        };
        let count_or_auto = |key| {
            let counted = |text: &str| match text {
                "auto" => Some(None),
                number => number.parse().ok().filter(|n| (1..=1_000_000).contains(n)).map(Some),
            };
            table.key(key).text("auto, or a whole number from 1 to 1000000", counted).flatten()
        };
        let span = |key, default| {
            table.key(key).text("a duration such as 500ms, 2s or 5m", duration).unwrap_or(default)
        };
        let limits = Self {
            connections: count_or_auto("connections"),
            connections_per_pod: count_or_auto("connectionsPerPod"),
            head_timeout: span("headTimeout", Duration::from_secs(2)),
            idle_timeout: span("idleTimeout", Duration::from_secs(60)),
            long_polls: count("longPolls", 256, 65_536),
            long_polls_per_pod: count("longPollsPerPod", 16, 65_536),
            forwards: count("forwards", 64, 65_536),
        };
        if limits.connections.zip(limits.connections_per_pod).is_some_and(|(all, own)| own > all) {
            table.key("connectionsPerPod").mistake("at most limits.connections");
        }
        limits
    }
}

/// A positive duration with one unit, up to a day.
fn duration(text: &str) -> Option<Duration> {
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().ok()?;
    let millis = match unit {
        "ms" => number,
        "s" => number.checked_mul(1000)?,
        "m" => number.checked_mul(60_000)?,
        "h" => number.checked_mul(3_600_000)?,
        _ => return None,
    };
    (1..=86_400_000).contains(&millis).then(|| Duration::from_millis(millis))
}

impl Threads {
    /// How many threads to start. `auto` asks the machine, which counts a CPU quota (cgroup v1 and v2) and
    /// affinity: one thread below two whole cores, else two; more would only share the caches.
    pub(crate) fn count(self) -> usize {
        match self {
            Self::Fixed(n) => n,
            Self::Auto => std::thread::available_parallelism().map_or(1, |n| n.get().min(2)),
        }
    }

    fn read(root: &Table<'_>) -> Self {
        let fixed = |text: &str| match text {
            "auto" => Some(Self::Auto),
            "1" => Some(Self::Fixed(1)),
            "2" => Some(Self::Fixed(2)),
            _ => None,
        };
        root.key("threads").text("auto, 1 or 2", fixed).unwrap_or(Self::Auto)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, Mistakes> {
        Config::parse(text, Path::new("/etc/seawall"), None)
    }

    const LEAST: &str = r#"
federate:
  projectId: my-project
  numericProjectId: 123456789012
  zone: europe-west1-b
  cluster: { name: my-cluster, location: europe-west1 }
  provider: "//iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/my-pool/providers/my-cluster"
"#;

    #[test]
    fn an_upstream_that_is_the_agent_itself_is_named_where_it_would_be_asked() {
        let with = |mode: &str, listen: &str, upstream: &str| {
            parse(&format!(
                "{LEAST}mode: {mode}\nlisten: [\"{listen}\"]\nidentity: {{ strategy: static, file: x }}\n\
                 conceal: {{ upstream: \"{upstream}\" }}\n"
            ))
        };
        for (listen, upstream) in [
            ("169.254.169.254:80", "http://169.254.169.254"),
            ("127.0.0.1:8988", "http://127.0.0.1:8988/"),
            ("0.0.0.0:8988", "http://localhost:8988"),
            ("[fd00:ec2::254]:80", "http://[fd00:ec2::254]"),
        ] {
            let mistakes = with("conceal", listen, upstream).unwrap_err().to_string();
            assert!(mistakes.contains("conceal.upstream"), "{mistakes}");
            assert!(with("federate", listen, upstream).is_ok(), "nothing asks it");
        }
        assert!(with("conceal", "127.0.0.1:8988", "http://127.0.0.1:8989").is_ok());
        assert!(with("conceal", "0.0.0.0:80", "http://169.254.169.254").is_ok());
    }

    #[test]
    fn the_documented_default_is_the_default() {
        assert_eq!(parse(DEFAULT).unwrap(), parse(LEAST).unwrap());
    }

    #[test]
    fn five_mistakes_are_named_at_once() {
        let text = LEAST.replace("my-project\n", "\"my project\"\n")
            + "listen: [here]\nlimits: { connections: 0, headTimeout: soon }\nlisten_on: 1\n";
        let mistakes = parse(&text).unwrap_err();
        let shown = mistakes.to_string();
        assert_eq!(mistakes.0.len(), 5, "{shown}");
        for place in
            ["federate.projectId", "listen[0]", "limits.connections", "limits.headTimeout", "listen_on"]
        {
            assert!(shown.contains(place), "{place} in {shown}");
        }
    }

    #[test]
    fn plain_http_leaves_the_machine_nowhere() {
        for url in
            ["http://sts.googleapis.com", "http://10.0.0.1", "ftp://127.0.0.1", "https://a/b", "127.0.0.1"]
        {
            let text = format!("{LEAST}  stsUrl: {url}\n");
            assert!(parse(&text).is_err(), "{url}");
        }
        for url in ["http://127.0.0.1:9000", "http://[::1]:9000", "https://sts.example"] {
            let text = format!("{LEAST}  stsUrl: {url}\n");
            assert!(parse(&text).is_ok(), "{url}");
        }
    }

    #[test]
    fn federate_never_serves_anyone() {
        let text = format!("{LEAST}\nidentity: {{ strategy: anyone }}\n");
        let shown = parse(&text).unwrap_err().to_string();
        assert!(shown.contains("identity.strategy"), "{shown}");
        let concealed = parse("mode: conceal\nidentity: { strategy: anyone }\n").unwrap();
        assert_eq!(concealed.identity, Identity::Anyone);
    }

    #[test]
    fn paths_start_at_the_files_folder() {
        let Identity::Static { file } = parse(LEAST).unwrap().identity else {
            panic!("static is the default")
        };
        assert_eq!(file, Path::new("/etc/seawall/pods.yaml"));
    }

    #[test]
    fn durations_have_one_unit_and_a_bound() {
        assert_eq!(duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Some(Duration::from_secs(120)));
        for bad in ["", "5", "s", "0s", "-1s", "25h", "1d", "99999999999999999999s", "1s1s"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }
}
