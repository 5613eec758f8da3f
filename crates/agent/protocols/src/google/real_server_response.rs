//! The parts of the real server's response that the pod gets: its status, six headers, its body.

use seawall_http::{ResponseContext, ResponseFraming, write};

use super::respond::MetadataServerKind;

/// The real server's headers that the client gets.
///
/// The content coding belongs to the body: without it a client would take compressed bytes for text. The agent asks for no coding, so an
/// upstream that uses one has decided so itself.
const PASSED: [&str; 6] =
    ["Content-Type", "Content-Encoding", "ETag", "Location", "Cache-Control", "Retry-After"];

impl MetadataServerKind {
    /// Writes the real server's response (conceal mode): its status, the headers that metadata clients read, its body.
    ///
    /// All other headers, such as hop-by-hop headers, are dropped.
    pub fn forwarded<'h>(
        self,
        out: &mut Vec<u8>,
        frame: &ResponseContext<'_>,
        status: u16,
        headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
        body: &[u8],
    ) {
        self.forwarded_head(out, frame, status, headers, ResponseFraming::Known(body.len() as u64));
        if !frame.head_only {
            out.extend_from_slice(body);
        }
    }

    /// Writes the head of the real server's response. The body follows in the framing that `length` gives.
    pub fn forwarded_head<'h>(
        self,
        out: &mut Vec<u8>,
        frame: &ResponseContext<'_>,
        status: u16,
        headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
        length: ResponseFraming,
    ) {
        frame.begin(out, status, self.headers());
        let is_passed = |name: &str| PASSED.iter().any(|passed| name.eq_ignore_ascii_case(passed));
        for (name, value) in headers {
            if is_passed(name) && write::is_value(value) {
                write::header(out, name, value);
            }
        }
        length.end_head(out);
    }
}
