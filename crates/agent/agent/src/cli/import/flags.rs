//! Command lines of other tools: which flags there are, and which were given.
//!
//! Knows how kingpin (KIAM) and pflag (kube2iam) write flags, and no flag by its name.

use super::config_builder::ConfigBuilder;

/// One tool: a room each, and one line in `TOOLS`.
#[derive(Debug)]
pub(super) struct SourceTool {
    /// On the command line.
    pub(super) word: &'static str,
    /// In sentences.
    pub(super) title: &'static str,
    /// What may stand between flags and means nothing: the program and its subcommands.
    pub(super) words: &'static [&'static str],
    pub(super) flags: &'static [&'static [ToolFlag]],
    /// What it detects while it runs, and here is told before `--`.
    pub(super) options: &'static [ImportOption],
    /// What must have come of all that.
    pub(super) required: &'static [RequiredSetting],
    /// What holds before the first flag.
    pub(super) begin: fn(&mut ConfigBuilder),
    /// What follows from several flags, or from one that is absent.
    pub(super) finish: fn(&mut ConfigBuilder),
}

/// An option of this program's: the value of a key that is in no flag.
#[derive(Debug)]
pub(super) struct ImportOption {
    pub(super) name: &'static str,
    /// What stands for it in the help.
    pub(super) value: &'static str,
    pub(super) key: &'static str,
}

/// What the flags may leave open, and nobody may guess.
#[derive(Debug)]
pub(super) struct RequiredSetting {
    pub(super) is_open: fn(&ConfigBuilder) -> bool,
    /// What is to be given.
    pub(super) sentence: &'static str,
}

/// A flag of another tool.
#[derive(Debug)]
pub(super) struct ToolFlag {
    pub(super) name: &'static str,
    is_switch: bool,
    means: FlagAction,
}

#[derive(Debug)]
enum FlagAction {
    /// What this writes.
    Sets(fn(&str, &mut ConfigBuilder)),
    /// Nothing of ours; this is to be done instead.
    Unsupported(&'static str),
    /// What follows from it together with others, at the end.
    Deferred,
}

/// A flag that stands on a command line.
#[derive(Debug)]
pub(super) struct GivenFlag<'a> {
    pub(super) flag: &'static ToolFlag,
    pub(super) value: &'a str,
}

impl ToolFlag {
    /// One with a value.
    pub(super) const fn with_value(name: &'static str, sets: fn(&str, &mut ConfigBuilder)) -> Self {
        Self { name, is_switch: false, means: FlagAction::Sets(sets) }
    }

    /// One that is on or off; told `true` or `false`.
    pub(super) const fn boolean(name: &'static str, sets: fn(&str, &mut ConfigBuilder)) -> Self {
        Self { name, is_switch: true, means: FlagAction::Sets(sets) }
    }

    /// One with a value and without an equal.
    pub(super) const fn unsupported(name: &'static str, instead: &'static str) -> Self {
        Self { name, is_switch: false, means: FlagAction::Unsupported(instead) }
    }

    /// One that is on or off, without an equal.
    pub(super) const fn unsupported_boolean(name: &'static str, instead: &'static str) -> Self {
        Self { name, is_switch: true, means: FlagAction::Unsupported(instead) }
    }

    /// One that the tool's `finish` reads.
    pub(super) const fn deferred(name: &'static str) -> Self {
        Self { name, is_switch: false, means: FlagAction::Deferred }
    }

    /// One that is on or off and that the tool's `finish` reads.
    pub(super) const fn deferred_boolean(name: &'static str) -> Self {
        Self { name, is_switch: true, means: FlagAction::Deferred }
    }

    /// Writes what it means.
    pub(super) fn apply(&self, value: &str, draft: &mut ConfigBuilder) {
        match self.means {
            FlagAction::Sets(sets) => sets(value, draft),
            FlagAction::Unsupported(_) if self.is_switch && value == "false" => {}
            FlagAction::Unsupported(instead) => draft.remark(instead),
            FlagAction::Deferred => {}
        }
    }
}

/// The flags of a command line, in their order.
///
/// # Errors
/// Every flag that the tool has not, or else every other word that has no place.
pub(super) fn read<'a>(args: &'a [String], tool: &SourceTool) -> Result<Vec<GivenFlag<'a>>, Vec<String>> {
    let (mut given, mut unknown, mut misplaced) = (Vec::new(), Vec::new(), Vec::new());
    let mut rest = args.iter().map(String::as_str).peekable();
    while let Some(arg) = rest.next() {
        let Some(text) = arg.strip_prefix('-') else {
            if !is_word(arg, tool) {
                misplaced.push(format!("{arg:?} is no flag"));
            }
            continue;
        };
        let text = text.strip_prefix('-').unwrap_or(text);
        let (name, inline) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let Some((flag, is_off)) = find(name, tool) else {
            unknown.push(format!("{} has no flag --{}", tool.title, name.escape_debug()));
            continue;
        };
        let value = if flag.is_switch {
            switch(inline, is_off)
        } else {
            inline.or_else(|| rest.next_if(|next| !next.starts_with("--")))
        };
        match value {
            Some(value) => given.push(GivenFlag { flag, value }),
            None if flag.is_switch => misplaced.push(format!("--{} is true or false", flag.name)),
            None => misplaced.push(format!("--{} needs a value", flag.name)),
        }
    }
    // The value of a flag that nobody knows looks like a word without a place.
    let mistakes = if unknown.is_empty() { misplaced } else { unknown };
    if mistakes.is_empty() { Ok(given) } else { Err(mistakes) }
}

/// A word of the command itself, whichever folder the program is in.
fn is_word(arg: &str, tool: &SourceTool) -> bool {
    let name = arg.rsplit('/').next().unwrap_or(arg);
    tool.words.contains(&name)
}

/// The flag of this name, and whether it is turned off by it (kingpin's `--no-`).
fn find(name: &str, tool: &SourceTool) -> Option<(&'static ToolFlag, bool)> {
    let of_name = |name: &str| tool.flags.iter().copied().flatten().find(|flag| flag.name == name);
    let off = || Some((of_name(name.strip_prefix("no-")?).filter(|flag| flag.is_switch)?, true));
    of_name(name).map(|flag| (flag, false)).or_else(off)
}

/// What Go's `strconv.ParseBool` takes, as `true` or `false`.
fn switch(inline: Option<&str>, is_off: bool) -> Option<&'static str> {
    let is_on = match inline {
        None => !is_off,
        Some(_) if is_off => return None,
        Some("1" | "t" | "T" | "true" | "TRUE" | "True") => true,
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => false,
        Some(_) => return None,
    };
    Some(if is_on { "true" } else { "false" })
}
