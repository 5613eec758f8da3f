//! `/debug/pods` and the remarks under `/readyz`: who holds what and for how long. Names and times, never a secret.

use seawall_broker::google::{Broker, PrincipalView, Want};
use seawall_core::Moment;
use serde_json::{Value, json};

use crate::callers::{Callers, PodCaller, Standing};

/// Every known pod with what it holds, as JSON. Written pod by pod: a document of all of them would weigh many times its text.
pub(crate) fn pods(callers: &Callers, now: Moment) -> String {
    let mut text = String::from("{\n  \"pods\": [");
    for (place, caller) in callers.pods().iter().enumerate() {
        text.push_str(if place == 0 { "\n    " } else { ",\n    " });
        text.push_str(&format!("{:#}", pod(caller, now)).replace('\n', "\n    "));
    }
    text.push_str("\n  ]\n}\n");
    text
}

fn pod(caller: &PodCaller, now: Moment) -> Value {
    let pod = &caller.pod;
    let (standing, account) = standing(caller);
    let principals = match &**caller.standing() {
        Standing::Federated(own) => own.holder.principals(),
        Standing::Pending | Standing::Passthrough | Standing::Refused(..) => Vec::new(),
    };
    let held: Vec<Value> = principals.iter().map(|view| principal(view, now)).collect();
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
        "scopesOrAudience": shortened(detail),
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

/// Longest audience or list of scopes that is shown, in characters: pods choose them, and may choose 2,048.
const SHOWN: usize = 256;

fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(SHOWN).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
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
