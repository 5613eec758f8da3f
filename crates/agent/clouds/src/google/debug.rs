//! What `/debug/pods` shows of Google: names and times, never a secret.

use seawall_broker::google::{PrincipalView, Want};
use seawall_core::Moment;
use serde_json::{Value, json};

use super::entitlement::{Entitlement, Federated};
use crate::broker_stats;
use crate::entitlements::{CatchUp, Decided, Lending};

impl Entitlement {
    /// What a pod may have, in a word, the Google service account it acts as, and what it holds.
    pub(crate) fn describe(&self, now: Moment) -> Value {
        let (standing, own) = match self {
            Self::Federated(own) => ("federated", Some(own)),
            Self::Passthrough => ("passthrough", None),
            Self::Refused(_, why) => (why.code, None),
        };
        json!({
            "standing": standing,
            "googleServiceAccount": own.and_then(|own| own.account.as_deref()),
            "principals": own.map(|own| principals(own, now)).unwrap_or_default(),
        })
    }

    /// What fetches all that the pod held by `before`, where this holds none of it and is to take its place.
    pub(crate) fn catching_up(&self, before: Decided<&Self>) -> Option<CatchUp> {
        match (self, before) {
            (Self::Federated(own), Decided::Is(Self::Federated(before))) => {
                broker_stats::catching_up(&own.holder, &before.holder)
            }
            _ => None,
        }
    }

    /// What the pod holds, and who tells its owner.
    pub(crate) fn lending(&self) -> Option<Lending> {
        let Self::Federated(own) = self else { return None };
        Some(Lending { leases: broker_stats::leases(&own.holder), complainer: own.complainer.clone() })
    }
}

fn principals(own: &Federated, now: Moment) -> Vec<Value> {
    own.holder.principals().iter().map(|view| principal(view, now)).collect()
}

fn principal(view: &PrincipalView, now: Moment) -> Value {
    let (kind, detail) = match &view.principal.want {
        Want::AccessToken { scopes } => ("accessToken", scopes),
        Want::IdToken { audience, .. } => ("idToken", audience),
    };
    let mut shown = broker_stats::describe(view, now);
    shown.insert("kind".into(), kind.into());
    shown.insert("scopesOrAudience".into(), broker_stats::shortened(detail).into());
    shown.insert("account".into(), json!(view.principal.account.as_deref()));
    shown.into()
}
