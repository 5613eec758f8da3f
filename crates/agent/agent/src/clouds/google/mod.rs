//! Google: what its section says, what a pod is entitled to, and its dialect on each traffic thread.

mod account_policy;
mod config;
mod debug;
mod handler;
mod metadata_trees;
mod passthrough;
mod pending;
mod prefetch;
mod refusals;
mod response;
mod routes;
mod sdk_profiles;

use std::any::Any;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::Context;
use seawall_broker::google::{
    Broker, Config as ExchangeConfig, GoogleExchange, Holder, HolderSpec, SETTINGS,
};
use seawall_config::values::named_file;
use seawall_core::cloud::{CloudName, DialectName};
use seawall_core::events::{Complainer, Complaint};
use seawall_core::facts::Selection;
use seawall_core::{Clock, Floor, ServiceAccount};
use seawall_http::Refusal;
use seawall_protocols::google::{self, Server};
use seawall_server::handler::Dialect;
use seawall_server::route::Route;
use seawall_server::upstream::Forwarder;
use tokio::runtime::Handle;

use super::broker_stats::Brokered;
use super::cloud::{Applicant, Cloud, Tools};
use super::entitlements::{Decided, Entitlements};
use super::prefetch::Ahead;
use super::sdk_profile::Clients;
use super::{cloud, entitlements, pod_events};
use crate::clouds::pod::PodCaller;
use crate::observe::readiness::Probe;
use account_policy::NoAccount;
use config::{Federate, Mode};
use handler::{GoogleDialect, Serves};
use metadata_trees::Trees;
use passthrough::Passthrough;
use pending::Waits;
use prefetch::First;

pub(super) use account_policy::FILE_KEYS;
pub(crate) use config::Section;

/// Readiness asks for a fact that is no secret, as a library would.
const PROBE: Probe = Probe {
    method: "GET",
    target: "/computeMetadata/v1/project/project-id",
    headers: "Metadata-Flavor: Google\r\n",
    answer_has: "metadata-flavor: google",
};

/// What a pod may have of Google.
#[derive(Clone, Debug)]
pub(super) enum Entitlement {
    /// Credentials of its own.
    Federated(Federated),
    /// The real metadata server, through the filter.
    Passthrough,
    /// The node's facts, and instead of an account the reason why there is none.
    Refused(Arc<google::Tree>, Refusal),
}

/// One pod's view of the metadata tree and the way to its leases.
#[derive(Clone, Debug)]
pub(super) struct Federated {
    tree: Arc<google::Tree>,
    holder: Arc<Holder>,
    /// The Google service account it acts as, if any.
    account: Option<Arc<str>>,
    /// Told when the pod is refused something.
    complainer: Complainer,
}

const MALFORMED: Refusal = Refusal::new(
    403,
    "malformed_account",
    "The annotation iam.gke.io/gcp-service-account of this pod's ServiceAccount is not a Google service account's e-mail.",
);

const NO_SERVICE_ACCOUNT: Refusal =
    Refusal::new(403, "no_service_account", "This pod's Kubernetes ServiceAccount does not exist.");

/// Google at work.
#[derive(Debug)]
struct Google {
    upstream: String,
    gives: Gives,
}

#[derive(Debug)]
enum Gives {
    /// The real metadata server, to all alike.
    Conceal,
    /// To each its own.
    Federate(Box<Federation>),
}

#[derive(Debug)]
struct Federation {
    /// What the broker asks, and how: leases that came in another way are not answered with, because whom a provider takes a pod for, and
    /// what it lets it be, is the provider's to say. They are fetched anew instead.
    asks: ExchangeConfig,
    broker: Broker,
    trees: Trees,
    passthrough: HashSet<ServiceAccount>,
    ahead: Ahead<First>,
}

impl Google {
    fn federation(&self) -> Option<&Federation> {
        match &self.gives {
            Gives::Federate(federation) => Some(federation),
            Gives::Conceal => None,
        }
    }
}

impl cloud::Section for Section {
    fn selection(&self) -> Selection {
        account_policy::SELECTION
    }

    fn must_know_pods(&self) -> bool {
        matches!(self.mode, Mode::Federate(_))
    }

    fn start(
        &self,
        clock: &Clock,
        runtime: &Handle,
        before: Option<&dyn Cloud>,
    ) -> anyhow::Result<Arc<dyn Cloud>> {
        let before = before.and_then(|cloud| (cloud as &dyn Any).downcast_ref::<Google>());
        let gives = match &self.mode {
            Mode::Conceal => Gives::Conceal,
            Mode::Federate(federate) => {
                let passthrough = self.passthrough.iter().cloned().collect();
                let before = before.and_then(Google::federation);
                Gives::Federate(Box::new(Federation::start(federate, passthrough, clock, runtime, before)?))
            }
        };
        Ok(Arc::new(Google { upstream: self.upstream.clone(), gives }))
    }
}

