//! `seawall-agent import`: the command line of KIAM or kube2iam to a configuration that means the same.
//!
//! What is printed is valid: the configuration's own reader is asked before, and names a value that it refuses by the flag that it came
//! from. What those tools detect while they run, the caller says, because a guess would be somebody's account. A flag without an equal is
//! named with what to do instead; one that nobody knows is refused, because what it meant would be lost. Called by `main` alone.

mod draft;
mod flags;
mod kiam;
mod kube2iam;

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use crate::config::{Config, Downward};
use draft::Draft;
use flags::{Flag, Given};

/// One tool: a room each, and one line in [`TOOLS`].
#[derive(Debug)]
struct Tool {
    /// On the command line.
    word: &'static str,
    /// In sentences.
    title: &'static str,
    /// What may stand between flags and means nothing: the program and its subcommands.
    words: &'static [&'static str],
    flags: &'static [&'static [Flag]],
    /// What holds before the first flag.
    begin: fn(&mut Draft),
    /// What follows from several flags, or from one that is absent.
    finish: fn(&mut Draft),
}

const TOOLS: [&Tool; 2] = [&kiam::KIAM, &kube2iam::KUBE2IAM];

/// What is to be translated.
#[derive(Debug)]
pub(crate) struct Request {
    tool: &'static Tool,
    region: Option<String>,
    account: Option<String>,
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

impl Request {
    /// Of the words after `import`.
    ///
    /// # Errors
    /// How the command is used.
    pub(crate) fn parse(args: &[OsString]) -> Result<Self, String> {
        const USE: &str =
            "seawall-agent: import needs kiam or kube2iam, then `--` and the flags of that tool";
        let args: Option<Vec<&str>> = args.iter().map(|arg| arg.to_str()).collect();
        let args = args.ok_or("seawall-agent: import: an argument is not UTF-8")?;
        let (word, rest) = args.split_first().ok_or(USE)?;
        let tool = TOOLS.into_iter().find(|tool| tool.word == *word).ok_or(USE)?;
        let end = rest.iter().position(|arg| *arg == "--").ok_or(USE)?;
        let (own, flags) = (rest.get(..end).unwrap_or_default(), rest.get(end + 1..).unwrap_or_default());
        let mut request = Self { tool, region: None, account: None, flags: Vec::new() };
        request.flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        request.read_own(own)?;
        Ok(request)
    }

    /// What the tool detects and this program is told.
    fn read_own(&mut self, own: &[&str]) -> Result<(), String> {
        let mut rest = own.iter();
        while let Some(arg) = rest.next() {
            let (name, value) = arg.split_once('=').map_or((*arg, None), |(name, value)| (name, Some(value)));
            let place = match name {
                "--region" => &mut self.region,
                "--account" => &mut self.account,
                _ => {
                    return Err(format!(
                        "seawall-agent: import takes --region and --account before `--`, not {arg:?}"
                    ));
                }
            };
            let value = value.or_else(|| rest.next().copied());
            *place =
                Some(value.ok_or_else(|| format!("seawall-agent: import: {name} needs a value"))?.to_owned());
        }
        Ok(())
    }
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
    let open = open(&draft);
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
    let mut draft = Draft::new(given);
    (request.tool.begin)(&mut draft);
    if let Some(region) = &request.region {
        draft.about("region", |draft| draft.set("aws.region", region.as_str()));
    }
    if let Some(account) = &request.account {
        draft.about("account", |draft| draft.set("aws.account", account.as_str()));
    }
    for Given { flag, value } in given {
        draft.about(flag.name, |draft| flag.apply(value, draft));
    }
    draft
}

const NO_REGION: &str = "the region is in none of these flags: give --region REGION before `--`";
const NO_ACCOUNT: &str = "the account of roles that are given by name is in none of these flags: give --account ACCOUNT before `--`, or the flag \
                          that names the base of their ARNs";

/// What must be known and is in no flag.
fn open(draft: &Draft) -> Vec<String> {
    let is_account_open = draft.needs_account && !draft.has("aws.account") && !draft.has("aws.baseRoleArn");
    let each = [(!draft.has("aws.region"), NO_REGION), (is_account_open, NO_ACCOUNT)];
    each.into_iter().filter(|(is_open, _)| *is_open).map(|(_, what)| what.to_owned()).collect()
}

#[cfg(test)]
mod tests;
