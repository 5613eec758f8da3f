//! The `aws` section of the configuration: which roles pods may have, how they are taken, and how both endpoints answer.
//!
//! Each checked value has the type that its component takes: rules from `policy`, names from the broker, facts and tokens from the
//! dialect.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use seawall_broker::aws::{
    ClusterName, POD_IDENTITY_AUDIENCE, Region, SessionDuration, StsEndpointKind, WEB_IDENTITY_AUDIENCE,
    partition,
};
use seawall_config::{DocumentNode, DocumentTable, values};
use seawall_core::names::is_dns_label;
use seawall_protocols::aws::session::{MAX_TTL, SHORT_TTL};
use seawall_protocols::aws::{
    InstanceMetadata, Pattern, PatternError, TokenRequirement, TtlLimit, containers,
};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::reloadable_keys::ReloadableKeys;

use super::policy::namespace::{AllowedRolesFormat, Kube2iam};
use super::policy::role_arn::{BaseRoleArn, NamedRole};
use super::policy::session::PodTag;
use super::policy::{RolePolicy, namespace, role_arn, session};

/// The `aws` section: the configuration of AWS's endpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct AwsConfig {
    pub(super) rules: RolePolicy,
    pub(super) exchange: RoleSessionConfig,
    pub(super) facts: InstanceMetadata,
    pub(super) imds: ImdsConfig,
    pub(super) containers: ContainersConfig,
}

/// The endpoints that issue role sessions, and the credentials with which the agent asks them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RoleSessionConfig {
    pub(super) region: String,
    pub(super) sts: StsEndpointKind,
    pub(super) sts_url: Option<String>,
    pub(super) eks_auth_url: Option<String>,
    /// A PEM file of additional CA certificates to trust at STS and EKS Auth.
    pub(super) ca_file: Option<PathBuf>,
    pub(super) proxy: Option<String>,
    pub(super) length: SessionDuration,
    pub(super) base: BaseCredentials,
}

/// The identity with which the agent takes roles for pods.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BaseCredentials {
    pub(super) from: BaseCredentialSource,
    /// A base role, which is taken first and then takes the pods' roles.
    pub(super) role: Option<NamedRole>,
}

/// The source of the base credentials.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum BaseCredentialSource {
    /// The role of the node's instance.
    Node,
    /// A profile in a credentials file of AWS's format.
    File { path: PathBuf, profile: String },
    /// The pod's own Kubernetes token, for this audience, takes the base role: the node has no credentials at all.
    Pod { audience: String },
}

/// The configuration of the metadata service.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ImdsConfig {
    pub(super) tokens: TokenRequirement,
    /// The longest life of a session token.
    pub(super) token_lifetime: Duration,
    /// The file in which the keys of session tokens survive a restart of the agent.
    pub(super) key_file: Option<PathBuf>,
    /// Regular expressions of the paths that are passed through to the real service.
    pub(super) passthrough: Vec<String>,
    /// The URL of the real service, which serves passthrough requests and the node's own credentials.
    pub(super) upstream: String,
}

/// The configuration of the credentials endpoint of containers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ContainersConfig {
    /// The audience of the Kubernetes tokens that pods show at this endpoint.
    pub(super) audience: String,
    /// The addresses that a request may name as its host.
    pub(super) hosts: Vec<IpAddr>,
}

/// The keys of this section. `imds.keyFile` needs a restart because pods still hold tokens that the present keys signed.
pub(crate) const KEYS: ReloadableKeys = ReloadableKeys {
    reloadable: &[
        "account",
        "audience",
        "baseRoleArn",
        "caFile",
        "containers.audience",
        "credentials.audience",
        "credentials.file",
        "credentials.from",
        "credentials.profile",
        "credentials.role",
        "defaultRoles.",
        "imds.passthrough",
        "imds.tokenLifetime",
        "imds.tokens",
        "imds.upstream",
        "instance.",
        "kube2iam.format",
        "kube2iam.namespaceRestrictions",
        "podIdentity.cluster",
        "podIdentity.url",
        "proxy",
        "region",
        "session.length",
        "session.namePrefix",
        "session.tags",
        "sts",
        "stsUrl",
        "ways",
    ],
    needs_restart: &["imds.keyFile"],
};

