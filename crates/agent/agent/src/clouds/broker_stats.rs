//! What every cloud with a broker counts and shows: generic over the cloud, called by each.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use seawall_broker::{Broker, Exchange, Holder, PrincipalView, aws, google};
use seawall_core::{Clock, Moment};
use serde_json::{Map, Value, json};

use super::entitlements::{CatchUp, Failing, LeaseState};

/// What one cloud's broker has to tell at a scrape.
pub(crate) struct Figures {
    cloud: &'static str,
    calls: Vec<(&'static str, u64)>,
    /// Each with its name and what it says.
    counts: [(&'static str, &'static str, u64); 6],
    upstream_rate: f64,
    principals: usize,
    /// Remaining lives of the credentials held, in seconds.
    lives: Vec<f64>,
    least_handed_out: Option<f64>,
}

impl Figures {
    fn of<X: Exchange>(broker: &Broker<X>, clock: &Clock) -> Self {
        let (counters, principals, now) = (broker.counters(), broker.principals(), clock.now());
        let life = |view: PrincipalView<X::Principal>| Some(view.remaining(now)?.as_secs_f64());
        Self {
            cloud: X::CLOUD,
            calls: counters.calls().into_iter().collect(),
            counts: [
                (
                    "seawall_coalesced",
                    "Requests that shared another's upstream call",
                    counters.coalesced_total(),
                ),
                ("seawall_evicted", "Credentials dropped for a pod's newer ones", counters.evicted_total()),
                ("seawall_misses_refused", "Misses refused, asked too fast", counters.misses_refused_total()),
                (
                    "seawall_below_floor",
                    "Credentials issued too short-lived for the floor",
                    counters.below_floor_total(),
                ),
                (
                    "seawall_cut_short",
                    "Times that a shorter life had to be asked for than is wanted",
                    counters.cut_total(),
                ),
                (
                    "seawall_floor_breaches",
                    "Answers with less life than the floor",
                    counters.floor_breaches_total(),
                ),
            ],
            upstream_rate: broker.upstream_rate(),
            principals: principals.len(),
            lives: principals.filter_map(life).collect(),
            least_handed_out: counters.least_remaining().map(|least| least.as_secs_f64()),
        }
    }
}

/// A broker at work. A closed set: one variant for each cloud.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CloudBroker<'a> {
    /// Google's.
    Google(&'a google::Broker),
    /// AWS's.
    Aws(&'a aws::Broker),
}

impl CloudBroker<'_> {
    /// What it has to tell at a scrape.
    pub(crate) fn figures(self, clock: &Clock) -> Figures {
        match self {
            Self::Google(broker) => Figures::of(broker, clock),
            Self::Aws(broker) => Figures::of(broker, clock),
        }
    }

    /// What an operator should see though the agent serves.
    pub(crate) fn remarks(self) -> Vec<String> {
        match self {
            Self::Google(broker) => remarks(broker),
            Self::Aws(broker) => remarks(broker),
        }
    }

    /// Whether all that was issued so far could be kept above the floor.
    pub(crate) fn is_above_floor(self) -> bool {
        let counters = match self {
            Self::Google(broker) => broker.counters(),
            Self::Aws(broker) => broker.counters(),
        };
        counters.below_floor_total() == 0
    }
}

fn remarks<X: Exchange>(broker: &Broker<X>) -> Vec<String> {
    let principals = broker.principals();
    let (all, cloud) = (principals.len(), X::CLOUD);
    let failing = principals.filter(|view| view.failure.is_some()).count();
    let mut remarks = Vec::new();
    if failing > 0 {
        remarks.push(format!(
            "{failing} of {all} credentials of {cloud} could not be fetched last time; see /debug/pods"
        ));
    }
    let short = broker.counters().below_floor_total();
    if short > 0 {
        let floor = broker.floor().hard.as_secs() / 60;
        remarks.push(format!(
            "{short} credentials of {cloud} were issued with a life too short for the floor of {floor} minutes"
        ));
    }
    remarks
}

/// Writes the figures of all brokers: each family once, however many clouds there are.
pub(super) struct BrokerCollector(pub(super) Box<dyn Fn() -> Vec<Figures> + Send + Sync>);

impl fmt::Debug for BrokerCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BrokerCollector")
    }
}

