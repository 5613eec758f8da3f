//! Reads and writes the `aws` section of the configuration.
//! The section contains the roles of pods, the method to assume these roles, and the settings of the agent's two AWS endpoints
//! (the metadata service and the containers' endpoint).

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use seawall_broker::aws::{
    ClusterName, POD_IDENTITY_AUDIENCE, Region, SessionDuration, StsEndpointKind, WEB_IDENTITY_AUDIENCE,
    partition,
};
use seawall_config::{DocumentNode, DocumentTable, values};
use seawall_core::endpoint::REAL_SERVER_URL;
use seawall_core::name_syntax::{is_dns_label, is_dns_subdomain};
use seawall_protocols::aws::session_token::{MAX_TTL, UNKNOWN_POD_MAX_TTL};
use seawall_protocols::aws::{
    InstanceMetadata, Pattern, PatternError, TokenRequirement, TtlLimit, containers,
};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::reloadable_keys::ReloadableKeys;

use super::passthrough::{CallRate, PassthroughLimits};
use super::policy::annotations::DEFAULT_IRSA_ANNOTATION_PREFIX;
use super::policy::namespace::{AllowedRolesFormat, Kube2iamFlags};
use super::policy::role_arn::{BaseRoleArn, NamedRole};
use super::policy::session::PodTag;
use super::policy::{RolePolicy, namespace, role_arn, session};

/// The `aws` section of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct AwsConfig {
    pub(super) role_policy: RolePolicy,
    /// The prefix of the annotations `role-arn` and `audience` on ServiceAccounts.
    pub(super) irsa_annotation_prefix: String,
    pub(super) role_session: RoleSessionConfig,
    pub(super) served_instance_metadata: InstanceMetadata,
    pub(super) imds: ImdsConfig,
    pub(super) container_credentials: ContainerCredentialsConfig,
}

/// The settings for sessions of roles: the AWS endpoints that issue the sessions, and the credentials with which the agent calls
/// these endpoints.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RoleSessionConfig {
    pub(super) region: String,
    pub(super) sts_endpoint: StsEndpointKind,
    pub(super) sts_url: Option<String>,
    pub(super) eks_auth_url: Option<String>,
    /// A PEM file of additional CA certificates to trust at STS and EKS Auth.
    pub(super) ca_file: Option<PathBuf>,
    pub(super) proxy: Option<String>,
    pub(super) duration: SessionDuration,
    pub(super) base_credentials: BaseCredentials,
}

/// The identity with which the agent assumes roles for pods.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BaseCredentials {
    pub(super) source: BaseCredentialSource,
    /// The base role, if any. The agent assumes the base role first. With the base role's credentials, it assumes the pods'
    /// roles.
    pub(super) role: Option<NamedRole>,
}

/// The source of the base credentials.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum BaseCredentialSource {
    /// The role of the node's EC2 instance.
    InstanceRole,
    /// A profile in a credentials file in AWS's format.
    File { path: PathBuf, profile: String },
    /// The pod's own Kubernetes token with this audience assumes the base role. The node needs no credentials.
    PodToken { audience: String },
}

/// The configuration of the metadata service.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ImdsConfig {
    pub(super) http_tokens: TokenRequirement,
    /// The longest lifetime of a session token.
    pub(super) max_token_lifetime: Duration,
    /// The file that stores the keys of session tokens. With such a file, the tokens survive a restart of the agent.
    pub(super) token_key_file: Option<PathBuf>,
    /// Regular expressions for the paths that the agent forwards to the real service.
    pub(super) passthrough_paths: Vec<String>,
    /// The rates at which pods may read these paths.
    pub(super) passthrough_limits: PassthroughLimits,
    /// The URL of the real service. The agent sends passthrough requests to this URL, and gets the node's own credentials from
    /// it.
    pub(super) upstream_url: String,
}

/// The configuration of the containers' credentials endpoint.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ContainerCredentialsConfig {
    /// The audience of the Kubernetes tokens that pods send to this endpoint.
    pub(super) audience: String,
    /// The addresses that are allowed in the Host header of a request.
    pub(super) allowed_hosts: Vec<IpAddr>,
}

