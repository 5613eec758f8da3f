//! The grammar of a condition: a subject, an operator, a value.

use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::str::FromStr;

use memchr::memmem::Finder;
use regex_lite::Regex;
use serde_json::Value;

use super::{Condition, Expectation, GRAMMAR, LengthTest, TextTest};
use crate::record;

/// The reason why a text is not a condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpectationError {
    /// The subject or the operator is unknown.
    #[error("{0:?} is not a condition on a response: expected {GRAMMAR}")]
    Grammar(String),
    /// The status is an error whatever the conditions are.
    #[error(
        "{0:?}: a status outside 200 to 399 is always an error; expected statuses such as 200,204, 2xx or 200-299"
    )]
    Status(String),
    /// The text is not a field name.
    #[error("{0:?}: expected a header name before the operator, such as header:content-type~json")]
    HeaderName(String),
    /// The text to compare with is empty.
    #[error("{0:?}: expected text after the operator, as in body~ok")]
    NoText(String),
    /// The text is not a regular expression.
    #[error("{text:?}: bad regular expression: {reason}")]
    Regex {
        /// The text as the user wrote it.
        text: String,
        /// The parser's error.
        reason: String,
    },
    /// The text is not a JSON pointer.
    #[error("{0:?}: expected a JSON pointer that begins with a slash, such as json:/status=ok (RFC 6901)")]
    Pointer(String),
    /// The text is not a number of bytes.
    #[error("{0:?}: expected a number of bytes, such as length<1000")]
    Length(String),
}

/// The maximum length of a user's text in an error text.
const SHOWN: usize = 60;

impl FromStr for Expectation {
    type Err = ExpectationError;

    fn from_str(text: &str) -> Result<Self, ExpectationError> {
        let (condition, failure) = parse(text)?;
        Ok(Self { source: text.to_owned(), condition, failure })
    }
}

fn parse(text: &str) -> Result<(Condition, String), ExpectationError> {
    if let Some(list) = text.strip_prefix("status=") {
        return Ok((Condition::Status(statuses(list)?), format!("status is not {}", shown(list))));
    }
    if let Some(rest) = text.strip_prefix("header:") {
        return header(text, rest);
    }
    if let Some(rest) = text.strip_prefix("json:") {
        return json(text, rest);
    }
    if let Some(rest) =
        text.strip_prefix("body").filter(|rest| !rest.starts_with('=') || rest.starts_with("=~"))
    {
        let (test, failure) = text_test(text, rest)?;
        return Ok((Condition::Body(test), format!("body {failure}")));
    }
    if let Some(rest) = text.strip_prefix("length") {
        return Ok((
            Condition::Length(length(text, rest)?),
            format!("length is not {}", rest.trim_start_matches('=')),
        ));
    }
    Err(ExpectationError::Grammar(text.to_owned()))
}

fn header(text: &str, rest: &str) -> Result<(Condition, String), ExpectationError> {
    // RFC 9110, section 5.6.2 allows `!` and `~` in a field name, but no server uses them.
    let operator = rest.find(['=', '~', '!']).ok_or_else(|| ExpectationError::Grammar(text.to_owned()))?;
    let (name, rest) = rest.split_at(operator);
    if name.is_empty() || !name.bytes().all(record::is_token_byte) {
        return Err(ExpectationError::HeaderName(text.to_owned()));
    }
    let (test, failure) = text_test(text, rest)?;
    Ok((Condition::Header { name: name.to_owned(), test }, format!("header {} {failure}", shown(name))))
}

fn json(text: &str, rest: &str) -> Result<(Condition, String), ExpectationError> {
    let (pointer, value) = rest.split_once('=').ok_or_else(|| ExpectationError::Grammar(text.to_owned()))?;
    if !pointer.is_empty() && !pointer.starts_with('/') {
        return Err(ExpectationError::Pointer(text.to_owned()));
    }
    let (pointer, is_equal) = pointer.strip_suffix('!').map_or((pointer, true), |pointer| (pointer, false));
    // A shell removes the quotes of "ok", so a word that is not JSON is a string.
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    let verb = if is_equal { "is not" } else { "is" };
    let failure = format!("json:{} {verb} {}", shown(pointer), shown(&value.to_string()));
    Ok((Condition::Json { pointer: pointer.to_owned(), value, is_equal }, failure))
}

