//! The statistics, warnings and debug output of a broker.

use std::sync::{Arc, Mutex};

use seawall_broker::{Broker, PodLeaseClient, PrincipalView, TokenExchange};
use seawall_core::cloud::CloudName;
use seawall_core::{Clock, Moment};
use serde_json::{Map, Value, json};

use super::entitlements::{LeaseState, RefetchTask, RenewalFailure};

/// The statistics of one cloud's broker for a metrics scrape.
pub struct BrokerSnapshot {
    /// The cloud's name.
    pub cloud: &'static str,
    /// The numbers of fetches by outcome: `initial`, `renewal`, or the name of a fault. A fetch is a chain of upstream calls.
    pub fetches_by_outcome: Vec<(&'static str, u64)>,
    /// Counters with their metric name, help text and value.
    pub counters: [(&'static str, &'static str, u64); 6],
    /// The number of fetches per second that the limiter currently allows.
    pub allowed_fetches_per_second: f64,
    /// The number of principals that have credentials or wait for credentials.
    pub principal_count: usize,
    /// The remaining lifetimes of the cached credentials, in seconds.
    pub remaining_lifetimes_seconds: Vec<f64>,
    /// The shortest remaining lifetime of a credential in any response since the start, in seconds.
    pub min_response_lifetime_seconds: Option<f64>,
}

impl BrokerSnapshot {
    pub(super) fn from_broker<X: TokenExchange>(broker: &Broker<X>, clock: &Clock) -> Self {
        let (counters, principals, now) = (broker.counters(), broker.principals(), clock.now());
        let life = |view: PrincipalView<X::Principal>| Some(view.remaining_lifetime(now)?.as_secs_f64());
        Self {
            cloud: X::CLOUD,
            fetches_by_outcome: counters.fetches_by_result().into_iter().collect(),
            counters: [
                (
                    "seawall_requests_coalesced",
                    "Requests that shared the upstream call of another request",
                    counters.coalesced_total(),
                ),
                (
                    "seawall_credentials_evicted",
                    "Cached credentials that the agent dropped because their pod requested too many different credentials",
                    counters.evicted_total(),
                ),
                (
                    "seawall_credential_requests_rate_limited",
                    "Requests for new credentials that the agent refused because the pod sent them too fast",
                    counters.refused_by_pod_limit_total(),
                ),
                (
                    "seawall_short_lived_credentials",
                    "Credentials that the cloud issued with a lifetime below twice the floor, so renewal cannot keep them above the floor",
                    counters.issued_below_twice_floor_total(),
                ),
                (
                    "seawall_requested_lifetime_reductions",
                    "Number of times that the agent had to request a shorter lifetime than configured",
                    counters.lifetime_reductions_total(),
                ),
                (
                    "seawall_responses_below_floor",
                    "Responses with credentials whose remaining lifetime was below the floor (the promised minimum)",
                    counters.responses_below_floor_total(),
                ),
            ],
            allowed_fetches_per_second: broker.upstream_rate_limit(),
            principal_count: principals.len(),
            remaining_lifetimes_seconds: principals.filter_map(life).collect(),
            min_response_lifetime_seconds: counters.min_response_lifetime().map(|least| least.as_secs_f64()),
        }
    }
}

/// Returns warnings for the operator about one broker's problems. The agent serves requests despite these problems.
pub(super) fn broker_warnings<X: TokenExchange>(broker: &Broker<X>) -> Vec<String> {
    let principals = broker.principals();
    let (all, cloud) = (principals.len(), X::CLOUD);
    let failing = principals.filter(|view| view.last_failure.is_some()).count();
    let mut remarks = Vec::new();
    if failing > 0 {
        remarks.push(format!(
            "the last fetch failed for {failing} of {all} {cloud} credentials; see /debug/pods"
        ));
    }
    let short = broker.counters().issued_below_twice_floor_total();
    if short > 0 {
        let floor = broker.lifetime_floor().min_remaining.as_secs() / 60;
        remarks.push(format!(
            "{short} {cloud} credentials had a lifetime under {} minutes when the cloud issued them, so renewal cannot keep them above the floor of {floor} minutes",
            2 * floor
        ));
    }
    remarks
}

/// Returns a task in which the lease client `own` fetches all credentials that the lease client `before` has.
/// Returns `None` if `own` and `before` are the same client.
pub(super) fn refetch_task_for_new_client<X: TokenExchange>(
    cloud: CloudName,
    own: &Arc<PodLeaseClient<X>>,
    before: &Arc<PodLeaseClient<X>>,
) -> Option<RefetchTask> {
    if Arc::ptr_eq(own, before) {
        return None;
    }
    let has_credentials = before.principals().iter().any(|view| view.lease_times.is_some());
    let (own, before, progress) = (own.clone(), before.clone(), Arc::<Mutex<_>>::default());
    let (recorded, service_account) = (progress.clone(), own.pod().service_account.clone());
    let run = Box::pin(async move { own.refetch_leases_of_previous_client(&before, &recorded).await });
    Some(RefetchTask { cloud, service_account, has_credentials, progress, run })
}

/// Returns the state of each lease of one pod.
pub(super) fn lease_states<X: TokenExchange>(holder: &PodLeaseClient<X>) -> Vec<LeaseState> {
    let state = |view: PrincipalView<X::Principal>| {
        let (issued, ends, due) = view.lease_times?;
        let failing = view.failing_since.zip(view.last_failure);
        let failing = failing.map(|(since, error)| RenewalFailure {
            failing_since: since,
            step: error.step,
            fault: error.fault,
        });
        Some(LeaseState {
            issued_at: issued,
            renewal_due_at: due,
            expires_at: ends,
            lifetime_floor: view.lifetime_floor,
            renewal_failure: failing,
        })
    };
    holder.principals().into_iter().filter_map(state).collect()
}

/// Returns the part of a principal's `/debug/pods` output that is the same for every cloud.
pub(super) fn describe_principal<P: Clone>(view: &PrincipalView<P>, now: Moment) -> Map<String, Value> {
    let failure = view
        .last_failure
        .as_ref()
        .map(|error| json!({"fault": error.fault.name(), "call": error.step, "detail": error.detail}));
    let seconds = |span: std::time::Duration| Value::from(span.as_secs());
    let shown = [
        ("expires_in_seconds", view.remaining_lifetime(now).map(seconds)),
        ("renewal_in_seconds", view.lease_times.map(|(_, _, renewal)| seconds(renewal.since(now)))),
        ("idle_seconds", Some(seconds(now.since(view.last_used)))),
        ("is_fetching", Some(view.is_fetching.into())),
        ("last_failure", failure),
        ("failing_for_seconds", view.failing_since.map(|since| seconds(now.since(since)))),
    ];
    shown.into_iter().map(|(key, value)| (key.to_owned(), value.unwrap_or_default())).collect()
}

/// The maximum length of an audience or a list of scopes in `/debug/pods`, in characters. A pod can request an audience or scopes
/// of up to 2,048 characters.
const SHOWN: usize = 256;

pub(super) fn truncate(text: &str) -> String {
    let mut short: String = text.chars().take(SHOWN).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
