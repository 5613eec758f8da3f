//! `/debug/pods` and the remarks under `/readyz`: who holds what and for how long. Names and times, never a secret.

use seawall_broker::{Broker, PrincipalView};
use seawall_core::{Moment, Want};
use serde_json::{Value, json};

use crate::callers::{Callers, PodCaller, Standing};

/// Every known pod with what it holds.
pub(crate) fn pods(callers: &Callers, broker: Option<&Broker>, now: Moment) -> Value {
    let principals = broker.map(Broker::principals).unwrap_or_default();
    let pods: Vec<Value> = callers.pods().iter().map(|caller| pod(caller, &principals, now)).collect();
    json!({ "pods": pods })
}

fn pod(caller: &PodCaller, principals: &[PrincipalView], now: Moment) -> Value {
    let pod = &caller.pod;
    let (standing, account) = standing(caller);
    let held: Vec<Value> = principals
        .iter()
        .filter(|view| view.pods.iter().any(|user| user.uid == pod.uid))
        .map(|view| principal(view, now))
        .collect();
    json!({
        "address": caller.addresses.first().map(ToString::to_string),
        "addresses": caller.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "namespace": &*pod.service_account.namespace,
        "pod": &*pod.name,
        "serviceAccount": &*pod.service_account.name,
        "standing": standing,
        "googleServiceAccount": account,
        "openConnections": caller.connections.open(),
        "principals": held,
    })
}

/// What it may have, in a word, and the Google service account it acts as.
fn standing(caller: &PodCaller) -> (&'static str, Option<String>) {
    match &**caller.standing() {
        Standing::Pending => ("pending", None),
        Standing::Federated(own) => ("federated", own.account.as_deref().map(str::to_owned)),
        Standing::Passthrough => ("passthrough", None),
        Standing::Refused(_, why) => (why.code, None),
    }
}

fn principal(view: &PrincipalView, now: Moment) -> Value {
    let (kind, detail) = match &view.principal.want {
        Want::AccessToken { scopes } => ("accessToken", scopes),
        Want::IdToken { audience, .. } => ("idToken", audience),
    };
    json!({
        "kind": kind,
        "scopesOrAudience": &**detail,
        "account": view.principal.account.as_deref(),
        "expiresInSeconds": view.remaining(now).map(|left| left.as_secs()),
        "renewalInSeconds": view.times.map(|(_, _, renewal)| renewal.since(now).as_secs()),
        "idleSeconds": now.since(view.used).as_secs(),
        "callInTheAir": view.in_air,
        "lastFailure": view.failure.as_ref().map(|error| json!({
            "fault": error.fault.name(), "step": error.step, "detail": error.detail,
        })),
    })
}

/// What an operator should see though the agent serves.
pub(crate) fn remarks(broker: &Broker) -> Vec<String> {
    let principals = broker.principals();
    let failing = principals.iter().filter(|view| view.failure.is_some()).count();
    let mut remarks = Vec::new();
    if failing > 0 {
        remarks.push(format!(
            "{failing} of {} credentials could not be fetched last time; see /debug/pods",
            principals.len()
        ));
    }
    let short = broker.counters().below_floor_total();
    if short > 0 {
        remarks.push(format!(
            "{short} credentials were issued with a life too short for the floor of 6 minutes"
        ));
    }
    remarks
}
