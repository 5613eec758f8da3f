//! Checks readiness with a real connection to each listener, a real request and a real response.
//!
//! A stored flag would not show whether the agent can serve now. This check takes the same path as a pod's request: accept,
//! attestation, parser, dialect, writer (and, in `conceal` mode, the real metadata server). Only the client differs, because the
//! agent is not a pod. So for one request, the [`seawall_identity::pod_resolver::PodResolver`] accepts the address of the agent's
//! own socket as the address of the readiness probe. The probe gets no credentials.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use seawall_clouds::self_test_request::ReadinessRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Mutex;

use seawall_identity::pod_resolver::SelfProbeSourceAddress;

/// The time limit of one readiness request. A pod's SDK waits about as long for the metadata server (Go's dialer and Python's
/// default: 2 to 3 s).
const DEADLINE: Duration = Duration::from_secs(2);

/// Sends a readiness request to each listener.
#[derive(Debug)]
pub struct ReadinessChecker {
    listeners: Vec<(SocketAddr, Vec<ReadinessRequest>)>,
    probe: SelfProbeSourceAddress,
    /// Limits checks to one at a time, because there is only one probe address. A check holds the lock across awaits, so the lock
    /// is async.
    turn: Mutex<()>,
}

impl ReadinessChecker {
    /// Creates a checker for the listeners at these addresses. A check sends one request for each dialect of a listener.
    pub fn new(listeners: Vec<(SocketAddr, Vec<ReadinessRequest>)>, probe: SelfProbeSourceAddress) -> Self {
        Self { listeners, probe, turn: Mutex::new(()) }
    }

    /// Returns the addresses of the listeners.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.listeners.iter().map(|(address, _)| *address)
    }

    /// Checks every listener once.
    ///
    /// # Errors
    /// The error names the first listener that failed, and how it failed.
    pub async fn check(&self) -> Result<(), String> {
        let _turn = self.turn.lock().await;
        let each = |(listener, probes): &(SocketAddr, Vec<ReadinessRequest>)| {
            probes.iter().map(|probe| (*listener, *probe)).collect::<Vec<_>>()
        };
        for (listener, probe) in self.listeners.iter().flat_map(each) {
            let _end = Forget(&self.probe);
            let asked = tokio::time::timeout(DEADLINE, self.ask_one(listener, probe)).await;
            asked
                .unwrap_or_else(|_| Err(format!("no answer within {} s", DEADLINE.as_secs())))
                .map_err(|reason| format!("{listener}: {reason}"))?;
        }
        Ok(())
    }

    async fn ask_one(&self, listener: SocketAddr, probe: ReadinessRequest) -> Result<(), String> {
        let mut stream = self.connect(listener).await.map_err(|error| error.to_string())?;
        let head = format!(
            "{} {} HTTP/1.1\r\nHost: {listener}\r\n{}Connection: close\r\n\r\n",
            probe.method, probe.target, probe.headers
        );
        stream.write_all(head.as_bytes()).await.map_err(|error| error.to_string())?;
        let mut answer = Vec::new();
        stream.take(16 * 1024).read_to_end(&mut answer).await.map_err(|error| error.to_string())?;
        judge(&answer, probe)
    }

    /// Binds the socket, stores the socket's address as the probe's address, and then connects. The order matters: the listener
    /// can accept before `connect` returns.
    async fn connect(&self, listener: SocketAddr) -> std::io::Result<TcpStream> {
        let target = SocketAddr::new(reachable(listener.ip()), listener.port());
        let socket = if target.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.bind(SocketAddr::new(target.ip(), 0))?;
        self.probe.store(Some(Arc::new(socket.local_addr()?)));
        socket.connect(target).await
    }
}

/// Clears the probe's address when the probe ends for any reason.
///
/// The client of the admin port can disconnect during a check. Then the probe's socket is closed, and any other process can get
/// the socket's address.
struct Forget<'a>(&'a SelfProbeSourceAddress);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.store(None);
    }
}

/// Returns loopback for a listener on all addresses. Otherwise returns the listener's own address.
fn reachable(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        own => own,
    }
}

fn judge(answer: &[u8], probe: ReadinessRequest) -> Result<(), String> {
    let text = String::from_utf8_lossy(answer);
    let head = text.split("\r\n\r\n").next().unwrap_or_default();
    let status = head.lines().next().unwrap_or("nothing");
    if !status.starts_with("HTTP/1.1 200 ") {
        return Err(format!("answered {status:?}"));
    }
    if !head.to_ascii_lowercase().contains(&format!("\r\n{}", probe.expected_header)) {
        return Err(format!("answered 200 without {:?}", probe.expected_header));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROBE: ReadinessRequest = ReadinessRequest {
        method: "GET",
        target: "/",
        headers: "",
        expected_header: "metadata-flavor: google",
    };

    #[test]
    fn only_a_flavoured_200_is_ready() {
        let judge = |answer| judge(answer, PROBE);
        assert!(judge(b"HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\n\r\nx").is_ok());
        assert!(judge(b"HTTP/1.1 200 OK\r\n\r\nMetadata-Flavor: Google").is_err());
        assert!(judge(b"HTTP/1.1 503 Service Unavailable\r\nMetadata-Flavor: Google\r\n\r\n").is_err());
        assert!(judge(b"").is_err());
    }

    #[tokio::test]
    async fn who_hangs_up_while_readiness_is_asked_leaves_no_probe_address() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let probe = SelfProbeSourceAddress::default();
        let listeners = vec![(silent.local_addr().unwrap(), vec![PROBE])];
        let readiness = ReadinessChecker::new(listeners, probe.clone());
        let under_way = async {
            let (_, peer) = silent.accept().await.unwrap();
            assert_eq!(probe.load().as_deref(), Some(&peer));
        };
        tokio::select! { _ = readiness.check() => panic!("nobody answers"), () = under_way => {} }
        assert!(probe.load().is_none());
    }

    #[tokio::test]
    async fn a_closed_listener_is_not_ready_and_leaves_no_probe_address() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let probe = SelfProbeSourceAddress::default();
        let readiness = ReadinessChecker::new(vec![(closed, vec![PROBE])], probe.clone());
        let reason = readiness.check().await.unwrap_err();
        assert!(reason.contains("refused"), "{reason}");
        assert!(probe.load().is_none());
    }
}
