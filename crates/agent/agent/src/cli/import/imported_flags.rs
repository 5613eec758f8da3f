//! Parses the command lines of other tools. Each tool's file lists the flags that the tool knows.
//!
//! The module implements the flag syntax of kingpin (KIAM), pflag (kube2iam) and Go's `flag` (gke-metadata-server). It contains no
//! names of flags.

use serde_json::Value;

use super::config_builder::ConfigBuilder;

/// A tool whose flags `import` can translate. Each tool has a separate file and one line in `TOOLS`.
#[derive(Debug)]
pub(super) struct SourceTool {
    /// The tool's name on the command line.
    pub(super) command_name: &'static str,
    /// The tool's name for sentences.
    pub(super) title: &'static str,
    /// The first comment of the printed configuration: where the configuration belongs.
    pub(super) placement: &'static str,
    /// The words that can stand between flags and have no effect: the program and its subcommands.
    pub(super) ignored_words: &'static [&'static str],
    pub(super) flags: &'static [&'static [ToolFlag]],
    /// The options for values that the tool detects at run time. These options precede `--` on the command line.
    pub(super) options: &'static [ImportOption],
    /// The settings that the options and flags must provide.
    pub(super) required_settings: &'static [RequiredSetting],
    /// Sets the tool's defaults. `import` calls this function before it applies the first flag.
    pub(super) set_defaults: fn(&mut ConfigBuilder),
    /// Sets the keys that depend on several flags, or on the absence of a flag.
    pub(super) set_dependent_keys: fn(&mut ConfigBuilder),
}

/// An option of `import`. It sets a key for which the tool has no flag.
#[derive(Debug)]
pub(super) struct ImportOption {
    pub(super) seawall_option_name: &'static str,
    /// The placeholder of the value in the help.
    pub(super) value_placeholder: &'static str,
    pub(super) config_key: &'static str,
    /// True if the key is a number.
    pub(super) is_number: bool,
}

impl ImportOption {
    /// Returns the value for the configuration. An invalid number stays text, and the configuration's parser rejects it.
    pub(super) fn config_value(&self, text: &str) -> Value {
        let number = || text.parse::<u64>().ok();
        self.is_number.then(number).flatten().map_or_else(|| text.into(), Value::from)
    }
}

/// A setting that the flags can omit and that `import` must not guess.
#[derive(Debug)]
pub(super) struct RequiredSetting {
    pub(super) is_missing: fn(&ConfigBuilder) -> bool,
    /// The error text. It tells the user which option or flag to add.
    pub(super) error_message: &'static str,
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
    /// The flag's value sets one or more configuration keys.
    Sets(fn(&str, &mut ConfigBuilder)),
    /// The flag has no equivalent in the agent. The text tells the user what to do instead.
    Unsupported(&'static str),
    /// The flag has an effect only together with other flags. [`SourceTool::set_dependent_keys`] handles this flag.
    Deferred,
}

/// A flag on a command line, with its value.
#[derive(Debug)]
pub(super) struct GivenFlag<'a> {
    pub(super) flag: &'static ToolFlag,
    pub(super) value: &'a str,
}

impl ToolFlag {
    /// Returns a flag with a value.
    pub(super) const fn new_taking_value(name: &'static str, sets: fn(&str, &mut ConfigBuilder)) -> Self {
        Self { name, is_switch: false, means: FlagAction::Sets(sets) }
    }

    /// Returns a boolean flag. `sets` receives `true` or `false`.
    pub(super) const fn new_boolean(name: &'static str, sets: fn(&str, &mut ConfigBuilder)) -> Self {
        Self { name, is_switch: true, means: FlagAction::Sets(sets) }
    }

    /// Returns a flag that takes a value and has no equivalent. `instead` tells the user what to do instead.
    pub(super) const fn new_unsupported(name: &'static str, instead: &'static str) -> Self {
        Self { name, is_switch: false, means: FlagAction::Unsupported(instead) }
    }

    /// Returns a boolean flag that has no equivalent. `instead` tells the user what to do instead.
    pub(super) const fn new_unsupported_boolean(name: &'static str, instead: &'static str) -> Self {
        Self { name, is_switch: true, means: FlagAction::Unsupported(instead) }
    }

    /// Returns a flag with a value that [`SourceTool::set_dependent_keys`] reads.
    pub(super) const fn new_deferred(name: &'static str) -> Self {
        Self { name, is_switch: false, means: FlagAction::Deferred }
    }

    /// Returns a boolean flag that [`SourceTool::set_dependent_keys`] reads.
    pub(super) const fn new_deferred_boolean(name: &'static str) -> Self {
        Self { name, is_switch: true, means: FlagAction::Deferred }
    }

    /// Applies the flag's action to the configuration.
    pub(super) fn apply(&self, value: &str, draft: &mut ConfigBuilder) {
        match self.means {
            FlagAction::Sets(sets) => sets(value, draft),
            FlagAction::Unsupported(_) if self.is_switch && value == "false" => {}
            FlagAction::Unsupported(instead) => draft.add_remark(instead),
            FlagAction::Deferred => {}
        }
    }
}

/// Returns the flags of a command line, in the same order.
///
/// # Errors
/// A flag is unknown; the error lists all unknown flags. If all flags are known, the error lists all misplaced words and
/// invalid values.
pub(super) fn parse_flags<'a>(
    args: &'a [String],
    tool: &SourceTool,
) -> Result<Vec<GivenFlag<'a>>, Vec<String>> {
    let (mut given, mut unknown, mut misplaced) = (Vec::new(), Vec::new(), Vec::new());
    let mut rest = args.iter().map(String::as_str).peekable();
    while let Some(arg) = rest.next() {
        let Some(text) = arg.strip_prefix('-') else {
            if !is_word(arg, tool) {
                misplaced.push(format!("{arg:?} is not a flag"));
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
            None if flag.is_switch => misplaced.push(format!("--{}: expected true or false", flag.name)),
            None => misplaced.push(format!("--{}: expected a value", flag.name)),
        }
    }
    // A misplaced word can be the value of an unknown flag, so do not report both.
    let mistakes = if unknown.is_empty() { misplaced } else { unknown };
    if mistakes.is_empty() { Ok(given) } else { Err(mistakes) }
}

/// True if the argument is the tool's program, in any folder (`/kiam`), or one of its subcommands (`agent`).
fn is_word(arg: &str, tool: &SourceTool) -> bool {
    let name = arg.rsplit('/').next().unwrap_or(arg);
    tool.ignored_words.contains(&name)
}

/// Finds the flag with this name. The bool is true if the name turns the flag off (kingpin's prefix `--no-`).
fn find(name: &str, tool: &SourceTool) -> Option<(&'static ToolFlag, bool)> {
    let of_name = |name: &str| tool.flags.iter().copied().flatten().find(|flag| flag.name == name);
    let off = || Some((of_name(name.strip_prefix("no-")?).filter(|flag| flag.is_switch)?, true));
    of_name(name).map(|flag| (flag, false)).or_else(off)
}

/// Converts a value to `true` or `false`, by the rules of Go's `strconv.ParseBool`.
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
