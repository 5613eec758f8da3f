//! The hand on the trial under way, which orders, silence and signals reach for while the trial goes on.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use seawall_fleet::protocol::ControlCommand;

/// What a trial lets others do to it.
pub(super) trait TrialHandle: Send {
    /// Steers it; answers with what is to be said of that, if anything is.
    fn steer(&self, steer: &ControlCommand) -> Option<String>;

    /// Ends it: waits for answers the first time, and not the second.
    fn stop(&self);

    /// Ends it at once.
    fn abort(&self);
}

/// Why a pod ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PodExitReason {
    /// It was told to.
    Requested,
    /// Nobody gives it orders any more.
    HeartbeatLost,
    /// By this signal.
    Signal(i32),
}

/// The one hand of a pod.
#[derive(Default)]
pub(super) struct TrialController(Mutex<ControllerState>);

#[derive(Default)]
struct ControllerState {
    handle: Option<Box<dyn TrialHandle>>,
    /// Trials that were ordered and have not begun, and what was ordered of each meanwhile.
    queued: VecDeque<Vec<PendingCommand>>,
    /// What is to be said of the trial under way.
    doubts: Vec<String>,
    end: Option<PodExitReason>,
}

enum PendingCommand {
    Steer(ControlCommand),
    Stop,
}

impl TrialController {
    /// A trial was ordered.
    pub(super) fn expect_next_trial(&self) {
        self.lock().queued.push_back(Vec::new());
    }

    /// The next trial begins, in which what was ordered since it was is done first.
    pub(super) fn attach_trial(&self, grip: Box<dyn TrialHandle>) {
        let mut held = self.lock();
        held.handle = Some(grip);
        held.doubts.clear();
        for touch in held.queued.pop_front().unwrap_or_default() {
            held.apply(touch);
        }
        if held.end.is_some() {
            held.abort();
        }
    }

    /// The trial is over. To be said before anybody is told so: what is ordered then is of the next one.
    pub(super) fn detach_trial(&self) {
        self.lock().handle = None;
    }

    /// The next trial does not begin.
    pub(super) fn cancel_next_trial(&self) {
        self.lock().queued.pop_front();
    }

    /// Steers it.
    pub(super) fn steer(&self, steer: ControlCommand) {
        self.lock().apply(PendingCommand::Steer(steer));
    }

    /// Ends the trial, and not the pod.
    pub(super) fn stop_trial(&self) {
        self.lock().apply(PendingCommand::Stop);
    }

    /// Ends everything; the first reason stays.
    pub(super) fn end_pod(&self, why: PodExitReason) {
        let mut held = self.lock();
        held.end.get_or_insert(why);
        held.abort();
    }

    /// Why it ends, if it does.
    pub(super) fn exit_reason(&self) -> Option<PodExitReason> {
        self.lock().end
    }

    /// What is to be said of the trial since this was asked last.
    pub(super) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().doubts)
    }

    fn lock(&self) -> MutexGuard<'_, ControllerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ControllerState {
    /// What is ordered of no trial is nobody's.
    fn apply(&mut self, touch: PendingCommand) {
        let Some(grip) = &self.handle else {
            if let Some(ahead) = self.queued.front_mut() {
                ahead.push(touch);
            }
            return;
        };
        match touch {
            PendingCommand::Steer(steer) => self.doubts.extend(grip.steer(&steer)),
            PendingCommand::Stop => grip.stop(),
        }
    }

    fn abort(&self) {
        if let Some(grip) = &self.handle {
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

    impl TrialHandle for Noting {
        fn steer(&self, steer: &ControlCommand) -> Option<String> {
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

    fn steer(line: &str) -> ControlCommand {
        ControlCommand { line: line.into(), from: 0 }
    }

    #[test]
    fn what_is_ordered_while_a_trial_gets_ready_is_done_when_it_begins() {
        let (hand, noted) = (TrialController::default(), Arc::default());
        hand.steer(steer("of nothing"));
        hand.expect_next_trial();
        hand.steer(steer("rate 5"));
        hand.stop_trial();
        hand.attach_trial(Box::new(Noting(Arc::clone(&noted))));
        assert_eq!(*noted.lock().unwrap(), ["rate 5", "stop"]);
        assert_eq!((hand.take_warnings(), hand.take_warnings()), (vec!["late".to_owned()], vec![]));
        hand.end_pod(PodExitReason::HeartbeatLost);
        hand.end_pod(PodExitReason::Requested);
        assert_eq!(
            (noted.lock().unwrap().last().unwrap().as_str(), hand.exit_reason()),
            ("abort", Some(PodExitReason::HeartbeatLost))
        );
    }

    /// It ran until somebody stopped it again.
    #[test]
    fn an_end_that_is_ordered_of_the_next_trial_as_soon_as_the_last_is_over_is_kept_for_it() {
        let (hand, noted) = (TrialController::default(), Arc::default());
        hand.expect_next_trial();
        hand.attach_trial(Box::new(Noting(Arc::default())));
        hand.expect_next_trial();
        hand.detach_trial();
        hand.stop_trial();
        hand.attach_trial(Box::new(Noting(Arc::clone(&noted))));
        assert_eq!(*noted.lock().unwrap(), ["stop"]);
        hand.detach_trial();
        hand.expect_next_trial();
        hand.stop_trial();
        hand.cancel_next_trial();
        hand.expect_next_trial();
        hand.attach_trial(Box::new(Noting(Arc::clone(&noted))));
        assert_eq!(*noted.lock().unwrap(), ["stop"], "what did not begin needs no end");
    }

    #[test]
    fn a_trial_that_begins_after_the_end_is_over_at_once() {
        let (hand, noted) = (TrialController::default(), Arc::default());
        hand.expect_next_trial();
        hand.end_pod(PodExitReason::Signal(15));
        hand.attach_trial(Box::new(Noting(Arc::clone(&noted))));
        assert_eq!(*noted.lock().unwrap(), ["abort"]);
    }
}
