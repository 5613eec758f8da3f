//! The findings for people: a line for what is ok, and why and what to do beneath what is not.

use std::fmt::Write as _;

use seawall_doctor::{Check, Finding, Verdict};

/// Columns of text; a terminal narrower than that breaks lines itself.
const WIDTH: usize = 118;

/// Before a finding's text: verdict, name and the spaces around them.
const MARGIN: usize = 35;

/// What one check found, under its name.
pub(super) fn check(name: &str, found: &[Finding]) -> String {
    let mut out = format!("{name}\n");
    for finding in found {
        let head = format!("  {:<11}  {:<19} ", finding.verdict, finding.id);
        paragraph(&mut out, &head, &finding.text);
        let told = [("why: ", &finding.reason), ("fix: ", &finding.fix)];
        for (word, text) in told {
            if let Some(text) = text {
                paragraph(&mut out, &format!("{word:>MARGIN$}"), text);
            }
        }
    }
    out
}

/// How many findings there were of each kind, the worst first.
pub(super) fn sum(found: &[Finding]) -> String {
    let count = |verdict| found.iter().filter(|finding| finding.verdict == verdict).count();
    let (faults, warnings) = (count(Verdict::Fault), count(Verdict::Warning));
    let (unknown, fine) = (count(Verdict::CannotTell), count(Verdict::Ok));
    let some = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    format!("{}, {}, {unknown} not known, {fine} ok\n", some(faults, "fault"), some(warnings, "warning"))
}

/// Which checks there are, and the names of their findings.
pub(super) fn list(checks: &[Check]) -> String {
    checks.iter().fold(String::new(), |mut out, check| {
        paragraph(&mut out, &format!("{:<9}", check.id), check.about);
        paragraph(&mut out, &" ".repeat(9), &check.findings.join(" "));
        out
    })
}

/// A text behind a head, broken between words, each further line as far in as the first.
fn paragraph(out: &mut String, head: &str, text: &str) {
    out.push_str(head);
    let margin = head.chars().count();
    let mut column = margin;
    for (at, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if at > 0 && column + 1 + length > WIDTH {
            // Writing to a string cannot fail.
            let _ = write!(out, "\n{:margin$}", "");
            column = margin;
        } else if at > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(verdict: Verdict, text: &str) -> Finding {
        let bad = (verdict != Verdict::Ok).then(|| "the reason".to_owned());
        Finding {
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
        let text = check("a", &[finding(Verdict::Ok, "fine"), finding(Verdict::Fault, "broken")]);
        let heads =
            ["a", "  ok           a.b                 fine", "  FAULT        a.b                 broken"];
        let rest = ["why: the reason", "fix: the reason"].map(|line| format!("{:30}{line}", ""));
        assert_eq!(text.lines().collect::<Vec<_>>(), [&heads.map(str::to_owned)[..], &rest[..]].concat());
    }

    #[test]
    fn long_texts_are_broken_between_words() {
        let text = check("a", &[finding(Verdict::Ok, &"word ".repeat(60))]);
        assert!(text.lines().all(|line| line.len() <= WIDTH) && text.lines().count() > 3, "{text}");
    }

    #[test]
    fn findings_are_counted() {
        let found = [Verdict::Ok, Verdict::Ok, Verdict::Warning].map(|verdict| finding(verdict, ""));
        assert_eq!(sum(&found), "0 faults, 1 warning, 0 not known, 2 ok\n");
    }
}
