//! Tells a pod's owner why it gets no credentials: as an event on the pod, where there is a cluster.
//!
//! How often is bounded behind it (`cluster`'s reporter: one event for each pod and reason in ten minutes, a rate for the
//! node). What is written is for the owner: whose move it is, never an upstream's words.

use std::fmt::Debug;
use std::sync::Arc;

use seawall_broker::{Fault, Unavailable};
use seawall_cloud::Refusal;
use seawall_cluster::{Complaint, PodRecord, Reporter};

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

    /// A credential could not be had. What passes by itself is no event: a pod is not told of every hiccup.
    pub(crate) fn unavailable(&self, unavailable: &Unavailable, refusal: &Refusal) {
        match unavailable.fault() {
            Some(Fault::Denied | Fault::Rejected | Fault::Unassigned) => {
                self.refused(Complaint::RefusedByCloud, refusal);
            }
            Some(Fault::SubjectRefused) => self.refused(Complaint::NoToken, refusal),
            Some(Fault::Subject | Fault::Throttled | Fault::Upstream | Fault::ShortLived) | None => {}
        }
    }
}
