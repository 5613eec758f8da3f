//! What a pod may have, of each cloud: decided in the clouds' folders, kept with the pod, read by the dialects.
//!
//! A closed set, with a field for each cloud. What stands there is each cloud's own ([`google`], [`aws`]).

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

/// Something to be fetched.
pub type RefetchTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a pod holds of one cloud, and who tells its owner.
#[derive(Debug)]
pub struct PodLeases {
    /// Its leases.
    pub leases: Vec<LeaseState>,
    /// It tells the pod's owner.
    pub event_recorder: PodEventRecorder,
}

/// A lease that a pod holds.
#[derive(Clone, Copy, Debug)]
pub struct LeaseState {
    /// When it was issued.
    pub issued: Moment,
    /// When its renewal was to begin.
    pub renewal_due: Moment,
    /// When it ends.
    pub ends: Moment,
    /// The least life that its answers carry while the cloud answers.
    pub floor: Duration,
    /// Why it is not renewed, if it could not be.
    pub renewal_failure: Option<RenewalFailure>,
}

/// Calls that have failed, or had no turn.
#[derive(Clone, Copy, Debug)]
pub struct RenewalFailure {
    /// When the first of them did, or was due.
    pub since: Moment,
    /// Which call the last one was.
    pub step: &'static str,
    /// Whose move it is.
    pub fault: ExchangeFault,
}

/// What a pod may have of one cloud.
#[derive(Clone, Copy, Debug, Default)]
pub enum EntitlementState<E> {
    /// The cloud is off.
    Off,
    /// It is not known yet what decides it.
    #[default]
    Pending,
    /// This.
    Decided(E),
}

/// What a pod may have, of each cloud; before anything is known of it, nothing is decided.
#[derive(Clone, Debug, Default)]
pub struct Entitlements {
    /// Of Google.
    pub google: EntitlementState<Arc<google::GoogleEntitlement>>,
    /// Of AWS.
    pub aws: EntitlementState<Arc<aws::AwsEntitlement>>,
}

impl<E> EntitlementState<Arc<E>> {
    /// The same, to be looked at.
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

    /// The same, or that it is not known yet what the pod may have, if this is to be taken back.
    fn unless(self, is_taken_back: bool) -> Self {
        if is_taken_back && matches!(self, Self::Decided(_)) { Self::Pending } else { self }
    }

    /// What is said of it, where the cloud is on.
    fn describe(&self, own: impl FnOnce(&E) -> Value) -> Option<Value> {
        match self {
            Self::Off => None,
            Self::Pending => Some(json!({ "standing": "pending" })),
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
    /// What it may have of Google.
    pub fn google(&self) -> EntitlementState<&google::GoogleEntitlement> {
        self.google.get()
    }

    /// What it may have of AWS.
    pub fn aws(&self) -> EntitlementState<&aws::AwsEntitlement> {
        self.aws.get()
    }

    /// Whether it is not decided yet what it may have of this cloud: who asks it then waits a moment.
    pub fn is_pending(&self, cloud: CloudName) -> bool {
        match cloud {
            CloudName::Google => self.google.is_pending(),
            CloudName::Aws => self.aws.is_pending(),
        }
    }

    /// The same, but that what it may have of these clouds is not known.
    pub fn without(&self, clouds: &[CloudName]) -> Self {
        let Self { google, aws } = self.clone();
        Self {
            google: google.unless(clouds.contains(&CloudName::Google)),
            aws: aws.unless(clouds.contains(&CloudName::Aws)),
        }
    }

    /// What fetches all that the pod held by `before`, of each cloud, where this does not hold it.
    pub fn refetch_tasks(&self, before: &Self) -> Vec<RefetchTask> {
        let Self { google, aws } = self;
        let of_google = google.and_then(|own| own.refetch_task(before.google()));
        let of_aws = aws.and_then(|own| own.refetch_task(before.aws()));
        [of_google, of_aws].into_iter().flatten().collect()
    }

    /// What the pod holds of one cloud, and who tells its owner.
    pub fn leases(&self, cloud: CloudName) -> Option<PodLeases> {
        match cloud {
            CloudName::Google => self.google.and_then(|own| own.leases()),
            CloudName::Aws => self.aws.and_then(|own| own.leases()),
        }
    }

    /// What `/debug/pods` says of them, each under its cloud's name; nothing of a cloud that is off.
    pub fn describe(&self, now: Moment) -> Map<String, Value> {
        let Self { google, aws } = self;
        let each = [
            (CloudName::Google, google.describe(|own| own.describe(now))),
            (CloudName::Aws, aws.describe(|own| own.describe(now))),
        ];
        each.into_iter().filter_map(|(cloud, said)| Some((cloud.as_str().to_owned(), said?))).collect()
    }
}
