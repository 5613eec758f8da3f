//! Reads a YAML or JSON document and reports *every* mistake in it, not only the first one.
//!
//! A serde derive would stop at the first wrong field. Here, each read returns a value, or records an error (path, found,
//! expected) and continues. So an operator can correct all mistakes of a file at once. An unknown key is an error, too. The
//! parsers of the agent's configuration, the identity file and kubeconfig files use this crate. The crate contains no keys of
//! these documents. It opens only files that a configuration names ([`values`]). The crate is separate from `core`, so that
//! crates that read no documents do not compile a YAML parser.

pub mod schema;
pub mod values;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;

use serde_json::{Map, Value};
use serde_saphyr::UserMessageFormatter;

use crate::schema::{ExpectedValue, ReadPlaces, Step};

/// One mistake in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationError {
    /// The place of the mistake, as a path such as `pods[2].address`.
    pub key_path: String,
    /// The shortened value at that place.
    pub found: String,
    /// A description of the expected value.
    pub expected: String,
}

impl fmt::Display for ValidationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: found {}, expected {}", self.key_path, self.found, self.expected)
    }
}

/// All mistakes of one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationErrors(pub Vec<ValidationError>);

impl fmt::Display for ValidationErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mistake in &self.0 {
            writeln!(f, "  {mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ValidationErrors {}

/// What the reading of a document has found so far.
#[derive(Debug, Default)]
struct Notes {
    errors: RefCell<Vec<ValidationError>>,
    /// The places that were read, if the document records them.
    places: Option<RefCell<ReadPlaces>>,
}

type SharedNotes = Rc<Notes>;

/// Parses a YAML (or JSON) file of another program, such as a kubeconfig. Errors contain none of the file's content, which can
/// be secret.
///
/// # Errors
/// The text is not YAML. The error gives the line and column, and no content of the file.
pub fn parse_foreign_yaml(text: &str) -> Result<Value, String> {
    serde_saphyr::from_str(text).map_err(|error| match error.location() {
        Some(place) => {
            format!("is not YAML, or has a key twice, at line {}, column {}", place.line(), place.column())
        }
        None => "is not YAML, or has a key twice".into(),
    })
}

/// A document that is being read, with all mistakes found so far.
#[derive(Debug)]
pub struct Document {
    root: Value,
    notes: SharedNotes,
}

impl Document {
    /// Parses YAML (JSON is YAML).
    ///
    /// # Errors
    /// The text is not YAML. The single mistake contains the parser's message in `found`.
    pub fn parse(text: &str) -> Result<Self, ValidationErrors> {
        match serde_saphyr::from_str::<Value>(text) {
            Ok(root) => Ok(Self { root, notes: SharedNotes::default() }),
            Err(error) => Err(ValidationErrors(vec![ValidationError {
                key_path: "the document".into(),
                found: shorten(&syntax(&error)),
                expected: "valid YAML in which each key occurs once".into(),
            }])),
        }
    }

    /// Returns the root of the document as a table.
    pub fn root(&self) -> DocumentTable<'_> {
        let (path, place) = (String::new(), Vec::new());
        DocumentNode { value: Some(&self.root), path, place, notes: self.notes.clone() }.as_table()
    }

    /// Reads a sample document and returns the places that `read` has read, for a schema. The document has no mistake.
    ///
    /// # Errors
    /// Every mistake in the sample.
    pub fn parse_recording<T>(
        text: &str,
        read: impl FnOnce(&DocumentTable<'_>) -> T,
    ) -> Result<(ReadPlaces, T), ValidationErrors> {
        let places = Some(RefCell::default());
        let document = Self { notes: Rc::new(Notes { places, ..Notes::default() }), ..Self::parse(text)? };
        let (value, notes) = (read(&document.root()), document.notes.clone());
        let value = document.finish(value)?;
        Ok((notes.places.as_ref().map(RefCell::take).unwrap_or_default(), value))
    }

    /// Ends the reading. Returns `value` if no mistake was recorded.
    ///
    /// # Errors
    /// Every recorded mistake, in the order of reading.
    pub fn finish<T>(self, value: T) -> Result<T, ValidationErrors> {
        let notes = self.notes.errors.take();
        if notes.is_empty() { Ok(value) } else { Err(ValidationErrors(notes)) }
    }
}

/// A place in the document, and the value at that place if there is a value.
#[derive(Debug, Clone)]
pub struct DocumentNode<'d> {
    value: Option<&'d Value>,
    path: String,
    /// The path without names and numbers that the user chose. Empty unless the document records what is read.
    place: Vec<Step>,
    notes: SharedNotes,
}

impl<'d> DocumentNode<'d> {
    fn below(&self, step: Step, value: Option<&'d Value>, path: String) -> Self {
        let mut place = Vec::new();
        if self.notes.places.is_some() {
            place = [self.place.as_slice(), &[step]].concat();
        }
        Self { value, path, place, notes: self.notes.clone() }
    }

