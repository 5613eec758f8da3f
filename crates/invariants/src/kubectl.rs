//! Properties that hold for every byte string that comes as WebSocket frames of a server. The fuzz target `websocket`, the replay
//! of its corpus and the property tests call this module.
//!
//! There are three properties. The messages and the error that ends them do not depend on the pieces in which the bytes come. The
//! buffer is bounded. A message is no longer than the bytes that it was read from, nor than its limit.

use seawall_kubectl::attach::frame::{FrameError, MAX_MESSAGE_BYTES, Message, MessageDecoder};

/// Most that a frame that is not whole may hold beside its payload.
const HEAD: usize = 10;

/// The messages of an input. Tests count them, so that an unreached property is noticed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecodedMessages {
    /// The messages, in order.
    pub messages: Vec<Message>,
    /// The error that ended the messages, if any.
    pub frame_error: Option<FrameError>,
}

/// The first byte is the length of the pieces, the rest what comes.
pub fn check(input: &[u8]) -> DecodedMessages {
    let Some((&length, bytes)) = input.split_first() else { return DecodedMessages::default() };
    let whole = read(&[bytes]);
    let pieces: Vec<&[u8]> = bytes.chunks(usize::from(length).max(1)).collect();
    assert_eq!(read(&pieces), whole, "in pieces of {length}");
    let told: usize = whole.messages.iter().map(size).sum();
    assert!(told <= bytes.len(), "{told} of {}", bytes.len());
    whole
}

fn read(pieces: &[&[u8]]) -> DecodedMessages {
    let (mut messages, mut seen) = (MessageDecoder::default(), DecodedMessages::default());
    for piece in pieces {
        messages.feed(piece);
        loop {
            match messages.next_message() {
                Ok(Some(message)) => seen.messages.push(message),
                Ok(None) => break,
                Err(broken) => return DecodedMessages { frame_error: Some(broken), ..seen },
            }
        }
        assert!(messages.buffered_bytes() <= 2 * MAX_MESSAGE_BYTES + HEAD, "{}", messages.buffered_bytes());
    }
    seen
}

/// Bytes of what is told; a reason that is no UTF-8 becomes longer, by a character of three bytes for each byte that is none.
fn size(message: &Message) -> usize {
    match message {
        Message::Data(bytes) => {
            assert!(bytes.len() <= MAX_MESSAGE_BYTES);
            bytes.len()
        }
        Message::Ping(bytes) => {
            assert!(bytes.len() <= 125);
            bytes.len()
        }
        Message::Pong => 0,
        Message::Close { reason, .. } => reason.len() / 3,
    }
}
