//! What is sent, as the flags of whichever command say it: targets, and what those have that say nothing else.

use std::io::{BufRead, Write as _, stderr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use seawall_load::files::InputFiles;
use seawall_load::request::RequestFraming;
use seawall_load::supply::{RequestInputError, RequestList, RequestReader};
use seawall_load::target::{Target, TargetDefaults, TargetFormat, TargetReader, header};
use seawall_load::template::TemplateReader;

/// The flags that say it.
pub(crate) struct TargetFlags<'a> {
    /// Sent along, if it is not empty.
    pub(crate) name: &'a str,
    /// A file of targets, `stdin` or `-`.
    pub(crate) targets: &'a str,
    pub(crate) format: TargetFormat,
    pub(crate) header: &'a [String],
    /// A file, or nothing.
    pub(crate) body: &'a str,
    /// The seed of placeholders, if they are to be filled.
    pub(crate) template: Option<u64>,
    /// What reads the files that it names.
    pub(crate) files: &'a InputFiles,
}

/// How long is waited, and for what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestLimits {
    /// For a whole answer; 0 is for ever.
    pub(crate) timeout: Duration,
    /// From the intended instant.
    pub(crate) deadline: Option<Duration>,
    /// Redirects to follow; -1 takes one as the answer.
    pub(crate) redirects: i64,
}

impl TargetFlags<'_> {
    /// The targets, not yet read.
    pub(crate) fn open_intake(&self, style: &RequestFraming) -> anyhow::Result<RequestReader> {
        self.intake_from(open(self.targets, self.files)?, style)
    }

    /// The same of targets that are here already.
    pub(crate) fn intake_from(
        &self,
        input: Box<dyn BufRead + Send>,
        style: &RequestFraming,
    ) -> anyhow::Result<RequestReader> {
        let templates = |seed| TemplateReader::new(seed).with_files(self.files.clone());
        Ok(RequestReader::new(self.reader(input)?, style.clone(), self.template.map(templates)))
    }

    /// All of them, read.
    pub(crate) fn read_list(&self, intake: RequestReader) -> anyhow::Result<RequestList> {
        intake.list().map_err(|bad| match bad {
            RequestInputError::Mistake(mistake) => mistake.into(),
            RequestInputError::List(bad) => anyhow::Error::from(bad).context(self.targets.to_owned()),
        })
    }

    /// All of them as they were written, before requests are made of them.
    pub(crate) fn read_targets(&self, input: Box<dyn BufRead + Send>) -> anyhow::Result<Vec<Target>> {
        let mut reader = self.reader(input)?;
        let mut targets = Vec::new();
        while let Some((target, _)) = reader.next_target()? {
            targets.push(target);
        }
        Ok(targets)
    }

    fn reader(&self, input: Box<dyn BufRead + Send>) -> anyhow::Result<TargetReader> {
        let reader = TargetReader::new(self.targets, input, self.format, self.defaults()?);
        let reader = reader.with_files(self.files.clone());
        Ok(if self.template.is_some() {
            reader
        } else {
            reader.with_placeholder_warning(warn_of_placeholder)
        })
    }

    fn defaults(&self) -> anyhow::Result<TargetDefaults> {
        let mut headers = self.header.iter().map(|line| header(line)).collect::<Result<Vec<_>, _>>()?;
        if !self.name.is_empty() {
            headers.push(("X-Vegeta-Attack".to_owned(), self.name.to_owned()));
        }
        let body = match self.body {
            "" => Arc::default(),
            file => self.files.read(file).with_context(|| format!("cannot read {file}"))?.into(),
        };
        Ok(TargetDefaults { headers, body })
    }
}

fn warn_of_placeholder(file: &str, line: usize) {
    // Nothing is lost if nobody can read it.
    let _ = writeln!(
        stderr(),
        "seawall: {file}:{line}: the target contains \"{{{{\" and is sent as it stands; --template fills placeholders (attack, find)"
    );
}

pub(crate) fn open(file: &str, files: &InputFiles) -> anyhow::Result<Box<dyn BufRead + Send>> {
    let opened = if file == "stdin" || file == "-" { files.stdin() } else { files.open(file) };
    opened.with_context(|| format!("cannot read {file}"))
}
