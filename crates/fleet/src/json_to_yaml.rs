//! Writes JSON values as readable YAML: blocks, multi-line texts, quotes only where needed.
//!
//! The workspace's YAML reader cannot write, and a manifest needs only this. A value that is not certainly plain is written as JSON, which
//! is YAML, too (YAML 1.2.2 section 1.2).

use serde_json::{Map, Value};

/// Writes a document.
#[must_use]
pub fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => object(map, 0, false, &mut out),
        Value::Array(list) if !list.is_empty() => array(list, 0, &mut out),
        scalar => {
            out.push_str(&one_line(scalar));
            out.push('\n');
        }
    }
    out
}

/// Writes the entries of an object. `begun` means that the first line is indented already.
fn object(map: &Map<String, Value>, depth: usize, begun: bool, out: &mut String) {
    for (place, (key, value)) in map.iter().enumerate() {
        if place > 0 || !begun {
            indent(depth, out);
        }
        out.push_str(&scalar(key));
        out.push(':');
        below(value, depth, out);
    }
}

fn array(list: &[Value], depth: usize, out: &mut String) {
    for value in list {
        indent(depth, out);
        out.push('-');
        match value {
            Value::Object(map) if !map.is_empty() => {
                out.push(' ');
                object(map, depth + 1, true, out);
            }
            value => below(value, depth, out),
        }
    }
}

/// Writes the value after a key or a dash.
fn below(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            object(map, depth + 1, false, out);
        }
        Value::Array(list) if !list.is_empty() => {
            out.push('\n');
            array(list, depth + 1, out);
        }
        Value::String(text) if is_block(text) => block(text, depth + 1, out),
        scalar => {
            out.push(' ');
            out.push_str(&one_line(scalar));
            out.push('\n');
        }
    }
}

fn indent(depth: usize, out: &mut String) {
    (0..depth).for_each(|_| out.push_str("  "));
}

/// Returns whether a text can be a literal block: its lines are printable, and the block's rules for indentation and final
/// newlines do not change it.
fn is_block(text: &str) -> bool {
    let is_plain = |letter: char| letter == '\n' || letter.is_ascii_graphic() || letter == ' ';
    let ends_once = !text.trim_end_matches('\n').is_empty() && !text.ends_with("\n\n");
    let is_line = |line: &str| !line.ends_with(' ') && !line.starts_with(' ');
    text.trim_end().contains('\n') && ends_once && text.chars().all(is_plain) && text.split('\n').all(is_line)
}

fn block(text: &str, depth: usize, out: &mut String) {
    out.push_str(if text.ends_with('\n') { " |\n" } else { " |-\n" });
    for line in text.lines() {
        if !line.is_empty() {
            indent(depth, out);
        }
        out.push_str(line);
        out.push('\n');
    }
}

fn one_line(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        other => other.to_string(),
    }
}

fn scalar(text: &str) -> String {
    if is_plain(text) { text.to_owned() } else { quoted(text) }
}

/// Quotes a text as JSON does, with YAML's additional escapes.
fn quoted(text: &str) -> String {
    let is_printable = |letter: char| {
        !matches!(
            letter,
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
        )
    };
    let escaped = |letter: char| match letter {
        letter if is_printable(letter) => letter.to_string(),
        letter => format!("\\u{:04x}", u32::from(letter)),
    };
    Value::from(text).to_string().chars().map(escaped).collect()
}

/// Returns whether a text needs no quotes: it starts with a letter or a slash, has no character that ends or splits it, and is
/// not a special word of YAML 1.1, which kubectl reads.
fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let begins = text.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '/');
    let is_simple = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
    begins && text.chars().all(is_simple) && !WORDS.contains(&text.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Value {
        serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    #[test]
    fn it_is_written_as_people_write_it() {
        let value = json!({"kind": "Job", "list": [{"a": 1, "b": ["x"]}, "7", []], "m": 4, "none": {}, "on": "yes",
            "text": "GET http://a/\nX: y\n"});
        let expected = "kind: Job\nlist:\n  - a: 1\n    b:\n      - x\n  - \"7\"\n  - []\nm: 4\nnone: {}\n\"on\": \"yes\"\ntext: |\n  GET http://a/\n  X: y\n";
        assert_eq!(to_yaml(&value), expected);
        assert_eq!(read(expected), value);
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let texts =
            prop_oneof![any::<String>(), "[ a\n:#'\"-]{0,12}", "[a-z]{1,3}(\n[a-z ]{0,3}){0,3}\n{0,2}"];
        let leaf = prop_oneof![
            texts.prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((any::<String>(), inner), 0..4)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_it_was(value in any_value()) {
            prop_assert_eq!(read(&to_yaml(&value)), value);
        }
    }
}
