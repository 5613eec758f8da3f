//! The AWS part of the agent: its configuration, the entitlements of pods, and the AWS dialects on each traffic thread.
//!
//! A pod has one identity at both endpoints: the metadata service (`imds_handler`) and the containers' endpoint
//! (`container_handler`). A client can switch between the endpoints, so both endpoints give the pod the same credentials from one
//! lease. `policy` decides the role, and `role_access_builder` decides how the agent assumes the role.

mod awaited_credentials;
mod config;
mod container_handler;
mod debug;
pub(crate) mod entitlement;
#[cfg(test)]
mod full_node_call_tests;
mod imds_handler;
mod passthrough;
mod policy;
mod prefetch;
mod presented_pod_token;
mod refusals;
mod response;
mod role_access_builder;
mod routes;
mod sdk_refresh_times;
mod session_token_keys;
#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::sync::Arc;

use anyhow::Context;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use seawall_broker::aws::{AwsBroker, AwsExchange, AwsExchangeConfig, AwsPodClientInput, BROKER_SETTINGS};
use seawall_config::values::read_named_file;
use seawall_core::Clock;
use seawall_core::annotations::AnnotationKeys;
use seawall_core::cloud::DialectName;
use seawall_protocols::aws::{ContainerCredentialsEndpoint, TokenSubject};
use seawall_server::handler::MetadataDialect;
use tokio::runtime::Handle;

use super::cloud_inputs::{DialectResources, EntitlementRequest};
use super::entitlements::EntitlementState;
use super::kubernetes_events;
use super::prefetch::Prefetcher;
use crate::pod::PodEntry;
use crate::self_test_request::ReadinessRequest;
use container_handler::ContainerCredentialsDialect;
use entitlement::{AwsEntitlement, PodRole, RoleState};
use imds_handler::{ImdsDialect, ImdsService};
use passthrough::{CallRate, ImdsPassthrough, NodeRateLimit};
use policy::{AllowedRole, RoleDenial, RolePolicy};
use prefetch::AwsPrefetchJob;
use role_access_builder::RoleAccessBuilder;
use session_token_keys::TokenKeyStore;

pub(crate) use config::{AwsConfig, RELOADABLE_KEYS};
pub(super) use policy::annotations::IDENTITY_FILE_ANNOTATION_KEYS;
#[cfg(any(test, feature = "testing"))]
pub(crate) use policy::annotations::ROLE_ARN_ANNOTATION;
pub(super) use routes::ALL as ROUTES;
pub(super) use sdk_refresh_times::ALL as CLIENTS;

/// The running AWS part of the agent.
#[derive(Debug)]
pub(crate) struct RunningAws {
    rules: RolePolicy,
    accesses: RoleAccessBuilder,
    /// The configuration of the broker's exchange. If this configuration changes, the agent replaces all leases by new leases.
    broker_config: AwsExchangeConfig,
    broker: AwsBroker,
    prefetcher: Prefetcher<AwsPrefetchJob>,
    service: Arc<ImdsService>,
    containers: ContainerCredentialsEndpoint,
    container_audience: Arc<str>,
    upstream: String,
    /// The rate of one pod, or `None` if the configuration forwards no path to the real service.
    passthrough_rate: Option<CallRate>,
    /// The warning about session tokens that a restart of the agent invalidates, if any.
    remark: Option<String>,
    node_limit: Arc<NodeRateLimit>,
    node_rate: CallRate,
    clock: Clock,
}

impl AwsConfig {
    /// Returns the keys of the annotations that this configuration needs.
    pub(super) fn annotation_keys(&self) -> AnnotationKeys {
        let by_pod = self.role_policy.pod_role_rules;
        policy::annotations::required_annotation_keys(
            by_pod.is_some_and(|rules| rules.uses_kiam_annotation),
            by_pod.is_some_and(|rules| rules.kube2iam.is_some()),
            self.role_policy.service_account_audience.as_ref().map(|_| &*self.irsa_annotation_prefix),
        )
    }

    /// True if the section names a file that the agent writes while it serves requests.
    pub(super) fn writes_files(&self) -> bool {
        self.imds.token_key_file.is_some()
    }

