//! Parses the configuration file into checked values, and reports all mistakes at once.
//!
//! The values that this module returns need no further check. The module opens only the configuration file: `clouds` and `identity` open the files
//! that the configuration names. The module resolves no host names. Each cloud's folder in the crate `clouds` reads the section
//! of that cloud. `default.yaml` documents every key, and `config-default` prints this file. A test compares `default.yaml` with
//! the defaults in the code.

mod addresses;
mod admin_address;
mod dump;
mod file;
#[cfg(test)]
mod identity_tests;
mod limits;
mod reloadable;
mod schema;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use seawall_clouds::CloudsConfig;
use seawall_config::{Document, DocumentNode, DocumentTable, ValidationErrors, values};
use seawall_core::cloud::{CloudName, DialectName};
use seawall_server::listen::ListenAddress;
use serde::{Serialize, Serializer};

use crate::sandbox::{Seccomp, SyscallProfile};

use addresses::{
    ADDRESS_FORMAT_HINT, ADMIN_PORT, LISTEN_ADDRESS_FORMAT_HINT, NODE_ADDRESS_PLACEHOLDER, loopback_address,
};
pub(crate) use admin_address::AdminEndpoint;
pub(crate) use dump::{effective_yaml, format_yaml};
pub(crate) use file::{ConfigFileError, read_text};
pub(crate) use limits::LimitsConfig;
pub(crate) use schema::config_schema;
pub(crate) use seawall_identity::config::IdentityConfig;
use seawall_identity::config::read_egress_ranges;
pub(crate) use seawall_identity::downward_api::DownwardApi;

/// The documented defaults, as `config-default` prints them.
pub(crate) const DEFAULT_CONFIG_YAML: &str = include_str!("default.yaml");

/// A checked configuration.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentConfig {
    pub(crate) listen: Vec<ListenConfig>,
    pub(crate) admin: SocketAddr,
    /// The socket file at which the admin server also listens, for processes inside the agent's pod.
    pub(crate) admin_socket: Option<PathBuf>,
    pub(crate) identity: IdentityConfig,
    #[serde(flatten)]
    pub(crate) clouds: CloudsConfig,
    pub(crate) limits: LimitsConfig,
    pub(crate) threads: ThreadCount,
    pub(crate) seccomp: Seccomp,
    #[serde(serialize_with = "dump::serialize_log_level")]
    pub(crate) log_level: tracing::Level,
}

/// An address for pods' requests, and the dialects of that address.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListenConfig {
    pub(crate) address: SocketAddr,
    /// The port that the agent takes while another process has the port of `address`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) second_port: Option<u16>,
    /// True for the second address that one entry `node:PORT` stands for. It gets the same port as the address before it.
    #[serde(skip)]
    pub(crate) is_additional: bool,
    /// The dialects of this address, at least one. If there are several dialects, the request path selects the dialect.
    pub(crate) dialects: Vec<DialectName>,
}

/// The number of traffic threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ThreadCount {
    Auto,
    Fixed(usize),
}

impl ListenConfig {
    /// Returns the address to bind.
    pub(crate) fn listen_address(&self) -> ListenAddress {
        ListenAddress {
            address: self.address,
            second_port: self.second_port,
            is_additional: self.is_additional,
        }
    }
}

impl AgentConfig {
    /// Reads and checks a file. Relative paths in the file start at the file's folder.
    ///
    /// # Errors
    /// The file cannot be read or has mistakes; the error lists all of them.
    pub(crate) fn load(path: &Path) -> Result<Self, ConfigFileError> {
        Self::load_with_downward_api(path, &DownwardApi::from_env())
    }

    /// Checks `text`, which is the content of the file at `path`.
    ///
    /// # Errors
    /// The text has mistakes; the error lists all of them.
    pub(crate) fn from_text(
        text: &str,
        path: &Path,
        downward: &DownwardApi,
    ) -> Result<Self, ConfigFileError> {
        let base = path.parent().unwrap_or(Path::new(""));
        Self::parse(text, base, downward)
            .map_err(|mistakes| ConfigFileError::Invalid { path: path.into(), mistakes })
    }

    /// Loads a file like [`Self::load`]. `downward` has the settings that differ on each node.
    ///
    /// # Errors
    /// The file cannot be read or has mistakes; the error lists all of them.
    pub(crate) fn load_with_downward_api(
        path: &Path,
        downward: &DownwardApi,
    ) -> Result<Self, ConfigFileError> {
        Self::from_text(&read_text(path)?, path, downward)
    }

