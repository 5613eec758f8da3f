//! The client side of WebSocket frames (RFC 6455): it decodes bytes to messages and encodes frames. It has no sockets and no channels of
//! Kubernetes.
//!
//! The memory is bounded by [`MAX_MESSAGE_BYTES`] for a message, and by that plus the unread input for a frame.

use std::mem;

use bytes::{BufMut, Bytes, BytesMut};

/// The largest message in bytes, over all its frames. It is far larger than the pieces that a kubelet sends (32 KiB).
pub const MAX_MESSAGE_BYTES: usize = 1024 * 1024;

/// The largest payload of a control frame, in bytes (section 5.5).
const LARGEST_CONTROL: usize = 125;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// A continuation of the current message.
    Continuation = 0,
    /// A text message in UTF-8.
    Text = 1,
    /// A binary message.
    Binary = 2,
    /// The end of the connection.
    Close = 8,
    /// A ping, which needs a pong as its answer.
    Ping = 9,
    /// The answer to a ping.
    Pong = 10,
}

impl Opcode {
    fn of(nibble: u8) -> Option<Self> {
        let all = [Self::Continuation, Self::Text, Self::Binary, Self::Close, Self::Ping, Self::Pong];
        all.into_iter().find(|opcode| *opcode as u8 == nibble)
    }

    fn is_control(self) -> bool {
        self as u8 >= 8
    }
}

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A complete text or binary message.
    Data(Bytes),
    /// A ping; the answer is a pong with the same bytes.
    Ping(Bytes),
    /// The answer to a ping.
    Pong,
    /// The end of the connection.
    Close {
        /// The close code (section 7.4); 1005 without one.
        code: u16,
        /// The reason of the server.
        reason: String,
    },
}

/// A violation of the protocol by the server. No further message can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame has reserved bits or an unknown opcode.
    #[error("a WebSocket frame of an unknown kind")]
    Opcode,
    /// The frame is masked, which only clients may do.
    #[error("a masked WebSocket frame from a server")]
    Masked,
    /// The message exceeds [`MAX_MESSAGE_BYTES`].
    #[error("a WebSocket message of more than {MAX_MESSAGE_BYTES} bytes")]
    TooLarge,
    /// A control frame is fragmented or too long.
    #[error("an invalid WebSocket control frame")]
    ControlFrame,
    /// A continuation without a message, or a message within another.
    #[error("WebSocket frames out of order")]
    Fragmentation,
}

/// Decodes bytes to messages.
#[derive(Debug, Default)]
pub struct MessageDecoder {
    unread: BytesMut,
    /// The frames of an incomplete message, if any.
    begun: Option<BytesMut>,
}

/// One frame.
struct Frame {
    is_last: bool,
    opcode: Opcode,
    payload: Bytes,
}

impl MessageDecoder {
    /// Adds received bytes, in pieces of any length.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    /// Returns the number of buffered bytes.
    pub fn buffered_bytes(&self) -> usize {
        self.unread.len() + self.begun.as_ref().map_or(0, BytesMut::len)
    }

    /// Returns the next message; `None` if it is incomplete.
    ///
    /// # Errors
    /// The server violates the protocol.
    pub fn next_message(&mut self) -> Result<Option<Message>, FrameError> {
        while let Some(Frame { is_last, opcode, payload }) = self.frame()? {
            match opcode {
                Opcode::Ping => return Ok(Some(Message::Ping(payload))),
                Opcode::Pong => return Ok(Some(Message::Pong)),
                Opcode::Close => return close(&payload).map(Some),
                Opcode::Continuation => self.more(&payload)?,
                Opcode::Text | Opcode::Binary if self.begun.is_some() => {
                    return Err(FrameError::Fragmentation);
                }
                Opcode::Text | Opcode::Binary if is_last => return Ok(Some(Message::Data(payload))),
                Opcode::Text | Opcode::Binary => self.begun = Some(payload.into()),
            }
            if is_last && let Some(message) = mem::take(&mut self.begun) {
                return Ok(Some(Message::Data(message.freeze())));
            }
        }
        Ok(None)
    }

    fn more(&mut self, payload: &[u8]) -> Result<(), FrameError> {
        let begun = self.begun.as_mut().ok_or(FrameError::Fragmentation)?;
        if begun.len() + payload.len() > MAX_MESSAGE_BYTES {
            return Err(FrameError::TooLarge);
        }
        begun.extend_from_slice(payload);
        Ok(())
    }

    /// Returns the next complete frame (section 5.2). An invalid head is refused before the payload arrives.
    fn frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let [first, second, ..] = *self.unread else { return Ok(None) };
        let opcode = Opcode::of(first & 0x0f).filter(|_| first & 0x70 == 0).ok_or(FrameError::Opcode)?;
        if second & 0x80 != 0 {
            return Err(FrameError::Masked);
        }
        let is_last = first & 0x80 != 0;
        let short = usize::from(second & 0x7f);
        if opcode.is_control() && (!is_last || short > LARGEST_CONTROL) {
            return Err(FrameError::ControlFrame);
        }
        let Some((head, length)) = self.length(short) else { return Ok(None) };
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= MAX_MESSAGE_BYTES)
            .ok_or(FrameError::TooLarge)?;
        if self.unread.len() < head + length {
            return Ok(None);
        }
        let payload = self.unread.split_to(head + length).split_off(head).freeze();
        Ok(Some(Frame { is_last, opcode, payload }))
    }

    /// Returns the lengths of the head and of the payload; `None` if the head is incomplete.
    fn length(&self, short: usize) -> Option<(usize, u64)> {
        match short {
            126 => {
                let bytes: [u8; 2] = self.unread.get(2..4)?.try_into().ok()?;
                Some((4, u16::from_be_bytes(bytes).into()))
            }
            127 => {
                let bytes: [u8; 8] = self.unread.get(2..10)?.try_into().ok()?;
                Some((10, u64::from_be_bytes(bytes)))
            }
            short => Some((2, short as u64)),
        }
    }
}