/// The reloadable keys of this section. A change of `imds.tokenKeyFile` needs a restart, because the current keys signed the
/// tokens of running pods.
pub(crate) const RELOADABLE_KEYS: ReloadableKeys = ReloadableKeys {
    reloadable: &[
        "account",
        "baseRoleArn",
        "caFile",
        "containers.audience",
        "credentials.audience",
        "credentials.file",
        "credentials.profile",
        "credentials.role",
        "credentials.source",
        "defaultRoles.",
        "imds.httpTokens",
        "imds.maxTokenLifetime",
        "imds.passthroughLimits.",
        "imds.passthroughPaths",
        "imds.upstreamUrl",
        "instance.",
        "irsaAnnotationPrefix",
        "irsaAudience",
        "kube2iam.namespaceRestrictionFormat",
        "kube2iam.namespaceRestrictions",
        "podIdentity.clusterName",
        "podIdentity.eksAuthUrl",
        "proxy",
        "region",
        "roleSources",
        "session.duration",
        "session.namePrefix",
        "session.tags",
        "stsEndpoint",
        "stsUrl",
    ],
    keys_needing_restart: &["imds.tokenKeyFile"],
};

const ROLE: &str = "a role ARN, or a role name below aws.baseRoleArn";

impl AwsConfig {
    /// Reads the section.
    pub fn read(section: &DocumentNode<'_>, base: &Path, listen: &[SocketAddr]) -> Self {
        let table = section.as_table();
        let account = table.node_of_key("account").text("an account's twelve digits, in quotes", |text| {
            role_arn::is_account_id(text).then(|| text.to_owned())
        });
        let region = region(&table);
        let roles = base_of_roles(&table, account.as_deref(), &region);
        let session = table.node_of_key("session").as_table();
        let pod_identity = table.node_of_key("podIdentity").as_table();
        let rules = rules(&table, &session, &pod_identity, roles);
        let irsa_annotation_prefix = table
            .node_of_key("irsaAnnotationPrefix")
            .text("the prefix of annotations, such as seawall.example", |text| {
                is_dns_subdomain(text).then(|| text.to_owned())
            });
        let exchange = exchange(&table, &session, &pod_identity, base, region, &rules);
        let facts = facts(&table, account, &exchange.region);
        let of_imds = table.node_of_key("imds").as_table();
        let imds = imds(&of_imds, base);
        let containers = containers_of(&table.node_of_key("containers").as_table(), listen);
        let read = Self {
            role_policy: rules,
            irsa_annotation_prefix: irsa_annotation_prefix
                .unwrap_or_else(|| DEFAULT_IRSA_ANNOTATION_PREFIX.to_owned()),
            role_session: exchange,
            served_instance_metadata: facts,
            imds,
            container_credentials: containers,
        };
        if read.asks_the_real_service() && values::is_own_listener(&read.imds.upstream_url, listen) {
            of_imds
                .node_of_key("upstreamUrl")
                .reject("the address of the real metadata service, not an address that the agent listens at");
        }
        read
    }

    /// True if the agent uses its base credentials for any pod under this configuration.
    pub(super) fn assumes_roles(&self) -> bool {
        let RolePolicy {
            pod_role_rules: by_pod,
            association_cluster: by_association,
            default_roles: defaults,
            ..
        } = &self.role_policy;
        by_pod.is_some() || by_association.is_some() || !defaults.is_empty()
    }

    /// Returns the URL of the real metadata service.
    pub(crate) fn upstream_url(&self) -> &str {
        &self.imds.upstream_url
    }

    fn asks_the_real_service(&self) -> bool {
        !self.imds.passthrough_paths.is_empty()
            || self.assumes_roles()
                && self.role_session.base_credentials.source == BaseCredentialSource::InstanceRole
    }
}

impl ImdsConfig {
    /// Returns a warning for the operator if a restart of the agent invalidates session tokens.
    pub(super) fn session_token_warning(&self) -> Option<String> {
        let life = self.max_token_lifetime.as_secs();
        let limit = if self.max_token_lifetime > UNKNOWN_POD_MAX_TTL {
            format!(
                "a restart of the agent invalidates IMDS session tokens. Programs with the AWS SDK for Rust then fail for up to {life} s"
            )
        } else {
            format!(
                "IMDS session tokens live for at most {life} s, because a restart of the agent invalidates them"
            )
        };
        self.token_key_file
            .is_none()
            .then(|| format!("{limit}. Set aws.imds.tokenKeyFile to keep session tokens across restarts"))
    }

