//! Requests that differ from one to the next: counters, random values and rows of data files in a target's path, header values
//! and body.
//!
//! `{{seq}}` is the number of the request; `{{random 1 100}}` a number between the two, both included; `{{hex 16}}` that number
//! of random digits; `{{uuid}}` a random UUID (RFC 9562, version 4). `{{row users.txt}}` is a line of a file: the next one for
//! each request, and from the start again. `{{pick users.txt}}` is a random line, the same one everywhere in a request. The
//! values depend on the request's number and on the seed alone, not on threads.
//!
//! `{{row users.csv name}}` is a CSV column by its name in the first line. `{{row users.csv 2}}` is a column by its number; then
//! the first line is data like all others. `{{row users.jsonl /user/name}}` is a value of a JSON line. Values are escaped so that
//! the server reads them as they stand in the file ([`escape`]); `{{raw row ...}}` sends them unchanged.
//!
//! A filled target goes through all the checks of any other target (a row may break a URL), which costs some microseconds per
//! request. Targets without placeholders cost nothing more.

mod data;
mod escape;

use std::fmt::Write as _;
use std::sync::Arc;

use self::data::{DataColumn, DataFiles, RowPart};
use self::escape::{Escape, PlaceholderPlace};
use crate::input_files::InputFiles;
use crate::request::shorten_for_error_message;
use crate::target::Target;

/// A target with placeholders.
#[derive(Debug, Clone)]
pub struct Template {
    url: Vec<Piece>,
    headers: Vec<(String, Vec<Piece>)>,
    /// The body in pieces; `None` for a body without placeholders, such as one that is not text.
    body: Option<Vec<Piece>>,
    target: Target,
    seed: u64,
}

/// A part of a text.
#[derive(Debug, Clone)]
enum Piece {
    Text(String),
    Seq,
    Random { from: u64, to: u64 },
    Hex(usize),
    Uuid,
    NextRow(Arc<DataColumn>),
    RandomRow(Arc<DataColumn>),
}

/// The reason why a text is not a placeholder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The placeholder is unknown.
    #[error(
        "bad placeholder {0:?}: expected {{{{seq}}}}, {{{{random FROM TO}}}}, {{{{hex DIGITS}}}}, {{{{uuid}}}}, \
         {{{{row FILE [COLUMN]}}}} or {{{{pick FILE [COLUMN]}}}}, where COLUMN is a number from 1, a name in the first line of \
         a CSV file, or a pointer such as /user/name into JSON lines"
    )]
    Placeholder(String),
    /// A data file cannot be read, has no rows, or has a row that cannot be sent.
    #[error("bad placeholder: {file}: {reason}")]
    File {
        /// The name of the file, with the line if one is to blame.
        file: String,
        /// The mistake in the file.
        reason: String,
    },
    /// The host contains a placeholder, but it decides about connections and must not change.
    #[error("bad placeholder in {0:?}: the scheme and the host of a URL are fixed")]
    Host(String),
}

/// The maximum number of digits of one `{{hex}}`.
const MOST_DIGITS: usize = 4096;

/// The start of a placeholder.
pub(crate) const PLACEHOLDER_START: &str = "{{";

/// Reads templates and keeps the data files that they name.
#[derive(Debug, Default)]
pub struct TemplateReader {
    seed: u64,
    data: DataFiles,
}

impl TemplateReader {
    /// Makes a reader; the same seed gives the same random values.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Sets the reader of data files.
    #[must_use]
    pub fn with_files(mut self, files: InputFiles) -> Self {
        self.data.files = files;
        self
    }

