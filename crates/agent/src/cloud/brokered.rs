//! What every cloud with a broker counts and shows: generic over the cloud, called by the rooms.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use seawall_broker::{Broker, Exchange, PrincipalView};
use seawall_core::{Clock, Moment};
use serde_json::{Map, Value, json};

use crate::metrics::{counter, gauge};

/// Writes the broker's counters at each scrape.
#[derive(Debug)]
pub(super) struct BrokerCollector<X: Exchange> {
    cloud: &'static str,
    broker: Broker<X>,
    clock: Clock,
}

impl<X: Exchange> BrokerCollector<X> {
    /// Of this cloud's broker, whose leases live by `clock`.
    pub(super) fn new(cloud: &'static str, broker: Broker<X>, clock: Clock) -> Self {
        Self { cloud, broker, clock }
    }
}

impl<X: Exchange> Collector for BrokerCollector<X> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let out = &mut encoder;
        let counters = self.broker.counters();
        let help = "Chains of upstream calls by what they came to";
        let mut family = out.encode_descriptor("seawall_upstream_calls", help, None, MetricType::Counter)?;
        for (outcome, count) in counters.calls() {
            ConstCounter::new(count).encode(family.encode_family(&[("outcome", outcome)])?)?;
        }
        counter(
            out,
            "seawall_coalesced",
            "Requests that shared another's upstream call",
            counters.coalesced_total(),
        )?;
        counter(
            out,
            "seawall_evicted",
            "Credentials dropped for a pod's newer ones",
            counters.evicted_total(),
        )?;
        counter(
            out,
            "seawall_misses_refused",
            "Misses refused, asked too fast",
            counters.misses_refused_total(),
        )?;
        let below = counters.below_floor_total();
        counter(out, "seawall_below_floor", "Credentials issued too short-lived for the floor", below)?;
        let breaches = counters.floor_breaches_total();
        counter(out, "seawall_floor_breaches", "Answers with less life than the floor", breaches)?;
        if let Some(least) = counters.least_remaining() {
            let help = "Least remaining life that any answer carried since the start";
            let mut family = out.encode_descriptor(
                "seawall_least_life_handed_out_seconds",
                help,
                None,
                MetricType::Gauge,
            )?;
            ConstGauge::new(least.as_secs_f64()).encode(family.encode_family(&[("cloud", self.cloud)])?)?;
        }
        gauge(
            out,
            "seawall_upstream_rate",
            "Upstream chains that may start per second",
            self.broker.upstream_rate(),
        )?;
        self.leases(out)
    }
}

impl<X: Exchange> BrokerCollector<X> {
    fn leases(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let now = self.clock.now();
        let principals = self.broker.principals();
        let lives: Vec<f64> =
            principals.iter().filter_map(|view| Some(view.remaining(now)?.as_secs_f64())).collect();
        gauge(out, "seawall_principals", "Principals in use", principals.len() as f64)?;
        gauge(out, "seawall_leases", "Credentials held", lives.len() as f64)?;
        let least = lives.into_iter().reduce(f64::min);
        let help = "Least remaining life of any credential held";
        // Nothing held has no least life; an absent sample says so, a zero would look like an expired one.
        least.map_or(Ok(()), |least| gauge(out, "seawall_least_remaining_life_seconds", help, least))
    }
}

/// What `/debug/pods` shows of one principal, whatever it is of: times and states.
pub(super) fn describe<P: Clone>(view: &PrincipalView<P>, now: Moment) -> Map<String, Value> {
    let failure = view
        .failure
        .as_ref()
        .map(|error| json!({"fault": error.fault.name(), "step": error.step, "detail": error.detail}));
    let seconds = |span: std::time::Duration| Value::from(span.as_secs());
    let shown = [
        ("expiresInSeconds", view.remaining(now).map(seconds)),
        ("renewalInSeconds", view.times.map(|(_, _, renewal)| seconds(renewal.since(now)))),
        ("idleSeconds", Some(seconds(now.since(view.used)))),
        ("callInTheAir", Some(view.in_air.into())),
        ("lastFailure", failure),
    ];
    shown.into_iter().map(|(key, value)| (key.to_owned(), value.unwrap_or_default())).collect()
}

/// Longest audience or list of scopes that is shown, in characters: pods choose them, and may choose 2,048.
const SHOWN: usize = 256;

pub(super) fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(SHOWN).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// What an operator should see though the agent serves.
pub(super) fn remarks<X: Exchange>(broker: &Broker<X>) -> Vec<String> {
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
        let floor = broker.floor().hard.as_secs() / 60;
        remarks.push(format!(
            "{short} credentials were issued with a life too short for the floor of {floor} minutes"
        ));
    }
    remarks
}
