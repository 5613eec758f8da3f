//! Values of data files: whole lines, CSV columns by number or by name, JSON lines by pointer.
//!
//! A file is read once for all placeholders. This module knows nothing of requests; [`super::escape`] does. CSV is RFC 4180, JSON
//! pointers are RFC 6901.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use memchr::memchr_iter;
use serde_json::value::RawValue;

use super::TemplateError;
use super::escape::Escape;
use crate::input_files::InputFiles;

/// The part of a row that a placeholder selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowPart<'p> {
    /// The line as it stands.
    Line,
    /// A CSV column, from 0; each line of the file is data.
    CsvColumnIndex(usize),
    /// A CSV column whose name stands in the first line.
    CsvColumnName(&'p str),
    /// A value of a JSON line.
    Pointer(&'p str),
}

/// The values of one column, concatenated.
#[derive(Debug, Default)]
pub(super) struct DataColumn {
    text: String,
    rows: Vec<RowEnd>,
}

#[derive(Debug, Clone, Copy)]
struct RowEnd {
    /// The end of the value in the text.
    end: usize,
    /// The line of the file at which the row begins, from 1.
    line: usize,
}

impl DataColumn {
    fn push(&mut self, value: &str, line: usize) {
        self.text.push_str(value);
        self.rows.push(RowEnd { end: self.text.len(), line });
    }

    /// Returns the value for the request with this number; rows begin again after the last.
    pub(super) fn value(&self, number: u64) -> &str {
        self.at((number % self.rows.len() as u64) as usize)
    }

    fn at(&self, row: usize) -> &str {
        let start = row.checked_sub(1).map_or(0, |before| self.rows[before].end);
        &self.text[start..self.rows[row].end]
    }

    fn values(&self) -> impl Iterator<Item = (&str, usize)> {
        (0..self.rows.len()).map(|row| (self.at(row), self.rows[row].line))
    }
}

/// The key of a column that placeholders share: file, part and escaping.
type ColumnKey = (String, String, Escape);

/// Reads data files and keeps their texts and the columns that placeholders use.
#[derive(Debug, Default)]
pub(super) struct DataFiles {
    pub(super) files: InputFiles,
    texts: HashMap<String, DataText>,
    columns: HashMap<ColumnKey, Arc<DataColumn>>,
}

/// A file's text, and its number of rows as the first placeholder read them.
#[derive(Debug)]
struct DataText {
    text: Arc<str>,
    rows: Option<usize>,
}

impl DataFiles {
    /// Returns all values of a part, escaped.
    pub(super) fn column(
        &mut self,
        file: &str,
        part: RowPart<'_>,
        escape: Escape,
    ) -> Result<Arc<DataColumn>, TemplateError> {
        let key = (file.to_owned(), format!("{part:?}"), escape);
        if let Some(column) = self.columns.get(&key) {
            return Ok(Arc::clone(column));
        }
        let column = self.read_column(file, part)?;
        let mut escaped = DataColumn::default();
        for (value, line) in column.values() {
            let text = escape.apply(value).map_err(|reason| bad_row(file, line, reason))?;
            escaped.push(&text, line);
        }
        let escaped = Arc::new(escaped);
        self.columns.insert(key, Arc::clone(&escaped));
        Ok(escaped)
    }

    fn read_column(&mut self, file: &str, part: RowPart<'_>) -> Result<DataColumn, TemplateError> {
        let data = self.text(file)?;
        let text = &data.text;
        let column = match part {
            RowPart::Line => whole_lines(text),
            RowPart::Pointer(pointer) => json_lines(file, text, pointer)?,
            RowPart::CsvColumnIndex(_) | RowPart::CsvColumnName(_) => csv_column(file, text, part)?,
        };
        let rows = column.rows.len();
        let first = *data.rows.get_or_insert(rows);
        if rows == 0 {
            return Err(bad_file(file, "the file has no rows".to_owned()));
        }
        // Otherwise, the values of one request would come from different rows.
        if rows != first {
            let reason = format!(
                "one placeholder finds {first} rows, and another placeholder finds {rows}: use column names in all placeholders (the first line is \
                 then the header), or column numbers in all placeholders (the first line is then data)"
            );
            return Err(bad_file(file, reason));
        }
        Ok(column)
    }

    fn text(&mut self, file: &str) -> Result<&mut DataText, TemplateError> {
        if !self.texts.contains_key(file) {
            let bytes = self.files.read(file).map_err(|error| bad_file(file, error.to_string()))?;
            let text = std::str::from_utf8(&bytes).map_err(|error| {
                bad_row(file, line_at(&bytes[..error.valid_up_to()]), "the line is not UTF-8".to_owned())
            })?;
            let text = text.strip_prefix('\u{feff}').unwrap_or(text).into();
            self.texts.insert(file.to_owned(), DataText { text, rows: None });
        }
        self.texts.get_mut(file).ok_or_else(|| bad_file(file, "the file has no rows".to_owned()))
    }
}

fn bad_file(file: &str, reason: String) -> TemplateError {
    TemplateError::File { file: file.to_owned(), reason }
}

fn bad_row(file: &str, line: usize, reason: String) -> TemplateError {
    bad_file(&format!("{file}:{line}"), reason)
}

/// Returns the number of the line that follows this text.
fn line_at(before: &[u8]) -> usize {
    memchr_iter(b'\n', before).count() + 1
}

/// Returns the lines that are not empty, with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (&str, usize)> {
    text.lines().zip(1..).filter(|(line, _)| !line.is_empty())
}

