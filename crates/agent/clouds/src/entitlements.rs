//! A pod's entitlements to each cloud. The code of each cloud decides its entitlements, the pod's entry stores them, and the
//! dialects read them.
//!
//! [`Entitlements`] has one field per cloud. Each cloud defines the type of its entitlement ([`google`], [`aws`]).

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use seawall_broker::{ExchangeFault, RefetchProgress};
use seawall_core::cloud::CloudName;
use seawall_core::kubernetes_events::PodEventRecorder;
use seawall_core::{Moment, ServiceAccount};
use serde_json::{Map, Value, json};

use super::aws::entitlement as aws;
use super::google::entitlement as google;

/// A task that fetches a pod's credentials from one cloud again after a configuration change.
pub struct RefetchTask {
    /// The cloud.
    pub cloud: CloudName,
    /// The ServiceAccount of the pod.
    pub service_account: ServiceAccount,
    /// True if the pod has credentials now. If not, the task fetches none.
    pub has_credentials: bool,
    /// How far the task is. A reader can read this before the task has ended.
    pub progress: Arc<Mutex<RefetchProgress>>,
    /// Ends when all fetches have ended.
    pub run: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// A pod's leases from one cloud, and the recorder of the pod's events.
#[derive(Debug)]
pub struct PodLeases {
    /// The pod's leases.
    pub leases: Vec<LeaseState>,
    /// Records events on the pod. The pod's owner can read these events.
    pub event_recorder: PodEventRecorder,
}

/// The state of one lease of a pod.
#[derive(Clone, Copy, Debug)]
pub struct LeaseState {
    /// The time when the lease was issued.
    pub issued_at: Moment,
    /// The time when the renewal of the lease should begin.
    pub renewal_due_at: Moment,
    /// The time when the lease expires.
    pub expires_at: Moment,
    /// The least remaining lifetime of credentials in a response while the cloud is available.
    pub lifetime_floor: Duration,
    /// The failure of the last renewal, or `None` if the renewal succeeded.
    pub renewal_failure: Option<RenewalFailure>,
}

/// A failing renewal of a lease. No call has succeeded since the time `failing_since`.
#[derive(Clone, Copy, Debug)]
pub struct RenewalFailure {
    /// The time of the first failed call since the last success.
    pub failing_since: Moment,
    /// The step at which the last call failed.
    pub step: &'static str,
    /// The cause of the last failure, which determines who must act.
    pub fault: ExchangeFault,
}

/// The state of a pod's entitlement to one cloud.
#[derive(Clone, Copy, Debug, Default)]
pub enum EntitlementState<E> {
    /// The cloud is disabled.
    CloudDisabled,
    /// The agent does not know all facts yet that decide the entitlement.
    #[default]
    Pending,
    /// The pod is in `realServer`: its requests go to the node's real metadata server, and the agent fetches no credentials for it.
    RealServer,
    /// The decided entitlement.
    Decided(E),
}

/// A pod's entitlements to each cloud. By default every entitlement is pending.
#[derive(Clone, Debug, Default)]
pub struct Entitlements {
    /// The entitlement to Google.
    pub google: EntitlementState<Arc<google::GoogleEntitlement>>,
    /// The entitlement to AWS.
    pub aws: EntitlementState<Arc<aws::AwsEntitlement>>,
}

impl<E> EntitlementState<Arc<E>> {
    /// Returns the same state with a reference to the entitlement.
    pub fn as_ref(&self) -> EntitlementState<&E> {
        match self {
            Self::CloudDisabled => EntitlementState::CloudDisabled,
            Self::Pending => EntitlementState::Pending,
            Self::RealServer => EntitlementState::RealServer,
            Self::Decided(own) => EntitlementState::Decided(own),
        }
    }
}

impl<E> EntitlementState<E> {
    fn is_pending(&self) -> bool {
        matches!(self, Self::Pending)
    }

