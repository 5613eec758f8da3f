//! The fingerprint of the requests and the route of a run, so that `--resume` continues only with the same requests and server.
//!
//! It contains no secret: headers, bodies and certificates are short digests. A change escapes a digest once in four thousand
//! million times. A full digest would tell whether a guess of a weak password is right.

use std::fmt::Write as _;

use anyhow::Context as _;
use aws_lc_rs::digest::{Context, SHA256};
use seawall_lab::find::find_report::RequestFingerprint;
use seawall_load::engine::TransportOptions;
use seawall_load::request_source::RequestList;

use super::reach_check::describe_route;
use crate::attack::connection_args::ConnectionArgs;

/// The length of a digest, in bytes.
const BYTES: usize = 4;

/// Makes the fingerprint of the requests and the route.
///
/// # Errors
/// The certificate cannot be read.
pub(super) fn fingerprint_requests(
    flags: &ConnectionArgs,
    travel: &TransportOptions,
    list: &RequestList,
    redirects: i64,
) -> anyhow::Result<RequestFingerprint> {
    let first = list.requests().first();
    let by = first.map(|first| describe_route(&travel.dial, first.origin())).unwrap_or_default();
    let certificate = flags.client_certificate_path().map(|file| {
        let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        anyhow::Ok(digest([&*text].into_iter()))
    });
    // Other conditions make another goal of the same requests.
    let requests = list.requests().iter().flat_map(|request| {
        let expected = request.expectations().into_iter().flat_map(|set| set.iter());
        let expected = expected.map(|condition| condition.source().as_bytes());
        [request.url().as_bytes(), request.bytes()].into_iter().chain(expected)
    });
    Ok(RequestFingerprint {
        via: Some(by.trim_start().to_owned()).filter(|by| !by.is_empty()),
        certificate_digest: certificate.transpose()?,
        requests_digest: digest(requests),
        settings: format!("{redirects} redirects; {}", flags.describe_settings()),
    })
}

/// The first bytes of one of all these texts, each with its length, in hexadecimal digits.
fn digest<'a>(texts: impl Iterator<Item = &'a [u8]>) -> String {
    let mut context = Context::new(&SHA256);
    for text in texts {
        context.update(&(text.len() as u64).to_be_bytes());
        context.update(text);
    }
    let whole = context.finish();
    whole.as_ref().iter().take(BYTES).fold(String::new(), |mut hex, byte| {
        // A string takes whatever is written to it.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_short_and_tells_texts_and_where_they_end_apart() {
        let of = |texts: &[&str]| digest(texts.iter().map(|text| text.as_bytes()));
        assert_eq!(of(&["a", "b"]).len(), 2 * BYTES);
        assert_eq!(of(&["a", "b"]), of(&["a", "b"]));
        assert!(of(&["ab", ""]) != of(&["a", "b"]) && of(&["a"]) != of(&["b"]));
    }
}
