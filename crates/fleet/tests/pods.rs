//! The way to pods where it breaks: an API server that a test plays, which closes logs in the middle and refuses to attach.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use seawall_core::Clock;
use seawall_fleet::async_runtime_thread::ApiRuntime;
use seawall_fleet::job::{ClusterSession, Job, RunningPod};
use seawall_fleet::job_obstacles::KubectlContext;
use seawall_fleet::kubernetes_pod_channel::connect;
use seawall_fleet::pod_channel::WireEvent;
use seawall_kubectl::{Api, KubeconfigSelection};
use seawall_testkit::closure_server::{Peer, Server};
use seawall_testkit::waiting::wait_until_true;
use serde_json::{Value, json};

const PATIENT: Duration = Duration::from_secs(60);

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n";

/// A pod whose container has ended so, or not at all.
fn pod(exit_code: Option<u32>) -> Value {
    let state = exit_code.map_or_else(
        || json!({"running": {}}),
        |code| json!({"terminated": {"exitCode": code, "reason": "Error"}}),
    );
    let phase = if exit_code.is_some() { "Failed" } else { "Running" };
    json!({
        "metadata": {"name": "load-0"}, "spec": {"nodeName": "node1"},
        "status": {"phase": phase, "containerStatuses": [{"name": "seawall", "state": state}]},
    })
}

/// What the server has been asked, and how it goes on.
#[derive(Default)]
struct Played {
    logs: AtomicUsize,
    asked: Mutex<Vec<String>>,
    has_ended: Mutex<bool>,
}

impl Played {
    fn serve(&self, peer: &mut Peer) -> io::Result<()> {
        loop {
            let head = peer.read_request_head()?;
            let line = head.lines().next().unwrap_or_default().to_owned();
            self.asked.lock().unwrap().push(line.clone());
            if line.contains("/log?") {
                return self.log(peer);
            }
            if line.contains("watch=true") {
                return self.watch(peer);
            }
            let (status, body) = if line.contains("/attach?") {
                (
                    "500 Internal Server Error",
                    json!({"kind": "Status", "code": 500, "message": "its node is away"}),
                )
            } else {
                ("200 OK", json!({"metadata": {"resourceVersion": "1"}, "items": [pod(None)]}))
            };
            let body = body.to_string();
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            peer.send(answer.as_bytes())?;
        }
    }

    /// The first log breaks behind its second line; the next begins anew, and goes on to the third.
    fn log(&self, peer: &mut Peer) -> io::Result<()> {
        let lines = ["one", "two", "three"];
        let stamped =
            lines.iter().enumerate().map(|(at, text)| format!("2027-01-31T12:00:00.{at}Z {text}\n"));
        let is_first = self.logs.fetch_add(1, Ordering::SeqCst) == 0;
        peer.send(HEAD.as_bytes())?;
        for line in stamped.take(if is_first { 2 } else { 3 }) {
            peer.send(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes())?;
        }
        if is_first {
            return Ok(());
        }
        wait_until_true("the pod's end", || *self.has_ended.lock().unwrap());
        peer.send(b"0\r\n\r\n")
    }

    fn watch(&self, peer: &mut Peer) -> io::Result<()> {
        peer.send(HEAD.as_bytes())?;
        wait_until_true("the pod's end", || *self.has_ended.lock().unwrap());
        let event = format!("{}\n", json!({"type": "MODIFIED", "object": pod(Some(137))}));
        peer.send(format!("{:x}\r\n{event}\r\n0\r\n\r\n", event.len()).as_bytes())
    }
}

#[test]
fn a_log_that_breaks_is_read_on_behind_its_last_line_and_a_pods_end_is_told_after_it() {
    let played = Arc::new(Played::default());
    let server = played.clone();
    let stub = Server::start(move |mut peer, _| server.serve(&mut peer)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    let text = json!({
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{}", stub.address())}}],
        "users": [{"name": "c", "user": {}}],
    });
    std::fs::write(&file, text.to_string()).unwrap();
    let runtime = ApiRuntime::start().unwrap();
    let choice = KubeconfigSelection { context: None, kubeconfig: Some(file) };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let opening = async move { Api::open(&choice, provider, Clock::system()).await };
    let (api, _) = runtime.call(opening, || true).unwrap().unwrap();
    let place = KubectlContext { context: None, namespace: "reef".into() };
    let site = ClusterSession::new(api, Clock::system(), place);
    let job = Job { name: "load".into(), uid: "u".into(), pod_count: 1 };
    let (wire, _) =
        connect(&runtime, &site, &job, &[RunningPod { name: "load-0".into(), node: "node1".into() }]);
    assert_eq!(wire.names, ["load-0 on node1"]);
    let (mut lines, mut away) = (Vec::new(), Vec::new());
    loop {
        match wire.event_receiver.recv_timeout(PATIENT).unwrap() {
            WireEvent::Line { line, .. } => lines.push(line),
            WireEvent::Unreachable { why, .. } => away.push(why),
            WireEvent::Ended { why, .. } => {
                assert!(why.contains("137"), "{why}");
                break;
            }
        }
        if lines.len() == 3 {
            *played.has_ended.lock().unwrap() = true;
        }
    }
    assert_eq!(lines, ["one", "two", "three"], "each once, and all before the end");
    assert!(away.iter().any(|why| why.contains("its node is away")), "orders found no way: {away:?}");
    let asked = played.asked.lock().unwrap();
    let logs: Vec<_> = asked.iter().filter(|line| line.contains("/log?")).collect();
    assert!(!logs[0].contains("sinceSeconds") && logs[1].contains("sinceSeconds"), "{logs:?}");
}
