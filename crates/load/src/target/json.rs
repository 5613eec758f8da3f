//! Reads vegeta's JSON format: one object per line, `method` and `url` required, `body` in base64, `header` name to values.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::{Lines, Target, TargetDefaults, TargetErrorKind, Weight};
use crate::request::shorten_for_error_message;
use crate::variant::Variant;

/// The schema, plus `weight`, `variant` and `expect`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    method: String,
    url: String,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    header: Option<BTreeMap<String, Vec<String>>>,
    #[serde(default)]
    weight: Option<u32>,
    #[serde(default)]
    variant: Option<Variant>,
    #[serde(default)]
    expect: Vec<String>,
}

/// Returns the next target and its line.
pub(super) fn next(
    lines: &mut Lines,
    defaults: &TargetDefaults,
) -> Result<Option<(Target, usize)>, TargetErrorKind> {
    while let Some(line) = lines.next()? {
        if !line.is_empty() {
            return target(&line, defaults).map(|target| Some((target, lines.number)));
        }
    }
    Ok(None)
}

fn target(line: &str, defaults: &TargetDefaults) -> Result<Target, TargetErrorKind> {
    let written: Written =
        serde_json::from_str(line).map_err(|error| TargetErrorKind::Json(error.to_string()))?;
    if written.method.is_empty() || !written.method.bytes().all(|b| b.is_ascii_uppercase()) {
        return Err(TargetErrorKind::Method(shorten_for_error_message(&written.method)));
    }
    let mut target = Target { method: written.method, url: written.url, ..defaults.target() };
    if let Some(body) = written.body.filter(|body| !body.is_empty()) {
        let bytes = STANDARD
            .decode(body)
            .map_err(|error| TargetErrorKind::Json(format!("body is not base64: {error}")))?;
        target.body = bytes.into();
    }
    for (name, values) in written.header.unwrap_or_default() {
        target.headers.extend(values.into_iter().map(|value| (name.clone(), value)));
    }
    if let Some(weight) = written.weight {
        target.weight = (weight > 0)
            .then_some(Weight(weight))
            .ok_or_else(|| TargetErrorKind::Weight(weight.to_string()))?;
    }
    target.variant = written.variant.map(Arc::new);
    written.expect.iter().try_for_each(|condition| target.expect(condition))?;
    Ok(target)
}

#[cfg(test)]
mod tests {
    use crate::target::{Target, TargetDefaults, TargetError, TargetFormat, TargetReader};

    fn read(text: &str) -> Result<Vec<Target>, TargetError> {
        let defaults = TargetDefaults {
            headers: vec![("A".into(), "b".into())],
            body: (*b"default").into(),
            ..TargetDefaults::default()
        };
        let mut reader = TargetReader::new(
            "t",
            Box::new(std::io::Cursor::new(text.to_owned())),
            TargetFormat::Json,
            defaults,
        );
        let mut targets = vec![];
        while let Some((target, _)) = reader.next_target()? {
            targets.push(target);
        }
        Ok(targets)
    }

    #[test]
    fn one_target_per_line_empty_lines_skipped() {
        let text = "\n{\"method\":\"GET\",\"url\":\"http://a/\"}\n\n\
            {\"method\":\"POST\",\"url\":\"http://b/\",\"body\":\"aGk=\",\"header\":{\"X\":[\"1\",\"2\"]}}";
        let targets = read(text).unwrap();
        assert_eq!((targets[0].method.as_str(), &*targets[0].body), ("GET", &b"default"[..]));
        assert_eq!(&*targets[1].body, b"hi");
        let headers: Vec<_> = targets[1].headers.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(headers, [("A", "b"), ("X", "1"), ("X", "2")]);
    }

    #[test]
    fn a_target_may_say_what_is_expected_of_it() {
        let text = r#"{"method":"GET","url":"http://a/","expect":["status=200","json:/status=\"ok\""]}"#;
        let targets = read(text).unwrap();
        let sources: Vec<_> = targets[0].expect.as_ref().unwrap().iter().map(|one| one.source()).collect();
        assert_eq!(sources, ["status=200", "json:/status=\"ok\""]);
        let bad = read(r#"{"method":"GET","url":"http://a/","expect":["size=1"]}"#).unwrap_err().to_string();
        assert!(bad.starts_with("t:1: bad condition: \"size=1\""), "{bad}");
    }

    #[test]
    fn what_the_schema_forbids_is_refused() {
        for text in [
            "{}",
            "{\"method\":\"GET\"}",
            "{\"url\":\"http://a/\"}",
            "{\"method\":\"\",\"url\":\"http://a/\"}",
            "{\"method\":\"GET\",\"url\":\"http://a/\",\"x\":1}",
            "{\"method\":\"GET\",\"url\":\"http://a/\",\"body\":\"?\"}",
            "GET http://a/",
        ] {
            assert!(read(text).unwrap_err().to_string().starts_with("t:1: bad "), "{text}");
        }
    }
}
