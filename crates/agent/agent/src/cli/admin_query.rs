//! Queries the agent in this pod for the commands `probe` and `status`.
//! It connects to the agent's admin address or admin socket file.
//!
//! The module sends one request on a new connection, with a time limit and a size limit. The response is text that the agent
//! wrote.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use crate::config::AdminEndpoint;

/// The time limit for the connect, for each write and for each read.
/// Before the agent answers `/readyz`, it checks its listeners for up to 2 s. Therefore this limit is longer than 2 s.
const PATIENCE: Duration = Duration::from_secs(5);

/// The maximum number of bytes that the command reads from a response. `/debug/pods` on the fullest node is smaller.
const LARGEST: u64 = 64 * 1024 * 1024;

/// The kind of a probe.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProbeKind {
    /// Checks that the agent can serve a pod now.
    Ready,
    /// Checks only that the agent answers. The kubelet restarts an agent that fails this check. This probe ignores failures of
    /// other systems, because a restart of the agent would not help.
    Live,
}

impl ProbeKind {
    const fn path(self) -> &'static str {
        match self {
            Self::Ready => "/readyz",
            Self::Live => "/healthz",
        }
    }
}

/// Probes the agent that uses this configuration file.
///
/// # Errors
/// The agent reports a failure and its reason, or the agent does not respond.
pub(crate) fn probe(path: &Path, asked: ProbeKind) -> anyhow::Result<()> {
    let (status, body) = get_from_admin_server(&AdminEndpoint::from_file(path)?, asked.path())?;
    anyhow::ensure!(status == 200, "{}", body.trim_end());
    Ok(())
}

/// Returns the status and the body of the response for a path.
///
/// # Errors
/// No process responds, or the response does not come from an agent.
pub(super) fn get_from_admin_server(door: &AdminEndpoint, path: &str) -> anyhow::Result<(u16, String)> {
    let connected = match &door.socket {
        Some(file) => UnixStream::connect(file).map(OwnedFd::from),
        None => TcpStream::connect_timeout(&door.tcp_address, PATIENCE).map(OwnedFd::from),
    };
    // Reads, writes and timeouts are the same for TCP and Unix sockets, so one type can represent both kinds of socket.
    let answered = connected.map(UnixStream::from).and_then(|stream| exchange(stream, path));
    let place = door.socket.as_ref().map_or(door.tcp_address.to_string(), |file| file.display().to_string());
    let answered = answered.with_context(|| format!("the agent does not answer at {place}"))?;
    read(&answered).with_context(|| format!("the answer from {place} does not come from an agent"))
}

fn exchange(mut stream: UnixStream, path: &str) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.take(LARGEST).read_to_end(&mut answer)?;
    Ok(answer)
}

fn read(answer: &[u8]) -> anyhow::Result<(u16, String)> {
    let text = std::str::from_utf8(answer)?;
    let (head, body) = text.split_once("\r\n\r\n").context("the answer is not HTTP")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.context("the answer has no HTTP status")?, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_answer_is_said_to_be_none() {
        assert_eq!(
            read(b"HTTP/1.0 503 X\r\n\r\nnot ready: x\n").unwrap(),
            (503, "not ready: x\n".to_owned())
        );
        for odd in [&b""[..], b"HTTP/1.0", b"x\r\n\r\ny", b"\xff\r\n\r\n"] {
            assert!(read(odd).is_err());
        }
    }
}
