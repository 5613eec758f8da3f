//! Parses the head of a request: the end of head and body, whether the method is HEAD, and whether the connection stays open.
//!
//! This is enough for load generators and curl; the other headers are ignored.

/// The longest head in bytes.
const LONGEST: usize = 16 * 1024;

/// The longest body in bytes. The server reads and discards bodies.
const LONGEST_BODY: u64 = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The length of the head, including the empty line.
    pub(super) head_bytes: usize,
    pub(super) body_bytes: u64,
    pub(super) is_head: bool,
    pub(super) closes: bool,
}

/// The reason why a head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadError {
    Bad,
    TooLong,
    /// The request has a body without a length.
    NoLength,
    BodyTooLong,
}

impl HeadError {
    /// Returns the status of the refusal (RFC 9110 section 15.5, RFC 6585 section 5).
    pub(super) fn status(self) -> u16 {
        match self {
            Self::Bad => 400,
            Self::NoLength => 411,
            Self::BodyTooLong => 413,
            Self::TooLong => 431,
        }
    }
}

/// Reads the first head in these bytes; none if it is incomplete.
pub(super) fn read(bytes: &[u8]) -> Result<Option<Head>, HeadError> {
    let Some(end) = bytes.windows(4).take(LONGEST).position(|four| four == b"\r\n\r\n") else {
        return if bytes.len() >= LONGEST { Err(HeadError::TooLong) } else { Ok(None) };
    };
    let mut lines = bytes[..end].split(|byte| *byte == b'\n').map(|line| line.trim_ascii_end());
    let mut head = request_line(lines.next().unwrap_or_default(), end + 4)?;
    lines.try_for_each(|line| head.field(line))?;
    if head.body_bytes > LONGEST_BODY { Err(HeadError::BodyTooLong) } else { Ok(Some(head)) }
}

/// Parses `METHOD TARGET HTTP/1.x`.
fn request_line(line: &[u8], length: usize) -> Result<Head, HeadError> {
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let is_line = words.next().is_none() && target.is_some_and(|target| !target.is_empty());
    let closes = match version {
        Some(b"HTTP/1.1") => false,
        Some(b"HTTP/1.0") => true,
        _ => return Err(HeadError::Bad),
    };
    let is_method =
        method.is_some_and(|method| !method.is_empty() && method.iter().all(u8::is_ascii_uppercase));
    let head = Head { head_bytes: length, body_bytes: 0, is_head: method == Some(b"HEAD"), closes };
    if is_line && is_method { Ok(head) } else { Err(HeadError::Bad) }
}

impl Head {
    fn field(&mut self, line: &[u8]) -> Result<(), HeadError> {
        let colon = line.iter().position(|byte| *byte == b':').ok_or(HeadError::Bad)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"connection") {
            self.connection(value);
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let digits = Some(value).filter(|value| value.iter().all(u8::is_ascii_digit));
            let number = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
            self.body_bytes = number.ok_or(HeadError::Bad)?;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            return Err(HeadError::NoLength);
        }
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) {
        for word in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if word.eq_ignore_ascii_case(b"close") {
                self.closes = true;
            } else if word.eq_ignore_ascii_case(b"keep-alive") {
                self.closes = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_end_at_the_empty_line_and_say_what_follows() {
        let get = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET";
        assert_eq!(
            read(get),
            Ok(Some(Head { head_bytes: get.len() - 3, body_bytes: 0, is_head: false, closes: false }))
        );
        assert_eq!(read(&get[..20]), Ok(None));
        let head = read(b"HEAD /x HTTP/1.1\r\nconnection: x, Close\r\n\r\n").unwrap().unwrap();
        assert!(head.is_head && head.closes);
        let post = read(b"POST /x HTTP/1.1\r\nContent-Length: 12\r\n\r\n").unwrap().unwrap();
        assert_eq!((post.body_bytes, post.closes), (12, false));
        assert!(read(b"GET / HTTP/1.0\r\n\r\n").unwrap().unwrap().closes);
        assert!(!read(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").unwrap().unwrap().closes);
    }

    #[test]
    fn what_is_no_head_is_refused() {
        for (bytes, refusal) in [
            (&b"\r\n\r\n"[..], HeadError::Bad),
            (b"GET / HTTP/2.0\r\n\r\n", HeadError::Bad),
            (b"get / HTTP/1.1\r\n\r\n", HeadError::Bad),
            (b"GET  HTTP/1.1\r\n\r\n", HeadError::Bad),
            (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", HeadError::Bad),
            (b"GET / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", HeadError::Bad),
            (b"GET / HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n", HeadError::BodyTooLong),
            (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", HeadError::NoLength),
            (&[b'x'; LONGEST], HeadError::TooLong),
        ] {
            assert_eq!(
                read(bytes),
                Err(refusal),
                "{}",
                String::from_utf8_lossy(&bytes[..bytes.len().min(40)])
            );
        }
    }
}
