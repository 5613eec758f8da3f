//! An attack whose senders are pods: begun at one instant, steered by the same hand, its intervals those of all, judged with what each says of
//! itself.
//!
//! A pod whose share is missing is never silently less load: it is named when that is seen, the interval without it is told to be so, and
//! the judgement says what was not sent.

pub(super) mod records;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::bail;
use seawall_fleet::fleet::{Begun, Fleet, NOTICE, News, What};
use seawall_fleet::gather::{Gather, Gathered};
use seawall_lab::carry::Carried;
use seawall_lab::judgement::Judgement;
use seawall_lab::objective::Objectives;
use seawall_lab::remote::load::Part;
use seawall_lab::selfcheck;
use seawall_lab::verdict::{Reason, Verdict, worst};
use seawall_load::clock::{Nanos, nanos};
use seawall_load::control::{Change, Control, Early, Elsewhere};
use seawall_load::engine::{Load, Outcome};
use seawall_load::interval::Interval;
use seawall_load::stats::Stats;
use seawall_load::summary::Summary;

use self::records::Records;
use super::pods::{Pods, Row, Seen};
use super::running::{self, Finished, Running};
use crate::on::crew::Crew;
use crate::on::{Ended, WhenPodFails};
use crate::times::brief;

/// Longest wait for news before it is looked whether anything is to be told.
const PATIENCE: Duration = Duration::from_millis(50);

/// How much later than it could a load begins that begins once: a pod that was held up for a moment has a part in it all the same.
const CALM: Nanos = 1_000_000_000;

/// How long after the instant that was agreed on a pod has begun, or never does.
const BEGUN: Nanos = 10_000_000_000;

/// How long reasons are waited for when all has come to its end.
const REASONS: Nanos = 4_000_000_000;

/// A share of the load that may be missing without the rest saying nothing of the target.
const LITTLE: f64 = 0.01;

/// Pods whose starts are further apart did not begin together.
const APART: Nanos = 5_000_000;

/// Pods of an attack.
pub(super) type Senders = Fleet<(), Interval, Part>;

/// An attack of many pods under way.
pub(crate) struct Many {
    crew: Senders,
    run: Elsewhere,
    changes: Receiver<Change>,
    begun: Begun,
    gather: Gather,
    pods: Pods,
    /// Of pods that tell them.
    records: Option<Records>,
    when_pod_fails: WhenPodFails,
    warm_up: Nanos,
    /// When nothing more is due, and after how many hits.
    end: Option<Nanos>,
    hits: Option<u64>,
    /// Pods that have told all, and ended before their load did.
    cut: BTreeSet<usize>,
    /// Those of them of which it is not known why.
    unnamed: BTreeSet<usize>,
    /// From where to where somebody's share was missing, by pod.
    missing: BTreeMap<usize, Nanos>,
    /// Ends the pods, and what they were made of, when it is dropped.
    _ended: Ended,
}

impl Many {
    /// Has pods that are ready begin.
    pub(crate) fn begin(
        crew: Crew<(), Interval, Part>,
        load: &Load,
        pods: Pods,
        records: Option<Records>,
        fails: WhenPodFails,
    ) -> anyhow::Result<Self> {
        let Crew { fleet: mut crew, ended, .. } = crew;
        let at = begins(&crew, load.start_at)?;
        let begun = crew.begin_at(&(), at);
        let (sender, changes) = channel();
        let run = Elsewhere::new(load, crew.clock(), begun.at, nanos(NOTICE), sender);
        let end = load.ends();
        let hits = Some(load.until.hits).filter(|&hits| hits != u64::MAX);
        pods.begin(&crew);
        Ok(Self {
            gather: Gather::new(crew.size()),
            crew,
            run,
            changes,
            begun,
            pods,
            records,
            when_pod_fails: fails,
            warm_up: nanos(load.warm_up),
            end,
            hits,
            cut: BTreeSet::new(),
            unnamed: BTreeSet::new(),
            missing: BTreeMap::new(),
            _ended: ended,
        })
    }

    /// The time of the run.
    fn now(&self) -> Nanos {
        self.crew.now().saturating_sub(self.begun.at)
    }

