//! Asks the agent that runs in this pod, for `probe` and `status`: its admin port, by the socket file where the configuration names one.
//!
//! One request on a connection of its own, with a limit on time and on size. What it is answered is the agent's own text.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

use crate::config::Door;

/// Longer than readiness takes for a listener (2 s), shorter than a person waits.
const PATIENCE: Duration = Duration::from_secs(5);

/// Beyond what `/debug/pods` says of the fullest node.
const LARGEST: u64 = 64 * 1024 * 1024;

/// What a probe is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    /// Whether a pod would be served now.
    Ready,
    /// Whether the agent goes on at all: one that is not ready, because of others, is not mended by another start.
    Live,
}

impl Asked {
    const fn path(self) -> &'static str {
        match self {
            Self::Ready => "/readyz",
            Self::Live => "/healthz",
        }
    }
}

/// What `probe` is for.
///
/// # Errors
/// Why not, or that nobody answers.
pub(crate) fn probe(door: &Door, asked: Asked) -> anyhow::Result<()> {
    let (status, body) = get(door, asked.path())?;
    anyhow::ensure!(status == 200, "{}", body.trim_end());
    Ok(())
}

/// What `status` prints: readiness, the configuration in force, and each pod with what it holds.
///
/// # Errors
/// Nobody answers, or not as an agent does.
pub(crate) fn status(door: &Door) -> anyhow::Result<String> {
    let (_, ready) = get(door, "/readyz")?;
    let (status, pods) = get(door, "/debug/pods")?;
    anyhow::ensure!(status == 200, "/debug/pods: {status} {}", pods.trim_end());
    let pods: Value = serde_json::from_str(&pods).context("/debug/pods")?;
    let mut text = ready;
    configuration(&pods["configuration"], &mut text);
    let pods = pods["pods"].as_array().context("/debug/pods names no pods")?;
    let _ = writeln!(text, "{} pod(s)", pods.len());
    for pod in pods {
        describe(pod, &mut text);
    }
    Ok(text)
}

/// Which configuration is in force, and whether another was refused since.
fn configuration(told: &Value, out: &mut String) {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let _ = writeln!(out, "configuration {} in force since {}", text(&told["sha256"]), text(&told["since"]));
    let refused = &told["refused"];
    if refused.is_object() {
        let (sha256, at, reason) = (text(&refused["sha256"]), text(&refused["at"]), text(&refused["reason"]));
        let _ = writeln!(out, "    {sha256} was refused at {at}: {reason}");
    }
}

/// A line for the pod, and one for each cloud that it may have something of.
fn describe(pod: &Value, out: &mut String) {
    let name = |key: &str| pod[key].as_str().unwrap_or("-").to_owned();
    let _ = writeln!(
        out,
        "{}/{}  {}  as {}  {} connection(s)",
        name("namespace"),
        name("pod"),
        name("address"),
        name("serviceAccount"),
        pod["openConnections"]
    );
    for (cloud, has) in pod.as_object().into_iter().flatten().filter(|(_, has)| has["standing"].is_string()) {
        let held = has["principals"].as_array().map(Vec::as_slice).unwrap_or_default();
        let lives = held.iter().filter_map(|principal| principal["expiresInSeconds"].as_u64());
        let least =
            lives.min().map_or(String::new(), |least| format!(", the shortest with {} min left", least / 60));
        let standing = has["standing"].as_str().unwrap_or("-");
        let _ = writeln!(out, "    {cloud}: {standing}, {} credential(s){least}", held.len());
    }
}

/// Status and body of what a page is answered.
fn get(door: &Door, path: &str) -> anyhow::Result<(u16, String)> {
    let connected = match &door.socket {
        Some(file) => UnixStream::connect(file).map(OwnedFd::from),
        None => TcpStream::connect_timeout(&door.admin, PATIENCE).map(OwnedFd::from),
    };
    // Reading, writing and their timeouts are the same for both families of sockets.
    let answered = connected.map(UnixStream::from).and_then(|stream| exchange(stream, path));
    let place = door.socket.as_ref().map_or(door.admin.to_string(), |file| file.display().to_string());
    let answered = answered.with_context(|| format!("the agent does not answer at {place}"))?;
    read(&answered).with_context(|| format!("no agent answers at {place}"))
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
    let (head, body) = text.split_once("\r\n\r\n").context("that is no answer of HTTP")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.context("that is no status of HTTP")?, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_a_line_and_so_is_each_cloud_that_it_asks() {
        let pod = json!({
            "namespace": "shop", "pod": "cart-0", "address": "10.4.0.7", "serviceAccount": "cart", "openConnections": 2,
            "google": { "standing": "federated", "principals": [{ "expiresInSeconds": 3000 }, { "expiresInSeconds": 1860 }] },
            "aws": { "standing": "no_role", "principals": [] },
        });
        let mut out = String::new();
        describe(&pod, &mut out);
        let expected = "shop/cart-0  10.4.0.7  as cart  2 connection(s)\n    aws: no_role, 0 credential(s)\n    \
                        google: federated, 2 credential(s), the shortest with 31 min left\n";
        assert_eq!(out, expected);
    }

    #[test]
    fn the_configuration_is_a_line_and_so_is_one_that_was_refused() {
        let mut out = String::new();
        configuration(&json!({ "sha256": "ab", "since": "T1", "refused": null }), &mut out);
        let refused = json!({ "sha256": "cd", "at": "T2", "reason": "listen: expected a list" });
        configuration(&json!({ "sha256": "ab", "since": "T1", "refused": refused }), &mut out);
        let expected = "configuration ab in force since T1\nconfiguration ab in force since T1\n    \
                        cd was refused at T2: listen: expected a list\n";
        assert_eq!(out, expected);
    }

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
