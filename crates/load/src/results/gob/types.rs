//! The types that a gob stream describes, and the fields of them that a record has.
//!
//! Numbers and layouts are Go's (`encoding/gob/type.go`, `wireType` and the built-in types there).

use std::collections::HashMap;

use super::read::{GobCursor, GobError};

/// The types by their number in this stream.
#[derive(Debug, Default)]
pub(super) struct GobTypes {
    described: HashMap<i64, GobLayout>,
}

/// The layout of a value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GobLayout {
    /// A built-in type of Go.
    Builtin(Builtin),
    /// An array or a slice of this type.
    List(i64),
    /// A map from one type to another.
    Map(i64, i64),
    /// Named fields.
    Struct(Vec<(String, i64)>),
    /// Bytes that the type's own methods wrote, such as those of a time.
    Opaque,
}

/// Layouts of Go's own types.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Builtin {
    /// A bool, int, uint or float.
    Number,
    /// Two numbers.
    Complex,
    /// Bytes or a string.
    Bytes,
}

const UINT: i64 = 3;
const INT: i64 = 2;
const BYTES: i64 = 5;
const STRING: i64 = 6;

/// The maximum number of types. Results need four; a stream that describes thousands is not a results file.
const MAX_TYPES: usize = 1024;

/// The action for each field of a struct, by position.
#[derive(Debug)]
pub(super) struct GobStructPlan {
    /// The fields in the order of the description.
    pub(super) fields: Vec<GobField>,
}

/// One field of the stream's struct.
#[derive(Debug)]
pub(super) enum GobField {
    /// A field of vegeta's `Result`, with the type it must have.
    Known(&'static str),
    /// Any other field, with its type, which is skipped.
    Unknown(i64),
}

impl GobTypes {
    /// Reads a `wireType` and stores it under `number`.
    pub(super) fn read_definition(
        &mut self,
        number: i64,
        cursor: &mut GobCursor<'_>,
    ) -> Result<(), GobError> {
        let mut kind = None;
        let mut last = None;
        while let Some(field) = cursor.next_field_number(last)? {
            kind = Some(match field {
                0 => list(cursor, 3)?,
                1 => list(cursor, 2)?,
                2 => GobLayout::Struct(structure(cursor)?),
                3 => map(cursor)?,
                4..=6 => opaque(cursor)?,
                _ => return Err(GobError::Type),
            });
            last = Some(field);
        }
        if self.described.len() >= MAX_TYPES {
            return Err(GobError::TooManyTypes);
        }
        self.described.insert(number, kind.ok_or(GobError::Type)?);
        Ok(())
    }

    /// Returns the layout of a type. Interfaces (8) carry types inside values; results have none, so they count as unknown.
    pub(super) fn layout(&self, number: i64) -> Result<&GobLayout, GobError> {
        match number {
            1..=4 => Ok(&GobLayout::Builtin(Builtin::Number)),
            BYTES | STRING => Ok(&GobLayout::Builtin(Builtin::Bytes)),
            7 => Ok(&GobLayout::Builtin(Builtin::Complex)),
            _ => self.described.get(&number).ok_or(GobError::Type),
        }
    }

    /// Returns the plan by which structs of this type are read as records.
    pub(super) fn plan(&self, number: i64) -> Result<GobStructPlan, GobError> {
        let GobLayout::Struct(fields) = self.layout(number)? else { return Err(GobError::NotResults) };
        let fields =
            fields.iter().map(|(name, kind)| self.field(name, *kind)).collect::<Result<Vec<_>, _>>()?;
        // A struct that shares no field with a result is something else.
        let known = fields.iter().any(|field| matches!(field, GobField::Known(_)));
        known.then_some(GobStructPlan { fields }).ok_or(GobError::NotResults)
    }

