//! What an experiment came to, as text: who is to blame, who is not, what could not be told, and all figures.

use std::fmt::{self, Write as _};

use seawall_isolate::looks::TAIL_MARGIN;
use seawall_isolate::power::{Forecast, PLANNED_TAIL_EFFECT};
use seawall_lab::isolate::IsolatePlan;
use seawall_lab::isolate::isolate_report::{
    ConfidenceInterval, IsolateOutcome, IsolateReport, TailResult, VariantResult, VariantStats,
    VariantVerdict,
};
use seawall_lab::isolate::variant_capacity::CapacityPlan;

use super::capacity_search;
use crate::find::formatting::{format_count, format_rate_without_unit, format_seconds, format_wait};
use crate::text_wrap::{truncate_line, wrap_and_truncate};

/// What is said before anything is sent: what the time is enough for.
pub(super) fn plan_summary(plan: &IsolatePlan, searches: Option<&CapacityPlan>) -> String {
    let asked = &plan.config;
    let Forecast { effect, center_duration: middle, p99_duration: tail } = asked.forecast();
    let ways = asked.designs.len() + 1;
    let tail = tail.map_or_else(
        || "the 99th percentile cannot be decided: too few responses per time bucket".to_owned(),
        |tail| {
            format!(
                "detecting a difference of {:.0} % at the 99th percentile takes {}",
                100.0 * PLANNED_TAIL_EFFECT,
                format_wait(tail.as_secs_f64())
            )
        },
    );
    let searches = searches.map_or_else(String::new, |searches| {
        let budget = format_wait(searches.whole_run_budget.as_secs_f64());
        format!(" Then isolate searches for the limit of each variant that differs; everything takes at most {budget}.")
    });
    format!(
        "{ways} variants at {}/s in total, for at most {}. On an ordinary path, detecting a difference of {:.0} % at the median takes {}; {tail}.{searches}",
        format_rate_without_unit(asked.rate),
        format_wait(asked.budget.as_secs_f64()),
        100.0 * effect,
        format_wait(middle.as_secs_f64()),
    )
}

/// Columns of a terminal at least and at most: a longer line is hard to follow to the next.
const COLUMNS_OF_A_SCREEN: (usize, usize) = (40, 100);

/// The whole screen where it is no terminal's: each line as long as it is.
pub(super) fn format_report(answer: &IsolateReport) -> String {
    let mut out = words(answer);
    // Formatting into memory cannot fail.
    let _ = table(&mut out, answer, usize::MAX);
    out
}

/// The same in the columns of a terminal.
pub(super) fn format_report_in_columns(answer: &IsolateReport, columns: usize) -> String {
    let wide = columns.clamp(COLUMNS_OF_A_SCREEN.0, COLUMNS_OF_A_SCREEN.1);
    let mut out = wrap_lines(&words(answer), wide);
    let _ = table(&mut out, answer, wide);
    out
}

/// All but the table.
fn words(answer: &IsolateReport) -> String {
    let mut out = String::new();
    let _ = write(&mut out, answer);
    out
}

/// Lines, those that are too long broken between words: each further line begins where the text behind a name did.
pub(super) fn wrap_lines(text: &str, wide: usize) -> String {
    let broken = |line: &str| {
        if line.chars().count() <= wide {
            return vec![line.to_owned()];
        }
        let (begin, text, indent) = behind_name(line, wide);
        wrap_and_truncate(begin, text, indent, wide)
    };
    text.lines().flat_map(broken).map(|line| line + "\n").collect()
}

/// What stands before the text of a line: its spaces, and a name where that leaves half of the columns; and how far in it goes on.
fn behind_name(line: &str, wide: usize) -> (&str, &str, usize) {
    let spaces = line.len() - line.trim_start().len();
    let name = line[spaces..].find("  ").map(|at| spaces + at).filter(|_| spaces > 0);
    let text = name.map(|end| line.len() - line[end..].trim_start().len());
    let text = text.filter(|&text| 2 * line[..text].chars().count() <= wide);
    let (begin, rest) = line.split_at(text.unwrap_or(spaces));
    (begin, rest, text.map_or(spaces + 2, |_| begin.chars().count()))
}

