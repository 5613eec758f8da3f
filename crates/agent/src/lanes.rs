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
        Ok(Self { poller: watched(poller)?, lanes, resting: Vec::new() })
    }

    /// The lanes in which connections wait, but for those that rest; as soon as there is one.
    ///
    /// # Errors
    /// The poller failed.
    pub(crate) async fn ready(&self) -> io::Result<Vec<usize>> {
        loop {
            let mut guard = self.poller.readable().await?;
            let ready = look(guard.get_inner())?;
            if !ready.is_empty() {
                return Ok(ready);
            }
            guard.clear_ready();
        }
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
        self.watch(lane, EventFlags::empty())?;
        self.resting.push(lane);
        Ok(())
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
        for lane in std::mem::take(&mut self.resting) {
            self.watch(lane, EventFlags::IN)?;
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
fn look(poller: &OwnedFd) -> io::Result<Vec<usize>> {
    let mut room = [const { MaybeUninit::<Event>::uninit() }; AT_ONCE];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let (ready, _) = epoll::wait(poller, &mut room, Some(&now))?;
    Ok(ready.iter().filter_map(|event| usize::try_from(event.data.u64()).ok()).collect())
}
