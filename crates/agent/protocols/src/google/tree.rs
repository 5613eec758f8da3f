//! Stores a metadata tree and writes its output forms: listing, leaf, recursive JSON, recursive text.
//!
//! This module contains no code for requests. [`super::node_metadata`] builds the tree, and [`super::federate`] reads it. The
//! formats follow Google's test suite for a metadata emulator (as republished in public repositories) and recorded responses of
//! real servers.

use std::borrow::Cow;
use std::sync::Arc;

use super::etag::ETag;
use crate::json::write_string;

/// An entry in the tree. Cloning is cheap, because the trees of all accounts share the node's entries.
#[derive(Clone, Debug)]
pub(super) enum TreeEntry {
    Directory(Arc<Directory>),
    Leaf(Arc<Leaf>),
    /// The access token. Listings contain this entry, but recursive reads omit it.
    AccessToken,
    /// The identity token. Listings contain this entry, but recursive reads omit it.
    IdToken,
    /// The entry of the identity token for an account that cannot get identity tokens.
    ///
    /// Listings omit this entry, so clients see only working entries. A direct read finds this entry, so the refusal can state
    /// the reason.
    IdTokenUnavailable,
}

/// A directory and its children, sorted by name.
#[derive(Debug)]
pub(super) struct Directory {
    children: Vec<(Cow<'static, str>, TreeEntry)>,
    keys: KeyStyle,
    etag: ETag,
}

/// The rule that converts the names of children to JSON keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyStyle {
    /// Camel case: `project-id` becomes `projectId`.
    Camel,
    /// The name is unchanged. This applies below `attributes` and `service-accounts`, where names are data.
    Verbatim,
}

/// A leaf of the tree: its value as text, and the JSON type of the value.
#[derive(Debug)]
pub(super) struct Leaf {
    form: LeafType,
    text: String,
    etag: ETag,
}

/// The JSON type of a leaf's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeafType {
    Text,
    Number,
    /// A list with one item per line. Each line has a line end. In JSON, the list is an array.
    List,
}

impl Leaf {
    pub(super) fn new_text_entry(text: impl Into<String>) -> TreeEntry {
        Self::entry(LeafType::Text, text.into())
    }

    pub(super) fn new_number_entry(number: u64) -> TreeEntry {
        Self::entry(LeafType::Number, number.to_string())
    }

    pub(super) fn new_list_entry<'a>(items: impl IntoIterator<Item = &'a str>) -> TreeEntry {
        Self::entry(LeafType::List, items.into_iter().flat_map(|item| [item, "\n"]).collect())
    }

    fn entry(form: LeafType, text: String) -> TreeEntry {
        let etag = ETag::of_content(text.as_bytes());
        TreeEntry::Leaf(Arc::new(Self { form, text, etag }))
    }

    pub(super) fn as_text(&self) -> &str {
        &self.text
    }

    pub(super) fn etag(&self) -> ETag {
        self.etag
    }

    pub(super) fn to_json(&self) -> String {
        let mut out = String::with_capacity(self.text.len() + 2);
        self.write_json(&mut out);
        out
    }

    fn write_json(&self, out: &mut String) {
        match self.form {
            LeafType::Text => write_string(out, &self.text),
            LeafType::Number => out.push_str(&self.text),
            LeafType::List => {
                out.push('[');
                write_joined(out, self.text.lines(), write_string);
                out.push(']');
            }
        }
    }

    fn write_text(&self, path: &str, out: &mut String) {
        match self.form {
            LeafType::List => self.text.lines().for_each(|item| out.extend([path, " ", item, "\n"])),
            LeafType::Text | LeafType::Number => out.extend([path, " ", &self.text, "\n"]),
        }
    }
}