/// Reads an operator and its text. Returns the test and the error text for a value that fails it.
fn text_test(whole: &str, rest: &str) -> Result<(TextTest, String), ExpectationError> {
    let given = |text: &str| {
        if text.is_empty() { Err(ExpectationError::NoText(whole.to_owned())) } else { Ok(quoted(text)) }
    };
    let contains = |text: &str, is_wanted| TextTest::Contains {
        text: Box::new(Finder::new(text.as_bytes()).into_owned()),
        is_wanted,
    };
    if let Some(regex) = rest.strip_prefix("=~") {
        let bad = |error: regex_lite::Error| ExpectationError::Regex {
            text: whole.to_owned(),
            reason: error.to_string(),
        };
        let failure = format!("does not match {}", given(regex)?);
        return Ok((TextTest::Matches(Regex::new(regex).map_err(bad)?), failure));
    }
    if let Some(text) = rest.strip_prefix("!~") {
        return Ok((contains(text, false), format!("contains {}", given(text)?)));
    }
    if let Some(text) = rest.strip_prefix('~') {
        return Ok((contains(text, true), format!("lacks {}", given(text)?)));
    }
    match rest.strip_prefix('=') {
        Some(text) => Ok((TextTest::Equals(text.as_bytes().to_owned()), format!("is not {}", given(text)?))),
        None => Err(ExpectationError::Grammar(whole.to_owned())),
    }
}

fn statuses(list: &str) -> Result<Vec<RangeInclusive<u16>>, ExpectationError> {
    let range = |word: &str| {
        let number = |text: &str| text.trim().parse::<u16>().ok();
        let range = match word.trim() {
            "2xx" | "2XX" => 200..=299,
            "3xx" | "3XX" => 300..=399,
            word => match word.split_once('-') {
                Some((from, to)) => number(from)?..=number(to)?,
                None => number(word)?..=number(word)?,
            },
        };
        (!range.is_empty() && (200..400).contains(range.start()) && *range.end() < 400).then_some(range)
    };
    list.split(',').map(|word| range(word).ok_or_else(|| ExpectationError::Status(list.to_owned()))).collect()
}

fn length(whole: &str, rest: &str) -> Result<LengthTest, ExpectationError> {
    let split = rest.find(|letter: char| letter.is_ascii_digit()).unwrap_or(rest.len());
    let (operator, number) = rest.split_at(split);
    let bad = || ExpectationError::Length(whole.to_owned());
    let number: u64 = number.parse().map_err(|_| bad())?;
    let range = match operator {
        "=" => number..=number,
        "<=" => 0..=number,
        "<" => 0..=number.checked_sub(1).ok_or_else(bad)?,
        ">=" => number..=u64::MAX,
        ">" => number.checked_add(1).ok_or_else(bad)?..=u64::MAX,
        _ => return Err(bad()),
    };
    Ok(LengthTest(range))
}

fn quoted(text: &str) -> String {
    format!("{:?}", shown(text))
}

/// Returns the start of a text.
fn shown(text: &str) -> String {
    let mut letters = text.chars();
    let mut shown: String = letters.by_ref().take(SHOWN).collect();
    if letters.next().is_some() {
        // Writing to a string cannot fail.
        let _ = write!(shown, "…");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_says_of_a_response_what_it_lacks() {
        for (text, failure) in [
            ("status=200,204", "status is not 200,204"),
            ("header:content-type=application/json", r#"header content-type is not "application/json""#),
            ("header:Server~nginx", r#"header Server lacks "nginx""#),
            ("body~ok", r#"body lacks "ok""#),
            ("body!~error", r#"body contains "error""#),
            ("body=~^a.c$", r#"body does not match "^a.c$""#),
            ("json:/status=ok", r#"json:/status is not "ok""#),
            (r#"json:/status="ok""#, r#"json:/status is not "ok""#),
            ("json:/n=3", "json:/n is not 3"),
            ("json:/error!=1", "json:/error is 1"),
            ("length=123", "length is not 123"),
            ("length<1000", "length is not <1000"),
        ] {
            assert_eq!(text.parse::<Expectation>().unwrap().failure_message(), failure, "{text}");
        }
    }

    #[test]
    fn an_error_text_is_bounded_whatever_the_user_writes() {
        let long = "x".repeat(10_000);
        for text in
            ["body~", "header:a=", "json:/a=", "body=~", "json:/"].map(|start| format!("{start}{long}"))
        {
            let parsed = text.parse::<Expectation>().or_else(|_| format!("{text}=1").parse()).unwrap();
            assert!(parsed.failure_message().len() < 200, "{}", parsed.failure_message());
        }
    }

    #[test]
    fn what_is_not_a_condition_is_refused_with_what_was_expected() {
        for (text, said) in [
            ("", "expected status=200,204"),
            ("size=3", "expected status=200,204"),
            ("body", "expected status=200,204"),
            ("body=ok", "expected status=200,204"),
            ("body~", "expected text after the operator"),
            ("body=~(", "bad regular expression"),
            ("status=404", "always an error"),
            ("status=4xx", "always an error"),
            ("status=299-200", "always an error"),
            ("status=200,", "always an error"),
            ("header:=a", "expected a header name"),
            ("header:a", "expected status=200,204"),
            ("json:status=1", "begins with a slash"),
            ("json:/status", "expected status=200,204"),
            ("length<0", "number of bytes"),
            ("length", "number of bytes"),
            ("length=a", "number of bytes"),
        ] {
            let error = text.parse::<Expectation>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
