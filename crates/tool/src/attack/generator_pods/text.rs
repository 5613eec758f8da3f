//! Pods as text: the table of the summary, a part of a line, the lines of the view.

use seawall_load::clock::Nanos;

use super::{AttackPodStatus, MeasuredOffset, PodRunState, PodTracker};
use crate::brief_time::format_brief_time;
use crate::go_format::align_columns;

/// Pods that a line names.
const NAMED: usize = 3;

impl PodTracker {
    /// Says how many pods report at this time of the run, and names those that do not; `None` if there are no pods.
    pub(crate) fn reporting_text(&self, now: Nanos) -> Option<String> {
        let known = self.lock();
        let with = |state| known.rows.iter().filter(move |row| row.state(now) == state);
        let all = known.rows.len();
        let told = all - with(PodRunState::Lost).count() - with(PodRunState::Late).count();
        let named = [(PodRunState::Lost, "lost"), (PodRunState::Late, "late")].map(|(state, word)| {
            let named: Vec<_> = with(state).take(NAMED).map(|row| row.name.as_str()).collect();
            let more = if with(state).count() > NAMED { " and more" } else { "" };
            (!named.is_empty()).then(|| format!("{word}: {}{more}", named.join(", ")))
        });
        let named = named.into_iter().flatten().collect::<Vec<_>>().join("; ");
        let named = if named.is_empty() { named } else { format!(" ({named})") };
        (all > 0).then(|| format!("reports from {told} of {all} pods{named}"))
    }

    /// The rows that matter most at this time of the run, at most so many.
    pub(crate) fn most_urgent_pods(&self, now: Nanos, most: usize) -> Vec<AttackPodStatus> {
        let known = self.lock();
        let mut order: Vec<&AttackPodStatus> = known.rows.iter().collect();
        order.sort_by_key(|row| row.urgency_rank(now));
        order.into_iter().take(most).cloned().collect()
    }

    /// Returns the number of pods, and the number of those with a problem.
    pub(crate) fn pod_and_problem_counts(&self, now: Nanos) -> (usize, usize) {
        let known = self.lock();
        (known.rows.len(), known.rows.iter().filter(|row| describe_problem(row, now).is_some()).count())
    }
}

impl AttackPodStatus {
    /// Problems first, then in the order of the pods.
    pub(super) fn urgency_rank(&self, now: Nanos) -> (bool, PodRunState, usize) {
        let state = self.state(now);
        let state = if state == PodRunState::Finished { PodRunState::Running } else { state };
        (describe_problem(self, now).is_none(), state, self.index)
    }
}

/// Describes the problem of a pod, if it has one. Of the warnings during the run, only the first is shown.
pub(crate) fn describe_problem(row: &AttackPodStatus, now: Nanos) -> Option<String> {
    let lost = row.lost_reason.as_ref().map(|reason| format!("LOST: {reason}"));
    let is_late = row.state(now) == PodRunState::Late;
    let late = is_late.then(|| {
        format!("late: no report for {}", format_brief_time(now.saturating_sub(row.reported_until)))
    });
    let is_missed = row.missing_time > 0 && row.lost_reason.is_none();
    let missed = is_missed.then(|| format!("sent no report for {}", format_brief_time(row.missing_time)));
    let found = row.findings.iter().map(|found| found.measured.clone());
    let doubt =
        row.warnings.first().filter(|_| row.findings.is_empty()).map(|doubt| match row.warnings.len() {
            1 => doubt.clone(),
            _ => format!("{doubt}, and more"),
        });
    let all: Vec<_> = lost.into_iter().chain(late).chain(missed).chain(found).chain(doubt).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// A line per pod, under one head; nothing of a load without pods.
pub(crate) fn format_table(rows: &[AttackPodStatus]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut out = "Pods\tsent\tgood\t99 %\tgenerator lag 99 %\tclock\tbegan\t\n".to_owned();
    for row in rows {
        let told = match (&row.lost_reason, row.missing_time) {
            (Some(reason), _) => format!("LOST: {reason}"),
            (None, 0) => String::new(),
            (None, missing) => format!("LATE: no report for {}", format_brief_time(missing)),
        };
        let figures = format!(
            "{}\t{}\t{}\t{}",
            row.sent,
            row.good,
            format_brief_time(row.response_time_p99),
            format_brief_time(row.generator_lag_p99)
        );
        let cells =
            [row.name.clone(), figures, offset_text(row.clock_offset), offset_text(row.start_delay), told];
        out.push_str(&cells.join("\t"));
        out.push('\n');
    }
    align_columns(&out)
}

fn offset_text(value: Option<MeasuredOffset>) -> String {
    match value {
        Some(MeasuredOffset { offset, max_error: error }) => {
            let sign = if offset < 0 { "-" } else { "+" };
            format!("{sign}{} ± {}", format_brief_time(offset.unsigned_abs()), format_brief_time(error))
        }
        None => "unknown".to_owned(),
    }
}
