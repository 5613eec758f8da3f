//! What must hold for every byte string that comes as a server's WebSocket frames. Called by the fuzz target `websocket`, by the replay of
//! its corpus, and by the property tests.
//!
//! Three things. Wherever the pieces end in which bytes come, the messages are the same, and so is the mistake that ends them. What is held
//! is bounded. What is told was sent: a message is no longer than the bytes that it was read of, nor than it may be.

use seawall_kubectl::attach::frame::{FrameError, MAX_MESSAGE_BYTES, Message, MessageDecoder};

/// Most that a frame that is not whole may hold beside its payload.
const HEAD: usize = 10;

/// What an input turned out to be; tests count these so that a property which nothing reaches is seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecodedMessages {
    /// In their order.
    pub messages: Vec<Message>,
    /// What ended them, if anything did.
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
