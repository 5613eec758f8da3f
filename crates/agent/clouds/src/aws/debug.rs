//! The AWS part of `/debug/pods`. It shows names and times, never a secret.

use seawall_broker::aws::{AssumeMethod, AwsPrincipalDebugView};
use seawall_core::Moment;
use seawall_core::cloud::CloudName;
use serde_json::{Value, json};

use super::entitlement::{AwsEntitlement, PodRole, RoleState};
use crate::broker_stats;
use crate::entitlements::{EntitlementState, PodLeases, RefetchTask};

impl AwsEntitlement {
    /// Describes the entitlement as JSON: its state, the role, the method to assume the role, and the principals.
    pub(crate) fn to_debug_json(&self, now: Moment) -> Value {
        match &self.state {
            RoleState::Role(own) => json!({
                "status": "role",
                "role": role(own),
                "assume_method": assume_method(own),
                "principals": own.lease_client.principals().iter().map(|view| principal(view, now)).collect::<Vec<_>>(),
            }),
            RoleState::Refused(why) => json!({ "status": why.code }),
        }
    }

    /// Returns a task that fetches all leases of `before` again, with the lease client of `self`.
    ///
    /// Returns `None` if either entitlement has no role, or if both share one client for leases.
    pub(crate) fn refetch_task(&self, before: EntitlementState<&Self>) -> Option<RefetchTask> {
        match (&self.state, before) {
            (
                RoleState::Role(own),
                EntitlementState::Decided(Self { state: RoleState::Role(before), .. }),
            ) => broker_stats::refetch_task_for_new_client(
                CloudName::Aws,
                &own.lease_client,
                &before.lease_client,
            ),
            _ => None,
        }
    }

    /// Returns the pod's leases with its event recorder, or `None` if the pod has no role.
    pub(crate) fn leases(&self) -> Option<PodLeases> {
        let RoleState::Role(own) = &self.state else { return None };
        Some(PodLeases {
            leases: broker_stats::lease_states(&own.lease_client),
            event_recorder: own.event_recorder.clone(),
        })
    }
}

/// Returns the ARN of the pod's role.
///
/// If EKS chooses the role, the result is only the role's name: EKS reports the ARN of the role's session, and this ARN omits the
/// role's path. While no credentials are cached, the result is then `None`, because only the credentials name the role.
fn role(own: &PodRole) -> Option<String> {
    let named = own.role_access.role().map(|role| role.as_str().to_owned());
    named.or_else(|| Some(own.lease_client.peek(())?.value.role_name().to_owned()))
}

fn assume_method(own: &PodRole) -> &'static str {
    match &own.role_access.method {
        AssumeMethod::WebIdentity { then: None, .. } => "web_identity",
        AssumeMethod::WebIdentity { then: Some(_), .. } => "web_identity_then_assume_role",
        AssumeMethod::NodeKeys { .. } => "assume_role",
        AssumeMethod::PodIdentity { .. } => "pod_identity",
    }
}

fn principal(view: &AwsPrincipalDebugView, now: Moment) -> Value {
    broker_stats::describe_principal(view, now).into()
}