/// What it came to, in one line: of the comparison, and of what the ways bear where that differs.
pub(super) fn format_headline(answer: &IsolateReport) -> String {
    let bears =
        capacity_search::format_headline(answer).map_or_else(String::new, |bears| format!("; {bears}"));
    compared(answer) + &bears
}

fn compared(answer: &IsolateReport) -> String {
    let ranked = answer.rank_differing_variants();
    let first = ranked.first().filter(|first| first.verdict == VariantVerdict::Faster);
    let equal = answer.variants_with_verdict(VariantVerdict::Equal).count();
    match (answer.outcome, first) {
        (IsolateOutcome::Overloaded | IsolateOutcome::Failed, _) => {
            answer.stop_detail.clone().unwrap_or_default()
        }
        _ if answer.reference.all_failed() => {
            let best = ranked.first().map(|way| format!("; {}: {}", way.stats.name, format_verdict(way)));
            let [name, why] = [answer.reference.name.as_str(), &describe_failures(&answer.reference)];
            format!("no request of {name} got a good response: {why}{}", best.unwrap_or_default())
        }
        (_, Some(first)) => format!("{}: faster by {}", first.stats.name, of_gain(first)),
        _ if !ranked.is_empty() => {
            let named: Vec<_> =
                ranked.iter().map(|way| format!("{}: {}", way.stats.name, format_verdict(way))).collect();
            named.join("; ")
        }
        _ if equal == answer.variants.len() => {
            let all = match answer.variants.as_slice() {
                [one] => format!("{} equals the reference", one.stats.name),
                _ => format!("all {equal} variants equal the reference"),
            };
            let is_told = answer.outcome == IsolateOutcome::Decided;
            let but = if is_told { "" } else { "; the 99th percentile is undecided" };
            format!("no variant differs: {all} within {}{but}", format_share(answer.config.margin))
        }
        (IsolateOutcome::GeneratorLimited, _) => {
            "the generator was the limit, so no variant was compared".to_owned()
        }
        _ if equal > 0 => {
            let names: Vec<_> = answer
                .variants_with_verdict(VariantVerdict::Equal)
                .map(|way| way.stats.name.as_str())
                .collect();
            let rest = answer.variants.len() - equal;
            format!("not the cause: {}; number of undecided variants: {rest}", names.join(", "))
        }
        _ => "nothing is decided yet".to_owned(),
    }
}

fn write(out: &mut String, answer: &IsolateReport) -> fmt::Result {
    writeln!(out, "{}", format_headline(answer))?;
    let together = format_rate_without_unit(answer.config.rate);
    let (took, budget) = (format_wait(answer.duration_seconds), format_wait(answer.config.budget_seconds));
    writeln!(out, "{}, {together}/s in total, {took} of {budget}", answer.config.target)?;
    if let Some(detail) = &answer.stop_detail {
        writeln!(out, "cut short: {detail}")?;
    }
    differing(out, answer)?;
    let margin = format_share(answer.config.margin);
    let title = format!("Not the cause (the middle half of the response times is the same within {margin})");
    list(out, &title, answer.variants_with_verdict(VariantVerdict::Equal), |way| {
        describe_equal(answer, way) + &describe_suspicious_tail(answer, way).unwrap_or_default()
    })?;
    list(out, "Undecided", answer.variants_with_verdict(VariantVerdict::Undecided), |way| {
        why_not_equal(answer, way).unwrap_or_else(|| undecided(way))
    })?;
    list(out, "Invalid", answer.variants_with_verdict(VariantVerdict::Invalid), describe_invalid)?;
    for limit in &answer.generator_warnings {
        writeln!(out, "  the generator: {limit}")?;
    }
    tails(out, answer)?;
    failures(out, answer)?;
    capacity_search::write_screen_section(out, answer)
}

