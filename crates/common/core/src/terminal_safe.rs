//! Makes text from other sources safe to print on a terminal.

/// True for a character that a terminal interprets: a control character, a line end, or a directional formatting character.
///
/// Directional formatting characters (Unicode Standard Annex 9, section 2) change the direction of the text around them. With
/// such characters, text from another source could reorder the tool's own output.
#[must_use]
pub fn is_unsafe(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns the text with each unsafe character replaced by a space.
#[must_use]
pub fn sanitize(text: &str) -> String {
    text.chars().map(|letter| if is_unsafe(letter) { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_becomes_spaces_and_letters_of_all_languages_stay() {
        let text = "a\u{1b}[31m\u{9b}b\u{202e}c\u{2066}d\u{2069}e\u{200f}f\u{200e}\u{61c}\u{2028}g\r\nh";
        assert_eq!(sanitize(text), "a [31m b c d e f   g  h");
        let others = "größer 日本 שלום ✓";
        assert_eq!(sanitize(others), others);
    }
}