    fn record(&self, expected: impl FnOnce() -> Option<ExpectedValue>) {
        if let Some(places) = &self.notes.places {
            places.borrow_mut().note(&self.place, expected());
        }
    }

    /// True if this place has a value. `null` counts as no value.
    pub fn is_present(&self) -> bool {
        self.value.is_some_and(|value| !value.is_null())
    }

    /// True if the value is a table.
    pub fn is_table(&self) -> bool {
        self.value.is_some_and(Value::is_object)
    }

    /// Returns the path of this place, as error messages show it.
    pub fn key_path(&self) -> &str {
        &self.path
    }

    /// Records a mistake: the value is not what was expected.
    pub fn reject(&self, expected: impl Into<String>) {
        let found = match self.value {
            None | Some(Value::Null) => "nothing".to_owned(),
            Some(value) => shorten(&value.to_string()),
        };
        self.note(found, expected);
    }

    /// True if a mistake is recorded at this place or below it. The unknown keys of a table count only after the table is
    /// dropped, because dropping the table records them.
    pub fn has_errors(&self) -> bool {
        let is_below = |path: &str| {
            path.strip_prefix(&self.path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.notes.errors.borrow().iter().any(|mistake| is_below(&mistake.key_path))
    }

    fn note(&self, found: String, expected: impl Into<String>) {
        let path = if self.path.is_empty() { "the document".to_owned() } else { shorten(&self.path) };
        let mut notes = self.notes.errors.borrow_mut();
        match notes.len() {
            0..MOST => notes.push(ValidationError { key_path: path, found, expected: expected.into() }),
            MOST => notes.push(ValidationError {
                key_path: "the document".into(),
                found: "more mistakes".into(),
                expected: "a correction of the mistakes above first".into(),
            }),
            _ => {}
        }
    }

    /// Returns the table at this place, or an empty table if there is no value. Any other value is a mistake and gives an empty
    /// table.
    pub fn as_table(&self) -> DocumentTable<'d> {
        let map = match self.value {
            Some(Value::Object(map)) => Some(map),
            None | Some(Value::Null) => None,
            Some(_) => {
                self.reject("a table of keys");
                None
            }
        };
        DocumentTable { map, node: self.clone(), read: RefCell::default(), moved: RefCell::default() }
    }

    /// Returns the elements of the list at this place, or no elements if there is no value. Any other value is a mistake.
    pub fn list(&self) -> Vec<DocumentNode<'d>> {
        self.record(|| Some(ExpectedValue::List));
        match self.value {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => items
                .iter()
                .enumerate()
                .map(|(i, value)| self.below(Step::Any, Some(value), format!("{}[{i}]", self.path)))
                .collect(),
            Some(_) => {
                self.reject("a list");
                Vec::new()
            }
        }
    }

    /// Returns the converted text at this place, or `None` if there is no value. If `convert` returns `None`, the function
    /// records a mistake and returns `None`.
    pub fn text<T>(&self, expected: &str, convert: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        self.record(|| Some(ExpectedValue::Text(expected.to_owned())));
        let converted = match self.value {
            None | Some(Value::Null) => return None,
            Some(Value::String(text)) => convert(text),
            // YAML reads 8080 and 1.5 as numbers, but the user can mean a port or a version as text.
            Some(Value::Number(number)) => convert(&number.to_string()),
            Some(_) => None,
        };
        if converted.is_none() {
            self.reject(expected);
        }
        converted
    }

