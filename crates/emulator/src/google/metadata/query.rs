//! Parses the path and the parameters of a metadata request.

use std::time::Duration;

/// A normalised path: lower case, without dot segments, empty segments and percent-encoding.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MetadataPath {
    /// The segments in lower case.
    pub(super) segments: Vec<String>,
    /// True if the path ends with a slash.
    pub(super) ends_with_slash: bool,
    /// The path as the client wrote it, for a redirect.
    pub(super) path_in_original_case: String,
}

impl MetadataPath {
    pub(super) fn parse(path: &str) -> Self {
        let decoded = percent_decoded(path);
        let mut kept: Vec<&str> = Vec::new();
        for segment in decoded.split('/').filter(|segment| !segment.is_empty() && *segment != ".") {
            if segment == ".." {
                kept.pop();
            } else {
                kept.push(segment);
            }
        }
        Self {
            segments: kept.iter().map(|segment| segment.to_lowercase()).collect(),
            ends_with_slash: decoded.ends_with('/') || kept.is_empty(),
            path_in_original_case: kept.join("/"),
        }
    }
}

/// Decodes percent-encoding once. Invalid UTF-8 becomes the replacement character.
pub(in crate::google) fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = (*first == b'%').then(|| after.get(..2)).flatten();
        match hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The format of the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentFormat {
    Json,
    Text,
}

/// The parameters. Unknown ones are ignored, because newer libraries send more.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MetadataQuery {
    pub(super) recursive: bool,
    pub(super) alt: Option<ContentFormat>,
    pub(super) wait_for_change: bool,
    pub(super) last_etag: Option<String>,
    pub(super) timeout: Option<Duration>,
    pub(super) scopes: Vec<String>,
    pub(super) audience: Option<String>,
    pub(super) full_format: bool,
    pub(super) raw_query: String,
}

impl MetadataQuery {
    /// Parses a query string. The error is a sentence.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let mut query = Self { raw_query: text.to_owned(), ..Self::default() };
        for (name, value) in url::form_urlencoded::parse(text.as_bytes()) {
            query.set(&name, &value)?;
        }
        Ok(query)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        match name {
            "recursive" => self.recursive = truth(value)?,
            "wait_for_change" => self.wait_for_change = truth(value)?,
            "last_etag" => self.last_etag = Some(value.to_owned()),
            "timeout_sec" => self.timeout = Some(seconds(value)?),
            "alt" => self.alt = Some(alt(value)?),
            // The first API version uses the name `scope`.
            "scopes" | "scope" => self.scopes = scopes(value),
            "audience" => self.audience = Some(value.to_owned()),
            "format" => self.full_format = value.eq_ignore_ascii_case("full"),
            _ => {}
        }
        Ok(())
    }
}

fn truth(value: &str) -> Result<bool, &'static str> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "1" => Ok(true),
        "false" | "0" | "" => Ok(false),
        _ => Err("The parameters recursive and wait_for_change must be true or false."),
    }
}

fn seconds(value: &str) -> Result<Duration, &'static str> {
    // The limit of ten years prevents an overflow in sums with times.
    let bounded = value.parse().ok().filter(|seconds| *seconds <= 315_360_000);
    bounded.map(Duration::from_secs).ok_or("The parameter timeout_sec must be a whole number of seconds.")
}

fn alt(value: &str) -> Result<ContentFormat, &'static str> {
    match value {
        "json" => Ok(ContentFormat::Json),
        "text" => Ok(ContentFormat::Text),
        _ => Err("The parameter alt must be json or text."),
    }
}

fn scopes(value: &str) -> Vec<String> {
    value.split([',', ' ']).filter(|scope| !scope.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_path_is_one_path() {
        let plain = MetadataPath::parse("/computeMetadata/v1/instance/attributes/kube-env");
        for other in [
            "/computemetadata/V1/instance/attributes/KUBE-ENV",
            "//computeMetadata//v1/./instance/attributes/x/../kube-env",
            "/computeMetadata/v1/instance/attributes%2Fkube%2denv",
        ] {
            assert_eq!(MetadataPath::parse(other).segments, plain.segments, "{other}");
        }
        assert!(
            MetadataPath::parse("/").ends_with_slash
                && MetadataPath::parse("/a/").ends_with_slash
                && !plain.ends_with_slash
        );
    }

    #[test]
    fn percent_signs_that_encode_nothing_stay() {
        for (text, decoded) in
            [("%", "%"), ("a%2", "a%2"), ("%zz%41", "%zzA"), ("%25%34%31", "%41"), ("é%", "é%")]
        {
            assert_eq!(percent_decoded(text), decoded);
        }
    }

    #[test]
    fn parameters_are_read_and_wrong_ones_named() {
        let query =
            MetadataQuery::parse("recursive=true&alt=text&timeout_sec=5&scopes=a,b&last_etag=NONE&new=1")
                .unwrap();
        assert!(query.recursive && query.alt == Some(ContentFormat::Text) && query.scopes == ["a", "b"]);
        assert_eq!(query.timeout, Some(Duration::from_secs(5)));
        for wrong in [
            "timeout_sec=soon",
            "timeout_sec=-1",
            "timeout_sec=99999999999999999999",
            "alt=xml",
            "recursive=2",
        ] {
            assert!(MetadataQuery::parse(wrong).is_err(), "{wrong}");
        }
    }
}
