//! What `/debug/pods` shows of AWS: names and times, never a secret.

use seawall_broker::aws::{PrincipalView, Way};
use seawall_core::Moment;
use seawall_core::cloud::CloudName;
use serde_json::{Value, json};

use super::{Entitlement, Own, Standing};
use crate::clouds::entitlements::{CatchUp, Decided, Entitlements, Lending};
use crate::clouds::{broker_stats, entitlements};

impl entitlements::Entitlement for Entitlement {
    /// What a pod may have, in a word, the role that it acts as and how it takes it, and what it holds.
    fn describe(&self, now: Moment) -> Value {
        match &self.standing {
            Standing::Role(own) => json!({
                "standing": "role",
                "role": role(own),
                "way": way(own),
                "principals": own.holder.principals().iter().map(|view| principal(view, now)).collect::<Vec<_>>(),
            }),
            Standing::Refused(why) => json!({ "standing": why.code }),
        }
    }

    fn catching_up(&self, before: &Entitlements) -> Option<CatchUp> {
        match (&self.standing, before.of::<Self>(CloudName::Aws)) {
            (Standing::Role(own), Decided::Is(Self { standing: Standing::Role(before), .. })) => {
                broker_stats::catching_up(&own.holder, &before.holder)
            }
            _ => None,
        }
    }

    fn lending(&self) -> Option<Lending> {
        let Standing::Role(own) = &self.standing else { return None };
        Some(Lending { leases: broker_stats::leases(&own.holder), complainer: own.complainer.clone() })
    }
}

/// The ARN that the pod's access is of; where EKS says which role it is, what that is called once something is held. EKS tells of the
/// role's session alone, which leaves out its path.
fn role(own: &Own) -> Option<String> {
    let named = own.access.role().map(|role| role.as_str().to_owned());
    named.or_else(|| Some(own.holder.peek(())?.value.role_name().to_owned()))
}

fn way(own: &Own) -> &'static str {
    match &own.access.way {
        Way::WebIdentity { then: None, .. } => "webIdentity",
        Way::WebIdentity { then: Some(_), .. } => "webIdentityThenAssumeRole",
        Way::Keys { .. } => "assumeRole",
        Way::PodIdentity { .. } => "podIdentity",
    }
}

fn principal(view: &PrincipalView, now: Moment) -> Value {
    broker_stats::describe(view, now).into()
}
