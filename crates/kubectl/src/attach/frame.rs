//! WebSocket frames from a client's side (RFC 6455): bytes in, messages out, and back. No sockets, no channels of Kubernetes.
//!
//! Whatever comes, what is held is bounded: by [`LARGEST`] for a message that has begun, and by that and what was taken since for a frame.

use std::mem;

use bytes::{BufMut, Bytes, BytesMut};

/// Largest message, in bytes, of however many frames: far more than the pieces in which a kubelet sends (32 KiB).
pub const LARGEST: usize = 1024 * 1024;

/// Largest payload of a control frame, in bytes (section 5.5).
const LARGEST_CONTROL: usize = 125;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// More of the message before.
    Continuation = 0,
    /// UTF-8.
    Text = 1,
    /// Bytes.
    Binary = 2,
    /// The end.
    Close = 8,
    /// To be answered with a pong.
    Ping = 9,
    /// An answer to a ping.
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

/// What came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// All of a message, text or bytes.
    Data(Bytes),
    /// To be answered with a pong of the same bytes.
    Ping(Bytes),
    /// An answer to a ping.
    Pong,
    /// The end.
    Close {
        /// Section 7.4; 1005 if none was given.
        code: u16,
        /// In words.
        reason: String,
    },
}

/// How a server did not keep to the protocol. Nothing can be read after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Bits that no extension was agreed on for, or an opcode that there is not.
    #[error("a WebSocket frame of an unknown kind")]
    Opcode,
    /// Only clients mask.
    #[error("a masked WebSocket frame from a server")]
    Masked,
    /// More than [`LARGEST`].
    #[error("a WebSocket message of more than {LARGEST} bytes")]
    TooLarge,
    /// In parts, or longer than it may be.
    #[error("an invalid WebSocket control frame")]
    ControlFrame,
    /// More of nothing, or a message within another.
    #[error("WebSocket frames out of order")]
    Fragmentation,
}

/// Bytes to messages.
#[derive(Debug, Default)]
pub struct MessageDecoder {
    unread: BytesMut,
    /// A message of which frames have come, if one has begun.
    begun: Option<BytesMut>,
}

/// One frame.
struct Frame {
    is_last: bool,
    opcode: Opcode,
    payload: Bytes,
}

impl MessageDecoder {
    /// Takes what came, in pieces of any length.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    /// How many bytes are held.
    pub fn buffered_bytes(&self) -> usize {
        self.unread.len() + self.begun.as_ref().map_or(0, BytesMut::len)
    }

    /// The next message; `None` if more has to come.
    ///
    /// # Errors
    /// The server does not keep to the protocol.
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
        if begun.len() + payload.len() > LARGEST {
            return Err(FrameError::TooLarge);
        }
        begun.extend_from_slice(payload);
        Ok(())
    }

    /// The next frame, once it is whole (section 5.2). What cannot be one is refused at its head.
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
        let length =
            usize::try_from(length).ok().filter(|length| *length <= LARGEST).ok_or(FrameError::TooLarge)?;
        if self.unread.len() < head + length {
            return Ok(None);
        }
        let payload = self.unread.split_to(head + length).split_off(head).freeze();
        Ok(Some(Frame { is_last, opcode, payload }))
    }

    /// Bytes of the head and of the payload; `None` if more has to come.
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

/// A whole frame of a client's, masked with this.
///
/// The mask keeps what a page makes a browser send from reading like a request to a proxy on the way (section 10.3). What is sent here
/// is our own, so any numbers will do.
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

    /// The examples of RFC 6455, section 5.7.
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
        let half = (LARGEST as u64 / 2).to_be_bytes();
        let part = |first: u8| [&[first, 127][..], &half, &vec![0; LARGEST / 2]].concat();
        assert_eq!(read(&[part(0x02), part(0x80)].concat()).map(|read| read.len()), Ok(1));
        assert_eq!(read(&[part(0x02), part(0x00), vec![0x80, 1, 0]].concat()), Err(FrameError::TooLarge));
    }
}