fn close(payload: &[u8]) -> Result<Message, FrameError> {
    match payload {
        [] => Ok(Message::Close { code: 1005, reason: String::new() }),
        [_] => Err(FrameError::ControlFrame),
        [high, low, reason @ ..] => {
            let reason = String::from_utf8_lossy(reason).into_owned();
            Ok(Message::Close { code: u16::from_be_bytes([*high, *low]), reason })
        }
    }
}

/// Encodes a complete client frame with this mask.
///
/// The mask prevents a web page from making a browser send bytes that a proxy would read as a request (section 10.3). This client sends
/// only its own bytes, so any mask is fine.
pub fn encode(opcode: Opcode, payload: &[u8], mask: [u8; 4]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(payload.len() + 14);
    bytes.put_u8(0x80 | opcode as u8);
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(short @ ..126), _) => bytes.put_u8(0x80 | short),
        (_, Ok(length)) => {
            bytes.put_u8(0x80 | 126);
            bytes.put_u16(length);
        }
        _ => {
            bytes.put_u8(0x80 | 127);
            bytes.put_u64(payload.len() as u64);
        }
    }
    bytes.put_slice(&mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<Message>, FrameError> {
        let (mut messages, mut read) = (MessageDecoder::default(), Vec::new());
        messages.feed(bytes);
        while let Some(message) = messages.next_message()? {
            read.push(message);
        }
        Ok(read)
    }

    fn data(text: &'static str) -> Message {
        Message::Data(Bytes::from_static(text.as_bytes()))
    }

    /// The examples are from RFC 6455, section 5.7.
    #[test]
    fn frames_are_read_and_written_as_the_standard_shows_them() {
        assert_eq!(read(&[0x81, 5, b'H', b'e', b'l', b'l', b'o']), Ok(vec![data("Hello")]));
        let parts = [&[0x01, 3][..], b"Hel", &[0x80, 2], b"lo"].concat();
        assert_eq!(read(&parts), Ok(vec![data("Hello")]));
        let masked = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
        assert_eq!(*encode(Opcode::Text, b"Hello", [0x37, 0xfa, 0x21, 0x3d]), masked);
        let long = [&[0x82, 0x7e, 1, 0][..], &[7; 256]].concat();
        assert_eq!(read(&long), Ok(vec![Message::Data(vec![7; 256].into())]));
        let longer = [&[0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0][..], &[7; 65536]].concat();
        assert_eq!(read(&longer), Ok(vec![Message::Data(vec![7; 65536].into())]));
    }

    #[test]
    fn control_frames_come_between_the_parts_of_a_message() {
        let close = [0x88, 4, 3, 0xe8, b'o', b'k'];
        let bytes = [&[0x01, 3][..], b"Hel", &[0x89, 2], b"hi", &[0x8a, 0], &[0x80, 2], b"lo", &close];
        let close = Message::Close { code: 1000, reason: "ok".into() };
        let ping = Message::Ping(Bytes::from_static(b"hi"));
        assert_eq!(read(&bytes.concat()), Ok(vec![ping, Message::Pong, data("Hello"), close]));
        assert_eq!(read(&[0x88, 0]), Ok(vec![Message::Close { code: 1005, reason: String::new() }]));
    }

    #[test]
    fn what_no_server_may_send_is_refused_at_its_head() {
        for (bytes, broken) in [
            (&[0x83, 0][..], FrameError::Opcode),
            (&[0xc2, 0], FrameError::Opcode),
            (&[0x82, 0x80], FrameError::Masked),
            (&[0x89, 126], FrameError::ControlFrame),
            (&[0x09, 0], FrameError::ControlFrame),
            (&[0x88, 1, 3], FrameError::ControlFrame),
            (&[0x80, 0], FrameError::Fragmentation),
            (&[0x02, 0, 0x82, 0], FrameError::Fragmentation),
            (&[0x82, 127, 0, 0, 0, 0, 0, 0x10, 0, 1], FrameError::TooLarge),
            (&[0x82, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], FrameError::TooLarge),
        ] {
            assert_eq!(read(bytes), Err(broken), "{bytes:x?}");
        }
    }

    #[test]
    fn a_message_of_many_frames_is_given_up_at_the_bound() {
        let half = (MAX_MESSAGE_BYTES as u64 / 2).to_be_bytes();
        let part = |first: u8| [&[first, 127][..], &half, &vec![0; MAX_MESSAGE_BYTES / 2]].concat();
        assert_eq!(read(&[part(0x02), part(0x80)].concat()).map(|read| read.len()), Ok(1));
        assert_eq!(read(&[part(0x02), part(0x00), vec![0x80, 1, 0]].concat()), Err(FrameError::TooLarge));
    }
}
