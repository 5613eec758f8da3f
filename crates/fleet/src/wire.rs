//! What joins whoever orders to pods: lines to each, lines from each, and news of who is gone.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use seawall_load::clock::{Nanos, RunClock};

/// Pods that have begun, by their place from 0.
pub struct PodChannel {
    /// What each is called, for people: its name, and its node if that is known.
    pub names: Vec<String>,
    /// By which it is said when something came.
    pub clock: RunClock,
    /// The way there.
    pub commands: Arc<dyn CommandSender>,
    /// What comes from there. Closed: nothing more will.
    pub events: Receiver<WireEvent>,
}

/// Gives lines to pods.
pub trait CommandSender: Send + Sync {
    /// Gives a pod a line, which has no newline at its end. Does not wait; a pod that is gone is not told, and said to be by an [`WireEvent`].
    fn send(&self, pod: usize, line: &str);

    /// To how many pods there is a way.
    fn pod_count(&self) -> usize;

    /// Ends all pods at once, whatever they do.
    fn kill_all(&self);
}

/// What happens to pods.
#[derive(Debug)]
pub enum WireEvent {
    /// A pod wrote a line to its log. Each line comes once, in the order in which they were written.
    Line {
        /// Which pod.
        pod: usize,
        /// When it came here, by the wire's clock.
        at: Nanos,
        /// Without the newline.
        line: String,
    },
    /// A pod will say nothing more: killed, evicted, failed, ended.
    Lost {
        /// Which.
        pod: usize,
        /// Why, in words, such as `killed (exit code 137)` or `evicted: the node was low on memory`.
        why: String,
        /// When that came here.
        at: Nanos,
    },
    /// Nothing comes of a pod for now, and another try is made: its node or the API server does not answer.
    Unreachable {
        /// Which.
        pod: usize,
        /// Why, in words.
        why: String,
    },
}

impl WireEvent {
    /// When it came, if it says so.
    pub(crate) fn received_at(&self) -> Option<Nanos> {
        match self {
            Self::Line { at, .. } | Self::Lost { at, .. } => Some(*at),
            Self::Unreachable { .. } => None,
        }
    }
}
