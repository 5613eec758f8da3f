//! Reports failures as Kubernetes events on a pod, for the pod's owner. Without a Kubernetes cluster the agent reports no events.
//!
//! The event poster in the crate `cluster` limits the events: at most one event per pod and reason in ten minutes, and a maximum
//! rate per node. The text of an event states who must act. The text never quotes an answer of a cloud.

use seawall_broker::{ExchangeFault, LeaseError};
use seawall_core::kubernetes_events::{EventReason, PodEventRecorder};
use seawall_http::Refusal;

/// Records an event with this reason. The event's text is the message of the refusal that the pod gets.
pub(crate) fn report_refusal(complainer: &PodEventRecorder, complaint: EventReason, refusal: &Refusal) {
    complainer.record(complaint, refusal.message);
}

/// Records an event about a failed fetch of a credential, if the pod's owner can solve the problem.
///
/// Temporary failures cause no event. A refusal of the node's own credentials causes no event on a pod, because the pod's owner
/// cannot solve that problem. The agent logs that refusal instead.
pub(crate) fn report_lease_error(complainer: &PodEventRecorder, unavailable: &LeaseError, refusal: &Refusal) {
    if matches!(unavailable, LeaseError::Failed(error) if error.is_permanent_node_error()) {
        return;
    }
    match unavailable.fault() {
        Some(
            ExchangeFault::AccessDenied | ExchangeFault::ExchangeRejected | ExchangeFault::NoAssociation,
        ) => {
            report_refusal(complainer, EventReason::RefusedByCloud, refusal);
        }
        Some(ExchangeFault::PodTokenDenied) => report_refusal(complainer, EventReason::TokenFailed, refusal),
        Some(
            ExchangeFault::PodTokenUnavailable
            | ExchangeFault::Throttled
            | ExchangeFault::Unavailable
            | ExchangeFault::ShortLived,
        )
        | None => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use seawall_broker::ExchangeError;
    use seawall_core::kubernetes_events::EventBackend;

    use super::*;

    #[derive(Debug, Default)]
    struct Heard(Mutex<Vec<EventReason>>);

    impl EventBackend for Heard {
        fn record(&self, complaint: EventReason, _: &str) -> bool {
            self.0.lock().unwrap().push(complaint);
            true
        }
    }

    /// Regression: when AWS refused the node's own credentials, the owners of 110 pods each got an event that their role's trust
    /// policy is wrong.
    #[test]
    fn what_the_node_is_refused_for_itself_is_no_pods_event() {
        let heard = Arc::new(Heard::default());
        let complainer = PodEventRecorder::with_backend(heard.clone());
        let refusal = Refusal::new(403, "access_denied", "no");
        for (fault, is_of_the_node, events) in [
            (ExchangeFault::AccessDenied, true, 0),
            (ExchangeFault::ExchangeRejected, true, 0),
            (ExchangeFault::Unavailable, false, 0),
            (ExchangeFault::AccessDenied, false, 1),
        ] {
            let error = ExchangeError {
                is_node_error: is_of_the_node,
                ..ExchangeError::new(fault, "AssumeRole", "no")
            };
            report_lease_error(&complainer, &LeaseError::Failed(error), &refusal);
            assert_eq!(
                std::mem::take(&mut *heard.0.lock().unwrap()).len(),
                events,
                "{fault:?} {is_of_the_node}"
            );
        }
    }
}