    /// Starts the AWS part without a network call. Its background tasks run on `runtime`.
    ///
    /// The function reuses each component of `before` whose configuration is unchanged, with the component's leases and counters.
    ///
    /// # Errors
    /// The agent cannot read or use a file that the section names.
    pub(super) fn start(
        &self,
        clock: &Clock,
        runtime: &Handle,
        before: Option<&RunningAws>,
    ) -> anyhow::Result<RunningAws> {
        let more_roots =
            self.role_session.ca_file.as_deref().map(read_named_file).transpose().context("aws.caFile")?;
        let asks = AwsExchangeConfig {
            extra_roots: more_roots,
            ..role_access_builder::exchange_config(&self.role_session, &self.imds.upstream_url)
        };
        let exchange = || Ok::<_, anyhow::Error>(Arc::new(AwsExchange::new(asks.clone(), clock.clone())?));
        let broker = match before {
            Some(before) if before.broker_config == asks => before.broker.clone(),
            Some(before) => before.broker.with_exchange(exchange()?),
            None => AwsBroker::start(BROKER_SETTINGS, clock.clone(), exchange()?, runtime.clone()),
        };
        let remark = self.imds.session_token_warning();
        if before.is_none_or(|before| before.remark != remark) {
            remark.iter().for_each(|remark| tracing::warn!("{remark}"));
        }
        let limits = self.imds.passthrough_limits;
        Ok(RunningAws {
            rules: self.role_policy.clone(),
            accesses: RoleAccessBuilder::new(&self.role_session)?,
            broker_config: asks,
            broker,
            prefetcher: before.map_or_else(|| Prefetcher::start(runtime), |before| before.prefetcher.clone()),
            service: Arc::new(self.service(clock, runtime, before)?),
            containers: ContainerCredentialsEndpoint::new(
                self.container_credentials.allowed_hosts.iter().copied(),
            ),
            container_audience: self.container_credentials.audience.as_str().into(),
            upstream: self.imds.upstream_url.clone(),
            passthrough_rate: (!self.imds.passthrough_paths.is_empty()).then_some(limits.pod),
            remark,
            node_limit: match before {
                Some(before) if before.node_rate == limits.node => before.node_limit.clone(),
                _ => Arc::new(NodeRateLimit::new(limits.node)),
            },
            node_rate: limits.node,
            clock: clock.clone(),
        })
    }

    /// Builds the state of the metadata service that all threads share.
    ///
    /// The function reuses the keys and the counter of `before`, so issued session tokens stay valid. A change of the key file's
    /// path needs a restart of the agent.
    fn service(
        &self,
        clock: &Clock,
        runtime: &Handle,
        before: Option<&RunningAws>,
    ) -> anyhow::Result<ImdsService> {
        if let Some(before) = before {
            return before.service.with_config(self);
        }
        let keys = Arc::new(TokenKeyStore::open(self.imds.token_key_file.as_deref(), clock)?);
        runtime.spawn(keys.clone().run());
        ImdsService::new(self, keys, clock.clone())
    }
}

/// Returns the request by which the readiness check tests this dialect.
pub(super) fn readiness_request(name: DialectName) -> ReadinessRequest {
    if name == DialectName::AwsContainers {
        container_handler::READINESS_REQUEST
    } else {
        imds_handler::READINESS_REQUEST
    }
}

impl RunningAws {
    /// Decides the entitlement of a pod whose entitlement was `before`. Returns `None` until the agent has read the annotations
    /// that decide the entitlement.
    ///
    /// The pod keeps its leases if its access (the role and how to assume it) is unchanged and the leases come from the current
    /// broker.
    pub(super) fn decide_entitlement(
        &self,
        applicant: &EntitlementRequest<'_>,
        before: EntitlementState<&AwsEntitlement>,
    ) -> Option<AwsEntitlement> {
        let state = match self.rules.decide_role(applicant.pod, applicant.annotations) {
            Ok(allowed) => RoleState::Role(self.own(applicant, &allowed, before)),
            Err(RoleDenial::Pending) => return None,
            Err(RoleDenial::NoRole(refusal)) => RoleState::Refused(refusal),
            Err(RoleDenial::Refused(complaint, refusal)) => {
                kubernetes_events::report_refusal(&applicant.event_recorder, complaint, &refusal);
                RoleState::Refused(refusal)
            }
        };
        let passthrough = self.passthrough_rate.map(|rate| share(rate, before));
        Some(AwsEntitlement {
            session_token_subject: TokenSubject::from_pod_uid(&applicant.pod.uid),
            state,
            imds_passthrough_rate_limit: passthrough,
        })
    }

