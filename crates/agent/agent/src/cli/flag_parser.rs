//! Parses the words and flags of a command. Each command declares its flags, and every other flag is an error.
//! The module does not depend on the commands.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use lexopt::Arg::{Long, Short, Value};
use lexopt::{Error, Parser, ValueExt};

/// The flags that the user has given to a command.
#[derive(Debug, Default)]
pub(super) struct Flags(Vec<(&'static str, OsString)>);

impl Flags {
    /// Reads the flags that a command accepts. `takes` contains their names. A name ends with `=` if the flag has a value, and with `=*` if the user
    /// can give the flag several times. Returns `None` if the user requests help.
    ///
    /// # Errors
    /// There is an unknown flag, an unexpected word, or a flag without its value.
    pub(super) fn read(args: &mut Parser, takes: &[&'static str]) -> Result<Option<Self>, Error> {
        Self::default().read_more(args, takes)
    }

    /// Reads more flags and adds them to these flags.
    ///
    /// # Errors
    /// There is an unknown flag, an unexpected word, or a flag without its value.
    pub(super) fn read_more(
        mut self,
        args: &mut Parser,
        takes: &[&'static str],
    ) -> Result<Option<Self>, Error> {
        while let Some(arg) = args.next()? {
            let flag = match arg {
                Short('h') | Long("help") => return Ok(None),
                Long(name) => takes.iter().find(|flag| flag.trim_end_matches(['=', '*']) == name).copied(),
                _ => None,
            };
            let flag = flag.ok_or_else(|| arg.unexpected())?;
            let name = flag.trim_end_matches(['=', '*']);
            if self.has(name) && !flag.ends_with('*') {
                return Err(Error::Custom(format!("--{name} is given twice").into()));
            }
            let value = if flag == name { OsString::new() } else { args.value()? };
            self.push(name, value);
        }
        Ok(Some(self))
    }

    /// Adds one flag.
    pub(super) fn push(&mut self, name: &'static str, value: OsString) {
        self.0.push((name, value));
    }

    /// Returns all values of a flag.
    ///
    /// # Errors
    /// A value cannot be parsed; `wanted` describes the expected value.
    pub(super) fn values<T: FromStr>(&self, name: &str, wanted: &str) -> Result<Vec<T>, Error> {
        let values = self.0.iter().filter(|(given, _)| *given == name);
        let parse = |(_, value): &(_, OsString)| {
            let value = value.to_str().and_then(|text| text.parse().ok());
            value.ok_or_else(|| self.invalid_value_error(name, wanted))
        };
        values.map(parse).collect()
    }

    /// Returns the value of a flag, or `None` if the flag is absent.
    ///
    /// # Errors
    /// The value cannot be parsed; `wanted` describes the expected value.
    pub(super) fn value<T: FromStr>(&self, name: &str, wanted: &str) -> Result<Option<T>, Error> {
        Ok(self.values(name, wanted)?.pop())
    }

    /// Returns the value of a required flag.
    ///
    /// # Errors
    /// The flag is missing or its value cannot be parsed; `wanted` describes the expected value.
    pub(super) fn required<T: FromStr>(&self, name: &str, wanted: &str) -> Result<T, Error> {
        let missing = || Error::Custom(format!("--{name} is missing: expected {wanted}").into());
        self.value(name, wanted)?.ok_or_else(missing)
    }

    /// Returns the path that is the value of a flag.
    pub(super) fn path(&self, name: &str) -> Option<PathBuf> {
        self.0.iter().find(|(given, _)| *given == name).map(|(_, value)| value.into())
    }

    /// True if the flag is given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(given, _)| *given == name)
    }

    /// Returns the error for an invalid value; `wanted` describes the expected value.
    pub(super) fn invalid_value_error(&self, name: &str, wanted: &str) -> Error {
        let given =
            self.0.iter().rfind(|(given, _)| *given == name).map(|(_, value)| value.to_string_lossy());
        Error::Custom(format!("--{name}: found {:?}, expected {wanted}", given.unwrap_or_default()).into())
    }
}

/// Returns the next word of a command. Returns `help` for `-h` or `--help`.
pub(super) fn next_word(args: &mut Parser) -> Result<Option<String>, Error> {
    match args.next()? {
        Some(Short('h') | Long("help")) => Ok(Some("help".to_owned())),
        Some(Value(word)) => Ok(Some(word.string()?)),
        Some(other) => Err(other.unexpected()),
        None => Ok(None),
    }
}
