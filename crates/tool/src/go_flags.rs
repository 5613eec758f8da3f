//! Go's flag spelling for clap: one dash or two, `-flag=value` or `-flag value`; and the short flags of hey, oha and ab.
//!
//! The field's commands come from vegeta, whose flags take one dash (`-duration=5s`), and from hey, whose flags are one letter (`-z5s`).
//! clap reads `-duration` as a bundle of one-letter flags, so a single dash before a word becomes two before clap sees it. A word has a
//! lower-case letter after its first letter, as each of vegeta's flags has but `-h2c`; a value that stands right behind a one-letter flag
//! begins otherwise (`-n100`, `-d30s`, `-mPOST`). Negative numbers and the lone dash stay as they are; so does everything after `--`.

use std::ffi::{OsStr, OsString};

use crate::misread_flags;

/// The arguments with every `-word` spelled `--word`, and what hey, oha and ab call otherwise in our words.
pub(crate) fn normalise_flags(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut literal = false;
    let words = args
        .into_iter()
        .enumerate()
        .map(|(i, arg)| {
            literal |= arg == "--";
            if i == 0 || literal { arg } else { two_dashes(&arg).unwrap_or(arg) }
        })
        .collect();
    misread_flags::translate_flags(words)
}

fn two_dashes(arg: &OsStr) -> Option<OsString> {
    let word = arg.to_str()?.strip_prefix('-')?;
    let mut letters = word.chars();
    let is_word = letters.next().is_some_and(|c| c.is_ascii_lowercase())
        && letters.next().is_some_and(|c| c.is_ascii_lowercase());
    (is_word || word.starts_with("h2")).then(|| OsString::from(format!("--{word}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(args: &[&str]) -> Vec<String> {
        normalise_flags(args.iter().map(OsString::from))
            .into_iter()
            .map(|arg| arg.into_string().unwrap())
            .collect()
    }

    #[test]
    fn one_dash_becomes_two() {
        assert_eq!(
            spelled(&["seawall", "attack", "-rate=10", "-duration", "5s", "-h2c"]),
            ["seawall", "attack", "--rate=10", "--duration", "5s", "--h2c"]
        );
    }

    #[test]
    fn short_flags_numbers_and_literals_stay() {
        let kept = ["seawall", "-h", "-", "-1", "-r=1", "--lazy", "--", "-rate"];
        assert_eq!(spelled(&kept), kept);
    }

    #[test]
    fn values_right_behind_a_short_flag_stay() {
        let kept = ["seawall", "-n100", "-c50", "-z30s", "-d30s", "-d{}", "-mPOST", "-HAccept: a/b", "-t12"];
        assert_eq!(spelled(&kept), kept);
    }

    /// Each of vegeta's flags is a word.
    #[test]
    fn vegetas_flags_are_words() {
        let flags = "body cert chunked connect-to connections dns-ttl duration format h2c header http2 insecure keepalive key laddr \
                     lazy max-body max-connections max-workers name output prometheus-addr proxy-header rate redirects resolvers \
                     root-certs session-tickets targets timeout unix-socket workers cpus profile version type every buckets \
                     to title threshold";
        for flag in flags.split_whitespace() {
            assert_eq!(spelled(&["", &format!("-{flag}=1")])[1], format!("--{flag}=1"));
        }
    }
}
