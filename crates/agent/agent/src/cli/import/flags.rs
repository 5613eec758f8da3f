//! Command lines of other tools: which flags there are, and which were given.
//!
//! Knows how kingpin (KIAM) and pflag (kube2iam) write flags, and no flag by its name.

use super::config_builder::Draft;

/// One tool: a room each, and one line in `TOOLS`.
#[derive(Debug)]
pub(super) struct Tool {
    /// On the command line.
    pub(super) word: &'static str,
    /// In sentences.
    pub(super) title: &'static str,
    /// What may stand between flags and means nothing: the program and its subcommands.
    pub(super) words: &'static [&'static str],
    pub(super) flags: &'static [&'static [Flag]],
    /// What it detects while it runs, and here is told before `--`.
    pub(super) own: &'static [Own],
    /// What must have come of all that.
    pub(super) must: &'static [Must],
    /// What holds before the first flag.
    pub(super) begin: fn(&mut Draft),
    /// What follows from several flags, or from one that is absent.
    pub(super) finish: fn(&mut Draft),
}

/// An option of this program's: the value of a key that is in no flag.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) name: &'static str,
    /// What stands for it in the help.
    pub(super) value: &'static str,
    pub(super) key: &'static str,
}

/// What the flags may leave open, and nobody may guess.
#[derive(Debug)]
pub(super) struct Must {
    pub(super) is_open: fn(&Draft) -> bool,
    /// What is to be given.
    pub(super) sentence: &'static str,
}

/// A flag of another tool.
#[derive(Debug)]
pub(super) struct Flag {
    pub(super) name: &'static str,
    is_switch: bool,
    means: Means,
}

#[derive(Debug)]
enum Means {
    /// What this writes.
    Sets(fn(&str, &mut Draft)),
    /// Nothing of ours; this is to be done instead.
    NoEqual(&'static str),
    /// What follows from it together with others, at the end.
    Later,
}

/// A flag that stands on a command line.
#[derive(Debug)]
pub(super) struct Given<'a> {
    pub(super) flag: &'static Flag,
    pub(super) value: &'a str,
}

impl Flag {
    /// One with a value.
    pub(super) const fn sets(name: &'static str, sets: fn(&str, &mut Draft)) -> Self {
        Self { name, is_switch: false, means: Means::Sets(sets) }
    }

    /// One that is on or off; told `true` or `false`.
    pub(super) const fn switches(name: &'static str, sets: fn(&str, &mut Draft)) -> Self {
        Self { name, is_switch: true, means: Means::Sets(sets) }
    }

    /// One with a value and without an equal.
    pub(super) const fn no_equal(name: &'static str, instead: &'static str) -> Self {
        Self { name, is_switch: false, means: Means::NoEqual(instead) }
    }

    /// One that is on or off, without an equal.
    pub(super) const fn no_equal_switch(name: &'static str, instead: &'static str) -> Self {
        Self { name, is_switch: true, means: Means::NoEqual(instead) }
    }

    /// One that the tool's `finish` reads.
    pub(super) const fn later(name: &'static str) -> Self {
        Self { name, is_switch: false, means: Means::Later }
    }

    /// One that is on or off and that the tool's `finish` reads.
    pub(super) const fn later_switch(name: &'static str) -> Self {
        Self { name, is_switch: true, means: Means::Later }
    }

    /// Writes what it means.
    pub(super) fn apply(&self, value: &str, draft: &mut Draft) {
        match self.means {
            Means::Sets(sets) => sets(value, draft),
            Means::NoEqual(_) if self.is_switch && value == "false" => {}
            Means::NoEqual(instead) => draft.remark(instead),
            Means::Later => {}
        }
    }
}

/// The flags of a command line, in their order.
///
/// # Errors
/// Every flag that the tool has not, or else every other word that has no place.
pub(super) fn read<'a>(args: &'a [String], tool: &Tool) -> Result<Vec<Given<'a>>, Vec<String>> {
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
            Some(value) => given.push(Given { flag, value }),
            None if flag.is_switch => misplaced.push(format!("--{} is true or false", flag.name)),
            None => misplaced.push(format!("--{} needs a value", flag.name)),
        }
    }
    // The value of a flag that nobody knows looks like a word without a place.
    let mistakes = if unknown.is_empty() { misplaced } else { unknown };
    if mistakes.is_empty() { Ok(given) } else { Err(mistakes) }
}

/// A word of the command itself, whichever folder the program is in.
fn is_word(arg: &str, tool: &Tool) -> bool {
    let name = arg.rsplit('/').next().unwrap_or(arg);
    tool.words.contains(&name)
}

/// The flag of this name, and whether it is turned off by it (kingpin's `--no-`).
fn find(name: &str, tool: &Tool) -> Option<(&'static Flag, bool)> {
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
