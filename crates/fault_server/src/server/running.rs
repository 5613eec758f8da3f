//! A running server: its thread, and the only handle to it.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::options::FaultServerOptions;
use super::poller::PollerWaker;
use super::{DnsResponder, Server};

/// A running server. Dropping it closes the listener and every connection.
#[derive(Debug)]
pub struct FaultServer {
    address: SocketAddr,
    names: Option<SocketAddr>,
    stop: Arc<AtomicBool>,
    caller: PollerWaker,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// Binds the listener and serves on a new thread.
///
/// # Errors
/// An address cannot be bound, the kernel limits the backlog below that of the fault, or the thread cannot start.
pub fn start(options: &FaultServerOptions) -> io::Result<FaultServer> {
    let listener = listen(options)?;
    let address = listener.local_addr()?;
    let stop = Arc::new(AtomicBool::new(false));
    let names = DnsResponder::bind(options)?;
    let named = names.as_ref().map(|names| names.address);
    let server = Server::new(options, listener, names, stop.clone())?;
    let caller = server.poller.waker();
    let thread = std::thread::Builder::new().name("plants".to_owned());
    let thread = Some(thread.spawn(move || server.run())?);
    Ok(FaultServer { address, names: named, stop, caller, thread })
}

impl FaultServer {
    /// Returns the bound address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address of the DNS server, if there is one.
    #[must_use]
    pub fn dns_address(&self) -> Option<SocketAddr> {
        self.names
    }

    /// Returns the URL `http://ADDRESS:PORT`, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Closes the listener and every connection, and waits for both.
    ///
    /// # Errors
    /// The error that had stopped the server earlier, if any.
    pub fn shutdown(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.caller.wake();
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the server's thread panicked")))
    }
}

impl Drop for FaultServer {
    fn drop(&mut self) {
        // A destructor cannot report an error.
        let _ = self.end();
    }
}

fn listen(options: &FaultServerOptions) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(options.listen)?;
    let backlog = options.backlog();
    // Listening again changes the backlog, and nothing else (net/ipv4/af_inet.c, `inet_listen`).
    rustix::net::listen(&listener, i32::try_from(backlog).unwrap_or(i32::MAX))?;
    listener.set_nonblocking(true)?;
    let is_planted =
        options.fault_named("connection-cap").is_some_and(|cap| cap.parameter_is_word("how", "backlog"));
    match most_backlog().filter(|most| is_planted && *most < backlog) {
        Some(most) => Err(io::Error::new(
            ErrorKind::InvalidInput,
            format!(
                "the fault needs a backlog of {backlog}, but net.core.somaxconn limits the backlog to {most}: raise net.core.somaxconn"
            ),
        )),
        None => Ok(listener),
    }
}

fn most_backlog() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/net/core/somaxconn").ok()?.trim().parse().ok()
}
