//! What `/debug/pods` shows of AWS: names and times, never a secret.

use seawall_broker::aws::{AssumeMethod, AwsPrincipalView};
use seawall_core::Moment;
use serde_json::{Value, json};

use super::entitlement::{AwsEntitlement, PodRole, RoleState};
use crate::broker_stats;
use crate::entitlements::{EntitlementState, PodLeases, RefetchTask};

impl AwsEntitlement {
    /// What a pod may have, in a word, the role that it acts as and how it takes it, and what it holds.
    pub(crate) fn describe(&self, now: Moment) -> Value {
        match &self.state {
            RoleState::Role(own) => json!({
                "standing": "role",
                "role": role(own),
                "way": way(own),
                "principals": own.credentials.principals().iter().map(|view| principal(view, now)).collect::<Vec<_>>(),
            }),
            RoleState::Refused(why) => json!({ "standing": why.code }),
        }
    }

    /// What fetches all that the pod held by `before`, where this holds none of it and is to take its place.
    pub(crate) fn refetch_task(&self, before: EntitlementState<&Self>) -> Option<RefetchTask> {
        match (&self.state, before) {
            (
                RoleState::Role(own),
                EntitlementState::Decided(Self { state: RoleState::Role(before), .. }),
            ) => broker_stats::refetch_task(&own.credentials, &before.credentials),
            _ => None,
        }
    }

    /// What the pod holds, and who tells its owner.
    pub(crate) fn leases(&self) -> Option<PodLeases> {
        let RoleState::Role(own) = &self.state else { return None };
        Some(PodLeases {
            leases: broker_stats::leases(&own.credentials),
            event_recorder: own.event_recorder.clone(),
        })
    }
}

/// The ARN that the pod's access is of; where EKS says which role it is, what that is called once something is held. EKS tells of the
/// role's session alone, which leaves out its path.
fn role(own: &PodRole) -> Option<String> {
    let named = own.access.role().map(|role| role.as_str().to_owned());
    named.or_else(|| Some(own.credentials.peek(())?.value.role_name().to_owned()))
}

fn way(own: &PodRole) -> &'static str {
    match &own.access.method {
        AssumeMethod::WebIdentity { then: None, .. } => "webIdentity",
        AssumeMethod::WebIdentity { then: Some(_), .. } => "webIdentityThenAssumeRole",
        AssumeMethod::NodeKeys { .. } => "assumeRole",
        AssumeMethod::PodIdentity { .. } => "podIdentity",
    }
}

fn principal(view: &AwsPrincipalView, now: Moment) -> Value {
    broker_stats::describe(view, now).into()
}
