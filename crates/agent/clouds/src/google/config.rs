//! The `google` section of the configuration: the mode, the facts about the node, and the token exchange.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use seawall_broker::google::{GoogleExchangeApi, GoogleExchangeConfig};
use seawall_config::{DocumentNode, DocumentTable, values};
use seawall_core::endpoint::REAL_SERVER_URL;
use seawall_core::name_syntax::needs_no_escape;
use seawall_protocols::google;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::reloadable_keys::ReloadableKeys;

/// The settings for Google's metadata server.
#[derive(Clone, Debug, PartialEq)]
pub struct GoogleConfig {
    pub mode: GoogleMode,
    /// The URL of the real metadata server, for `conceal` mode and for `realServer`.
    pub upstream_url: String,
}

/// The kind of credentials that pods get.
#[derive(Clone, Debug, PartialEq)]
pub enum GoogleMode {
    /// Pods get their own Google credentials.
    Federate(Box<FederateConfig>),
    /// Pods get the node's credentials. The agent filters their requests to the real metadata server.
    Conceal,
}

/// The settings of `federate` mode: the node facts and the token exchange.
#[derive(Clone, Debug, PartialEq)]
pub struct FederateConfig {
    pub node_metadata: google::NodeMetadata,
    /// The workload pool of the pods. A pod without a Google service account sees the pool's name in place of an e-mail address.
    pub workload_pool: String,
    /// The token exchange, without the root certificates of `ca_file`. The agent reads that file at the start and at a reload.
    pub exchange: GoogleExchangeConfig,
    /// A PEM file with additional root certificates for `stsUrl` and `iamUrl`.
    pub ca_file: Option<PathBuf>,
}

const IAM: &str = "https://iamcredentials.googleapis.com";

/// The keys of the `google` section. A reload can change all of them.
pub(crate) const RELOADABLE_KEYS: ReloadableKeys = ReloadableKeys {
    reloadable: &[
        "attributes.",
        "caFile",
        "cluster.location",
        "cluster.name",
        "cluster.uid",
        "exchange",
        "iamUrl",
        "instance.hostname",
        "instance.id",
        "instance.name",
        "mode",
        "numericProjectId",
        "projectId",
        "proxy",
        "stsUrl",
        "tokenAudience",
        "universeDomain",
        "upstreamUrl",
        "workloadIdentityProvider",
        "workloadPool",
        "zone",
    ],
    keys_needing_restart: &[],
};

impl GoogleConfig {
    /// Reads the section. If the section has keys of both modes, the function checks all of them, even the keys of the mode that
    /// is off.
    pub fn read(section: &DocumentNode<'_>, base: &Path, listen: &[SocketAddr]) -> Self {
        let table = section.as_table();
        let mode = GoogleMode::read(&table, base);
        let upstream_url = table.node_of_key("upstreamUrl");
        let real = upstream_url
            .text("an http URL without a path, such as http://169.254.169.254", values::parse_plain_http_url)
            .unwrap_or_else(|| REAL_SERVER_URL.into());
        table.reject_moved(
            "passthroughServiceAccounts",
            "this list is now realServer, at the top of the file, for both clouds",
        );
        if mode == GoogleMode::Conceal && values::is_own_listener(&real, listen) {
            upstream_url
                .reject("the address of the real metadata server, not an address that the agent listens at");
        }
        Self { mode, upstream_url: real }
    }
}

/// The section as the agent shows it in its effective configuration.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SerializedConfig<'a> {
    mode: &'static str,
    upstream_url: &'a str,
    #[serde(flatten)]
    federate: Option<Value>,
}

impl Serialize for GoogleConfig {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (mode, federate) = match &self.mode {
            GoogleMode::Federate(federate) => ("federate", Some(federate.written())),
            GoogleMode::Conceal => ("conceal", None),
        };
        SerializedConfig { mode, upstream_url: &self.upstream_url, federate }.serialize(to)
    }
}

impl GoogleMode {
    fn read(table: &DocumentTable<'_>, base: &Path) -> Self {
        const MODES: [&str; 2] = ["federate", "conceal"];
        let known = |text: &str| MODES.iter().find(|mode| **mode == text).copied();
        let conceals = table.node_of_key("mode").text("federate or conceal", known) == Some("conceal");
        let is_of_both = |(key, _): &(&str, DocumentNode<'_>)| ["mode", "upstreamUrl"].contains(key);
        if conceals && table.entries().iter().all(is_of_both) {
            return Self::Conceal;
        }
        let federate = FederateConfig::read(table, base);
        if conceals { Self::Conceal } else { Self::Federate(Box::new(federate)) }
    }
}

impl FederateConfig {
    fn read(table: &DocumentTable<'_>, base: &Path) -> Self {
        let node = node(table);
        let pool = name_or(table, "workloadPool", &format!("{}.svc.id.goog", node.project_id));
        let exchange = exchange(table, &pool);
        let ca_file = table
            .node_of_key("caFile")
            .text("the path of a PEM file", |text| values::resolve_path(text, base));
        Self { node_metadata: node, workload_pool: pool, exchange, ca_file }
    }

