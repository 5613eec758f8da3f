//! Bytes that a terminal sends to keys that mean something here; everything else is ignored.

/// The action that a key requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ViewKey {
    /// Stop; once more: now.
    StopAttack,
    /// The offered rate times this.
    ScaleRate(f64),
}

/// A small step and back again end where they began.
const STEP: f64 = 1.1;

/// The keys in what was read in one go. A sequence that was torn apart is ignored (xterm, "Control Sequences").
pub(super) fn parse_keys(mut bytes: &[u8]) -> Vec<ViewKey> {
    let mut keys = Vec::new();
    while !bytes.is_empty() {
        let (key, length) = key(bytes);
        keys.extend(key);
        bytes = &bytes[length..];
    }
    keys
}

/// The first key and its length.
fn key(bytes: &[u8]) -> (Option<ViewKey>, usize) {
    if let [0x1b, b'[' | b'O', rest @ ..] = bytes {
        let end = rest.iter().position(|b| (0x40..=0x7e).contains(b)).map_or(rest.len(), |at| at + 1);
        let key = match &rest[..end] {
            b"A" => Some(ViewKey::ScaleRate(STEP)),
            b"B" => Some(ViewKey::ScaleRate(1.0 / STEP)),
            b"5~" => Some(ViewKey::ScaleRate(2.0)),
            b"6~" => Some(ViewKey::ScaleRate(0.5)),
            _ => None,
        };
        return (key, 2 + end);
    }
    let key = match bytes[0] {
        b'q' | b'Q' => Some(ViewKey::StopAttack),
        b'+' | b'=' => Some(ViewKey::ScaleRate(STEP)),
        b'-' => Some(ViewKey::ScaleRate(1.0 / STEP)),
        b'*' => Some(ViewKey::ScaleRate(2.0)),
        b'/' => Some(ViewKey::ScaleRate(0.5)),
        _ => None,
    };
    (key, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_letters_and_pages_are_keys_and_the_rest_is_not() {
        let up = ViewKey::ScaleRate(STEP);
        assert_eq!(
            parse_keys(b"+\x1b[A\x1bOAx\x1b[1;5C\x1b[5~q"),
            [up, up, up, ViewKey::ScaleRate(2.0), ViewKey::StopAttack]
        );
    }

    #[test]
    fn torn_and_foreign_bytes_end() {
        for bytes in [&b"\x1b"[..], b"\x1b[", b"\x1b[1;", b"\xff\xfe\x00", b"\x1b[999999"] {
            assert_eq!(parse_keys(bytes), []);
        }
    }
}
