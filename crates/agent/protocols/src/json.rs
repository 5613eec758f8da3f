//! Writes JSON without a serializer, because the bodies are small, their members are known, and a serializer could copy secrets.

/// Writes a JSON string (RFC 8259 section 7).
///
/// The text comes from the operator's configuration or the pod's ServiceAccount, never from a request.
pub(crate) fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            control if control < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(control))),
            letter => out.push(letter),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped_in_json() {
        let mut out = String::new();
        write_string(&mut out, "a\"b\\c\nd\u{1}é");
        assert_eq!(out, r#""a\"b\\c\nd\u0001é""#);
    }
}
