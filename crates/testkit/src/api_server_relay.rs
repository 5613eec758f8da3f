//! A relay between one client and an API server that knows which pods the API server has reported to this client.
//!
//! A busy API server reports a change to one client some time after another, so what a watch of the test's own hears says
//! nothing about what has reached the agent.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::kubernetes_client::{runtime, tls_trusting};
use crate::tls::CertificateAuthority;
use crate::waiting::wait_until_true;

/// A relay on loopback for HTTP/1.1 over TLS. Ends with its connections when dropped.
#[derive(Debug)]
pub struct ApiServerRelay {
    address: SocketAddr,
    /// The certificate of its issuer.
    certificate: PathBuf,
    reported: Arc<ReportedNames>,
    accepting: AbortHandle,
}

impl ApiServerRelay {
    /// Starts a relay to the API server at this address, which has this certificate. Its own is written into the folder.
    pub fn start(api_server: SocketAddr, certificate: &Path, folder: &Path) -> Self {
        let authority = CertificateAuthority::new().unwrap();
        let own_certificate = folder.join("relay.crt");
        std::fs::write(&own_certificate, authority.certificate()).unwrap();
        let acceptor = TlsAcceptor::from(authority.server_config(&[b"http/1.1"], false).unwrap());
        let connector = TlsConnector::from(Arc::new(tls_trusting(certificate)));
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let reported = Arc::<ReportedNames>::default();
        let relay = Relay { api_server, acceptor, connector, reported: Arc::clone(&reported) };
        let accepting = runtime().spawn(async move { relay.accept(listener).await.unwrap() }).abort_handle();
        Self { address, certificate: own_certificate, reported, accepting }
    }

    /// Changes a kubeconfig file so that its client connects to the relay.
    pub fn redirect_kubeconfig(&self, file: &Path) {
        let mut config: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let cluster = &mut config["clusters"][0]["cluster"];
        cluster["server"] = json!(format!("https://{}", self.address));
        cluster["certificate-authority"] = json!(self.certificate);
        std::fs::write(file, config.to_string()).unwrap();
    }

    /// Waits until the socket of the client has a report about this pod, and all reports before it.
    pub fn wait_for_pod(&self, pod: &str) {
        wait_until_true("the API server to report a pod to the client", || self.reported.contains(pod));
    }
}

impl Drop for ApiServerRelay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

#[derive(Clone)]
struct Relay {
    api_server: SocketAddr,
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    reported: Arc<ReportedNames>,
}

impl Relay {
    /// Never returns without an error. Its connections end with it.
    async fn accept(self, listener: std::net::TcpListener) -> io::Result<()> {
        let listener = TcpListener::from_std(listener)?;
        let mut connections = JoinSet::new();
        loop {
            let (client, _) = listener.accept().await?;
            while connections.try_join_next().is_some() {}
            let relay = self.clone();
            // Either side may end the connection at any time, and the other side then sees that.
            connections.spawn(async move { relay.connect(client).await });
        }
    }

    async fn connect(self, client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let client = self.acceptor.accept(client).await?;
        let server = TcpStream::connect(self.api_server).await?;
        server.set_nodelay(true)?;
        let name = ServerName::IpAddress(self.api_server.ip().into());
        let server = self.connector.connect(name, server).await?;
        let (mut from_client, to_client) = tokio::io::split(client);
        let (from_server, mut to_server) = tokio::io::split(server);
        tokio::select! {
            copied = tokio::io::copy(&mut from_client, &mut to_server) => copied.map(drop),
            copied = self.reported.copy(from_server, to_client) => copied,
        }
    }
}

/// The names in the answers that have been written to the sockets of the client.
#[derive(Debug, Default)]
struct ReportedNames(Mutex<HashSet<String>>);

/// How a name begins in JSON. `metadata` begins with it, so an event has it in its first bytes.
const NAME: &[u8] = b"\"name\":\"";

impl ReportedNames {
    fn contains(&self, name: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    /// Copies until the end. Names count when their bytes, and so all bytes before them, are in the socket.
    async fn copy(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let (mut piece, mut names) = (vec![0; 16 * 1024], NameReader::default());
        loop {
            let read = from.read(&mut piece).await?;
            if read == 0 {
                return Ok(());
            }
            to.write_all(&piece[..read]).await?;
            to.flush().await?;
            let names = names.read(&piece[..read]);
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(names);
        }
    }
}

/// Reads names out of a connection's bytes.
#[derive(Default)]
struct NameReader {
    /// What can be the beginning of a name.
    unread: Vec<u8>,
    /// What can be the line between two chunks of a body (RFC 9112, section 7.1). It can be anywhere, in a name too.
    line: Vec<u8>,
}

impl NameReader {
    /// Returns the names that are complete with these bytes.
    fn read(&mut self, bytes: &[u8]) -> Vec<String> {
        bytes.iter().for_each(|byte| self.push(*byte));
        let mut names = Vec::new();
        let mut rest = &self.unread[..];
        while let Some(at) = rest.windows(NAME.len()).position(|window| window == NAME) {
            rest = &rest[at..];
            let value = &rest[NAME.len()..];
            let Some(end) = value.iter().position(|byte| *byte == b'"') else { break };
            names.push(String::from_utf8_lossy(&value[..end]).into_owned());
            rest = &value[end..];
        }
        if !rest.starts_with(NAME) {
            rest = &rest[rest.len().saturating_sub(NAME.len() - 1)..];
        }
        self.unread = rest.to_vec();
        names
    }

    fn push(&mut self, byte: u8) {
        let is_more = match self.line.as_slice() {
            [] => byte == b'\r',
            b"\r" => byte == b'\n',
            b"\r\n" => byte.is_ascii_hexdigit(),
            [.., b'\r'] => byte == b'\n',
            _ => byte == b'\r' || byte.is_ascii_hexdigit(),
        };
        if is_more {
            self.line.push(byte);
            if self.line.len() > 3 && byte == b'\n' {
                self.line.clear();
            }
        } else if self.line.is_empty() {
            self.unread.push(byte);
        } else {
            // JSON has no such line.
            self.unread.append(&mut self.line);
            self.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_wherever_the_text_and_its_chunks_are_divided() {
        let text = br#"{"object":{"metadata":{"name":"pod-1","x":"pod-9"}}}{"name":"pod-2"}"#;
        let head = b"HTTP/1.1 200 OK\r\nDate: today\r\n\r\n1f\r\n";
        for chunk in 0..text.len() {
            let (first, second) = text.split_at(chunk);
            let all = [&head[..], first, b"\r\n2aF\r\n", second].concat();
            for read in 0..all.len() {
                let mut reader = NameReader::default();
                let mut names = reader.read(&all[..read]);
                names.extend(reader.read(&all[read..]));
                assert_eq!(names, ["pod-1", "pod-2"], "chunk of {chunk} bytes, read of {read}");
            }
        }
    }
}
