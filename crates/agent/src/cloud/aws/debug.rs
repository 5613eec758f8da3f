//! What `/debug/pods` shows of AWS: names and times, never a secret.

use seawall_broker::aws::{PrincipalView, Way};
use seawall_core::Moment;
use serde_json::{Value, json};

use super::{Entitlement, Own, Standing};
use crate::cloud::brokered;
use crate::entitlements::{self, Lending};

impl entitlements::Entitlement for Entitlement {
    /// What a pod may have, in a word, the role that it acts as and how it takes it, and what it holds.
    fn describe(&self, now: Moment) -> Value {
        match &self.standing {
            Standing::Role(own) => json!({
                "standing": "role",
                "role": own.access.role().map(seawall_broker::aws::RoleArn::as_str),
                "way": way(own),
                "principals": own.holder.principals().iter().map(|view| principal(view, now)).collect::<Vec<_>>(),
            }),
            Standing::Refused(why) => json!({ "standing": why.code }),
        }
    }

    fn lending(&self) -> Option<Lending> {
        let Standing::Role(own) = &self.standing else { return None };
        Some(Lending { leases: brokered::leases(&own.holder), complainer: own.complainer.clone() })
    }
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
    brokered::describe(view, now).into()
}
