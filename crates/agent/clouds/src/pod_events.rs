//! Which failures a pod's owner is told of: as an event on the pod, where there is a cluster.
//!
//! How often is bounded behind it (`cluster`'s reporter: one event for each pod and reason in ten minutes, a rate for the
//! node). What is written is for the owner: whose move it is, never an upstream's words.

use seawall_broker::{ExchangeFault, LeaseError};
use seawall_core::events::{EventReason, PodEventRecorder};
use seawall_http::Refusal;

/// The pod is refused by a rule of ours.
pub(crate) fn report_refusal(complainer: &PodEventRecorder, complaint: EventReason, refusal: &Refusal) {
    complainer.record(complaint, refusal.message);
}

/// A credential could not be had. What passes by itself is no event: a pod is not told of every hiccup. Nor is what the node was
/// refused for itself: every pod's owner would be told what none can mend, and the log has it.
pub(crate) fn report_lease_error(complainer: &PodEventRecorder, unavailable: &LeaseError, refusal: &Refusal) {
    if matches!(unavailable, LeaseError::Failed(error) if error.is_permanent_node_error()) {
        return;
    }
    match unavailable.fault() {
        Some(ExchangeFault::Denied | ExchangeFault::Rejected | ExchangeFault::Unassigned) => {
            report_refusal(complainer, EventReason::RefusedByCloud, refusal);
        }
        Some(ExchangeFault::SubjectRefused) => report_refusal(complainer, EventReason::NoToken, refusal),
        Some(
            ExchangeFault::Subject
            | ExchangeFault::Throttled
            | ExchangeFault::Upstream
            | ExchangeFault::ShortLived,
        )
        | None => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use seawall_broker::ExchangeError;
    use seawall_core::events::EventBackend;

    use super::*;

    #[derive(Debug, Default)]
    struct Heard(Mutex<Vec<EventReason>>);

    impl EventBackend for Heard {
        fn record(&self, complaint: EventReason, _: &str) -> bool {
            self.0.lock().unwrap().push(complaint);
            true
        }
    }

    /// Each of 110 owners was told that their role's trust policy is wrong.
    #[test]
    fn what_the_node_is_refused_for_itself_is_no_pods_event() {
        let heard = Arc::new(Heard::default());
        let complainer = PodEventRecorder::with(heard.clone());
        let refusal = Refusal::new(403, "denied", "no");
        for (fault, is_of_the_node, events) in [
            (ExchangeFault::Denied, true, 0),
            (ExchangeFault::Rejected, true, 0),
            (ExchangeFault::Upstream, false, 0),
            (ExchangeFault::Denied, false, 1),
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