    fn written(&self) -> Value {
        let Self { node_metadata: node, workload_pool: pool, exchange, ca_file } = self;
        json!({
            "projectId": node.project_id,
            "numericProjectId": node.numeric_project_id,
            "zone": node.zone,
            "instance": { "id": node.instance_id, "name": node.instance_name, "hostname": node.hostname },
            "cluster": {
                "name": node.cluster_name,
                "location": node.cluster_location,
                "uid": node.cluster_uid.as_deref().unwrap_or_default(),
            },
            "attributes": node.attributes,
            "universeDomain": node.universe_domain,
            "workloadPool": pool,
            "workloadIdentityProvider": exchange.workload_identity_provider,
            "tokenAudience": exchange.token_audience,
            "exchange": SHAPES.iter().find(|(shape, _)| *shape == exchange.exchange_api).map(|(_, name)| name),
            "stsUrl": exchange.sts_url,
            "iamUrl": exchange.iam_url,
            "caFile": ca_file,
            "proxy": exchange.proxy,
        })
    }
}

fn node(table: &DocumentTable<'_>) -> google::NodeMetadata {
    let instance = table.node_of_key("instance").as_table();
    let cluster = table.node_of_key("cluster").as_table();
    let number = "the project's number, such as 123456789012";
    let name = name_or(&instance, "name", "node");
    let uid = cluster.node_of_key("uid").text("a name or an empty text", |text| {
        if text.is_empty() { Some(String::new()) } else { values::parse_url_safe_name(text) }
    });
    google::NodeMetadata {
        project_id: required_name(table, "projectId", "my-project"),
        numeric_project_id: table
            .required_node("numericProjectId", number)
            .number(1..=u64::MAX)
            .unwrap_or_default(),
        zone: Some(required_name(table, "zone", "europe-west1-b")),
        instance_id: Some(instance.node_of_key("id").number(0..=u64::MAX).unwrap_or_default()),
        hostname: Some(name_or(&instance, "hostname", &name)),
        instance_name: Some(name),
        cluster_name: Some(required_name(&cluster, "name", "my-cluster")),
        cluster_location: Some(required_name(&cluster, "location", "europe-west1")),
        cluster_uid: uid.filter(|uid| !uid.is_empty()),
        attributes: attributes(&table.node_of_key("attributes").as_table()),
        universe_domain: name_or(table, "universeDomain", "googleapis.com"),
    }
}

/// Reads the values that pods read below `attributes/` in addition to those of the cluster.
fn attributes(table: &DocumentTable<'_>) -> BTreeMap<String, String> {
    let attribute = |(name, value): (&str, DocumentNode<'_>)| {
        if let Some((_, key)) = CLUSTER_ATTRIBUTES.iter().find(|(cluster, _)| *cluster == name) {
            value.reject(format!("no attribute of this name: its value is in google.{key}"));
            return None;
        }
        if values::parse_url_safe_name(name).is_none() || matches!(name, "." | "..") {
            value.reject(format!("an attribute that is {NAME}"));
            return None;
        }
        let text = value.text("text of up to 1024 bytes without control characters", attribute_value)?;
        Some((name.to_owned(), text))
    };
    table.entries().into_iter().filter_map(attribute).collect()
}

/// The attributes with keys of their own.
const CLUSTER_ATTRIBUTES: [(&str, &str); 3] = [
    ("cluster-name", "cluster.name"),
    ("cluster-location", "cluster.location"),
    ("cluster-uid", "cluster.uid"),
];

fn attribute_value(text: &str) -> Option<String> {
    (text.len() <= 1024 && !text.chars().any(char::is_control)).then(|| text.to_owned())
}

fn exchange(table: &DocumentTable<'_>, pool: &str) -> GoogleExchangeConfig {
    let known = |text: &str| SHAPES.iter().find(|(_, name)| *name == text).map(|(shape, _)| *shape);
    let shape = table
        .node_of_key("exchange")
        .text("sts or identitybindingtoken", known)
        .unwrap_or(GoogleExchangeApi::Sts);
    let (sts_url, iam_url) = (url(table, "stsUrl", default_url(shape)), url(table, "iamUrl", IAM));
    let workload_identity_provider = workload_identity_provider(shape, table);
    GoogleExchangeConfig {
        exchange_api: shape,
        token_audience: table
            .node_of_key("tokenAudience")
            .text("text without spaces, quotes or backslashes", audience)
            .unwrap_or_else(|| default_audience(shape, &workload_identity_provider, pool)),
        workload_identity_provider,
        extra_roots: None,
        proxy: proxy(table, &[&sts_url, &iam_url]),
        sts_url,
        iam_url,
    }
}

/// The exchange APIs with their names in the configuration.
const SHAPES: [(GoogleExchangeApi, &str); 2] =
    [(GoogleExchangeApi::Sts, "sts"), (GoogleExchangeApi::IdentityBindingToken, "identitybindingtoken")];

/// Returns the default URL of this exchange API.
fn default_url(shape: GoogleExchangeApi) -> &'static str {
    match shape {
        GoogleExchangeApi::Sts => "https://sts.googleapis.com",
        GoogleExchangeApi::IdentityBindingToken => "https://securetoken.googleapis.com",
    }
}