fn whole_lines(text: &str) -> DataColumn {
    let mut column = DataColumn::default();
    lines(text).for_each(|(line, number)| column.push(line, number));
    column
}

fn json_lines(file: &str, text: &str, pointer: &str) -> Result<DataColumn, TemplateError> {
    let mut column = DataColumn::default();
    for (line, number) in lines(text) {
        let value = json_value(line, pointer).map_err(|reason| bad_row(file, number, reason))?;
        column.push(&value, number);
    }
    Ok(column)
}

/// Returns the content of a string; any other value as it is written, with all digits.
fn json_value(line: &str, pointer: &str) -> Result<String, String> {
    let mut value: &RawValue =
        serde_json::from_str(line).map_err(|error| format!("the line is not JSON: {error}"))?;
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        value = json_member(value, &token).ok_or_else(|| format!("the line has no value at {pointer}"))?;
    }
    if value.get().starts_with('"') {
        return serde_json::from_str(value.get())
            .map_err(|error| format!("the string at {pointer} is invalid: {error}"));
    }
    Ok(value.get().to_owned())
}

fn json_member<'v>(value: &'v RawValue, token: &str) -> Option<&'v RawValue> {
    if let Ok(mut members) = serde_json::from_str::<BTreeMap<String, &'v RawValue>>(value.get()) {
        return members.remove(token);
    }
    let elements: Vec<&'v RawValue> = serde_json::from_str(value.get()).ok()?;
    let is_index = token == "0" || !token.starts_with('0') && token.bytes().all(|b| b.is_ascii_digit());
    elements.get(token.parse::<usize>().ok().filter(|_| is_index)?).copied()
}

/// Reads a CSV column. Rows of different lengths are refused: a comma or a quote is not quoted, and the columns behind it have
/// moved.
fn csv_column(file: &str, text: &str, part: RowPart<'_>) -> Result<DataColumn, TemplateError> {
    if is_json_lines(text) {
        return Err(bad_file(
            file,
            "the file has JSON lines: name a value by its JSON pointer, such as /name".to_owned(),
        ));
    }
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    let mut record = csv::StringRecord::new();
    let mut column = DataColumn::default();
    let mut header: Option<(usize, usize)> = None;
    let mut place = LineCounter::default();
    loop {
        let begins = usize::try_from(reader.position().byte()).unwrap_or(text.len());
        let is_row = reader.read_record(&mut record).map_err(|error| bad_file(file, error.to_string()))?;
        if !is_row {
            break;
        }
        let line = place.line(text, begins);
        let (at, fields) = match header {
            Some(known) => known,
            None => {
                (column_index(part, &record).map_err(|reason| bad_row(file, line, reason))?, record.len())
            }
        };
        let is_header = header.is_none() && matches!(part, RowPart::CsvColumnName(_));
        header = Some((at, fields));
        if record.len() != fields {
            let reason = format!(
                "the line has {} fields, but the first line has {fields}: put quotes around each field that contains a comma, a quote or a line break",
                record.len()
            );
            return Err(bad_row(file, line, reason));
        }
        if is_open_quote(&record, &text[place.counted..], reader.position().byte() >= text.len() as u64) {
            return Err(bad_row(file, line, "a quoted field has no closing quote".to_owned()));
        }
        if !is_header {
            column.push(record.get(at).unwrap_or_default(), line);
        }
    }
    Ok(column)
}

