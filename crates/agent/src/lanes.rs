//! One thread's listening sockets, and which of them have connections to accept. Used by `serve` only.
//!
//! They stand in a poller of their own, whose descriptor alone the runtime watches: a hundred listeners registered there would
//! cost a hundred tasks. A lane that has had its turns of a round rests until the next ([`crate::turns`]): its connections
//! wait in the kernel, where they cost the agent nothing.

use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::net::{SocketFlags, acceptfrom_with};
use rustix::time::Timespec;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::turns;

/// Lanes looked at at once; the others come in the next look.
const AT_ONCE: usize = 32;

/// A thread's lanes.
#[derive(Debug)]
pub(crate) struct Lanes {
    poller: AsyncFd<OwnedFd>,
    lanes: Vec<Lane>,
    resting: Vec<usize>,
    /// Lanes that were found to have connections and are not looked at yet.
    ready: Vec<usize>,
    /// There may be some of which the runtime is not told: more than were asked for at once, or in lanes that rested. (A lane
    /// that is watched again while the poller still lists it is no event.)
    may_have_more: bool,
}

#[derive(Debug)]
struct Lane {
    socket: TcpListener,
    turns: Rc<turns::Share>,
}

impl Lanes {
    /// Takes the sockets over. Must be called inside the thread's runtime.
    ///
    /// # Errors
    /// The kernel gives no poller, or does not take a socket into it.
    pub(crate) fn new(sockets: Vec<TcpListener>) -> io::Result<Self> {
        let poller = epoll::create(CreateFlags::CLOEXEC)?;
        for (number, socket) in sockets.iter().enumerate() {
            epoll::add(&poller, socket, EventData::new_u64(number as u64), EventFlags::IN)?;
        }
        let lanes = sockets.into_iter().map(|socket| Lane { socket, turns: Rc::default() }).collect();
        Ok(Self {
            poller: watched(poller)?,
            lanes,
            resting: Vec::new(),
            ready: Vec::new(),
            may_have_more: false,
        })
    }

    /// Returns as soon as connections wait in some lane that does not rest; [`Self::next`] says which. Each of those must be emptied,
    /// or rest: what is left in it is not told again.
    ///
    /// # Errors
    /// The poller failed.
    pub(crate) async fn wait(&mut self) -> io::Result<()> {
        while self.ready.is_empty() {
            if !self.may_have_more {
                // Cleared before it is asked: whatever comes from here on is told.
                self.poller.readable().await?.clear_ready();
            }
            look(self.poller.get_ref(), &mut self.ready)?;
            self.may_have_more = self.ready.len() == AT_ONCE;
        }
        Ok(())
    }

    /// The next lane in which connections wait.
    pub(crate) fn next(&mut self) -> Option<usize> {
        self.ready.pop()
    }

    /// The lane's turns.
    pub(crate) fn turns(&self, lane: usize) -> &Rc<turns::Share> {
        &self.lanes[lane].turns
    }

    /// Accepts one connection, if one waits. It does not block.
    ///
    /// # Errors
    /// What `accept` failed with.
    pub(crate) fn accept(&self, lane: usize) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (socket, peer) = match acceptfrom_with(&self.lanes[lane].socket, flags) {
            Ok((socket, Some(peer))) => (socket, SocketAddr::try_from(peer)?),
            Ok((_, None)) => return Ok(None),
            Err(error) if error == rustix::io::Errno::AGAIN => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(Some((socket.into(), peer)))
    }

    /// Does not look at a lane any more until [`Self::resume`].
    ///
    /// # Errors
    /// The poller failed.
    pub(crate) fn rest(&mut self, lane: usize) -> io::Result<()> {
        // On the list first: a lane that cannot be taken out of the poller is looked at again in the next round, too.
        self.resting.push(lane);
        self.watch(lane, EventFlags::empty())
    }

    /// Whether some lanes rest.
    pub(crate) fn are_resting(&self) -> bool {
        !self.resting.is_empty()
    }

    /// Looks at all lanes again.
    ///
    /// # Errors
    /// The poller failed.
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        while let Some(lane) = self.resting.last() {
            self.watch(*lane, EventFlags::IN)?;
            self.resting.pop();
            self.may_have_more = true;
        }
        Ok(())
    }

    fn watch(&self, lane: usize, events: EventFlags) -> io::Result<()> {
        let (socket, data) = (&self.lanes[lane].socket, EventData::new_u64(lane as u64));
        Ok(epoll::modify(self.poller.get_ref(), socket, data, events)?)
    }
}

#[expect(
    deprecated,
    reason = "its successor is unsafe for types that may change their descriptor; an OwnedFd never does"
)]
fn watched(poller: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(poller, Interest::READABLE)
}

/// Asks the poller and does not wait.
fn look(poller: &OwnedFd, found: &mut Vec<usize>) -> io::Result<()> {
    let mut room = [const { MaybeUninit::<Event>::uninit() }; AT_ONCE];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let (ready, _) = epoll::wait(poller, &mut room, Some(&now))?;
    found.extend(ready.iter().filter_map(|event| usize::try_from(event.data.u64()).ok()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    async fn waiting(lanes: &mut Lanes) -> Vec<usize> {
        lanes.wait().await.unwrap();
        std::iter::from_fn(|| lanes.next()).collect()
    }

    #[tokio::test]
    async fn a_lane_that_rests_is_not_told_until_it_is_looked_at_again() {
        let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<_> = listeners.iter().map(|one| one.local_addr().unwrap()).collect();
        let mut lanes = Lanes::new(listeners).unwrap();
        let _clients = [0, 0, 2].map(|lane: usize| TcpStream::connect(addresses[lane]).unwrap());
        let mut ready = waiting(&mut lanes).await;
        ready.sort_unstable();
        assert_eq!(ready, [0, 2]);
        assert!(lanes.accept(2).unwrap().is_some());
        lanes.rest(0).unwrap();
        assert!(lanes.are_resting());
        let is_quiet = pin!(lanes.wait()).poll(&mut Context::from_waker(Waker::noop())).is_pending();
        assert!(is_quiet);
        lanes.resume().unwrap();
        assert_eq!(waiting(&mut lanes).await, [0]);
        assert!(lanes.accept(0).unwrap().is_some());
    }

    #[tokio::test]
    async fn more_lanes_than_fit_one_look_are_all_told() {
        let listeners: Vec<_> =
            (0..AT_ONCE * 2 + 5).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let clients: Vec<_> =
            listeners.iter().map(|one| TcpStream::connect(one.local_addr().unwrap()).unwrap()).collect();
        let mut lanes = Lanes::new(listeners).unwrap();
        let mut accepted = 0;
        while accepted < clients.len() {
            for lane in waiting(&mut lanes).await {
                accepted += usize::from(lanes.accept(lane).unwrap().is_some());
            }
        }
    }
}
