//! What a pod may have, of each cloud: decided in the clouds' rooms, kept in the roster, read by the dialects.
//!
//! Refuses to know what that is. Each cloud's room has a type of its own for it, and finds it again by that type.

use std::any::Any;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use seawall_broker::Fault;
use seawall_core::Moment;
use seawall_core::cloud::CloudName;
use seawall_core::events::Complainer;
use serde_json::{Map, Value, json};

/// Something to be fetched.
pub(crate) type CatchUp = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a pod may have of one cloud, as its room knows it.
pub(crate) trait Entitlement: Any + Debug + Send + Sync {
    /// What `/debug/pods` says of it: names and times, never a secret.
    fn describe(&self, now: Moment) -> Value;

    /// What fetches all that the pod held by `before`, where this holds none of it and is to take its place.
    fn catching_up(&self, _before: &Entitlements) -> Option<CatchUp> {
        None
    }

    /// What the pod holds, and who tells its owner, where somebody can be told.
    fn lending(&self) -> Option<Lending> {
        None
    }
}

/// What a pod holds of one cloud, and who tells its owner.
#[derive(Debug)]
pub(crate) struct Lending {
    pub(crate) leases: Vec<LeaseState>,
    pub(crate) complainer: Complainer,
}

/// A lease that a pod holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseState {
    pub(crate) issued: Moment,
    /// When its renewal was to begin.
    pub(crate) due: Moment,
    pub(crate) ends: Moment,
    /// The least life that its answers carry while the cloud answers.
    pub(crate) floor: Duration,
    /// Why it is not renewed, if it could not be.
    pub(crate) failing: Option<Failing>,
}

/// Calls that have failed, or had no turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failing {
    /// When the first of them did, or was due.
    pub(crate) since: Moment,
    /// Which call the last one was, and whose move it is.
    pub(crate) step: &'static str,
    pub(crate) fault: Fault,
}

/// What a pod may have of one cloud.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Decided<E> {
    /// The cloud is off.
    Off,
    /// It is not known yet what decides it.
    #[default]
    NotYet,
    /// This.
    Is(E),
}

type Own = Arc<dyn Entitlement>;

/// What a pod may have, of each cloud; before anything is known of it, nothing is decided.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entitlements([Decided<Own>; CloudName::ALL.len()]);

impl Entitlements {
    /// What each cloud decides.
    pub(crate) fn of_each(decide: impl FnMut(CloudName) -> Decided<Own>) -> Self {
        let mut decide = decide;
        Self(std::array::from_fn(|place| decide(CloudName::ALL[place])))
    }

    /// What it may have of a cloud whose room knows it as `E`.
    pub(crate) fn of<E: Entitlement>(&self, cloud: CloudName) -> Decided<&E> {
        match &self.0[cloud as usize] {
            Decided::Off => Decided::Off,
            Decided::NotYet => Decided::NotYet,
            // Of another type it is never: each cloud decides for itself.
            Decided::Is(own) => (&**own as &dyn Any).downcast_ref().map_or(Decided::Off, Decided::Is),
        }
    }

    /// Whether it is not decided yet what it may have of this cloud: who asks it then waits a moment.
    pub(crate) fn is_pending(&self, cloud: CloudName) -> bool {
        matches!(self.0[cloud as usize], Decided::NotYet)
    }

    /// The same, but that what it may have of these clouds is not known.
    pub(crate) fn without(&self, clouds: &[CloudName]) -> Self {
        Self::of_each(|cloud| match &self.0[cloud as usize] {
            Decided::Is(_) if clouds.contains(&cloud) => Decided::NotYet,
            decided => decided.clone(),
        })
    }

    /// What fetches all that the pod held by `before`, of each cloud, where this does not hold it.
    pub(crate) fn catching_up(&self, before: &Self) -> Vec<CatchUp> {
        let catch_up = |decided: &Decided<Own>| match decided {
            Decided::Is(own) => own.catching_up(before),
            Decided::Off | Decided::NotYet => None,
        };
        self.0.iter().filter_map(catch_up).collect()
    }

    /// What the pod holds of one cloud, and who tells its owner.
    pub(crate) fn lending(&self, cloud: CloudName) -> Option<Lending> {
        match &self.0[cloud as usize] {
            Decided::Is(own) => own.lending(),
            Decided::Off | Decided::NotYet => None,
        }
    }

    /// What `/debug/pods` says of them, each under its cloud's name; nothing of a cloud that is off.
    pub(crate) fn describe(&self, now: Moment) -> Map<String, Value> {
        let describe = |decided: &Decided<Own>| match decided {
            Decided::Off => None,
            Decided::NotYet => Some(json!({ "standing": "pending" })),
            Decided::Is(own) => Some(own.describe(now)),
        };
        let each = CloudName::ALL.iter().zip(&self.0);
        each.filter_map(|(cloud, decided)| Some((cloud.as_str().to_owned(), describe(decided)?))).collect()
    }
}
