//! Which failures a pod's owner is told of: as an event on the pod, where there is a cluster.
//!
//! How often is bounded behind it (`cluster`'s reporter: one event for each pod and reason in ten minutes, a rate for the
//! node). What is written is for the owner: whose move it is, never an upstream's words.

use seawall_broker::{Fault, Unavailable};
use seawall_core::events::{Complainer, Complaint};
use seawall_http::Refusal;

/// The pod is refused by a rule of ours.
pub(crate) fn refused(complainer: &Complainer, complaint: Complaint, refusal: &Refusal) {
    complainer.says(complaint, refusal.message);
}

/// A credential could not be had. What passes by itself is no event: a pod is not told of every hiccup. Nor is what the node was
/// refused for itself: every pod's owner would be told what none can mend, and the log has it.
pub(crate) fn unavailable(complainer: &Complainer, unavailable: &Unavailable, refusal: &Refusal) {
    if matches!(unavailable, Unavailable::Failed(error) if error.is_hopeless_of_the_node()) {
        return;
    }
    match unavailable.fault() {
        Some(Fault::Denied | Fault::Rejected | Fault::Unassigned) => {
            refused(complainer, Complaint::RefusedByCloud, refusal);
        }
        Some(Fault::SubjectRefused) => refused(complainer, Complaint::NoToken, refusal),
        Some(Fault::Subject | Fault::Throttled | Fault::Upstream | Fault::ShortLived) | None => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use seawall_broker::ExchangeError;
    use seawall_core::events::Voice;

    use super::*;

    #[derive(Debug, Default)]
    struct Heard(Mutex<Vec<Complaint>>);

    impl Voice for Heard {
        fn says(&self, complaint: Complaint, _: &str) -> bool {
            self.0.lock().unwrap().push(complaint);
            true
        }
    }

    /// Each of 110 owners was told that their role's trust policy is wrong.
    #[test]
    fn what_the_node_is_refused_for_itself_is_no_pods_event() {
        let heard = Arc::new(Heard::default());
        let complainer = Complainer::with(heard.clone());
        let refusal = Refusal::new(403, "denied", "no");
        for (fault, is_of_the_node, events) in [
            (Fault::Denied, true, 0),
            (Fault::Rejected, true, 0),
            (Fault::Upstream, false, 0),
            (Fault::Denied, false, 1),
        ] {
            let error = ExchangeError { is_of_the_node, ..ExchangeError::new(fault, "AssumeRole", "no") };
            unavailable(&complainer, &Unavailable::Failed(error), &refusal);
            assert_eq!(
                std::mem::take(&mut *heard.0.lock().unwrap()).len(),
                events,
                "{fault:?} {is_of_the_node}"
            );
        }
    }
}
