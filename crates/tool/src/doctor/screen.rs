//! The findings for people: a line for what is ok, and why and what to do beneath what is not.

use seawall_doctor::{ALL, DoctorCheck, DoctorFinding, DoctorStatus};

use crate::text_wrap::wrap_without_truncating;

/// Columns of text on a wide terminal, and in a file: a longer line is hard to follow to the next.
const WIDEST: usize = 100;
/// A terminal narrower than this breaks lines itself: beside the margin nothing would be left for the text.
const NARROWEST: usize = 60;

/// Columns to break lines at, where a terminal has so many.
pub(super) fn wrap_width(terminal: Option<u16>) -> usize {
    terminal.map_or(WIDEST, |columns| usize::from(columns).clamp(NARROWEST, WIDEST))
}

/// Columns of a status: "unknown" and "WARNING" are the longest.
const STATUS: usize = 7;

/// Columns of the longest of these names.
fn longest<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    names.map(str::len).max().unwrap_or(0)
}

/// Formats the findings of one check under its name.
pub(super) fn format_check(name: &str, found: &[DoctorFinding], width: usize) -> String {
    // Of all checks, so that the texts of each stand below those of the one before.
    let names = longest(ALL.iter().flat_map(|check| check.finding_ids).copied());
    let mut out = format!("{name}\n");
    for finding in found {
        let head = format!("  {:<STATUS$}  {:<names$} ", finding.status, finding.id);
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

/// Formats the number of findings of each kind, the worst first.
pub(super) fn format_counts(found: &[DoctorFinding]) -> String {
    let count = |status| found.iter().filter(|finding| finding.status == status).count();
    let (errors, warnings) = (count(DoctorStatus::Error), count(DoctorStatus::Warning));
    let (unknown, fine) = (count(DoctorStatus::Unknown), count(DoctorStatus::Ok));
    let some = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    format!("{}, {}, {unknown} unknown, {fine} ok\n", some(errors, "error"), some(warnings, "warning"))
}

/// Which checks there are, and the names of their findings.
pub(super) fn format_check_list(checks: &[DoctorCheck], width: usize) -> String {
    let names = longest(checks.iter().map(|check| check.id));
    checks.iter().fold(String::new(), |mut out, check| {
        paragraph(&mut out, width, &format!("{:<names$} ", check.id), check.about);
        paragraph(&mut out, width, &format!("{:names$} ", ""), &check.finding_ids.join(" "));
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

    fn finding(status: DoctorStatus, text: &str) -> DoctorFinding {
        let bad = (status != DoctorStatus::Ok).then(|| "the reason".to_owned());
        DoctorFinding {
            id: "a.b",
            status,
            measurements: Vec::new(),
            text: text.to_owned(),
            reason: bad.clone(),
            fix: bad,
        }
    }

    #[test]
    fn what_is_ok_takes_a_line_and_what_is_not_says_why_and_what_to_do() {
        let text = format_check(
            "a",
            &[finding(DoctorStatus::Ok, "fine"), finding(DoctorStatus::Error, "broken")],
            WIDEST,
        );
        let heads = ["a", "  ok       a.b                 fine", "  ERROR    a.b                 broken"];
        let rest = ["why: the reason", "fix: the reason"].map(|line| format!("{:26}{line}", ""));
        assert_eq!(text.lines().collect::<Vec<_>>(), [&heads.map(str::to_owned)[..], &rest[..]].concat());
    }

    #[test]
    fn columns_are_as_wide_as_the_longest_name_of_a_check_and_of_a_finding() {
        let names = ALL.iter().flat_map(|check| check.finding_ids);
        let widths = names.map(|id| {
            let text =
                format_check("a", &[DoctorFinding { id, ..finding(DoctorStatus::Unknown, "fine") }], WIDEST);
            let lines: Vec<_> =
                text.lines().map(|line| line.find("fine").or_else(|| line.find("the reason"))).collect();
            assert_eq!(lines[1..], [lines[1]; 3], "{text}");
            assert!(text.contains(&format!(" {id} ")), "{text}");
            lines[1]
        });
        let widths: std::collections::BTreeSet<_> = widths.collect();
        assert_eq!(widths.len(), 1, "{widths:?}");
        let listed = format_check_list(ALL, WIDEST);
        let heads: Vec<_> = listed.lines().filter(|line| !line.starts_with(' ')).collect();
        assert!(heads.len() == ALL.len() && heads.iter().all(|head| head[..9].ends_with(' ')), "{listed}");
    }

    #[test]
    fn long_texts_are_broken_between_words() {
        for (terminal, most) in [(None, 100), (Some(300), 100), (Some(80), 80), (Some(20), 60)] {
            let text =
                format_check("a", &[finding(DoctorStatus::Ok, &"word ".repeat(60))], wrap_width(terminal));
            let longest = text.lines().map(str::len).max().unwrap();
            assert!(longest <= most && longest + "word ".len() > most, "{terminal:?}: {text}");
        }
    }

    /// An ARN, a URL: whoever reads it needs its end.
    #[test]
    fn a_word_that_is_longer_than_a_line_is_not_cut() {
        let word = "x".repeat(2 * WIDEST);
        assert!(format_check("a", &[finding(DoctorStatus::Ok, &word)], WIDEST).contains(&word));
    }

    #[test]
    fn findings_are_counted() {
        let found =
            [DoctorStatus::Ok, DoctorStatus::Ok, DoctorStatus::Warning].map(|status| finding(status, ""));
        assert_eq!(format_counts(&found), "0 errors, 1 warning, 0 unknown, 2 ok\n");
    }
}
