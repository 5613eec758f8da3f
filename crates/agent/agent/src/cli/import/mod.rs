//! `seawall-agent import`: the command line of KIAM or kube2iam to a configuration that means the same.
//!
//! What is printed is valid: the configuration's own reader is asked before, and names a value that it refuses by the flag that it came
//! from. What those tools detect while they run, the caller says, because a guess would be somebody's account. A flag without an equal is
//! named with what to do instead; one that nobody knows is refused, because what it meant would be lost. What a
//! key means, and which must be told, is known in the tools' rooms and those of the clouds they are for. Called by `main` alone.

mod aws;
mod config_builder;
mod flags;
mod kiam;
mod kube2iam;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use crate::config::{Config, Downward};
use config_builder::Draft;
use flags::{Given, Own, Tool};

const TOOLS: [&Tool; 2] = [&kiam::KIAM, &kube2iam::KUBE2IAM];

/// What is to be translated.
#[derive(Debug)]
pub(crate) struct Request {
    tool: &'static Tool,
    /// What was told before `--`.
    own: Vec<(&'static Own, String)>,
    flags: Vec<String>,
}

/// The configuration, and what must be known about it.
#[derive(Debug)]
pub(crate) struct Imported {
    /// The remarks are in it, too, as comments.
    pub(crate) yaml: String,
    pub(crate) remarks: String,
}

/// Why there is no configuration: each mistake, a line each.
#[derive(Debug)]
pub(crate) struct ImportError(Vec<String>);

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "import: {} mistake(s):", self.0.len())?;
        self.0.iter().try_for_each(|mistake| write!(f, "\n  {mistake}"))
    }
}

impl std::error::Error for ImportError {}

impl Tool {
    /// What is said to a word before `--` that is no option of this tool's.
    fn not_own(&self, arg: &str) -> String {
        let own: Vec<_> = self.own.iter().map(|own| format!("--{}", own.name)).collect();
        format!("seawall-agent: import takes {} before `--`, not {arg:?}", own.join(" and "))
    }
}

impl Request {
    /// Of the words after `import`.
    ///
    /// # Errors
    /// How the command is used.
    pub(crate) fn parse(args: &[OsString]) -> Result<Self, String> {
        let args: Option<Vec<&str>> = args.iter().map(|arg| arg.to_str()).collect();
        let args = args.ok_or("seawall-agent: import: an argument is not UTF-8")?;
        let (word, rest) = args.split_first().ok_or_else(how_to_use)?;
        let tool = TOOLS.into_iter().find(|tool| tool.word == *word).ok_or_else(how_to_use)?;
        let end = rest.iter().position(|arg| *arg == "--").ok_or_else(how_to_use)?;
        let (own, flags) = (rest.get(..end).unwrap_or_default(), rest.get(end + 1..).unwrap_or_default());
        let mut request = Self { tool, own: Vec::new(), flags: Vec::new() };
        request.flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        request.read_own(own)?;
        Ok(request)
    }

    /// What the tool detects and this program is told.
    fn read_own(&mut self, own: &[&str]) -> Result<(), String> {
        let mut rest = own.iter();
        while let Some(arg) = rest.next() {
            let (name, value) = arg.split_once('=').map_or((*arg, None), |(name, value)| (name, Some(value)));
            let known = self.tool.own.iter().find(|own| name.strip_prefix("--") == Some(own.name));
            let own = known.ok_or_else(|| self.tool.not_own(arg))?;
            let value = value.or_else(|| rest.next().copied());
            let value = value.ok_or_else(|| format!("seawall-agent: import: {name} needs a value"))?;
            self.own.push((own, value.to_owned()));
        }
        Ok(())
    }
}

/// How each tool is named on the command line: a line each, for the help.
pub(crate) fn usage() -> String {
    TOOLS.iter().fold(String::new(), |usage, tool| {
        let own = tool.own.iter().map(|own| format!(" [--{} {}]", own.name, own.value));
        format!("{usage}  seawall-agent import {}{} -- FLAGS\n", tool.word, own.collect::<String>())
    })
}

fn how_to_use() -> String {
    let words = TOOLS.map(|tool| tool.word).join(" or ");
    format!("seawall-agent: import needs {words}, then `--` and the flags of that tool")
}

/// Translates.
///
/// # Errors
/// Every flag that is unknown or has a value that cannot be meant; what the flags leave open.
pub(crate) fn import(request: &Request) -> Result<Imported, ImportError> {
    let tool = request.tool;
    let given = flags::read(&request.flags, tool).map_err(ImportError)?;
    let mut draft = draft(request, &given);
    (tool.finish)(&mut draft);
    let open = tool.must.iter().filter(|must| (must.is_open)(&draft));
    let open: Vec<_> = open.map(|must| must.sentence.to_owned()).collect();
    if !open.is_empty() {
        return Err(ImportError(open));
    }
    let yaml = draft.yaml(tool.title);
    // Any name will do: each node's agent has its own from NODE_NAME.
    Config::parse(&yaml, Path::new(""), &Downward::on("node"))
        .map_err(|mistakes| ImportError(draft.blame(&mistakes)))?;
    Ok(Imported { yaml, remarks: draft.remarks() })
}

fn draft(request: &Request, given: &[Given<'_>]) -> Draft {
    let mut draft = Draft::new(given.iter().map(|given| (given.flag.name, given.value.to_owned())));
    (request.tool.begin)(&mut draft);
    for (own, value) in &request.own {
        draft.about(own.name, |draft| draft.set(own.key, value.as_str()));
    }
    for Given { flag, value } in given {
        draft.about(flag.name, |draft| flag.apply(value, draft));
    }
    draft
}