    /// Returns the compiled expressions of `passthrough_paths`.
    ///
    /// # Errors
    /// An expression does not compile, although the configuration accepted it.
    pub(super) fn compile_passthrough_patterns(&self) -> Result<Vec<Pattern>, PatternError> {
        self.passthrough_paths.iter().map(|text| Pattern::new(text)).collect()
    }
}

/// Reads the region. If the region is invalid, the function records the error and returns an empty text that no code uses.
fn region(table: &DocumentTable<'_>) -> String {
    let expected = "a region, such as eu-central-1";
    let known = |text: &str| Region::parse(text).is_ok().then(|| text.to_owned());
    table.required_node("region", expected).text(expected, known).unwrap_or_default()
}

fn base_of_roles(table: &DocumentTable<'_>, account: Option<&str>, region: &str) -> Option<BaseRoleArn> {
    let form = "the beginning of role ARNs, such as arn:aws:iam::123456789012:role/";
    let given = table.node_of_key("baseRoleArn").text(form, BaseRoleArn::new);
    given.or_else(|| BaseRoleArn::of_account(partition(region), account?))
}

fn rules(
    table: &DocumentTable<'_>,
    session: &DocumentTable<'_>,
    pod_identity: &DocumentTable<'_>,
    base: Option<BaseRoleArn>,
) -> RolePolicy {
    let role_sources = role_sources(&table.node_of_key("roleSources"));
    let has = |source: &str| role_sources.contains(&source);
    let kube2iam = kube2iam(&table.node_of_key("kube2iam").as_table());
    let by_pod = namespace::NamespaceRules {
        uses_kiam_annotation: has("kiam"),
        kube2iam: has("kube2iam").then_some(kube2iam),
    };
    let audience = table.node_of_key("irsaAudience").text(AUDIENCE, audience);
    let audience = audience.unwrap_or_else(|| WEB_IDENTITY_AUDIENCE.to_owned());
    let prefix = session.node_of_key("namePrefix").text("at most 32 letters, digits and _+=,.@-", |text| {
        session::is_session_name_prefix(text).then(|| text.to_owned())
    });
    let tags = session.node_of_key("tags").list().iter().filter_map(|item| item.text(TAGS, tag)).collect();
    let defaults = defaults(&table.node_of_key("defaultRoles").as_table(), base.as_ref());
    RolePolicy {
        pod_role_rules: (by_pod.uses_kiam_annotation || by_pod.kube2iam.is_some()).then_some(by_pod),
        service_account_audience: has("irsa").then(|| audience.into()),
        association_cluster: cluster(&pod_identity.node_of_key("clusterName"), has(POD_IDENTITY)),
        default_roles: defaults,
        session_tags: tags,
        session_prefix: prefix.unwrap_or_default(),
        role_arn_prefix: base,
    }
}

/// The values of `aws.roleSources`: the projects whose annotations the agent uses, and EKS Pod Identity.
const ROLE_SOURCES: [&str; 4] = ["irsa", "kiam", "kube2iam", POD_IDENTITY];

/// The value of `aws.roleSources` for EKS Pod Identity. EKS chooses the role, so this source uses no annotations.
const POD_IDENTITY: &str = "pod-identity";

