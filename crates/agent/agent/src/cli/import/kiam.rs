//! Defines the translation of the flags of KIAM's agent and KIAM's server. One Seawall agent replaces both programs.

use seawall_protocols::aws::Pattern;

use super::config_builder::ConfigBuilder;
use super::imported_flags::{SourceTool, ToolFlag};
use super::kiam_and_kube2iam;
use super::kiam_and_kube2iam::{ACCOUNT_OPTION, REGION_OPTION, REGION_REQUIREMENT};

pub(super) const KIAM: SourceTool = SourceTool {
    command_name: "kiam",
    title: "KIAM",
    placement: kiam_and_kube2iam::PLACEMENT,
    ignored_words: &["kiam", "agent", "server"],
    options: &[REGION_OPTION, ACCOUNT_OPTION],
    required_settings: &[
        REGION_REQUIREMENT,
        kiam_and_kube2iam::aws_account_id_requirement(kiam_and_kube2iam::is_account_unknown),
    ],
    flags: &[AGENT, SERVER, BOTH, RELAY],
    set_defaults: begin,
    set_dependent_keys: finish,
};

/// The remark on an unanchored expression.
const UNANCHORED: &str = "KIAM matches part of a path, and the agent matches the whole path, so the translation allows any text around the \
                          expression. Narrow aws.imds.passthroughPaths to the paths that pods need. The agent never forwards credentials. It \
                          forwards user-data and managed-ssh-keys only if the expression contains that name";

/// The remark on user data. On most clusters, user data contains the credentials with which a node joins the cluster.
const SECRET: &str = "this expression lets every pod read the user data, which holds the credentials with which nodes join the cluster. \
                      Remove the expression from aws.imds.passthroughPaths unless pods need it";

const AGENT: &[ToolFlag] = &[
    ToolFlag::new_taking_value("port", |port, draft| draft.set("listen", vec![format!("0.0.0.0:{port}")])),
    ToolFlag::new_unsupported_boolean(
        "allow-ip-query",
        "leave this flag out: the agent identifies a pod by its connection, never by its request",
    ),
    ToolFlag::new_taking_value("allow-route-regexp", passthrough),
    ToolFlag::new_taking_value("whitelist-route-regexp", passthrough),
    ToolFlag::new_deferred_boolean("iptables"),
    ToolFlag::new_deferred_boolean("iptables-remove"),
    ToolFlag::new_deferred("host"),
    ToolFlag::new_deferred("host-interface"),
];

const AHEAD: &str = "nothing to do: the agent watches pods, and fetches credentials as soon as a pod appears";

const SERVER: &[ToolFlag] = &[
    ToolFlag::new_unsupported("fetchers", AHEAD),
    ToolFlag::new_unsupported("prefetch-buffer-size", AHEAD),
    ToolFlag::new_unsupported("sync", AHEAD),
    ToolFlag::new_taking_value("kubeconfig", |path, draft| {
        if !path.is_empty() {
            draft.set("identity.kubeconfig", path);
        }
    }),
    ToolFlag::new_taking_value("role-base-arn", |base, draft| draft.set("aws.baseRoleArn", base)),
    ToolFlag::new_unsupported_boolean(
        "role-base-arn-autodetect",
        "the agent does not detect the base of role ARNs: if a role is given only by its name, the agent uses the account in --account",
    ),
    ToolFlag::new_taking_value("session", |name, draft| {
        draft.set("aws.session.namePrefix", format!("{name}-"));
    }),
    ToolFlag::new_taking_value("session-duration", kiam_and_kube2iam::set_session_duration),
    ToolFlag::new_unsupported(
        "session-refresh",
        "nothing to do: the agent renews credentials 25 minutes before they expire, so that no SDK gets credentials that are about to expire",
    ),
    ToolFlag::new_taking_value("assume-role-arn", |role, draft| {
        if !role.is_empty() {
            draft.set("aws.credentials.role", role);
        }
    }),
    ToolFlag::new_taking_value("region", |region, draft| {
        if !region.is_empty() {
            draft.set("aws.region", region);
            draft.set("aws.stsEndpoint", "regional");
        }
    }),
    ToolFlag::new_unsupported(
        "role-alias",
        "in each pod whose annotation iam.amazonaws.com/role holds an alias, replace the alias with the role's name or ARN",
    ),
    ToolFlag::new_unsupported_boolean(
        "disable-strict-namespace-regexp",
        "the agent matches an expression in iam.amazonaws.com/permitted against the whole name or ARN of a role: to match only a part, add .* before or after the expression",
    ),
];

const COUNTED: &str =
    "nothing to do: the admin port has /metrics for Prometheus; the agent does not support StatsD";

