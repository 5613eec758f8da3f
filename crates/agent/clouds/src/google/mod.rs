//! The Google part of the agent: its configuration section, the entitlements of pods, and Google's dialect on each traffic
//! thread.

mod account_policy;
mod config;
mod debug;
pub(crate) mod entitlement;
mod handler;
mod long_polls;
mod metadata_trees;
pub(crate) mod passthrough;
mod prefetch;
mod refusals;
mod request_kind_labels;
mod response;
mod sdk_refresh_times;

use std::rc::Rc;
use std::sync::Arc;

use anyhow::Context;
use seawall_broker::google::{
    BROKER_SETTINGS, GoogleBroker, GoogleExchange, GoogleExchangeConfig, GooglePodCredentialsSpec,
};
use seawall_config::values::read_named_file;
use seawall_core::Clock;
use seawall_core::annotations::AnnotationKeys;
use seawall_core::kubernetes_events::EventReason;
use seawall_http::Refusal;
use seawall_protocols::google::MetadataServerKind;
use seawall_server::handler::MetadataDialect;
use seawall_server::upstream::Forwarder;
use tokio::runtime::Handle;

use super::cloud_inputs::{DialectResources, EntitlementRequest};
use super::entitlements::EntitlementState;
use super::kubernetes_events;
use super::prefetch::Prefetcher;
use crate::pod::PodEntry;
use crate::self_test_request::ReadinessRequest;
use account_policy::AccountError;
use config::{FederateConfig, GoogleMode};
use entitlement::{FederatedPod, GoogleEntitlement};
use handler::{GoogleDialect, GoogleDialectMode};
use long_polls::LongPollAnswerer;
use metadata_trees::MetadataTreeCache;
use passthrough::GooglePassthrough;
use prefetch::GooglePrefetchJob;

pub(super) use account_policy::IDENTITY_FILE_ANNOTATION_KEYS;
pub(crate) use config::{GoogleConfig, RELOADABLE_KEYS};
pub(super) use request_kind_labels::ALL as ROUTES;
pub(super) use sdk_refresh_times::ALL as CLIENTS;

/// The readiness request. Like a library, it requests the project ID, which is not secret.
pub(super) const READINESS_REQUEST: ReadinessRequest = ReadinessRequest {
    method: "GET",
    target: "/computeMetadata/v1/project/project-id",
    headers: "Metadata-Flavor: Google\r\n",
    expected_header: "metadata-flavor: google",
};

const MALFORMED: Refusal = Refusal::new(
    403,
    "malformed_account",
    "The annotation iam.gke.io/gcp-service-account of this pod's ServiceAccount is not a Google service account's e-mail.",
);

const NO_SERVICE_ACCOUNT: Refusal =
    Refusal::new(403, "no_service_account", "This pod's Kubernetes ServiceAccount does not exist.");

/// The running Google part of the agent.
#[derive(Debug)]
pub(crate) struct RunningGoogle {
    upstream: String,
    gives: GoogleModeState,
}

#[derive(Debug)]
enum GoogleModeState {
    /// Every pod uses the real metadata server through a filter.
    Conceal,
    /// Each pod gets its own credentials.
    Federate(Box<Federation>),
}

#[derive(Debug)]
struct Federation {
    /// The exchange configuration of the broker.
    ///
    /// If this configuration changes, the agent replaces all leases by new leases, because the workload identity provider decides
    /// a pod's identity and permissions.
    asks: GoogleExchangeConfig,
    broker: GoogleBroker,
    trees: MetadataTreeCache,
    ahead: Prefetcher<GooglePrefetchJob>,
}

impl GoogleConfig {
    /// Returns the annotation keys that this section needs.
    pub(super) fn annotation_keys(&self) -> AnnotationKeys {
        account_policy::required_annotation_keys()
    }

    /// True if pods get their own credentials, so the agent must identify each pod.
    pub(super) fn needs_pod_identity(&self) -> bool {
        matches!(self.mode, GoogleMode::Federate(_))
    }

    /// Starts the Google part without a network call. Its background tasks run on `runtime`.
    ///
    /// The function reuses each component of `before` whose configuration is unchanged, with the component's leases and counters.
    ///
    /// # Errors
    /// The agent cannot read or use a file that the section names.
    pub(super) fn start(
        &self,
        clock: &Clock,
        runtime: &Handle,
        before: Option<&RunningGoogle>,
    ) -> anyhow::Result<RunningGoogle> {
        let gives = match &self.mode {
            GoogleMode::Conceal => GoogleModeState::Conceal,
            GoogleMode::Federate(federate) => {
                let before = before.and_then(RunningGoogle::federation);
                GoogleModeState::Federate(Box::new(Federation::start(federate, clock, runtime, before)?))
            }
        };
        Ok(RunningGoogle { upstream: self.upstream_url.clone(), gives })
    }
}

/// Returns the filter in front of the real server for pods in `realServer`. Refusals have the format of a virtual machine's
/// metadata server.
pub(super) fn real_server_filter(forwarder: Forwarder) -> GooglePassthrough {
    GooglePassthrough::new(forwarder, MetadataServerKind::Vm)
}

impl RunningGoogle {
    fn federation(&self) -> Option<&Federation> {
        match &self.gives {
            GoogleModeState::Federate(federation) => Some(federation),
            GoogleModeState::Conceal => None,
        }
    }