impl Collector for BrokerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = (self.0)();
        let out = &mut encoder;
        calls(out, &all)?;
        counts(out, &all)?;
        gauges(out, "seawall_upstream_rate", "Upstream chains that may start per second", &all, |figures| {
            Some(figures.upstream_rate)
        })?;
        gauges(out, "seawall_principals", "Principals in use", &all, |figures| {
            Some(figures.principals as f64)
        })?;
        gauges(out, "seawall_leases", "Credentials held", &all, |figures| Some(figures.lives.len() as f64))?;
        // Nothing held has no least life; an absent sample says so, a zero would look like an expired one.
        let help = "Least remaining life of any credential held";
        gauges(out, "seawall_least_remaining_life_seconds", help, &all, |figures| {
            figures.lives.iter().copied().reduce(f64::min)
        })?;
        let help = "Least remaining life that any answer carried since the start";
        gauges(out, "seawall_least_life_handed_out_seconds", help, &all, |figures| figures.least_handed_out)
    }
}

fn calls(out: &mut DescriptorEncoder<'_>, all: &[Figures]) -> Result<(), fmt::Error> {
    let help = "Chains of upstream calls by what they came to";
    let mut family = out.encode_descriptor("seawall_upstream_calls", help, None, MetricType::Counter)?;
    for figures in all {
        for (outcome, count) in &figures.calls {
            let labels = [("cloud", figures.cloud), ("outcome", outcome)];
            ConstCounter::new(*count).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn counts(out: &mut DescriptorEncoder<'_>, all: &[Figures]) -> Result<(), fmt::Error> {
    let Some(first) = all.first() else { return Ok(()) };
    for (place, (name, help, _)) in first.counts.iter().enumerate() {
        let mut family = out.encode_descriptor(name, help, None, MetricType::Counter)?;
        for figures in all {
            let (_, _, count) = figures.counts[place];
            ConstCounter::new(count).encode(family.encode_family(&[("cloud", figures.cloud)])?)?;
        }
    }
    Ok(())
}

fn gauges(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    all: &[Figures],
    read: impl Fn(&Figures) -> Option<f64>,
) -> Result<(), fmt::Error> {
    let samples: Vec<_> = all.iter().filter_map(|figures| Some((figures.cloud, read(figures)?))).collect();
    if samples.is_empty() {
        return Ok(());
    }
    let mut family = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (cloud, value) in samples {
        ConstGauge::new(value).encode(family.encode_family(&[("cloud", cloud)])?)?;
    }
    Ok(())
}

/// What fetches by one holder what another of the same pod holds; nothing where they are one.
pub(super) fn catching_up<X: Exchange>(own: &Arc<Holder<X>>, before: &Arc<Holder<X>>) -> Option<CatchUp> {
    let is_one = Arc::ptr_eq(own, before);
    let (own, before) = (own.clone(), before.clone());
    let catch_up = || Box::pin(async move { own.catch_up_with(&before).await }) as CatchUp;
    (!is_one).then(catch_up)
}

/// The leases that a pod holds.
pub(super) fn leases<X: Exchange>(holder: &Holder<X>) -> Vec<LeaseState> {
    let state = |view: PrincipalView<X::Principal>| {
        let (issued, ends, due) = view.times?;
        let failing = view.failing_since.zip(view.failure);
        let failing = failing.map(|(since, error)| Failing { since, step: error.step, fault: error.fault });
        Some(LeaseState { issued, due, ends, floor: view.floor, failing })
    };
    holder.principals().into_iter().filter_map(state).collect()
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
        ("failingSeconds", view.failing_since.map(|since| seconds(now.since(since)))),
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
