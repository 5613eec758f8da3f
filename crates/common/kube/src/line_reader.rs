//! Reads a body line by line. Each event of a watch is one line.

use std::mem;

use bytes::Bytes;
use http_body_util::BodyExt;

use crate::failure::KubeError;
use crate::transport::ResponseBody;

/// The maximum size of a response and of a watch event, in bytes. Every object is smaller: etcd limits an object to 1.5 MiB
/// (`--max-request-bytes`), and JSON needs at most six bytes for one byte of text. Clients request longer lists in pages.
pub const MAX_RESPONSE_BYTES: usize = 16 * 1024 * 1024;

/// Reads the lines of a body.
pub struct LineReader {
    body: ResponseBody,
    split: LineSplitter,
}

impl std::fmt::Debug for LineReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lines")
    }
}

impl LineReader {
    /// Creates a reader for lines of at most [`MAX_RESPONSE_BYTES`] bytes.
    pub fn new(body: ResponseBody) -> Self {
        Self::with_max_length(MAX_RESPONSE_BYTES, body)
    }

    /// Creates a reader for lines of at most `longest` bytes.
    pub fn with_max_length(longest: usize, body: ResponseBody) -> Self {
        Self { body, split: LineSplitter::up_to(longest) }
    }

    /// Returns the next line, or the incomplete last line; `None` at the end of the body. Calls `heard` for each piece of the
    /// body that arrives. Dropping the future loses no data.
    ///
    /// # Errors
    /// The connection broke, or the line is too long.
    pub async fn next_line(&mut self, heard: impl Fn()) -> Result<Option<Bytes>, KubeError> {
        loop {
            if let Some(line) = self.split.line()? {
                return Ok(Some(line));
            }
            match self.body.frame().await {
                None => return Ok(self.split.rest()),
                // Ignore trailers.
                Some(frame) => self.split.take(frame?.into_data().unwrap_or_default()),
            }
            heard();
        }
    }
}

/// Splits the pieces of a body into lines. A line that arrived in one piece shares that piece's memory. Between lines the
/// splitter keeps no piece, because a piece would keep the connection's whole read buffer alive.
#[derive(Debug)]
struct LineSplitter {
    /// The maximum length of a line, in bytes.
    longest: usize,
    /// The beginning of an incomplete line.
    begun: Vec<u8>,
    /// The bytes in which the splitter has not searched for a line end yet.
    piece: Bytes,
}

impl LineSplitter {
    fn up_to(longest: usize) -> Self {
        Self { longest, begun: Vec::new(), piece: Bytes::new() }
    }

    /// Takes the next piece. Call this function only when [`line`](Self::line) has returned `None`.
    fn take(&mut self, piece: Bytes) {
        self.piece = piece;
    }

    /// Returns the next complete line with its line end; `None` if the line is not complete yet.
    fn line(&mut self) -> Result<Option<Bytes>, KubeError> {
        let Some(end) = self.piece.iter().position(|&byte| byte == b'\n') else {
            let piece = mem::take(&mut self.piece);
            self.keep(&piece)?;
            return Ok(None);
        };
        let line = self.piece.split_to(end + 1);
        if self.piece.is_empty() {
            self.piece = Bytes::new();
        }
        if self.begun.is_empty() {
            return Ok(Some(line));
        }
        self.keep(&line)?;
        Ok(self.rest())
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), KubeError> {
        if self.begun.len() + bytes.len() > self.longest {
            return Err(KubeError::TooLarge(self.longest));
        }
        self.begun.extend_from_slice(bytes);
        Ok(())
    }

    fn rest(&mut self) -> Option<Bytes> {
        Some(mem::take(&mut self.begun)).filter(|begun| !begun.is_empty()).map(Bytes::from)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns all lines of these pieces, with an incomplete line at the end if there is one.
    fn split(pieces: &[&[u8]]) -> Vec<Bytes> {
        let (mut split, mut lines) = (LineSplitter::up_to(MAX_RESPONSE_BYTES), Vec::new());
        for piece in pieces {
            split.take(Bytes::copy_from_slice(piece));
            while let Some(line) = split.line().unwrap() {
                lines.push(line);
            }
            assert!(split.piece.is_empty());
        }
        lines.extend(split.rest());
        lines
    }

    proptest! {
        #[test]
        fn lines_are_the_same_wherever_the_pieces_end(text in "[ab\n]{0,40}", cuts in prop::collection::vec(0..40_usize, 0..6)) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|two| &text.as_bytes()[two[0]..two[1]]).collect();
            let expected: Vec<&[u8]> = text.as_bytes().split_inclusive(|&byte| byte == b'\n').collect();
            prop_assert_eq!(split(&pieces), expected);
        }
    }

    #[test]
    fn a_line_without_an_end_is_given_up_at_the_bound() {
        let (mut split, piece) =
            (LineSplitter::up_to(MAX_RESPONSE_BYTES), Bytes::from(vec![b' '; MAX_RESPONSE_BYTES / 4]));
        for _ in 0..4 {
            split.take(piece.clone());
            assert_eq!(split.line(), Ok(None));
        }
        split.take(Bytes::from_static(b"x"));
        assert_eq!(split.line(), Err(KubeError::TooLarge(MAX_RESPONSE_BYTES)));
    }
}