fn role_sources(node: &DocumentNode<'_>) -> Vec<&'static str> {
    if !node.is_present() {
        return vec!["irsa"];
    }
    let known = |text: &str| ROLE_SOURCES.iter().find(|source| **source == text).copied();
    node.list().iter().filter_map(|item| item.text("irsa, kiam, kube2iam or pod-identity", known)).collect()
}

/// Reads the name of the EKS cluster that associates roles with ServiceAccounts. Returns `None` if pod-identity is off.
fn cluster(node: &DocumentNode<'_>, is_on: bool) -> Option<ClusterName> {
    if is_on && !node.is_present() {
        node.reject("the name of the EKS cluster, because roleSources has pod-identity");
    }
    node.text("the name of an EKS cluster", |text| ClusterName::parse(text).ok()).filter(|_| is_on)
}

fn kube2iam(table: &DocumentTable<'_>) -> Kube2iamFlags {
    let known = |text: &str| FORMATS.iter().find(|(_, name)| *name == text).map(|(format, _)| *format);
    Kube2iamFlags {
        namespace_restrictions: table.node_of_key("namespaceRestrictions").boolean().unwrap_or(true),
        namespace_restriction_format: table
            .node_of_key("namespaceRestrictionFormat")
            .text("glob or regexp", known)
            .unwrap_or(AllowedRolesFormat::Glob),
    }
}

const FORMATS: [(AllowedRolesFormat, &str); 2] =
    [(AllowedRolesFormat::Glob, "glob"), (AllowedRolesFormat::Regexp, "regexp")];

fn defaults(table: &DocumentTable<'_>, base: Option<&BaseRoleArn>) -> HashMap<String, NamedRole> {
    let role = |(namespace, node): &(&str, DocumentNode<'_>)| {
        if !is_dns_label(namespace) {
            node.reject("the name of a namespace as the key");
        }
        Some(((*namespace).to_owned(), node.text(ROLE, |text| role_arn::resolve_role(text, base))?))
    };
    table.entries().iter().filter_map(role).collect()
}

const AUDIENCE: &str = "a token audience without spaces, quotes or backslashes";

fn audience(text: &str) -> Option<String> {
    session::is_valid_audience(text).then(|| text.to_owned())
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
    let duration = |text: &str| SessionDuration::new(values::parse_duration(text)?).ok();
    let known =
        |text: &str| STS_ENDPOINTS.iter().find(|(_, name)| *name == text).map(|(endpoint, _)| *endpoint);
    let url = |node: &DocumentNode<'_>| {
        node.text(
            "an https URL without a path, or http to a loopback address",
            values::parse_https_or_loopback_url,
        )
    };
    let (sts_url, eks_auth_url) =
        (url(&table.node_of_key("stsUrl")), url(&pod_identity.node_of_key("eksAuthUrl")));
    RoleSessionConfig {
        region,
        sts_endpoint: table.node_of_key("stsEndpoint").text("regional or global", known).unwrap_or_default(),
        ca_file: table
            .node_of_key("caFile")
            .text("the path of a PEM file", |text| values::resolve_path(text, base)),
        proxy: proxy(table, [&sts_url, &eks_auth_url].map(Option::as_deref)),
        sts_url,
        eks_auth_url,
        duration: session
            .node_of_key("duration")
            .text(
                "1h to 12h, because some SDKs fetch on every call while credentials have less than 15m left",
                duration,
            )
            .unwrap_or(SessionDuration::HOUR),
        base_credentials: base_keys(&table.node_of_key("credentials").as_table(), base, rules),
    }
}

const STS_ENDPOINTS: [(StsEndpointKind, &str); 2] =
    [(StsEndpointKind::Regional, "regional"), (StsEndpointKind::Global, "global")];

/// Reads the proxy. If one of `urls` is an http URL, the function rejects a remote proxy, because the proxy could read plain
/// HTTP. HTTPS passes through the proxy in a tunnel.
fn proxy(table: &DocumentTable<'_>, urls: [Option<&str>; 2]) -> Option<String> {
    let key = table.node_of_key("proxy");
    let form = "an http URL without a path, such as http://proxy.example:3128";
    let proxy = key.text(form, values::parse_plain_http_url)?;
    if !values::is_loopback_url(&proxy) && urls.iter().flatten().any(|url| url.starts_with("http://")) {
        key.reject("a proxy on a loopback address: stsUrl or podIdentity.eksAuthUrl is plain http, so a remote proxy could read the tokens");
    }
    Some(proxy)
}

fn base_keys(table: &DocumentTable<'_>, base: &Path, rules: &RolePolicy) -> BaseCredentials {
    const SOURCES: [&str; 3] = ["instance-role", "file", "pod-token"];
    let known = |text: &str| SOURCES.iter().find(|source| **source == text).copied();
    let source = table
        .node_of_key("source")
        .text("instance-role, file or pod-token", known)
        .unwrap_or("instance-role");
    let (file, profile) = (
        table.node_of_key("file"),
        table.node_of_key("profile").text("a profile's name", values::parse_url_safe_name),
    );
    let (audience_of, role) =
        (table.node_of_key("audience").text(AUDIENCE, audience), table.node_of_key("role"));
    let (path, role_arn) = (
        file.text("the path of a credentials file", |text| values::resolve_path(text, base)),
        role.text(ROLE, |text| role_arn::resolve_role(text, rules.role_arn_prefix.as_ref())),
    );
    if source == "file" && !file.is_present() {
        file.reject("the path of a credentials file, because source is file");
    }
    if source == "pod-token" && rules.association_cluster.is_some() {
        let expected = "instance-role or file, because pod-identity needs signed calls to EKS Auth";
        table.node_of_key("source").reject(expected);
    }
    if source == "pod-token" && !role.is_present() {
        role.reject("the role that pods assume first, because source is pod-token");
    }
    let source = match source {
        "file" => BaseCredentialSource::File {
            path: path.unwrap_or_default(),
            profile: profile.unwrap_or_else(|| "default".to_owned()),
        },
        "pod-token" => BaseCredentialSource::PodToken {
            audience: audience_of.unwrap_or_else(|| WEB_IDENTITY_AUDIENCE.to_owned()),
        },
        _ => BaseCredentialSource::InstanceRole,
    };
    BaseCredentials { source, role: role_arn }
}

