//! Google: what its section says, what a pod is entitled to, and its dialect on each traffic thread.

mod account_policy;
mod awaited_changes;
mod config;
mod debug;
pub(crate) mod entitlement;
mod handler;
mod metadata_trees;
mod passthrough;
mod prefetch;
mod refusals;
mod response;
mod routes;
mod sdk_profiles;

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::Context;
use seawall_broker::google::{Broker, Config as ExchangeConfig, GoogleExchange, HolderSpec, SETTINGS};
use seawall_config::values::named_file;
use seawall_core::events::Complaint;
use seawall_core::facts::Selection;
use seawall_core::{Clock, ServiceAccount};
use seawall_http::Refusal;
use seawall_protocols::google::Server;
use seawall_server::handler::Dialect;
use seawall_server::upstream::Forwarder;
use tokio::runtime::Handle;

use super::context::{Applicant, Tools};
use super::entitlements::Decided;
use super::pod_events;
use super::prefetch::Ahead;
use crate::pod::PodCaller;
use crate::readiness_request::Probe;
use account_policy::NoAccount;
use awaited_changes::Waits;
use config::{Federate, Mode};
use entitlement::{Entitlement, Federated};
use handler::{GoogleDialect, Serves};
use metadata_trees::Trees;
use passthrough::Passthrough;
use prefetch::First;

pub(super) use account_policy::FILE_KEYS;
pub(crate) use config::{KEYS, Section};
pub(super) use routes::ALL as ROUTES;
pub(super) use sdk_profiles::ALL as CLIENTS;

/// Readiness asks for a fact that is no secret, as a library would.
pub(super) const PROBE: Probe = Probe {
    method: "GET",
    target: "/computeMetadata/v1/project/project-id",
    headers: "Metadata-Flavor: Google\r\n",
    answer_has: "metadata-flavor: google",
};

const MALFORMED: Refusal = Refusal::new(
    403,
    "malformed_account",
    "The annotation iam.gke.io/gcp-service-account of this pod's ServiceAccount is not a Google service account's e-mail.",
);

const NO_SERVICE_ACCOUNT: Refusal =
    Refusal::new(403, "no_service_account", "This pod's Kubernetes ServiceAccount does not exist.");

/// Google at work.
#[derive(Debug)]
pub(crate) struct Google {
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

impl Section {
    /// The annotations that it wants to know.
    pub(super) fn selection(&self) -> Selection {
        account_policy::SELECTION
    }

    /// Whether pods get credentials of their own, so that each must be known.
    pub(super) fn must_know_pods(&self) -> bool {
        matches!(self.mode, Mode::Federate(_))
    }

    /// Google at work; what it does in the background runs on `runtime`. Asks nobody. What the sections do not say differently is taken over
    /// from `before`, with what is held and counted.
    ///
    /// # Errors
    /// A file that the section names cannot be read or used.
    pub(super) fn start(
        &self,
        clock: &Clock,
        runtime: &Handle,
        before: Option<&Google>,
    ) -> anyhow::Result<Google> {
        let gives = match &self.mode {
            Mode::Conceal => Gives::Conceal,
            Mode::Federate(federate) => {
                let passthrough = self.passthrough.iter().cloned().collect();
                let before = before.and_then(Google::federation);
                Gives::Federate(Box::new(Federation::start(federate, passthrough, clock, runtime, before)?))
            }
        };
        Ok(Google { upstream: self.upstream.clone(), gives })
    }
}

impl Google {
    fn federation(&self) -> Option<&Federation> {
        match &self.gives {
            Gives::Federate(federation) => Some(federation),
            Gives::Conceal => None,
        }
    }

    /// What a pod may have, which had `before`; nothing while it is not known what decides that. Leases stay where what decides it is
    /// the same and they come in the way in which this asks for them.
    pub(super) fn entitle(
        &self,
        applicant: &Applicant<'_>,
        before: Decided<&Entitlement>,
    ) -> Option<Entitlement> {
        match &self.gives {
            Gives::Conceal => Some(Entitlement::Passthrough),
            Gives::Federate(federation) => federation.entitle(applicant, before),
        }
    }

    /// Its dialect, on one traffic thread.
    pub(super) fn dialect(&self, tools: &Tools) -> Rc<dyn Dialect<PodCaller>> {
        let (serves, server) = match &self.gives {
            Gives::Federate(federation) => (Serves::Federate { probe: federation.trees.bare() }, Server::Gke),
            Gives::Conceal => (Serves::Conceal, Server::Vm),
        };
        let forwarder =
            Forwarder::new(&self.upstream, tools.places.clone(), tools.idle, tools.long_polls.clone());
        let passthrough = Passthrough::new(forwarder, server);
        Rc::new(GoogleDialect::new(serves, Waits(tools.long_polls.clone()), passthrough))
    }

    /// What gives its credentials, if it gives some.
    pub(super) fn broker(&self) -> Option<&Broker> {
        self.federation().map(|federation| &federation.broker)
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