fn differing(out: &mut String, answer: &IsolateReport) -> fmt::Result {
    let ranked = answer.rank_differing_variants();
    if ranked.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\nDifferent from {} (the variants with the fewest errors first, then the fastest)",
        answer.reference.name
    )?;
    let widest = width(ranked.iter().map(|way| &way.stats));
    for (at, way) in ranked.iter().enumerate() {
        writeln!(
            out,
            "  {}. {:widest$}  {}{}",
            at + 1,
            way.stats.name,
            describe_difference(way),
            described(&way.stats)
        )?;
    }
    Ok(())
}

fn list<'a>(
    out: &mut String,
    title: &str,
    ways: impl Iterator<Item = &'a VariantResult>,
    say: impl Fn(&VariantResult) -> String,
) -> fmt::Result {
    let ways: Vec<_> = ways.collect();
    if ways.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{title}")?;
    let widest = width(ways.iter().map(|way| &way.stats));
    for way in ways {
        writeln!(out, "  {:widest$}  {}{}", way.stats.name, say(way), described(&way.stats))?;
    }
    Ok(())
}

fn described(way: &VariantStats) -> String {
    if way.description.is_empty() { String::new() } else { format!("  ({})", way.description) }
}

/// A verdict in few words.
pub(super) fn format_verdict(way: &VariantResult) -> String {
    let size = |gain: Option<ConfidenceInterval>| {
        gain.map_or_else(String::new, |gain| format_share(gain.estimate.abs()))
    };
    match way.verdict {
        VariantVerdict::Faster => format!("faster by {}", size(way.time_saved_ratio)),
        VariantVerdict::Slower => format!("slower by {}", size(way.time_saved_ratio)),
        VariantVerdict::P99Faster => {
            format!("faster by {} at the 99th percentile", size(way.p99.time_saved_ratio))
        }
        VariantVerdict::P99Slower => {
            format!("slower by {} at the 99th percentile", size(way.p99.time_saved_ratio))
        }
        VariantVerdict::MoreErrors => {
            format!("the share of failed requests is higher by {}", size(way.error_ratio_difference))
        }
        VariantVerdict::FewerErrors => {
            format!("the share of failed requests is lower by {}", size(way.error_ratio_difference))
        }
        VariantVerdict::Equal => "not the cause".to_owned(),
        VariantVerdict::Undecided => "undecided".to_owned(),
        VariantVerdict::Invalid => "invalid".to_owned(),
    }
}

/// What differs, in words.
pub(super) fn describe_difference(way: &VariantResult) -> String {
    match way.verdict {
        VariantVerdict::MoreErrors | VariantVerdict::FewerErrors => {
            let (word, of): (_, fn(ConfidenceInterval) -> ConfidenceInterval) = match way.verdict {
                VariantVerdict::MoreErrors => {
                    ("the share of failed requests is higher by", |failing| failing)
                }
                _ => ("the share of failed requests is lower by", negated),
            };
            way.error_ratio_difference.map_or_else(
                || word.to_owned(),
                |failing| format!("{word} {}{}", format_confidence_interval(of(failing)), slower_too(way)),
            )
        }
        VariantVerdict::Slower => {
            let gain = way
                .time_saved_ratio
                .map_or_else(String::new, |gain| format_confidence_interval(negated(gain)));
            format!("slower by {gain}{}{}", in_time(way), fails_too(way))
        }
        VariantVerdict::P99Slower | VariantVerdict::P99Faster => {
            format!(
                "{} at the 99th percentile; the middle half of the response times is equal",
                of_tail(&way.p99)
            )
        }
        _ => format!("faster by {}{}", of_gain(way), fails_too(way)),
    }
}

