//! `/debug/pods` and the remarks under `/readyz`: who holds what and for how long. Names and times, never a secret.

use seawall_broker::{Broker, PrincipalView};
use seawall_core::{Moment, Want};
use serde_json::{Value, json};

use crate::callers::{Callers, PodCaller};

/// Every known pod with what it holds.
pub(crate) fn pods(callers: &Callers, broker: Option<&Broker>, now: Moment) -> Value {
    let principals = broker.map(Broker::principals).unwrap_or_default();
    let pods: Vec<Value> = callers.pods().iter().map(|caller| pod(caller, &principals, now)).collect();
    json!({ "pods": pods })
}

fn pod(caller: &PodCaller, principals: &[PrincipalView], now: Moment) -> Value {
    let pod = &caller.attested.pod;
    let held: Vec<Value> = principals
        .iter()
        .filter(|view| view.pods.iter().any(|user| user.uid == pod.uid))
        .map(|view| principal(view, now))
        .collect();
    json!({
        "address": caller.address.to_string(),
        "namespace": &*pod.service_account.namespace,
        "pod": &*pod.name,
        "serviceAccount": &*pod.service_account.name,
        "googleServiceAccount": caller.attested.google_account.as_deref(),
        "openConnections": caller.connections.open(),
        "principals": held,
    })
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