/// Reads the facts about the node that pods can see. A fact without a configured value is absent.
fn facts(table: &DocumentTable<'_>, account: Option<String>, region: &str) -> InstanceMetadata {
    let instance = table.node_of_key("instance").as_table();
    let name = |key: &'static str| {
        instance
            .node_of_key(key)
            .text("a name of letters, digits, `-`, `_`, `.` and `:`", values::parse_url_safe_name)
    };
    InstanceMetadata {
        region: Some(region.to_owned()).filter(|region| !region.is_empty()),
        availability_zone: name("availabilityZone"),
        availability_zone_id: name("availabilityZoneId"),
        instance_id: name("id"),
        instance_type: name("type"),
        image_id: name("imageId"),
        architecture: name("architecture"),
        local_hostname: name("localHostname"),
        local_ipv4: instance.node_of_key("localIpv4").text("an IPv4 address", |text| {
            text.parse::<std::net::Ipv4Addr>().ok().map(|address| address.to_string())
        }),
        account_id: account,
        partition: Some(partition(region).to_owned()),
        partition_domain: name("domain"),
    }
}

fn imds(table: &DocumentTable<'_>, base: &Path) -> ImdsConfig {
    let known = |text: &str| HTTP_TOKENS.iter().find(|(_, name)| *name == text).map(|(tokens, _)| *tokens);
    let lifetime = |text: &str| values::parse_duration(text).filter(|life| TtlLimit::new(*life).is_some());
    let pattern = |text: &str| Pattern::new(text).is_ok().then(|| text.to_owned());
    let expression = "a regular expression that matches whole paths, such as /latest/meta-data/ami-id";
    let token_key_file =
        table.node_of_key("tokenKeyFile").text("the path of a file", |text| values::resolve_path(text, base));
    // Without a key file, a restart gives the agent new keys. The SDK for Rust keeps using a refused token until the token's
    // granted lifetime ends, so the default lifetime is short without a key file.
    let longest = if token_key_file.is_some() { MAX_TTL } else { UNKNOWN_POD_MAX_TTL };
    ImdsConfig {
        http_tokens: table
            .node_of_key("httpTokens")
            .text("required or optional", known)
            .unwrap_or(TokenRequirement::Required),
        max_token_lifetime: table
            .node_of_key("maxTokenLifetime")
            .text("5m to 6h", lifetime)
            .unwrap_or(longest),
        token_key_file,
        passthrough_paths: table
            .node_of_key("passthroughPaths")
            .list()
            .iter()
            .filter_map(|item| item.text(expression, pattern))
            .collect(),
        passthrough_limits: passthrough_limits(&table.node_of_key("passthroughLimits").as_table()),
        upstream_url: table
            .node_of_key("upstreamUrl")
            .text("an http URL without a path, such as http://169.254.169.254", values::parse_plain_http_url)
            .unwrap_or_else(|| REAL_SERVER_URL.to_owned()),
    }
}

/// The largest rate and burst that the configuration accepts, in calls. It is far above what the real service answers.
const MAX_CALLS: u64 = 100_000;

fn passthrough_limits(table: &DocumentTable<'_>) -> PassthroughLimits {
    let read = |key: &'static str, default: u32| {
        let number = table.node_of_key(key).number(1..=MAX_CALLS);
        number.and_then(|number| number.try_into().ok()).unwrap_or(default)
    };
    let PassthroughLimits { pod, node } = PassthroughLimits::default();
    let rate = |key: &'static str, burst_key: &'static str, default: CallRate| CallRate {
        per_second: read(key, default.per_second),
        burst: read(burst_key, default.burst),
    };
    PassthroughLimits { pod: rate("podRate", "podBurst", pod), node: rate("nodeRate", "nodeBurst", node) }
}

