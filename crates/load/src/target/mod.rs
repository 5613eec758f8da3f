//! The targets of a run: vegeta's two target formats, read one target at a time.
//!
//! A [`TargetReader`] turns lines into [`Target`]s and stops at the first bad line with an error that has file, line and reason.
//! Nothing is sent before the caller has seen that error (with `-lazy`: nothing after that line). [`crate::request`] makes bytes
//! of a target. Formats: vegeta `lib/targets.go` and `lib/target.schema.json`.

mod http;
mod json;

use std::fmt;
use std::io::{self, BufRead, Read};
use std::str::FromStr;
use std::sync::Arc;

use crate::expectation::{Expectation, ExpectationError, ExpectationSet};
use crate::input_files::InputFiles;
use crate::request::shorten_for_error_message;
use crate::template::PLACEHOLDER_START;
use crate::variant::Variant;

/// One request as the user wrote it, including the headers and the body of flags.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    /// The upper-case method.
    pub method: String,
    /// The absolute URL as written.
    pub url: String,
    /// The names and values in the given order and spelling; a name may occur several times.
    pub headers: Vec<(String, String)>,
    /// The body; empty if there is none.
    pub body: Arc<[u8]>,
    /// The share of this target among all; the default is 1.
    pub weight: Weight,
    /// The variant of its requests, if it has one.
    pub variant: Option<Arc<Variant>>,
    /// The conditions that its responses must meet; `None` if only the status matters.
    pub expect: Option<Arc<ExpectationSet>>,
}

impl Target {
    /// Adds a condition on its responses.
    fn expect(&mut self, condition: &str) -> Result<(), TargetErrorKind> {
        let condition: Expectation = condition.parse()?;
        self.expect = Some(ExpectationSet::with(self.expect.as_ref(), condition));
        Ok(())
    }
}

impl Target {
    /// True if the URL, a header value or the body contains the start of a placeholder.
    fn has_placeholder(&self) -> bool {
        self.url.contains(PLACEHOLDER_START)
            || self.headers.iter().any(|(_, value)| value.contains(PLACEHOLDER_START))
            || memchr::memmem::find(&self.body, PLACEHOLDER_START.as_bytes()).is_some()
    }
}

/// The relative frequency with which a target is chosen; not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight(pub u32);

impl Default for Weight {
    fn default() -> Self {
        Self(1)
    }
}

/// The parts that flags add to every target.
#[derive(Debug, Clone, Default)]
pub struct TargetDefaults {
    /// The headers of `-header`, before the target's own.
    pub headers: Vec<(String, String)>,
    /// The body of `-body`, for targets that have none.
    pub body: Arc<[u8]>,
    /// The conditions of `--expect`, before the target's own.
    pub expect: Option<Arc<ExpectationSet>>,
}

impl TargetDefaults {
    fn target(&self) -> Target {
        Target {
            headers: self.headers.clone(),
            body: Arc::clone(&self.body),
            expect: self.expect.clone(),
            ..Target::default()
        }
    }
}

/// The format of targets, as `-format` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetFormat {
    /// Request lines, headers, `@body` files.
    Http,
    /// One JSON object per line.
    Json,
}

impl FromStr for TargetFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "http" => Ok(Self::Http),
            "json" => Ok(Self::Json),
            _ => Err(format!("format {text:?} is unknown: expected http or json")),
        }
    }
}

/// The error of a line that is not part of a valid target.
#[derive(Debug, thiserror::Error)]
#[error("{file}:{line}: {reason}")]
pub struct TargetError {
    /// The name of the input, `stdin` for standard input.
    pub file: String,
    /// The number of the line, from 1.
    pub line: usize,
    /// The mistake in the line.
    pub reason: TargetErrorKind,
}

/// A mistake in a line.
#[derive(Debug, thiserror::Error)]
pub enum TargetErrorKind {
    /// The input cannot be read.
    #[error("cannot read the targets: {0}")]
    Io(#[from] io::Error),
    /// The line is not valid UTF-8.
    #[error("the line is not UTF-8")]
    Utf8,
    /// The line is longer than the limit.
    #[error("the line is longer than {} bytes", .0)]
    LineTooLong(u64),
    /// The line is not `METHOD URL`.
    #[error("bad target {0:?}: expected METHOD URL")]
    NotMethodAndUrl(String),
    /// The line has the JSON format instead of the http format.
    #[error("bad target: the line is JSON, expected METHOD URL; JSON targets need --format json")]
    LooksLikeJson,
    /// The method is not upper-case letters.
    #[error("bad method {0:?}: expected upper-case letters, such as GET")]
    Method(String),
    /// The line is not `Key: value`.
    #[error("bad header {0:?}: expected Key: value")]
    Header(String),
    /// The body file cannot be read.
    #[error("bad body: {file}: {error}")]
    Body {
        /// The name of the file.
        file: String,
        /// The error.
        error: io::Error,
    },
    /// The line is not JSON that matches the schema.
    #[error("bad target: {0}")]
    Json(String),
    /// The comment is not a valid variant.
    #[error("bad variant: {0}; expected # variant={{\"name\":\"direct\", ...}}, as in a json target")]
    Variant(String),
    /// A comment with a variant is among the headers of a target.
    #[error(
        "bad variant: `# variant=` must come after an empty line and before the request line of its target"
    )]
    LateVariant,
    /// The weight is not a positive number.
    #[error("bad weight {0:?}: expected a whole number above 0")]
    Weight(String),
    /// The condition on responses is invalid.
    #[error("bad condition: {0}")]
    Expect(#[from] ExpectationError),
    /// A comment with a condition is among the headers of a target.
    #[error(
        "bad condition: `# expect=` must come after an empty line and before the request line of its target"
    )]
    LateExpect,
    /// A placeholder is invalid.
    #[error(transparent)]
    Template(#[from] crate::template::TemplateError),
    /// The target is not a valid request.
    #[error(transparent)]
    Request(#[from] crate::request::RequestBuildError),
}

/// The maximum length of a line. An http line is a header at most; a JSON line may contain a body.
const LONGEST_HTTP_LINE: u64 = 1 << 20;
const LONGEST_JSON_LINE: u64 = 1 << 28;

/// Reads targets one by one.
pub struct TargetReader {
    lines: Lines,
    format: TargetFormat,
    defaults: TargetDefaults,
    files: InputFiles,
    /// The function that is called once, with the file and the line of the first target that has a placeholder.
    warn_of_placeholder: Option<fn(&str, usize)>,
}

impl fmt::Debug for TargetReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("file", &self.lines.file)
            .field("line", &self.lines.number)
            .finish_non_exhaustive()
    }
}