    /// Returns the whole number at this place, or `None` if there is no value.
    /// A number outside `range`, or any other value, is a mistake and gives `None`.
    pub fn number(&self, range: std::ops::RangeInclusive<u64>) -> Option<u64> {
        self.record(|| Some(ExpectedValue::Number(*range.start(), *range.end())));
        match self.value {
            None | Some(Value::Null) => None,
            Some(value) => {
                let number = value.as_u64().filter(|n| range.contains(n));
                if number.is_none() {
                    self.reject(format!("a whole number from {} to {}", range.start(), range.end()));
                }
                number
            }
        }
    }

    /// Returns the boolean at this place, or `None` if there is no value. Any other value is a mistake and gives `None`.
    pub fn boolean(&self) -> Option<bool> {
        self.record(|| Some(ExpectedValue::Boolean));
        match self.value {
            None | Some(Value::Null) => None,
            Some(Value::Bool(value)) => Some(*value),
            Some(_) => {
                self.reject("true or false");
                None
            }
        }
    }
}

/// A table that is being read. Dropping the table records a mistake for each key that the program did not read.
#[derive(Debug)]
pub struct DocumentTable<'d> {
    map: Option<&'d Map<String, Value>>,
    node: DocumentNode<'d>,
    read: RefCell<BTreeSet<&'static str>>,
    /// The keys of earlier versions. The table knows these keys, but error messages do not suggest them.
    moved: RefCell<BTreeSet<&'static str>>,
}

impl<'d> DocumentTable<'d> {
    /// Returns the place of `key`, even if the document lacks the key, and marks the key as known.
    pub fn node_of_key(&self, key: &'static str) -> DocumentNode<'d> {
        self.read.borrow_mut().insert(key);
        self.node.record(|| Some(ExpectedValue::Table));
        let node = self.place(key);
        node.record(|| None);
        node
    }

    fn place(&self, key: &'static str) -> DocumentNode<'d> {
        let path =
            if self.node.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.node.path) };
        self.node.below(Step::Key(key), self.map.and_then(|map| map.get(key)), path)
    }

    /// Returns the place of `key`, as [`DocumentTable::node_of_key`] does. An absent value is a mistake.
    pub fn required_node(&self, key: &'static str, expected: &str) -> DocumentNode<'d> {
        let node = self.node_of_key(key);
        if !node.is_present() {
            node.reject(expected);
        }
        node
    }

    /// Rejects a key of an earlier version. `now` is a sentence for the error: it says where the key is now, or that the key no
    /// longer exists. Returns true if the key is present.
    pub fn reject_moved(&self, key: &'static str, now: &str) -> bool {
        self.moved.borrow_mut().insert(key);
        let node = self.place(key);
        if node.is_present() {
            node.reject(format!("nothing: {now}"));
        }
        node.is_present()
    }

    /// Returns every key with its place. Use this function for tables whose keys the user chooses.
    pub fn entries(&self) -> Vec<(&'d str, DocumentNode<'d>)> {
        self.node.record(|| Some(ExpectedValue::FreeTable));
        let Some(map) = self.map else { return Vec::new() };
        map.iter()
            .map(|(key, value)| {
                let path = format!("{}.{key}", self.node.path);
                (key.as_str(), self.node.below(Step::Any, Some(value), path))
            })
            .collect()
    }
}

impl Drop for DocumentTable<'_> {
    fn drop(&mut self) {
        let read = self.read.borrow();
        // If the program read no key by name, it read the table through `entries`, which returns all keys. So no key is unknown.
        let Some(map) = self.map.filter(|_| !read.is_empty()) else { return };
        let moved = self.moved.borrow();
        let is_known = |key: &str| read.contains(key) || moved.contains(key);
        for key in map.keys().filter(|key| !is_known(key)) {
            let known = read.iter().copied().collect::<Vec<_>>().join(", ");
            self.node.note(format!("the unknown key {:?}", shorten(key)), format!("one of: {known}"));
        }
    }
}

/// Returns the place and the reason of a syntax error, without the lines of the file and the parser's advice for programmers.
fn syntax(error: &serde_saphyr::Error) -> String {
    let told = error.render_with_formatter(&UserMessageFormatter);
    let first = told.lines().next().unwrap_or_default();
    first.strip_prefix("error: ").unwrap_or(first).to_owned()
}