/// The URL of the real metadata service.
const REAL: &str = "http://169.254.169.254";

const ROLE: &str = "the ARN of a role, or below aws.baseRoleArn the name of one";

impl AwsConfig {
    /// Reads the section.
    pub fn read(section: &DocumentNode<'_>, base: &Path, listen: &[SocketAddr]) -> Self {
        let table = section.table();
        let account = table.key("account").text("an account's twelve digits, in quotes", |text| {
            role_arn::is_account(text).then(|| text.to_owned())
        });
        let region = region(&table);
        let roles = base_of_roles(&table, account.as_deref(), &region);
        let session = table.key("session").table();
        let pod_identity = table.key("podIdentity").table();
        let rules = rules(&table, &session, &pod_identity, roles);
        let exchange = exchange(&table, &session, &pod_identity, base, region, &rules);
        let facts = facts(&table, account, &exchange.region);
        let of_imds = table.key("imds").table();
        let imds = imds(&of_imds, base);
        let containers = containers_of(&table.key("containers").table(), listen);
        let read = Self { rules, exchange, facts, imds, containers };
        if read.asks_the_real_service() && values::is_own_listener(&read.imds.upstream, listen) {
            of_imds
                .key("upstream")
                .reject("the real metadata service; the agent itself listens at this address");
        }
        read
    }

    /// True if the configuration lets the agent take roles with credentials of its own.
    pub(super) fn assumes_roles(&self) -> bool {
        let RolePolicy { by_pod, by_association, defaults, .. } = &self.rules;
        by_pod.is_some() || by_association.is_some() || !defaults.is_empty()
    }

    fn asks_the_real_service(&self) -> bool {
        !self.imds.passthrough.is_empty()
            || self.assumes_roles() && self.exchange.base.from == BaseCredentialSource::Node
    }
}

impl ImdsConfig {
    /// A warning for the operator if a restart of the agent invalidates session tokens.
    pub(super) fn warning(&self) -> Option<String> {
        let life = self.token_lifetime.as_secs();
        let costs = if self.token_lifetime > SHORT_TTL {
            "programs with the SDK for Rust are refused so long after each restart of the agent"
        } else {
            "no more, because a restart of the agent takes them all"
        };
        let name_one = "name a file in aws.imds.keyFile that outlives the agent";
        self.key_file.is_none().then(|| {
            format!(
                "session tokens of AWS's metadata service live for {life} s at most, and {costs}: {name_one}"
            )
        })
    }

    /// The compiled expressions of `passthrough`.
    ///
    /// # Errors
    /// An expression that the configuration accepted does not compile.
    pub(super) fn patterns(&self) -> Result<Vec<Pattern>, PatternError> {
        self.passthrough.iter().map(|text| Pattern::new(text)).collect()
    }
}

/// Reads the region. If it is invalid, records the error and returns an empty text, which is never used.
fn region(table: &DocumentTable<'_>) -> String {
    let expected = "a region, such as eu-central-1";
    let known = |text: &str| Region::parse(text).is_ok().then(|| text.to_owned());
    table.required("region", expected).text(expected, known).unwrap_or_default()
}

fn base_of_roles(table: &DocumentTable<'_>, account: Option<&str>, region: &str) -> Option<BaseRoleArn> {
    let form = "what the ARNs of roles begin with, such as arn:aws:iam::123456789012:role/";
    let given = table.key("baseRoleArn").text(form, BaseRoleArn::new);
    given.or_else(|| BaseRoleArn::of_account(partition(region), account?))
}