const BOTH: &[ToolFlag] = &[
    ToolFlag::new_unsupported_boolean("json-log", "nothing to do: the log is JSON"),
    ToolFlag::new_taking_value("level", |level, draft| draft.set("logLevel", level)),
    ToolFlag::new_unsupported("statsd", COUNTED),
    ToolFlag::new_unsupported("statsd-prefix", COUNTED),
    ToolFlag::new_unsupported("statsd-interval", COUNTED),
    ToolFlag::new_unsupported("prometheus-sync-interval", COUNTED),
    ToolFlag::new_unsupported(
        "prometheus-listen-addr",
        "metrics are served at the address in the setting `admin` (default 127.0.0.1:8989). Only clients on the node itself get \
         /debug/pods there. Open a non-loopback address to Prometheus alone, by a NetworkPolicy or a firewall",
    ),
    ToolFlag::new_unsupported(
        "pprof-listen-addr",
        "the agent has no profiler; /debug/pods on the admin port shows the role of each pod",
    ),
];

/// The flags for the connection between KIAM's agent and server.
const RELAY: &[ToolFlag] = &[
    relay("cert"),
    relay("key"),
    relay("ca"),
    relay("bind"),
    relay("server-address"),
    relay("server-address-refresh"),
    relay("gateway-timeout-creation"),
    relay("grpc-keepalive-time-ms"),
    relay("grpc-keepalive-time-duration"),
    relay("grpc-keepalive-timeout-ms"),
    relay("grpc-keepalive-timeout-duration"),
    ToolFlag::new_unsupported_boolean("grpc-keepalive-permit-without-stream", NO_RELAY),
    relay("grpc-max-connection-idle-duration"),
    relay("grpc-max-connection-age-duration"),
    relay("grpc-max-connection-age-grace-duration"),
];

const NO_RELAY: &str = "nothing to do: each agent calls the Kubernetes API server and AWS directly; there is no central server that \
                        needs a TLS connection";

const fn relay(name: &'static str) -> ToolFlag {
    ToolFlag::new_unsupported(name, NO_RELAY)
}

const NODES: &str = "KIAM's servers assumed the pods' roles. Now the role of each node needs the permission to assume the pods' roles. To avoid this, \
                     let pods assume roles with their own tokens: set aws.credentials.source: pod-token, or use the role source irsa";

/// Sets the defaults of KIAM that differ from the agent's defaults.
fn begin(draft: &mut ConfigBuilder) {
    kiam_and_kube2iam::set_shared_defaults(draft);
    draft.set("listen", vec!["0.0.0.0:3100"]);
    draft.set("aws.roleSources", vec!["kiam"]);
    draft.set("aws.session.namePrefix", "kiam-");
}

fn finish(draft: &mut ConfigBuilder) {
    let interface = draft.flag_value("host-interface").unwrap_or("docker0").to_owned();
    let port = draft.flag_value("port").unwrap_or("3100").to_owned();
    for flag in ["iptables", "iptables-remove", "host", "host-interface"] {
        if flag == "iptables" || draft.flag_value(flag).is_some() {
            draft.with_current_flag(flag, |draft| {
                kiam_and_kube2iam::add_redirect_remark(draft, &interface, &port);
            });
        }
    }
    match draft.flag_value("assume-role-arn") {
        Some(_) => draft.with_current_flag("assume-role-arn", |draft| draft.add_remark(NODES)),
        None => draft.add_remark(NODES),
    }
    if draft.flag_value("session-duration").is_none() {
        draft.with_current_flag("session-duration", |draft| {
            kiam_and_kube2iam::set_session_duration("15m", draft);
        });
    }
}

/// Translates an expression for allowed paths. An expression that is anchored at both ends and has no alternatives already
/// matches whole paths.
fn passthrough(expression: &str, draft: &mut ConfigBuilder) {
    if expression == "^$" {
        return;
    }
    if ["user-data", "managed-ssh-keys"].iter().any(|secret| expression.contains(secret)) {
        draft.add_remark(SECRET);
    }
    // Parentheses could turn an invalid expression into a valid expression with another meaning. Therefore keep an invalid
    // expression unchanged. The configuration's parser then rejects the expression.
    if Pattern::new(expression).is_err() {
        draft.set("aws.imds.passthroughPaths", vec![expression]);
        return;
    }
    let whole = expression.strip_prefix('^').and_then(|rest| rest.strip_suffix('$'));
    let is_plain = |text: &&str| !text.contains(['|', '^', '$']) && !text.ends_with('\\');
    if let Some(whole) = whole.filter(is_plain) {
        draft.set("aws.imds.passthroughPaths", vec![whole]);
        return;
    }
    draft.set("aws.imds.passthroughPaths", vec![format!(".*(?:{expression}).*")]);
    draft.add_remark(UNANCHORED);
}
