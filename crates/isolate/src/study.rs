//! An experiment: it chooses the next segment, evaluates the cells and decides when to end.
//!
//! Interleaved variants and variants in blocks are two groups, each with the reference and its own looks; their segments alternate. A
//! decided variant takes no further part, so the others get its requests. Holm's adjustment counts all variants of both groups, including
//! decided ones.

use std::time::Duration;

use crate::cell::CellStatsByVariant;
use crate::center::LocationEstimate;
use crate::finding::{MeasureResult, MeasureVerdict, VariantFinding};
use crate::holm;
use crate::judge::{self, Differences};
use crate::looks::{InterimLook, NULL_DIFFERENCE, SignificanceLevels, TAIL_MARGIN, null_difference};
use crate::power::Forecast;
use crate::segment::{Segment, SegmentTimes, VariantOrder};

/// The configuration of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct StudyConfig {
    /// The design of each variant, without the reference.
    pub designs: Vec<VariantOrder>,
    /// The total requests per second of all variants.
    pub rate: f64,
    /// The share up to which variants count as equal.
    pub margin: f64,
    /// True to continue until the tail is decided, too.
    pub until_p99: bool,
    /// The time limit of the experiment.
    pub budget: Duration,
    /// The durations of segments, cells and blocks.
    pub times: SegmentTimes,
    /// The seed of the random orders.
    pub seed: u64,
}

impl StudyConfig {
    /// Returns the time until the first look of all variants, without opening connections. There is no verdict before it.
    #[must_use]
    pub fn first_look_time(&self) -> Duration {
        let of = |design: VariantOrder| {
            let members = self.designs.iter().filter(|of| **of == design).count();
            if members == 0 {
                return Duration::ZERO;
            }
            let segment = Segment::new(design, (0..=members).collect(), self.rate, self.times, self.seed);
            let segments = InterimLook::FIRST.cells().div_ceil(segment.cell_count);
            segment.duration().saturating_mul(u32::try_from(segments).unwrap_or(u32::MAX))
        };
        of(VariantOrder::Interleaved).saturating_add(of(VariantOrder::OneVariantPerBlock))
    }

    /// Returns the probable time to find an effect on an average path: for the interleaved variants, or for the blocks if there
    /// are none.
    #[must_use]
    pub fn forecast(&self) -> Forecast {
        let has_interleaved = self.designs.contains(&VariantOrder::Interleaved);
        let design =
            if has_interleaved { VariantOrder::Interleaved } else { VariantOrder::OneVariantPerBlock };
        Forecast::a_priori(design, self.designs.len() + 1, self.rate, self.margin, self.times)
    }
}

/// The reason why an experiment ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StudyEnd {
    /// All variants are decided.
    Decided,
    /// The time is too short for another segment.
    Budget,
    /// The caller stopped the experiment.
    Stopped,
}

/// A group of variants that share their cells.
#[derive(Debug, Clone)]
struct Group {
    design: VariantOrder,
    cells: Vec<CellStatsByVariant>,
    look: InterimLook,
}

/// An experiment in progress.
#[derive(Debug, Clone)]
pub struct Study {
    asked: StudyConfig,
    groups: Vec<Group>,
    findings: Vec<VariantFinding>,
    spent: Duration,
    segments: u64,
    end: Option<StudyEnd>,
}

impl Study {
    /// Creates an experiment that has run no segment.
    #[must_use]
    pub fn new(asked: StudyConfig) -> Self {
        let group = |design| Group { design, cells: Vec::new(), look: InterimLook::FIRST };
        let has = |design: &VariantOrder| asked.designs.contains(design);
        let groups = [VariantOrder::Interleaved, VariantOrder::OneVariantPerBlock]
            .into_iter()
            .filter(has)
            .map(group)
            .collect();
        let findings = vec![VariantFinding::NOTHING; asked.designs.len()];
        Self { asked, groups, findings, spent: Duration::ZERO, segments: 0, end: None }
    }

    /// Returns the next segment; none if the experiment has ended.
    pub fn next_segment(&mut self) -> Option<Segment> {
        let open: Vec<_> = (0..self.groups.len()).filter(|&group| !self.members(group).is_empty()).collect();
        if open.is_empty() {
            self.over(StudyEnd::Decided);
        }
        if self.end.is_some() {
            return None;
        }
        // Groups before their first look go first, because the time limit covers the first looks of all groups.
        let unseen: Vec<_> =
            open.iter().copied().filter(|&group| self.groups[group].look == InterimLook::FIRST).collect();
        let due = if unseen.is_empty() { open } else { unseen };
        let segment = self.segment(due[self.segments as usize % due.len()]);
        if self.spent + segment.duration() > self.asked.budget {
            self.over(StudyEnd::Budget);
            return None;
        }
        Some(segment)
    }