impl Directory {
    pub(super) fn new(
        keys: KeyStyle,
        children: impl IntoIterator<Item = (Cow<'static, str>, TreeEntry)>,
    ) -> Self {
        let mut children: Vec<_> = children.into_iter().collect();
        children.sort_by(|(a, _), (b, _)| a.cmp(b));
        // Each account's tree stays in memory while pods use the account, so this code releases unused capacity.
        children.shrink_to_fit();
        let mut directory = Self { children, keys, etag: ETag::of_content(b"") };
        directory.etag = ETag::of_content(directory.to_json().as_bytes());
        directory
    }

    /// Finds the entry below this directory at the path that consists of these names.
    pub(super) fn find<'n>(&self, names: impl Iterator<Item = &'n str>) -> Option<FoundEntry<'_>> {
        let mut found = FoundEntry::Directory(self);
        for name in names {
            let FoundEntry::Directory(directory) = found else { return None };
            found = directory.child(name)?;
        }
        Some(found)
    }

    /// Finds a child by its name. With [`KeyStyle::Camel`], an underscore in `name` also matches a dash in the child's name.
    ///
    /// The real server treats `universe_domain` like `universe-domain`. gcloud and older Go clients request `universe_domain`;
    /// newer Go clients request `universe-domain`.
    fn child(&self, name: &str) -> Option<FoundEntry<'_>> {
        let dashed = |byte| if byte == b'_' && self.keys == KeyStyle::Camel { b'-' } else { byte };
        let is_meant = |child: &str| {
            child.len() == name.len() && (child == name || child.bytes().eq(name.bytes().map(dashed)))
        };
        self.children.iter().find(|(child, _)| is_meant(child)).map(|(_, entry)| match entry {
            TreeEntry::Directory(directory) => FoundEntry::Directory(directory),
            TreeEntry::Leaf(leaf) => FoundEntry::Leaf(leaf),
            TreeEntry::AccessToken => FoundEntry::AccessToken,
            TreeEntry::IdToken => FoundEntry::IdToken,
            TreeEntry::IdTokenUnavailable => FoundEntry::IdTokenUnavailable,
        })
    }

    pub(super) fn etag(&self) -> ETag {
        self.etag
    }

    /// Returns the names of the children, one per line. Directory names end with a slash.
    pub(super) fn listing(&self) -> String {
        let mut out = String::new();
        for (name, entry) in &self.children {
            match entry {
                TreeEntry::IdTokenUnavailable => {}
                TreeEntry::Directory(_) => out.extend([name, "/\n"]),
                TreeEntry::Leaf(_) | TreeEntry::AccessToken | TreeEntry::IdToken => out.extend([name, "\n"]),
            }
        }
        out
    }

    /// Returns the whole subtree as compact JSON.
    pub(super) fn to_json(&self) -> String {
        let mut out = String::new();
        self.write_json(&mut out);
        out
    }

    fn write_json(&self, out: &mut String) {
        out.push('{');
        write_joined(out, self.contents(), |out, (name, entry)| {
            write_string(out, &self.key(name));
            out.push(':');
            match entry {
                Content::Directory(directory) => directory.write_json(out),
                Content::Leaf(leaf) => leaf.write_json(out),
            }
        });
        out.push('}');
    }

    /// Returns the whole subtree as lines of `path value`. A list has one line per item.
    pub(super) fn to_text(&self) -> String {
        let mut out = String::new();
        self.write_text("", &mut out);
        out
    }

    fn write_text(&self, above: &str, out: &mut String) {
        for (name, entry) in self.contents() {
            let path = format!("{above}{name}");
            match entry {
                Content::Directory(directory) => directory.write_text(&format!("{path}/"), out),
                Content::Leaf(leaf) => leaf.write_text(&path, out),
            }
        }
    }

    /// Returns the children that a recursive read contains.
    fn contents(&self) -> impl Iterator<Item = (&str, Content<'_>)> {
        self.children.iter().filter_map(|(name, entry)| match entry {
            TreeEntry::Directory(directory) => Some((&**name, Content::Directory(directory))),
            TreeEntry::Leaf(leaf) => Some((&**name, Content::Leaf(leaf))),
            TreeEntry::AccessToken | TreeEntry::IdToken | TreeEntry::IdTokenUnavailable => None,
        })
    }

    fn key<'n>(&self, name: &'n str) -> Cow<'n, str> {
        match self.keys {
            KeyStyle::Camel if name.contains('-') => camel_case(name).into(),
            KeyStyle::Camel | KeyStyle::Verbatim => name.into(),
        }
    }
}

