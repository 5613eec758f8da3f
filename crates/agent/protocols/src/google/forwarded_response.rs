//! Writes the parts of the real server's response that the agent forwards to the pod: the status, six headers, and the body.

use seawall_http::{ResponseContext, ResponseFraming, head_writer};

use super::respond::MetadataServerKind;

/// The real server's headers that the agent forwards to the client.
///
/// The body can be compressed. Without `Content-Encoding`, a client would mistake compressed bytes for text. The agent requests
/// no compression, but a server may compress.
const PASSED: [&str; 6] =
    ["Content-Type", "Content-Encoding", "ETag", "Location", "Cache-Control", "Retry-After"];

impl MetadataServerKind {
    /// Writes the real server's response (conceal mode): its status, the headers that metadata clients read, and its body.
    ///
    /// The function drops all other headers, such as hop-by-hop headers.
    pub fn write_forwarded<'h>(
        self,
        out: &mut Vec<u8>,
        frame: &ResponseContext<'_>,
        status: u16,
        headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
        body: &[u8],
    ) {
        self.write_forwarded_head(
            out,
            frame,
            status,
            headers,
            ResponseFraming::KnownLength(body.len() as u64),
        );
        if !frame.head_only {
            out.extend_from_slice(body);
        }
    }

    /// Writes the head of the real server's response. The caller then writes the body with the framing `length`.
    pub fn write_forwarded_head<'h>(
        self,
        out: &mut Vec<u8>,
        frame: &ResponseContext<'_>,
        status: u16,
        headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
        length: ResponseFraming,
    ) {
        frame.begin_head(out, status, self.constant_headers());
        let is_passed = |name: &str| PASSED.iter().any(|passed| name.eq_ignore_ascii_case(passed));
        for (name, value) in headers {
            if is_passed(name) && head_writer::is_header_value(value) {
                head_writer::write_header(out, name, value);
            }
        }
        length.end_head(out);
    }
}
