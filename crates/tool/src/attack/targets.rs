//! The flags about targets and requests, from any command, and the targets that they name.

use std::fmt::Write as _;
use std::io::{BufRead, Cursor, IsTerminal as _, Write as _, stderr, stdin};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use seawall_load::input_files::InputFiles;
use seawall_load::request::RequestFraming;
use seawall_load::request_source::{RequestInputError, RequestList, RequestReader};
use seawall_load::target::{Target, TargetDefaults, TargetFormat, TargetReader};
use seawall_load::template::TemplateReader;

use super::request_args::{self, BodySource, RequestArgs};
use crate::expectation_args::ExpectationArgs;

/// The flags that say it.
pub(crate) struct TargetFlags<'a> {
    /// The name of the attack, which is sent along if it is not empty.
    pub(crate) attack_name: &'a str,
    /// URLs as typed. Without any, targets are read.
    pub(crate) urls: Vec<&'a str>,
    /// A file of targets, `stdin` or `-`.
    pub(crate) targets_file: &'a str,
    /// Format of that file.
    pub(crate) format: TargetFormat,
    /// Header lines, method and body.
    pub(crate) request_args: &'a RequestArgs,
    /// The conditions that responses must meet.
    pub(crate) expectation_args: &'a ExpectationArgs,
    /// The seed of placeholders, if they are to be filled.
    pub(crate) template_seed: Option<u64>,
    /// The reader of the files that the targets name.
    pub(crate) files: &'a InputFiles,
}

/// The time limits and the number of redirects of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestLimits {
    /// Time limit for the connection, then for the whole response; 0 means no limit.
    pub(crate) timeout: Duration,
    /// Time limit from the scheduled send.
    pub(crate) deadline: Option<Duration>,
    /// Redirects to follow; -1 takes one as the answer.
    pub(crate) max_redirects: i64,
}

impl TargetFlags<'_> {
    /// The targets, not yet read.
    pub(crate) fn open_request_reader(&self, style: &RequestFraming) -> anyhow::Result<RequestReader> {
        let templates = |seed| TemplateReader::new(seed).with_files(self.files.clone());
        Ok(RequestReader::new(self.reader(self.open()?)?, style.clone(), self.template_seed.map(templates)))
    }

    /// All of them, read.
    pub(crate) fn read_request_list(&self, intake: RequestReader) -> anyhow::Result<RequestList> {
        intake.read_all().map_err(|bad| match bad {
            RequestInputError::Mistake(mistake) => mistake.into(),
            RequestInputError::List(bad) => anyhow::Error::from(bad).context(self.source_name().to_owned()),
        })
    }

    /// All of them as they were written, before requests are made of them.
    pub(crate) fn read_targets(&self) -> anyhow::Result<Vec<Target>> {
        let mut reader = self.reader(self.open()?)?;
        let mut targets = Vec::new();
        while let Some((target, _)) = reader.next_target()? {
            targets.push(target);
        }
        Ok(targets)
    }

    /// Returns the source of the targets, for messages.
    pub(crate) fn source_name(&self) -> &str {
        if self.urls.is_empty() { self.targets_file } else { "URL" }
    }

    fn reader(&self, input: Box<dyn BufRead + Send>) -> anyhow::Result<TargetReader> {
        let format = if self.urls.is_empty() { self.format } else { TargetFormat::Http };
        let reader = TargetReader::new(self.source_name(), input, format, self.defaults()?);
        let reader = reader.with_files(self.files.clone());
        Ok(if self.template_seed.is_some() {
            reader
        } else {
            reader.with_placeholder_warning(warn_of_placeholder)
        })
    }

    fn open(&self) -> anyhow::Result<Box<dyn BufRead + Send>> {
        if self.urls.is_empty() {
            return open(self.targets_file, self.files);
        }
        let mut lines = String::new();
        for url in &self.urls {
            writeln!(lines, "{} {}\n", self.request_args.method(), request_args::parse_url(url)?)?;
        }
        Ok(Box::new(Cursor::new(lines)))
    }

    fn defaults(&self) -> anyhow::Result<TargetDefaults> {
        let mut headers = self.request_args.headers()?;
        if !self.attack_name.is_empty() {
            headers.push(("X-Vegeta-Attack".to_owned(), self.attack_name.to_owned()));
        }
        let body = match self.request_args.body_source() {
            BodySource::None => Arc::default(),
            BodySource::Text(text) => text.as_bytes().into(),
            BodySource::File(file) => {
                self.files.read(file).with_context(|| format!("cannot read {file}"))?.into()
            }
        };
        Ok(TargetDefaults { headers, body, expect: self.expectation_args.expectation_set() })
    }
}

fn warn_of_placeholder(file: &str, line: usize) {
    // Nothing is lost if nobody can read it.
    let _ = writeln!(
        stderr(),
        "seawall: {file}:{line}: the target contains \"{{{{\" and is sent unchanged; add --template to fill placeholders (attack and find only)"
    );
}

fn open(file: &str, files: &InputFiles) -> anyhow::Result<Box<dyn BufRead + Send>> {
    let is_stdin = file == "stdin" || file == "-";
    if is_stdin && stdin().is_terminal() {
        // Nothing is lost if nobody can read it.
        let _ =
            writeln!(stderr(), "seawall: reading targets from the keyboard; end with Ctrl-D, or give a URL");
    }
    let opened = if is_stdin { files.open_stdin() } else { files.open(file) };
    opened.with_context(|| format!("cannot read {file}"))
}
