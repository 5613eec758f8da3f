//! The escaping of data values at each place of a request, so that the server reads the same value.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::PLACEHOLDER_START;
use crate::target::Target;

/// The escaping of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Escape {
    /// Unchanged.
    None,
    /// Unchanged; an error if a header cannot contain the value.
    CheckedHeader,
    /// Percent-encoded, except for the unreserved characters of RFC 3986.
    Percent,
    /// Escaped like the inside of a JSON string.
    Json,
}

/// All ASCII characters that are not unreserved (RFC 3986 section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

impl Escape {
    /// Returns the value as it is sent.
    ///
    /// # Errors
    /// The reason why the value cannot be sent there.
    pub(super) fn apply(self, value: &str) -> Result<Cow<'_, str>, String> {
        Ok(match self {
            Self::None => value.into(),
            Self::CheckedHeader => match value.bytes().find(|&b| b < b' ' && b != b'\t' || b == 0x7f) {
                None => value.into(),
                Some(b'\r' | b'\n') => return Err("a header value cannot hold a line break".to_owned()),
                Some(0) => return Err("a header value cannot hold a NUL byte".to_owned()),
                Some(byte) => {
                    return Err(format!("a header value cannot hold the control character {byte:#04x}"));
                }
            },
            Self::Percent => utf8_percent_encode(value, RESERVED).into(),
            Self::Json => json_string_content(value)?.into(),
        })
    }

    /// Returns the escaping of `{{raw ...}}` at this place: none, except that a header value is checked.
    pub(super) fn for_raw_placeholder(self) -> Self {
        if self == Self::CheckedHeader { self } else { Self::None }
    }
}

/// Escapes a string by RFC 8259 section 7, without the quotes around it.
fn json_string_content(value: &str) -> Result<String, String> {
    let mut quoted = serde_json::to_string(value).map_err(|error| error.to_string())?;
    quoted.pop();
    quoted.remove(0);
    Ok(quoted)
}

/// The place of a placeholder, which decides about the escaping of its value.
#[derive(Debug)]
pub(super) enum PlaceholderPlace {
    /// One escaping for all values.
    Uniform(Escape),
    /// A JSON document: values are escaped inside its strings, and unchanged elsewhere.
    Json { in_string: bool, after_backslash: bool },
}

impl PlaceholderPlace {
    /// Returns the place of a placeholder in a target's body.
    pub(super) fn of_body(target: &Target, body: &str) -> Self {
        if media_type(target).is_some_and(|media| is_json_type(&media)) || is_json(body) {
            return Self::Json { in_string: false, after_backslash: false };
        }
        let form = media_type(target).is_some_and(|media| media == "application/x-www-form-urlencoded");
        Self::Uniform(if form { Escape::Percent } else { Escape::None })
    }

    /// Returns the escaping of a value that follows this text.
    pub(super) fn escape_after(&mut self, text: &str) -> Escape {
        match self {
            Self::Uniform(escape) => *escape,
            Self::Json { in_string, after_backslash } => {
                for byte in text.bytes() {
                    let is_escaped = std::mem::take(after_backslash);
                    match byte {
                        b'"' if !is_escaped => *in_string = !*in_string,
                        b'\\' if *in_string && !is_escaped => *after_backslash = true,
                        _ => {}
                    }
                }
                if *in_string { Escape::Json } else { Escape::None }
            }
        }
    }
}

fn media_type(target: &Target) -> Option<String> {
    let (_, value) = target.headers.iter().rfind(|(name, _)| name.eq_ignore_ascii_case("content-type"))?;
    Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

/// True for `application/json`, and for types with the suffix of RFC 6839.
fn is_json_type(media: &str) -> bool {
    media == "application/json" || media.ends_with("+json")
}

/// True if a body is JSON after its placeholders get values. A digit stands for each value, inside strings and elsewhere.
fn is_json(body: &str) -> bool {
    let mut filled = String::with_capacity(body.len());
    let mut rest = body;
    while let Some((before, after)) = rest.split_once(PLACEHOLDER_START) {
        let Some((_, after)) = after.split_once("}}") else { return false };
        filled.push_str(before);
        filled.push('1');
        rest = after;
    }
    filled.push_str(rest);
    serde_json::from_str::<&serde_json::value::RawValue>(&filled).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_json_inside_quotes_and_as_it_is_outside() {
        let target = Target::default();
        let body = r#"{"a\"{{x}}": {{x}}, "b": "\\", "c": "{{x}}"}"#;
        let mut place = PlaceholderPlace::of_body(&target, body);
        let escapes: Vec<_> = body.split("{{x}}").map(|text| place.escape_after(text)).collect();
        assert_eq!(escapes, [Escape::Json, Escape::None, Escape::Json, Escape::None]);
    }

    #[test]
    fn a_body_is_json_by_its_type_or_its_look_and_a_form_by_its_type() {
        let place = |content: &str, body: &str| {
            let headers = vec![("content-type".to_owned(), content.to_owned())];
            PlaceholderPlace::of_body(&Target { headers, ..Target::default() }, body).escape_after(body)
        };
        for content in ["application/json", "Application/Vnd.Api+JSON; charset=utf-8"] {
            assert_eq!(place(content, "{} \"{{x}}"), Escape::Json);
        }
        assert_eq!(place("text/plain", "say \"{{x}}"), Escape::None);
        assert_eq!(place("application/x-www-form-urlencoded", "a={{x}}"), Escape::Percent);
        let mut json = PlaceholderPlace::of_body(&Target::default(), "[\"{{x}}\", {{y}}]");
        assert_eq!(json.escape_after("[\""), Escape::Json);
    }
}