/// Returns the default audience (`aud`) of Kubernetes tokens. A provider without configured audiences expects this audience.
///
/// A provider of the Security Token Service expects its own full name; a GKE pool expects the pool's name. Source: Google Cloud
/// documentation, "Configure Workload Identity Federation with Kubernetes", allowed audiences.
fn default_audience(shape: GoogleExchangeApi, provider: &str, pool: &str) -> String {
    match shape {
        GoogleExchangeApi::Sts => provider.to_owned(),
        GoogleExchangeApi::IdentityBindingToken => pool.to_owned(),
    }
}

/// Reads the exchange's `audience` from the key `workloadIdentityProvider`. The format of the value depends on the exchange API.
fn workload_identity_provider(shape: GoogleExchangeApi, table: &DocumentTable<'_>) -> String {
    let (form, start) = match shape {
        GoogleExchangeApi::Sts => (
            "a provider's full name: //iam.googleapis.com/projects/NUMBER/locations/global/\
             workloadIdentityPools/POOL/providers/PROVIDER",
            "//iam.googleapis.com/",
        ),
        GoogleExchangeApi::IdentityBindingToken => (
            "identitynamespace:PROJECT.svc.id.goog:https://container.googleapis.com/v1/projects/PROJECT/\
             locations/LOCATION/clusters/CLUSTER",
            "identitynamespace:",
        ),
    };
    let checked = |text: &str| audience(text).filter(|text| text.starts_with(start));
    table.required_node("workloadIdentityProvider", form).text(form, checked).unwrap_or_default()
}

fn audience(text: &str) -> Option<String> {
    needs_no_escape(text, 512).then(|| text.to_owned())
}

const NAME: &str = "a name of letters, digits, `-`, `_`, `.` and `:`";

fn required_name(table: &DocumentTable<'_>, key: &'static str, example: &str) -> String {
    let expected = format!("{NAME}, such as {example}");
    table.required_node(key, &expected).text(&expected, values::parse_url_safe_name).unwrap_or_default()
}

fn name_or(table: &DocumentTable<'_>, key: &'static str, default: &str) -> String {
    table.node_of_key(key).text(NAME, values::parse_url_safe_name).unwrap_or_else(|| default.to_owned())
}

fn url(table: &DocumentTable<'_>, key: &'static str, default: &str) -> String {
    let form = "an https URL without a path, or http to a loopback address";
    table
        .node_of_key(key)
        .text(form, values::parse_https_or_loopback_url)
        .unwrap_or_else(|| default.to_owned())
}

/// Reads the proxy. If one of `upstreams` is an http URL, the function rejects a remote proxy, because the proxy could read plain
/// HTTP. HTTPS passes through the proxy in a tunnel.
fn proxy(table: &DocumentTable<'_>, upstreams: &[&str]) -> Option<String> {
    let key = table.node_of_key("proxy");
    let proxy = key.text(
        "an http URL without a path, such as http://proxy.example:3128",
        values::parse_plain_http_url,
    )?;
    if !values::is_loopback_url(&proxy) && upstreams.iter().any(|url| url.starts_with("http://")) {
        key.reject("a proxy on a loopback address: stsUrl or iamUrl is plain http, so a remote proxy could read the tokens");
    }
    Some(proxy)
}
