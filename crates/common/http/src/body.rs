//! Finds the end of a message body. The end depends on a length, on chunks or on the end of the connection. The agent uses this
//! module to skip request bodies. The load engine uses it to find the next response. The decoder stores no bytes and does not
//! interpret the body. It checks trailers and chunk extensions and then drops them.

use crate::bytes;
use crate::limits::{MAX_CHUNK_EXTENSION_BYTES, MAX_TRAILER_BYTES};

/// The framing of a body (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// The message has no body.
    None,
    /// The body has exactly this number of bytes.
    Length(u64),
    /// The body uses the chunked transfer coding.
    Chunked,
    /// The body ends when the connection closes. Only responses use this framing.
    UntilClose,
}

/// A result of [`BodyDecoder::decode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEvent<'b> {
    /// Payload bytes, at least one, and the number of consumed buffer bytes (payload and framing).
    Data(&'b [u8], usize),
    /// The end of the body, with the number of consumed buffer bytes (trailers included).
    End(usize),
    /// The decoder needs more bytes. The value is the length of the buffer, which the decoder has consumed completely.
    NeedMore(usize),
}

/// Finds the end of one body. The body can arrive in pieces of any size. The decoder stores no body bytes.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    state: State,
}

/// The error for a chunked body with invalid framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed chunked body")]
pub struct BodyError;

impl BodyDecoder {
    /// Creates a decoder at the start of a body.
    pub fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Ended,
            Framing::Length(left) => State::Length(left),
            Framing::Chunked => State::Chunked(Chunked::START),
            Framing::UntilClose => State::UntilClose,
        };
        Self { state }
    }

    /// Creates a decoder at the start of a response's body.
    ///
    /// This decoder accepts white space between a chunk's size and the end of the line. Some servers write such white space to
    /// reserve space for a size that they write later. The decoder of [`BodyDecoder::new`] refuses such white space.
    pub fn of_response(framing: Framing) -> Self {
        let mut decoder = Self::new(framing);
        if let State::Chunked(chunked) = &mut decoder.state {
            chunked.allows_space_after_size = true;
        }
        decoder
    }

    /// Decodes the next bytes. Call this function again with the remaining bytes until it returns `End` or `NeedMore`. After an
    /// error, every further call fails. After the end, every further call returns `End`.
    ///
    /// # Errors
    /// The chunk framing is invalid.
    pub fn decode<'b>(&mut self, buf: &'b [u8]) -> Result<BodyEvent<'b>, BodyError> {
        match &mut self.state {
            State::Ended => Ok(BodyEvent::End(0)),
            State::Broken => Err(BodyError),
            _ if buf.is_empty() => Ok(BodyEvent::NeedMore(0)),
            State::UntilClose => Ok(BodyEvent::Data(buf, buf.len())),
            State::Length(left) => {
                let data = take(buf, left);
                if *left == 0 {
                    self.state = State::Ended;
                }
                Ok(BodyEvent::Data(data, data.len()))
            }
            State::Chunked(chunked) => {
                let found = chunked.decode(buf);
                match found {
                    Ok(BodyEvent::End(_)) => self.state = State::Ended,
                    Err(BodyError) => self.state = State::Broken,
                    Ok(_) => {}
                }
                found
            }
        }
    }

    /// True if the body is complete even if the connection closes now. False if that close would truncate the body.
    pub fn is_complete_at_eof(&self) -> bool {
        matches!(self.state, State::UntilClose | State::Ended)
    }
}

#[derive(Clone, Debug)]
enum State {
    Length(u64),
    Chunked(Chunked),
    UntilClose,
    Ended,
    Broken,
}

/// Returns the start of `buf`, at most `left` bytes, and subtracts the length of this part from `left`.
fn take<'b>(buf: &'b [u8], left: &mut u64) -> &'b [u8] {
    let length = usize::try_from(*left).map_or(buf.len(), |left| left.min(buf.len()));
    *left -= length as u64;
    &buf[..length]
}

