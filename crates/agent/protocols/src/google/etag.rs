//! Computes entity tags in the format of Google's server: sixteen hexadecimal digits without quotes.

/// The etag of some content. Equal content has an equal etag, even after a restart and on another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ETag(u64);

impl ETag {
    /// Returns the etag of these bytes: their 64-bit FNV-1a hash (draft-eastlake-fnv).
    /// An etag only distinguishes versions of one resource and protects no data. So a keyed or collision-resistant hash is not
    /// needed.
    pub fn of_content(content: &[u8]) -> Self {
        Self(content.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        }))
    }

    /// Returns the sixteen hexadecimal digits.
    pub fn hex_digits(self) -> [u8; 16] {
        std::array::from_fn(|place| {
            let nibble = (self.0 >> (60 - 4 * place)) & 0xf;
            b"0123456789abcdef"[nibble as usize]
        })
    }

    /// True if a client's `last_etag` equals this etag.
    pub fn matches(self, last: &str) -> bool {
        last.as_bytes() == self.hex_digits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_sixteen_digits_and_the_same_everywhere() {
        // The test vectors come from the authors of the hash: the empty string and "foobar".
        assert_eq!(ETag::of_content(b"").hex_digits(), *b"cbf29ce484222325");
        assert_eq!(ETag::of_content(b"foobar").hex_digits(), *b"85944171f73967e8");
    }

    #[test]
    fn a_tag_matches_its_own_digits_only() {
        let etag = ETag::of_content(b"foobar");
        assert!(etag.matches("85944171f73967e8"));
        for other in ["", "NONE", "85944171F73967E8", "cbf29ce484222325", "85944171f73967e"] {
            assert!(!etag.matches(other), "{other}");
        }
    }
}