    fn forward(&self) {
        for change in self.changes.try_iter() {
            match change {
                Change::Rate(rate, from) => self.crew.steer(&format!("rate {}", rate.exact()), from),
                Change::Clients(clients) => self.crew.steer(&format!("concurrency {clients}"), self.now()),
                Change::Pause(from) => self.crew.steer("pause", from),
                Change::Resume(from) => self.crew.steer("resume", from),
                Change::Drain | Change::Abort => self.crew.stop(),
            }
        }
    }

    /// True if there is something that somebody should know at once.
    fn learn(&mut self, News { pod, what, .. }: News<Interval, Part>) -> bool {
        let trial = self.begun.trial;
        match what {
            What::Begun { trial: of, at, within } if of == trial => {
                let late = at.saturating_sub(self.begun.unix_ns);
                self.pods.note(pod, Seen::Began { late, within })
            }
            What::Part { trial: of, part, doubts } if of == trial => self.measured(pod, &part, doubts),
            What::Done { trial: of, result } if of == trial => self.done(pod, result),
            What::Gone(why) | What::Failed(why) => self.lost(pod, why),
            What::Away(why) => self.pods.note(pod, Seen::Away(why)),
            What::Records { trial: of, chunk } if of == trial => {
                if let Some(records) = &mut self.records {
                    records.add(pod, &chunk);
                }
                false
            }
            What::Records { .. }
            | What::Ready
            | What::Begun { .. }
            | What::Part { .. }
            | What::Done { .. } => false,
        }
    }

    fn measured(&mut self, pod: usize, part: &Interval, doubts: Vec<String>) -> bool {
        match self.gather.add(pod, part) {
            Ok(()) => self.pods.note(pod, Seen::Measured { interval: part, doubts }),
            Err(gap) => self.lost(pod, format!("what it tells has a hole: {gap}")),
        }
    }

    /// A pod has come to its end: that of its schedule, or one that it was told of, or one that somebody else has made. An evicted one tells
    /// all that it has measured, and its share is missing from then on.
    fn done(&mut self, pod: usize, part: Part) -> bool {
        let early = part.early.filter(|_| self.run.ended().is_none());
        let at = self.now();
        if early.is_none() {
            self.gather.over(pod);
        }
        let is_news = self.pods.note(pod, Seen::Done(Box::new(part)));
        if early.is_none() {
            return is_news;
        }
        self.cut.insert(pod);
        self.unnamed.insert(pod);
        self.gone(pod, "ended before its load did".into(), at)
    }

    /// A pod will tell nothing more. One that has told all of its run is of no further interest.
    fn lost(&mut self, pod: usize, why: String) -> bool {
        if self.pods.is_done(pod) && !self.cut.contains(&pod) {
            return false;
        }
        self.unnamed.remove(&pod);
        let at = self.now();
        self.gone(pod, why, at)
    }

    fn gone(&mut self, pod: usize, why: String, at: Nanos) -> bool {
        self.gather.gone(pod);
        if self.when_pod_fails == WhenPodFails::End {
            self.run.steer().drain();
        }
        self.pods.note(pod, Seen::Gone { why, at })
    }

    /// Pods that have not begun long after they were to have no part in it any more.
    fn miss(&mut self) {
        for row in self.pods.rows().iter().filter(|row| row.began.is_none() && row.gone.is_none()) {
            self.lost(row.index, "it did not begin when it was to".into());
        }
    }

    fn told(&mut self, gathered: &Gathered) {
        let Interval { from, to, stats } = &gathered.interval;
        for &pod in &gathered.missing {
            *self.missing.entry(pod).or_default() += to - from;
            self.pods.note(pod, Seen::Missing { from: *from, to: *to });
        }
        let total = self.gather.so_far();
        let (done, good) = (total.done, total.good());
        let in_flight = usize::try_from(stats.in_flight_peak).unwrap_or(usize::MAX);
        let opened = usize::try_from(total.connections).unwrap_or(usize::MAX);
        self.run.publish(in_flight, opened, done, done.saturating_sub(good));
    }

    /// Hits that the whole schedule made due, of which any were counted; none in a closed loop.
    fn scheduled(&self) -> Option<u64> {
        let control = self.run.steer();
        let due = |at| control.due_before(at, self.end, self.hits);
        let all = due(self.end.unwrap_or_else(|| self.gather.told()))?;
        Some(all.saturating_sub(due(self.warm_up)?))
    }