/// Says that more requests fail too, where the verdict is about time.
fn fails_too(way: &VariantResult) -> String {
    let more = way.error_ratio_difference.filter(|failing| failing.lower.is_some_and(|lower| lower > 0.0));
    more.map_or_else(String::new, |more| {
        format!("; and the share of failed requests is higher by {}", format_confidence_interval(more))
    })
}

/// Says that good answers are slower too, where the verdict is about failures.
fn slower_too(way: &VariantResult) -> String {
    let more = way.time_saved_ratio.filter(|gain| gain.upper.is_some_and(|upper| upper < 0.0));
    more.map_or_else(String::new, |more| {
        format!("; and good responses are slower by {}", format_confidence_interval(negated(more)))
    })
}

/// Reasons that are named; the others are counted.
const REASONS: usize = 4;

/// What became of requests of a way beside answers and failures, and of how many.
pub(super) fn no_response_and_retried_counts(
    way: &VariantStats,
) -> impl Iterator<Item = (&'static str, u64)> {
    let told =
        [("no response at the end", way.no_response), ("retried after a closed connection", way.retried)];
    told.into_iter().filter(|(_, count)| *count > 0)
}

/// How requests of a way failed, and what else became of some.
pub(super) fn describe_failures(way: &VariantStats) -> String {
    let shown: Vec<_> = way.failures.iter().take(REASONS).collect();
    let others: u64 = way.failures.iter().skip(REASONS).map(|failure| failure.count).sum();
    let mut told: Vec<_> = shown
        .iter()
        .map(|failure| format!("{} ({})", failure.reason, format_count(failure.count as f64)))
        .collect();
    told.extend((others > 0).then(|| format!("other reasons ({})", format_count(others as f64))));
    told.extend(
        no_response_and_retried_counts(way)
            .map(|(what, number)| format!("{what} ({})", format_count(number as f64))),
    );
    told.join(", ")
}

/// What was answered in place of good answers, and how often.
fn failures(out: &mut String, answer: &IsolateReport) -> fmt::Result {
    let failing: Vec<_> = answer.variant_stats().filter(|way| way.has_failures_or_retries()).collect();
    if failing.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nFailed requests")?;
    let widest = width(failing.iter().copied());
    for way in failing {
        let all = if way.all_failed() { "all requests: " } else { "" };
        writeln!(out, "  {:widest$}  {all}{}", way.name, describe_failures(way))?;
    }
    Ok(())
}

/// The interval with its sign changed: a time saved becomes a time lost.
fn negated(gain: ConfidenceInterval) -> ConfidenceInterval {
    ConfidenceInterval {
        lower: gain.upper.map(|end| -end),
        estimate: -gain.estimate,
        upper: gain.lower.map(|end| -end),
    }
}

/// Says by how much a 99th percentile is faster or slower.
fn of_tail(tail: &TailResult) -> String {
    let said = |of: fn(ConfidenceInterval) -> ConfidenceInterval| {
        tail.time_saved_ratio.map_or_else(|| "–".to_owned(), |gain| format_confidence_interval(of(gain)))
    };
    if tail.verdict == VariantVerdict::Slower {
        format!("slower by {}", said(negated))
    } else {
        format!("faster by {}", said(|gain| gain))
    }
}

/// From so many times the reference's on a percentile is no chance that is worth overlooking, however few answers say it.
const UNLIKE: f64 = 2.0;

/// That the tail of a way whose middle is the same looks other, where cells have too few answers to tell.
pub(super) fn describe_suspicious_tail(answer: &IsolateReport, way: &VariantResult) -> Option<String> {
    let times = way.stats.percentile(99.0)? / answer.reference.percentile(99.0)?;
    let is_told =
        matches!(way.p99.verdict, VariantVerdict::Equal | VariantVerdict::Slower | VariantVerdict::Faster);
    (!is_told && times > UNLIKE).then(|| {
        format!("; but its 99th percentile looks {times:.1} times as high as the reference's: to be sure, run again with --until-p99 or at a higher rate")
    })
}

