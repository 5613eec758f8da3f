//! The threads of a session: each keeps its connections from one trial to the next, and maintains them in between.
//!
//! A thread carries out its commands one after the other. [`SenderLoop`] carries out the thread's part of a trial.
//! [`crate::load_session`] decides about trials and their figures.

use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use crate::clock::{Nanos, RunClock, SECOND};
use crate::in_flight::InFlightTable;
use crate::poller::{Event, EventPoller, SenderWaker, event_socket_token};
use crate::request::RequestFraming;
use crate::request_source::SenderRequests;
use crate::sender::{SenderLoop, SenderTask};
use crate::stats::LoadStats;
use crate::transport::TransportContext;
use crate::transport::pool::ConnectionPool;

/// A command for a thread.
pub(crate) enum SenderCommand {
    /// Opens connections of each route and replies with the number of all open connections.
    Warm {
        /// The number of connections of each route.
        connections: usize,
        answer: ReplyChannel,
    },
    /// Carries out a part of a trial.
    Trial(Box<SenderTask>),
}

/// The channel on which a thread reports its number of open connections, and the latest time for the report, by the clock of the
/// session.
#[derive(Debug, Clone)]
pub(crate) struct ReplyChannel {
    pub(crate) reply_sender: Sender<usize>,
    pub(crate) deadline: Nanos,
}

/// The interval at which a thread without a trial checks its connections.
const LOOK: Nanos = SECOND / 10;

/// A thread as the session holds it.
#[derive(Debug)]
pub(crate) struct SenderThread {
    orders: Option<Sender<SenderCommand>>,
    waker: SenderWaker,
    thread: Option<JoinHandle<()>>,
}

impl SenderThread {
    /// Starts a thread with these connections.
    pub(crate) fn spawn(
        index: usize,
        clock: RunClock,
        pool: ConnectionPool<EventPoller>,
    ) -> io::Result<Self> {
        let (sender, orders) = channel();
        let waker = pool.network.waker();
        let idle = IdleSender {
            clock,
            pool,
            flights: InFlightTable::new(),
            orders,
            warming: None,
            supply: SenderRequests::none(&RequestFraming::default()),
            stats: Box::default(),
        };
        let thread =
            std::thread::Builder::new().name(format!("sender {index}")).spawn(move || idle.serve())?;
        Ok(Self { orders: Some(sender), waker, thread: Some(thread) })
    }

    pub(crate) fn waker(&self) -> SenderWaker {
        self.waker.clone()
    }

    /// Sends a command; false if the thread has ended.
    pub(crate) fn send(&self, order: SenderCommand) -> bool {
        let told = self.orders.as_ref().is_some_and(|orders| orders.send(order).is_ok());
        self.waker.wake();
        told
    }

    /// Makes the thread end after its last command.
    pub(crate) fn stop(&mut self) {
        self.orders = None;
        self.waker.wake();
    }
}

impl Drop for SenderThread {
    fn drop(&mut self) {
        self.stop();
        // A thread that panicked has written the reason to standard error.
        self.thread.take().map(JoinHandle::join);
    }
}

/// A thread between two trials.
struct IdleSender {
    clock: RunClock,
    pool: ConnectionPool<EventPoller>,
    flights: InFlightTable,
    orders: Receiver<SenderCommand>,
    /// The channel of the caller that waits for open connections.
    warming: Option<ReplyChannel>,
    /// An empty source of requests.
    supply: SenderRequests,
    /// The costs of connections that no request asked for.
    stats: Box<LoadStats>,
}

impl IdleSender {
    fn serve(mut self) {
        let mut events = EventPoller::new_event_buffer();
        while let Some(part) = self.next_part(&mut events) {
            // A caller that still waits for open connections gets no reply.
            self.warm(0, None);
            let Self { clock, pool, flights, orders, warming, supply, stats } = self;
            let (pool, flights) = SenderLoop::new(*part, clock, pool, flights).run();
            self = Self { clock, pool, flights, orders, warming, supply, stats };
        }
    }

    /// Maintains the connections until there is a part of a trial to carry out; `None` when the session is over.
    fn next_part(&mut self, events: &mut Vec<Event>) -> Option<Box<SenderTask>> {
        loop {
            match self.orders.try_recv() {
                Ok(SenderCommand::Trial(part)) => return Some(part),
                Ok(SenderCommand::Warm { connections, answer }) => {
                    // Connections that have ended by now must be replaced, too.
                    self.poll_idle_connections(events).ok()?;
                    self.warm(connections, Some(answer));
                }
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => self.poll_idle_connections(events).ok()?,
            }
            self.answer();
        }
    }

    /// Replies with the number of open connections once all attempts have ended, or at the deadline.
    fn answer(&mut self) {
        let (clock, pool) = (&self.clock, &self.pool);
        let due = |answer: &mut ReplyChannel| !pool.is_warming() || clock.now() >= answer.deadline;
        if let Some(ReplyChannel { reply_sender: reply, .. }) = self.warming.take_if(due) {
            // The caller may have stopped waiting.
            let _ = reply.send(pool.established_count());
        }
    }

    fn warm(&mut self, connections: usize, answer: Option<ReplyChannel>) {
        self.warming = answer;
        let now = self.clock.now();
        self.run_transport(|pool, desk| pool.warm(connections, now, desk));
    }

    /// Handles events of idle connections, so that a connection that the server closes is removed now, and not by the first
    /// request that would have used it.
    fn poll_idle_connections(&mut self, events: &mut Vec<Event>) -> rustix::io::Result<()> {
        let now = self.clock.now();
        self.pool.network.wait(events, now, now + LOOK)?;
        let now = self.clock.now();
        for event in &*events {
            if let Some(token) = event_socket_token(event) {
                self.run_transport(|pool, desk| pool.drive(token, event.flags, now, desk));
            }
        }
        self.run_transport(|pool, desk| pool.adopt_resolved(now, desk));
        self.run_transport(|pool, desk| pool.expire_attempts(now, desk));
        self.run_transport(|pool, desk| pool.drive_marked_connections(now, desk));
        Ok(())
    }

    /// Runs an action of the transport. It reports no events of requests, because there are no requests in flight.
    fn run_transport(
        &mut self,
        act: impl FnOnce(&mut ConnectionPool<EventPoller>, &mut TransportContext<'_>),
    ) {
        let mut desk =
            TransportContext { flights: &mut self.flights, requests: &self.supply, stats: &mut self.stats };
        act(&mut self.pool, &mut desk);
    }
}
