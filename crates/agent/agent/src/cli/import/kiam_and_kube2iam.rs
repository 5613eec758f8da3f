//! Translates the settings that KIAM and kube2iam share: keys of the section `aws`, and the NAT rule that sends requests to the agent.
//!
//! Only `kiam` and `kube2iam` use this module. `mod.rs`, `config_builder` and `imported_flags` contain no configuration key of a
//! cloud.

use std::time::Duration;

use seawall_core::duration;

use super::config_builder::ConfigBuilder;
use super::imported_flags::{ImportOption, RequiredSetting};

/// The option for the region in which the agent assumes roles.
pub(super) const REGION_OPTION: ImportOption = text_option("region", "REGION", "aws.region");

/// The option for the AWS account of roles that annotations give only by name.
pub(super) const ACCOUNT_OPTION: ImportOption = text_option("account", "ACCOUNT", "aws.account");

const fn text_option(
    seawall_option_name: &'static str,
    value_placeholder: &'static str,
    config_key: &'static str,
) -> ImportOption {
    ImportOption { seawall_option_name, value_placeholder, config_key, is_number: false }
}

/// The first comment of the printed configuration.
pub(super) const PLACEMENT: &str = "Run the agent on the node's network, and set the environment variable NODE_NAME to the name of the node.";

/// The requirement to give the AWS region. It applies to every tool.
pub(super) const REGION_REQUIREMENT: RequiredSetting = RequiredSetting {
    is_missing: |draft| !draft.has_key("aws.region"),
    error_message: "these flags do not name the AWS region: give --region REGION before `--`",
};

const NO_ACCOUNT: &str = "these flags do not name the AWS account, and roles that are given only by name need the account: add --account \
                          ACCOUNT before `--`, or add the flag for the base of role ARNs";

/// Returns the requirement to give an account.
/// `is_open` returns true if the tool gives roles only by name and the account is unknown.
pub(super) const fn aws_account_id_requirement(is_open: fn(&ConfigBuilder) -> bool) -> RequiredSetting {
    RequiredSetting { is_missing: is_open, error_message: NO_ACCOUNT }
}

/// True if the account of roles that are given only by name is unknown.
pub(super) fn is_account_unknown(draft: &ConfigBuilder) -> bool {
    !draft.has_key("aws.account") && !draft.has_key("aws.baseRoleArn")
}

/// Sets the defaults that both tools share and that differ from the agent's defaults.
pub(super) fn set_shared_defaults(draft: &mut ConfigBuilder) {
    draft.set("identity.strategy", "source-ip");
    draft.set("aws.stsEndpoint", "global");
    draft.set("aws.session.duration", "1h");
    // Pods can read metadata without a session token under both tools, because neither tool issues session tokens.
    draft.set("aws.imds.httpTokens", "optional");
    // `deploy/daemonset.yaml` mounts this folder from the node.
    draft.set("aws.imds.tokenKeyFile", "/var/lib/seawall/token-keys");
}

const HOUR: Duration = Duration::from_secs(3600);

const SHORT_SESSION: &str = "the agent requests sessions of at least 1h. SDKs refresh credentials that expire in less than 15 minutes. With \
                             sessions of 15 minutes, SDKs would fetch credentials on every call";

/// Sets the session duration from a flag's value.
pub(super) fn set_session_duration(text: &str, draft: &mut ConfigBuilder) {
    match duration::parse(text) {
        Some(length) if length < HOUR => {
            draft.set("aws.session.duration", "1h");
            draft.add_remark(SHORT_SESSION);
        }
        Some(length) => {
            draft.set("aws.session.duration", format!("{}s", length.as_secs()));
            draft.add_remark(
                "if a role's maximum session duration is shorter, the agent requests that maximum; a session of a chained role always lasts one hour",
            );
        }
        // Keep an invalid value: the configuration's parser then reports it with the expected value.
        None => draft.set("aws.session.duration", text),
    }
}

/// Adds a remark about the NAT rule that sends pods' requests to the agent. No configuration key sets this rule. `to` is the agent's port.
pub(super) fn add_redirect_remark(draft: &mut ConfigBuilder, interface: &str, to: &str) {
    let (not, name) = interface.strip_prefix('!').map_or(("", interface), |name| ("! ", name.trim()));
    let is_name = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.+:".contains(&b));
    let name = if !name.is_empty() && is_name(name) { name } else { "INTERFACE" };
    let port = if is_name(to) { to } else { "PORT" };
    let rule = format!(
        "the agent does not add or remove NAT rules on the node. Without the following rule, pods reach the real metadata service. Keep \
         this rule, and load it before pods start: iptables -t nat -A PREROUTING {not}-i {name} -p tcp -d 169.254.169.254 --dport 80 -j DNAT \
         --to-destination NODE_ADDRESS:{port}"
    );
    draft.add_remark(rule);
}