/// The maximum length of a wrong value, key or path in a message, in characters.
const SHOWN: usize = 80;

/// The maximum number of mistakes in a report. A wrong file can have hundreds of thousands of mistakes.
const MOST: usize = 100;

fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(SHOWN).map(visible).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// Replaces a character that changes the writing direction of a text.
/// Otherwise the message could show the text in another order than the file.
fn visible(c: char) -> char {
    // Unicode Standard Annex 9, section 2: explicit and implicit directional formatting characters.
    let turns =
        matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if turns { '\u{fffd}' } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_yaml_is_told_in_a_line_for_whoever_wrote_it() {
        let told = |text: &str| Document::parse(text).unwrap_err().to_string();
        for (text, why) in [
            ("a: 1\na: 2\n", "line 2 column 1: duplicate mapping key: a"),
            ("a: 1\n---\nb: 2\n", "line 3 column 1: "),
            ("a: [\n", "line 1 column 4: "),
        ] {
            let told = told(text);
            assert!(told.contains(&format!("found {why}")) && told.trim().lines().count() == 1, "{told}");
            assert!(!told.contains("Policy") && !told.contains("from_str"), "{told}");
        }
    }

    #[test]
    fn what_turns_a_line_round_is_not_shown() {
        let document = Document::parse("key: \"a\u{202e}b\"\n").unwrap();
        document.root().node_of_key("key").reject("something else");
        let shown = document.finish(()).unwrap_err().to_string();
        assert!(shown.contains("a\u{fffd}b"), "{shown:?}");
    }

    #[test]
    fn a_key_that_moved_is_told_of_and_not_offered() {
        let document = Document::parse("old: 1\ntypo: 2\n").unwrap();
        {
            let root = document.root();
            assert!(root.reject_moved("old", "this key is now new.old"));
            assert!(!root.reject_moved("older", "this key is gone"));
            let _ = root.node_of_key("new");
        }
        let shown = document.finish(()).unwrap_err().to_string();
        assert!(shown.contains("old: found 1, expected nothing: this key is now new.old"), "{shown}");
        assert!(shown.contains("\"typo\", expected one of: new\n"), "{shown}");
    }

    #[test]
    fn every_mistake_is_reported_at_once() {
        let document = Document::parse("port: many\nlist: [1, x]\nflag: 3\ntypo: 1\n").unwrap();
        {
            let root = document.root();
            assert_eq!(root.node_of_key("port").number(1..=65535), None);
            for item in root.node_of_key("list").list() {
                let _ = item.number(0..=9);
            }
            assert_eq!(root.node_of_key("flag").boolean(), None);
            assert!(root.required_node("name", "a name").text("a name", |t| Some(t.to_owned())).is_none());
        }
        let mistakes = document.finish(()).unwrap_err();
        let text = mistakes.to_string();
        assert_eq!(mistakes.0.len(), 5, "{text}");
        for part in ["port: found \"many\"", "list[1]", "flag: found 3", "name: found nothing", "\"typo\""] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    /// Regression test: a message once contained a key of five megabytes.
    #[test]
    fn what_is_told_of_a_mistake_is_bounded_whatever_the_document_holds() {
        let long = "k".repeat(1 << 20);
        let document = Document::parse(&format!("? {long}\n: 1\nown:\n  ? {long}\n  : {long}\n")).unwrap();
        {
            let root = document.root();
            for (_, node) in root.node_of_key("own").as_table().entries() {
                node.number(0..=1);
            }
        }
        let mistakes = document.finish(()).unwrap_err();
        assert_eq!(mistakes.0.len(), 2);
        assert!(mistakes.to_string().len() < 1000, "{mistakes}");

        let many: String = (0..10_000).map(|n| format!("k{n}: 1\n")).collect();
        let document = Document::parse(&many).unwrap();
        document.root().node_of_key("known");
        let mistakes = document.finish(()).unwrap_err();
        assert_eq!(mistakes.0.len(), MOST + 1);
        assert!(mistakes.to_string().contains("more mistakes"), "{mistakes}");
    }

    #[test]
    fn text_that_is_not_yaml_is_one_clear_mistake() {
        let mistakes = Document::parse("a: [1, 2").unwrap_err();
        assert_eq!(mistakes.0.len(), 1);
    }
}
