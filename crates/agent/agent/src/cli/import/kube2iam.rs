//! Defines the flags of kube2iam and their translation.

use super::config_builder::ConfigBuilder;
use super::imported_flags::{SourceTool, ToolFlag};
use super::kiam_and_kube2iam;
use super::kiam_and_kube2iam::{ACCOUNT_OPTION, REGION_OPTION, REGION_REQUIREMENT};

pub(super) const KUBE2IAM: SourceTool = SourceTool {
    command_name: "kube2iam",
    title: "kube2iam",
    placement: kiam_and_kube2iam::PLACEMENT,
    ignored_words: &["kube2iam"],
    options: &[REGION_OPTION, ACCOUNT_OPTION],
    required_settings: &[
        REGION_REQUIREMENT,
        kiam_and_kube2iam::aws_account_id_requirement(|draft| {
            is_discovered(draft) && kiam_and_kube2iam::is_account_unknown(draft)
        }),
    ],
    flags: &[ROLES, NODE, REST],
    set_defaults: begin,
    set_dependent_keys: finish,
};

const NO_DEFAULT: &str = "the agent has no default role for all namespaces: set aws.defaultRoles for each namespace that needs a default role, \
                          such as { shop: cart }; other pods without an annotation have no role";

const ROLES: &[ToolFlag] = &[
    ToolFlag::new_taking_value("base-role-arn", |base, draft| {
        if !base.is_empty() {
            let slash = if base.ends_with('/') { "" } else { "/" };
            draft.set("aws.baseRoleArn", format!("{base}{slash}"));
        }
    }),
    ToolFlag::new_boolean("auto-discover-base-arn", discover),
    ToolFlag::new_boolean("auto-discover-default-role", |is_on, draft| {
        discover(is_on, draft);
        if is_on == "true" {
            draft.add_remark(NO_DEFAULT);
        }
    }),
    ToolFlag::new_unsupported("default-role", NO_DEFAULT),
    ToolFlag::new_taking_value("assume-role-arn", |role, draft| {
        if !role.is_empty() {
            draft.set("aws.credentials.role", role);
        }
    }),
    ToolFlag::new_taking_value("iam-role-session-ttl", kiam_and_kube2iam::set_session_duration),
    ToolFlag::new_taking_value("iam-role-key", |key, draft| annotation(key, "iam.amazonaws.com/role", draft)),
    ToolFlag::new_taking_value("iam-external-id", |key, draft| {
        annotation(key, "iam.amazonaws.com/external-id", draft);
    }),
    ToolFlag::new_taking_value("iam-role-session-name-key", |key, draft| {
        annotation(key, "iam.amazonaws.com/session-name", draft);
    }),
    ToolFlag::new_taking_value("namespace-key", |key, draft| {
        annotation(key, "iam.amazonaws.com/allowed-roles", draft);
    }),
    ToolFlag::new_boolean("namespace-restrictions", |is_on, draft| {
        draft.set("aws.kube2iam.namespaceRestrictions", is_on == "true");
    }),
    ToolFlag::new_taking_value("namespace-restriction-format", |format, draft| {
        draft.set("aws.kube2iam.namespaceRestrictionFormat", format);
        if format == "regexp" {
            draft.add_remark("the agent matches an entry of allowed-roles against the whole name or ARN of a role: to match only a part, add .* before or after the entry");
        }
    }),
    ToolFlag::new_boolean("iam-enable-pod-identity-tags", |is_on, draft| {
        if is_on == "true" {
            let tags = ["namespace", "service-account", "pod-name", "pod-uid"];
            draft.set("aws.session.tags", tags.map(|tag| format!("kubernetes-{tag}")).to_vec());
            draft.add_remark("because the tags include the pod's name, each pod has a separate session");
        }
    }),
    ToolFlag::new_unsupported("eks-cluster-arn", NO_CLUSTER),
    ToolFlag::new_unsupported("eks-cluster-name", NO_CLUSTER),
    ToolFlag::new_boolean("use-regional-sts-endpoint", |is_on, draft| {
        draft.set("aws.stsEndpoint", if is_on == "true" { "regional" } else { "global" });
    }),
];

const NO_CLUSTER: &str = "sessions have tags for the pod, but no tag for the cluster: change each policy that checks the cluster's tag \
                          so that it checks a tag of the pod";

const NODE: &[ToolFlag] = &[
    ToolFlag::new_taking_value("app-port", |port, draft| {
        draft.set("listen", vec![format!("0.0.0.0:{port}")]);
    }),
    ToolFlag::new_taking_value("node", |name, draft| {
        // In a manifest, the value can be a variable reference such as `$(NODE_NAME)`. The agent then reads the name from its own environment.
        if !name.is_empty() && !name.starts_with("$(") {
            draft.set("identity.nodeName", name);
        }
    }),
    ToolFlag::new_taking_value("metadata-addr", |address, draft| {
        draft.set("aws.imds.upstreamUrl", format!("http://{address}"));
    }),
    ToolFlag::new_deferred_boolean("iptables"),
    ToolFlag::new_deferred("host-ip"),
    ToolFlag::new_deferred("host-interface"),
    ToolFlag::new_unsupported("api-server", TO_API),
    ToolFlag::new_unsupported("api-token", TO_API),
    ToolFlag::new_unsupported_boolean(
        "insecure",
        "the agent always verifies the API server's certificate: name its CA in a kubeconfig (identity.kubeconfig)",
    ),
];

