//! Binds the listeners of the admin port: a TCP address and, if configured, a Unix socket file in the agent's own pod.
//!
//! The kubelet's exec probe and operators inside the pod use the socket file. During an upgrade two agents run at once. Both use
//! the node's network, so only one of them can bind the TCP address. But their pods do not share files, so a probe at the socket
//! file never reaches the other agent. If a socket file is configured, the agent therefore starts even if another process uses
//! the TCP address. The agent binds the address when the other process has released it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream as Knock;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// The interval between two attempts to bind an address that is in use. The address becomes free when the previous agent has
/// ended.
const TRY_AGAIN: Duration = Duration::from_millis(250);

/// A listener that accepts connections to the admin port.
pub(super) trait AdminListener {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Accepts the next connection and returns it with its client.
    ///
    /// # Errors
    /// The listener cannot accept the connection.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, AdminClient)>> + Send;
}

/// The client of a connection to the admin port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AdminClient {
    /// The client's address. All clients of the socket file count as one address.
    pub(super) address: IpAddr,
    /// True if the client is on the node's own network or in the agent's pod.
    pub(super) is_on_node: bool,
}

impl AdminClient {
    /// Returns the client of a connection from `peer` to `local`. A client on the node's network that connects to an address of the
    /// node has the same address. A pod with a network of its own has another one.
    fn at_address(peer: IpAddr, local: IpAddr) -> Self {
        let is_on_node = peer.to_canonical().is_loopback() || peer.to_canonical() == local.to_canonical();
        Self { address: peer, is_on_node }
    }
}

impl AdminListener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, AdminClient)> {
        let (stream, peer) = TcpListener::accept(self).await?;
        let local = stream.local_addr()?;
        Ok((stream, AdminClient::at_address(peer.ip(), local.ip())))
    }
}

impl AdminListener for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, AdminClient)> {
        let client = AdminClient { address: Ipv4Addr::UNSPECIFIED.into(), is_on_node: true };
        UnixListener::accept(self).await.map(|(stream, _)| (stream, client))
    }
}

/// The admin port's listeners. The TCP address can still be in use by another process.
#[derive(Debug)]
pub struct AdminListeners {
    address: SocketAddr,
    tcp: Option<TcpListener>,
    unix: Option<UnixListener>,
}

impl AdminListeners {
    /// Binds the listeners. Call this function on the runtime that will serve them.
    ///
    /// # Errors
    /// The agent cannot bind a listener. If `file` is given, it is not an error that another process uses the TCP address.
    pub async fn open(address: SocketAddr, file: Option<&Path>) -> anyhow::Result<Self> {
        let unix = file.map(bind).transpose()?;
        let tcp = match TcpListener::bind(address).await {
            Err(error) if unix.is_some() && error.kind() == io::ErrorKind::AddrInUse => None,
            bound => Some(bound.with_context(|| format!("cannot listen on {address} (admin)"))?),
        };
        Ok(Self { address, tcp, unix })
    }

    /// Returns the TCP address of the admin port, even if it is not bound yet.
    pub fn address(&self) -> SocketAddr {
        self.tcp.as_ref().and_then(|tcp| tcp.local_addr().ok()).unwrap_or(self.address)
    }

    /// Returns the Unix listener, if there is one, and a future that resolves to the TCP listener when the address is bound.
    pub(super) fn into_listeners(self) -> (Option<UnixListener>, impl Future<Output = TcpListener>) {
        (self.unix, opened(self.address, self.tcp))
    }
}

/// Binds the address. If the address is in use, the function retries until it is free.
async fn opened(address: SocketAddr, tcp: Option<TcpListener>) -> TcpListener {
    if let Some(tcp) = tcp {
        return tcp;
    }
    tracing::info!(%address, "another process uses the admin address; until the address is free, the agent serves the admin pages only at adminSocket");
    loop {
        tokio::time::sleep(TRY_AGAIN).await;
        if let Ok(tcp) = TcpListener::bind(address).await {
            tracing::info!(%address, "the admin address is free; the agent serves there now");
            return tcp;
        }
    }
}

/// Binds the socket file. The function first removes a socket file that a dead process left behind.
fn bind(file: &Path) -> anyhow::Result<UnixListener> {
    let told = || format!("cannot listen on {} (adminSocket)", file.display());
    if is_left_behind(file) {
        std::fs::remove_file(file).with_context(told)?;
    }
    let listener = UnixListener::bind(file).with_context(told)?;
    // Only the agent's user can connect, because the pages name pods and accounts.
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).with_context(told)?;
    Ok(listener)
}

/// True if the file is a socket without a listener. The agent never removes any other file.
fn is_left_behind(file: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(file).is_ok_and(|found| found.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    is_socket && Knock::connect(PathBuf::from(file)).is_err_and(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clients_at_an_address_of_the_node_count_as_on_the_node() {
        let local = "10.0.0.1".parse().unwrap();
        for (peer, expected) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("10.0.0.1", true),
            ("::ffff:10.0.0.1", true),
            ("10.244.1.7", false),
            ("::ffff:10.244.1.7", false),
            ("0.0.0.0", false),
            ("fd00::7", false),
        ] {
            assert_eq!(AdminClient::at_address(peer.parse().unwrap(), local).is_on_node, expected, "{peer}");
        }
    }

    #[tokio::test]
    async fn a_socket_that_an_agent_left_is_taken_over_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("admin.sock");
        let first = bind(&file).unwrap();
        let error = bind(&file).unwrap_err();
        assert!(format!("{error:#}").contains("adminSocket"), "somebody listens: {error:#}");
        drop(first);
        bind(&file).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let other = folder.path().join("a-file");
        std::fs::write(&other, "mine").unwrap();
        bind(&other).unwrap_err();
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "mine");
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_waited_for_where_there_is_a_file_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("admin.sock");
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = other.local_addr().unwrap();
        let error = AdminListeners::open(address, None).await.unwrap_err();
        assert!(format!("{error:#}").contains("(admin)"), "{error:#}");
        let doors = AdminListeners::open(address, Some(&file)).await.unwrap();
        assert!(doors.tcp.is_none() && doors.address() == address);
        drop(other);
        assert_eq!(opened(address, None).await.local_addr().unwrap(), address);
    }
}
