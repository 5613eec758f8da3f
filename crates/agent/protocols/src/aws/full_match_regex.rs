//! Matches whole texts against an operator's regular expression. The expression selects the node metadata paths that pods can
//! read, or the roles that pods of a namespace can have.
//!
//! For every expression, the engine's time is linear in the length of the text, and the size of an expression is limited. So an
//! expression in an annotation cannot keep the agent busy. If a partial match were enough, an expression would allow every path
//! that contains a matching part.

use regex_lite::{Regex, RegexBuilder};

/// The maximum length of an expression, in bytes.
const MAX_EXPRESSION: usize = 2048;

/// The maximum memory of a compiled expression, in bytes. Nested repetitions multiply the memory.
const MAX_SIZE: usize = 256 * 1024;

/// An expression that matches whole texts.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

/// The error for an unusable expression, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a usable regular expression: {0}")]
pub struct PatternError(String);

impl Pattern {
    /// Compiles an expression. The syntax is that of the `regex` crate, without Unicode classes.
    ///
    /// # Errors
    /// The expression is invalid or too large.
    pub fn new(expression: &str) -> Result<Self, PatternError> {
        if expression.len() > MAX_EXPRESSION {
            return Err(PatternError(format!("longer than {MAX_EXPRESSION} bytes")));
        }
        // The expression must be valid alone. For example, `a)|(b` is valid only inside the parentheses below, where it would
        // escape the anchors.
        compile(expression)?;
        compile(&format!(r"\A(?:{expression})\z")).map(Self)
    }

    /// True if the expression contains this word literally, which shows that its author thought of the word.
    pub fn source_contains_word(&self, word: &str) -> bool {
        self.0.as_str().contains(word)
    }

    /// True if the expression matches all of `text`.
    pub fn matches(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

fn compile(expression: &str) -> Result<Regex, PatternError> {
    let regex = RegexBuilder::new(expression).size_limit(MAX_SIZE).build();
    regex.map_err(|error| PatternError(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_matches_the_whole_or_nothing() {
        for (expression, text, matches) in [
            ("/latest/meta-data/ami-id", "/latest/meta-data/ami-id", true),
            ("meta-data", "/latest/meta-data/ami-id", false),
            ("/latest/meta-data/.*", "/latest/meta-data/mac", true),
            ("/latest/meta-data/.*", "/x/latest/meta-data/mac", false),
            ("a|b", "b", true),
            ("a|b", "bc", false),
            ("a|b", "ca", false),
            ("^a$", "a", true),
            ("(?m)^a$", "a\nb", false),
            ("(?i)A", "a", true),
            ("^$", "", true),
            ("", "a", false),
        ] {
            assert_eq!(Pattern::new(expression).unwrap().matches(text), matches, "{expression} on {text:?}");
        }
    }

    #[test]
    fn what_would_escape_the_anchors_is_no_expression() {
        for expression in
            ["a)|(b", "a)|(?:b", ")", "(", "(?x)a #", "a{99999999}", &"a".repeat(2049), "((a{999}){999}){9}"]
        {
            assert!(Pattern::new(expression).is_err(), "{expression}");
        }
    }
}
