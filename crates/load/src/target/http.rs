//! Reads vegeta's http format: a request line, headers, comments, a body file. An empty line or the next request line ends a
//! target.

use std::sync::Arc;

use super::{Lines, Target, TargetDefaults, TargetErrorKind, Weight, parse_header};
use crate::input_files::InputFiles;
use crate::request::shorten_for_error_message;
use crate::variant::Variant;

/// Returns the next target and its first line.
pub(super) fn next(
    lines: &mut Lines,
    defaults: &TargetDefaults,
    files: &InputFiles,
) -> Result<Option<(Target, usize)>, TargetErrorKind> {
    let mut target = defaults.target();
    let Some(line) = request_line(lines, &mut target)? else { return Ok(None) };
    let first = lines.number;
    (target.method, target.url) = method_and_url(&line)?;
    headers_and_body(lines, &mut target, files)?;
    Ok(Some((target, first)))
}

/// Returns the first line that is neither empty nor a comment, after applying the comments to the target.
fn request_line(lines: &mut Lines, target: &mut Target) -> Result<Option<String>, TargetErrorKind> {
    while let Some(line) = lines.next()? {
        match line.strip_prefix('#') {
            Some(comment) => heed(comment.trim(), target)?,
            None if line.is_empty() => {}
            None => return Ok(Some(line)),
        }
    }
    Ok(None)
}

/// Applies a comment before a request line: `#weight=3`, `#variant={...}` or `#expect=body~ok`. For vegeta these are only
/// comments.
fn heed(comment: &str, target: &mut Target) -> Result<(), TargetErrorKind> {
    if let Some(number) = comment.strip_prefix("weight=") {
        target.weight = weight(number)?;
    } else if let Some(text) = comment.strip_prefix("variant=") {
        target.variant = Some(Arc::new(variant(text)?));
    } else if let Some(condition) = comment.strip_prefix("expect=") {
        target.expect(condition.trim())?;
    }
    Ok(())
}

fn weight(number: &str) -> Result<Weight, TargetErrorKind> {
    let weight = number.trim().parse().ok().filter(|&weight| weight > 0);
    weight.map(Weight).ok_or_else(|| TargetErrorKind::Weight(number.to_owned()))
}

/// Parses a variant, like that of a JSON target.
fn variant(text: &str) -> Result<Variant, TargetErrorKind> {
    serde_json::from_str(text).map_err(|error| TargetErrorKind::Variant(error.to_string()))
}

fn method_and_url(line: &str) -> Result<(String, String), TargetErrorKind> {
    if line.starts_with('{') {
        return Err(TargetErrorKind::LooksLikeJson);
    }
    let (method, url) = line
        .split_once(' ')
        .ok_or_else(|| TargetErrorKind::NotMethodAndUrl(shorten_for_error_message(line)))?;
    if !is_method(method) {
        return Err(TargetErrorKind::Method(shorten_for_error_message(method)));
    }
    Ok((method.to_owned(), url.trim().to_owned()))
}

fn is_method(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_uppercase())
}

/// True for a line that begins the next target when it follows a request line directly.
fn begins_target(line: &str) -> bool {
    line.split_once([' ', '\t']).is_some_and(|(word, _)| is_method(word))
}

