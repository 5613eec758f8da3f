//! Formats numbers as hexadecimal digits, for entity tags and request ids.

/// Formats a number as sixteen hexadecimal digits.
pub(crate) fn format_hex(number: u64) -> [u8; 16] {
    std::array::from_fn(|place| {
        let nibble = (number >> (60 - 4 * place)) & 0xf;
        b"0123456789abcdef"[nibble as usize]
    })
}