    /// Builds one AWS dialect for one traffic thread.
    pub(super) fn build_dialect(
        &self,
        name: DialectName,
        tools: &DialectResources,
    ) -> Rc<dyn MetadataDialect<PodEntry>> {
        if name == DialectName::AwsContainers {
            let (endpoint, audience) = (self.containers.clone(), self.container_audience.clone());
            return Rc::new(ContainerCredentialsDialect::new(endpoint, audience, self.clock.clone()));
        }
        let forwarder = tools.forwarder(&self.upstream);
        let passthrough = ImdsPassthrough::new(forwarder, self.node_limit.clone(), self.clock.clone());
        Rc::new(ImdsDialect::new(self.service.clone(), passthrough))
    }

    /// Returns the broker of AWS credentials.
    pub(super) fn broker(&self) -> &AwsBroker {
        &self.broker
    }

    /// Returns the warning for the operator about session tokens that a restart of the agent invalidates.
    pub(super) fn session_token_warning(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    /// Registers the metrics that only AWS has.
    pub(super) fn register_metrics(&self, registry: &mut Registry) {
        let help = "Metadata requests without a session token (IMDSv1). To refuse them, set aws.imds.httpTokens to required";
        let without: Counter = self.service.tokenless_requests.clone();
        registry.register("seawall_aws_imdsv1_requests", help, without);
    }
}

/// Returns the rate limit for the pod's passthrough requests: the limit in `before`, or a new limit.
///
/// If each new entitlement had a new limit, a user who can change the pod's annotations would get a full burst of requests with
/// each change.
fn share(rate: CallRate, before: EntitlementState<&AwsEntitlement>) -> passthrough::PodRateLimit {
    match before {
        EntitlementState::Decided(AwsEntitlement { imds_passthrough_rate_limit: Some(limit), .. }) => {
            limit.with_rate(rate)
        }
        _ => passthrough::PodRateLimit::new(rate),
    }
}

impl RunningAws {
    /// Returns the pod's role: the role in `before` with its leases if the access and the broker are unchanged, otherwise a new
    /// role.
    fn own(
        &self,
        applicant: &EntitlementRequest<'_>,
        allowed: &AllowedRole,
        before: EntitlementState<&AwsEntitlement>,
    ) -> PodRole {
        let access = self.accesses.build(applicant.pod, allowed);
        if let EntitlementState::Decided(AwsEntitlement { state: RoleState::Role(own), .. }) = before
            && *own.role_access == access
            && own.lease_client.uses_broker(&self.broker)
        {
            return own.clone();
        }
        let access = Arc::new(access);
        let spec = AwsPodClientInput {
            pod: applicant.pod.clone(),
            entitlement: Some(access.clone()),
            subject_tokens: (applicant.create_subject_token_source)(),
        };
        let (holder, complainer) = (self.broker.new_pod_client(spec), applicant.event_recorder.clone());
        let role = match allowed {
            AllowedRole::Granted(grant) => Some(grant.role.name().clone()),
            AllowedRole::Associated(_) => None,
        };
        // The agent prefetches only once per pod, because otherwise each change of the pod's annotations would cause calls. If
        // only EKS knows whether the pod has a role, the agent does not prefetch, because most such pods have no role.
        if applicant.should_prefetch && role.is_some() && matches!(before, EntitlementState::Pending) {
            self.prefetcher.enqueue(AwsPrefetchJob::new(&holder, &complainer));
        }
        PodRole {
            known_role_name: role,
            role_access: access,
            lease_client: holder,
            event_recorder: complainer,
        }
    }
}