fn rules(
    table: &DocumentTable<'_>,
    session: &DocumentTable<'_>,
    pod_identity: &DocumentTable<'_>,
    base: Option<BaseRoleArn>,
) -> RolePolicy {
    let ways = ways(&table.key("ways"));
    let has = |way: &str| ways.contains(&way);
    let kube2iam = kube2iam(&table.key("kube2iam").table());
    let by_pod =
        namespace::NamespaceRules { kiam: has("kiam"), kube2iam: has("kube2iam").then_some(kube2iam) };
    let audience = table.key("audience").text(AUDIENCE, audience);
    let audience = audience.unwrap_or_else(|| WEB_IDENTITY_AUDIENCE.to_owned());
    let prefix = session.key("namePrefix").text("at most 32 letters, digits and _+=,.@-", |text| {
        session::is_prefix(text).then(|| text.to_owned())
    });
    let tags = session.key("tags").list().iter().filter_map(|item| item.text(TAGS, tag)).collect();
    let defaults = defaults(&table.key("defaultRoles").table(), base.as_ref());
    RolePolicy {
        by_pod: (by_pod.kiam || by_pod.kube2iam.is_some()).then_some(by_pod),
        by_service_account: has("irsa").then(|| audience.into()),
        by_association: cluster(&pod_identity.key("cluster"), has(POD_IDENTITY)),
        defaults,
        tags,
        session_prefix: prefix.unwrap_or_default(),
        base,
    }
}

/// The values of `aws.ways`: the projects whose annotations count.
const WAYS: [&str; 4] = ["irsa", "kiam", "kube2iam", POD_IDENTITY];

/// The value of `aws.ways` for EKS Pod Identity: EKS chooses the role, and no annotation counts.
const POD_IDENTITY: &str = "pod-identity";

fn ways(node: &DocumentNode<'_>) -> Vec<&'static str> {
    if !node.is_present() {
        return vec!["irsa"];
    }
    let known = |text: &str| WAYS.iter().find(|way| **way == text).copied();
    node.list().iter().filter_map(|item| item.text("irsa, kiam, kube2iam or pod-identity", known)).collect()
}

/// Reads the cluster whose associations count. `None` if pod-identity is off.
fn cluster(node: &DocumentNode<'_>, is_on: bool) -> Option<ClusterName> {
    if is_on && !node.is_present() {
        node.reject("the name of the cluster at EKS, because of pod-identity");
    }
    node.text("the name of an EKS cluster", |text| ClusterName::parse(text).ok()).filter(|_| is_on)
}

fn kube2iam(table: &DocumentTable<'_>) -> Kube2iam {
    let known = |text: &str| FORMATS.iter().find(|(_, name)| *name == text).map(|(format, _)| *format);
    Kube2iam {
        restricted: table.key("namespaceRestrictions").boolean().unwrap_or(true),
        format: table.key("format").text("glob or regexp", known).unwrap_or(AllowedRolesFormat::Glob),
    }
}

const FORMATS: [(AllowedRolesFormat, &str); 2] =
    [(AllowedRolesFormat::Glob, "glob"), (AllowedRolesFormat::Regexp, "regexp")];

fn defaults(table: &DocumentTable<'_>, base: Option<&BaseRoleArn>) -> HashMap<String, NamedRole> {
    let role = |(namespace, node): &(&str, DocumentNode<'_>)| {
        if !is_dns_label(namespace) {
            node.reject("below the name of a namespace");
        }
        Some(((*namespace).to_owned(), node.text(ROLE, |text| role_arn::resolve(text, base))?))
    };
    table.entries().iter().filter_map(role).collect()
}

const AUDIENCE: &str = "whom a token is for, without spaces, quotes or backslashes";

fn audience(text: &str) -> Option<String> {
    session::is_audience(text).then(|| text.to_owned())
}

const TAGS: &str =
    "one of kubernetes-namespace, kubernetes-service-account, kubernetes-pod-name and kubernetes-pod-uid";

fn tag(text: &str) -> Option<PodTag> {
    PodTag::ALL.into_iter().find(|tag| tag.key() == text)
}

fn exchange(
    table: &DocumentTable<'_>,
    session: &DocumentTable<'_>,
    pod_identity: &DocumentTable<'_>,
    base: &Path,
    region: String,
    rules: &RolePolicy,
) -> RoleSessionConfig {
    let length = |text: &str| SessionDuration::new(values::duration(text)?).ok();
    let known = |text: &str| SERVICES.iter().find(|(_, name)| *name == text).map(|(sts, _)| *sts);
    let url = |node: &DocumentNode<'_>| {
        node.text("an https URL without a path, or http to a loopback address", values::secure_url)
    };
    let (sts_url, eks_auth_url) = (url(&table.key("stsUrl")), url(&pod_identity.key("url")));
    RoleSessionConfig {
        region,
        sts: table.key("sts").text("regional or global", known).unwrap_or_default(),
        ca_file: table.key("caFile").text("the path of a PEM file", |text| values::path(text, base)),
        proxy: proxy(table, [&sts_url, &eks_auth_url].map(Option::as_deref)),
        sts_url,
        eks_auth_url,
        length: session
            .key("length")
            .text("1h to 12h: SDKs ask on every call for what has less than 15m left", length)
            .unwrap_or(SessionDuration::HOUR),
        base: base_keys(&table.key("credentials").table(), base, rules),
    }
}