    /// Decides the entitlement of a pod whose entitlement was `before`. Returns `None` until the agent has read the annotations
    /// that decide the entitlement.
    ///
    /// The pod keeps its leases if its Google account and the exchange configuration are unchanged.
    pub(super) fn decide_entitlement(
        &self,
        applicant: &EntitlementRequest<'_>,
        before: EntitlementState<&GoogleEntitlement>,
    ) -> Option<GoogleEntitlement> {
        match &self.gives {
            GoogleModeState::Conceal => Some(GoogleEntitlement::Passthrough),
            GoogleModeState::Federate(federation) => federation.entitle(applicant, before),
        }
    }

    /// Builds the dialect of one traffic thread.
    pub(super) fn build_dialect(&self, tools: &DialectResources) -> Rc<dyn MetadataDialect<PodEntry>> {
        let (serves, server) = match &self.gives {
            GoogleModeState::Federate(federation) => (
                GoogleDialectMode::Federate { probe: federation.trees.tree_without_account() },
                MetadataServerKind::Gke,
            ),
            GoogleModeState::Conceal => (GoogleDialectMode::Conceal, MetadataServerKind::Vm),
        };
        let forwarder = tools.forwarder(&self.upstream);
        let passthrough = GooglePassthrough::new(forwarder, server);
        Rc::new(GoogleDialect::new(serves, LongPollAnswerer(tools.long_poll_limit.clone()), passthrough))
    }

    /// Returns the broker that fetches the credentials of pods, or `None` in `conceal` mode.
    pub(super) fn broker(&self) -> Option<&GoogleBroker> {
        self.federation().map(|federation| &federation.broker)
    }
}

impl Federation {
    fn start(
        federate: &FederateConfig,
        clock: &Clock,
        runtime: &Handle,
        before: Option<&Self>,
    ) -> anyhow::Result<Self> {
        let mut asks = federate.exchange.clone();
        asks.extra_roots =
            federate.ca_file.as_deref().map(read_named_file).transpose().context("google.caFile")?;
        let exchange = || Ok::<_, anyhow::Error>(Arc::new(GoogleExchange::new(asks.clone(), clock.clone())?));
        let broker = match before {
            Some(before) if before.asks == asks => before.broker.clone(),
            Some(before) => before.broker.with_exchange(exchange()?),
            None => GoogleBroker::start(BROKER_SETTINGS, clock.clone(), exchange()?, runtime.clone()),
        };
        let trees = MetadataTreeCache::new(&federate.node_metadata, &federate.workload_pool);
        let ahead = before.map_or_else(|| Prefetcher::start(runtime), |before| before.ahead.clone());
        Ok(Self { asks, broker, trees, ahead })
    }

    /// Decides a pod's entitlement. Returns `None` until the Google account of the pod's ServiceAccount is known.
    fn entitle(
        &self,
        applicant: &EntitlementRequest<'_>,
        before: EntitlementState<&GoogleEntitlement>,
    ) -> Option<GoogleEntitlement> {
        let refused = |complaint, refusal: Refusal| {
            kubernetes_events::report_refusal(&applicant.event_recorder, complaint, &refusal);
            Some(GoogleEntitlement::Refused(self.trees.tree_without_account(), refusal))
        };
        match account_policy::resolve_account(applicant.annotations) {
            Ok(account) => match before {
                EntitlementState::Decided(GoogleEntitlement::Federated(own))
                    if own.account == account && own.lease_client.uses_broker(&self.broker) =>
                {
                    // Look the tree up again, because a new configuration can change the facts about the node.
                    let tree = self.trees.tree_for_account(account.as_ref());
                    Some(GoogleEntitlement::Federated(FederatedPod { metadata_tree: tree, ..own.clone() }))
                }
                _ => Some(self.federated(applicant, account, before)),
            },
            Err(AccountError::ServiceAccountNotRead) => None,
            Err(AccountError::ServiceAccountMissing) => refused(EventReason::TokenFailed, NO_SERVICE_ACCOUNT),
            Err(AccountError::MalformedAnnotation) => refused(EventReason::InvalidAnnotation, MALFORMED),
        }
    }

    fn federated(
        &self,
        applicant: &EntitlementRequest<'_>,
        account: Option<Arc<str>>,
        before: EntitlementState<&GoogleEntitlement>,
    ) -> GoogleEntitlement {
        let spec = GooglePodCredentialsSpec {
            pod: applicant.pod.clone(),
            entitlement: account.clone(),
            subject_tokens: (applicant.create_subject_token_source)(),
        };
        let (tree, holder) =
            (self.trees.tree_for_account(account.as_ref()), self.broker.new_pod_client(spec));
        let complainer = applicant.event_recorder.clone();
        // The agent prefetches only once per pod, because otherwise each change of the ServiceAccount's annotation would cause a
        // call to Google.
        if applicant.should_prefetch && matches!(before, EntitlementState::Pending) {
            self.ahead.enqueue(GooglePrefetchJob::new(&tree, &holder, &complainer));
        }
        GoogleEntitlement::Federated(FederatedPod {
            metadata_tree: tree,
            lease_client: holder,
            account,
            event_recorder: complainer,
        })
    }
}