    fn outcome(&self) -> Outcome {
        let parts: Vec<Part> = self.pods.parts().collect();
        let is_whole = parts.len() == self.crew.size();
        let total = if is_whole { sum(&parts) } else { self.gather.total() };
        let most = |of: fn(&Part) -> Nanos| parts.iter().map(of).max();
        let is_short = self.pods.rows().iter().any(|row| row.gone.is_some());
        let counted = self.planned().saturating_sub(self.warm_up);
        let scheduled = parts.iter().map(|part| part.scheduled).sum::<Option<u64>>();
        let early = self.run.ended().map(|(_, why)| why);
        Outcome {
            scheduled: if is_whole && self.cut.is_empty() { scheduled } else { self.scheduled() },
            began_unix_ns: self.begun.unix_ns,
            scheduled_for: most(|part| part.scheduled_for).filter(|_| !is_short).unwrap_or(counted),
            elapsed: most(|part| part.elapsed).unwrap_or(0).max(if is_short { counted } else { 0 }),
            threads: parts.iter().map(|part| part.threads).sum::<usize>().max(1),
            written: Ok(parts.iter().map(|part| part.records).sum()),
            early,
            ..Outcome::of(total, counted)
        }
    }

    /// Until when requests were to be sent, in the time of the run: to the plan's end, or until somebody ended it.
    fn planned(&self) -> Nanos {
        let ended = self.run.ended().map(|(at, _)| at);
        let until = [ended, self.end].into_iter().flatten().min();
        until.unwrap_or_else(|| self.gather.told()).max(1)
    }

    /// For how much of that a pod's share is missing.
    fn lacks(&self, row: &Row) -> Nanos {
        let planned = self.planned();
        match row.gone {
            Some(_) => planned.saturating_sub(row.to),
            None => self.missing.get(&row.index).copied().unwrap_or(0).min(planned),
        }
    }

    /// The same as a share of the whole load.
    fn share(&self, lacks: Nanos) -> f64 {
        lacks as f64 / self.planned() as f64 / self.crew.size() as f64
    }

    /// What speaks against this load: of the whole, and of each pod.
    fn reasons(&self, outcome: &Outcome) -> Vec<Reason> {
        let rows = self.pods.rows();
        let whole = selfcheck::of_run(outcome).into_iter().chain(self.short(&rows));
        whole.chain(rows.iter().flat_map(|row| self.against(row))).collect()
    }

    /// What all pods together did not send, or did not tell in time. Of hundreds of pods none is much by itself.
    fn short(&self, rows: &[Row]) -> Option<Reason> {
        let lacking: Vec<Nanos> = rows.iter().map(|row| self.lacks(row)).collect();
        let is_lost = rows.iter().any(|row| row.gone.is_some());
        let share: f64 = lacking.iter().map(|lacks| self.share(*lacks)).sum();
        let pods = rows.iter().zip(&lacking).filter(|(row, lacks)| **lacks > 0 || row.gone.is_some()).count();
        let ends = is_lost && self.when_pod_fails == WhenPodFails::End;
        let verdict = if share > LITTLE || ends { Verdict::GeneratorLimited } else { Verdict::Degraded };
        let text = format!(
            "{:.1} % of the load is missing: {pods} of {} pods were gone or late",
            100.0 * share,
            rows.len()
        );
        (pods > 0).then(|| Reason::new("pods", verdict, text))
    }

    fn against(&self, row: &Row) -> Vec<Reason> {
        let mut reasons: Vec<Reason> = row
            .findings
            .iter()
            .map(|found| Reason { measured: format!("{}: {}", row.name, found.measured), ..found.clone() })
            .collect();
        let missing = self.lacks(row);
        let share = self.share(missing);
        let verdict = if share > LITTLE { Verdict::GeneratorLimited } else { Verdict::Degraded };
        let lacks = format!("{:.1} % of the load", 100.0 * share);
        match &row.gone {
            Some(gone) => {
                let text = format!("{}: {gone}; {lacks} is missing", row.name);
                reasons.push(Reason::new("pod-gone", verdict, text));
            }
            None if missing > 0 => {
                let text = format!("{}: told nothing in time for {}, {lacks}", row.name, brief(missing));
                reasons.push(Reason::new("pod-late", verdict, text));
            }
            None => {}
        }
        if let Some((late, within)) = row.began.filter(|(late, within)| late.unsigned_abs() > APART + within)
        {
            let side = if late > 0 { "after" } else { "before" };
            let text = format!(
                "{}: began {} {side} the instant that was agreed on, give or take {}",
                row.name,
                brief(late.unsigned_abs()),
                brief(within)
            );
            reasons.push(Reason::new("pod-start", Verdict::Degraded, text));
        }
        reasons
    }
}

