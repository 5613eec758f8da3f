//! Names to addresses, on a thread of its own: a lookup takes as long as it takes and must not hold up a sender.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::poller::Waker;
use crate::request::Origin;
use crate::socket::Address;

/// An answer: where the origin is, nowhere if the vector is empty.
pub(crate) type Resolved = (Origin, Vec<Address>);

/// A question, and where its answer goes.
pub(crate) struct Question {
    pub(crate) origin: Origin,
    pub(crate) reply: Sender<Resolved>,
    pub(crate) waker: Waker,
}

/// The address of an origin that is one.
pub(crate) fn literal(origin: &Origin) -> Option<Address> {
    let ip: IpAddr = origin.host.parse().ok()?;
    Some(Address::Tcp(SocketAddr::new(ip, origin.port)))
}

/// All addresses of an origin, in the order the system prefers.
pub(crate) fn lookup(origin: &Origin) -> Vec<Address> {
    let found = (origin.host.as_str(), origin.port).to_socket_addrs();
    found.map_or_else(|_| Vec::new(), |addresses| addresses.map(Address::Tcp).collect())
}

/// Starts the thread; it ends when the last sender of questions is gone.
pub(crate) fn spawn() -> std::io::Result<Sender<Question>> {
    let (sender, questions) = channel();
    std::thread::Builder::new().name("resolver".into()).spawn(move || answer(&questions))?;
    Ok(sender)
}

fn answer(questions: &Receiver<Question>) {
    while let Ok(Question { origin, reply, waker }) = questions.recv() {
        let addresses = lookup(&origin);
        // The asker may have ended in the meantime.
        let _ = reply.send((origin, addresses));
        waker.wake();
    }
}
