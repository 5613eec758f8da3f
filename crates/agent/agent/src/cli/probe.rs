//! Queries the agent that runs in this pod, for `probe` and `status`, at its admin port or its admin socket file.
//!
//! It sends one request on a connection of its own, with a limit on time and on size. The answer is the agent's own text.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use crate::config::AdminEndpoint;

/// The time limit: longer than readiness takes for a listener (2 s), shorter than a person waits.
const PATIENCE: Duration = Duration::from_secs(5);

/// The size limit: more than `/debug/pods` returns on the fullest node.
const LARGEST: u64 = 64 * 1024 * 1024;

/// The question of a probe.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProbeKind {
    /// Checks that the agent would serve a pod now.
    Ready,
    /// Checks that the agent runs at all.
    /// A restart does not help an agent that is not ready because of other systems.
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

/// Probes the agent that runs with this configuration file.
///
/// # Errors
/// The agent answers no, with the reason; or it does not answer.
pub(crate) fn probe(path: &Path, asked: ProbeKind) -> anyhow::Result<()> {
    let (status, body) = get(&AdminEndpoint::from_file(path)?, asked.path())?;
    anyhow::ensure!(status == 200, "{}", body.trim_end());
    Ok(())
}

/// Returns the status and the body of the answer for a path.
///
/// # Errors
/// No process answers, or the answer is not an agent's.
pub(super) fn get(door: &AdminEndpoint, path: &str) -> anyhow::Result<(u16, String)> {
    let connected = match &door.socket {
        Some(file) => UnixStream::connect(file).map(OwnedFd::from),
        None => TcpStream::connect_timeout(&door.admin, PATIENCE).map(OwnedFd::from),
    };
    // Reading, writing and their timeouts are the same for both families of sockets.
    let answered = connected.map(UnixStream::from).and_then(|stream| exchange(stream, path));
    let place = door.socket.as_ref().map_or(door.admin.to_string(), |file| file.display().to_string());
    let answered = answered.with_context(|| format!("the agent does not answer at {place}"))?;
    read(&answered).with_context(|| format!("the answer from {place} is not an agent's"))
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
