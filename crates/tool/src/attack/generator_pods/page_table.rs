//! Pods as a page draws them: bounded, whatever there are of them.

use seawall_load::clock::{Nanos, SECOND};
use seawall_load::interval::IntervalStats;

use super::text::describe_problem;
use super::{AttackPodStatus, MeasuredOffset, PodRunState, PodTracker};
use crate::report::chart::ChartPoints;
use crate::report::pod_table::{PodTable, PodTableRow};
use crate::report::series::MAX_POINTS;

/// Pods of which a page has a row: more are no longer read, and those with problems come first.
const ROWS: usize = 300;

/// Pods of which a page draws a line each: more are not told apart.
const TRACKS: usize = 8;

/// Stretches that a page shades. More become one with their neighbour.
const GAPS: usize = 64;

/// Longest text of a pod, in characters.
const TEXT: usize = 300;

/// Pods that are named where something is wrong.
const NAMED: usize = 3;

impl PodTracker {
    /// Returns the table of the page at this time of the run, without the warm-up; `None` if there are no pods.
    pub(crate) fn to_table(&self, now: Nanos, warm_up: Nanos) -> Option<PodTable> {
        let known = self.lock();
        if known.rows.is_empty() {
            return None;
        }
        let mut order: Vec<&AttackPodStatus> = known.rows.iter().collect();
        order.sort_by_key(|row| row.urgency_rank(now));
        let seconds = |at: Nanos| at.saturating_sub(warm_up) as f64 / SECOND as f64;
        let gaps = known.gaps.iter().filter(|gap| gap.1 > warm_up);
        Some(PodTable {
            count: order.len(),
            alarms: alarms(&known.rows, now),
            rows: order.into_iter().take(ROWS).map(|row| line(row, now)).collect(),
            gaps: gaps.map(|(from, to)| (seconds(*from), seconds(*to))).collect(),
            completion_rates: known
                .rows
                .iter()
                .zip(&known.tracks.0)
                .map(|(row, track)| (truncated(&row.name), track.points(warm_up)))
                .collect(),
        })
    }
}

/// Returns the alarms that stand above the table.
fn alarms(rows: &[AttackPodStatus], now: Nanos) -> Vec<String> {
    let alarm = |state, what: &str| {
        let with: Vec<_> = rows.iter().filter(|row| row.state(now) == state).collect();
        let named = with.iter().take(NAMED).map(|row| match &row.lost_reason {
            Some(reason) => format!("{}: {}", truncated(&row.name), truncated(reason)),
            None => truncated(&row.name),
        });
        let named = named.collect::<Vec<_>>().join("; ");
        let more = with.len().saturating_sub(NAMED);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        let is = if with.len() == 1 { "is" } else { "are" };
        (!with.is_empty())
            .then(|| format!("{} of {} pods {is} {what}: {named}{more}", with.len(), rows.len()))
    };
    let lost = alarm(PodRunState::Lost, "lost, and a share of the load is missing");
    let late = alarm(PodRunState::Late, "late, and a share of the load is unknown");
    lost.into_iter().chain(late).collect()
}

fn line(row: &AttackPodStatus, now: Nanos) -> PodTableRow {
    let known = |value: Nanos| (row.completed > 0).then_some(value);
    let pair = |MeasuredOffset { offset, max_error: error }| (offset, error);
    PodTableRow {
        index: row.index,
        name: truncated(&row.name),
        state: match row.state(now) {
            PodRunState::Lost => "lost",
            PodRunState::Late => "late",
            PodRunState::Running => "running",
            PodRunState::Finished => "finished",
        },
        sent: row.sent,
        good: row.good,
        p99: known(row.response_time_p99),
        lag: known(row.generator_lag_p99),
        in_flight: row.in_flight,
        clock: row.clock_offset.map(pair),
        began: row.start_delay.map(pair),
        against: describe_problem(row, now).map(|text| truncated(&text)).unwrap_or_default(),
    }
}