    /// Returns the target's template; `None` if it has no placeholder.
    ///
    /// # Errors
    /// [`TemplateError`].
    pub fn read(&mut self, target: &Target) -> Result<Option<Template>, TemplateError> {
        let place = target.url.find("://").map_or(0, |scheme| scheme + 3);
        let path = target.url[place..].find(['/', '?', '#']).map_or(target.url.len(), |path| place + path);
        if target.url[..path].contains(PLACEHOLDER_START) {
            return Err(TemplateError::Host(shorten_for_error_message(&target.url)));
        }
        let mut template = Template {
            url: self.pieces(&target.url, PlaceholderPlace::Uniform(Escape::Percent))?,
            headers: Vec::with_capacity(target.headers.len()),
            body: None,
            target: target.clone(),
            seed: self.seed,
        };
        for (name, value) in &target.headers {
            template
                .headers
                .push((name.clone(), self.pieces(value, PlaceholderPlace::Uniform(Escape::CheckedHeader))?));
        }
        // A body that is not text has no placeholders.
        if let Some(body) =
            std::str::from_utf8(&target.body).ok().filter(|body| body.contains(PLACEHOLDER_START))
        {
            template.body = Some(self.pieces(body, PlaceholderPlace::of_body(target, body))?);
        }
        Ok(template.has_holes().then_some(template))
    }

    fn pieces(&mut self, text: &str, mut place: PlaceholderPlace) -> Result<Vec<Piece>, TemplateError> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(PLACEHOLDER_START) {
            let (inside, after) = after.split_once("}}").ok_or_else(|| {
                TemplateError::Placeholder(shorten_for_error_message(&format!("{{{{{after}")))
            })?;
            let escape = place.escape_after(before);
            pieces.push(Piece::Text(before.to_owned()));
            pieces.push(self.placeholder(inside, escape)?);
            rest = after;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Ok(pieces)
    }

    fn placeholder(&mut self, inside: &str, escape: Escape) -> Result<Piece, TemplateError> {
        let bad = || TemplateError::Placeholder(shorten_for_error_message(&format!("{{{{{inside}}}}}")));
        let number = |word: &str| word.parse::<u64>().map_err(|_| bad());
        let (escape, inside) = match first_word(inside) {
            ("raw", rest) => (escape.for_raw_placeholder(), rest),
            _ => (escape, inside),
        };
        let (kind, rest) = first_word(inside);
        if let "row" | "pick" = kind {
            let (file, column) = first_word(rest);
            let part = row_part(column).filter(|_| !file.is_empty()).ok_or_else(bad)?;
            let column = self.data.column(file, part, escape)?;
            return Ok(if kind == "row" { Piece::NextRow(column) } else { Piece::RandomRow(column) });
        }
        let words: Vec<&str> = inside.split_whitespace().collect();
        Ok(match words[..] {
            ["seq"] => Piece::Seq,
            ["uuid"] => Piece::Uuid,
            ["hex", digits] => {
                let digits = digits.parse().ok().filter(|digits| (1..=MOST_DIGITS).contains(digits));
                Piece::Hex(digits.ok_or_else(bad)?)
            }
            ["random", from, to] => {
                let (from, to) = (number(from)?, number(to)?);
                if from > to {
                    return Err(bad());
                }
                Piece::Random { from, to }
            }
            _ => return Err(bad()),
        })
    }
}

/// Returns the first word of a text and the rest, both without spaces around them.
fn first_word(text: &str) -> (&str, &str) {
    let text = text.trim();
    text.split_once(char::is_whitespace).map_or((text, ""), |(word, rest)| (word, rest.trim()))
}

/// Parses the column of a placeholder: nothing, a number from 1, a JSON pointer, or a name, which may contain spaces.
fn row_part(column: &str) -> Option<RowPart<'_>> {
    if column.is_empty() {
        return Some(RowPart::Line);
    }
    if column.bytes().all(|b| b.is_ascii_digit()) {
        return column.parse::<usize>().ok()?.checked_sub(1).map(RowPart::CsvColumnIndex);
    }
    Some(if column.starts_with('/') { RowPart::Pointer(column) } else { RowPart::CsvColumnName(column) })
}

impl Template {
    fn has_holes(&self) -> bool {
        let texts = self.headers.iter().map(|(_, pieces)| pieces).chain([&self.url]).chain(&self.body);
        let mut pieces = texts.flatten();
        pieces.any(|piece| !matches!(piece, Piece::Text(_)))
    }

    /// Returns the template with another method.
    #[must_use]
    pub fn with_method(mut self, method: &str) -> Self {
        method.clone_into(&mut self.target.method);
        self
    }

