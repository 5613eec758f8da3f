//! The flags that say what is sent, of `attack`, `find` and `isolate` alike: method, headers, body, and URLs as they are typed.

use anyhow::{bail, ensure};
use seawall_load::target::parse_header;

/// The flags about requests, except their URLs.
#[derive(Debug, clap::Args)]
pub(crate) struct RequestArgs {
    /// HTTP method for the URLs [default: GET; POST with a body]
    #[arg(short, long, value_name = "METHOD", value_parser = method)]
    method: Option<String>,
    /// Request header, "Key: value"; repeatable
    #[arg(short = 'H', long, value_name = "HEADER")]
    header: Vec<String>,
    /// Text to send, unchanged, as the body of targets without a body
    #[arg(short, long, value_name = "TEXT", conflicts_with = "body")]
    data: Option<String>,
    /// File with the body for targets without a body
    #[arg(
        short = 'D',
        long,
        visible_alias = "data-file",
        value_name = "FILE",
        default_value = "",
        hide_default_value = true
    )]
    body: String,
    /// Content-Type header, such as application/json
    #[arg(short = 'T', long, value_name = "TYPE", value_parser = media_type)]
    content_type: Option<String>,
}

/// The source of the body of targets that have none of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodySource<'a> {
    /// They have none.
    None,
    /// The command line.
    Text(&'a str),
    /// A file.
    File(&'a str),
}

impl RequestArgs {
    /// Returns an error for each invalid combination of flags, for requests to URLs or to targets of a file.
    pub(crate) fn validation_errors(&self, has_urls: bool) -> Vec<String> {
        let mut mistakes: Vec<String> =
            self.header.iter().filter_map(|line| Some(parse_header(line).err()?.to_string())).collect();
        if self.method.is_some() && !has_urls {
            mistakes.push("--method needs a URL: targets in a file name their own methods".to_owned());
        }
        mistakes
    }

    /// The headers of every request.
    ///
    /// # Errors
    /// One is not `Key: value`.
    pub(crate) fn headers(&self) -> anyhow::Result<Vec<(String, String)>> {
        let mut headers = self.header.iter().map(|line| parse_header(line)).collect::<Result<Vec<_>, _>>()?;
        headers.extend(self.content_type.clone().map(|kind| ("Content-Type".to_owned(), kind)));
        Ok(headers)
    }

    /// The body of targets without one.
    pub(crate) fn body_source(&self) -> BodySource<'_> {
        match (&self.data, self.body.as_str()) {
            (Some(text), _) => BodySource::Text(text),
            (None, "") => BodySource::None,
            (None, file) => BodySource::File(file),
        }
    }

    /// The method of requests to URLs; with a body POST, as curl has it.
    pub(crate) fn method(&self) -> &str {
        let usual = if self.body_source() == BodySource::None { "GET" } else { "POST" };
        self.method.as_deref().unwrap_or(usual)
    }
}

fn method(text: &str) -> Result<String, String> {
    let fits = !text.is_empty() && text.bytes().all(|letter| letter.is_ascii_alphabetic());
    let malformed = || format!("{text:?} is not a method: expected letters, such as GET or POST");
    fits.then(|| text.to_ascii_uppercase()).ok_or_else(malformed)
}

fn media_type(text: &str) -> Result<String, String> {
    let malformed = || {
        format!(
            "{text:?} is not a media type: expected one such as application/json; wrk's -T5s is --timeout 5s"
        )
    };
    text.contains('/').then(|| text.to_owned()).ok_or_else(malformed)
}

/// A URL as it was typed; `http://` where it has no scheme, as curl, hey and oha have it.
///
/// # Errors
/// Something else was typed, which is named with the flag that takes it.
pub(crate) fn parse_url(text: &str) -> anyhow::Result<String> {
    let is_one = !text.contains(|letter: char| letter.is_whitespace() || letter.is_control());
    ensure!(is_one, "{text:?} is not a URL: it contains a space");
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    if scheme.is_some_and(|scheme| scheme.bytes().all(|letter| letter.is_ascii_alphanumeric())) {
        return Ok(text.to_owned());
    }
    let is_method = text.len() > 2 && text.bytes().all(|letter| letter.is_ascii_uppercase());
    ensure!(!is_method, "{text:?} is a method, not a URL: write --method {text}");
    if std::path::Path::new(text).is_file() {
        bail!("{text:?} is a file, not a URL: write --targets {text}");
    }
    Ok(format!("http://{text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_a_scheme_is_http() {
        for (typed, meant) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("localhost/?next=https://b/", "http://localhost/?next=https://b/"),
            ("https://a/", "https://a/"),
        ] {
            assert_eq!(parse_url(typed).unwrap(), meant);
        }
    }

    #[test]
    fn what_is_no_url_is_named_with_the_flag_that_takes_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        for (typed, said) in [("POST", "--method POST"), ("a b", "contains a space"), (path, "--targets /")] {
            let error = parse_url(typed).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn wrks_timeout_is_no_media_type() {
        assert!(media_type("5s").unwrap_err().contains("--timeout 5s"));
        assert_eq!(media_type("application/json").unwrap(), "application/json");
    }
}
