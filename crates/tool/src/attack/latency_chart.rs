//! The distribution of response times as lines of text: a bar for each range of times.
//!
//! The ranges are powers of two below the largest time, so that a second peak far from the first one keeps a bar of its own. Called by
//! [`super::summary`]'s caller with what the engine recorded; knows no file and no terminal.

use std::fmt::Write as _;

use seawall_load::latency_distribution::Distribution;

use crate::brief_time::format_brief_time;

/// The longest bar, in columns.
const LONGEST: u64 = 40;
/// The most bars. What is faster than the lowest range counts in it.
const ROWS: u32 = 11;
/// Fewer responses are listed by their percentiles alone.
const LEAST: u64 = 20;

/// Draws the response times; nothing if there are too few of them.
pub(super) fn render(times: &Distribution) -> String {
    let rows = rows(times);
    let most = rows.iter().map(|(_, count)| *count).max().unwrap_or(0);
    if times.count() < LEAST || most == 0 {
        return String::new();
    }
    let mut out = "Response times, number of requests up to each time\n".to_owned();
    for (up_to, count) in rows {
        let length = (count * LONGEST).div_ceil(most);
        let bar = "■".repeat(usize::try_from(length).unwrap_or(0));
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{:>9}  {bar:<40}  {count}", format_brief_time(up_to));
    }
    out
}

/// The upper end of each range in nanoseconds, and the requests in it. Ranges below the fastest request are left out.
fn rows(times: &Distribution) -> Vec<(u64, u64)> {
    let largest = u64::try_from(times.max()).unwrap_or(0).max(1);
    let ends: Vec<u64> = (0..ROWS).rev().map(|halvings| largest.checked_shr(halvings).unwrap_or(0)).collect();
    let mut counts = vec![0; ends.len()];
    for (up_to, count) in times.buckets() {
        let row = ends.partition_point(|end| *end < up_to.min(largest));
        counts[row.min(ends.len() - 1)] += count;
    }
    ends.into_iter().zip(counts).skip_while(|(_, count)| *count == 0).collect()
}

#[cfg(test)]
mod tests {
    use seawall_load::latency_distribution::Precision;

    use super::*;

    fn times(values: &[(i64, usize)]) -> Distribution {
        let mut times = Distribution::new(Precision::Three);
        for (value, count) in values {
            (0..*count).for_each(|_| times.record(*value));
        }
        times
    }

    #[test]
    fn each_request_stands_in_one_bar_and_the_last_bar_ends_at_the_slowest() {
        let times = times(&[(1_000_000, 80), (40_000_000, 15), (64_000_000, 5)]);
        let rows = rows(&times);
        assert_eq!(rows.iter().map(|(_, count)| count).sum::<u64>(), 100);
        assert_eq!(rows.first().map(|row| row.1), Some(80));
        assert_eq!(rows.last(), Some(&(64_000_000, 20)));
        assert!(rows.len() <= ROWS as usize);
    }

    #[test]
    fn a_second_peak_has_a_bar_of_its_own() {
        let text = render(&times(&[(1_000_000, 100), (41_000_000, 50)]));
        let bars: Vec<_> = text.lines().filter(|line| line.contains('■')).collect();
        assert_eq!(bars.len(), 2, "{text}");
        assert!(bars[0].ends_with(" 100") && bars[1].ends_with(" 50"), "{text}");
    }

    #[test]
    fn too_few_responses_have_no_chart() {
        assert_eq!(render(&times(&[(1_000_000, 19)])), "");
        assert_eq!(render(&Distribution::default()), "");
    }
}
