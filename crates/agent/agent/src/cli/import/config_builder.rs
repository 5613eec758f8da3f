//! Builds a configuration from keys and from remarks on flags. For each key, the builder records the flag that set the key.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use seawall_config::{ValidationError, ValidationErrors};
use serde_json::{Map, Value};

use crate::config;

/// The keys and remarks that the flags have produced so far.
#[derive(Debug)]
pub(super) struct ConfigBuilder {
    settings: BTreeMap<&'static str, Setting>,
    remarks: Vec<Remark>,
    /// The last value of each given flag.
    given: HashMap<&'static str, String>,
    /// The flag that the import translates now.
    flag: Option<&'static str>,
}

#[derive(Debug)]
struct Setting {
    value: Value,
    flag: Option<&'static str>,
}

/// A remark on one or more flags.
#[derive(Debug)]
struct Remark {
    flags: Vec<&'static str>,
    text: Cow<'static, str>,
}

impl ConfigBuilder {
    /// Returns an empty builder for these flags and their values.
    pub(super) fn new(given: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        Self {
            settings: BTreeMap::new(),
            remarks: Vec::new(),
            given: given.into_iter().collect(),
            flag: None,
        }
    }

    /// Runs `reading` for one flag. The builder records this flag for the keys and remarks that `reading` adds.
    pub(super) fn with_current_flag(&mut self, flag: &'static str, reading: impl FnOnce(&mut Self)) {
        self.flag = Some(flag);
        reading(self);
        self.flag = None;
    }

    /// Sets a key. `key` includes the names of its tables (`aws.region`).
    /// Adds a remark if an earlier flag has set another value for the key.
    pub(super) fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        let (value, flag) = (value.into(), self.flag);
        let before = self.settings.insert(key, Setting { value: value.clone(), flag });
        if before.is_some_and(|before| before.flag.is_some() && before.value != value) {
            self.add_remark("given twice with different values: the last value counts");
        }
    }

    /// True if the key is set.
    pub(super) fn has_key(&self, key: &str) -> bool {
        self.settings.contains_key(key)
    }

    /// Returns the text that the key has now, or `None` if the key is not set or is not text.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.settings.get(key)?.value.as_str()
    }

    /// Returns the value of a flag, or `None` if the flag is absent.
    pub(super) fn flag_value(&self, flag: &str) -> Option<&str> {
        self.given.get(flag).map(String::as_str)
    }

    /// Adds a remark on the current flag. If there is no current flag, the remark applies to the whole configuration.
    pub(super) fn add_remark(&mut self, text: impl Into<Cow<'static, str>>) {
        let text = text.into();
        let at = self.remarks.iter().position(|remark| remark.text == text).unwrap_or(self.remarks.len());
        if at == self.remarks.len() {
            self.remarks.push(Remark { flags: Vec::new(), text });
        }
        let Some(Remark { flags, .. }) = self.remarks.get_mut(at) else { return };
        let new = self.flag.filter(|flag| !flags.contains(flag));
        flags.extend(new);
    }

    /// Returns the configuration as YAML. The text begins with `placement` and the remarks, as comments.
    pub(super) fn yaml(&self, title: &str, placement: &str) -> String {
        let mut out =
            format!("# Translated from the flags of {title} by `seawall-agent import`. {placement}\n");
        for line in self.remarks().lines() {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "# {line}");
        }
        out + &config::format_yaml(&self.tables())
    }

    fn tables(&self) -> Value {
        let mut root = Map::new();
        for (key, Setting { value, .. }) in &self.settings {
            put(&mut root, key, value);
        }
        Value::Object(root)
    }

    /// Returns the remarks, one per line.
    pub(super) fn remarks(&self) -> String {
        self.remarks.iter().fold(String::new(), |mut out, Remark { flags, text }| {
            let flags: Vec<_> = flags.iter().map(|flag| format!("--{flag}")).collect();
            let colon = if flags.is_empty() { "" } else { ": " };
            let _ = writeln!(out, "{}{colon}{text}", flags.join(", "));
            out
        })
    }

    /// Explains mistakes in the translated configuration. Each explanation names the flag that caused the mistake.
    pub(super) fn explain_errors(&self, mistakes: &ValidationErrors) -> Vec<String> {
        mistakes.0.iter().map(|mistake| self.blame_one(mistake)).collect()
    }

    fn blame_one(&self, mistake: &ValidationError) -> String {
        let is_at = |key: &str| {
            let below = mistake.key_path.strip_prefix(key);
            below.is_some_and(|below| below.is_empty() || below.starts_with(['[', '.']))
        };
        let flag = self.settings.iter().find(|(key, _)| is_at(key)).and_then(|(_, setting)| setting.flag);
        flag.map_or_else(
            || mistake.to_string(),
            |flag| format!("--{flag}: found {}, expected {}", mistake.found, mistake.expected),
        )
    }
}

/// Sets a value in nested tables. The dots of `key` separate the names of the tables (`aws.region`).
fn put(table: &mut Map<String, Value>, key: &str, value: &Value) {
    let Some((first, rest)) = key.split_once('.') else {
        table.insert(key.to_owned(), value.clone());
        return;
    };
    if let Value::Object(inner) = table.entry(first).or_insert_with(|| Value::Object(Map::new())) {
        put(inner, rest, value);
    }
}
