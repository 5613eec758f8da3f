//! Reads a response from bytes: the result is a head and a body, or the reason why the response is invalid.

use std::fmt;

use seawall_http::limits::MAX_HEADERS;
use seawall_http::{BodyDecoder, BodyEvent, Framing, HeadLimits, Parsed, parse_response};

use crate::FetchError;

/// The most bytes of heads, chunk lines and trailers, in addition to the body.
const MOST_FRAMING: usize = 1 << 20;

/// A complete response. Its `Debug` output hides the body, which may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct FetchResponse {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl FetchResponse {
    /// Creates a response from these parts.
    #[must_use]
    pub fn new(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Self {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Self { status, headers: headers.collect(), body: body.to_vec() }
    }

    /// Returns the status, 100 to 999.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the first header with this name, in any letter case; empty if there is none. Bytes that are not UTF-8 are
    /// replaced.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }

    /// Returns the body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Returns the body as text. Bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl fmt::Debug for FetchResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FetchResponse({}, {} bytes)", self.status, self.body.len())
    }
}

/// A response whose end may not have arrived yet.
pub(crate) struct PartialResponse<'a> {
    method: &'a str,
    /// The largest body in bytes.
    most: usize,
    /// The received bytes that are not parsed yet.
    pending: Vec<u8>,
    /// The number of received bytes.
    came: usize,
    ends: Option<(BodyDecoder, Framing)>,
    answer: FetchResponse,
}

impl<'a> PartialResponse<'a> {
    pub(crate) fn new(method: &'a str, most: usize) -> Self {
        let answer = FetchResponse::new(0, &[], &[]);
        Self { method, most, pending: Vec::new(), came: 0, ends: None, answer }
    }

    pub(crate) fn into_response(self) -> FetchResponse {
        self.answer
    }

    /// Takes received bytes; an empty slice means that the connection ended. Returns true if the response is complete.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<bool, FetchError> {
        self.came += bytes.len();
        if self.came > self.most + MOST_FRAMING {
            return Err(FetchError::TooLarge(self.most));
        }
        self.pending.extend_from_slice(bytes);
        if self.ends.is_none() {
            self.head()?;
        }
        let whole = self.decode()?;
        match self.ends {
            _ if whole => Ok(true),
            Some((_, Framing::UntilClose)) if bytes.is_empty() => Ok(true),
            _ if bytes.is_empty() => Err(FetchError::ConnectionBroken(
                "the connection ended before the end of the response".to_owned(),
            )),
            _ => Ok(false),
        }
    }

    fn head(&mut self) -> Result<(), FetchError> {
        let mut room = [const { std::mem::MaybeUninit::uninit() }; MAX_HEADERS];
        let parsed = parse_response(&self.pending, self.method, &mut room, &HeadLimits::default());
        let (head, taken) = match parsed.map_err(|error| FetchError::InvalidResponse(error.to_string()))? {
            Parsed::Complete(head, taken) => (head, taken),
            Parsed::Partial => return Ok(()),
        };
        self.answer.status = head.status;
        let headers = head.headers.iter();
        self.answer.headers = headers
            .map(|header| (header.name.to_owned(), String::from_utf8_lossy(header.value).into_owned()))
            .collect();
        self.ends = Some((BodyDecoder::of_response(head.framing), head.framing));
        self.pending.drain(..taken);
        Ok(())
    }

    fn decode(&mut self) -> Result<bool, FetchError> {
        let Some((decoder, _)) = &mut self.ends else { return Ok(false) };
        let mut at = 0;
        loop {
            let decoded = decoder.decode(&self.pending[at..]);
            match decoded.map_err(|_| FetchError::InvalidResponse("malformed chunked body".to_owned()))? {
                BodyEvent::Data(data, taken) => {
                    self.answer.body.extend_from_slice(data);
                    at += taken;
                    if self.answer.body.len() > self.most {
                        return Err(FetchError::TooLarge(self.most));
                    }
                }
                BodyEvent::End(_) => return Ok(true),
                BodyEvent::NeedMore(_) => {
                    self.pending.clear();
                    return Ok(false);
                }
            }
        }
    }
}