const SERVICES: [(StsEndpointKind, &str); 2] =
    [(StsEndpointKind::Regional, "regional"), (StsEndpointKind::Global, "global")];

/// Reads the proxy. Rejects it for plain http, which the proxy could read; https passes through it in a tunnel.
fn proxy(table: &DocumentTable<'_>, urls: [Option<&str>; 2]) -> Option<String> {
    let key = table.key("proxy");
    let form = "an http URL without a path, such as http://proxy.example:3128";
    let proxy = key.text(form, values::http_url)?;
    if !values::is_loopback_url(&proxy) && urls.iter().flatten().any(|url| url.starts_with("http://")) {
        key.reject("a loopback address, because what is asked through it is plain http");
    }
    Some(proxy)
}

fn base_keys(table: &DocumentTable<'_>, base: &Path, rules: &RolePolicy) -> BaseCredentials {
    const FROM: [&str; 3] = ["node", "file", "pod"];
    let known = |text: &str| FROM.iter().find(|from| **from == text).copied();
    let from = table.key("from").text("node, file or pod", known).unwrap_or("node");
    let (file, profile) = (table.key("file"), table.key("profile").text("a profile's name", values::name));
    let (audience_of, role) = (table.key("audience").text(AUDIENCE, audience), table.key("role"));
    let (path, role_arn) = (
        file.text("the path of a credentials file", |text| values::path(text, base)),
        role.text(ROLE, |text| role_arn::resolve(text, rules.base.as_ref())),
    );
    if from == "file" && !file.is_present() {
        file.reject("the path of a credentials file, because of from: file");
    }
    if from == "pod" && rules.by_association.is_some() {
        let expected = "node or file, because of pod-identity: EKS Auth is asked under a signature";
        table.key("from").reject(expected);
    }
    if from == "pod" && !role.is_present() {
        role.reject("the role that pods take first, because of from: pod");
    }
    let from = match from {
        "file" => BaseCredentialSource::File {
            path: path.unwrap_or_default(),
            profile: profile.unwrap_or_else(|| "default".to_owned()),
        },
        "pod" => BaseCredentialSource::Pod {
            audience: audience_of.unwrap_or_else(|| WEB_IDENTITY_AUDIENCE.to_owned()),
        },
        _ => BaseCredentialSource::Node,
    };
    BaseCredentials { from, role: role_arn }
}

/// Reads the facts of the node that pods may know. All other facts are absent.
fn facts(table: &DocumentTable<'_>, account: Option<String>, region: &str) -> InstanceMetadata {
    let instance = table.key("instance").table();
    let name = |key: &'static str| {
        instance.key(key).text("a name of letters, digits, `-`, `_`, `.` and `:`", values::name)
    };
    InstanceMetadata {
        region: Some(region.to_owned()).filter(|region| !region.is_empty()),
        availability_zone: name("availabilityZone"),
        availability_zone_id: name("availabilityZoneId"),
        instance_id: name("id"),
        instance_type: name("type"),
        image_id: name("imageId"),
        architecture: name("architecture"),
        local_hostname: name("hostname"),
        local_ipv4: instance.key("address").text("an IPv4 address", |text| {
            text.parse::<std::net::Ipv4Addr>().ok().map(|address| address.to_string())
        }),
        account_id: account,
        partition: Some(partition(region).to_owned()),
        domain: name("domain"),
    }
}

