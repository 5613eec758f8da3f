//! A pod's entitlements to each cloud. The clouds' folders decide them, the pod's entry keeps them, the dialects read them.
//!
//! The set is closed, with a field for each cloud. Each cloud defines its own type ([`google`], [`aws`]).

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use seawall_broker::ExchangeFault;
use seawall_core::Moment;
use seawall_core::cloud::CloudName;
use seawall_core::events::PodEventRecorder;
use serde_json::{Map, Value, json};

use super::aws::entitlement as aws;
use super::google::entitlement as google;

/// A task that fetches a pod's credentials again, after a change of configuration.
pub type RefetchTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The leases that a pod holds of one cloud, and the recorder of its events.
#[derive(Debug)]
pub struct PodLeases {
    /// The pod's leases.
    pub leases: Vec<LeaseState>,
    /// Records events on the pod, for its owner.
    pub event_recorder: PodEventRecorder,
}

/// A lease that a pod holds.
#[derive(Clone, Copy, Debug)]
pub struct LeaseState {
    /// The time at which the lease was issued.
    pub issued: Moment,
    /// The time at which its renewal was due to begin.
    pub renewal_due: Moment,
    /// The time at which the lease expires.
    pub ends: Moment,
    /// The least remaining lifetime that its answers carry while the cloud answers.
    pub floor: Duration,
    /// The failure of its renewal, if the last renewal failed.
    pub renewal_failure: Option<RenewalFailure>,
}

/// Renewal calls that have failed since the last success.
#[derive(Clone, Copy, Debug)]
pub struct RenewalFailure {
    /// The time of the first failed call since the last success.
    pub since: Moment,
    /// The step at which the last call failed.
    pub step: &'static str,
    /// The fault of the last call, which says who must act.
    pub fault: ExchangeFault,
}

/// The state of a pod's entitlement to one cloud.
#[derive(Clone, Copy, Debug, Default)]
pub enum EntitlementState<E> {
    /// The cloud is off.
    Off,
    /// The facts that decide the entitlement are not known yet.
    #[default]
    Pending,
    /// The decided entitlement.
    Decided(E),
}

/// A pod's entitlements to each cloud. The default is pending for every cloud.
#[derive(Clone, Debug, Default)]
pub struct Entitlements {
    /// The entitlement to Google.
    pub google: EntitlementState<Arc<google::GoogleEntitlement>>,
    /// The entitlement to AWS.
    pub aws: EntitlementState<Arc<aws::AwsEntitlement>>,
}

impl<E> EntitlementState<Arc<E>> {
    /// Returns the state with a reference to the entitlement.
    pub fn get(&self) -> EntitlementState<&E> {
        match self {
            Self::Off => EntitlementState::Off,
            Self::Pending => EntitlementState::Pending,
            Self::Decided(own) => EntitlementState::Decided(own),
        }
    }
}

impl<E> EntitlementState<E> {
    fn is_pending(&self) -> bool {
        matches!(self, Self::Pending)
    }

    /// Returns [`Self::Pending`] for a decided state if `is_taken_back`, otherwise the state unchanged.
    fn unless(self, is_taken_back: bool) -> Self {
        if is_taken_back && matches!(self, Self::Decided(_)) { Self::Pending } else { self }
    }

    /// The state as `/debug/pods` shows it; `None` if the cloud is off. `own` describes a decided entitlement.
    fn describe(&self, own: impl FnOnce(&E) -> Value) -> Option<Value> {
        match self {
            Self::Off => None,
            Self::Pending => Some(json!({ "status": "pending" })),
            Self::Decided(decided) => Some(own(decided)),
        }
    }

    fn and_then<T>(&self, own: impl FnOnce(&E) -> Option<T>) -> Option<T> {
        match self {
            Self::Decided(decided) => own(decided),
            Self::Off | Self::Pending => None,
        }
    }
}

impl Entitlements {
    /// The pod's entitlement to Google.
    pub fn google(&self) -> EntitlementState<&google::GoogleEntitlement> {
        self.google.get()
    }

    /// The pod's entitlement to AWS.
    pub fn aws(&self) -> EntitlementState<&aws::AwsEntitlement> {
        self.aws.get()
    }

    /// True if the pod's entitlement to this cloud is undecided. Requests to the cloud then wait a moment.
    pub fn is_pending(&self, cloud: CloudName) -> bool {
        match cloud {
            CloudName::Google => self.google.is_pending(),
            CloudName::Aws => self.aws.is_pending(),
        }
    }

    /// Returns a copy in which decided entitlements to these clouds are pending again.
    pub fn without(&self, clouds: &[CloudName]) -> Self {
        let Self { google, aws } = self.clone();
        Self {
            google: google.unless(clouds.contains(&CloudName::Google)),
            aws: aws.unless(clouds.contains(&CloudName::Aws)),
        }
    }

    /// Returns the tasks, at most one per cloud, that refetch all credentials held through `before` but not through these entitlements.
    pub fn refetch_tasks(&self, before: &Self) -> Vec<RefetchTask> {
        let Self { google, aws } = self;
        let of_google = google.and_then(|own| own.refetch_task(before.google()));
        let of_aws = aws.and_then(|own| own.refetch_task(before.aws()));
        [of_google, of_aws].into_iter().flatten().collect()
    }

    /// The pod's leases of one cloud with its event recorder; `None` if the cloud gives the pod no credentials.
    pub fn leases(&self, cloud: CloudName) -> Option<PodLeases> {
        match cloud {
            CloudName::Google => self.google.and_then(|own| own.leases()),
            CloudName::Aws => self.aws.and_then(|own| own.leases()),
        }
    }

    /// The entitlements as `/debug/pods` shows them, by cloud name. Clouds that are off are left out.
    pub fn describe(&self, now: Moment) -> Map<String, Value> {
        let Self { google, aws } = self;
        let each = [
            (CloudName::Google, google.describe(|own| own.describe(now))),
            (CloudName::Aws, aws.describe(|own| own.describe(now))),
        ];
        each.into_iter().filter_map(|(cloud, said)| Some((cloud.as_str().to_owned(), said?))).collect()
    }
}
