//! The metadata tree: finds, lists and writes its nodes. It knows no machines and no requests.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Map, Value};

/// The content type of leaf texts, listings and recursive texts.
pub(super) const TEXT_CONTENT_TYPE: &str = "application/text";

/// A node of the tree.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum MetadataNode {
    /// A directory whose names are written in camel case in JSON.
    Directory(BTreeMap<String, MetadataNode>),
    /// A directory whose names are the user's own and stay unchanged.
    VerbatimDirectory(BTreeMap<String, MetadataNode>),
    /// A directory with the entries `0/`, `1/` and so on; an array in JSON.
    Array(Vec<MetadataNode>),
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
    /// A text with one word per line; an array in JSON.
    Lines(Vec<String>),
    /// A leaf that is a JSON array in both formats.
    JsonList(Vec<String>),
    /// A value that is generated per request and never part of a recursive listing.
    Generated(GeneratedValue),
}

/// A generated value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GeneratedValue {
    /// An access token.
    Token,
    /// An access token with the field names of the first API version.
    LegacyToken,
    /// An identity token.
    Identity,
}

impl MetadataNode {
    /// Returns the node at this path. The segments are in lower case.
    pub(super) fn find(&self, segments: &[String]) -> Option<&Self> {
        let Some((first, rest)) = segments.split_first() else { return Some(self) };
        self.child(first)?.find(rest)
    }

    fn child(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Directory(children) | Self::VerbatimDirectory(children) => {
                children.iter().find(|(own, _)| own.to_lowercase() == name).map(|(_, child)| child)
            }
            Self::Array(items) => items.get(name.parse::<usize>().ok()?),
            _ => None,
        }
    }

    /// Returns the children, one per line; `None` for a leaf. Leaves that are lists have no slash.
    pub(super) fn listing(&self) -> Option<String> {
        let line = |name: &str, child: &Self| {
            let slash = if child.listing().is_some() { "/" } else { "" };
            format!("{name}{slash}\n")
        };
        match self {
            Self::Directory(children) | Self::VerbatimDirectory(children) => {
                Some(children.iter().map(|(name, child)| line(name, child)).collect())
            }
            Self::Array(items) => {
                Some(items.iter().enumerate().map(|(i, item)| line(&i.to_string(), item)).collect())
            }
            _ => None,
        }
    }

    /// Returns the text of a leaf.
    pub(super) fn leaf_text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => number.to_string(),
            Self::Lines(lines) => lines.iter().map(|line| format!("{line}\n")).collect(),
            Self::JsonList(_) => self.to_json().to_string(),
            Self::Directory(_) | Self::VerbatimDirectory(_) | Self::Array(_) | Self::Generated(_) => {
                String::new()
            }
        }
    }

    pub(super) fn content_type(&self) -> &'static str {
        if matches!(self, Self::JsonList(_)) { "application/json" } else { TEXT_CONTENT_TYPE }
    }

    /// Returns the whole subtree as JSON.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Directory(children) => object(children, camel_case),
            Self::VerbatimDirectory(children) => object(children, str::to_owned),
            Self::Array(items) => items.iter().map(Self::to_json).collect(),
            Self::Text(text) => Value::String(text.clone()),
            Self::Number(number) => (*number).into(),
            Self::Lines(lines) | Self::JsonList(lines) => lines.iter().map(String::as_str).collect(),
            Self::Generated(_) => Value::Null,
        }
    }

    /// Returns the whole subtree, one `path value` per line.
    pub(super) fn to_path_value_lines(&self) -> String {
        let mut lines = String::new();
        self.write_lines("", &mut lines);
        lines
    }

    fn write_lines(&self, path: &str, lines: &mut String) {
        let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
        match self {
            Self::Directory(children) | Self::VerbatimDirectory(children) => {
                children.iter().for_each(|(name, child)| child.write_lines(&below(name), lines));
            }
            Self::Array(items) => {
                items
                    .iter()
                    .enumerate()
                    .for_each(|(i, item)| item.write_lines(&below(&i.to_string()), lines));
            }
            Self::Lines(words) => words.iter().for_each(|word| *lines += &format!("{path} {word}\n")),
            Self::Generated(_) => {}
            _ => *lines += &format!("{path} {}\n", self.leaf_text()),
        }
    }

    /// Sixteen hexadecimal digits that change with any value in the subtree.
    pub(super) fn etag(&self) -> String {
        let hash = digest(&SHA256, self.to_json().to_string().as_bytes());
        hash.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

fn object(children: &BTreeMap<String, MetadataNode>, spell: fn(&str) -> String) -> Value {
    let written = children.iter().filter(|(_, child)| !matches!(child, MetadataNode::Generated(_)));
    Value::Object(written.map(|(name, child)| (spell(name), child.to_json())).collect::<Map<_, _>>())
}

/// Converts `numeric-project-id` to JSON's `numericProjectId`.
fn camel_case(name: &str) -> String {
    let mut words = name.split('-');
    let mut spelled = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        spelled.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        spelled.push_str(letters.as_str());
    }
    spelled
}
