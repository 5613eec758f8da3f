//! A fake API server for tests. Each call arrives at the test as a value and waits for the test's response.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use seawall_core::Clock;
use seawall_kube::{
    ApiServerTransport, KubeClient, KubeError, KubeTimeouts, ResponseBody, ResponseFuture, TimedKubeClient,
};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

/// A call that waits for its response. Dropping the call breaks the connection.
#[derive(Debug)]
pub(crate) struct FakeCall {
    pub(crate) method_and_uri: String,
    pub(crate) body: Value,
    answer: oneshot::Sender<Response<ResponseBody>>,
}

impl FakeCall {
    /// Responds to the call. Does nothing if the client has given up.
    pub(crate) fn answer(self, status: u16, body: &Value) {
        self.answer_lines(status, std::slice::from_ref(body));
    }

    /// Responds with a stream of events that ends.
    pub(crate) fn answer_lines(self, status: u16, lines: &[Value]) {
        let text: Vec<String> = lines.iter().map(Value::to_string).collect();
        self.answer_text(status, text.join("\n"));
    }

    /// Responds with this status and text.
    pub(crate) fn answer_text(self, status: u16, text: String) {
        let response = Response::builder().status(status).body(body(Full::from(text)));
        let _ = self.answer.send(response.unwrap());
    }

    /// Responds to a streamed list with these objects at this version. The stream stays open.
    pub(crate) fn answer_streamed_list(self, version: u32, objects: &[Value]) -> FakeWatchStream {
        assert!(self.method_and_uri.contains("sendInitialEvents=true"), "{}", self.method_and_uri);
        let stream = self.answer_stream();
        for object in objects {
            stream.send_event(&json!({"type": "ADDED", "object": object}));
        }
        stream.send_event(&json!({
            "type": "BOOKMARK",
            "object": {
                "kind": "Pod",
                "metadata": {
                    "resourceVersion": version.to_string(),
                    "annotations": {"k8s.io/initial-events-end": "true"},
                },
            },
        }));
        stream
    }

    /// Responds with a stream of events that stays open.
    pub(crate) fn answer_stream(self) -> FakeWatchStream {
        let (feed, pieces) = mpsc::unbounded_channel::<Bytes>();
        let frames = futures_util::stream::unfold(pieces, |mut pieces| async {
            let piece = pieces.recv().await?;
            // A real connection, too, delivers one piece each time the runtime asks the kernel for input.
            tokio::task::yield_now().await;
            Some((Ok::<_, Infallible>(Frame::data(piece)), pieces))
        });
        let response = Response::builder().body(body(StreamBody::new(frames)));
        let _ = self.answer.send(response.unwrap());
        FakeWatchStream(feed)
    }
}

/// The server's end of an open watch. Dropping this value ends the stream normally.
#[derive(Debug)]
pub(crate) struct FakeWatchStream(mpsc::UnboundedSender<Bytes>);

impl FakeWatchStream {
    /// Sends one event. The event has then arrived at this machine, but no task has read it yet.
    pub(crate) fn send_event(&self, event: &Value) {
        self.send_event_in_pieces(event, 1);
    }

    /// Sends one event like [`Self::send_event`], split into at least this number of pieces.
    pub(crate) fn send_event_in_pieces(&self, event: &Value, pieces: usize) {
        let text = format!("{event}\n").into_bytes();
        for piece in text.chunks(text.len().div_ceil(pieces)) {
            self.0.send(Bytes::copy_from_slice(piece)).unwrap();
        }
    }
}

/// Returns a client of a fake API server, and the calls that the server receives.
pub(crate) fn client_of_fake_server(clock: Clock) -> (TimedKubeClient, mpsc::UnboundedReceiver<FakeCall>) {
    let (connect, asked) = fake_client_factory(clock.clone());
    (TimedKubeClient { client: connect(), clock, timeouts: KubeTimeouts::default() }, asked)
}

/// Returns a function that creates a client of a fake API server, and a receiver of the client's calls. Call the function in
/// the runtime that drives the client's connections.
pub(crate) fn fake_client_factory(
    clock: Clock,
) -> (impl FnOnce() -> KubeClient + Send, mpsc::UnboundedReceiver<FakeCall>) {
    let (sender, asked) = mpsc::unbounded_channel();
    (move || KubeClient::with_transport(Arc::new(Fake(sender)), clock), asked)
}

struct Fake(mpsc::UnboundedSender<FakeCall>);

impl ApiServerTransport for Fake {
    fn send_request(&self, request: Request<Bytes>) -> ResponseFuture<'_> {
        let (answer, response) = oneshot::channel();
        let what = format!("{} {}", request.method(), request.uri());
        let body = serde_json::from_slice(request.body()).unwrap_or(Value::Null);
        let _ = self.0.send(FakeCall { method_and_uri: what, body, answer });
        Box::pin(async { response.await.map_err(|error| KubeError::unreachable(&error)) })
    }
}

fn body(body: impl hyper::body::Body<Data = Bytes, Error = Infallible> + Send + 'static) -> ResponseBody {
    body.map_err(|error| match error {}).boxed_unsync()
}
