//! Entity tags as Google's server spells them: sixteen hexadecimal digits, no quotes.

use crate::hex::hex;

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
        hex(self.0)
    }

    /// True if a client's `last_etag` names this content.
    pub fn matches(self, last: &str) -> bool {
        last.as_bytes() == self.digits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_sixteen_digits_and_the_same_everywhere() {
        // Test vectors of the hash's authors: the empty string and "foobar".
        assert_eq!(ETag::of(b"").digits(), *b"cbf29ce484222325");
        assert_eq!(ETag::of(b"foobar").digits(), *b"85944171f73967e8");
    }

    #[test]
    fn a_tag_matches_its_own_digits_only() {
        let etag = ETag::of(b"foobar");
        assert!(etag.matches("85944171f73967e8"));
        for other in ["", "NONE", "85944171F73967E8", "cbf29ce484222325", "85944171f73967e"] {
            assert!(!etag.matches(other), "{other}");
        }
    }
}