    /// Checks the text of a configuration. Relative paths in the text start at `base`. `downward` has the settings that differ on
    /// each node.
    ///
    /// # Errors
    /// The text has mistakes; the error lists all of them.
    pub(crate) fn parse(text: &str, base: &Path, downward: &DownwardApi) -> Result<Self, ValidationErrors> {
        let document = Document::parse(text)?;
        let config = Self::read(&document.root(), base, downward);
        document.finish(config)
    }

    fn read(root: &DocumentTable<'_>, base: &Path, downward: &DownwardApi) -> Self {
        let is_old = refuse_old_keys(root);
        let identity = root.node_of_key("identity").as_table();
        let egress_ranges = read_egress_ranges(&identity);
        let downward = &downward.clone().with_address_for(&egress_ranges);
        let addresses = addresses(&root.node_of_key("listen"), downward);
        let own: Vec<SocketAddr> = addresses.iter().flat_map(ListenEntry::own_addresses).collect();
        let clouds = CloudsConfig::read(root, base, &own);
        let configured = clouds.enabled_dialects();
        if configured.is_empty() && !is_old {
            root.node_of_key(CloudName::ALL[0].as_str()).reject("the section of at least one cloud");
        }
        let listen = addresses.into_iter().flat_map(|entry| listen(entry, &configured));
        let listen: Vec<_> = listen.collect();
        let spoken: Vec<_> = listen.iter().map(|listen| (listen.address, &listen.dialects[..])).collect();
        Self {
            admin: admin(&root.node_of_key("admin"), &own),
            admin_socket: root
                .node_of_key("adminSocket")
                .text("the path of a socket file", |text| values::resolve_path(text, base)),
            identity: IdentityConfig::read(root, &identity, &clouds, base, &spoken, downward, egress_ranges),
            listen,
            clouds,
            limits: LimitsConfig::read(&root.node_of_key("limits").as_table()),
            threads: ThreadCount::read(root),
            seccomp: root
                .node_of_key("seccomp")
                .text("enforce, log or none", Seccomp::parse)
                .unwrap_or(Seccomp::Enforce),
            log_level: root.node_of_key("logLevel").text(LEVEL, log_level).unwrap_or(tracing::Level::INFO),
        }
    }
}

/// The keys that have moved to a cloud's section, each with a text that names the new key.
const MOVED: [(&str, &str); 3] = [
    ("mode", "this key is now google.mode"),
    ("federate", "the keys below this key are now directly in the section google"),
    ("conceal", "conceal.upstream is now google.upstreamUrl"),
];

/// Rejects each key that has moved, and names the new key. Returns true if the file has such a key, or if the file is another one.
fn refuse_old_keys(root: &DocumentTable<'_>) -> bool {
    if root.reject_moved(
        "config",
        "these look like the values of the Helm chart. The agent's configuration is what is below this key",
    ) {
        return true;
    }
    MOVED.iter().filter(|(key, now)| root.reject_moved(key, now)).count() > 0
}

const LEVEL: &str = "error, warn, info or debug";

/// An entry of `listen` before its dialects are known to be valid.
struct ListenEntry<'d> {
    /// The addresses, at least one. Only `node:PORT` can stand for several.
    addresses: Vec<SocketAddr>,
    second_port: Option<u16>,
    dialects: Option<DocumentNode<'d>>,
}

impl ListenEntry<'_> {
    /// Returns the addresses that this entry can use.
    fn own_addresses(&self) -> impl Iterator<Item = SocketAddr> + use<> {
        let second_port = self.second_port;
        self.addresses.clone().into_iter().flat_map(move |address| {
            let second = second_port.map(|port| SocketAddr::new(address.ip(), port));
            [Some(address), second].into_iter().flatten()
        })
    }

    /// Returns the addresses that no other entry may use. Port 0 stands for any free port, so it never collides.
    fn fixed_addresses(&self) -> impl Iterator<Item = SocketAddr> + use<> {
        self.own_addresses().filter(|address| address.port() != 0)
    }
}

/// Returns the entries of `listen`.
fn addresses<'d>(node: &DocumentNode<'d>, downward: &DownwardApi) -> Vec<ListenEntry<'d>> {
    if !node.is_present() {
        return vec![ListenEntry {
            addresses: vec![loopback_address(8988)],
            second_port: None,
            dialects: None,
        }];
    }
    let items = node.list();
    if items.is_empty() {
        node.reject("at least one address and port");
    }
    let mut all: Vec<ListenEntry<'d>> = Vec::new();
    for item in &items {
        let Some(entry) = address(item, downward) else { continue };
        let mut known: Vec<_> = all.iter().flat_map(ListenEntry::fixed_addresses).collect();
        for address in entry.fixed_addresses() {
            if known.contains(&address) {
                item.reject("an address that is not already in the list");
                break;
            }
            known.push(address);
        }
        all.push(entry);
    }
    all
}

