//! The bytes of responses, each built once.

use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct ResponseCache {
    body: Vec<u8>,
    made: HashMap<ResponseKey, Arc<[u8]>>,
}

/// The properties that tell responses apart: the status, the server of a balancer, two flags. There are few, so all responses are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ResponseKey {
    pub(super) status: u16,
    pub(super) server: Option<u8>,
    pub(super) is_head: bool,
    pub(super) closes: bool,
}

impl ResponseCache {
    /// Creates the responses. Good ones have a body of this size.
    pub(super) fn new(body: usize) -> Self {
        Self { body: vec![b'.'; body], made: HashMap::new() }
    }

    pub(super) fn answer(&mut self, shape: ResponseKey) -> Arc<[u8]> {
        let (body, made) = (&self.body, &mut self.made);
        made.entry(shape).or_insert_with(|| bytes(shape, body)).clone()
    }

    /// Returns the size of a good response in bytes.
    pub(super) fn ok_response_bytes(&self, is_head: bool) -> usize {
        let body = if is_head { 0 } else { self.body.len() };
        head_length(self.body.len()) + body
    }
}

/// Returns the size of the head of a good response with this body.
pub(crate) fn head_length(body: usize) -> usize {
    "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n".len() + body.to_string().len()
}

fn bytes(shape: ResponseKey, good: &[u8]) -> Arc<[u8]> {
    let reason = reason(shape.status);
    let refusal = format!("{reason}\n");
    let body = if shape.status == 200 { good } else { refusal.as_bytes() };
    let mut head = format!("HTTP/1.1 {} {reason}\r\nContent-Length: {}\r\n", shape.status, body.len());
    if let Some(server) = shape.server {
        head.push_str(&format!("Server-Id: {server}\r\n"));
    }
    head.push_str(if shape.closes { "Connection: close\r\n\r\n" } else { "\r\n" });
    [head.as_bytes(), if shape.is_head { &[] } else { body }].concat().into()
}

/// Returns the reason phrase of a status (RFC 9110 section 15).
fn reason(status: u16) -> &'static str {
    http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("Refused")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_length_that_they_say() {
        let mut answers = ResponseCache::new(12);
        let shape = ResponseKey { status: 200, server: None, is_head: false, closes: false };
        assert_eq!(&*answers.answer(shape), b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n............");
        assert_eq!(answers.answer(shape).len(), answers.ok_response_bytes(false));
        let head = answers.answer(ResponseKey { is_head: true, ..shape });
        assert_eq!(
            (&*head, head.len()),
            (&b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n"[..], answers.ok_response_bytes(true))
        );
        let refused = answers.answer(ResponseKey { status: 429, server: Some(3), closes: true, ..shape });
        let text = String::from_utf8_lossy(&refused);
        assert!(
            text.starts_with("HTTP/1.1 429 Too Many Requests\r\n")
                && text.ends_with("\r\n\r\nToo Many Requests\n")
        );
        assert!(text.contains("Server-Id: 3\r\nConnection: close\r\n"));
    }
}
