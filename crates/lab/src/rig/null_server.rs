//! An HTTP server that does next to nothing. The calibration measures the generator's own capacity against it.
//!
//! One thread answers each complete request head, whatever it says. It shares the machine with the generator. So the measured
//! rate is rather below than above the rate that the generator could send to a remote target.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const END: &[u8] = b"\r\n\r\n";

/// An HTTP server that answers every request at once. Dropping it ends its thread.
pub(super) struct NullServer {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NullServer {
    /// Listens on loopback.
    ///
    /// # Errors
    /// The system refuses a socket or a thread.
    pub(super) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        // If the system refuses to wait, the server answers nothing more, and the calibration measures nothing.
        let serve = move || drop(Serving::serve(&listener, &end));
        let thread = Some(std::thread::Builder::new().name("null-server".into()).spawn(serve)?);
        Ok(Self { address, ended, thread })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // Wakes the thread. If that fails, the thread is awake or gone.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Serving {
    peers: Vec<Peer>,
}

struct Peer {
    stream: TcpStream,
    /// The number of bytes of [`END`] at the end of the last read.
    matched: usize,
}

impl Serving {
    /// Serves until the end, or until the system refuses to wait.
    fn serve(listener: &TcpListener, end: &AtomicBool) -> io::Result<()> {
        let mut serving = Self { peers: Vec::new() };
        while !end.load(Ordering::SeqCst) {
            let mut ready = serving.wait(listener)?.into_iter();
            serving.peers.retain_mut(|peer| !ready.next().unwrap_or(false) || peer.answer());
            while let Ok((stream, _)) = listener.accept() {
                serving.take(stream);
            }
        }
        Ok(())
    }

    /// Waits, and returns for each peer whether it has sent something.
    fn wait(&self, listener: &TcpListener) -> io::Result<Vec<bool>> {
        let streams = self.peers.iter().map(|peer| PollFd::new(&peer.stream, PollFlags::IN));
        let mut all: Vec<_> = streams.chain([PollFd::new(listener, PollFlags::IN)]).collect();
        match poll(&mut all, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {
                Ok(all.iter().map(|fd| !fd.revents().is_empty()).collect())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn take(&mut self, stream: TcpStream) {
        if stream.set_nonblocking(true).is_ok() && stream.set_nodelay(true).is_ok() {
            self.peers.push(Peer { stream, matched: 0 });
        }
    }
}

impl Peer {
    /// Answers the received requests; false if the peer is gone.
    fn answer(&mut self) -> bool {
        let mut bytes = [0; 16 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => false,
            Ok(length) => (0..self.heads(&bytes[..length])).all(|_| self.stream.write_all(ANSWER).is_ok()),
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    /// Returns the number of request heads that end in these bytes.
    fn heads(&mut self, bytes: &[u8]) -> usize {
        let mut heads = 0;
        for byte in bytes {
            self.matched =
                if *byte == END[self.matched] { self.matched + 1 } else { usize::from(*byte == b'\r') };
            if self.matched == END.len() {
                (heads, self.matched) = (heads + 1, 0);
            }
        }
        heads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_head_has_an_answer_wherever_it_is_cut() {
        let sink = NullServer::start().unwrap();
        let mut stream = TcpStream::connect(sink.address()).unwrap();
        for part in ["GET / HTTP/1.1\r\n\r", "\nGET / HTTP/1.1\r\nA: b\r\n\r\n"] {
            stream.write_all(part.as_bytes()).unwrap();
        }
        let mut answers = vec![0; 2 * ANSWER.len()];
        stream.read_exact(&mut answers).unwrap();
        assert_eq!(answers, [ANSWER, ANSWER].concat());
    }
}
