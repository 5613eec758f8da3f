//! A server on loopback whose every connection is played by a closure on a thread of its own.
//!
//! It knows no HTTP beyond the end of a head: what goes out, and when, and how the connection ends, is the test's to
//! say. Dropping it stops the listener; a connection's thread ends with its closure, which must not outlive its peer
//! (reads fail after ten seconds, whatever happens).

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, Stream};
use socket2::{Domain, SockAddr, Socket, Type};

/// A listener that lives as long as this value.
#[derive(Debug)]
pub struct Server {
    address: SockAddr,
    stopped: Arc<AtomicBool>,
    accepted: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

/// A safety net, not a rule of any test: no thread outlives a test by more.
const LONGEST_SILENCE: Duration = Duration::from_secs(10);

/// Connections that come before they are accepted; the system has its own bound (net.core.somaxconn).
const BACKLOG: i32 = 4096;

impl Server {
    /// Listens on a free port. The closure gets each connection with its number, from 0; what it returns is ignored,
    /// so that `?` ends a connection whose peer has gone.
    pub fn start(play: impl Fn(Peer, usize) -> io::Result<()> + Send + Sync + 'static) -> io::Result<Self> {
        Self::listen(&anywhere(), None, play)
    }

    /// Listens at an address of this machine, which can take more connections at once than a test on loopback.
    pub fn start_at(
        address: IpAddr,
        play: impl Fn(Peer, usize) -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::listen(&SocketAddr::from((address, 0)).into(), None, play)
    }

    /// Listens on a free port and serves TLS.
    pub fn start_tls(
        config: Arc<ServerConfig>,
        play: impl Fn(Peer, usize) -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::listen(&anywhere(), Some(config), play)
    }

    /// Listens on a Unix socket, with or without TLS.
    pub fn start_unix(
        path: &Path,
        config: Option<Arc<ServerConfig>>,
        play: impl Fn(Peer, usize) -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::listen(&SockAddr::unix(path)?, config, play)
    }