impl TargetReader {
    /// Makes a reader of `input`; errors call the input `file`.
    pub fn new(
        file: &str,
        input: Box<dyn BufRead + Send>,
        format: TargetFormat,
        defaults: TargetDefaults,
    ) -> Self {
        let longest = if format == TargetFormat::Http { LONGEST_HTTP_LINE } else { LONGEST_JSON_LINE };
        Self {
            lines: Lines { file: file.to_owned(), input, longest, number: 0, peeked: None },
            format,
            defaults,
            files: InputFiles::default(),
            warn_of_placeholder: None,
        }
    }

    /// Sets a function that is called with file and line of the first target that has a placeholder, for callers that do not fill
    /// placeholders.
    #[must_use]
    pub fn with_placeholder_warning(self, warn: fn(&str, usize)) -> Self {
        Self { warn_of_placeholder: Some(warn), ..self }
    }

    /// Sets the reader of the files that targets name.
    #[must_use]
    pub fn with_files(self, files: InputFiles) -> Self {
        Self { files, ..self }
    }

    /// Returns the line at which the last target or error ended.
    #[must_use]
    pub fn line(&self) -> usize {
        self.lines.number
    }

    /// Makes an error for the given line of this input.
    #[must_use]
    pub fn error_at_line(&self, line: usize, reason: TargetErrorKind) -> TargetError {
        TargetError { file: self.lines.file.clone(), line, reason }
    }

    /// Returns the next target and the line on which it began; `None` at the end.
    ///
    /// # Errors
    /// The first [`TargetError`]. The reader must not be used after an error, because the next line may be within a target.
    pub fn next_target(&mut self) -> Result<Option<(Target, usize)>, TargetError> {
        let read = match self.format {
            TargetFormat::Http => http::next(&mut self.lines, &self.defaults, &self.files),
            TargetFormat::Json => json::next(&mut self.lines, &self.defaults),
        };
        let read = read.map_err(|reason| self.error_at_line(self.lines.number, reason))?;
        if let Some((target, line)) = &read
            && let Some(warn) = self.warn_of_placeholder.take_if(|_| target.has_placeholder())
        {
            warn(&self.lines.file, *line);
        }
        Ok(read)
    }
}

/// Trimmed lines with their numbers; the last line may be put back.
struct Lines {
    file: String,
    input: Box<dyn BufRead + Send>,
    longest: u64,
    number: usize,
    peeked: Option<String>,
}

impl Lines {
    fn next(&mut self) -> Result<Option<String>, TargetErrorKind> {
        if let Some(line) = self.peeked.take() {
            self.number += 1;
            return Ok(Some(line));
        }
        let mut line = Vec::new();
        let length = self.input.by_ref().take(self.longest).read_until(b'\n', &mut line)?;
        if length == 0 {
            return Ok(None);
        }
        self.number += 1;
        // A byte order mark, which editors put in front of a file.
        if self.number == 1 && line.starts_with("\u{feff}".as_bytes()) {
            line.drain(..3);
        }
        if length as u64 == self.longest && line.last() != Some(&b'\n') {
            return Err(TargetErrorKind::LineTooLong(self.longest));
        }
        String::from_utf8(line).map(|line| Some(line.trim().to_owned())).map_err(|_| TargetErrorKind::Utf8)
    }

    /// Puts the last line back.
    fn unread(&mut self, line: String) {
        self.number -= 1;
        self.peeked = Some(line);
    }
}

/// Parses `Key: value`. Both are trimmed and present, and the key is a token: after a forgotten empty line, a target must not
/// become a header.
///
/// # Errors
/// [`TargetErrorKind::Header`].
pub fn parse_header(line: &str) -> Result<(String, String), TargetErrorKind> {
    let parts = line.split_once(':').map(|(key, value)| (key.trim(), value.trim()));
    match parts {
        Some((key, value)) if is_token(key) && !value.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(TargetErrorKind::Header(shorten_for_error_message(line))),
    }
}

fn is_token(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(crate::record::is_token_byte)
}
