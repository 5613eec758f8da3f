//! The hand on the trial under way, which orders, silence and signals reach for while the trial goes on.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use seawall_fleet::protocol::Steer;

/// What a trial lets others do to it.
pub(super) trait Grip: Send {
    /// Steers it; answers with what is to be said of that, if anything is.
    fn steer(&self, steer: &Steer) -> Option<String>;

    /// Ends it: waits for answers the first time, and not the second.
    fn stop(&self);

    /// Ends it at once.
    fn abort(&self);
}

/// Why a pod ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It was told to.
    Left,
    /// Nobody gives it orders any more.
    Silence,
    /// By this signal.
    Signal(i32),
}

/// The one hand of a pod.
#[derive(Default)]
pub(super) struct Hand(Mutex<Held>);

#[derive(Default)]
struct Held {
    grip: Option<Box<dyn Grip>>,
    /// Trials that were ordered and have not begun, and what was ordered of each meanwhile.
    ahead: VecDeque<Vec<Touch>>,
    /// What is to be said of the trial under way.
    doubts: Vec<String>,
    end: Option<End>,
}

enum Touch {
    Steer(Steer),
    Stop,
}

impl Hand {
    /// A trial was ordered.
    pub(super) fn awaits(&self) {
        self.held().ahead.push_back(Vec::new());
    }

    /// The next trial begins, in which what was ordered since it was is done first.
    pub(super) fn takes(&self, grip: Box<dyn Grip>) {
        let mut held = self.held();
        held.grip = Some(grip);
        held.doubts.clear();
        for touch in held.ahead.pop_front().unwrap_or_default() {
            held.touch(touch);
        }
        if held.end.is_some() {
            held.abort();
        }
    }

    /// The trial is over. To be said before anybody is told so: what is ordered then is of the next one.
    pub(super) fn lets_go(&self) {
        self.held().grip = None;
    }

    /// The next trial does not begin.
    pub(super) fn skips(&self) {
        self.held().ahead.pop_front();
    }

    /// Steers it.
    pub(super) fn steer(&self, steer: Steer) {
        self.held().touch(Touch::Steer(steer));
    }

    /// Ends the trial, and not the pod.
    pub(super) fn stop(&self) {
        self.held().touch(Touch::Stop);
    }

    /// Ends everything; the first reason stays.
    pub(super) fn end(&self, why: End) {
        let mut held = self.held();
        held.end.get_or_insert(why);
        held.abort();
    }

    /// Why it ends, if it does.
    pub(super) fn ended(&self) -> Option<End> {
        self.held().end
    }

    /// What is to be said of the trial since this was asked last.
    pub(super) fn doubts(&self) -> Vec<String> {
        std::mem::take(&mut self.held().doubts)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// What is ordered of no trial is nobody's.
    fn touch(&mut self, touch: Touch) {
        let Some(grip) = &self.grip else {
            if let Some(ahead) = self.ahead.front_mut() {
                ahead.push(touch);
            }
            return;
        };
        match touch {
            Touch::Steer(steer) => self.doubts.extend(grip.steer(&steer)),
            Touch::Stop => grip.stop(),
        }
    }

    fn abort(&self) {
        if let Some(grip) = &self.grip {
            grip.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Notes what is done to it.
    struct Noting(Arc<Mutex<Vec<String>>>);

    impl Grip for Noting {
        fn steer(&self, steer: &Steer) -> Option<String> {
            self.0.lock().unwrap().push(steer.line.clone());
            Some("late".into())
        }

        fn stop(&self) {
            self.0.lock().unwrap().push("stop".into());
        }

        fn abort(&self) {
            self.0.lock().unwrap().push("abort".into());
        }
    }

    fn steer(line: &str) -> Steer {
        Steer { line: line.into(), from: 0 }
    }

    #[test]
    fn what_is_ordered_while_a_trial_gets_ready_is_done_when_it_begins() {
        let (hand, noted) = (Hand::default(), Arc::default());
        hand.steer(steer("of nothing"));
        hand.awaits();
        hand.steer(steer("rate 5"));
        hand.stop();
        hand.takes(Box::new(Noting(Arc::clone(&noted))));
        assert_eq!(*noted.lock().unwrap(), ["rate 5", "stop"]);
        assert_eq!((hand.doubts(), hand.doubts()), (vec!["late".to_owned()], vec![]));
        hand.end(End::Silence);
        hand.end(End::Left);
        assert_eq!(
            (noted.lock().unwrap().last().unwrap().as_str(), hand.ended()),
            ("abort", Some(End::Silence))
        );
    }

    /// It ran until somebody stopped it again.
    #[test]
    fn an_end_that_is_ordered_of_the_next_trial_as_soon_as_the_last_is_over_is_kept_for_it() {
        let (hand, noted) = (Hand::default(), Arc::default());
        hand.awaits();
        hand.takes(Box::new(Noting(Arc::default())));
        hand.awaits();
        hand.lets_go();
        hand.stop();
        hand.takes(Box::new(Noting(Arc::clone(&noted))));
        assert_eq!(*noted.lock().unwrap(), ["stop"]);
        hand.lets_go();
        hand.awaits();
        hand.stop();
        hand.skips();
        hand.awaits();
        hand.takes(Box::new(Noting(Arc::clone(&noted))));
        assert_eq!(*noted.lock().unwrap(), ["stop"], "what did not begin needs no end");
    }

    #[test]
    fn a_trial_that_begins_after_the_end_is_over_at_once() {
        let (hand, noted) = (Hand::default(), Arc::default());
        hand.awaits();
        hand.end(End::Signal(15));
        hand.takes(Box::new(Noting(Arc::clone(&noted))));
        assert_eq!(*noted.lock().unwrap(), ["abort"]);
    }
}
