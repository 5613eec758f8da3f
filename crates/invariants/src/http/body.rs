//! Properties that hold for any bytes given to a `BodyDecoder`.

use seawall_http::{BodyDecoder, BodyError, BodyEvent, Framing};

/// The result of feeding the input in pieces of one size.
#[derive(Debug, PartialEq)]
pub struct DecodedBody {
    /// The body without its framing.
    pub payload: Vec<u8>,
    /// The number of bytes of the body, `None` if it did not end, or the error if it is broken.
    pub end: Result<Option<usize>, BodyError>,
    /// True if the end of the connection would end the body here.
    pub is_complete_at_eof: bool,
}

/// Checks all of it.
pub fn check(input: &[u8]) {
    let half = input.len() as u64 / 2;
    for framing in [Framing::None, Framing::Length(half), Framing::Chunked, Framing::UntilClose] {
        let whole = decode(framing, &[input]);
        for size in [1, 2, 3, 7] {
            let pieces: Vec<_> = input.chunks(size).collect();
            assert_eq!(decode(framing, &pieces), whole, "{framing:?} in pieces of {size}");
        }
        check_outcome(framing, input, &whole);
    }
}

/// Decodes a body that arrives in these pieces.
pub fn decode(framing: Framing, pieces: &[&[u8]]) -> DecodedBody {
    let (mut decoder, mut payload, mut taken) = (BodyDecoder::new(framing), Vec::new(), 0);
    let mut end = decoder.decode(b"").map(|found| matches!(found, BodyEvent::End(0)).then_some(0));
    for piece in pieces {
        let mut rest = *piece;
        while end == Ok(None) && !rest.is_empty() {
            let used = match decoder.decode(rest) {
                Ok(BodyEvent::Data(data, used)) => {
                    assert!(!data.is_empty() && data.len() <= used);
                    payload.extend_from_slice(data);
                    used
                }
                Ok(BodyEvent::NeedMore(used)) => {
                    assert_eq!(used, rest.len(), "more is asked for only when all is taken");
                    used
                }
                Ok(BodyEvent::End(used)) => {
                    end = Ok(Some(taken + used));
                    used
                }
                Err(error) => {
                    end = Err(error);
                    0
                }
            };
            taken += used;
            rest = &rest[used..];
        }
    }
    end = end.and_then(|end| if end.is_none() { at_end(&mut decoder, taken) } else { Ok(end) });
    DecodedBody { payload, end, is_complete_at_eof: decoder.is_complete_at_eof() }
}

/// A body that ended with its last payload byte says so without another byte.
fn at_end(decoder: &mut BodyDecoder, taken: usize) -> Result<Option<usize>, BodyError> {
    Ok(matches!(decoder.decode(b"")?, BodyEvent::End(0)).then_some(taken))
}

fn check_outcome(framing: Framing, input: &[u8], seen: &DecodedBody) {
    match framing {
        Framing::None => assert_eq!((seen.payload.len(), seen.end), (0, Ok(Some(0)))),
        Framing::Length(length) => {
            assert_eq!(seen.payload, input[..length as usize]);
            assert_eq!(seen.end, Ok(Some(length as usize)));
        }
        Framing::UntilClose => {
            assert_eq!((seen.payload.as_slice(), seen.end, seen.is_complete_at_eof), (input, Ok(None), true));
        }
        Framing::Chunked => {
            assert_eq!(seen.is_complete_at_eof, matches!(seen.end, Ok(Some(_))));
            if let Ok(Some(end)) = seen.end {
                assert!(input[..end].ends_with(b"\r\n\r\n"));
                assert_eq!(seen.payload, payload_by_the_book(&input[..end]));
            }
        }
    }
}

/// The payload of a whole chunked body, its size lines read by httparse.
fn payload_by_the_book(mut body: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    loop {
        let Ok(httparse::Status::Complete((line, size))) = httparse::parse_chunk_size(body) else {
            panic!("a size line that httparse refuses")
        };
        let size = usize::try_from(size).expect("a chunk that is here");
        body = &body[line..];
        if size == 0 {
            return payload;
        }
        payload.extend_from_slice(&body[..size]);
        body = body[size..].strip_prefix(b"\r\n").expect("CRLF behind a chunk");
    }
}
