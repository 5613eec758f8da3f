//! AWS: what its section says, what a pod is entitled to, and its dialects on each traffic thread.
//!
//! A pod has one identity at both endpoints, the metadata service (`imds`) and that of containers (`containers`), because clients
//! change from one to the other: one entitlement, one holder, one lease. Which role that is, is `policy`'s to say; how it is taken,
//! `access`'s.

mod awaited_credentials;
mod config;
mod container_handler;
mod debug;
pub(crate) mod entitlement;
mod imds_handler;
#[cfg(test)]
mod node_load_tests;
mod passthrough;
mod pod_token;
mod policy;
mod prefetch;
mod refusals;
mod response;
mod role_chain;
mod routes;
mod sdk_profiles;
mod session_token_keys;
#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::sync::Arc;

use anyhow::Context;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use seawall_broker::aws::{AwsExchange, Broker, Config, HolderSpec, SETTINGS};
use seawall_config::values::named_file;
use seawall_core::Clock;
use seawall_core::cloud::DialectName;
use seawall_core::facts::Selection;
use seawall_protocols::aws::{Bearer, Containers};
use seawall_server::handler::Dialect;
use seawall_server::upstream::Forwarder;
use tokio::runtime::Handle;

use super::context::{Applicant, Tools};
use super::entitlements::Decided;
use super::pod_events;
use super::prefetch::Ahead;
use crate::pod::PodCaller;
use crate::readiness_request::Probe;
use container_handler::ContainersDialect;
use entitlement::{Entitlement, Own, Standing};
use imds_handler::{ImdsDialect, Service};
use passthrough::Passthrough;
use policy::{Allowed, Denied, Rules};
use prefetch::First;
use role_chain::Accesses;
use session_token_keys::TokenKeys;

pub(crate) use config::{KEYS, Section};
pub(super) use policy::annotations::FILE_KEYS;
#[cfg(any(test, feature = "testing"))]
pub(crate) use policy::annotations::ROLE_ARN;
pub(super) use routes::ALL as ROUTES;
pub(super) use sdk_profiles::ALL as CLIENTS;

/// AWS at work.
#[derive(Debug)]
pub(crate) struct Aws {
    rules: Rules,
    accesses: Accesses,
    /// What the broker asks, and how: leases that came in another way are not answered with, but fetched anew.
    asks: Config,
    broker: Broker,
    ahead: Ahead<First>,
    service: Arc<Service>,
    containers: Containers,
    container_audience: Arc<str>,
    upstream: String,
    /// Whether anything of the real service is let pass.
    passes: bool,
    /// What is to be said of session tokens.
    remark: Option<String>,
    pace: Arc<passthrough::Pace>,
    clock: Clock,
}

impl Section {
    /// The annotations that it wants to know.
    pub(super) fn selection(&self) -> Selection {
        let by_pod = self.rules.by_pod;
        policy::annotations::selection(
            by_pod.is_some_and(|rules| rules.kiam),
            by_pod.is_some_and(|rules| rules.kube2iam.is_some()),
            self.rules.by_service_account.is_some(),
        )
    }

    /// Whether it names a file that is written while the agent serves.
    pub(super) fn writes_a_file(&self) -> bool {
        self.imds.key_file.is_some()
    }

    /// AWS at work; what it does in the background runs on `runtime`. Asks nobody. What the sections do not say differently is taken over
    /// from `before`, with what is held and counted.
    ///
    /// # Errors
    /// A file that the section names cannot be read or used.
    pub(super) fn start(&self, clock: &Clock, runtime: &Handle, before: Option<&Aws>) -> anyhow::Result<Aws> {
        let more_roots =
            self.exchange.ca_file.as_deref().map(named_file).transpose().context("aws.caFile")?;
        let asks = Config { more_roots, ..role_chain::config(&self.exchange, &self.imds.upstream) };
        let exchange = || Ok::<_, anyhow::Error>(Arc::new(AwsExchange::new(asks.clone(), clock.clone())?));
        let broker = match before {
            Some(before) if before.asks == asks => before.broker.clone(),
            Some(before) => before.broker.succeeded_by(exchange()?),
            None => Broker::start(SETTINGS, clock.clone(), exchange()?, runtime.clone()),
        };
        let remark = self.imds.remark();
        if before.is_none_or(|before| before.remark != remark) {
            remark.iter().for_each(|remark| tracing::warn!("{remark}"));
        }
        Ok(Aws {
            rules: self.rules.clone(),
            accesses: Accesses::new(&self.exchange)?,
            asks,
            broker,
            ahead: before.map_or_else(|| Ahead::start(runtime), |before| before.ahead.clone()),
            service: Arc::new(self.service(clock, runtime, before)?),
            containers: Containers::new(self.containers.hosts.iter().copied()),
            container_audience: self.containers.audience.as_str().into(),
            upstream: self.imds.upstream.clone(),
            passes: !self.imds.passthrough.is_empty(),
            remark,
            pace: before.map(|before| before.pace.clone()).unwrap_or_default(),
            clock: clock.clone(),
        })
    }