    fn field(&self, name: &str, kind: i64) -> Result<GobField, GobError> {
        let (known, fits) = match name {
            "Attack" => ("Attack", kind == STRING),
            "Seq" => ("Seq", kind == UINT),
            "Code" => ("Code", kind == UINT),
            "Timestamp" => ("Timestamp", *self.layout(kind)? == GobLayout::Opaque),
            "Latency" => ("Latency", kind == INT),
            "BytesOut" => ("BytesOut", kind == UINT),
            "BytesIn" => ("BytesIn", kind == UINT),
            "Error" => ("Error", kind == STRING),
            "Body" => ("Body", kind == BYTES),
            "Method" => ("Method", kind == STRING),
            "URL" => ("URL", kind == STRING),
            "Headers" => ("Headers", self.is_header(kind)?),
            _ => return Ok(GobField::Unknown(kind)),
        };
        if fits { Ok(GobField::Known(known)) } else { Err(GobError::WrongFieldType(known)) }
    }

    fn is_header(&self, kind: i64) -> Result<bool, GobError> {
        let GobLayout::Map(STRING, values) = self.layout(kind)? else { return Ok(false) };
        Ok(*self.layout(*values)? == GobLayout::List(STRING))
    }
}

/// Calls `each` with the number of every field of a struct; field 0 of a type is its name and number.
fn fields(
    cursor: &mut GobCursor<'_>,
    mut each: impl FnMut(u64, &mut GobCursor<'_>) -> Result<(), GobError>,
) -> Result<(), GobError> {
    let mut last = None;
    while let Some(field) = cursor.next_field_number(last)? {
        each(field, cursor)?;
        last = Some(field);
    }
    Ok(())
}

/// Skips a `CommonType`: a name and the type's number, which are known already.
fn common(cursor: &mut GobCursor<'_>) -> Result<(), GobError> {
    fields(cursor, |field, cursor| match field {
        0 => cursor.bytes().map(drop),
        1 => cursor.int().map(drop),
        _ => Err(GobError::Type),
    })
}

/// Reads an `arrayType` (three fields, the last is the length) or a `sliceType` (two).
fn list(cursor: &mut GobCursor<'_>, count: u64) -> Result<GobLayout, GobError> {
    let mut element = None;
    fields(cursor, |field, cursor| match field {
        0 => common(cursor),
        1 => cursor.int().map(|number| element = Some(number)),
        _ if field < count => cursor.int().map(drop),
        _ => Err(GobError::Type),
    })?;
    element.map(GobLayout::List).ok_or(GobError::Type)
}

fn map(cursor: &mut GobCursor<'_>) -> Result<GobLayout, GobError> {
    let (mut key, mut element) = (None, None);
    fields(cursor, |field, cursor| match field {
        0 => common(cursor),
        1 => cursor.int().map(|number| key = Some(number)),
        2 => cursor.int().map(|number| element = Some(number)),
        _ => Err(GobError::Type),
    })?;
    key.zip(element).map(|(key, element)| GobLayout::Map(key, element)).ok_or(GobError::Type)
}

fn structure(cursor: &mut GobCursor<'_>) -> Result<Vec<(String, i64)>, GobError> {
    let mut named = Vec::new();
    fields(cursor, |field, cursor| match field {
        0 => common(cursor),
        1 => {
            for _ in 0..cursor.uint()? {
                named.push(field_type(cursor)?);
            }
            Ok(())
        }
        _ => Err(GobError::Type),
    })?;
    Ok(named)
}

fn field_type(cursor: &mut GobCursor<'_>) -> Result<(String, i64), GobError> {
    let (mut name, mut kind) = (String::new(), None);
    fields(cursor, |field, cursor| match field {
        0 => cursor.text().map(|text| name = text.into_owned()),
        1 => cursor.int().map(|number| kind = Some(number)),
        _ => Err(GobError::Type),
    })?;
    kind.map(|kind| (name, kind)).ok_or(GobError::Type)
}

fn opaque(cursor: &mut GobCursor<'_>) -> Result<GobLayout, GobError> {
    fields(cursor, |field, cursor| if field == 0 { common(cursor) } else { Err(GobError::Type) })?;
    Ok(GobLayout::Opaque)
}
