//! The limits of each pod at each cloud. They belong to the pod and not to its client, because the pod gets a new client when its account
//! changes.
//!
//! Otherwise a tenant who changes a ServiceAccount's annotation back and forth would have a new rate limit, and a new turn at the cloud,
//! with each change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use seawall_core::pod::PodUid;
use seawall_core::{Gcra, Moment};

use crate::limiter::{Limiter, RequesterId};
use crate::settings::BrokerSettings;

/// The limits of one pod at one cloud.
#[derive(Debug)]
pub(crate) struct PodLimits {
    /// Identifies the pod to the limiter.
    pub(crate) requester_id: RequesterId,
    /// Limits the requests for credentials that are not in the cache.
    pub(crate) misses: Gcra,
}

/// The limits of all pods that have a client, and of pods without a client until the next sweep.
#[derive(Debug, Default)]
pub(crate) struct AllPodLimits(Mutex<Limits>);

#[derive(Debug, Default)]
struct Limits {
    by_pod: HashMap<PodUid, Arc<PodLimits>>,
    /// The number of pods at which the next call of [`AllPodLimits::of_pod`] sweeps out limits without use.
    sweep_at: usize,
}

/// The least number of pods at which the agent sweeps out limits without use.
const LEAST_SWEEP: usize = 64;

impl AllPodLimits {
    /// Returns the limits of a pod. `next_id` returns an id that no other pod has.
    pub(crate) fn of_pod(
        &self,
        uid: &PodUid,
        now: Moment,
        settings: &BrokerSettings,
        limiter: &Limiter,
        next_id: impl FnOnce() -> RequesterId,
    ) -> Arc<PodLimits> {
        // No code panics while it holds the lock.
        let mut limits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Limits { by_pod, sweep_at } = &mut *limits;
        if by_pod.len() >= (*sweep_at).max(LEAST_SWEEP) {
            // A pod that has used nothing of its allowance and that waits for nothing gets the same limits when it comes back.
            by_pod.retain(|_, one| {
                Arc::strong_count(one) > 1
                    || !one.misses.has_whole_burst(now)
                    || limiter.has_calls_of(one.requester_id)
            });
            *sweep_at = 2 * by_pod.len();
        }
        let new = || {
            let misses = Gcra::new(settings.misses_per_second_per_pod, settings.miss_burst_per_pod);
            Arc::new(PodLimits { requester_id: next_id(), misses })
        };
        by_pod.entry(uid.clone()).or_insert_with(new).clone()
    }

    #[cfg(test)]
    fn pods(&self) -> usize {
        self.0.lock().unwrap().by_pod.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uid(number: u64) -> PodUid {
        PodUid(number.to_string().into())
    }

    #[test]
    fn a_pod_keeps_its_limits_until_it_has_its_whole_allowance_again() {
        let settings = crate::google::BROKER_SETTINGS;
        let (all, limiter) = (AllPodLimits::default(), Limiter::new(&settings));
        let at = |seconds: u64| Moment::from_nanos(seconds * 1_000_000_000);
        let of = |number, now| all.of_pod(&uid(number), now, &settings, &limiter, || number);
        let used = of(0, at(1));
        while used.misses.take(at(1)).is_ok() {}
        drop(used);
        (1..1000).for_each(|number| _ = of(number, at(1)));
        assert!(all.pods() < 200, "{} pods are gone, and their limits remain", all.pods());
        assert!(of(0, at(1)).misses.take(at(1)).is_err(), "the pod had used its allowance");
        let kept = of(1000, at(9));
        (1001..2000).for_each(|number| _ = of(number, at(9)));
        assert!(of(0, at(9)).misses.take(at(9)).is_ok());
        assert!(Arc::ptr_eq(&kept, &of(1000, at(9))));
    }
}