/// Reads the admin address. It must differ from the addresses in `listen`, because a process cannot bind an address twice.
fn admin(node: &DocumentNode<'_>, listen: &[SocketAddr]) -> SocketAddr {
    let admin = node.text(ADDRESS_FORMAT_HINT, |t| t.parse().ok()).unwrap_or(loopback_address(ADMIN_PORT));
    let is_taken = |own: &SocketAddr| {
        let is_all = own.ip().is_unspecified() || admin.ip().is_unspecified();
        own.port() == admin.port()
            && own.port() != 0
            && (own.ip() == admin.ip() || is_all && own.is_ipv4() == admin.is_ipv4())
    };
    if listen.iter().any(is_taken) {
        node.reject(format!("an address that listen does not use; {admin} is also an address of listen"));
    }
    admin
}

fn address<'d>(item: &DocumentNode<'d>, downward: &DownwardApi) -> Option<ListenEntry<'d>> {
    if !item.is_table() {
        let addresses = own_addresses(item, downward)?;
        return Some(ListenEntry { addresses, second_port: None, dialects: None });
    }
    let table = item.as_table();
    let addresses = own_addresses(&table.required_node("address", LISTEN_ADDRESS_FORMAT_HINT), downward);
    let second_port =
        table.node_of_key("secondPort").number(1..=65_535).and_then(|port| port.try_into().ok());
    let dialects = table.node_of_key("dialects");
    Some(ListenEntry {
        addresses: addresses?,
        second_port,
        dialects: dialects.is_present().then_some(dialects),
    })
}

/// Reads an address of this machine, or a port on each of the node's addresses.
fn own_addresses(item: &DocumentNode<'_>, downward: &DownwardApi) -> Option<Vec<SocketAddr>> {
    let port = |text: &str| text.strip_prefix(NODE_ADDRESS_PLACEHOLDER)?.strip_prefix(':')?.parse().ok();
    let read = |text: &str| match port(text) {
        Some(port) => Some(downward.node_addresses.iter().map(|ip| SocketAddr::new(ip, port)).collect()),
        None => text.parse().ok().map(|address| vec![address]),
    };
    let addresses: Vec<_> = item.text(LISTEN_ADDRESS_FORMAT_HINT, read)?;
    if addresses.is_empty() {
        let missing = || {
            format!(
                "the node's addresses in the environment variable {}, or one in {}",
                DownwardApi::NODE_ADDRESSES_VARIABLE,
                DownwardApi::NODE_ADDRESS_VARIABLE
            )
        };
        item.reject(downward.node_addresses_mistake.clone().unwrap_or_else(missing));
        return None;
    }
    Some(addresses)
}

/// Returns a listener for each address of an entry.
fn listen(entry: ListenEntry<'_>, configured: &[DialectName]) -> Vec<ListenConfig> {
    let ListenEntry { addresses, second_port, dialects } = entry;
    let dialects = dialects_of_entry(dialects.as_ref(), configured);
    let listener = |(n, address)| ListenConfig {
        address,
        second_port,
        is_additional: n > 0,
        dialects: dialects.clone(),
    };
    addresses.into_iter().enumerate().map(listener).collect()
}

/// Returns the dialects of an entry. If the file lists none, these are the default dialects of all configured clouds.
fn dialects_of_entry(dialects: Option<&DocumentNode<'_>>, configured: &[DialectName]) -> Vec<DialectName> {
    let Some(place) = dialects else {
        return configured.iter().copied().filter(|dialect| dialect.is_enabled_by_default()).collect();
    };
    let known = |text: &str| configured.iter().find(|dialect| dialect.as_str() == text).copied();
    let expected = "a dialect of a cloud that has a section in this file";
    let dialects: Vec<_> = place.list().iter().filter_map(|item| item.text(expected, known)).collect();
    if dialects.is_empty() {
        place.reject("at least one dialect of a cloud that has a section in this file");
    }
    dialects
}

fn log_level(text: &str) -> Option<tracing::Level> {
    ["error", "warn", "info", "debug"].contains(&text).then(|| text.parse().ok())?
}

impl AgentConfig {
    /// Returns the optional system calls that this configuration needs.
    pub(crate) fn syscall_profile(&self) -> SyscallProfile {
        SyscallProfile {
            uses_bpf_maps: matches!(self.identity, IdentityConfig::Kernel(_)),
            writes_files: self.clouds.writes_files(),
            removes_pins: false,
        }
    }
}