/// True if the last field of a file's last record has an opening quote and no closing quote, so that it extends to the end of the
/// file.
fn is_open_quote(record: &csv::StringRecord, written: &str, is_last: bool) -> bool {
    let last = record.get(record.len().saturating_sub(1)).unwrap_or_default();
    is_last && last.contains('\n') && !written.trim_end_matches(['\r', '\n']).ends_with('"')
}

/// Returns the index of the column, by the first record.
fn column_index(part: RowPart<'_>, first: &csv::StringRecord) -> Result<usize, String> {
    match part {
        RowPart::CsvColumnIndex(at) if at < first.len() => Ok(at),
        RowPart::CsvColumnIndex(at) => {
            Err(format!("there is no column {}: the line has {} columns", at + 1, first.len()))
        }
        RowPart::CsvColumnName(name) => {
            let mut named = first.iter().enumerate().filter(|(_, cell)| cell.trim() == name);
            match (named.next(), named.next()) {
                (Some((at, _)), None) => Ok(at),
                (Some(_), Some(_)) => Err(format!("two columns are named {name:?}: rename one of them")),
                _ => Err(format!("there is no column {name:?}: the header is {}", bounded_header(first))),
            }
        }
        RowPart::Line | RowPart::Pointer(_) => Err("not a CSV column".to_owned()),
    }
}

fn bounded_header(first: &csv::StringRecord) -> String {
    let names: Vec<&str> = first.iter().take(20).collect();
    names.join(", ").chars().take(200).collect()
}

/// True if the text is JSON lines. A CSV header is not a JSON object.
fn is_json_lines(text: &str) -> bool {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    first.trim_start().starts_with('{') && serde_json::from_str::<&RawValue>(first.trim()).is_ok()
}

/// Counts the lines of records, which come in order.
#[derive(Debug, Default)]
struct LineCounter {
    counted: usize,
    breaks: usize,
}

impl LineCounter {
    /// Returns the line of the record that starts at this position, after line ends and empty lines.
    fn line(&mut self, text: &str, begins: usize) -> usize {
        let rest = &text.as_bytes()[begins..];
        let skipped = rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let start = begins + skipped;
        self.breaks += memchr_iter(b'\n', &text.as_bytes()[self.counted..start]).count();
        self.counted = start;
        self.breaks + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str, part: RowPart<'_>) -> Result<Vec<String>, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let name = file.path().display().to_string();
        let column = DataFiles::default().column(&name, part, Escape::None);
        let column = column.map_err(|bad| bad.to_string().replace(&name, "data"))?;
        Ok((0..column.rows.len()).map(|row| column.at(row).to_owned()).collect())
    }

    fn refused(text: &str, part: RowPart<'_>) -> String {
        values(text, part).unwrap_err()
    }

    /// The examples of RFC 4180 section 2, rules 1 to 7.
    #[test]
    fn the_examples_of_rfc_4180_are_read_byte_for_byte() {
        let second = RowPart::CsvColumnIndex(1);
        for (text, expected) in [
            ("aaa,bbb,ccc\r\nzzz,yyy,xxx\r\n", ["bbb", "yyy"]),
            ("aaa,bbb,ccc\r\nzzz,yyy,xxx", ["bbb", "yyy"]),
            ("aaa, b b ,ccc\r\nzzz, ,xxx", [" b b ", " "]),
            ("\"aaa\",\"bbb\",\"ccc\"\r\nzzz,yyy,xxx", ["bbb", "yyy"]),
            ("\"aaa\",\"b\r\nbb\",\"ccc\"\r\nzzz,yyy,xxx", ["b\r\nbb", "yyy"]),
            ("\"aaa\",\"b\"\"bb\",\"ccc\"\r\nzzz,\"\",xxx", ["b\"bb", ""]),
            ("aaa,\"b,bb\",ccc\nzzz,yyy,xxx\n", ["b,bb", "yyy"]),
        ] {
            assert_eq!(values(text, second).unwrap(), expected, "{text:?}");
        }
        let named = "field_name,other,field_name3\r\naaa,bbb,ccc\r\nzzz,yyy,xxx\r\n";
        assert_eq!(values(named, RowPart::CsvColumnName("other")).unwrap(), ["bbb", "yyy"]);
    }