fn imds(table: &DocumentTable<'_>, base: &Path) -> ImdsConfig {
    let known = |text: &str| TOKENS.iter().find(|(_, name)| *name == text).map(|(tokens, _)| *tokens);
    let lifetime = |text: &str| values::duration(text).filter(|life| TtlLimit::new(*life).is_some());
    let pattern = |text: &str| Pattern::new(text).is_ok().then(|| text.to_owned());
    let expression = "a regular expression of whole paths, such as /latest/meta-data/ami-id";
    let key_file = table.key("keyFile").text("the path of a file", |text| values::path(text, base));
    // The next process has other keys, and the SDK for Rust shows a refused token for as long as it was granted.
    let longest = if key_file.is_some() { MAX_TTL } else { SHORT_TTL };
    ImdsConfig {
        tokens: table.key("tokens").text("required or optional", known).unwrap_or(TokenRequirement::Required),
        token_lifetime: table.key("tokenLifetime").text("5m to 6h", lifetime).unwrap_or(longest),
        key_file,
        passthrough: table
            .key("passthrough")
            .list()
            .iter()
            .filter_map(|item| item.text(expression, pattern))
            .collect(),
        upstream: table
            .key("upstream")
            .text("an http URL without a path, such as http://169.254.169.254", values::http_url)
            .unwrap_or_else(|| REAL.to_owned()),
    }
}

const TOKENS: [(TokenRequirement, &str); 2] =
    [(TokenRequirement::Required, "required"), (TokenRequirement::Optional, "optional")];

/// Reads the configuration of the containers endpoint.
///
/// A request may name as its host an address that SDKs know or one at which the agent listens. A DNS name that resolves to such an
/// address is still refused.
fn containers_of(table: &DocumentTable<'_>, listen: &[SocketAddr]) -> ContainersConfig {
    let own = listen.iter().map(SocketAddr::ip).filter(|ip| !ip.is_unspecified());
    let mut hosts: Vec<IpAddr> = containers::ADDRESSES.into_iter().chain(own).collect();
    hosts.sort_unstable();
    hosts.dedup();
    ContainersConfig {
        audience: table
            .key("audience")
            .text(AUDIENCE, audience)
            .unwrap_or_else(|| POD_IDENTITY_AUDIENCE.to_owned()),
        hosts,
    }
}

impl Serialize for AwsConfig {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { rules, exchange, facts, imds, containers } = self;
        let mut written = written_rules(rules);
        written.extend(written_exchange(exchange));
        let tags: Vec<_> = rules.tags.iter().map(|tag| tag.key()).collect();
        written.extend(members(json!({
            "account": facts.account_id,
            "podIdentity": {
                "cluster": rules.by_association.as_ref().map(ClusterName::as_str),
                "url": exchange.eks_auth_url,
            },
            "session": {
                "length": format!("{}s", exchange.length.get().as_secs()),
                "namePrefix": rules.session_prefix,
                "tags": tags,
            },
            "instance": written_facts(facts),
            "imds": {
                "tokens": TOKENS.iter().find(|(tokens, _)| *tokens == imds.tokens).map(|(_, name)| name),
                "tokenLifetime": format!("{}s", imds.token_lifetime.as_secs()),
                "keyFile": imds.key_file,
                "passthrough": imds.passthrough,
                "upstream": imds.upstream,
            },
            "containers": { "audience": containers.audience },
        })));
        Value::from(written).serialize(to)
    }
}

fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

fn written_rules(rules: &RolePolicy) -> Map<String, Value> {
    let by_pod = rules.by_pod;
    let kube2iam = by_pod.and_then(|by_pod| by_pod.kube2iam);
    let on = [
        rules.by_service_account.is_some(),
        by_pod.is_some_and(|by_pod| by_pod.kiam),
        kube2iam.is_some(),
        rules.by_association.is_some(),
    ];
    let ways: Vec<_> = WAYS.iter().zip(on).filter(|(_, is_on)| *is_on).map(|(way, _)| way).collect();
    let defaults = rules.defaults.iter().map(|(namespace, role)| (namespace.clone(), role.as_str().into()));
    let kube2iam = kube2iam.map(|way| {
        let format = FORMATS.iter().find(|(format, _)| *format == way.format).map(|(_, name)| name);
        json!({ "namespaceRestrictions": way.restricted, "format": format })
    });
    members(json!({
        "baseRoleArn": rules.base.as_ref().map(BaseRoleArn::as_str),
        "ways": ways,
        "audience": rules.by_service_account.as_deref(),
        "kube2iam": kube2iam,
        "defaultRoles": defaults.collect::<Map<_, _>>(),
    }))
}

