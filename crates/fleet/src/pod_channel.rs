//! The channel between the controller and the pods: lines to each pod, lines from each pod, and reports of lost pods.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use seawall_load::clock::{Nanos, RunClock};

/// The channel to running pods, by index from 0.
pub struct PodChannel {
    /// The display name of each pod: its name, and its node if known.
    pub names: Vec<String>,
    /// The clock of the arrival times.
    pub clock: RunClock,
    /// The sender of orders.
    pub command_sender: Arc<dyn CommandSender>,
    /// The events from pods. A closed receiver means that there will be no more.
    pub event_receiver: Receiver<WireEvent>,
}

/// A sender of lines to pods.
pub trait CommandSender: Send + Sync {
    /// Sends a line without a newline to a pod. It does not block. A line to a lost pod is dropped; a [`WireEvent`] reports the loss.
    fn send(&self, pod: usize, line: &str);

    /// Returns the number of pods that the channel reaches.
    fn pod_count(&self) -> usize;

    /// Kills all pods at once, even during a load.
    fn kill_all(&self);
}

/// An event from a pod.
#[derive(Debug)]
pub enum WireEvent {
    /// A pod wrote a line to its log. Each line arrives once, in the order of writing.
    Line {
        /// The index of the pod.
        pod: usize,
        /// The arrival time by the channel's clock.
        at: Nanos,
        /// The line without its newline.
        line: String,
    },
    /// A pod has ended: killed, evicted, failed or finished.
    Ended {
        /// The index of the pod.
        pod: usize,
        /// The reason, such as `killed (exit code 137)` or `evicted: the node was low on memory`.
        why: String,
        /// The arrival time by the channel's clock.
        at: Nanos,
    },
    /// A pod cannot be reached at the moment, because its node or the API server does not respond. The channel retries.
    Unreachable {
        /// The index of the pod.
        pod: usize,
        /// The reason.
        why: String,
    },
}

impl WireEvent {
    /// Returns the arrival time, if the event has one.
    pub(crate) fn received_at(&self) -> Option<Nanos> {
        match self {
            Self::Line { at, .. } | Self::Ended { at, .. } => Some(*at),
            Self::Unreachable { .. } => None,
        }
    }
}
