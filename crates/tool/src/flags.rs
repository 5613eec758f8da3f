//! Go's flag spelling for clap: one dash or two, `-flag=value` or `-flag value`.
//!
//! The field's commands come from vegeta, whose flags take one dash (`-duration=5s`). clap reads `-duration` as
//! a bundle of one-letter flags, so a single dash before a word becomes two before clap sees it. Negative numbers
//! and the lone dash stay as they are; so does everything after `--`.

use std::ffi::{OsStr, OsString};

/// The arguments with every `-word` spelled `--word`.
pub(crate) fn normalise(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut literal = false;
    args.into_iter()
        .enumerate()
        .map(|(i, arg)| {
            literal |= arg == "--";
            if i == 0 || literal { arg } else { two_dashes(&arg).unwrap_or(arg) }
        })
        .collect()
}

fn two_dashes(arg: &OsStr) -> Option<OsString> {
    let word = arg.to_str()?.strip_prefix('-')?;
    let mut letters = word.chars();
    let is_word =
        letters.next().is_some_and(|c| c.is_ascii_alphabetic()) && letters.next().is_some_and(|c| c != '=');
    is_word.then(|| OsString::from(format!("--{word}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(args: &[&str]) -> Vec<String> {
        normalise(args.iter().map(OsString::from)).into_iter().map(|arg| arg.into_string().unwrap()).collect()
    }

    #[test]
    fn one_dash_becomes_two() {
        assert_eq!(
            spelled(&["seawall", "attack", "-rate=10", "-duration", "5s"]),
            ["seawall", "attack", "--rate=10", "--duration", "5s"]
        );
    }

    #[test]
    fn short_flags_numbers_and_literals_stay() {
        let kept = ["seawall", "-h", "-", "-1", "-r=1", "--lazy", "--", "-rate"];
        assert_eq!(spelled(&kept), kept);
    }
}