    #[test]
    fn a_first_line_is_a_header_where_columns_have_names_and_data_where_they_have_numbers() {
        let text = "name, age\nann,1\nbob,2\n";
        assert_eq!(values(text, RowPart::CsvColumnName("age")).unwrap(), ["1", "2"]);
        assert_eq!(values(text, RowPart::CsvColumnIndex(1)).unwrap(), [" age", "1", "2"]);
        assert_eq!(
            values(&format!("\u{feff}{text}"), RowPart::CsvColumnName("name")).unwrap(),
            ["ann", "bob"]
        );
    }

    #[test]
    fn a_file_that_two_placeholders_would_read_as_different_rows_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "name,age\nann,1\n").unwrap();
        let name = file.path().display().to_string();
        let mut files = DataFiles::default();
        files.column(&name, RowPart::CsvColumnName("name"), Escape::None).unwrap();
        let said = files.column(&name, RowPart::CsvColumnIndex(1), Escape::None).unwrap_err().to_string();
        assert!(said.contains("one placeholder finds 1 rows, and another placeholder finds 2"), "{said}");
    }

    #[test]
    fn bad_data_names_file_line_and_reason() {
        let third = RowPart::CsvColumnIndex(2);
        for (text, part, said) in [
            (
                "a,b\nc\n",
                RowPart::CsvColumnIndex(0),
                "data:2: the line has 1 fields, but the first line has 2",
            ),
            (
                "a,\"b\nc\"\r\n\r\nd\r\n",
                RowPart::CsvColumnIndex(0),
                "data:4: the line has 1 fields, but the first line has 2",
            ),
            ("a,b\n", third, "data:1: there is no column 3: the line has 2 columns"),
            (
                "name,age\nx,1\n",
                RowPart::CsvColumnName("nmae"),
                "data:1: there is no column \"nmae\": the header is name, age",
            ),
            ("n,n\nx,1\n", RowPart::CsvColumnName("n"), "data:1: two columns are named \"n\""),
            ("a,b\nc,\"d\ne,f\n", RowPart::CsvColumnIndex(0), "data:2: a quoted field has no closing quote"),
            ("a\n", RowPart::CsvColumnName("a"), "data: the file has no rows"),
            ("", RowPart::Line, "data: the file has no rows"),
            (
                "{\"a\":1}\n",
                RowPart::CsvColumnName("a"),
                "data: the file has JSON lines: name a value by its JSON pointer",
            ),
            ("{\"a\":1}\n{\"b\":1}\n", RowPart::Pointer("/a"), "data:2: the line has no value at /a"),
            ("\nann\n", RowPart::Pointer("/a"), "data:2: the line is not JSON"),
        ] {
            let refused = refused(text, part);
            assert!(refused.starts_with(&format!("bad placeholder: {said}")), "{refused}");
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"a\nb\xff\n").unwrap();
        let name = file.path().display().to_string();
        let said = DataFiles::default().column(&name, RowPart::Line, Escape::None).unwrap_err().to_string();
        assert!(said.ends_with(":2: the line is not UTF-8"), "{said}");
    }

    #[test]
    fn json_lines_give_strings_as_they_read_and_all_else_as_it_is_written() {
        let line = r#"{"user":{"name":"a \"b\", \u00e9\n","a/b":[10,{"~":1.50}],"big":123456789012345678901234567890}}"#;
        for (pointer, value) in [
            ("/user/name", "a \"b\", é\n"),
            ("/user/a~1b/0", "10"),
            ("/user/a~1b/1/~0", "1.50"),
            ("/user/a~1b", r#"[10,{"~":1.50}]"#),
            ("/user/big", "123456789012345678901234567890"),
        ] {
            assert_eq!(
                values(&format!("{line}\n\n{line}\n"), RowPart::Pointer(pointer)).unwrap(),
                [value; 2]
            );
        }
        for pointer in ["/user/a~1b/00", "/user/a~1b/2", "/user/name/x", "/user/a~1b/-"] {
            assert!(refused(line, RowPart::Pointer(pointer)).contains("no value at"), "{pointer}");
        }
    }
}
