//! What `/debug/pods` shows of Google: names and times, never a secret.

use seawall_broker::google::{PrincipalView, Want};
use seawall_core::Moment;
use seawall_core::cloud::CloudName;
use serde_json::{Value, json};

use super::{Entitlement, Federated};
use crate::clouds::entitlements::{CatchUp, Decided, Entitlements, Lending};
use crate::clouds::{broker_stats, entitlements};

impl entitlements::Entitlement for Entitlement {
    /// What a pod may have, in a word, the Google service account it acts as, and what it holds.
    fn describe(&self, now: Moment) -> Value {
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

    fn catching_up(&self, before: &Entitlements) -> Option<CatchUp> {
        match (self, before.of(CloudName::Google)) {
            (Self::Federated(own), Decided::Is(Self::Federated(before))) => {
                broker_stats::catching_up(&own.holder, &before.holder)
            }
            _ => None,
        }
    }

    fn lending(&self) -> Option<Lending> {
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