    fn segment(&self, group: usize) -> Segment {
        let members = std::iter::once(0).chain(self.members(group)).collect();
        let seed = self.asked.seed.wrapping_add(self.segments.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Segment::new(self.groups[group].design, members, self.asked.rate, self.asked.times, seed)
    }

    /// Returns the undecided variants of a group, counted from 1.
    fn members(&self, group: usize) -> Vec<usize> {
        let of_group = |at: &usize| self.asked.designs[*at] == self.groups[group].design;
        let open = |at: &usize| self.is_open(*at);
        (0..self.findings.len()).filter(of_group).filter(open).map(|at| at + 1).collect()
    }

    fn is_open(&self, at: usize) -> bool {
        let VariantFinding { middle, tail, .. } = &self.findings[at];
        let invalid = matches!(middle.verdict, MeasureVerdict::Invalid { .. });
        !(middle.verdict.is_final() && (!self.asked.until_p99 || invalid || tail.verdict.is_final()))
    }

    /// Records the cells of a segment and its duration. Incomplete cells must be left out.
    pub fn record_segment(&mut self, segment: &Segment, cells: Vec<CellStatsByVariant>, took: Duration) {
        self.segments += 1;
        self.spent += took;
        let Some(group) = self.groups.iter().position(|group| group.design == segment.design) else { return };
        self.groups[group].cells.extend(cells);
        let Group { cells, look, .. } = &self.groups[group];
        if cells.len() >= look.cells() {
            self.look(group);
            // Several looks that are due at once count as one.
            while self.groups[group].cells.len() >= self.groups[group].look.cells() {
                self.groups[group].look = self.groups[group].look.next();
            }
        }
    }

    /// Stops the experiment.
    pub fn stop(&mut self) {
        self.over(StudyEnd::Stopped);
    }

    /// Returns the reason for the end; none while the experiment runs.
    #[must_use]
    pub fn end_reason(&self) -> Option<StudyEnd> {
        self.end
    }

    /// Returns the duration of all segments.
    #[must_use]
    pub fn spent(&self) -> Duration {
        self.spent
    }

    /// Returns the findings in the order of [`StudyConfig::designs`]. Verdicts are from the last look; intervals use all cells.
    #[must_use]
    pub fn findings(&self) -> Vec<VariantFinding> {
        let mut findings = self.findings.clone();
        for group in 0..self.groups.len() {
            for at in self.of(group) {
                let differences = Differences::of(&self.groups[group].cells, at + 1);
                self.describe(group, &differences, &mut findings[at]);
            }
        }
        findings
    }

    /// Returns the number of decided variants.
    #[must_use]
    pub fn decided_count(&self) -> usize {
        self.findings.iter().filter(|finding| finding.middle.verdict.is_final()).count()
    }

    /// Returns the cells of all groups, in their order within each group.
    pub fn time_bucket_stats(&self) -> impl Iterator<Item = (VariantOrder, &CellStatsByVariant)> {
        self.groups.iter().flat_map(|group| group.cells.iter().map(|cell| (group.design, cell)))
    }

    /// Returns all variants of a group, counted from 0.
    fn of(&self, group: usize) -> impl Iterator<Item = usize> + use<'_> {
        let design = self.groups[group].design;
        (0..self.findings.len()).filter(move |&at| self.asked.designs[at] == design)
    }

    /// Ends the experiment. If the time is over, undecided variants get a last look.
    fn over(&mut self, end: StudyEnd) {
        if self.end.is_some() {
            return;
        }
        if end == StudyEnd::Budget {
            for group in 0..self.groups.len() {
                if self.groups[group].cells.len() >= InterimLook::FIRST.cells() {
                    self.look(group);
                }
            }
        }
        self.judge_validity(|_| true);
        self.end = Some(end);
    }

    /// Sets the verdict "invalid" for variants with too many limited cells, if the predicate holds for them.
    fn judge_validity(&mut self, is_asked: impl Fn(&Differences) -> bool) {
        for group in 0..self.groups.len() {
            for at in self.of(group).collect::<Vec<_>>() {
                let differences = Differences::of(&self.groups[group].cells, at + 1);
                let Some(invalid) = differences.invalid_verdict().filter(|_| is_asked(&differences)) else {
                    continue;
                };
                let VariantFinding { middle, tail, .. } = &mut self.findings[at];
                for measured in [middle, tail].into_iter().filter(|measured| !measured.verdict.is_final()) {
                    measured.verdict = invalid;
                }
            }
        }
    }

    fn look(&mut self, group: usize) {
        let look = self.groups[group].look;
        let cells = &self.groups[group].cells;
        let seen: Vec<_> = (1..=self.findings.len()).map(|variant| Differences::of(cells, variant)).collect();
        let members = self.members(group);
        let is_here: Vec<_> = (1..=seen.len()).map(|variant| members.contains(&variant)).collect();
        self.look_at_middles(look, &seen, &is_here);
        self.look_at_tails(look, &seen, &is_here);
        self.judge_validity(Differences::is_hopeless);
    }