const TO_API: &str = "put the address, the CA and the token file into a kubeconfig and set identity.kubeconfig; inside a pod, no such setting is needed";

const REST: &[ToolFlag] = &[
    ToolFlag::new_taking_value("log-level", |level, draft| {
        let level = match level {
            "panic" | "fatal" => "error",
            "warning" => "warn",
            "trace" => "debug",
            as_ours => as_ours,
        };
        // `--verbose` has priority over `--log-level`, in any order of the flags.
        if draft.flag_value("verbose") != Some("true") {
            draft.set("logLevel", level);
        }
    }),
    ToolFlag::new_boolean("verbose", |is_on, draft| {
        if is_on == "true" {
            draft.set("logLevel", "debug");
        }
    }),
    ToolFlag::new_unsupported("log-format", "nothing to do: the log is JSON"),
    ToolFlag::new_unsupported(
        "metrics-port",
        "metrics are served at the address in the setting `admin` (default 127.0.0.1:8989). Only clients on the node itself get \
         /debug/pods there. Open a non-loopback address to Prometheus alone, by a NetworkPolicy or a firewall",
    ),
    ToolFlag::new_unsupported_boolean(
        "debug",
        "nothing to do: /debug/pods on the admin port shows the role of each pod",
    ),
    ToolFlag::new_unsupported_boolean("version", "leave this flag out"),
    watched("backoff-max-interval"),
    watched("backoff-max-elapsed-time"),
    watched("cache-resync-period"),
    watched("cache-sync-attempts"),
    watched("healthcheck-interval"),
    ToolFlag::new_unsupported_boolean(
        "resolve-duplicate-cache-ips",
        "nothing to do: the agent refuses requests from an address that two live pods have",
    ),
];

const fn watched(name: &'static str) -> ToolFlag {
    ToolFlag::new_unsupported(
        name,
        "nothing to do: the agent watches pods. If the agent does not know a pod yet, the pod's request waits, but the agent answers before the \
         client times out. /readyz reports whether the agent can serve",
    )
}

fn discover(is_on: &str, draft: &mut ConfigBuilder) {
    if is_on == "true" {
        draft.add_remark(
            "the agent does not detect the base of role ARNs: if a role is given only by its name, the agent uses the account in --account",
        );
    }
}

/// True if kube2iam read the account from the instance metadata. In that case, the import needs the account as an option.
fn is_discovered(draft: &ConfigBuilder) -> bool {
    let flags = ["auto-discover-base-arn", "auto-discover-default-role"];
    flags.into_iter().any(|flag| draft.flag_value(flag) == Some("true"))
}

/// Adds a remark if an annotation key differs from the only key that the agent reads.
fn annotation(key: &str, known: &'static str, draft: &mut ConfigBuilder) {
    if key != known {
        draft.add_remark(format!(
            "the agent reads only the annotation {known}: add this annotation in addition to the existing annotation"
        ));
    }
}

/// Sets the defaults of kube2iam that differ from the agent's defaults.
fn begin(draft: &mut ConfigBuilder) {
    kiam_and_kube2iam::set_shared_defaults(draft);
    draft.set("listen", vec!["0.0.0.0:8181"]);
    draft.set("aws.roleSources", vec!["kube2iam"]);
    draft.set("aws.kube2iam.namespaceRestrictions", false);
}

fn finish(draft: &mut ConfigBuilder) {
    let interface = draft.flag_value("host-interface").unwrap_or("docker0").to_owned();
    let port = draft.flag_value("app-port").unwrap_or("8181").to_owned();
    for flag in ["iptables", "host-ip", "host-interface"] {
        if flag == "iptables" || draft.flag_value(flag).is_some() {
            draft.with_current_flag(flag, |draft| {
                kiam_and_kube2iam::add_redirect_remark(draft, &interface, &port);
            });
        }
    }
    if draft.flag_value("iam-role-session-ttl").is_none() {
        draft.with_current_flag("iam-role-session-ttl", |draft| {
            kiam_and_kube2iam::set_session_duration("15m", draft);
        });
    }
    if draft.flag_value("namespace-restrictions") != Some("true") {
        draft.with_current_flag("namespace-restrictions", |draft| {
            draft.add_remark(
                "the restrictions are off: the annotation allowed-roles of a namespace has no effect, and every pod may have every role; set \
                 aws.kube2iam.namespaceRestrictions: true to enforce that annotation",
            );
        });
    }
    draft.add_remark(
        "kube2iam passes all other metadata requests to the real service, and the agent does not. If pods need metadata of the node, set \
         it in aws.instance (such as availabilityZone). If pods need other paths, list them in aws.imds.passthroughPaths",
    );
}
