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

use lexopt::Arg::{Long, Short};
use lexopt::{Error, Parser, ValueExt};

use super::flags::next_word;
use crate::config::{AgentConfig, DownwardApi};
use config_builder::ConfigBuilder;
use flags::{GivenFlag, ImportOption, SourceTool};

const TOOLS: [&SourceTool; 2] = [&kiam::KIAM, &kube2iam::KUBE2IAM];

/// What is to be translated.
#[derive(Debug)]
pub(crate) struct ImportCommand {
    tool: &'static SourceTool,
    /// What was told before `--`.
    own: Vec<(&'static ImportOption, String)>,
    flags: Vec<String>,
}

/// The configuration, and what must be known about it.
#[derive(Debug)]
pub(crate) struct ImportedConfig {
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

impl ImportCommand {
    /// Of the words after `import`; nothing where help is asked for.
    ///
    /// # Errors
    /// How the command is used.
    pub(crate) fn parse(args: &mut Parser) -> Result<Option<Self>, Error> {
        let word = next_word(args)?.unwrap_or_default();
        if word == "help" {
            return Ok(None);
        }
        let tool = TOOLS.into_iter().find(|tool| tool.word == word).ok_or_else(how_to_use)?;
        let args: Vec<OsString> = args.raw_args()?.collect();
        // What stands behind `--` belongs to the other program.
        let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
        let (own, others) = args.split_at(end);
        let Some(own) = tool.read_own(own)? else { return Ok(None) };
        let (_, flags) = others.split_first().ok_or_else(how_to_use)?;
        let flags = flags.iter().cloned().map(ValueExt::string).collect::<Result<_, _>>()?;
        Ok(Some(Self { tool, own, flags }))
    }
}

impl SourceTool {
    /// What this tool detects and this program is told. Nothing where help is asked for.
    fn read_own(
        &'static self,
        args: &[OsString],
    ) -> Result<Option<Vec<(&'static ImportOption, String)>>, Error> {
        let mut args = Parser::from_args(args);
        let mut given = Vec::new();
        while let Some(arg) = args.next()? {
            let own = match arg {
                Short('h') | Long("help") => return Ok(None),
                Long(name) => self.options.iter().find(|own| own.name == name),
                _ => None,
            };
            let own = own.ok_or_else(|| arg.unexpected())?;
            given.push((own, args.value()?.string()?));
        }
        Ok(Some(given))
    }
}

/// How each tool is named on the command line: a line each, for the help.
pub(crate) fn usage() -> String {
    TOOLS.iter().fold(String::new(), |usage, tool| {
        let own = tool.options.iter().map(|own| format!(" [--{} {}]", own.name, own.value));
        format!("{usage}  seawall-agent import {}{} -- FLAGS\n", tool.word, own.collect::<String>())
    })
}

fn how_to_use() -> Error {
    let words = TOOLS.map(|tool| tool.word).join(" or ");
    Error::Custom(format!("import needs {words}, then `--` and the flags of that tool").into())
}

/// Translates.
///
/// # Errors
/// Every flag that is unknown or has a value that cannot be meant; what the flags leave open.
pub(crate) fn import(request: &ImportCommand) -> Result<ImportedConfig, ImportError> {
    let tool = request.tool;
    let given = flags::read(&request.flags, tool).map_err(ImportError)?;
    let mut draft = draft(request, &given);
    (tool.finish)(&mut draft);
    let open = tool.required.iter().filter(|must| (must.is_open)(&draft));
    let open: Vec<_> = open.map(|must| must.sentence.to_owned()).collect();
    if !open.is_empty() {
        return Err(ImportError(open));
    }
    let yaml = draft.yaml(tool.title);
    // Any name will do: each node's agent has its own from NODE_NAME.
    AgentConfig::parse(&yaml, Path::new(""), &DownwardApi::for_node("node"))
        .map_err(|mistakes| ImportError(draft.explain_errors(&mistakes)))?;
    Ok(ImportedConfig { yaml, remarks: draft.remarks() })
}

fn draft(request: &ImportCommand, given: &[GivenFlag<'_>]) -> ConfigBuilder {
    let mut draft = ConfigBuilder::new(given.iter().map(|given| (given.flag.name, given.value.to_owned())));
    (request.tool.begin)(&mut draft);
    for (own, value) in &request.own {
        draft.for_flag(own.name, |draft| draft.set(own.key, value.as_str()));
    }
    for GivenFlag { flag, value } in given {
        draft.for_flag(flag.name, |draft| flag.apply(value, draft));
    }
    draft
}