    fn look_at_middles(&mut self, look: InterimLook, seen: &[Differences], is_here: &[bool]) {
        let told: Vec<_> = seen.iter().map(|seen| seen.p_difference(self.asked.margin)).collect();
        let measure = |finding: &VariantFinding| finding.middle;
        let p_difference = self.family(is_here, MeasureVerdict::Differs, measure, |at| told[at].0);
        let p_equivalence = self
            .family(is_here, MeasureVerdict::Equal, measure, |at| seen[at].p_equivalence(self.asked.margin));
        for at in (0..seen.len()).filter(|&at| is_here[at]) {
            let finding = &mut self.findings[at];
            if finding.middle.verdict.is_final() || seen[at].invalid_verdict().is_some() {
                continue;
            }
            decide(&mut finding.middle, look.levels(), (p_difference[at], p_equivalence[at]), self.spent);
            finding.differs_in_failing = finding.middle.verdict == MeasureVerdict::Differs && told[at].1;
        }
    }

    fn look_at_tails(&mut self, look: InterimLook, seen: &[Differences], is_here: &[bool]) {
        let measure = |finding: &VariantFinding| finding.tail;
        let p_difference = |at: usize| judge::p_beyond(&seen[at].tail, NULL_DIFFERENCE.ln_1p());
        let p_difference = self.family(is_here, MeasureVerdict::Differs, measure, p_difference);
        let p_equivalence = |at: usize| judge::p_within(&seen[at].tail, TAIL_MARGIN.ln_1p());
        let p_equivalence = self.family(is_here, MeasureVerdict::Equal, measure, p_equivalence);
        for at in (0..seen.len()).filter(|&at| is_here[at]) {
            let finding = &mut self.findings[at];
            if finding.tail.verdict.is_final() || seen[at].invalid_verdict().is_some() {
                continue;
            }
            decide(&mut finding.tail, look.p99_levels(), (p_difference[at], p_equivalence[at]), self.spent);
        }
    }

    /// Returns the adjusted p-values for one verdict. Variants with this verdict count as 0, and variants without data in this
    /// look count as 1.
    fn family(
        &self,
        is_here: &[bool],
        told: MeasureVerdict,
        measure: impl Fn(&VariantFinding) -> MeasureResult,
        p_value: impl Fn(usize) -> f64,
    ) -> Vec<f64> {
        let of = |at: usize| match measure(&self.findings[at]).verdict {
            verdict if verdict == told => 0.0,
            MeasureVerdict::Undecided { .. } if is_here[at] => p_value(at),
            _ => 1.0,
        };
        holm::adjust(&(0..self.findings.len()).map(of).collect::<Vec<_>>())
    }

    /// Fills in the estimates from all cells, whatever the verdict is.
    fn describe(&self, group: usize, differences: &Differences, finding: &mut VariantFinding) {
        let look = self.groups[group].look;
        let family = self.findings.len();
        let levels = [look.levels(), look.p99_levels()];
        let middle = LocationEstimate::of(&differences.middle, levels[0].difference);
        let tail = LocationEstimate::of(&differences.tail, levels[1].difference);
        finding.failing = differences.failure_difference(look);
        (finding.middle.ratio, finding.middle.cell_count) =
            (middle.map(LocationEstimate::exp), differences.middle.len());
        (finding.tail.ratio, finding.tail.cell_count) =
            (tail.map(LocationEstimate::exp), differences.tail.len());
        let more = |center, cells, levels: SignificanceLevels, bounds| {
            let needed = judge::total_cells_for_verdict(center, cells, (levels, family), bounds)?;
            self.more(group, needed, cells)
        };
        if let MeasureVerdict::Undecided { more: told } = &mut finding.middle.verdict {
            *told = more(
                middle,
                differences.middle.len(),
                levels[0],
                [null_difference(self.asked.margin), self.asked.margin],
            );
        }
        if let MeasureVerdict::Undecided { more: told } = &mut finding.tail.verdict {
            *told = more(tail, differences.tail.len(), levels[1], [NULL_DIFFERENCE, TAIL_MARGIN]);
        }
    }

    /// Returns the time for the missing cells, including the segments of the other group if it is still open.
    fn more(&self, group: usize, needed: f64, cells: usize) -> Option<Duration> {
        let lacking = (needed - cells as f64).max(1.0);
        let open = (0..self.groups.len()).filter(|&other| other == group || !self.members(other).is_empty());
        let each = judge::seconds_of_cell(&self.segment(group));
        Duration::try_from_secs_f64(lacking * each * open.count() as f64).ok()
    }
}

fn decide(
    measured: &mut MeasureResult,
    levels: SignificanceLevels,
    (difference, equality): (f64, f64),
    spent: Duration,
) {
    (measured.p_difference, measured.p_equivalence) = (difference, equality);
    if difference <= levels.difference {
        measured.verdict = MeasureVerdict::Differs;
    } else if equality <= levels.equality {
        measured.verdict = MeasureVerdict::Equal;
    }
    measured.time_to_decision = measured.verdict.is_final().then_some(spent);
}