    /// Returns [`Self::Pending`] for a decided state if `is_taken_back` is true. Otherwise returns the state unchanged.
    fn unless(self, is_taken_back: bool) -> Self {
        if is_taken_back && matches!(self, Self::Decided(_) | Self::RealServer) {
            Self::Pending
        } else {
            self
        }
    }

    /// Returns the state as `/debug/pods` shows it, or `None` if the cloud is disabled. `own` describes a decided entitlement.
    fn describe(&self, own: impl FnOnce(&E) -> Value) -> Option<Value> {
        match self {
            Self::CloudDisabled => None,
            Self::Pending => Some(json!({ "status": "pending" })),
            Self::RealServer => Some(json!({ "status": "real-server" })),
            Self::Decided(decided) => Some(own(decided)),
        }
    }

    fn and_then<T>(&self, own: impl FnOnce(&E) -> Option<T>) -> Option<T> {
        match self {
            Self::Decided(decided) => own(decided),
            Self::CloudDisabled | Self::Pending | Self::RealServer => None,
        }
    }
}

impl Entitlements {
    /// Returns the pod's entitlement to Google.
    pub fn google(&self) -> EntitlementState<&google::GoogleEntitlement> {
        self.google.as_ref()
    }

    /// Returns the pod's entitlement to AWS.
    pub fn aws(&self) -> EntitlementState<&aws::AwsEntitlement> {
        self.aws.as_ref()
    }

    /// True if the pod is in `realServer`, so its requests go to the node's real metadata server.
    pub fn use_real_server(&self) -> bool {
        let Self { google, aws } = self;
        matches!(google, EntitlementState::RealServer) || matches!(aws, EntitlementState::RealServer)
    }

    /// True if the pod's entitlement to this cloud is not decided yet. Until then, requests for the cloud's credentials wait.
    pub fn is_pending_for_cloud(&self, cloud: CloudName) -> bool {
        match cloud {
            CloudName::Google => self.google.is_pending(),
            CloudName::Aws => self.aws.is_pending(),
        }
    }

    /// Returns a copy in which the decided entitlements to these clouds are pending again.
    pub fn with_clouds_reset_to_pending(&self, clouds: &[CloudName]) -> Self {
        let Self { google, aws } = self.clone();
        Self {
            google: google.unless(clouds.contains(&CloudName::Google)),
            aws: aws.unless(clouds.contains(&CloudName::Aws)),
        }
    }

    /// Returns a refetch task for each cloud whose lease client (`PodLeaseClient`) for the pod differs from the lease client in
    /// `before`.
    ///
    /// In the task, the new client fetches all credentials that the client in `before` has.
    pub fn refetch_tasks(&self, before: &Self) -> Vec<RefetchTask> {
        let Self { google, aws } = self;
        let of_google = google.and_then(|own| own.refetch_task(before.google()));
        let of_aws = aws.and_then(|own| own.refetch_task(before.aws()));
        [of_google, of_aws].into_iter().flatten().collect()
    }

    /// Returns the pod's leases from one cloud with the event recorder, or `None` if the cloud gives the pod no credentials.
    pub fn leases_for_cloud(&self, cloud: CloudName) -> Option<PodLeases> {
        match cloud {
            CloudName::Google => self.google.and_then(|own| own.leases()),
            CloudName::Aws => self.aws.and_then(|own| own.leases()),
        }
    }

    /// Returns the entitlements by cloud name, as `/debug/pods` shows them. Disabled clouds are omitted.
    pub fn to_debug_json(&self, now: Moment) -> Map<String, Value> {
        let Self { google, aws } = self;
        let each = [
            (CloudName::Google, google.describe(|own| own.to_debug_json(now))),
            (CloudName::Aws, aws.describe(|own| own.to_debug_json(now))),
        ];
        each.into_iter().filter_map(|(cloud, said)| Some((cloud.as_str().to_owned(), said?))).collect()
    }
}
