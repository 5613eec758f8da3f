//! An HTTP server that counts exactly what reaches it: requests and connections, by the address that they came from.
//!
//! It counts a request once all of it is there, and before it answers, so that whoever has an answer was counted.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use seawall_core::{Clock, Moment};

use crate::closure_server::{Peer, Server};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Kept connections of a load may have nothing to do for long.
const SILENCE: Duration = Duration::from_secs(600);

/// A running one; it stops to listen when dropped.
#[derive(Debug)]
pub struct CountingServer {
    server: Server,
    callers: Arc<Callers>,
}

/// Each on a lock of its own: connections of several callers do not wait for each other.
type Callers = Mutex<BTreeMap<IpAddr, Arc<Mutex<CallerCounts>>>>;

/// The connections and requests that came from one address so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallerCounts {
    /// Connections, those without a request among them.
    pub connections: u64,
    /// Whole requests.
    pub requests: u64,
    /// The times of the first and the last request.
    pub first_and_last_request: Option<(Moment, Moment)>,
}

impl CountingServer {
    /// Listens at an address of this machine, on a free port.
    ///
    /// # Errors
    /// This machine does not have the address.
    pub fn start(address: IpAddr) -> io::Result<Self> {
        let callers = Arc::new(Callers::default());
        let noted = Arc::clone(&callers);
        let server = Server::start_at(address, move |peer, _| serve(peer, &noted))?;
        Ok(Self { server, callers })
    }

    /// The URL of the server; it answers on any path.
    pub fn url(&self) -> String {
        self.server.url_of_path("/")
    }

    /// Whole requests so far.
    pub fn request_count(&self) -> u64 {
        self.callers().values().map(|caller| caller.requests).sum()
    }

    /// The counts so far, by client address.
    pub fn callers(&self) -> BTreeMap<IpAddr, CallerCounts> {
        let callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        let now = |caller: &Mutex<CallerCounts>| *caller.lock().unwrap_or_else(PoisonError::into_inner);
        callers.iter().map(|(address, caller)| (*address, now(caller))).collect()
    }
}

/// One connection, until its peer closes it.
fn serve(mut peer: Peer, callers: &Callers) -> io::Result<()> {
    peer.set_read_timeout(SILENCE)?;
    let (clock, address) = (Clock::system(), peer.address()?.ip());
    let caller =
        Arc::clone(callers.lock().unwrap_or_else(PoisonError::into_inner).entry(address).or_default());
    let note = |change: &dyn Fn(&mut CallerCounts)| {
        change(&mut caller.lock().unwrap_or_else(PoisonError::into_inner));
    };
    note(&|caller| caller.connections += 1);
    loop {
        let head = peer.read_request_head()?;
        peer.read_body(length(&head))?;
        let now = clock.now();
        note(&|caller| {
            caller.requests += 1;
            caller.first_and_last_request =
                Some((caller.first_and_last_request.map_or(now, |(first, _)| first), now));
        });
        peer.send(ANSWER)?;
    }
}

/// The bytes of a request's body: none if its head does not tell.
fn length(head: &str) -> usize {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let mut told = lines.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    told.next().and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpStream};

    use super::*;

    #[test]
    fn what_was_answered_was_counted_bodies_and_kept_connections_among_it() {
        let counter = CountingServer::start(Ipv4Addr::LOCALHOST.into()).unwrap();
        for _ in 0..2 {
            let mut stream = TcpStream::connect(counter.server.address()).unwrap();
            let requests = "POST / HTTP/1.1\r\ncontent-LENGTH: 4\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n\r\n";
            stream.write_all(requests.as_bytes()).unwrap();
            stream.read_exact(&mut vec![0; 2 * ANSWER.len()]).unwrap();
        }
        let callers = counter.callers();
        let caller = callers[&IpAddr::from(Ipv4Addr::LOCALHOST)];
        assert_eq!(
            (callers.len(), caller.connections, caller.requests, counter.request_count()),
            (1, 2, 4, 4)
        );
        assert!(caller.first_and_last_request.is_some_and(|(first, last)| first < last));
    }
}
