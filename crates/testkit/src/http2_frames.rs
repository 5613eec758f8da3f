//! HTTP/2 from the server's side as bytes (RFC 9113), for servers that misbehave on purpose. No sockets.
//!
//! Knows frames and no more: heads are not decoded, and the one head that it makes says 200.

/// Bytes of the client's preface.
const PREFACE: usize = 24;

/// Bytes before each frame's payload.
const HEADER: usize = 9;

/// A frame that a client sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// Its settings, which are to be acknowledged.
    Settings,
    /// A request on this stream; true when it has no body.
    Request(u32, bool),
    /// A piece of a body; true for the last.
    Data(u32, usize, bool),
    /// It waits no longer for this stream.
    Reset(u32),
    /// It has room for so much more on this stream, or (0) on the connection.
    Window(u32, u32),
    /// Anything else.
    Other,
}

/// The client's bytes, as frames.
#[derive(Debug, Default)]
pub struct ClientFrameReader {
    read: Vec<u8>,
    greeted: bool,
}

impl ClientFrameReader {
    /// More bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.read.extend_from_slice(bytes);
    }

    /// Returns the number of bytes that are missing before [`ClientFrameReader::next_frame`] can return a frame.
    #[must_use]
    pub fn missing_bytes(&self) -> usize {
        let preface = if self.greeted { 0 } else { PREFACE };
        let rest = self.read.get(preface..).unwrap_or_default();
        let wanted = match rest {
            [a, b, c, ..] if rest.len() >= HEADER => HEADER + length([*a, *b, *c]),
            _ => HEADER,
        };
        (preface + wanted).saturating_sub(self.read.len())
    }

    /// The next whole frame.
    pub fn next_frame(&mut self) -> Option<Frame> {
        if self.missing_bytes() > 0 {
            return None;
        }
        if !std::mem::replace(&mut self.greeted, true) {
            self.read.drain(..PREFACE);
        }
        let bytes = &self.read;
        let payload = length([bytes[0], bytes[1], bytes[2]]);
        let number = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (kind, flags, stream) = (bytes[3], bytes[4], number(5) & 0x7fff_ffff);
        let frame = match kind {
            0 => Frame::Data(stream, payload, flags & 1 != 0),
            1 => Frame::Request(stream, flags & 1 != 0),
            3 => Frame::Reset(stream),
            4 if flags & 1 == 0 => Frame::Settings,
            8 => Frame::Window(stream, number(HEADER)),
            _ => Frame::Other,
        };
        self.read.drain(..HEADER + payload);
        Some(frame)
    }
}

fn length([a, b, c]: [u8; 3]) -> usize {
    usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![a, b, c, kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// The server's settings, all of them defaults.
#[must_use]
pub fn settings() -> Vec<u8> {
    frame(4, 0, 0, &[])
}

/// The client's settings are known.
#[must_use]
pub fn settings_ack() -> Vec<u8> {
    frame(4, 1, 0, &[])
}

/// The head of an answer: `:status: 200`, the eighth entry of the static table (RFC 7541, appendix A).
#[must_use]
pub fn headers(stream: u32) -> Vec<u8> {
    frame(1, 4, stream, &[0x88])
}

/// A piece of a body.
#[must_use]
pub fn data(stream: u32, bytes: &[u8], last: bool) -> Vec<u8> {
    frame(0, u8::from(last), stream, bytes)
}

/// A frame of a kind that is nobody's yet, which is passed over wherever it comes (RFC 9113, section 5.5): 40 bytes.
#[must_use]
pub fn unknown() -> Vec<u8> {
    frame(0xbe, 0, 0, &[0; 40 - HEADER])
}

/// An end of one stream, for a reason (RFC 9113, section 7).
#[must_use]
pub fn rst_stream(stream: u32, reason: u32) -> Vec<u8> {
    frame(3, 0, stream, &reason.to_be_bytes())
}

/// No stream after this one is looked at.
#[must_use]
pub fn goaway(last: u32) -> Vec<u8> {
    frame(7, 0, 0, &[last.to_be_bytes(), [0; 4]].concat())
}
