//! For tests: an API server that is the test itself. Each call arrives as a value and waits for the test's answer.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use seawall_core::Clock;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tower::BoxError;

use crate::client::{Client, Link};
use crate::config::Patience;

/// A body, whole or still to come.
type Answer = UnsyncBoxBody<Bytes, Infallible>;

/// A call that waits. Dropping it breaks the connection.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) what: String,
    pub(crate) body: Value,
    answer: oneshot::Sender<Response<Answer>>,
}

impl Asked {
    /// Answers. That the caller has given up is no error.
    pub(crate) fn answer(self, status: u16, body: &Value) {
        self.answer_lines(status, std::slice::from_ref(body));
    }

    /// Answers with a stream of events that ends.
    pub(crate) fn answer_lines(self, status: u16, lines: &[Value]) {
        let text: Vec<String> = lines.iter().map(Value::to_string).collect();
        let response = Response::builder().status(status).body(Full::from(text.join("\n")).boxed_unsync());
        let _ = self.answer.send(response.unwrap());
    }

    /// Answers with a stream of events that stays open.
    pub(crate) fn answer_stream(self) -> Feed {
        let (feed, lines) = mpsc::unbounded_channel::<Value>();
        let frames = futures_util::stream::unfold(lines, |mut lines| async {
            let line = lines.recv().await?;
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from(format!("{line}\n")))), lines))
        });
        let response = Response::builder().body(StreamBody::new(frames).boxed_unsync());
        let _ = self.answer.send(response.unwrap());
        Feed(feed)
    }
}

/// The test's end of an open watch; dropping it ends the stream in order.
#[derive(Debug)]
pub(crate) struct Feed(mpsc::UnboundedSender<Value>);

impl Feed {
    /// Says one thing. It has then arrived at this machine; nobody has read it.
    pub(crate) fn say(&self, event: Value) {
        self.0.send(event).unwrap();
    }
}

/// A link to an API server, and the calls that it gets.
pub(crate) fn link(clock: Clock) -> (Link, mpsc::UnboundedReceiver<Asked>) {
    let (connect, asked) = fake(clock.clone());
    (Link { client: connect(), clock, patience: Patience::default() }, asked)
}

/// What makes the client of such a link, to be called in the runtime that is to carry it.
pub(crate) fn fake(clock: Clock) -> (impl FnOnce() -> Client + Send, mpsc::UnboundedReceiver<Asked>) {
    let (sender, asked) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: Request<Body>| {
        let sender = sender.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let (answer, response) = oneshot::channel();
            let what = format!("{} {}", head.method, head.uri);
            let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
            let _ = sender.send(Asked { what, body, answer });
            response.await.map_err(BoxError::from)
        }
    });
    (move || Client::over(kube::Client::new(service, "default"), clock), asked)
}