fn headers_and_body(
    lines: &mut Lines,
    target: &mut Target,
    files: &InputFiles,
) -> Result<(), TargetErrorKind> {
    let mut first = true;
    while let Some(line) = lines.next()? {
        if line.is_empty() {
            return Ok(());
        }
        if first && begins_target(&line) {
            lines.unread(line);
            return Ok(());
        }
        first = false;
        if let Some(file) = line.strip_prefix('@') {
            let body =
                files.read(file).map_err(|error| TargetErrorKind::Body { file: file.to_owned(), error })?;
            target.body = body.into();
            return Ok(());
        }
        match line.strip_prefix('#') {
            None => target.headers.push(parse_header(&line)?),
            Some(comment) if comment.trim_start().starts_with("variant=") => {
                return Err(TargetErrorKind::LateVariant);
            }
            Some(comment) if comment.trim_start().starts_with("expect=") => {
                return Err(TargetErrorKind::LateExpect);
            }
            Some(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use crate::expectation::ExpectationSet;
    use crate::target::{Target, TargetDefaults, TargetError, TargetFormat, TargetReader};

    fn read(text: &str, defaults: TargetDefaults) -> Result<Vec<Target>, TargetError> {
        let input = Box::new(std::io::Cursor::new(text.to_owned()));
        let mut reader = TargetReader::new("targets.txt", input, TargetFormat::Http, defaults);
        let mut targets = vec![];
        while let Some((target, _)) = reader.next_target()? {
            targets.push(target);
        }
        Ok(targets)
    }

    fn mistake(text: &str) -> String {
        read(text, TargetDefaults::default()).map(|_| ()).map_err(|mistake| mistake.to_string()).unwrap_err()
    }

    #[test]
    fn targets_with_headers_comments_and_without_blank_lines() {
        let text = "# first\n\nGET http://a/1\nGET http://a/2\nX-Id: 1\n# not a header\nX-Id: 2\n\n\nPURGE http://a/3\n";
        let targets = read(
            text,
            TargetDefaults { headers: vec![("A".into(), "b".into())], ..TargetDefaults::default() },
        )
        .unwrap();
        let seen: Vec<_> =
            targets.iter().map(|t| (t.method.as_str(), t.url.as_str(), t.headers.len())).collect();
        assert_eq!(seen, [("GET", "http://a/1", 1), ("GET", "http://a/2", 3), ("PURGE", "http://a/3", 1)]);
        assert_eq!(targets[1].headers[2], ("X-Id".into(), "2".into()));
    }

    #[test]
    fn a_body_file_ends_the_target_and_wins_over_the_default_body() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"own").unwrap();
        let text = format!("POST http://a/\nX: y\n@{}\nPOST http://a/", file.path().display());
        let targets =
            read(&text, TargetDefaults { body: (*b"default").into(), ..TargetDefaults::default() }).unwrap();
        assert_eq!((&*targets[0].body, &*targets[1].body), (&b"own"[..], &b"default"[..]));
    }

    #[test]
    fn a_comment_may_weigh_the_next_target() {
        let targets = read("# weight=3\nGET http://a/\n\nGET http://b/", TargetDefaults::default()).unwrap();
        assert_eq!((targets[0].weight.0, targets[1].weight.0), (3, 1));
    }

    #[test]
    fn a_comment_may_give_the_next_target_a_way_of_its_own() {
        let text = "# variants are told apart\n#variant={\"name\":\"kept\",\"keepalive\":true}\n# weight=3\nGET http://a/\n\nGET http://b/";
        let targets = read(text, TargetDefaults::default()).unwrap();
        let variant = targets[0].variant.as_ref().unwrap();
        assert_eq!((variant.name.as_str(), variant.keep_alive), ("kept", Some(true)));
        assert_eq!((targets[0].weight.0, &targets[1].variant), (3, &None));
    }

    #[test]
    fn comments_may_say_what_is_expected_of_the_next_target() {
        let sources = |target: &Target| -> Vec<String> {
            target.expect.iter().flat_map(|set| set.iter()).map(|one| one.source().to_owned()).collect()
        };
        let defaults = TargetDefaults {
            expect: ExpectationSet::new(vec!["status=2xx".parse().unwrap()]),
            ..TargetDefaults::default()
        };
        let text = "# expect=body~a b\n#expect=length<9\n# weight=3\nGET http://a/\n\nGET http://b/";
        let targets = read(text, defaults).unwrap();
        assert_eq!(sources(&targets[0]), ["status=2xx", "body~a b", "length<9"]);
        assert_eq!(sources(&targets[1]), ["status=2xx"]);
    }

    #[test]
    fn a_comment_that_is_no_condition_or_comes_too_late_is_refused() {
        let said = mistake("GET http://a/\n\n# expect=body\nGET http://a/");
        assert!(said.starts_with("targets.txt:3: bad condition: \"body\" is not a condition"), "{said}");
        let said = mistake("GET http://a/\nX: y\n# expect=body~a\n\nGET http://b/");
        assert!(said.starts_with("targets.txt:3: bad condition: `# expect=` must come after"), "{said}");
    }

    #[test]
    fn a_comment_that_is_no_variant_is_refused_with_the_reason() {
        for (variant, why) in [
            ("", "EOF"),
            ("direct", "expected value"),
            ("{}", "missing field `name`"),
            (r#"{"name":"a","address":"b"}"#, "expected host:port"),
            (r#"{"name":"a"} GET"#, "trailing characters"),
        ] {
            let said = mistake(&format!("GET http://a/\n\n# variant={variant}\nGET http://a/"));
            assert!(said.starts_with("targets.txt:3: bad variant: ") && said.contains(why), "{said}");
            assert!(
                said.ends_with(r#"expected # variant={"name":"direct", ...}, as in a json target"#),
                "{said}"
            );
        }
    }

    #[test]
    fn a_variant_after_its_request_line_is_refused_because_it_would_be_nobodys() {
        let said = mistake("GET http://a/\nX: y\n# variant={\"name\":\"a\"}\n\nGET http://b/");
        assert!(said.starts_with("targets.txt:3: bad variant: `# variant=` must come after"), "{said}");
    }

    /// The mark used to be part of the method.
    #[test]
    fn a_byte_order_mark_in_front_of_the_targets_is_skipped() {
        let targets = read("\u{feff}GET http://a/\n", TargetDefaults::default()).unwrap();
        assert_eq!(targets[0].method, "GET");
        assert!(mistake("GET http://a/\n\n\u{feff}GET http://a/").starts_with("targets.txt:3: bad method"));
    }

    #[test]
    fn a_mistake_names_file_line_and_reason() {
        assert_eq!(
            mistake("GET http://a/\n\nhello"),
            "targets.txt:3: bad target \"hello\": expected METHOD URL"
        );
        assert!(mistake("get http://a/").starts_with("targets.txt:1: bad method \"get\""));
        assert!(mistake("GET http://a/\nX:\n").starts_with("targets.txt:2: bad header \"X:\""));
        assert!(mistake("GET http://a/\nX: y\nGET http://b/\n").starts_with("targets.txt:3: bad header"));
        assert!(
            mistake("GET http://a/\n@/does/not/exist")
                .starts_with("targets.txt:2: bad body: /does/not/exist")
        );
        assert!(mistake("# weight=0\nGET http://a/").starts_with("targets.txt:1: bad weight"));
    }
}
