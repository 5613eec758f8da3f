//! One cloud at work, whichever it is: what the list of clouds asks of each.

use std::rc::Rc;

use prometheus_client::registry::Registry;
use seawall_core::cloud::{CloudName, DialectName};
use seawall_core::{Clock, Floor};
use seawall_server::handler::MetadataDialect;
use seawall_server::route::MetadataRoute;

use super::aws::{self, Aws};
use super::broker_stats::{BrokerSnapshot, warnings};
use super::context::DialectResources;
use super::google::{self, Google};
use super::pod::PodEntry;
use super::readiness_request::ReadinessRequest;
use super::sdk_profile::SdkProfiles;

/// A cloud at work. A closed set: one variant for each cloud.
#[derive(Clone, Copy, Debug)]
pub(super) enum RunningCloud<'a> {
    /// Google.
    Google(&'a Google),
    /// AWS.
    Aws(&'a Aws),
}

impl<'a> RunningCloud<'a> {
    /// Its name.
    pub(super) fn name(self) -> CloudName {
        match self {
            Self::Google(_) => CloudName::Google,
            Self::Aws(_) => CloudName::Aws,
        }
    }

    /// What is asked of it, by kind.
    pub(super) fn routes(self) -> &'static [&'static MetadataRoute] {
        match self {
            Self::Google(_) => &google::ROUTES,
            Self::Aws(_) => &aws::ROUTES,
        }
    }

    /// One of its dialects, on one traffic thread.
    pub(super) fn dialect(
        self,
        name: DialectName,
        tools: &DialectResources,
    ) -> Rc<dyn MetadataDialect<PodEntry>> {
        match self {
            Self::Google(google) => google.dialect(tools),
            Self::Aws(aws) => aws.dialect(name, tools),
        }
    }

    /// Clients that fetch its credentials, by what they call themselves.
    pub(super) fn sdk_profiles(self) -> SdkProfiles {
        match self {
            Self::Google(_) => google::CLIENTS,
            Self::Aws(_) => aws::CLIENTS,
        }
    }

    /// How readiness asks for one of its dialects.
    pub(super) fn probe(self, name: DialectName) -> ReadinessRequest {
        match self {
            Self::Google(_) => google::PROBE,
            Self::Aws(_) => aws::probe(name),
        }
    }

    /// What gives its credentials, if it gives some.
    pub(super) fn broker(self) -> Option<CloudBroker<'a>> {
        match self {
            Self::Google(google) => google.broker().map(CloudBroker::Google),
            Self::Aws(aws) => Some(CloudBroker::Aws(aws.broker())),
        }
    }

    /// What an operator should see though the agent serves, beside what every broker says.
    pub(super) fn warning(self) -> Option<&'a str> {
        match self {
            Self::Google(_) => None,
            Self::Aws(aws) => aws.warning(),
        }
    }

    /// Registers what it counts beside what every broker does.
    pub(super) fn register(self, registry: &mut Registry) {
        match self {
            Self::Google(_) => {}
            Self::Aws(aws) => aws.register(registry),
        }
    }

    /// The floor of credentials that may end with the Kubernetes token that they were exchanged for.
    pub(super) fn exchanged_min_lifetime(self) -> Option<Floor> {
        match self {
            Self::Google(google) => google.broker().map(|broker| broker.floor()),
            Self::Aws(_) => None,
        }
    }
}

/// A broker at work. A closed set: one variant for each cloud.
#[derive(Clone, Copy, Debug)]
pub enum CloudBroker<'a> {
    /// Google's.
    Google(&'a seawall_broker::google::GoogleBroker),
    /// AWS's.
    Aws(&'a seawall_broker::aws::AwsBroker),
}

impl CloudBroker<'_> {
    /// What it has to tell at a scrape.
    pub fn snapshot(self, clock: &Clock) -> BrokerSnapshot {
        match self {
            Self::Google(broker) => BrokerSnapshot::of(broker, clock),
            Self::Aws(broker) => BrokerSnapshot::of(broker, clock),
        }
    }

    /// What an operator should see though the agent serves.
    pub fn warnings(self) -> Vec<String> {
        match self {
            Self::Google(broker) => warnings(broker),
            Self::Aws(broker) => warnings(broker),
        }
    }

    /// Whether all that was issued so far could be kept above the floor.
    pub fn is_above_floor(self) -> bool {
        let counters = match self {
            Self::Google(broker) => broker.counters(),
            Self::Aws(broker) => broker.counters(),
        };
        counters.below_floor_total() == 0
    }
}
