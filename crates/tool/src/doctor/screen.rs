//! The findings for people: a line for what is ok, and why and what to do beneath what is not.

use seawall_doctor::{ALL, DoctorCheck, DoctorFinding, DoctorVerdict};

use crate::wrap::wrap_without_truncating;

/// Columns of text on a wide terminal, and in a file: a longer line is hard to follow to the next.
const WIDEST: usize = 100;
/// A terminal narrower than this breaks lines itself: beside the margin nothing would be left for the text.
const NARROWEST: usize = 60;

/// Columns to break lines at, where a terminal has so many.
pub(super) fn width(terminal: Option<u16>) -> usize {
    terminal.map_or(WIDEST, |columns| usize::from(columns).clamp(NARROWEST, WIDEST))
}

/// Columns of a verdict: "cannot tell".
const VERDICT: usize = 11;

/// Columns of the longest of these names.
fn longest<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    names.map(str::len).max().unwrap_or(0)
}

/// What one check found, under its name.
pub(super) fn check(name: &str, found: &[DoctorFinding], width: usize) -> String {
    // Of all checks, so that the texts of each stand below those of the one before.
    let names = longest(ALL.iter().flat_map(|check| check.findings).copied());
    let mut out = format!("{name}\n");
    for finding in found {
        let head = format!("  {:<VERDICT$}  {:<names$} ", finding.verdict, finding.id);
        let margin = head.len();
        paragraph(&mut out, width, &head, &finding.text);
        let told = [("why: ", &finding.reason), ("fix: ", &finding.fix)];
        for (word, text) in told {
            if let Some(text) = text {
                paragraph(&mut out, width, &format!("{word:>margin$}"), text);
            }
        }
    }
    out
}

/// How many findings there were of each kind, the worst first.
pub(super) fn counts_line(found: &[DoctorFinding]) -> String {
    let count = |verdict| found.iter().filter(|finding| finding.verdict == verdict).count();
    let (faults, warnings) = (count(DoctorVerdict::Fault), count(DoctorVerdict::Warning));
    let (unknown, fine) = (count(DoctorVerdict::CannotTell), count(DoctorVerdict::Ok));
    let some = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    format!("{}, {}, {unknown} not known, {fine} ok\n", some(faults, "fault"), some(warnings, "warning"))
}

/// Which checks there are, and the names of their findings.
pub(super) fn list(checks: &[DoctorCheck], width: usize) -> String {
    let names = longest(checks.iter().map(|check| check.id));
    checks.iter().fold(String::new(), |mut out, check| {
        paragraph(&mut out, width, &format!("{:<names$} ", check.id), check.about);
        paragraph(&mut out, width, &format!("{:names$} ", ""), &check.findings.join(" "));
        out
    })
}

/// A text behind a head, each further line as far in as the first.
fn paragraph(out: &mut String, width: usize, head: &str, text: &str) {
    for line in wrap_without_truncating(head, text, head.chars().count(), width) {
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(verdict: DoctorVerdict, text: &str) -> DoctorFinding {
        let bad = (verdict != DoctorVerdict::Ok).then(|| "the reason".to_owned());
        DoctorFinding {
            id: "a.b",
            verdict,
            measured: Vec::new(),
            text: text.to_owned(),
            reason: bad.clone(),
            fix: bad,
        }
    }

    #[test]
    fn what_is_ok_takes_a_line_and_what_is_not_says_why_and_what_to_do() {
        let text = check(
            "a",
            &[finding(DoctorVerdict::Ok, "fine"), finding(DoctorVerdict::Fault, "broken")],
            WIDEST,
        );
        let heads =
            ["a", "  ok           a.b                 fine", "  FAULT        a.b                 broken"];
        let rest = ["why: the reason", "fix: the reason"].map(|line| format!("{:30}{line}", ""));
        assert_eq!(text.lines().collect::<Vec<_>>(), [&heads.map(str::to_owned)[..], &rest[..]].concat());
    }

    #[test]
    fn columns_are_as_wide_as_the_longest_name_of_a_check_and_of_a_finding() {
        let names = ALL.iter().flat_map(|check| check.findings);
        let widths = names.map(|id| {
            let text =
                check("a", &[DoctorFinding { id, ..finding(DoctorVerdict::CannotTell, "fine") }], WIDEST);
            let lines: Vec<_> =
                text.lines().map(|line| line.find("fine").or_else(|| line.find("the reason"))).collect();
            assert_eq!(lines[1..], [lines[1]; 3], "{text}");
            assert!(text.contains(&format!(" {id} ")), "{text}");
            lines[1]
        });
        let widths: std::collections::BTreeSet<_> = widths.collect();
        assert_eq!(widths.len(), 1, "{widths:?}");
        let listed = list(ALL, WIDEST);
        let heads: Vec<_> = listed.lines().filter(|line| !line.starts_with(' ')).collect();
        assert!(heads.len() == ALL.len() && heads.iter().all(|head| head[..9].ends_with(' ')), "{listed}");
    }

    #[test]
    fn long_texts_are_broken_between_words() {
        for (terminal, most) in [(None, 100), (Some(300), 100), (Some(80), 80), (Some(20), 60)] {
            let text = check("a", &[finding(DoctorVerdict::Ok, &"word ".repeat(60))], width(terminal));
            let longest = text.lines().map(str::len).max().unwrap();
            assert!(longest <= most && longest + "word ".len() > most, "{terminal:?}: {text}");
        }
    }

    /// An ARN, a URL: whoever reads it needs its end.
    #[test]
    fn a_word_that_is_longer_than_a_line_is_not_cut() {
        let word = "x".repeat(2 * WIDEST);
        assert!(check("a", &[finding(DoctorVerdict::Ok, &word)], WIDEST).contains(&word));
    }

    #[test]
    fn findings_are_counted() {
        let found = [DoctorVerdict::Ok, DoctorVerdict::Ok, DoctorVerdict::Warning]
            .map(|verdict| finding(verdict, ""));
        assert_eq!(counts_line(&found), "0 faults, 1 warning, 0 not known, 2 ok\n");
    }
}
