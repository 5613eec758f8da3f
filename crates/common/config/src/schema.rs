//! Derives a JSON schema (draft 7) from what a program reads.
//!
//! The program reads a sample document, and the document notes each place and what was expected there. So the schema names the keys
//! that the code reads, and no second list of them exists. A key that the program reads only in some documents needs a sample of its
//! own. Lists, and tables whose keys the user chooses, need an element in a sample, because only then the program reads one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// Describes what the program expects at a place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ExpectedValue {
    /// A table with keys that the program chose.
    Table,
    /// A table with keys that the user chooses.
    FreeTable,
    List,
    /// A text, or a number that stands for one, with this description.
    Text(String),
    Number(u64, u64),
    Boolean,
}

/// Holds the places that a program has read, by the path from the root, with what it expected there.
#[derive(Debug, Default)]
pub struct ReadPlaces(pub(crate) BTreeMap<Vec<Step>, BTreeSet<ExpectedValue>>);

/// A step from a place to one below it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Key(&'static str),
    /// Any element of a list, or any value of a table with keys that the user chooses.
    Any,
}

impl ReadPlaces {
    pub(crate) fn note(&mut self, place: &[Step], expected: Option<ExpectedValue>) {
        self.0.entry(place.to_vec()).or_default().extend(expected);
    }

    /// Adds the places of another sample.
    pub fn merge(&mut self, other: Self) {
        for (place, expected) in other.0 {
            self.0.entry(place).or_default().extend(expected);
        }
    }

    /// Returns the schema of the document. Each place also accepts null, which stands for no value.
    pub fn schema(&self) -> Value {
        self.schema_at(&mut Vec::new())
    }

    fn schema_at(&self, place: &mut Vec<Step>) -> Value {
        let expected = self.0.get(place).cloned().unwrap_or_default();
        let (mut types, mut schema, mut texts) = (BTreeSet::new(), Map::new(), Vec::new());
        for one in &expected {
            match one {
                ExpectedValue::Table => {
                    types.insert("object");
                    schema.insert("properties".into(), self.properties(place));
                    schema.insert("additionalProperties".into(), false.into());
                }
                // A table that the program also reads by keys has no others.
                ExpectedValue::FreeTable if expected.contains(&ExpectedValue::Table) => {}
                ExpectedValue::FreeTable => {
                    types.insert("object");
                    let value = self.any(place);
                    schema.insert("additionalProperties".into(), value);
                }
                ExpectedValue::List => {
                    types.insert("array");
                    let items = self.any(place);
                    schema.insert("items".into(), items);
                }
                ExpectedValue::Text(text) => {
                    types.extend(["string", "number"]);
                    texts.push(text.as_str());
                }
                ExpectedValue::Number(least, most) => {
                    types.insert("integer");
                    schema.insert("minimum".into(), json!(least));
                    if *most < u64::MAX {
                        schema.insert("maximum".into(), json!(most));
                    }
                }
                ExpectedValue::Boolean => {
                    types.insert("boolean");
                }
            }
        }
        if !texts.is_empty() {
            schema.insert("description".into(), texts.join("; or ").into());
        }
        // The program looks only whether such a place has a value.
        if !types.is_empty() {
            types.insert("null");
            schema.insert("type".into(), json!(types));
        }
        schema.into()
    }

    fn properties(&self, place: &mut Vec<Step>) -> Value {
        let depth = place.len();
        let below = self.0.keys().filter(|key| key.len() == depth + 1 && key.starts_with(place));
        let keys: Vec<_> = below.filter_map(|key| key.last()).collect();
        let mut properties = Map::new();
        for step in keys {
            if let Step::Key(key) = step {
                place.push(step.clone());
                properties.insert((*key).to_owned(), self.schema_at(place));
                place.pop();
            }
        }
        properties.into()
    }

    fn any(&self, place: &mut Vec<Step>) -> Value {
        place.push(Step::Any);
        let schema = self.schema_at(place);
        place.pop();
        schema
    }

    /// Returns the lists and the tables with free keys of which no sample has an element, as paths such as `aws.session.tags`.
    pub fn places_without_sample(&self) -> Vec<String> {
        let has_elements = |place: &Vec<Step>| {
            let mut element = place.clone();
            element.push(Step::Any);
            self.0.contains_key(&element)
        };
        let needs_sample = |expected: &BTreeSet<ExpectedValue>| {
            let is_free =
                expected.contains(&ExpectedValue::FreeTable) && !expected.contains(&ExpectedValue::Table);
            is_free || expected.contains(&ExpectedValue::List)
        };
        let missing =
            self.0.iter().filter(|(place, expected)| needs_sample(expected) && !has_elements(place));
        missing.map(|(place, _)| path(place)).collect()
    }
}

fn path(place: &[Step]) -> String {
    let steps: Vec<_> = place
        .iter()
        .map(|step| match step {
            Step::Key(key) => key,
            Step::Any => "*",
        })
        .collect();
    steps.join(".")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{Document, DocumentTable};

    fn read(root: &DocumentTable<'_>) {
        root.node_of_key("port").number(1..=9);
        for item in root.node_of_key("names").list() {
            let _ = item.text("a name", |text| Some(text.to_owned()));
        }
        for (_, value) in root.node_of_key("attributes").as_table().entries() {
            let _ = value.boolean();
        }
        let inner = root.node_of_key("inner").as_table();
        inner.node_of_key("on").boolean();
        root.reject_moved("old", "it is gone");
    }

    #[test]
    fn a_schema_has_the_keys_that_the_program_reads_and_no_others() {
        let (places, ()) = Document::parse_recording("names: [a]\nattributes: {x: true}\n", read).unwrap();
        assert_eq!(places.places_without_sample(), [""; 0]);
        let text = json!({"type": ["null", "number", "string"], "description": "a name"});
        let boolean = json!({"type": ["boolean", "null"]});
        let expected = json!({
            "type": ["null", "object"], "additionalProperties": false,
            "properties": {
                "port": {"type": ["integer", "null"], "minimum": 1, "maximum": 9},
                "names": {"type": ["array", "null"], "items": text},
                "attributes": {"type": ["null", "object"], "additionalProperties": boolean},
                "inner": {"type": ["null", "object"], "additionalProperties": false, "properties": {"on": boolean}},
            },
        });
        assert_eq!(places.schema(), expected);
    }

    #[test]
    fn a_list_that_no_sample_fills_is_named() {
        let (places, ()) = Document::parse_recording("{}", read).unwrap();
        assert_eq!(places.places_without_sample(), ["attributes", "names"]);
    }
}