/// The entry that was found at a path. The variants correspond to those of [`TreeEntry`].
#[derive(Clone, Copy, Debug)]
pub(super) enum FoundEntry<'t> {
    Directory(&'t Directory),
    Leaf(&'t Leaf),
    AccessToken,
    IdToken,
    IdTokenUnavailable,
}

enum Content<'t> {
    Directory(&'t Directory),
    Leaf(&'t Leaf),
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('-');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

fn write_joined<T>(out: &mut String, items: impl Iterator<Item = T>, mut write: impl FnMut(&mut String, T)) {
    for (place, item) in items.enumerate() {
        if place > 0 {
            out.push(',');
        }
        write(out, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seawall_http::path::canonicalise_target;

    fn sample() -> Directory {
        let account = Directory::new(
            KeyStyle::Camel,
            [
                ("token".into(), TreeEntry::AccessToken),
                ("identity".into(), TreeEntry::IdTokenUnavailable),
                ("email".into(), Leaf::new_text_entry("a@b")),
                ("scopes".into(), Leaf::new_list_entry(["s1", "s2"])),
            ],
        );
        let accounts =
            Directory::new(KeyStyle::Verbatim, [("a-b@c-d".into(), TreeEntry::Directory(account.into()))]);
        Directory::new(
            KeyStyle::Camel,
            [
                ("service-accounts".into(), TreeEntry::Directory(accounts.into())),
                ("numeric-project-id".into(), Leaf::new_number_entry(42)),
                ("image".into(), Leaf::new_text_entry("")),
            ],
        )
    }

    #[test]
    fn a_tree_is_written_in_the_four_forms() {
        let tree = sample();
        assert_eq!(tree.listing(), "image\nnumeric-project-id\nservice-accounts/\n");
        assert_eq!(
            tree.to_json(),
            r#"{"image":"","numericProjectId":42,"serviceAccounts":{"a-b@c-d":{"email":"a@b","scopes":["s1","s2"]}}}"#
        );
        assert_eq!(
            tree.to_text(),
            "image \nnumeric-project-id 42\nservice-accounts/a-b@c-d/email a@b\n\
             service-accounts/a-b@c-d/scopes s1\nservice-accounts/a-b@c-d/scopes s2\n"
        );
    }

    #[test]
    fn tokens_are_listed_and_found_but_never_part_of_recursion() {
        let tree = sample();
        let target = canonicalise_target("/service-accounts/a-b@c-d/").unwrap();
        let Some(FoundEntry::Directory(account)) = tree.find(target.path.segments()) else { panic!() };
        assert_eq!(account.listing(), "email\nscopes\ntoken\n");
        let token = canonicalise_target("/service-accounts/a-b@c-d/token").unwrap();
        assert!(matches!(tree.find(token.path.segments()), Some(FoundEntry::AccessToken)));
        let below = canonicalise_target("/service-accounts/a-b@c-d/token/x").unwrap();
        assert!(tree.find(below.path.segments()).is_none());
    }

    #[test]
    fn a_tag_follows_the_content_of_its_subtree() {
        let with = |name: &str| {
            let inner = Directory::new(KeyStyle::Verbatim, [("name".into(), Leaf::new_text_entry(name))]);
            Directory::new(KeyStyle::Camel, [("attributes".into(), TreeEntry::Directory(inner.into()))])
        };
        assert_eq!(with("a").etag(), with("a").etag());
        assert_ne!(with("a").etag(), with("b").etag());
    }
}