impl ThreadCount {
    /// Returns the number of threads to start. For `auto`, the number depends on the CPU quota (cgroup v1 and v2) and the CPU
    /// affinity: one thread for less than two whole cores, and two threads otherwise. More threads would only compete for the CPU
    /// caches.
    pub(crate) fn count(self) -> usize {
        match self {
            Self::Fixed(n) => n,
            Self::Auto => std::thread::available_parallelism().map_or(1, |n| n.get().min(2)),
        }
    }

    fn read(root: &DocumentTable<'_>) -> Self {
        let fixed = |text: &str| match text {
            "auto" => Some(Self::Auto),
            "1" => Some(Self::Fixed(1)),
            "2" => Some(Self::Fixed(2)),
            _ => None,
        };
        root.node_of_key("threads").text("auto, 1 or 2", fixed).unwrap_or(Self::Auto)
    }
}

impl Serialize for ThreadCount {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => to.serialize_str("auto"),
            Self::Fixed(count) => to.serialize_u64(*count as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<AgentConfig, ValidationErrors> {
        AgentConfig::parse(text, Path::new("/etc/seawall"), &DownwardApi::default())
    }

    const LEAST: &str = r#"
google:
  projectId: my-project
  numericProjectId: 123456789012
  zone: europe-west1-b
  cluster: { name: my-cluster, location: europe-west1 }
  workloadIdentityProvider: "//iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/my-pool/providers/my-cluster"
"#;

    #[test]
    fn an_upstream_that_is_the_agent_itself_is_named_where_it_would_be_asked() {
        let with = |mode: &str, listen: &str, upstream: &str| {
            parse(&format!(
                "{LEAST}  mode: {mode}\n  upstreamUrl: \"{upstream}\"\nlisten: [\"{listen}\"]\n\
                 identity: {{ strategy: static, file: x }}\n"
            ))
        };
        for (listen, upstream) in [
            ("169.254.169.254:80", "http://169.254.169.254"),
            ("127.0.0.1:8988", "http://127.0.0.1:8988/"),
            ("0.0.0.0:8988", "http://localhost:8988"),
            ("[fd00:ec2::254]:80", "http://[fd00:ec2::254]"),
        ] {
            let mistakes = with("conceal", listen, upstream).unwrap_err().to_string();
            assert!(mistakes.contains("google.upstreamUrl"), "{mistakes}");
            assert!(with("federate", listen, upstream).is_ok(), "nothing asks it");
        }
        assert!(with("conceal", "127.0.0.1:8988", "http://127.0.0.1:8989").is_ok());
        assert!(with("conceal", "0.0.0.0:80", "http://169.254.169.254").is_ok());
    }

    #[test]
    fn a_listener_speaks_what_it_names_or_what_each_cloud_speaks_by_default() {
        let dialects = |listen: &str| {
            let text = format!(
                "google: {{ mode: conceal }}\naws: {{ region: eu-central-1 }}\nlisten: [{listen}]\n\
                identity: {{ strategy: static, file: x }}\n"
            );
            parse(&text).map(|config| config.listen[0].dialects.clone())
        };
        let at = |names: &str| format!("{{ address: \"127.0.0.1:1\", dialects: [{names}] }}");
        assert_eq!(dialects("\"127.0.0.1:1\"").unwrap(), [DialectName::Google, DialectName::AwsImds]);
        assert_eq!(
            dialects(&at("aws-containers, google")).unwrap(),
            [DialectName::AwsContainers, DialectName::Google]
        );
        let off = parse(&format!("{LEAST}listen: [{}]\n", at("aws-containers"))).unwrap_err().to_string();
        assert!(off.contains("a dialect of a cloud that has a section"), "{off}");
    }

    /// Returns AWS's section as `config-default` prints it, without the first `#` of each line.
    fn documented_aws() -> String {
        let lines = DEFAULT_CONFIG_YAML.lines().skip_while(|line| *line != "# aws:");
        let section = lines.take_while(|line| line.starts_with("# "));
        section.map(|line| format!("{}\n", &line[2..])).collect()
    }

    #[test]
    fn the_documented_section_is_what_holds_without_it() {
        let least = "aws: { region: eu-central-1, account: \"123456789012\" }\n";
        let with = |aws: &str| parse(&format!("{LEAST}{aws}")).unwrap();
        assert_eq!(with(&documented_aws()), with(least));
    }

    /// Each example block at the start of the file is a valid configuration. It needs only the node's name from the environment.
    #[test]
    fn the_examples_of_the_first_screen_are_valid() {
        let first_screen: Vec<_> =
            DEFAULT_CONFIG_YAML.lines().take_while(|line| line.starts_with('#')).collect();
        assert!(first_screen.len() <= 30, "{} lines", first_screen.len());
        let is_example = |lines: &&[&str]| lines.first().is_some_and(|line| line.starts_with("#   "));
        let examples = first_screen.split(|line| *line == "#").filter(is_example);
        let clouds = examples.map(|lines| {
            let text: String = lines.iter().map(|line| format!("{}\n", &line[4..])).collect();
            let config = AgentConfig::parse(&text, Path::new(""), &DownwardApi::for_node("node"));
            config.unwrap_or_else(|mistakes| panic!("{text}{mistakes}")).clouds.names()
        });
        let expected = [vec![CloudName::Google], vec![CloudName::Aws]];
        assert_eq!(clouds.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_documented_default_is_the_default() {
        assert_eq!(parse(DEFAULT_CONFIG_YAML).unwrap(), parse(LEAST).unwrap());
    }

    /// The value `none` was once called `off`, which YAML reads as false.
    #[test]
    fn whether_system_calls_are_refused_is_read_in_plain_words() {
        for (text, expected) in
            [("enforce", Seccomp::Enforce), ("log", Seccomp::Log), ("none", Seccomp::None)]
        {
            assert_eq!(parse(&format!("{LEAST}seccomp: {text}\n")).unwrap().seccomp, expected);
        }
        assert!(parse(&format!("{LEAST}seccomp: off\n")).unwrap_err().to_string().contains("seccomp"));
    }

    #[test]
    fn five_mistakes_are_named_at_once() {
        let text = LEAST.replace("my-project\n", "\"my project\"\n")
            + "listen: [here]\nlimits: { connections: 0, headerTimeout: soon }\nlisten_on: 1\n";
        let mistakes = parse(&text).unwrap_err();
        let shown = mistakes.to_string();
        assert_eq!(mistakes.0.len(), 5, "{shown}");
        for place in
            ["google.projectId", "listen[0]", "limits.connections", "limits.headerTimeout", "listen_on"]
        {
            assert!(shown.contains(place), "{place} in {shown}");
        }
    }

    #[test]
    fn an_address_that_is_wanted_twice_is_named() {
        let with = |listen: &str, admin: &str| {
            let text = format!("{LEAST}listen: {listen}\nadmin: \"{admin}\"\n");
            parse(&text).map_err(|mistakes| mistakes.to_string())
        };
        let twice = with("[\"127.0.0.1:1\", \"127.0.0.1:1\"]", "127.0.0.1:2").unwrap_err();
        assert!(twice.contains("listen[1]: found \"127.0.0.1:1\""), "{twice}");
        for (listen, mistake) in [
            ("[{ address: \"127.0.0.1:1\", secondPort: 3 }, \"127.0.0.1:3\"]", "listen[1]"),
            ("[{ address: \"127.0.0.1:1\", secondPort: 1 }]", "listen[0]"),
            ("[{ address: \"127.0.0.1:1\", secondPort: 0 }]", "listen[0].secondPort"),
        ] {
            let shown = with(listen, "127.0.0.1:9").unwrap_err();
            assert!(shown.contains(mistake), "{listen}: {shown}");
        }
        assert!(
            with("[{ address: \"127.0.0.1:1\", secondPort: 9 }]", "127.0.0.1:9")
                .unwrap_err()
                .contains("admin")
        );
        for listen in ["127.0.0.1:2", "0.0.0.0:2"] {
            let shown = with(&format!("[\"{listen}\"]"), "127.0.0.1:2").unwrap_err();
            assert!(shown.contains("admin: found \"127.0.0.1:2\""), "{shown}");
        }
        with("[\"127.0.0.1:0\", \"127.0.0.1:0\", \"127.0.0.2:2\"]", "127.0.0.1:2").unwrap();
    }

    #[test]
    fn plain_http_leaves_the_machine_nowhere() {
        for url in [
            "http://sts.googleapis.com",
            "http://10.0.0.1",
            "ftp://127.0.0.1",
            "https://a/b",
            "https://u:p@a",
            "127.0.0.1",
        ] {
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
        let concealed = parse("google: { mode: conceal }\nidentity: { strategy: anyone }\n").unwrap();
        assert_eq!(concealed.identity, IdentityConfig::Anyone);
    }

    #[test]
    fn paths_start_at_the_files_folder() {
        let IdentityConfig::Static { file } = parse(LEAST).unwrap().identity else {
            panic!("the default strategy is static")
        };
        assert_eq!(file, Path::new("/etc/seawall/pods.yaml"));
    }
}