const HTTP_TOKENS: [(TokenRequirement, &str); 2] =
    [(TokenRequirement::Required, "required"), (TokenRequirement::Optional, "optional")];

/// Reads the configuration of the containers' credentials endpoint.
///
/// The endpoint accepts two kinds of addresses in the Host header of a request: addresses that SDKs know, and addresses at which
/// the agent listens. The endpoint refuses a DNS name, even if the name resolves to such an address.
fn containers_of(table: &DocumentTable<'_>, listen: &[SocketAddr]) -> ContainerCredentialsConfig {
    let own = listen.iter().map(SocketAddr::ip).filter(|ip| !ip.is_unspecified());
    let mut hosts: Vec<IpAddr> = containers::ADDRESSES.into_iter().chain(own).collect();
    hosts.sort_unstable();
    hosts.dedup();
    ContainerCredentialsConfig {
        audience: table
            .node_of_key("audience")
            .text(AUDIENCE, audience)
            .unwrap_or_else(|| POD_IDENTITY_AUDIENCE.to_owned()),
        allowed_hosts: hosts,
    }
}

impl Serialize for AwsConfig {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self {
            role_policy: rules,
            irsa_annotation_prefix,
            role_session: exchange,
            served_instance_metadata: facts,
            imds,
            container_credentials: containers,
        } = self;
        let mut written = written_rules(rules);
        written.extend(written_exchange(exchange));
        let tags: Vec<_> = rules.session_tags.iter().map(|tag| tag.key()).collect();
        written.extend(members(json!({
            "account": facts.account_id,
            "irsaAnnotationPrefix": rules.service_account_audience.as_ref().map(|_| irsa_annotation_prefix),
            "podIdentity": {
                "clusterName": rules.association_cluster.as_ref().map(ClusterName::as_str),
                "eksAuthUrl": exchange.eks_auth_url,
            },
            "session": {
                "duration": format!("{}s", exchange.duration.get().as_secs()),
                "namePrefix": rules.session_prefix,
                "tags": tags,
            },
            "instance": written_facts(facts),
            "imds": {
                "httpTokens": HTTP_TOKENS.iter().find(|(tokens, _)| *tokens == imds.http_tokens).map(|(_, name)| name),
                "maxTokenLifetime": format!("{}s", imds.max_token_lifetime.as_secs()),
                "tokenKeyFile": imds.token_key_file,
                "passthroughPaths": imds.passthrough_paths,
                "passthroughLimits": {
                    "podRate": imds.passthrough_limits.pod.per_second,
                    "podBurst": imds.passthrough_limits.pod.burst,
                    "nodeRate": imds.passthrough_limits.node.per_second,
                    "nodeBurst": imds.passthrough_limits.node.burst,
                },
                "upstreamUrl": imds.upstream_url,
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
    let by_pod = rules.pod_role_rules;
    let kube2iam = by_pod.and_then(|by_pod| by_pod.kube2iam);
    let on = [
        rules.service_account_audience.is_some(),
        by_pod.is_some_and(|by_pod| by_pod.uses_kiam_annotation),
        kube2iam.is_some(),
        rules.association_cluster.is_some(),
    ];
    let role_sources: Vec<_> =
        ROLE_SOURCES.iter().zip(on).filter(|(_, is_on)| *is_on).map(|(source, _)| source).collect();
    let defaults =
        rules.default_roles.iter().map(|(namespace, role)| (namespace.clone(), role.arn_str().into()));
    let kube2iam = kube2iam.map(|kube2iam| {
        let format = FORMATS.iter().find(|(format, _)| *format == kube2iam.namespace_restriction_format);
        json!({
            "namespaceRestrictions": kube2iam.namespace_restrictions,
            "namespaceRestrictionFormat": format.map(|(_, name)| name),
        })
    });
    members(json!({
        "baseRoleArn": rules.role_arn_prefix.as_ref().map(BaseRoleArn::as_str),
        "roleSources": role_sources,
        "irsaAudience": rules.service_account_audience.as_deref(),
        "kube2iam": kube2iam,
        "defaultRoles": defaults.collect::<Map<_, _>>(),
    }))
}

fn written_exchange(exchange: &RoleSessionConfig) -> Map<String, Value> {
    let RoleSessionConfig { region, sts_endpoint, sts_url, ca_file, proxy, base_credentials: base, .. } =
        exchange;
    let mut credentials = members(match &base.source {
        BaseCredentialSource::InstanceRole => json!({ "source": "instance-role" }),
        BaseCredentialSource::File { path, profile } => {
            json!({ "source": "file", "file": path, "profile": profile })
        }
        BaseCredentialSource::PodToken { audience } => {
            json!({ "source": "pod-token", "audience": audience })
        }
    });
    credentials.insert("role".into(), json!(base.role.as_ref().map(NamedRole::arn_str)));
    members(json!({
        "region": region,
        "stsEndpoint": STS_ENDPOINTS.iter().find(|(known, _)| known == sts_endpoint).map(|(_, name)| name),
        "stsUrl": sts_url,
        "caFile": ca_file,
        "proxy": proxy,
        "credentials": credentials,
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
        "localHostname": facts.local_hostname,
        "localIpv4": facts.local_ipv4,
        "domain": facts.partition_domain,
    })
}

#[cfg(test)]
mod tests {
    use seawall_config::{Document, ValidationErrors};

    use super::*;

    fn read(text: &str) -> Result<AwsConfig, ValidationErrors> {
        let document = Document::parse(text)?;
        let listen = ["127.0.0.1:8988".parse().unwrap(), "0.0.0.0:80".parse().unwrap()];
        let section =
            AwsConfig::read(&document.root().node_of_key("aws"), Path::new("/etc/seawall"), &listen);
        document.finish(section)
    }

    fn mistakes(text: &str) -> Vec<(String, String)> {
        let mistakes = read(text).unwrap_err().0;
        mistakes.into_iter().map(|mistake| (mistake.key_path, mistake.expected)).collect()
    }

    #[test]
    fn the_effective_section_reads_as_itself() {
        let text = "aws: { region: cn-north-1, account: \"123456789012\", roleSources: [kiam, kube2iam], kube2iam: { namespaceRestrictionFormat: regexp }, \
                    defaultRoles: { shop: cart }, credentials: { source: file, file: keys, role: agent }, \
                    session: { duration: 2h, namePrefix: kiam-, tags: [kubernetes-namespace] }, stsEndpoint: global, \
                    imds: { httpTokens: optional, tokenKeyFile: tokens, passthroughPaths: [/latest/meta-data/mac] } }";
        let section = read(text).unwrap();
        let written = serde_json::to_string(&json!({ "aws": section })).unwrap();
        assert_eq!(read(&written).unwrap(), section, "{written}");
        assert!(written.contains("arn:aws-cn:iam::123456789012:role/cart"), "{written}");
    }

    /// Regression: by default, programs with the SDK for Rust failed for up to six hours after each restart.
    #[test]
    fn what_a_restart_takes_lives_for_minutes_unless_somebody_says_otherwise_and_is_told_of() {
        for (imds, life, remark) in [
            ("", 300, Some("live for at most 300 s, because a restart of the agent invalidates them")),
            ("tokenKeyFile: k", 21_600, None),
            ("tokenKeyFile: k, maxTokenLifetime: 1h", 3600, None),
            ("maxTokenLifetime: 1h", 3600, Some("then fail for up to 3600 s")),
        ] {
            let section = read(&format!("aws: {{ region: eu-west-1, imds: {{ {imds} }} }}")).unwrap();
            assert_eq!(section.imds.max_token_lifetime.as_secs(), life, "{imds}");
            let told = section.imds.session_token_warning();
            assert_eq!(told.is_some(), remark.is_some(), "{told:?}");
            assert!(remark.is_none_or(|part| told.unwrap().contains(part)), "{imds}");
        }
    }

    #[test]
    fn only_the_annotations_of_the_ways_that_are_on_are_asked_for() {
        let selected = |sources: &str| {
            read(&format!("aws: {{ region: eu-west-1, roleSources: [{sources}] }}"))
                .unwrap()
                .annotation_keys()
        };
        assert_eq!(selected("irsa").namespace, []);
        assert_eq!(selected("kiam").service_account, []);
        assert_eq!(selected("irsa, kiam, kube2iam").namespace.len(), 2);
    }

    #[test]
    fn every_mistake_is_named_at_once() {
        let all = mistakes(
            "aws: { region: EU, account: 12, roleSources: [kiam, gcp], defaultRoles: { Shop: cart }, \
             credentials: { source: file }, session: { duration: 15m, tags: [pod] }, imds: { httpTokens: v2, maxTokenLifetime: 1m, \
             passthroughPaths: [\"(\"] }, containers: { audience: \"a b\" }, other: 1 }",
        );
        let places: Vec<_> = all.iter().map(|(place, _)| place.as_str()).collect();
        for place in [
            "aws.region",
            "aws.account",
            "aws.roleSources[1]",
            "aws.defaultRoles.Shop",
            "aws.credentials.file",
            "aws.session.duration",
            "aws.session.tags[0]",
            "aws.imds.httpTokens",
            "aws.imds.maxTokenLifetime",
            "aws.imds.passthroughPaths[0]",
            "aws.containers.audience",
            "aws",
        ] {
            assert!(places.contains(&place), "{place}: {all:?}");
        }
    }

    #[test]
    fn eks_is_asked_in_the_name_of_a_cluster_and_under_a_signature() {
        let on = |more: &str| format!("aws: {{ region: eu-west-1, roleSources: [pod-identity]{more} }}");
        let reef = ", podIdentity: { clusterName: reef, eksAuthUrl: \"https://eks.example\" }";
        let section = read(&on(reef)).unwrap();
        assert_eq!(section.role_policy.association_cluster, ClusterName::parse("reef").ok());
        assert_eq!(section.role_session.eks_auth_url.as_deref(), Some("https://eks.example"));
        assert_eq!(
            section.annotation_keys(),
            Default::default(),
            "EKS chooses the role, so the agent reads no annotation"
        );
        let written = serde_json::to_string(&json!({ "aws": section })).unwrap();
        assert_eq!(read(&written).unwrap(), section, "{written}");
        let off = read("aws: { region: eu-west-1, podIdentity: { clusterName: reef } }").unwrap();
        assert_eq!(off.role_policy.association_cluster, None);
        for (more, place) in [
            ("", "aws.podIdentity.clusterName"),
            (", podIdentity: { clusterName: a/b }", "aws.podIdentity.clusterName"),
            (
                ", podIdentity: { clusterName: reef, eksAuthUrl: \"http://eks.example\" }",
                "aws.podIdentity.eksAuthUrl",
            ),
            (
                ", podIdentity: { clusterName: reef, eksAuthUrl: \"http://127.0.0.1:1\" }, proxy: \"http://10.0.0.1:1\"",
                "aws.proxy",
            ),
            (
                ", podIdentity: { clusterName: reef }, credentials: { source: pod-token, role: \"arn:aws:iam::123456789012:role/a\" }",
                "aws.credentials.source",
            ),
            (
                ", podIdentity: { clusterName: reef }, imds: { upstreamUrl: \"http://127.0.0.1:8988\" }",
                "aws.imds.upstreamUrl",
            ),
        ] {
            let places: Vec<_> = mistakes(&on(more)).into_iter().map(|(place, _)| place).collect();
            assert_eq!(places, [place], "{more}");
        }
    }

    #[test]
    fn an_agent_is_not_its_own_real_service_where_it_asks_that() {
        let own = "imds: { upstreamUrl: \"http://127.0.0.1:8988\" }";
        assert!(
            read(&format!("aws: {{ region: eu-west-1, {own} }}")).is_ok(),
            "the agent never calls upstreamUrl here"
        );
        for asks in ["roleSources: [kiam]", "defaultRoles: { shop: \"arn:aws:iam::123456789012:role/a\" }"] {
            let places = mistakes(&format!("aws: {{ region: eu-west-1, {asks}, {own} }}"));
            assert_eq!(places[0].0, "aws.imds.upstreamUrl");
        }
    }

    #[test]
    fn a_request_may_name_the_agents_own_addresses_as_its_host() {
        let section = read("aws: { region: eu-west-1 }").unwrap();
        assert!(section.container_credentials.allowed_hosts.contains(&IpAddr::from([127, 0, 0, 1])));
        assert_eq!(
            section.container_credentials.allowed_hosts.len(),
            containers::ADDRESSES.len() + 1,
            "a listener on 0.0.0.0 adds no address"
        );
    }
}
