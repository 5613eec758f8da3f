//! Tells a pod's owner why it gets no credentials: as an event on the pod, where there is a cluster.
//!
//! How often is bounded behind it (`cluster`'s reporter: one event for each pod and reason in ten minutes, a rate for the
//! node). What is written is for the owner: whose move it is, never an upstream's words.

use std::fmt::Debug;
use std::sync::Arc;

use seawall_broker::{Fault, Unavailable};
use seawall_cluster::{Complaint, PodRecord, Reporter};
use seawall_http::Refusal;

/// One pod's voice; none in `static` identity.
#[derive(Clone, Debug, Default)]
pub(crate) struct Complainer(Option<Arc<dyn Voice>>);

/// Where a pod's owner hears it.
pub(crate) trait Voice: Debug + Send + Sync {
    /// Returns at once: whether there was room for it.
    fn says(&self, complaint: Complaint, message: &str) -> bool;
}

/// An event on the pod.
#[derive(Debug)]
struct Events {
    reporter: Reporter,
    record: Arc<PodRecord>,
}

impl Voice for Events {
    fn says(&self, complaint: Complaint, message: &str) -> bool {
        self.reporter.report(&self.record, complaint, message)
    }
}

impl Complainer {
    /// Of this pod.
    pub(crate) fn new(reporter: Reporter, record: Arc<PodRecord>) -> Self {
        Self::with(Arc::new(Events { reporter, record }))
    }

    /// With this voice.
    pub(crate) fn with(voice: Arc<dyn Voice>) -> Self {
        Self(Some(voice))
    }

    /// The pod is refused by a rule of ours.
    pub(crate) fn refused(&self, complaint: Complaint, refusal: &Refusal) {
        self.says(complaint, refusal.message);
    }

    /// Something about the pod that no answer can say; whether that is all that can be done about it, or there was no room for it just
    /// now.
    pub(crate) fn says(&self, complaint: Complaint, message: &str) -> bool {
        self.0.as_ref().is_none_or(|voice| voice.says(complaint, message))
    }

    /// A credential could not be had. What passes by itself is no event: a pod is not told of every hiccup. Nor is what the node was
    /// refused for itself: every pod's owner would be told what none can mend, and the log has it.
    pub(crate) fn unavailable(&self, unavailable: &Unavailable, refusal: &Refusal) {
        if matches!(unavailable, Unavailable::Failed(error) if error.is_hopeless_of_the_node()) {
            return;
        }
        match unavailable.fault() {
            Some(Fault::Denied | Fault::Rejected | Fault::Unassigned) => {
                self.refused(Complaint::RefusedByCloud, refusal);
            }
            Some(Fault::SubjectRefused) => self.refused(Complaint::NoToken, refusal),
            Some(Fault::Subject | Fault::Throttled | Fault::Upstream | Fault::ShortLived) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use seawall_broker::ExchangeError;

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
            complainer.unavailable(&Unavailable::Failed(error), &refusal);
            assert_eq!(
                std::mem::take(&mut *heard.0.lock().unwrap()).len(),
                events,
                "{fault:?} {is_of_the_node}"
            );
        }
    }
}
