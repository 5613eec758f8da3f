//! For tests: an API server that is the test itself. Each call arrives as a value and waits for the test's answer.

use http::{Request, Response};
use kube::client::Body;
use seawall_core::Clock;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tower::BoxError;

use crate::client::{Client, Link};
use crate::config::Patience;

/// A call that waits. Dropping it breaks the connection.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) what: String,
    pub(crate) body: Value,
    answer: oneshot::Sender<Response<Body>>,
}

impl Asked {
    /// Answers. That the caller has given up is no error.
    pub(crate) fn answer(self, status: u16, body: &Value) {
        self.answer_lines(status, std::slice::from_ref(body));
    }

    /// Answers with a stream of events that ends.
    pub(crate) fn answer_lines(self, status: u16, lines: &[Value]) {
        let text: Vec<String> = lines.iter().map(Value::to_string).collect();
        let response = Response::builder().status(status).body(Body::from(text.join("\n").into_bytes()));
        let _ = self.answer.send(response.unwrap());
    }
}

/// A link to an API server, and the calls that it gets.
pub(crate) fn link(clock: Clock) -> (Link, mpsc::UnboundedReceiver<Asked>) {
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
    let kube = kube::Client::new(service, "default");
    let client = Client::over(kube, clock.clone());
    (Link { client, clock, patience: Patience::default() }, asked)
}
