//! Properties that hold for any target file: reading it never panics, and a target that passed every check makes a request that a
//! strict reader reads as exactly that target. Called by `targets.rs` and by the fuzz target `target`.

use std::io::Cursor;

use seawall_http::request::header_buffer;
use seawall_http::{Framing, HeadLimits, Parsed, parse_request};
use seawall_load::request::{PreparedRequest, RequestFraming};
use seawall_load::target::{Target, TargetDefaults, TargetFormat, TargetReader};

/// Heads of any size: what a server would accept is not the question.
const LIMITS: HeadLimits = HeadLimits { max_head_bytes: 1 << 20, max_target_bytes: 1 << 20 };

/// The first byte chooses the format, the rest is the file.
pub fn check(input: &[u8]) {
    let Some((&choice, file)) = input.split_first() else { return };
    let format = if choice & 1 == 0 { TargetFormat::Http } else { TargetFormat::Json };
    // A body file may be a device without an end, or a pipe without a writer.
    if format == TargetFormat::Http && file.contains(&b'@') {
        return;
    }
    let style = RequestFraming {
        chunked: choice & 2 != 0,
        close: choice & 4 != 0,
        may_use_http2: true,
        ..RequestFraming::default()
    };
    let mut reader =
        TargetReader::new("input", Box::new(Cursor::new(file.to_vec())), format, TargetDefaults::default());
    while let Ok(Some((target, line))) = reader.next_target() {
        assert!(line >= 1 && line <= reader.line());
        if let Ok(request) = PreparedRequest::new(&target, &style) {
            reads_back(&request, &target, &style);
        }
    }
}

fn reads_back(request: &PreparedRequest, target: &Target, style: &RequestFraming) {
    let mut room = header_buffer();
    // More headers than a reader has room for, or a Host that the user made up, are the user's to answer for.
    let Ok(parsed) = parse_request(request.bytes(), &mut room, &LIMITS) else { return };
    let Parsed::Complete(head, taken) = parsed else { unreachable!("half a head: {:?}", request.bytes()) };
    assert_eq!(head.method, target.method);
    // A proxy is asked for the whole URL.
    let proxied = target.variant.as_ref().is_some_and(|variant| variant.proxies.is_some());
    assert!(
        head.target.starts_with('/') || proxied && head.target.starts_with("http://"),
        "{:?}",
        head.target
    );
    assert_eq!(head.keep_alive, !request.closes());
    let rest = &request.bytes()[taken..];
    match head.framing {
        Framing::Chunked => {
            assert!(style.chunked && !target.body.is_empty() && rest.ends_with(b"\r\n0\r\n\r\n"));
        }
        Framing::Length(length) => assert_eq!((rest, length), (&*target.body, target.body.len() as u64)),
        Framing::None => assert!(rest.is_empty() && target.body.is_empty()),
        Framing::UntilClose => unreachable!("no request lasts until close"),
    }
}