    /// Returns the target of the request with this number.
    #[must_use]
    pub fn fill(&self, seq: u64) -> Target {
        // The golden ratio spreads neighbouring numbers over all seeds (as in splitmix64).
        let mut random = fastrand::Rng::with_seed(self.seed ^ seq.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let chosen = random.u64(..);
        let mut text = |pieces: &[Piece]| {
            let mut out = String::new();
            pieces.iter().for_each(|piece| piece.append(&mut out, seq, chosen, &mut random));
            out
        };
        Target {
            method: self.target.method.clone(),
            url: text(&self.url),
            headers: self.headers.iter().map(|(name, pieces)| (name.clone(), text(pieces))).collect(),
            body: match &self.body {
                None => Arc::clone(&self.target.body),
                Some(pieces) => text(pieces).into_bytes().into(),
            },
            weight: self.target.weight,
            variant: self.target.variant.clone(),
            expect: self.target.expect.clone(),
        }
    }
}

impl Piece {
    /// Appends the value of the piece. `chosen` picks the same row everywhere in a request.
    fn append(&self, out: &mut String, seq: u64, chosen: u64, random: &mut fastrand::Rng) {
        match self {
            Self::Text(text) => out.push_str(text),
            // Writing to a string cannot fail.
            Self::Seq => _ = write!(out, "{seq}"),
            Self::Random { from, to } => _ = write!(out, "{}", random.u64(*from..=*to)),
            Self::Hex(digits) => (0..*digits).for_each(|_| out.push(random.digit(16))),
            Self::Uuid => {
                let bits = random.u128(..) & !(0xf << 76) & !(3 << 62) | 4 << 76 | 2 << 62;
                let hex = format!("{bits:032x}");
                let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
                out.push_str(&parts.join("-"));
            }
            Self::NextRow(column) => out.push_str(column.value(seq)),
            Self::RandomRow(column) => out.push_str(column.value(chosen)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn target(url: &str, header: &str, body: &str) -> Target {
        Target {
            method: "POST".into(),
            url: url.into(),
            headers: vec![("X".into(), header.into())],
            body: body.as_bytes().into(),
            ..Target::default()
        }
    }

    fn read(url: &str, header: &str, body: &str) -> Result<Option<Template>, TemplateError> {
        TemplateReader::new(1).read(&target(url, header, body))
    }

    #[test]
    fn counters_and_random_values_fill_every_part() {
        let template =
            read("http://a/{{seq}}?n={{random 5 6}}", "{{hex 8}}", "{\"id\":\"{{uuid}}\"}").unwrap().unwrap();
        let (one, again, two) = (template.fill(1), template.fill(1), template.fill(2));
        assert_eq!(one, again, "the number of the hit decides");
        assert!(one.url == "http://a/1?n=5" || one.url == "http://a/1?n=6", "{}", one.url);
        assert_ne!(one.headers[0].1, two.headers[0].1);
        assert!(one.headers[0].1.len() == 8 && one.headers[0].1.bytes().all(|b| b.is_ascii_hexdigit()));
        let body = String::from_utf8(one.body.to_vec()).unwrap();
        let uuid: Vec<&str> = body[7..43].split('-').collect();
        assert_eq!(uuid.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert!(uuid[2].starts_with('4') && uuid[3].starts_with(['8', '9', 'a', 'b']), "{body}");
    }

    #[test]
    fn rows_come_in_turn_and_picks_agree_within_a_request() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"anna,1\n\nben,2\ncarl,3\n").unwrap();
        let name = file.path().display();
        let template = read(
            &format!("http://a/{{{{row {name} 1}}}}/{{{{row {name} 2}}}}"),
            &format!("{{{{pick {name}}}}}"),
            &format!("{{{{pick {name}}}}}"),
        );
        let template = template.unwrap().unwrap();
        let urls: Vec<_> = (0..4).map(|seq| template.fill(seq).url).collect();
        assert_eq!(urls, ["http://a/anna/1", "http://a/ben/2", "http://a/carl/3", "http://a/anna/1"]);
        for seq in 0..20 {
            let filled = template.fill(seq);
            assert_eq!(filled.headers[0].1.as_bytes(), &*filled.body);
        }
    }

    #[test]
    fn a_column_that_is_not_there_was_sent_empty() {
        let file = data("anna,1\nben\n");
        let name = file.path().display();
        for kind in ["row", "pick"] {
            let bad = read(&format!("http://a/{{{{{kind} {name} 2}}}}"), "", "").unwrap_err().to_string();
            assert!(
                bad.contains(&format!("{name}:2: the line has 1 fields, but the first line has 2")),
                "{bad}"
            );
        }
    }

    fn data(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    /// A quoted field used to be cut at its comma, and a quote in it broke the JSON of the request.
    #[test]
    fn values_are_written_so_that_the_server_reads_them_as_they_stand_in_the_file() {
        let file = data("full name,quote\r\nbob,\"a, \"\"b\"\"\né/?&\"\r\n");
        let name = file.path().display();
        let body = format!(r#"{{"q":"{{{{row {name} quote}}}}","n":{{{{seq}}}}}}"#);
        let url = format!("http://a/{{{{pick {name} quote}}}}?q={{{{row {name} quote}}}}");
        let template = read(&url, &format!("{{{{row {name} full name}}}}"), &body).unwrap().unwrap();
        let filled = template.fill(0);
        let encoded = "a%2C%20%22b%22%0A%C3%A9%2F%3F%26";
        assert_eq!(filled.url, format!("http://a/{encoded}?q={encoded}"));
        assert_eq!(filled.headers[0].1, "bob");
        let sent: serde_json::Value = serde_json::from_slice(&filled.body).unwrap();
        assert_eq!(sent, serde_json::json!({"q": "a, \"b\"\né/?&", "n": 0}));
    }

    #[test]
    fn raw_values_go_out_as_they_stand_in_the_file() {
        let file = data("a/b?c=%20\n");
        let row = format!("{{{{raw row {}}}}}", file.path().display());
        let template = read(&format!("http://a/{row}"), "", &format!("[\"{row}\"]")).unwrap().unwrap();
        let filled = template.fill(0);
        assert_eq!((filled.url.as_str(), &*filled.body), ("http://a/a/b?c=%20", &b"[\"a/b?c=%20\"]"[..]));
    }

    #[test]
    fn a_header_value_with_a_line_break_or_a_nul_is_refused_with_file_and_line() {
        let file = data("v,w\nok,x\n\"two\nlines\",\"nul\0\"\n");
        let name = file.path().display();
        for (placeholder, what) in [("row", "line break"), ("raw row", "line break")] {
            let bad =
                read("http://a/", &format!("{{{{{placeholder} {name} v}}}}"), "").unwrap_err().to_string();
            assert!(bad.ends_with(&format!("{name}:3: a header value cannot hold a {what}")), "{bad}");
        }
        let bad = read("http://a/", &format!("{{{{row {name} w}}}}"), "").unwrap_err().to_string();
        assert!(bad.ends_with(&format!("{name}:3: a header value cannot hold a NUL byte")), "{bad}");
    }

    #[test]
    fn a_target_without_placeholders_is_no_template() {
        assert!(read("http://a/{x}", "}}", "{ {").unwrap().is_none());
    }

    #[test]
    fn mistakes_are_named() {
        for text in [
            "{{sec}}",
            "{{random 2 1}}",
            "{{random 1}}",
            "{{hex 0}}",
            "{{row}}",
            "{{seq",
            "{{pick x 0}}",
            "{{raw}}",
            "{{raw seq 1}}",
        ] {
            let bad = read(&format!("http://a/{text}"), "", "").unwrap_err();
            assert!(matches!(bad, TemplateError::Placeholder(_)), "{text}: {bad}");
        }
        assert!(matches!(read("http://{{seq}}/", "", ""), Err(TemplateError::Host(_))));
        assert!(matches!(read("http://a/{{row /does/not/exist}}", "", ""), Err(TemplateError::File { .. })));
    }
}
