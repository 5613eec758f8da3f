//! Packs a large value into one line: JSON, deflated, in base64.

use std::io::{Read, Write};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The most bytes that a line may inflate to: enough for a million requests.
const MAX_INFLATED: u64 = 512 << 20;

/// Encodes a value; none if it cannot be serialised.
pub(super) fn pack(value: &impl Serialize) -> Option<String> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    serde_json::to_writer(&mut encoder, value).ok()?;
    encoder.flush().ok()?;
    Some(BASE64_STANDARD.encode(encoder.finish().ok()?))
}

/// Decodes the text that [`pack`] made.
pub(super) fn unpack<T: DeserializeOwned>(text: &str) -> Option<T> {
    let deflated = BASE64_STANDARD.decode(text).ok()?;
    let mut bytes = Vec::new();
    ZlibDecoder::new(&deflated[..]).take(MAX_INFLATED).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}