    fn listen(
        at: &SockAddr,
        config: Option<Arc<ServerConfig>>,
        play: impl Fn(Peer, usize) -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = Socket::new(at.domain(), Type::STREAM, None)?;
        listener.bind(at)?;
        listener.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        let (stopped, accepted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stop, count, play) = (Arc::clone(&stopped), Arc::clone(&accepted), Arc::new(play));
        let thread = std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let (number, play) = (count.fetch_add(1, Ordering::SeqCst), Arc::clone(&play));
                let config = config.clone();
                std::thread::spawn(move || Peer::new(stream, config).and_then(|peer| play(peer, number)));
            }
        });
        Ok(Self { address, stopped, accepted, thread: Some(thread) })
    }

    /// Answers every request on every connection with these bytes.
    pub fn start_answering(bytes: impl Into<Vec<u8>>) -> io::Result<Self> {
        let bytes = bytes.into();
        Self::start(move |mut peer, _| {
            loop {
                peer.read_request_head()?;
                peer.send(&bytes)?;
            }
        })
    }

    /// Returns the address of the listener; port 0 if it is a Unix socket.
    pub fn address(&self) -> SocketAddr {
        self.address.as_socket().unwrap_or_else(|| (Ipv4Addr::LOCALHOST, 0).into())
    }

    /// Returns the URL of this path.
    pub fn url_of_path(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    /// Returns the number of connections so far.
    pub fn connection_count(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Server {
    fn wake(&self) -> io::Result<()> {
        Socket::new(self.address.domain(), Type::STREAM, None)?.connect(&self.address)
    }
}

/// A free port on loopback.
fn anywhere() -> SockAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        // Wakes the listener; if that fails it is gone already.
        drop(self.wake());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// The server's end of one connection.
#[derive(Debug)]
pub struct Peer {
    socket: Socket,
    secure: Option<ServerConnection>,
    read: Vec<u8>,
}

impl Peer {
    fn new(socket: Socket, config: Option<Arc<ServerConfig>>) -> io::Result<Self> {
        if socket.domain()? != Domain::UNIX {
            socket.set_tcp_nodelay(true)?;
        }
        socket.set_read_timeout(Some(LONGEST_SILENCE))?;
        socket.set_write_timeout(Some(LONGEST_SILENCE))?;
        let secure = config.map(ServerConnection::new).transpose().map_err(io::Error::other)?;
        Ok(Self { socket, secure, read: Vec::new() })
    }

    /// Returns the address of the peer.
    ///
    /// # Errors
    /// The peer is gone, or has no IP address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()?.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// Waits so long for the peer from now on, in place of ten seconds.
    ///
    /// # Errors
    /// The system refuses the option.
    pub fn set_read_timeout(&self, silence: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(silence))
    }

    /// The TLS session, if there is one.
    pub fn tls_session(&self) -> Option<&ServerConnection> {
        self.secure.as_ref()
    }

    /// The next request's head, its empty line included. A body, if any, is left for [`Peer::read_body`].
    ///
    /// # Errors
    /// The peer closed, or stayed silent for too long.
    pub fn read_request_head(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                let head: Vec<u8> = self.read.drain(..end + 4).collect();
                return Ok(String::from_utf8_lossy(&head).into_owned());
            }
            self.more()?;
        }
    }

    /// So many bytes after the head.
    ///
    /// # Errors
    /// The peer closed, or stayed silent for too long.
    pub fn read_body(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.read.len() < length {
            self.more()?;
        }
        Ok(self.read.drain(..length).collect())
    }

    fn more(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        let count = match &mut self.secure {
            Some(session) => Stream::new(session, &mut self.socket).read(&mut buffer)?,
            None => self.socket.read(&mut buffer)?,
        };
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read.extend_from_slice(&buffer[..count]);
        Ok(())
    }

    /// Lets the system take little more than that from the peer before it is read.
    ///
    /// # Errors
    /// The system refuses the option.
    pub fn set_receive_buffer(&self, bytes: usize) -> io::Result<()> {
        self.socket.set_recv_buffer_size(bytes)
    }

    /// Lets the system take so much more from this side than the peer has read, or as much as it may.
    ///
    /// # Errors
    /// The system refuses the option.
    pub fn set_send_buffer(&self, bytes: usize) -> io::Result<()> {
        self.socket.set_send_buffer_size(bytes)
    }

    /// Sends bytes at once.
    ///
    /// # Errors
    /// The peer has gone.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.secure {
            Some(session) => Stream::new(session, &mut self.socket).write_all(bytes),
            None => self.socket.write_all(bytes),
        }
    }

    /// Sends bytes one by one, each in a segment of its own as far as the system allows.
    ///
    /// # Errors
    /// The peer has gone.
    pub fn send_byte_by_byte(&mut self, bytes: &[u8]) -> io::Result<()> {
        bytes.iter().try_for_each(|byte| self.send(std::slice::from_ref(byte)))
    }

    /// Sends bytes and closes this side for writing, so that the end comes in one segment with them.
    ///
    /// # Errors
    /// The peer has gone.
    pub fn send_and_shut_down_write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.set_tcp_cork(true)?;
        self.send(bytes)?;
        self.socket.shutdown(Shutdown::Write)
    }

    /// Closes this side for writing and waits for the peer to close its own.
    ///
    /// # Errors
    /// The peer stayed silent for too long.
    pub fn half_close_and_wait(&mut self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)?;
        self.wait_for_close()
    }

    /// Moves bytes between the peer and another server until the peer closes.
    ///
    /// # Errors
    /// One of the two fails.
    pub fn relay(mut self, mut server: TcpStream) -> io::Result<()> {
        server.write_all(&self.read)?;
        let (mut back, mut peer) = (server.try_clone()?, self.socket.try_clone()?);
        let backwards = std::thread::spawn(move || io::copy(&mut back, &mut peer));
        io::copy(&mut self.socket, &mut server)?;
        server.shutdown(Shutdown::Both)?;
        drop(backwards.join());
        Ok(())
    }

    /// Closes with a reset.
    ///
    /// # Errors
    /// The system refuses the option.
    pub fn reset(self) -> io::Result<()> {
        self.socket.set_linger(Some(Duration::ZERO))
    }

    /// Waits until the peer closes.
    ///
    /// # Errors
    /// The peer stayed silent for too long.
    pub fn wait_for_close(&mut self) -> io::Result<()> {
        while self.more().is_ok() {}
        Ok(())
    }
}
