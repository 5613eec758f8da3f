//! The targets of a run: vegeta's two target formats, read one target at a time.
//!
//! A [`TargetReader`] turns lines into [`Target`]s and stops at the first bad one, naming file, line and reason; nothing is
//! sent before the caller has seen it (or, with `-lazy`, before that line). [`crate::request`] makes bytes of a target.
//! Formats: vegeta `lib/targets.go` and `lib/target.schema.json`.

mod http;
mod json;

use std::fmt;
use std::io::{self, BufRead, Read};
use std::str::FromStr;
use std::sync::Arc;

use crate::expectation::{Expectation, ExpectationError, ExpectationSet};
use crate::input_files::InputFiles;
use crate::request::shorten;
use crate::template::PLACEHOLDER_START;
use crate::variant::Variant;

/// One request as the user wrote it, the flags' headers and body included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    /// Upper-case method.
    pub method: String,
    /// Absolute URL as written.
    pub url: String,
    /// Names and values in the order they were given, spelled as given; a name may repeat.
    pub headers: Vec<(String, String)>,
    /// The body; empty is none.
    pub body: Arc<[u8]>,
    /// Share of this target among all; 1 unless the user says so.
    pub weight: Weight,
    /// The way that its requests travel, if it is not the run's own.
    pub variant: Option<Arc<Variant>>,
    /// The conditions that its responses must meet; none if the status alone decides.
    pub expect: Option<Arc<ExpectationSet>>,
}

impl Target {
    /// One more condition on its responses.
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
    /// `-header`, before the target's own.
    pub headers: Vec<(String, String)>,
    /// `-body`, where a target has none.
    pub body: Arc<[u8]>,
    /// `--expect`, before the target's own.
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

/// `-format`.
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

/// A line that is no target.
#[derive(Debug, thiserror::Error)]
#[error("{file}:{line}: {reason}")]
pub struct TargetError {
    /// Name of the input, `stdin` for standard input.
    pub file: String,
    /// From 1.
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
    /// Not text.
    #[error("the line is not UTF-8")]
    Utf8,
    /// Longer than any target.
    #[error("the line is longer than {} bytes", .0)]
    LineTooLong(u64),
    /// Not `METHOD URL`.
    #[error("bad target {0:?}: expected METHOD URL")]
    NoUrl(String),
    /// A line of the other format.
    #[error("bad target: the line is JSON, expected METHOD URL; JSON targets need --format json")]
    LooksLikeJson,
    /// Not upper-case letters.
    #[error("bad method {0:?}: expected upper-case letters, such as GET")]
    Method(String),
    /// Not `Key: value`.
    #[error("bad header {0:?}: expected Key: value")]
    Header(String),
    /// The body file cannot be read.
    #[error("bad body: {file}: {error}")]
    Body {
        /// Its name.
        file: String,
        /// The error.
        error: io::Error,
    },
    /// Not the JSON that the schema asks for.
    #[error("bad target: {0}")]
    Json(String),
    /// A comment that is to be a variant.
    #[error("bad variant: {0}; expected # variant={{\"name\":\"direct\", ...}}, as in a json target")]
    Variant(String),
    /// A comment that is a variant, among the headers of a target.
    #[error(
        "bad variant: `# variant=` must come after an empty line and before the request line of its target"
    )]
    LateVariant,
    /// A weight that is no positive number.
    #[error("bad weight {0:?}: expected a whole number above 0")]
    Weight(String),
    /// A condition on responses that is none.
    #[error("bad condition: {0}")]
    Expect(#[from] ExpectationError),
    /// A comment that is a condition, among the headers of a target.
    #[error(
        "bad condition: `# expect=` must come after an empty line and before the request line of its target"
    )]
    LateExpect,
    /// A placeholder that is none.
    #[error(transparent)]
    Template(#[from] crate::template::TemplateError),
    /// No request can be made of it.
    #[error(transparent)]
    Request(#[from] crate::request::RequestBuildError),
}

/// Longest line. An http line is a header at most; a JSON line may hold a body.
const LONGEST_HTTP_LINE: u64 = 1 << 20;
const LONGEST_JSON_LINE: u64 = 1 << 28;

/// Reads targets one by one.
pub struct TargetReader {
    lines: Lines,
    format: TargetFormat,
    defaults: TargetDefaults,
    files: InputFiles,
    /// Called once, with the file and the line of the first target that has a placeholder.
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
    /// Targets from `input`, which mistakes call `file`.
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

    /// The same, which calls `warn` with file and line of the first target that has a placeholder: for whom nothing fills it.
    #[must_use]
    pub fn with_placeholder_warning(self, warn: fn(&str, usize)) -> Self {
        Self { warn_of_placeholder: Some(warn), ..self }
    }

    /// The same, which reads the files that targets name so.
    #[must_use]
    pub fn with_files(self, files: InputFiles) -> Self {
        Self { files, ..self }
    }

    /// The line that the last target or mistake ended at.
    #[must_use]
    pub fn line(&self) -> usize {
        self.lines.number
    }

    /// A mistake on the line of the target that was read last.
    #[must_use]
    pub fn error_at_line(&self, line: usize, reason: TargetErrorKind) -> TargetError {
        TargetError { file: self.lines.file.clone(), line, reason }
    }

    /// The next target and the line it began on; `None` at the end.
    ///
    /// # Errors
    /// The first [`TargetError`]; what follows it cannot be trusted to be at the start of a target.
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

/// Trimmed lines with their numbers, one of which may be put back.
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

    /// Puts the line just read back.
    fn unread(&mut self, line: String) {
        self.number -= 1;
        self.peeked = Some(line);
    }
}

/// `Key: value`, trimmed, both present, the key a token: a forgotten empty line must not make a header of a target.
///
/// # Errors
/// [`TargetErrorKind::Header`].
pub fn parse_header(line: &str) -> Result<(String, String), TargetErrorKind> {
    let parts = line.split_once(':').map(|(key, value)| (key.trim(), value.trim()));
    match parts {
        Some((key, value)) if is_token(key) && !value.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(TargetErrorKind::Header(shorten(line))),
    }
}

fn is_token(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(crate::record::is_token)
}
