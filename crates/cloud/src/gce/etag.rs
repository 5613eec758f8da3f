//! Entity tags as Google's server spells them: sixteen hexadecimal digits, no quotes.

use std::fmt;

/// The tag of some content. Equal content has an equal tag, also after a restart and on another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ETag(u64);

impl ETag {
    /// The tag of these bytes: FNV-1a, 64 bits (draft-eastlake-fnv). It tells versions of one thing apart and
    /// guards nothing, so a keyed or collision-proof hash would buy nothing.
    pub fn of(content: &[u8]) -> Self {
        Self(content.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        }))
    }

    /// The sixteen digits.
    pub fn digits(self) -> [u8; 16] {
        let mut digits = [0; 16];
        for (place, digit) in digits.iter_mut().enumerate() {
            let nibble = (self.0 >> (60 - 4 * place)) & 0xf;
            *digit = b"0123456789abcdef"[nibble as usize];
        }
        digits
    }

    /// Whether a client's `last_etag` names this content.
    pub fn matches(self, last: &str) -> bool {
        last.as_bytes() == self.digits()
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
