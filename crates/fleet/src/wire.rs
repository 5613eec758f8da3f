//! What joins whoever orders to pods: lines to each, lines from each, and news of who is gone.

use std::sync::mpsc::Receiver;
use std::time::Instant;

/// Pods that have begun, by their place from 0.
pub trait Wire: Send {
    /// How many there are.
    fn pods(&self) -> usize;

    /// Gives a pod a line, which has no newline at its end. Does not wait; a pod that is gone is not told, and said to be by an [`Event`].
    fn tell(&mut self, pod: usize, line: &str);

    /// Where events come.
    fn events(&mut self) -> &Receiver<Event>;

    /// What a pod is called, for people: its name, and its node if that is known.
    fn name(&self, pod: usize) -> String;

    /// Ends all pods at once, whatever they do.
    fn end(&mut self);
}

/// What happens to pods.
#[derive(Debug)]
pub enum Event {
    /// A pod wrote a line to its log. Each line comes once, in the order in which they were written.
    Line {
        /// Which pod.
        pod: usize,
        /// When it came here.
        at: Instant,
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
        at: Instant,
    },
    /// Nothing comes of a pod for now, and another try is made: its node or the API server does not answer.
    Away {
        /// Which.
        pod: usize,
        /// Why, in words.
        why: String,
    },
}