/// How near one that is equal is.
pub(super) fn describe_equal(answer: &IsolateReport, way: &VariantResult) -> String {
    let hardly_answers = || {
        format!(
            "almost no response is good with this variant, and almost none with {}",
            answer.reference.name
        )
    };
    way.time_saved_ratio.map_or_else(hardly_answers, |_| of_gain(way))
}

fn of_gain(way: &VariantResult) -> String {
    way.time_saved_ratio.map_or_else(
        || "–".to_owned(),
        |gain| format!("{}{}", format_confidence_interval(gain), in_time(way)),
    )
}

fn in_time(way: &VariantResult) -> String {
    way.time_saved_seconds.map_or_else(String::new, |gain| {
        format!(", {} (mean of the middle half)", format_seconds(gain.estimate.abs()))
    })
}

/// Why a variant whose middle is the same is not called equal; none if its middle is undecided.
pub(super) fn why_not_equal(answer: &IsolateReport, way: &VariantResult) -> Option<String> {
    way.decided_after_seconds?;
    if way.stats.responses == 0 {
        return Some(format!(
            "almost no response is good with this variant, and almost none with {}",
            answer.reference.name
        ));
    }
    let seems = || {
        "; but its 99th percentile or its share of failures seems to differ: to be sure, run again with --until-p99 or at a higher rate"
            .to_owned()
    };
    Some(of_gain(way) + &describe_suspicious_tail(answer, way).unwrap_or_else(seems))
}

fn undecided(way: &VariantResult) -> String {
    let more = describe_time_to_decide(way);
    way.time_saved_ratio
        .map_or_else(|| more.clone(), |gain| format!("{}; {more}", format_confidence_interval(gain)))
}

/// How much longer an undecided variant needs until it is decided.
pub(super) fn describe_time_to_decide(way: &VariantResult) -> String {
    way.estimated_remaining_seconds.map_or_else(
        || "too few time buckets for a forecast".to_owned(),
        |more| format!("needs about {} more time at this rate", format_wait(more)),
    )
}

pub(super) fn describe_invalid(way: &VariantResult) -> String {
    format!(
        "the generator, not the target, was the limit in {} of the time buckets",
        format_share(way.generator_limited_ratio.unwrap_or(1.0))
    )
}

/// What is said of 99th percentiles, as far as anything is.
fn tails(out: &mut String, answer: &IsolateReport) -> fmt::Result {
    writeln!(out, "\n99th percentile")?;
    if answer.config.predicted_p99_duration_seconds.is_none() {
        return writeln!(out, "  too few responses per time bucket: use a higher rate or fewer variants");
    }
    let widest = width(answer.variants.iter().map(|way| &way.stats));
    for VariantResult { stats: way, p99: tail, .. } in &answer.variants {
        let gain = tail.time_saved_ratio.map_or_else(|| "–".to_owned(), format_confidence_interval);
        let said = match tail.verdict {
            VariantVerdict::Faster | VariantVerdict::Slower => of_tail(tail),
            VariantVerdict::Equal => format!("equal within {}: {gain}", format_share(TAIL_MARGIN)),
            VariantVerdict::Invalid => {
                format!(
                    "invalid: {gain}; the generator, not the target, was the limit in too many time buckets"
                )
            }
            _ => match tail.estimated_remaining_seconds {
                Some(more) => {
                    format!("undecided: {gain}; needs about {} more time with --until-p99", format_wait(more))
                }
                None => format!("undecided: {gain}"),
            },
        };
        writeln!(out, "  {:widest$}  {said}", way.name)?;
    }
    Ok(())
}

/// The index of the column `time saved` in [`TABLE_COLUMNS`].
pub(super) const TIME_SAVED_COLUMN_INDEX: usize = 6;

/// The headings of the table of all variants.
pub(super) const TABLE_COLUMNS: [&str; 10] = [
    "variant",
    "responses",
    "failed",
    "p50",
    "p90",
    "p99",
    "time saved",
    "time buckets",
    "p (difference)",
    "p (equivalence)",
];

