//! `seawall-agent import`: translates the command line of KIAM, kube2iam or gke-metadata-server to an equivalent configuration.
//!
//! The printed configuration is valid, because the configuration's parser checks it first. Errors name the flag that has an
//! invalid value. These tools detect some values at run time. For these values, `import` needs options, because a wrong
//! guess could select another AWS account or Google project. For a flag without an equivalent, a remark says what to do instead. An unknown flag is
//! an error, because the import cannot translate its effect. Each tool's file and `kiam_and_kube2iam` define the keys and the
//! required settings. Only `main` calls this module.

mod config_builder;
mod gke_metadata_server;
mod imported_flags;
mod kiam;
mod kiam_and_kube2iam;
mod kube2iam;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use lexopt::Arg::{Long, Short};
use lexopt::{Error, Parser, ValueExt};

use super::flag_parser::next_word;
use crate::config::{AgentConfig, DownwardApi};
use config_builder::ConfigBuilder;
use imported_flags::{GivenFlag, ImportOption, SourceTool};

const TOOLS: [&SourceTool; 3] = [&kiam::KIAM, &kube2iam::KUBE2IAM, &gke_metadata_server::GKE_METADATA_SERVER];

/// The parsed `import` command.
#[derive(Debug)]
pub(crate) struct ImportCommand {
    tool: &'static SourceTool,
    /// The options before `--`.
    own: Vec<(&'static ImportOption, String)>,
    flags: Vec<String>,
}

/// The translated configuration and the remarks on it.
#[derive(Debug)]
pub(crate) struct ImportedConfig {
    /// The configuration as YAML. Its comments also contain the remarks.
    pub(crate) yaml: String,
    pub(crate) remarks: String,
}

/// The mistakes that prevent the translation, one per line.
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
    /// Parses the words after `import`. Returns `None` if the user requests help.
    ///
    /// # Errors
    /// The words are not a valid `import` command.
    pub(crate) fn parse(args: &mut Parser) -> Result<Option<Self>, Error> {
        let word = next_word(args)?.unwrap_or_default();
        if word == "help" {
            return Ok(None);
        }
        let tool = TOOLS.into_iter().find(|tool| tool.command_name == word).ok_or_else(how_to_use)?;
        let args: Vec<OsString> = args.raw_args()?.collect();
        // The words after `--` belong to the other tool.
        let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
        let (own, others) = args.split_at(end);
        let Some(own) = tool.read_own(own)? else { return Ok(None) };
        let (_, flags) = others.split_first().ok_or_else(how_to_use)?;
        let flags = flags.iter().cloned().map(ValueExt::string).collect::<Result<_, _>>()?;
        Ok(Some(Self { tool, own, flags }))
    }
}

impl SourceTool {
    /// Reads the options before `--`. Returns `None` if the user requests help.
    /// The options give the values that this tool detects at run time.
    fn read_own(
        &'static self,
        args: &[OsString],
    ) -> Result<Option<Vec<(&'static ImportOption, String)>>, Error> {
        let mut args = Parser::from_args(args);
        let mut given = Vec::new();
        while let Some(arg) = args.next()? {
            let own = match arg {
                Short('h') | Long("help") => return Ok(None),
                Long(name) => self.options.iter().find(|own| own.seawall_option_name == name),
                _ => None,
            };
            let own = own.ok_or_else(|| arg.unexpected())?;
            given.push((own, args.value()?.string()?));
        }
        Ok(Some(given))
    }
}

/// Returns the usage line of each tool for the help.
pub(crate) fn usage() -> String {
    TOOLS.iter().fold(String::new(), |usage, tool| {
        let own = tool
            .options
            .iter()
            .map(|own| format!(" [--{} {}]", own.seawall_option_name, own.value_placeholder));
        format!("{usage}  seawall-agent import {}{} -- FLAGS\n", tool.command_name, own.collect::<String>())
    })
}

fn how_to_use() -> Error {
    let words = TOOLS.map(|tool| tool.command_name).join(" or ");
    Error::Custom(format!("import: expected {words}, then `--` and the flags of that tool").into())
}

/// Translates a tool's command line.
///
/// # Errors
/// A flag is unknown or has an invalid value, or a required setting is missing. The error lists all these mistakes.
pub(crate) fn import(request: &ImportCommand) -> Result<ImportedConfig, ImportError> {
    let tool = request.tool;
    let given = imported_flags::parse_flags(&request.flags, tool).map_err(ImportError)?;
    let mut draft = draft(request, &given);
    (tool.set_dependent_keys)(&mut draft);
    let open = tool.required_settings.iter().filter(|must| (must.is_missing)(&draft));
    let open: Vec<_> = open.map(|must| must.error_message.to_owned()).collect();
    if !open.is_empty() {
        return Err(ImportError(open));
    }
    let yaml = draft.yaml(tool.title, tool.placement);
    // The parser needs the name of a node. Any name works here, because the agent on each node reads the node's name from
    // NODE_NAME.
    AgentConfig::parse(&yaml, Path::new(""), &DownwardApi::for_node("node"))
        .map_err(|mistakes| ImportError(draft.explain_errors(&mistakes)))?;
    Ok(ImportedConfig { yaml, remarks: draft.remarks() })
}

fn draft(request: &ImportCommand, given: &[GivenFlag<'_>]) -> ConfigBuilder {
    let mut draft = ConfigBuilder::new(given.iter().map(|given| (given.flag.name, given.value.to_owned())));
    (request.tool.set_defaults)(&mut draft);
    for (own, value) in &request.own {
        draft.with_current_flag(own.seawall_option_name, |draft| {
            draft.set(own.config_key, own.config_value(value));
        });
    }
    for GivenFlag { flag, value } in given {
        draft.with_current_flag(flag.name, |draft| flag.apply(value, draft));
    }
    draft
}
