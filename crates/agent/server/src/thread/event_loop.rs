//! Runs the loops of a traffic thread: the event loop, the round loop, and the drain.
//!
//! [`mod@super::ready_queue`] holds the connections that have work to do. [`ConnectionOnThread`] does the work of one connection.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use rustix::event::epoll::EventFlags;

use super::connection_task::ConnectionOnThread;
use super::{
    ACCEPT_PAUSE, DRAIN, DrainPatience, FIRST_REQUESTS, LAST_ANSWERS, REPLACED_DRAIN, TrafficThread,
};
use crate::connection_client::ServedPod;
use crate::connection_table::ConnectionKey;
use crate::epoll::MAX_EVENTS;
use crate::watchdog::ThreadActivity;

impl<P: ServedPod> TrafficThread<P> {
    /// Serves the ready connections, pass after pass. All other tasks of the thread run between two passes. Returns only if the
    /// poller fails.
    pub(super) async fn serve_ready(self: Rc<Self>) -> io::Result<()> {
        loop {
            poll_fn(|context| self.ready_queue.poll_pending(context)).await?;
            self.do_what_there_is()?;
            self.heartbeat.set_activity(ThreadActivity::Wait);
            // Pause even after a pass without turns, because the pass itself costs CPU time.
            self.rest();
            if self.ready_queue.has_pending() {
                tokio::task::yield_now().await;
            }
        }
    }

    fn do_what_there_is(self: &Rc<Self>) -> io::Result<()> {
        let waiting = self.ready_queue.ready_connection_keys.borrow().len();
        for _ in 0..waiting {
            let next = self.ready_queue.ready_connection_keys.borrow_mut().pop_front();
            self.go_on(next, None);
        }
        let told = self
            .ready_queue
            .poller
            .for_each_event(|key, flags| self.go_on(usize::try_from(key).ok(), Some(flags)))?;
        self.ready_queue.may_have_more.set(told == MAX_EVENTS);
        Ok(())
    }

    fn go_on(self: &Rc<Self>, key: Option<ConnectionKey>, told: Option<EventFlags>) {
        let find = |key| self.connections.borrow().get(key).cloned();
        if let Some(connection) = key.and_then(find) {
            ConnectionOnThread { thread: self.clone(), connection }.run_turn(told);
        }
    }

    /// Begins a round whenever a connection waits for the next round.
    /// A round begins after the thread has checked all ready connections. While several clients are active, the CPU quota limits
    /// the rate of rounds.
    pub(super) async fn run_rounds(self: Rc<Self>) {
        loop {
            self.scheduler.wait_for_round_request().await;
            tokio::task::yield_now().await;
            if self.is_accept_failing.take() {
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            let rest = self.owed_rest();
            if !rest.is_zero() {
                tokio::time::sleep(rest).await;
            }
            let find = |key| self.connections.borrow().get(key).cloned();
            self.scheduler.begin_round(|key, of| {
                find(key).is_some_and(|connection| {
                    ConnectionOnThread { thread: self.clone(), connection }.resume_if_waiting_for_turn(of)
                })
            });
        }
    }

    /// Completes the requests that are in progress or have arrived, and closes all other connections.
    /// If another agent already accepts new connections, an idle connection first gets time for one more request, and a client that has sent
    /// nothing yet gets more time. The answer to that request tells the client to close the connection. This avoids errors: if an idle
    /// connection simply closes, a request that is already on the way fails. If no other agent runs yet, the drain gives no extra time,
    /// because extra time would only delay the start of the other agent.
    ///
    /// `spent` is the part of [`DRAIN`] or [`REPLACED_DRAIN`] that the last accepts have already used.
    pub(super) async fn drain(self: &Rc<Self>, spent: Duration) {
        let begun = tokio::time::Instant::now();
        let all_gone_until = async |limit: Duration| {
            tokio::time::timeout(limit.saturating_sub(spent + begun.elapsed()), self.all_gone()).await
        };
        let is_replaced = self.drain_patience.get() != DrainPatience::None;
        if is_replaced {
            let _ = all_gone_until(LAST_ANSWERS).await;
            self.end_patience(DrainPatience::Silent);
            let _ = all_gone_until(FIRST_REQUESTS).await;
        }
        self.end_patience(DrainPatience::None);
        if all_gone_until(if is_replaced { REPLACED_DRAIN } else { DRAIN }).await.is_err() {
            tracing::warn!(
                open = self.connections.borrow().len(),
                "the drain timed out; the agent closes the open connections"
            );
        }
    }

    /// Closes the connections without a request that may no longer stay open.
    fn end_patience(self: &Rc<Self>, left: DrainPatience) {
        self.drain_patience.set(left);
        let idle = self.connections.borrow().idle_connections();
        // Consume the list, because each entry keeps its socket open.
        idle.into_iter().for_each(|connection| {
            ConnectionOnThread { thread: self.clone(), connection }.close_unless_request_arrived();
        });
    }
}
