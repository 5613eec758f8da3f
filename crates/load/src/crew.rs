//! The threads of a session: each keeps its connections from one trial to the next, and looks after them in between.
//!
//! A thread does what it is told, one thing after the other: its part of a trial, which is [`Shard`]'s to carry out.
//! Which trials there are, and what becomes of their figures, is [`crate::session`]'s business.

use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use crate::clock::{Nanos, RunClock, SECOND};
use crate::flights::Flights;
use crate::poller::{Event, Poller, Waker, token};
use crate::request::Style;
use crate::shard::{Part, Shard};
use crate::stats::Stats;
use crate::supply::Supply;
use crate::transport::Desk;
use crate::transport::pool::Pool;

/// What a thread is told.
pub(crate) enum Order {
    /// To have connections of each route open, and to say how many of all stand then.
    Warm {
        /// Of each route.
        connections: usize,
        answer: Answer,
    },
    /// To carry out a part of a trial.
    Trial(Box<Part>),
}

/// Where a thread is to say how many connections stand, and when at the latest, by the clock of the session.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) reply: Sender<usize>,
    pub(crate) by: Nanos,
}

/// How often a thread without a trial looks after its connections.
const LOOK: Nanos = SECOND / 10;

/// One of the threads, as the session holds it.
#[derive(Debug)]
pub(crate) struct Hand {
    orders: Option<Sender<Order>>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Hand {
    /// Starts a thread that has these connections.
    pub(crate) fn hire(index: usize, clock: RunClock, pool: Pool<Poller>) -> io::Result<Self> {
        let (sender, orders) = channel();
        let waker = pool.network.waker();
        let idle = Idle {
            clock,
            pool,
            flights: Flights::new(),
            orders,
            warming: None,
            supply: Supply::none(&Style::default()),
            stats: Box::default(),
        };
        let thread =
            std::thread::Builder::new().name(format!("sender {index}")).spawn(move || idle.serve())?;
        Ok(Self { orders: Some(sender), waker, thread: Some(thread) })
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// False when the thread is gone.
    pub(crate) fn tell(&self, order: Order) -> bool {
        let told = self.orders.as_ref().is_some_and(|orders| orders.send(order).is_ok());
        self.waker.wake();
        told
    }

    /// It ends with what it was told last.
    pub(crate) fn dismiss(&mut self) {
        self.orders = None;
        self.waker.wake();
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        self.dismiss();
        // A thread that panicked has said so on standard error.
        self.thread.take().map(JoinHandle::join);
    }
}

/// A thread between two trials.
struct Idle {
    clock: RunClock,
    pool: Pool<Poller>,
    flights: Flights,
    orders: Receiver<Order>,
    /// Who waits for connections to be open.
    warming: Option<Answer>,
    /// Nothing is sent here.
    supply: Supply,
    /// What connections cost that nobody's hit asked for.
    stats: Box<Stats>,
}

impl Idle {
    fn serve(mut self) {
        let mut events = Poller::events();
        while let Some(part) = self.next_part(&mut events) {
            // Who did not wait for it to end does without.
            self.warm(0, None);
            let Self { clock, pool, flights, orders, warming, supply, stats } = self;
            let (pool, flights) = Shard::new(*part, clock, pool, flights).run();
            self = Self { clock, pool, flights, orders, warming, supply, stats };
        }
    }

    /// Looks after the connections until there is a part to carry out; none when the session is over.
    fn next_part(&mut self, events: &mut Vec<Event>) -> Option<Box<Part>> {
        loop {
            match self.orders.try_recv() {
                Ok(Order::Trial(part)) => return Some(part),
                Ok(Order::Warm { connections, answer }) => {
                    // Those that have ended by now are lacking.
                    self.look_after(events).ok()?;
                    self.warm(connections, Some(answer));
                }
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => self.look_after(events).ok()?,
            }
            self.answer();
        }
    }

    /// Says how many connections stand when all do that will, or when it is time.
    fn answer(&mut self) {
        let (clock, pool) = (&self.clock, &self.pool);
        let due = |answer: &mut Answer| !pool.is_warming() || clock.now() >= answer.by;
        if let Some(Answer { reply, .. }) = self.warming.take_if(due) {
            // Who asked may have lost patience.
            let _ = reply.send(pool.standing());
        }
    }

    fn warm(&mut self, connections: usize, answer: Option<Answer>) {
        self.warming = answer;
        let now = self.clock.now();
        self.travel(|pool, desk| pool.warm(connections, now, desk));
    }

    /// A connection that the server closes is let go now, and not by the first hit that would have had it.
    fn look_after(&mut self, events: &mut Vec<Event>) -> rustix::io::Result<()> {
        let now = self.clock.now();
        self.pool.network.wait(events, now, now + LOOK)?;
        let now = self.clock.now();
        for event in &*events {
            if let Some(token) = token(event) {
                self.travel(|pool, desk| pool.drive(token, event.flags, now, desk));
            }
        }
        self.travel(|pool, desk| pool.adopt_resolved(now, desk));
        self.travel(|pool, desk| pool.look_after(now, desk));
        self.travel(|pool, desk| pool.flush(now, desk));
        Ok(())
    }

    /// Nothing is told of flights, because there are none.
    fn travel(&mut self, act: impl FnOnce(&mut Pool<Poller>, &mut Desk<'_>)) {
        let mut desk = Desk { flights: &mut self.flights, supply: &self.supply, stats: &mut self.stats };
        act(&mut self.pool, &mut desk);
    }
}
