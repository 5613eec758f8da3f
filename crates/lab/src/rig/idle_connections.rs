//! Opens connections that carry no requests. Their cost for the target shows in the load that is sent meanwhile.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use seawall_load::clock::{Nanos, RunClock, SECOND};

use super::stop::StopSwitch;

/// The time limit for one connect.
const EACH: Duration = Duration::from_secs(1);
/// The time limit for all connects.
const ALL: Nanos = 8 * SECOND;
/// The number of concurrent connects. One after the other, a thousand would take almost a minute over 50 ms.
const AT_ONCE: usize = 16;
/// The failures after which an opener gives up, because the target or this machine accepts no more connections.
const FAILURES: usize = 3;

/// The opened connections, including those that the target has closed since.
#[derive(Debug, Default)]
pub(super) struct IdleConnections(Vec<TcpStream>);

impl IdleConnections {
    /// Opens up to this many connections within some seconds.
    pub(super) fn open(address: SocketAddr, wanted: usize, stop: &StopSwitch) -> Self {
        let clock = RunClock::start();
        let opener = |index: usize| {
            let mine = wanted / AT_ONCE + usize::from(index < wanted % AT_ONCE);
            let (mut held, mut failed) = (Vec::new(), 0);
            while held.len() < mine && failed < FAILURES && clock.now() < ALL && !stop.is_stopped() {
                match TcpStream::connect_timeout(&address, EACH) {
                    Ok(stream) => held.push(stream),
                    Err(_) => failed += 1,
                }
            }
            held
        };
        let opener = &opener;
        let held = std::thread::scope(|scope| {
            let openers: Vec<_> =
                (0..AT_ONCE.min(wanted)).map(|index| scope.spawn(move || opener(index))).collect();
            openers.into_iter().flat_map(|opener| opener.join().unwrap_or_default()).collect()
        });
        Self(held)
    }

    /// Returns the number of connections that the other side has not closed.
    pub(super) fn count_open(&mut self) -> usize {
        self.0.iter_mut().filter_map(|stream| stands(stream).then_some(())).count()
    }
}

/// Returns true if the connection is open. Data that the other side has sent is skipped, because some servers say why they close.
fn stands(stream: &mut TcpStream) -> bool {
    if stream.set_nonblocking(true).is_err() {
        return false;
    }
    let mut said = [0; 4096];
    for _ in 0..64 {
        match stream.read(&mut said) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn connections_that_the_other_side_has_closed_do_not_stand_whatever_it_said_before() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut held = IdleConnections::open(listener.local_addr().unwrap(), 5, &StopSwitch::default());
        assert_eq!((held.0.len(), held.count_open()), (5, 5), "in the backlog they stand");
        let mut accepted: Vec<_> = (0..5).map(|_| listener.accept().unwrap().0).collect();
        accepted[0].write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n").unwrap();
        accepted.truncate(3);
        let first = accepted.remove(0);
        drop(first);
        let clock = RunClock::start();
        while held.count_open() > 2 && clock.now() < 20 * SECOND {
            std::thread::yield_now();
        }
        assert_eq!(held.count_open(), 2);
    }

    #[test]
    fn where_nobody_listens_and_when_everything_is_to_end_none_is_opened() {
        let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        assert_eq!(IdleConnections::open(nobody, 100, &StopSwitch::default()).0.len(), 0);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let stop = StopSwitch::default();
        stop.stop();
        assert_eq!(IdleConnections::open(listener.local_addr().unwrap(), 5, &stop).0.len(), 0);
    }
}
