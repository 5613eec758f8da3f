//! What `/debug/pods` shows of AWS: names and times, never a secret.

use seawall_broker::aws::{PrincipalView, Way};
use seawall_core::Moment;
use serde_json::{Value, json};

use super::entitlement::{Entitlement, Own, Standing};
use crate::broker_stats;
use crate::entitlements::{CatchUp, Decided, Lending};

impl Entitlement {
    /// What a pod may have, in a word, the role that it acts as and how it takes it, and what it holds.
    pub(crate) fn describe(&self, now: Moment) -> Value {
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

    /// What fetches all that the pod held by `before`, where this holds none of it and is to take its place.
    pub(crate) fn catching_up(&self, before: Decided<&Self>) -> Option<CatchUp> {
        match (&self.standing, before) {
            (Standing::Role(own), Decided::Is(Self { standing: Standing::Role(before), .. })) => {
                broker_stats::catching_up(&own.holder, &before.holder)
            }
            _ => None,
        }
    }

    /// What the pod holds, and who tells its owner.
    pub(crate) fn lending(&self) -> Option<Lending> {
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
