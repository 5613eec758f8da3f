//! Headers as a MIME block: how vegeta's CSV carries them, in base64.

use crate::record::{ResponseHeaders, is_token_byte};

/// Appends `Name: value` lines in name order and the empty line that ends them; appends nothing if there was no response.
///
/// The rules are those of Go's `http.Header.Write`: names that are not tokens are left out, line breaks in values become spaces,
/// and values lose the space around them.
pub(super) fn append(out: &mut Vec<u8>, headers: &ResponseHeaders) {
    if headers.is_absent() {
        return;
    }
    for (name, value) in headers.iter().filter(|(name, _)| is_name(name)) {
        out.extend_from_slice(name);
        out.extend_from_slice(b": ");
        let breaks_to_spaces = |&byte: &u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte };
        out.extend(trim(value).iter().map(breaks_to_spaces));
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&byte| is_token_byte(byte))
}

/// Reads such a block; `None` if it is incomplete or does not contain headers.
pub(super) fn parse(block: &[u8], headers: &mut ResponseHeaders) -> Option<()> {
    headers.mark_present();
    let mut lines = block.strip_suffix(b"\r\n")?.split_inclusive(|&byte| byte == b'\n');
    lines.try_for_each(|line| {
        let line = line.strip_suffix(b"\r\n")?;
        let colon = line.iter().position(|&byte| byte == b':')?;
        let (name, value) = (&line[..colon], trim(&line[colon + 1..]));
        let sound = is_name(name) && !value.contains(&b'\r');
        sound.then(|| headers.push_canonical(name, value))
    })
}

/// Trims space, tab and line breaks like Go's `textproto.TrimBytes`; Rust's trim takes form feeds, too.
fn trim(mut value: &[u8]) -> &[u8] {
    let space = |byte: &u8| b" \t\r\n".contains(byte);
    while let [first, rest @ ..] = value
        && space(first)
    {
        value = rest;
    }
    while let [rest @ .., last] = value
        && space(last)
    {
        value = rest;
    }
    value
}
