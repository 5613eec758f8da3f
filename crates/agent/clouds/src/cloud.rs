//! A running cloud of any kind, with the functions that [`Clouds`](crate::Clouds) calls.

use std::rc::Rc;

use prometheus_client::registry::Registry;
use seawall_core::cloud::{CloudName, DialectName};
use seawall_core::{Clock, LifetimeFloor};
use seawall_server::handler::MetadataDialect;
use seawall_server::route::MetadataRoute;

use super::aws::{self, RunningAws};
use super::broker_stats::{BrokerSnapshot, broker_warnings};
use super::cloud_inputs::DialectResources;
use super::google::{self, RunningGoogle};
use super::pod::PodEntry;
use super::sdk_refresh_times::SdkProfiles;
use super::self_test_request::ReadinessRequest;

/// A running cloud, with one variant per cloud.
#[derive(Clone, Copy, Debug)]
pub(super) enum RunningCloud<'a> {
    /// Google.
    Google(&'a RunningGoogle),
    /// AWS.
    Aws(&'a RunningAws),
}

impl<'a> RunningCloud<'a> {
    /// Returns the cloud's name.
    pub(super) fn name(self) -> CloudName {
        match self {
            Self::Google(_) => CloudName::Google,
            Self::Aws(_) => CloudName::Aws,
        }
    }

    /// Returns the cloud's routes. A route is a kind of request that the cloud's dialects serve.
    pub(super) fn routes(self) -> &'static [&'static MetadataRoute] {
        match self {
            Self::Google(_) => &google::ROUTES,
            Self::Aws(_) => &aws::ROUTES,
        }
    }

    /// Builds one of the cloud's dialects for one traffic thread.
    pub(super) fn build_dialect(
        self,
        name: DialectName,
        tools: &DialectResources,
    ) -> Rc<dyn MetadataDialect<PodEntry>> {
        match self {
            Self::Google(google) => google.build_dialect(tools),
            Self::Aws(aws) => aws.build_dialect(name, tools),
        }
    }

    /// Returns the SDKs that fetch this cloud's credentials, by User-Agent.
    pub(super) fn sdk_profiles(self) -> SdkProfiles {
        match self {
            Self::Google(_) => google::CLIENTS,
            Self::Aws(_) => aws::CLIENTS,
        }
    }

    /// Returns the request by which the readiness check probes one of the cloud's dialects.
    pub(super) fn readiness_request(self, name: DialectName) -> ReadinessRequest {
        match self {
            Self::Google(_) => google::READINESS_REQUEST,
            Self::Aws(_) => aws::readiness_request(name),
        }
    }

    /// Returns the broker that fetches this cloud's credentials, or `None` if the cloud issues no credentials.
    pub(super) fn broker(self) -> Option<CloudBroker<'a>> {
        match self {
            Self::Google(google) => google.broker().map(CloudBroker::Google),
            Self::Aws(aws) => Some(CloudBroker::Aws(aws.broker())),
        }
    }

    /// Returns a warning for the operator about the cloud's dialects. [`CloudBroker::warnings`] returns the warnings about the
    /// broker.
    pub(super) fn warning(self) -> Option<&'a str> {
        match self {
            Self::Google(_) => None,
            Self::Aws(aws) => aws.session_token_warning(),
        }
    }

    /// Registers the metrics that only this cloud has. The crate `observe` registers the metrics that all brokers have.
    pub(super) fn register_metrics(self, registry: &mut Registry) {
        match self {
            Self::Google(_) => {}
            Self::Aws(aws) => aws.register_metrics(registry),
        }
    }

    /// Returns the floor if the agent exchanges a Kubernetes token for credentials that can expire as early as the token.
    pub(super) fn token_bound_floor(self) -> Option<LifetimeFloor> {
        match self {
            Self::Google(google) => google.broker().map(|broker| broker.lifetime_floor()),
            Self::Aws(_) => None,
        }
    }
}

/// A running broker, which fetches and caches the credentials of one cloud. There is one variant per cloud.
#[derive(Clone, Copy, Debug)]
pub enum CloudBroker<'a> {
    /// Google's broker.
    Google(&'a seawall_broker::google::GoogleBroker),
    /// AWS's broker.
    Aws(&'a seawall_broker::aws::AwsBroker),
}

impl CloudBroker<'_> {
    /// Returns the broker's statistics for a metrics scrape.
    pub fn snapshot(self, clock: &Clock) -> BrokerSnapshot {
        match self {
            Self::Google(broker) => BrokerSnapshot::from_broker(broker, clock),
            Self::Aws(broker) => BrokerSnapshot::from_broker(broker, clock),
        }
    }

    /// Returns warnings for the operator about the broker's problems. The agent serves requests despite these problems.
    pub fn warnings(self) -> Vec<String> {
        match self {
            Self::Google(broker) => broker_warnings(broker),
            Self::Aws(broker) => broker_warnings(broker),
        }
    }

    /// True if each credential since the broker's start had a long enough lifetime at its issue to stay above the floor.
    pub fn never_issued_below_twice_floor(self) -> bool {
        let counters = match self {
            Self::Google(broker) => broker.counters(),
            Self::Aws(broker) => broker.counters(),
        };
        counters.issued_below_twice_floor_total() == 0
    }
}