fn written_exchange(exchange: &RoleSessionConfig) -> Map<String, Value> {
    let RoleSessionConfig { region, sts, sts_url, ca_file, proxy, base, .. } = exchange;
    let mut from = members(match &base.from {
        BaseCredentialSource::Node => json!({ "from": "node" }),
        BaseCredentialSource::File { path, profile } => {
            json!({ "from": "file", "file": path, "profile": profile })
        }
        BaseCredentialSource::Pod { audience } => json!({ "from": "pod", "audience": audience }),
    });
    from.insert("role".into(), json!(base.role.as_ref().map(NamedRole::as_str)));
    members(json!({
        "region": region,
        "sts": SERVICES.iter().find(|(known, _)| known == sts).map(|(_, name)| name),
        "stsUrl": sts_url,
        "caFile": ca_file,
        "proxy": proxy,
        "credentials": from,
    }))
}

fn written_facts(facts: &InstanceMetadata) -> Value {
    json!({
        "id": facts.instance_id,
        "type": facts.instance_type,
        "imageId": facts.image_id,
        "architecture": facts.architecture,
        "availabilityZone": facts.availability_zone,
        "availabilityZoneId": facts.availability_zone_id,
        "hostname": facts.local_hostname,
        "address": facts.local_ipv4,
        "domain": facts.domain,
    })
}

#[cfg(test)]
mod tests {
    use seawall_config::{Document, ValidationErrors};

    use super::*;

    fn read(text: &str) -> Result<AwsConfig, ValidationErrors> {
        let document = Document::parse(text)?;
        let listen = ["127.0.0.1:8988".parse().unwrap(), "0.0.0.0:80".parse().unwrap()];
        let section = AwsConfig::read(&document.root().key("aws"), Path::new("/etc/seawall"), &listen);
        document.finish(section)
    }

    fn mistakes(text: &str) -> Vec<(String, String)> {
        let mistakes = read(text).unwrap_err().0;
        mistakes.into_iter().map(|mistake| (mistake.path, mistake.expected)).collect()
    }

    #[test]
    fn the_effective_section_reads_as_itself() {
        let text = "aws: { region: cn-north-1, account: \"123456789012\", ways: [kiam, kube2iam], kube2iam: { format: regexp }, \
                    defaultRoles: { shop: cart }, credentials: { from: file, file: keys, role: agent }, \
                    session: { length: 2h, namePrefix: kiam-, tags: [kubernetes-namespace] }, sts: global, \
                    imds: { tokens: optional, keyFile: tokens, passthrough: [/latest/meta-data/mac] } }";
        let section = read(text).unwrap();
        let written = serde_json::to_string(&json!({ "aws": section })).unwrap();
        assert_eq!(read(&written).unwrap(), section, "{written}");
        assert!(written.contains("arn:aws-cn:iam::123456789012:role/cart"), "{written}");
    }

    /// Regression: by default, each restart cost programs with the SDK for Rust up to six hours.
    #[test]
    fn what_a_restart_takes_lives_for_minutes_unless_somebody_says_otherwise_and_is_told_of() {
        for (imds, life, remark) in [
            ("", 300, Some("a restart of the agent takes them all")),
            ("keyFile: k", 21_600, None),
            ("keyFile: k, tokenLifetime: 1h", 3600, None),
            ("tokenLifetime: 1h", 3600, Some("refused so long after each restart")),
        ] {
            let section = read(&format!("aws: {{ region: eu-west-1, imds: {{ {imds} }} }}")).unwrap();
            assert_eq!(section.imds.token_lifetime.as_secs(), life, "{imds}");
            let told = section.imds.warning();
            assert_eq!(told.is_some(), remark.is_some(), "{told:?}");
            assert!(remark.is_none_or(|part| told.unwrap().contains(part)), "{imds}");
        }
    }