impl Cloud for Google {
    fn routes(&self) -> &'static [&'static Route] {
        &routes::ALL
    }

    fn entitle(
        &self,
        applicant: &Applicant<'_>,
        before: &Entitlements,
    ) -> Option<Arc<dyn entitlements::Entitlement>> {
        let own = match &self.gives {
            Gives::Conceal => Entitlement::Passthrough,
            Gives::Federate(federation) => federation.entitle(applicant, before.of(CloudName::Google))?,
        };
        Some(Arc::new(own))
    }

    fn dialect(&self, _: DialectName, tools: &Tools) -> Rc<dyn Dialect<PodCaller>> {
        let (serves, server) = match &self.gives {
            Gives::Federate(federation) => (Serves::Federate { probe: federation.trees.bare() }, Server::Gke),
            Gives::Conceal => (Serves::Conceal, Server::Vm),
        };
        let forwarder =
            Forwarder::new(&self.upstream, tools.places.clone(), tools.idle, tools.long_polls.clone());
        let passthrough = Passthrough::new(forwarder, server);
        Rc::new(GoogleDialect::new(serves, Waits(tools.long_polls.clone()), passthrough))
    }

    fn clients(&self) -> Clients {
        sdk_profiles::ALL
    }

    fn probe(&self, _: DialectName) -> Probe {
        PROBE
    }

    fn broker(&self) -> Option<&dyn Brokered> {
        self.federation().map(|federation| &federation.broker as _)
    }

    fn floor_of_exchanged(&self) -> Option<Floor> {
        self.federation().map(|federation| federation.broker.floor())
    }
}

impl Federation {
    fn start(
        federate: &Federate,
        passthrough: HashSet<ServiceAccount>,
        clock: &Clock,
        runtime: &Handle,
        before: Option<&Self>,
    ) -> anyhow::Result<Self> {
        let mut asks = federate.exchange.clone();
        asks.more_roots = federate.ca_file.as_deref().map(named_file).transpose().context("google.caFile")?;
        let exchange = || Ok::<_, anyhow::Error>(Arc::new(GoogleExchange::new(asks.clone(), clock.clone())?));
        let broker = match before {
            Some(before) if before.asks == asks => before.broker.clone(),
            Some(before) => before.broker.succeeded_by(exchange()?),
            None => Broker::start(SETTINGS, clock.clone(), exchange()?, runtime.clone()),
        };
        let trees = Trees::new(&federate.node, &federate.pool);
        let ahead = before.map_or_else(|| Ahead::start(runtime), |before| before.ahead.clone());
        Ok(Self { asks, broker, trees, passthrough, ahead })
    }

    /// Nothing while it is not known which account the pod's ServiceAccount stands for.
    fn entitle(&self, applicant: &Applicant<'_>, before: Decided<&Entitlement>) -> Option<Entitlement> {
        if self.passthrough.contains(&applicant.pod.service_account) {
            return Some(Entitlement::Passthrough);
        }
        let refused = |complaint, refusal: Refusal| {
            pod_events::refused(&applicant.complainer, complaint, &refusal);
            Some(Entitlement::Refused(self.trees.bare(), refusal))
        };
        match account_policy::of(applicant.facts) {
            Ok(account) => match before {
                Decided::Is(Entitlement::Federated(own))
                    if own.account == account && own.holder.is_of(&self.broker) =>
                {
                    // The facts may be others by another configuration.
                    let tree = self.trees.of(account.as_ref());
                    Some(Entitlement::Federated(Federated { tree, ..own.clone() }))
                }
                _ => Some(self.federated(applicant, account, before)),
            },
            Err(NoAccount::NotRead) => None,
            Err(NoAccount::Missing) => refused(Complaint::NoToken, NO_SERVICE_ACCOUNT),
            Err(NoAccount::Malformed) => refused(Complaint::MalformedAccount, MALFORMED),
        }
    }

    fn federated(
        &self,
        applicant: &Applicant<'_>,
        account: Option<Arc<str>>,
        before: Decided<&Entitlement>,
    ) -> Entitlement {
        let spec = HolderSpec {
            pod: applicant.pod.clone(),
            entitlement: account.clone(),
            subject: (applicant.subject)(),
        };
        let (tree, holder) = (self.trees.of(account.as_ref()), self.broker.holder(spec));
        let complainer = applicant.complainer.clone();
        // Once for a pod: whoever may annotate its ServiceAccount could otherwise have calls made as often as he changes his mind.
        if applicant.ahead && matches!(before, Decided::NotYet) {
            self.ahead.fetch(First::new(&tree, &holder, &complainer));
        }
        Entitlement::Federated(Federated { tree, holder, account, complainer })
    }
}
