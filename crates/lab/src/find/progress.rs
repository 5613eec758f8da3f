//! What a run tells of itself while it goes on.

use std::time::Duration;

use seawall_search::closed;
use seawall_search::offer::Offer;

use super::answer::{Answer, Trial};

/// Is told of each step when it begins and when it has ended. Called by the thread that runs the search: whoever takes long
/// here keeps the target waiting.
pub trait Watcher {
    /// A step begins.
    fn begins(&mut self, step: &Step<'_>, time: Time);

    /// It has ended, and this came of it; none where there is nothing to tell.
    fn ended(&mut self, step: &Step<'_>, came: Option<&Trial>, time: Time);

    /// More is known than before. Who wants all of it asks for it, which takes a moment; of what the run came to it has neither the cause nor
    /// what the generator can do.
    fn knows(&mut self, _so_far: &dyn Fn() -> Answer) {}
}

/// Two that hear the same, one after the other.
impl<A: Watcher, B: Watcher> Watcher for (A, B) {
    fn begins(&mut self, step: &Step<'_>, time: Time) {
        self.0.begins(step, time);
        self.1.begins(step, time);
    }

    fn ended(&mut self, step: &Step<'_>, came: Option<&Trial>, time: Time) {
        self.0.ended(step, came, time);
        self.1.ended(step, came, time);
    }

    fn knows(&mut self, so_far: &dyn Fn() -> Answer) {
        self.0.knows(so_far);
        self.1.knows(so_far);
    }
}

/// One who may not be there.
impl<W: Watcher> Watcher for Option<W> {
    fn begins(&mut self, step: &Step<'_>, time: Time) {
        self.iter_mut().for_each(|watcher| watcher.begins(step, time));
    }

    fn ended(&mut self, step: &Step<'_>, came: Option<&Trial>, time: Time) {
        self.iter_mut().for_each(|watcher| watcher.ended(step, came, time));
    }

    fn knows(&mut self, so_far: &dyn Fn() -> Answer) {
        self.iter_mut().for_each(|watcher| watcher.knows(so_far));
    }
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step<'a> {
    /// The generator is looked at.
    Calibrate,
    /// This is offered.
    Offer(&'a Offer),
    /// So many clients are kept busy.
    Clients(&'a closed::Offer),
    /// Nothing is sent for so long.
    Rest(Duration),
    /// This experiment is carried out.
    Experiment(&'static str),
}

/// How much is gone, and how much is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time {
    /// Since the begin.
    pub spent: Duration,
    /// Of the budget; none: there is none.
    pub left: Option<Duration>,
}

/// Wants to know nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nobody;

impl Watcher for Nobody {
    fn begins(&mut self, _: &Step<'_>, _: Time) {}

    fn ended(&mut self, _: &Step<'_>, _: Option<&Trial>, _: Time) {}
}
