//! The stream of one open page: server-sent events (HTML Standard, section 9.2), of which the newest counts.
//!
//! An event says everything, so that whoever misses some lacks nothing: a reader that is slow is told less often, and what waits
//! for it is one event and what the kernel holds of another.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Events of one stream, as a body.
pub(super) struct EventStreamBody(Receiver<Bytes>);

/// A stream, and where it comes out.
pub(super) fn event_stream_channel() -> (Sender<Bytes>, EventStreamBody) {
    let (sender, events) = channel(1);
    (sender, EventStreamBody(events))
}

/// An event, of which the text has no line breaks.
pub(super) fn format_event(name: &str, text: &str) -> Bytes {
    format!("event: {name}\ndata: {text}\n\n").into()
}

impl Body for EventStreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}
