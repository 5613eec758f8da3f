//! The Google part of `/debug/pods`. It shows names and times, never a secret.

use seawall_broker::google::{CredentialRequest, GooglePrincipalView};
use seawall_core::Moment;
use seawall_core::cloud::CloudName;
use serde_json::{Value, json};

use super::entitlement::{FederatedPod, GoogleEntitlement};
use crate::broker_stats;
use crate::entitlements::{EntitlementState, PodLeases, RefetchTask};

impl GoogleEntitlement {
    /// Describes the entitlement as JSON: its kind in one word, the pod's Google service account, and the principals.
    pub(crate) fn to_debug_json(&self, now: Moment) -> Value {
        let (status, own) = match self {
            Self::Federated(own) => ("federated", Some(own)),
            Self::Passthrough => ("passthrough", None),
            Self::Refused(_, why) => (why.code, None),
        };
        json!({
            "status": status,
            "google_service_account": own.and_then(|own| own.account.as_deref()),
            "principals": own.map(|own| principals(own, now)).unwrap_or_default(),
        })
    }

    /// Returns a task that fetches all credentials of `before` again, with the lease client of `self`.
    ///
    /// Returns `None` if either entitlement has no credentials, or if both share one client for leases.
    pub(crate) fn refetch_task(&self, before: EntitlementState<&Self>) -> Option<RefetchTask> {
        match (self, before) {
            (Self::Federated(own), EntitlementState::Decided(Self::Federated(before))) => {
                broker_stats::refetch_task_for_new_client(
                    CloudName::Google,
                    &own.lease_client,
                    &before.lease_client,
                )
            }
            _ => None,
        }
    }

    /// Returns the pod's leases with its event recorder, or `None` if the pod has no credentials of its own.
    pub(crate) fn leases(&self) -> Option<PodLeases> {
        let Self::Federated(own) = self else { return None };
        Some(PodLeases {
            leases: broker_stats::lease_states(&own.lease_client),
            event_recorder: own.event_recorder.clone(),
        })
    }
}

fn principals(own: &FederatedPod, now: Moment) -> Vec<Value> {
    own.lease_client.principals().iter().map(|view| principal(view, now)).collect()
}

fn principal(view: &GooglePrincipalView, now: Moment) -> Value {
    let (credential_type, key, detail) = match &view.principal.requested_credential {
        CredentialRequest::AccessToken { scopes } => ("access_token", "scopes", scopes),
        CredentialRequest::IdToken { audience, .. } => ("id_token", "audience", audience),
    };
    let mut shown = broker_stats::describe_principal(view, now);
    shown.insert("credential_type".into(), credential_type.into());
    shown.insert(key.into(), broker_stats::truncate(detail).into());
    shown.insert("google_service_account".into(), json!(view.principal.account.as_deref()));
    shown.into()
}
