//! The controller of the current trial. Orders, silence and signals reach the trial through it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use seawall_fleet::protocol::ControlCommand;

/// The operations that a trial offers to its controller.
pub(super) trait TrialHandle: Send {
    /// Steers the trial; returns a message if there is one.
    fn steer(&self, steer: &ControlCommand) -> Option<String>;

    /// Stops the trial: the first call awaits responses, the second does not.
    fn stop(&self);

    /// Aborts the trial at once.
    fn abort(&self);
}

/// The reason why a pod ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PodExitReason {
    /// The coordinator ended the pod.
    Requested,
    /// No more orders or pings came.
    HeartbeatLost,
    /// This signal came.
    Signal(i32),
}

/// Steers, stops and aborts the trial of this pod, and queues commands for the next one.
#[derive(Default)]
pub(super) struct TrialController(Mutex<ControllerState>);

#[derive(Default)]
struct ControllerState {
    handle: Option<Box<dyn TrialHandle>>,
    /// The ordered trials that have not begun, each with the commands for it so far.
    queued: VecDeque<Vec<PendingCommand>>,
    /// The warnings about the current trial.
    doubts: Vec<String>,
    end: Option<PodExitReason>,
}

enum PendingCommand {
    Steer(ControlCommand),
    Stop,
}

impl TrialController {
    /// Records that a trial was ordered.
    pub(super) fn expect_next_trial(&self) {
        self.lock().queued.push_back(Vec::new());
    }

    /// Attaches the handle of the next trial, and first runs the commands that were queued for it.
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

    /// Detaches the finished trial. This must come before its report: later commands are for the next trial.
    pub(super) fn detach_trial(&self) {
        self.lock().handle = None;
    }

    /// Records that the next trial does not begin.
    pub(super) fn cancel_next_trial(&self) {
        self.lock().queued.pop_front();
    }

    /// Steers the current trial, or the next one.
    pub(super) fn steer(&self, steer: ControlCommand) {
        self.lock().apply(PendingCommand::Steer(steer));
    }

    /// Stops the trial, but not the pod.
    pub(super) fn stop_trial(&self) {
        self.lock().apply(PendingCommand::Stop);
    }

    /// Ends the pod; the first reason is kept.
    pub(super) fn end_pod(&self, why: PodExitReason) {
        let mut held = self.lock();
        held.end.get_or_insert(why);
        held.abort();
    }

    /// Returns the reason why the pod ends, if it does.
    pub(super) fn exit_reason(&self) -> Option<PodExitReason> {
        self.lock().end
    }

    /// Returns the warnings since the last call.
    pub(super) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().doubts)
    }

    fn lock(&self) -> MutexGuard<'_, ControllerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ControllerState {
    /// Passes a command to the current trial or queues it for the next one; without either, the command is dropped.
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
