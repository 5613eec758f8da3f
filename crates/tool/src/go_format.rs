//! Go's text forms, which vegeta's flags and reports are made of: durations and aligned columns.
//!
//! Used wherever a command of vegeta's is taken over. Sources: Go `time.ParseDuration`, `time.Duration.String`,
//! `time.Duration.Round` and `text/tabwriter`.

use std::fmt;
use std::str::FromStr;

use anyhow::Context as _;

/// A signed count of nanoseconds that reads and prints as Go's `time.Duration`: `1h2m3.5s`, `15ms`, `-1.5µs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct GoDuration(pub(crate) i64);

const SECOND: i64 = 1_000_000_000;

impl GoDuration {
    /// vegeta's rounding for reports: to the next finer unit (hours to minutes, …, microseconds to nanoseconds).
    pub(crate) fn rounded(self) -> Self {
        let steps = [3600 * SECOND, 60 * SECOND, SECOND, 1_000_000, 1_000, 1];
        let finer = steps.windows(2).find(|step| self.0 >= step[0]).map_or(1, |step| step[1]);
        let rest = self.0 % finer;
        let down = self.0 - rest;
        Self(if rest >= finer - rest { down.saturating_add(finer) } else { down })
    }

    /// In fractional seconds.
    pub(crate) fn as_seconds(self) -> f64 {
        (self.0 / SECOND) as f64 + (self.0 % SECOND) as f64 / 1e9
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let ns = self.0.unsigned_abs();
        match ns {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{ns}ns"),
            1_000..1_000_000 => decimal(f, ns, 1_000, "µs"),
            1_000_000..1_000_000_000 => decimal(f, ns, 1_000_000, "ms"),
            _ => clock(f, ns),
        }
    }
}

/// `1h2m3.5s`: larger units appear once they are not zero, and then all smaller ones.
fn clock(f: &mut fmt::Formatter<'_>, ns: u64) -> fmt::Result {
    let minutes = ns / (60 * SECOND as u64);
    if minutes >= 60 {
        write!(f, "{}h", minutes / 60)?;
    }
    if minutes > 0 {
        write!(f, "{}m", minutes % 60)?;
    }
    decimal(f, ns % (60 * SECOND as u64), SECOND as u64, "s")
}

fn decimal(f: &mut fmt::Formatter<'_>, ns: u64, unit: u64, name: &str) -> fmt::Result {
    write!(f, "{}", ns / unit)?;
    if !ns.is_multiple_of(unit) {
        let digits = format!("{:0width$}", ns % unit, width = unit.ilog10() as usize);
        write!(f, ".{}", digits.trim_end_matches('0'))?;
    }
    f.write_str(name)
}

impl FromStr for GoDuration {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let expected = "expected numbers with units, such as 300ms, 1.5s or 1h30m";
        let nanos = seawall_core::duration::parse_signed_nanos(text);
        nanos.map(Self).with_context(|| format!("{text:?} is not a duration: {expected}"))
    }
}

/// Lines whose tab-separated cells are padded with spaces so that columns align, two spaces apart.
///
/// As Go's `tabwriter` with width 0 and padding 2: a column is a run of adjacent lines that have a cell there which a
/// tab ends; a line's last cell belongs to no column.
pub(crate) fn align_columns(text: &str) -> String {
    let lines: Vec<Vec<&str>> = text.split('\n').map(|line| line.split('\t').collect()).collect();
    let mut out = String::with_capacity(text.len() * 2);
    for (at, cells) in lines.iter().enumerate() {
        if at > 0 {
            out.push('\n');
        }
        let Some((last, padded)) = cells.split_last() else { continue };
        for (column, cell) in padded.iter().enumerate() {
            out.push_str(cell);
            let width = column_width(&lines, at, column);
            out.extend(std::iter::repeat_n(' ', width - cell.chars().count()));
        }
        out.push_str(last);
    }
    out
}

fn column_width(lines: &[Vec<&str>], at: usize, column: usize) -> usize {
    let in_column = |cells: &&Vec<&str>| cells.len() > column + 1;
    let below = lines[at..].iter().take_while(in_column);
    let above = lines[..at].iter().rev().take_while(in_column);
    below.chain(above).map(|cells| cells[column].chars().count() + 2).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_print_as_in_go() {
        let cases = [
            (0, "0s"),
            (1, "1ns"),
            (999, "999ns"),
            (1_000, "1µs"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (3_300_000_000, "3.3s"),
            (60_000_000_000, "1m0s"),
            (300_500_000_000, "5m0.5s"),
            (5_000_000_001 + 3600 * SECOND, "1h0m5.000000001s"),
            (-1_500_000, "-1.5ms"),
            (i64::MAX, "2562047h47m16.854775807s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ];
        for (ns, text) in cases {
            assert_eq!(GoDuration(ns).to_string(), text);
            assert_eq!(text.parse::<GoDuration>().ok(), Some(GoDuration(ns)), "{text}");
        }
    }

    #[test]
    fn a_refused_duration_is_named() {
        let refused = "3".parse::<GoDuration>().unwrap_err().to_string();
        assert!(refused.starts_with("\"3\" is not a duration"), "{refused}");
    }

    #[test]
    fn reports_round_to_the_next_finer_unit() {
        let cases = [
            (1_234_567_890, "1.235s"),
            (1_234_567, "1.235ms"),
            (1_500, "1.5µs"),
            (999, "999ns"),
            (60 * SECOND + 1_600_000_000, "1m2s"),
            (3600 * SECOND + 89 * SECOND, "1h1m0s"),
            (-1_234_567, "-1.234567ms"),
        ];
        for (ns, text) in cases {
            assert_eq!(GoDuration(ns).rounded().to_string(), text);
        }
    }

    #[test]
    fn columns_end_where_a_line_lacks_them() {
        assert_eq!(
            align_columns("a\tb\tc\nlong\t\tx\nplain\nq\tr\n"),
            "a     b  c\nlong     x\nplain\nq  r\n"
        );
    }
}