/// A chunked body (RFC 9112 section 7.1). The decoder handles its framing byte by byte.
///
/// All lines must end with CRLF. If a proxy and this server disagreed on whether a bare LF ends a chunk extension, a client
/// could smuggle requests. Extensions and trailers have a limit per body, so a client cannot keep a connection busy with
/// framing alone.
#[derive(Clone, Debug)]
struct Chunked {
    at: At,
    /// The remaining bytes of this chunk. While the decoder reads the chunk size, this field contains the value of the digits
    /// so far.
    left: u64,
    extensions: usize,
    trailers: usize,
    allows_space_after_size: bool,
}

/// The part of a chunked body to which the next byte belongs.
#[derive(Clone, Copy, Debug)]
enum At {
    /// The chunk size, after this number of digits.
    Size(u8),
    /// White space after the chunk size. An extension follows, or in a response the end of the line.
    SizeSpace,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// The start of a trailer line, or of the empty line that ends the body.
    Trailer,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    End,
}

impl Chunked {
    const START: Self =
        Self { at: At::Size(0), left: 0, extensions: 0, trailers: 0, allows_space_after_size: false };

    fn decode<'b>(&mut self, buf: &'b [u8]) -> Result<BodyEvent<'b>, BodyError> {
        for (at, &byte) in buf.iter().enumerate() {
            if matches!(self.at, At::Data) {
                return Ok(self.data(buf, at));
            }
            self.at = self.step(byte)?;
            if matches!(self.at, At::End) {
                return Ok(BodyEvent::End(at + 1));
            }
        }
        Ok(BodyEvent::NeedMore(buf.len()))
    }

    fn data<'b>(&mut self, buf: &'b [u8], at: usize) -> BodyEvent<'b> {
        let data = take(&buf[at..], &mut self.left);
        if self.left == 0 {
            self.at = At::DataCr;
        }
        BodyEvent::Data(data, at + data.len())
    }

    /// Consumes one byte of framing.
    fn step(&mut self, byte: u8) -> Result<At, BodyError> {
        match (self.at, byte) {
            (At::Size(digits), byte) if byte.is_ascii_hexdigit() => self.digit(digits, byte),
            (At::Size(1..) | At::Extension, b'\r') => Ok(At::SizeLf),
            (At::SizeSpace, b'\r') if self.allows_space_after_size => Ok(At::SizeLf),
            (At::Size(1..) | At::SizeSpace, b';') => self.extension(At::Extension),
            (At::Size(1..) | At::SizeSpace, b' ' | b'\t') => self.extension(At::SizeSpace),
            (At::Extension, byte) if bytes::is_header_value_byte(byte) => self.extension(At::Extension),
            (At::SizeLf, b'\n') if self.left == 0 => Ok(At::Trailer),
            (At::SizeLf, b'\n') => Ok(At::Data),
            (At::DataCr, b'\r') => Ok(At::DataLf),
            (At::DataLf, b'\n') => Ok(At::Size(0)),
            (At::Trailer, b'\r') => Ok(At::EndLf),
            (At::EndLf, b'\n') => Ok(At::End),
            (at, byte) => self.trailer(at, byte),
        }
    }

    /// Adds a digit to the chunk size. The size has at most 16 digits, including leading zeros, so it fits into a `u64`.
    fn digit(&mut self, digits: u8, byte: u8) -> Result<At, BodyError> {
        let value = char::from(byte).to_digit(16).ok_or(BodyError)?;
        if digits == 16 {
            return Err(BodyError);
        }
        self.left = self.left << 4 | u64::from(value);
        Ok(At::Size(digits + 1))
    }

    fn extension(&mut self, next: At) -> Result<At, BodyError> {
        self.extensions += 1;
        if self.extensions > MAX_CHUNK_EXTENSION_BYTES { Err(BodyError) } else { Ok(next) }
    }

    fn trailer(&mut self, at: At, byte: u8) -> Result<At, BodyError> {
        self.trailers += 1;
        if self.trailers > MAX_TRAILER_BYTES {
            return Err(BodyError);
        }
        match (at, byte) {
            (At::Trailer | At::TrailerName, byte) if bytes::is_token_byte(byte) => Ok(At::TrailerName),
            (At::TrailerName, b':') => Ok(At::TrailerValue),
            (At::TrailerValue, byte) if bytes::is_header_value_byte(byte) => Ok(At::TrailerValue),
            (At::TrailerValue, b'\r') => Ok(At::TrailerLf),
            (At::TrailerLf, b'\n') => Ok(At::Trailer),
            _ => Err(BodyError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes the input in pieces of `step` bytes. Returns the payload and, if the body ended, the number of consumed bytes.
    fn decode(framing: Framing, input: &[u8], step: usize) -> Result<(Vec<u8>, Option<usize>), BodyError> {
        let (mut decoder, mut payload, mut taken) = (BodyDecoder::new(framing), Vec::new(), 0);
        for end in (0..=input.len()).step_by(step).chain([input.len()]) {
            loop {
                match decoder.decode(&input[taken..end])? {
                    BodyEvent::Data(data, used) => {
                        payload.extend_from_slice(data);
                        taken += used;
                    }
                    BodyEvent::End(used) => return Ok((payload, Some(taken + used))),
                    BodyEvent::NeedMore(used) => {
                        taken += used;
                        break;
                    }
                }
            }
        }
        Ok((payload, None))
    }

    fn chunked(input: &str) -> Result<(String, Option<usize>), BodyError> {
        let whole = decode(Framing::Chunked, input.as_bytes(), usize::MAX);
        assert_eq!(decode(Framing::Chunked, input.as_bytes(), 1), whole, "byte by byte");
        whole.map(|(payload, taken)| (String::from_utf8_lossy(&payload).into_owned(), taken))
    }

    fn ended(payload: &str, taken: usize) -> Result<(String, Option<usize>), BodyError> {
        Ok((payload.to_owned(), Some(taken)))
    }

    #[test]
    fn a_length_takes_its_bytes_and_no_more() {
        for step in 1..9 {
            let seen = decode(Framing::Length(5), b"helloHTTP", step);
            assert_eq!(seen, Ok((b"hello".to_vec(), Some(5))));
        }
        assert_eq!(decode(Framing::Length(5), b"hell", 9), Ok((b"hell".to_vec(), None)));
    }

    #[test]
    fn no_body_ends_before_the_first_byte() {
        assert_eq!(decode(Framing::None, b"HTTP", 9), Ok((vec![], Some(0))));
        assert_eq!(decode(Framing::Length(0), b"HTTP", 9), Ok((vec![], Some(0))));
        assert_eq!(
            BodyDecoder::new(Framing::None).decode(b""),
            Ok(BodyEvent::End(0)),
            "without waiting for bytes"
        );
    }

    #[test]
    fn until_close_takes_everything_and_only_the_connection_ends_it() {
        assert_eq!(decode(Framing::UntilClose, b"all", 2), Ok((b"all".to_vec(), None)));
    }

    #[test]
    fn the_end_of_the_connection_is_a_cut_unless_the_body_allows_it() {
        let after = |framing, input: &[u8]| {
            let mut decoder = BodyDecoder::new(framing);
            decoder.decode(input).map(|_| decoder.is_complete_at_eof())
        };
        assert_eq!(after(Framing::UntilClose, b"a"), Ok(true));
        assert_eq!(after(Framing::None, b""), Ok(true));
        assert_eq!(after(Framing::Length(2), b"a"), Ok(false));
        assert_eq!(after(Framing::Length(2), b"ab"), Ok(true));
        assert_eq!(after(Framing::Chunked, b"0\r\n\r"), Ok(false));
        assert_eq!(after(Framing::Chunked, b"0\r\n\r\n"), Ok(true));
    }

    #[test]
    fn chunks_are_joined_and_the_end_is_found() {
        assert_eq!(chunked("5\r\nhello\r\n0\r\n\r\nHTTP"), ended("hello", 15));
        assert_eq!(chunked("1\r\na\r\n0A\r\n0123456789\r\n000\r\n\r\n"), ended("a0123456789", 29));
        assert_eq!(chunked("5\r\nhel"), Ok(("hel".to_owned(), None)));
    }

    #[test]
    fn extensions_and_trailers_are_dropped() {
        assert_eq!(chunked("1;a=b;c=\"d e\"\r\na\r\n0;x\r\n\r\n"), ended("a", 25));
        assert_eq!(chunked("1 \t;a\r\na\r\n0\r\n\r\n"), ended("a", 15));
        assert_eq!(chunked("0\r\nA: b\r\nC:\r\n\r\n"), ended("", 15));
    }

    #[test]
    fn chunk_framing_that_two_readers_split_differently_is_refused() {
        for input in [
            "\r\n",
            ";a\r\n",
            "+5\r\n",
            "0x5\r\n",
            "g\r\n",
            "5\nhello",
            "5\rh",
            "5;a\nhello",
            "5;a\rb",
            "5;a\0\r\n",
            "5 \r\n",
            "5 5\r\n",
            "1\r\nab",
            "1\r\na\n",
            "1\r\na\r\r",
            "1\r\na0\r\n",
            "0\r\n\n",
            "0\r\nX\r\n",
            "0\r\n: a\r\n",
            "0\r\nX : a\r\n",
            "0\r\n X: a\r\n",
            "0\r\nX: a\n",
            "0\r\nX: a\r\n b\r\n",
            "0\r\nX: a\rb",
        ] {
            assert_eq!(chunked(input), Err(BodyError), "{input:?}");
        }
    }

    #[test]
    fn space_after_a_chunks_size_is_taken_in_responses_alone() {
        let body = b"5 \t\r\nhello\r\n0  \r\n\r\n";
        let mut decoder = BodyDecoder::of_response(Framing::Chunked);
        assert_eq!(decoder.decode(body), Ok(BodyEvent::Data(b"hello", 10)));
        assert_eq!(decoder.decode(&body[10..]), Ok(BodyEvent::End(9)));
        assert_eq!(BodyDecoder::of_response(Framing::Chunked).decode(b"5 5\r\n"), Err(BodyError));
        assert_eq!(BodyDecoder::new(Framing::Chunked).decode(body), Err(BodyError));
    }

    #[test]
    fn a_chunk_size_past_64_bits_is_refused() {
        assert_eq!(chunked("ffffffffffffffff\r\na"), Ok(("a".to_owned(), None)));
        assert_eq!(chunked("10000000000000000\r\n"), Err(BodyError));
        assert_eq!(chunked("00000000000000001\r\n"), Err(BodyError));
    }

    #[test]
    fn extensions_are_bounded_over_all_chunks() {
        let chunk = format!("1;{}\r\na\r\n", "x".repeat(1023));
        let most = chunk.repeat(MAX_CHUNK_EXTENSION_BYTES / 1024);
        assert!(chunked(&format!("{most}0\r\n\r\n")).is_ok());
        assert_eq!(chunked(&format!("{most}0;\r\n\r\n")), Err(BodyError));
    }

    #[test]
    fn trailers_are_bounded() {
        let line = "X: 345678901234\r\n";
        let most = line.repeat(MAX_TRAILER_BYTES / line.len());
        assert!(chunked(&format!("0\r\n{most}\r\n")).is_ok());
        assert_eq!(chunked(&format!("0\r\n{most}{line}\r\n")), Err(BodyError));
    }

    #[test]
    fn a_broken_body_stays_broken() {
        let mut decoder = BodyDecoder::new(Framing::Chunked);
        assert_eq!(decoder.decode(b"x"), Err(BodyError));
        assert_eq!(decoder.decode(b"0\r\n\r\n"), Err(BodyError));
        assert!(!decoder.is_complete_at_eof());
    }
}