    /// What all threads' dialects have in common. Session tokens that were given stay good: their keys and what is counted are taken over
    /// (another file of keys needs another process).
    fn service(&self, clock: &Clock, runtime: &Handle, before: Option<&Aws>) -> anyhow::Result<Service> {
        if let Some(before) = before {
            return before.service.succeeded_by(self);
        }
        let keys = Arc::new(TokenKeys::open(self.imds.key_file.as_deref(), clock)?);
        runtime.spawn(keys.clone().keep());
        Service::new(self, keys, clock.clone())
    }
}

/// How readiness asks for a dialect.
pub(super) fn probe(name: DialectName) -> Probe {
    if name == DialectName::AwsContainers { container_handler::PROBE } else { imds_handler::PROBE }
}

impl Aws {
    /// What a pod may have, which had `before`; nothing while it is not known what decides that. Leases stay where what decides it is
    /// the same and they come in the way in which this asks for them.
    pub(super) fn entitle(
        &self,
        applicant: &Applicant<'_>,
        before: Decided<&Entitlement>,
    ) -> Option<Entitlement> {
        let standing = match self.rules.decide(applicant.pod, applicant.facts) {
            Ok(allowed) => Standing::Role(self.own(applicant, &allowed, before)),
            Err(Denied::NotYet) => return None,
            Err(Denied::NoRole(refusal)) => Standing::Refused(refusal),
            Err(Denied::Refused(complaint, refusal)) => {
                pod_events::refused(&applicant.complainer, complaint, &refusal);
                Standing::Refused(refusal)
            }
        };
        let passthrough = self.passes.then(|| share(before));
        Some(Entitlement { bearer: Bearer::pod(&applicant.pod.uid), standing, passthrough })
    }

    /// One of its dialects, on one traffic thread.
    pub(super) fn dialect(&self, name: DialectName, tools: &Tools) -> Rc<dyn Dialect<PodCaller>> {
        if name == DialectName::AwsContainers {
            let (endpoint, audience) = (self.containers.clone(), self.container_audience.clone());
            return Rc::new(ContainersDialect::new(endpoint, audience, self.clock.clone()));
        }
        let forwarder =
            Forwarder::new(&self.upstream, tools.places.clone(), tools.idle, tools.long_polls.clone());
        let passthrough = Passthrough::new(forwarder, self.pace.clone(), self.clock.clone());
        Rc::new(ImdsDialect::new(self.service.clone(), passthrough))
    }

    /// What gives its credentials.
    pub(super) fn broker(&self) -> &Broker {
        &self.broker
    }

    /// What an operator should see of session tokens though the agent serves.
    pub(super) fn remark(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    /// Registers what it counts beside what every broker does.
    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Requests for metadata without a session token, which aws.imds.tokens: required refuses";
        let without: Counter = self.service.without_token.clone();
        registry.register("seawall_aws_requests_without_token", help, without);
    }
}

/// What the pod had before, or whoever may have its annotations changed would have a whole burst anew each time.
fn share(before: Decided<&Entitlement>) -> passthrough::Share {
    match before {
        Decided::Is(before) => before.passthrough.clone().unwrap_or_default(),
        _ => passthrough::Share::default(),
    }
}

impl Aws {
    /// What it had before stays where its role and the way to it are the same: its leases with it.
    fn own(&self, applicant: &Applicant<'_>, allowed: &Allowed, before: Decided<&Entitlement>) -> Own {
        let access = self.accesses.of(applicant.pod, allowed);
        if let Decided::Is(Entitlement { standing: Standing::Role(own), .. }) = before
            && *own.access == access
            && own.holder.is_of(&self.broker)
        {
            return own.clone();
        }
        let access = Arc::new(access);
        let spec = HolderSpec {
            pod: applicant.pod.clone(),
            entitlement: Some(access.clone()),
            subject: (applicant.subject)(),
        };
        let (holder, complainer) = (self.broker.holder(spec), applicant.complainer.clone());
        let role = match allowed {
            Allowed::Role(grant) => Some(grant.role.name().clone()),
            Allowed::Associated(_) => None,
        };
        // Once for a pod: whoever may annotate it could otherwise have calls made as often as he changes his mind. Of one for which nobody
        // names a role it is not known whether it wants any, and most have none.
        if applicant.ahead && role.is_some() && matches!(before, Decided::NotYet) {
            self.ahead.fetch(First::new(&holder, &complainer));
        }
        Own { role, access, holder, complainer }
    }
}
