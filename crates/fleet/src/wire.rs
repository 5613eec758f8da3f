//! What joins whoever orders to pods: lines to each, lines from each, and news of who is gone.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use seawall_load::clock::{Nanos, RunClock};

/// Pods that have begun, by their place from 0.
pub struct Wire {
    /// What each is called, for people: its name, and its node if that is known.
    pub names: Vec<String>,
    /// By which it is said when something came.
    pub clock: RunClock,
    /// The way there.
    pub hand: Arc<dyn Hand>,
    /// What comes from there. Closed: nothing more will.
    pub events: Receiver<Event>,
}

/// Gives lines to pods.
pub trait Hand: Send + Sync {
    /// Gives a pod a line, which has no newline at its end. Does not wait; a pod that is gone is not told, and said to be by an [`Event`].
    fn tell(&self, pod: usize, line: &str);

    /// To how many pods there is a way.
    fn size(&self) -> usize;

    /// Ends all pods at once, whatever they do.
    fn end(&self);
}

/// What happens to pods.
#[derive(Debug)]
pub enum Event {
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
    Gone {
        /// Which.
        pod: usize,
        /// Why, in words, such as `killed (exit code 137)` or `evicted: the node was low on memory`.
        why: String,
        /// When that came here.
        at: Nanos,
    },
    /// Nothing comes of a pod for now, and another try is made: its node or the API server does not answer.
    Away {
        /// Which.
        pod: usize,
        /// Why, in words.
        why: String,
    },
}

impl Event {
    /// When it came, if it says so.
    pub(crate) fn came(&self) -> Option<Nanos> {
        match self {
            Self::Line { at, .. } | Self::Gone { at, .. } => Some(*at),
            Self::Away { .. } => None,
        }
    }
}
