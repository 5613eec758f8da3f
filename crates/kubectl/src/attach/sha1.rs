//! SHA-1 (RFC 3174) for WebSocket's handshake, where it only shows that the server has read the key. It is implemented here because a TLS
//! provider may lack it.

/// Returns the digest of a text.
pub(super) fn digest(text: &[u8]) -> [u8; 20] {
    let mut padded = text.to_vec();
    padded.push(0x80);
    padded.resize((text.len() + 9).next_multiple_of(64) - 8, 0);
    padded.extend((text.len() as u64 * 8).to_be_bytes());
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    for block in padded.chunks_exact(64) {
        state = mixed(state, block);
    }
    let mut digest = [0; 20];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

fn mixed(state: [u32; 5], block: &[u8]) -> [u32; 5] {
    let mut words = [0_u32; 80];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |word, &byte| word << 8 | u32::from(byte));
    }
    for at in 16..80 {
        words[at] = (words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16]).rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = state;
    for (at, word) in words.into_iter().enumerate() {
        let (choice, constant) = match at {
            0..20 => (b & c | !b & d, 0x5a82_7999_u32),
            20..40 => (b ^ c ^ d, 0x6ed9_eba1),
            40..60 => (b & c | b & d | c & d, 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6),
        };
        let next = [choice, e, word, constant].into_iter().fold(a.rotate_left(5), u32::wrapping_add);
        (a, b, c, d, e) = (next, a, b.rotate_left(30), c, d);
    }
    let mut mixed = state;
    for (sum, word) in mixed.iter_mut().zip([a, b, c, d, e]) {
        *sum = sum.wrapping_add(word);
    }
    mixed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples are from RFC 3174, section 7.3, with a text whose padding needs another block.
    #[test]
    fn digests_are_those_of_the_standard() {
        let hex = |text: &[u8]| digest(text).map(|byte| format!("{byte:02x}")).concat();
        assert_eq!(hex(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        let two = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(two), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        assert_eq!(hex(&b"01234567".repeat(80)), "dea356a2cddd90c7a7ecedc5ebb563934f460452");
        assert_eq!(hex(b""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    }
}