/// When the run is to begin, by the wire's clock: at that instant, in Unix nanoseconds, or as soon as pods can.
fn begins(crew: &Senders, start_at: Option<i64>) -> anyhow::Result<Nanos> {
    let soonest = crew.soonest();
    let Some(at) = start_at else { return Ok(soonest.saturating_add(CALM)) };
    let before = crew.clock().unix_ns(soonest);
    match u64::try_from(at.saturating_sub(before)) {
        Ok(rest) => Ok(soonest.saturating_add(rest)),
        Err(_) => bail!(
            "--start-at: the pods could be ready {:.3?} after that instant at the earliest",
            Duration::from_nanos(before.abs_diff(at))
        ),
    }
}

fn sum(parts: &[Part]) -> Stats {
    let mut total = Stats::default();
    parts.iter().for_each(|part| total.beside(&part.total.stats));
    total
}

impl Running for Many {
    fn steer(&self) -> Control {
        self.run.steer()
    }

    fn began_unix_ns(&self) -> i64 {
        self.begun.unix_ns
    }

    fn pods(&self) -> Pods {
        self.pods.clone()
    }

    fn watch(&mut self, each: &mut dyn FnMut(running::News<'_>)) {
        let (mut looked, mut has_missed) = (0, false);
        while !self.gather.is_over() {
            self.forward();
            let news = self.crew.next(PATIENCE).is_some_and(|news| self.learn(news));
            let now = self.now();
            // Of a thousand pods each line is news, and being late is no matter of milliseconds.
            let is_time = now.saturating_sub(looked) >= nanos(PATIENCE);
            if is_time {
                looked = now;
            }
            if now > BEGUN && !std::mem::replace(&mut has_missed, true) {
                self.miss();
            }
            if news | (is_time && self.pods.look(now)) {
                each(running::News::Pods);
            }
            while let Some(gathered) = self.gather.next(self.now()) {
                self.told(&gathered);
                each(running::News::Measured(&gathered.interval));
            }
        }
        self.run.over();
        self.crew.leave();
        // Why somebody else had a pod end is known a moment after its last words.
        let by = self.now().saturating_add(REASONS);
        while !self.unnamed.is_empty() && self.now() < by {
            let news = self.crew.next(PATIENCE);
            news.into_iter().for_each(|news| _ = self.learn(news));
        }
    }

    fn finish(mut self: Box<Self>, objectives: Option<&Objectives>) -> Finished {
        let mut outcome = self.outcome();
        let mut mistakes: Vec<_> = self.pods.rows().iter().flat_map(Row::mistakes).collect();
        if let Some(records) = self.records.take() {
            let gone: BTreeSet<_> =
                self.pods.rows().iter().filter(|row| row.gone.is_some()).map(|row| row.index).collect();
            let (written, missing) = records.write(|pod| self.crew.name(pod).to_owned(), &gone);
            outcome.written = written;
            mistakes.extend(missing);
        }
        let summary = Summary::new(&outcome);
        let reasons = self.reasons(&outcome);
        let missed = objectives.map(|objectives| objectives.missed(&summary)).unwrap_or_default();
        let judgement = Judgement { verdict: worst(&reasons), reasons, machine: Vec::new(), missed };
        if self.when_pod_fails == WhenPodFails::End && self.pods.rows().iter().any(|row| row.gone.is_some()) {
            outcome.early.get_or_insert(Early::Commanded);
        }
        let pods = self.pods.rows();
        Finished { carried: Carried { outcome, summary, judgement }, pods, mistakes }
    }
}