    #[test]
    fn only_the_annotations_of_the_ways_that_are_on_are_asked_for() {
        let selected = |ways: &str| {
            read(&format!("aws: {{ region: eu-west-1, ways: [{ways}] }}")).unwrap().annotation_keys()
        };
        assert_eq!(selected("irsa").namespace, [""; 0]);
        assert_eq!(selected("kiam").service_account, [""; 0]);
        assert_eq!(selected("irsa, kiam, kube2iam").namespace.len(), 2);
    }

    #[test]
    fn every_mistake_is_named_at_once() {
        let all = mistakes(
            "aws: { region: EU, account: 12, ways: [kiam, gcp], defaultRoles: { Shop: cart }, \
             credentials: { from: file }, session: { length: 15m, tags: [pod] }, imds: { tokens: v2, tokenLifetime: 1m, \
             passthrough: [\"(\"] }, containers: { audience: \"a b\" }, other: 1 }",
        );
        let places: Vec<_> = all.iter().map(|(place, _)| place.as_str()).collect();
        for place in [
            "aws.region",
            "aws.account",
            "aws.ways[1]",
            "aws.defaultRoles.Shop",
            "aws.credentials.file",
            "aws.session.length",
            "aws.session.tags[0]",
            "aws.imds.tokens",
            "aws.imds.tokenLifetime",
            "aws.imds.passthrough[0]",
            "aws.containers.audience",
            "aws",
        ] {
            assert!(places.contains(&place), "{place}: {all:?}");
        }
    }

    #[test]
    fn eks_is_asked_in_the_name_of_a_cluster_and_under_a_signature() {
        let on = |more: &str| format!("aws: {{ region: eu-west-1, ways: [pod-identity]{more} }}");
        let reef = ", podIdentity: { cluster: reef, url: \"https://eks.example\" }";
        let section = read(&on(reef)).unwrap();
        assert_eq!(section.rules.by_association, ClusterName::parse("reef").ok());
        assert_eq!(section.exchange.eks_auth_url.as_deref(), Some("https://eks.example"));
        assert_eq!(section.annotation_keys(), Default::default(), "no annotation counts");
        let written = serde_json::to_string(&json!({ "aws": section })).unwrap();
        assert_eq!(read(&written).unwrap(), section, "{written}");
        let off = read("aws: { region: eu-west-1, podIdentity: { cluster: reef } }").unwrap();
        assert_eq!(off.rules.by_association, None);
        for (more, place) in [
            ("", "aws.podIdentity.cluster"),
            (", podIdentity: { cluster: a/b }", "aws.podIdentity.cluster"),
            (", podIdentity: { cluster: reef, url: \"http://eks.example\" }", "aws.podIdentity.url"),
            (
                ", podIdentity: { cluster: reef, url: \"http://127.0.0.1:1\" }, proxy: \"http://10.0.0.1:1\"",
                "aws.proxy",
            ),
            (
                ", podIdentity: { cluster: reef }, credentials: { from: pod, role: \"arn:aws:iam::123456789012:role/a\" }",
                "aws.credentials.from",
            ),
            (
                ", podIdentity: { cluster: reef }, imds: { upstream: \"http://127.0.0.1:8988\" }",
                "aws.imds.upstream",
            ),
        ] {
            let places: Vec<_> = mistakes(&on(more)).into_iter().map(|(place, _)| place).collect();
            assert_eq!(places, [place], "{more}");
        }
    }

    #[test]
    fn an_agent_is_not_its_own_real_service_where_it_asks_that() {
        let own = "imds: { upstream: \"http://127.0.0.1:8988\" }";
        assert!(read(&format!("aws: {{ region: eu-west-1, {own} }}")).is_ok(), "nobody asks it");
        for asks in ["ways: [kiam]", "defaultRoles: { shop: \"arn:aws:iam::123456789012:role/a\" }"] {
            let places = mistakes(&format!("aws: {{ region: eu-west-1, {asks}, {own} }}"));
            assert_eq!(places[0].0, "aws.imds.upstream");
        }
    }

    #[test]
    fn a_request_may_name_the_agents_own_addresses_as_its_host() {
        let section = read("aws: { region: eu-west-1 }").unwrap();
        assert!(section.containers.hosts.contains(&IpAddr::from([127, 0, 0, 1])));
        assert_eq!(
            section.containers.hosts.len(),
            containers::ADDRESSES.len() + 1,
            "no address is all of them"
        );
    }
}