/// Its rows.
pub(super) fn table_rows(answer: &IsolateReport) -> Vec<[String; 10]> {
    let none = || "–".to_owned();
    let time = |way: &VariantStats, percent: f64| way.percentile(percent).map_or_else(none, format_seconds);
    let of = |way: &VariantStats, [gain, cells, differs, equal]: [String; 4]| {
        let [p50, p90, p99] = [50.0, 90.0, 99.0].map(|percent| time(way, percent));
        let (answers, failed) = (way.responses.to_string(), (way.failed + way.no_response).to_string());
        [way.name.clone(), answers, failed, p50, p90, p99, gain, cells, differs, equal]
    };
    let reference = of(&answer.reference, [none(), none(), none(), none()]);
    let variants = answer.variants.iter().map(|variant| {
        let gain = variant.time_saved_ratio.map_or_else(none, format_confidence_interval);
        let told = |p: Option<f64>| p.map_or_else(none, |p| format!("{p:.4}"));
        let [differs, equal] = [variant.p_difference, variant.p_equivalence].map(told);
        of(&variant.stats, [gain, variant.time_buckets.to_string(), differs, equal])
    });
    std::iter::once(reference).chain(variants).collect()
}

/// In so many columns: what has no room beside the names follows below.
fn table(out: &mut String, answer: &IsolateReport, columns: usize) -> fmt::Result {
    let mut rows = vec![TABLE_COLUMNS.map(str::to_owned)];
    rows.extend(table_rows(answer));
    for row in &mut rows {
        row[0] = truncate_line(&row[0], columns / 3);
    }
    let wide = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..TABLE_COLUMNS.len()).map(wide).collect();
    for group in groups(&widths, columns) {
        writeln!(out)?;
        for row in &rows {
            let mut line = format!("{:wide$}", row[0], wide = widths[0]);
            for &at in &group {
                write!(line, "  {:>wide$}", row[at], wide = widths[at])?;
            }
            writeln!(out, "{}", truncate_line(&line, columns))?;
        }
    }
    Ok(())
}

/// Which columns of the table stand beside each other, names aside.
fn groups(widths: &[usize], columns: usize) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut used = usize::MAX;
    for (at, width) in widths.iter().enumerate().skip(1) {
        used = used.saturating_add(width + 2);
        if used > columns || groups.is_empty() {
            groups.push(Vec::new());
            used = widths[0] + width + 2;
        }
        if let Some(group) = groups.last_mut() {
            group.push(at);
        }
    }
    groups
}

fn width<'a>(ways: impl Iterator<Item = &'a VariantStats>) -> usize {
    ways.map(|way| way.name.chars().count()).max().unwrap_or(0)
}

/// From ten times as much on, nobody reads percent.
const MANY: f64 = 10.0;

/// `5.2 % (3.1 to 7.4 %)`, and `125.9 × (120.3 to 131.1 ×)`; the point alone where no interval is known.
pub(super) fn format_confidence_interval(gain: ConfidenceInterval) -> String {
    let (scale, unit) = scale(gain.estimate);
    let point = format!("{:.1} {unit}", scale * gain.estimate);
    if gain.lower.is_none() && gain.upper.is_none() {
        return point;
    }
    let end = |end: Option<f64>| end.map_or_else(|| "?".to_owned(), |end| format!("{:.1}", scale * end));
    format!("{point} ({} to {} {unit})", end(gain.lower), end(gain.upper))
}

fn scale(share: f64) -> (f64, &'static str) {
    if share.abs() < MANY { (100.0, "%") } else { (1.0, "×") }
}

pub(super) fn format_share(share: f64) -> String {
    let (scale, unit) = scale(share);
    let scaled = scale * share;
    let digits = usize::from((scaled - scaled.round()).abs() >= 0.05);
    format!("{scaled:.digits$} {unit}")
}