/// Names and reasons come from elsewhere, and may be of any length.
fn truncated(text: &str) -> String {
    match text.char_indices().nth(TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Adds a stretch that follows the others, or overlaps the last.
pub(super) fn merge_gap(gaps: &mut Vec<(Nanos, Nanos)>, (from, to): (Nanos, Nanos)) {
    match gaps.last_mut() {
        Some(last) if from <= last.1 => last.1 = last.1.max(to),
        _ => gaps.push((from, to)),
    }
    if gaps.len() > GAPS {
        let nearest = (1..gaps.len()).min_by_key(|&at| gaps[at].0 - gaps[at - 1].1).unwrap_or(1);
        let (_, to) = gaps.remove(nearest);
        gaps[nearest - 1].1 = to;
    }
}

/// The completed requests of each pod over time, if there are few pods.
#[derive(Debug, Default)]
pub(super) struct PodCompletions(Vec<CompletionTrack>);

#[derive(Debug, Default)]
struct CompletionTrack {
    /// The start and the end of each cell, and the number of requests that ended in it.
    cells: Vec<(Nanos, Nanos, u64)>,
    /// Intervals in each cell but the last.
    intervals_per_cell: usize,
    /// Intervals in the last cell.
    last_cell_len: usize,
}

impl PodCompletions {
    /// Makes tracks for this many pods; none if there are too many, or only one.
    pub(super) fn new(pods: usize) -> Self {
        let is_drawn = (2..=TRACKS).contains(&pods);
        Self(
            (0..if is_drawn { pods } else { 0 })
                .map(|_| CompletionTrack {
                    intervals_per_cell: 1,
                    last_cell_len: 1,
                    ..CompletionTrack::default()
                })
                .collect(),
        )
    }

    /// A pod's next interval.
    pub(super) fn add_interval(&mut self, pod: usize, IntervalStats { from, to, stats }: &IntervalStats) {
        if let Some(track) = self.0.get_mut(pod) {
            track.add(*from, *to, stats.ended_after_send_count());
        }
    }
}

impl CompletionTrack {
    fn add(&mut self, from: Nanos, to: Nanos, ended: u64) {
        if let Some(last) = self.cells.last_mut().filter(|_| self.last_cell_len < self.intervals_per_cell) {
            (last.1, last.2) = (to, last.2 + ended);
            self.last_cell_len += 1;
            return;
        }
        if self.cells.len() == MAX_POINTS {
            self.intervals_per_cell *= 2;
            self.cells = self
                .cells
                .chunks(2)
                .map(|pair| (pair[0].0, pair[pair.len() - 1].1, pair.iter().map(|cell| cell.2).sum()))
                .collect();
        }
        self.last_cell_len = 1;
        self.cells.push((from, to, ended));
    }

    fn points(&self, warm_up: Nanos) -> ChartPoints {
        let usual = self.cells.iter().map(|(from, to, _)| to - from).max().unwrap_or(0);
        let counted = self.cells.iter().filter(|(_, to, _)| *to > warm_up);
        counted
            .map(|&(from, to, ended)| {
                let at = from.saturating_sub(warm_up) as f64 / SECOND as f64;
                // The last may be a moment, of which there is no rate.
                let is_whole = usual > 0 && to - from >= usual.div_ceil(2);
                (at, is_whole.then(|| ended as f64 * SECOND as f64 / (to - from) as f64))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_pods_are_a_page_that_can_be_read_with_the_lost_ones_first() {
        let row = |index| AttackPodStatus {
            index,
            name: "n".repeat(5000),
            reported_until: 9 * SECOND,
            ..AttackPodStatus::default()
        };
        let mut rows: Vec<_> = (0..1000).map(row).collect();
        rows[700].lost_reason = Some("killed".repeat(1000));
        rows[900].reported_until = SECOND;
        let table = PodTracker::from_rows(rows).to_table(10 * SECOND, 0).unwrap();
        assert_eq!((table.count, table.rows.len(), table.completion_rates.len()), (1000, ROWS, 0));
        let first: Vec<_> = table.rows.iter().take(3).map(|row| (row.index, row.state)).collect();
        assert_eq!(first, [(700, "lost"), (900, "late"), (0, "running")]);
        assert_eq!(table.alarms.len(), 2);
        assert!(table.alarms[0].starts_with("1 of 1000 pods is lost"), "{}", table.alarms[0]);
        assert!(serde_json::to_string(&table).unwrap().len() < 400_000);
    }

    #[test]
    fn stretches_without_a_share_are_few_whatever_they_were() {
        let mut gaps = Vec::new();
        merge_gap(&mut gaps, (1, 2));
        merge_gap(&mut gaps, (1, 2));
        merge_gap(&mut gaps, (2, 3));
        assert_eq!(gaps, [(1, 3)]);
        (1..500).for_each(|at| merge_gap(&mut gaps, (at * 10, at * 10 + 1)));
        assert_eq!((gaps.len(), gaps[0].0, gaps[GAPS - 1].1), (GAPS, 1, 4991));
    }

    #[test]
    fn a_line_of_a_pod_has_as_many_points_as_can_be_told_apart_and_loses_no_request() {
        let mut track =
            CompletionTrack { intervals_per_cell: 1, last_cell_len: 1, ..CompletionTrack::default() };
        (0..1000).for_each(|at| track.add(at * SECOND, (at + 1) * SECOND, 7));
        assert!(track.cells.len() <= MAX_POINTS);
        assert_eq!(track.cells.iter().map(|cell| cell.2).sum::<u64>(), 7000);
        assert!(track.points(0).iter().all(|(_, rate)| rate.is_none_or(|rate| (rate - 7.0).abs() < 1e-9)));
    }

    #[test]
    fn a_pod_is_late_when_its_next_interval_is() {
        let row = AttackPodStatus { reported_until: 3 * SECOND, ..AttackPodStatus::default() };
        let at = |now| row.state(now);
        assert_eq!((at(4 * SECOND), at(5 * SECOND)), (PodRunState::Running, PodRunState::Late));
        assert_eq!(
            AttackPodStatus { is_done: true, ..row.clone() }.state(99 * SECOND),
            PodRunState::Finished
        );
        assert_eq!(AttackPodStatus { lost_reason: Some("why".into()), ..row }.state(0), PodRunState::Lost);
    }
}
