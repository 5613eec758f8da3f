//! A search on pods: each offer and each experiment is carried out by all of them, each with its slice, and seen as one.
//!
//! What is decided is decided here, where the blocks of all pods come together. A pod that is gone or late makes what was seen invalid, and
//! never a limit of the target; offers after that are shared by those that are left. When pods are the limit, more of them are made, up
//! to the number that is allowed, and the offer is carried out again.

use std::sync::Arc;
use std::time::Duration;

use seawall_cause::experiment::Experiment;
use seawall_cause::subject::Subject;
use seawall_cause::watched::Watched;
use seawall_fleet::fleet::{Begun, News, What};
use seawall_lab::ground::{Calibration, Ground};
use seawall_lab::remote::search::{Blocks, Calibrated, Done, Offered, Tried, Work};
use seawall_lab::rig::{self, Stop};
use seawall_load::clock::{Nanos, nanos};
use seawall_load::stats::Stats;
use seawall_search::closed;
use seawall_search::offer::Offer;
use seawall_search::seen::{Block, Seen};
use seawall_search::target::Target;

use super::progress::Observer;
use crate::on::WhenPodFails;
use crate::on::crew::{self, Crew};

/// Longest wait for news before it is looked whether anything is to end.
const PATIENCE: Duration = Duration::from_millis(50);

/// A pod of which nothing has come for so long, while others told, is late.
const LATE: Nanos = 2_000_000_000;

/// How much longer than it may take an offer is waited for: orders travel, and logs.
const AROUND: Duration = Duration::from_secs(10);

/// How long a calibration and an experiment may take beyond what they take.
const LONG: Duration = Duration::from_secs(60);

/// More pods are made by this factor, where they were the limit.
const GROWTH: usize = 2;

/// Pods that search.
pub(super) struct Pods {
    crew: Crew<Work, Blocks, Done>,
    stop: Stop,
    observer: Option<Observer>,
    when_pod_fails: WhenPodFails,
    /// Most pods.
    most: usize,
    /// What each can send, and keep busy; none before that was found out.
    each: Option<(f64, u32)>,
    /// Why there are no more pods, if that was tried.
    refused: Option<String>,
}

/// What all pods told of a work.
struct Heard {
    there: Vec<usize>,
    blocks: Vec<Vec<Block>>,
    done: Vec<Option<Done>>,
    /// When something came of each, by the fleet's clock.
    last: Vec<Nanos>,
    invalid: Option<String>,
}

impl Pods {
    /// Of pods that are ready, of which there may be so many in the end; tells of each offer while it goes on.
    pub(super) fn new(
        crew: Crew<Work, Blocks, Done>,
        when_pod_fails: WhenPodFails,
        most: usize,
        observer: Option<Observer>,
    ) -> Self {
        Self { crew, stop: Stop::default(), observer, when_pod_fails, most, each: None, refused: None }
    }

    /// What ends everything at once.
    pub(super) fn stop(&self) -> Stop {
        self.stop.clone()
    }

    fn present(&self) -> Vec<usize> {
        let fleet = &self.crew.fleet;
        (0..fleet.size()).filter(|&pod| fleet.gone(pod).is_none()).collect()
    }

    /// Has a work carried out, and hears all of it; `enough` is asked whenever there are more blocks of all.
    fn carry_out_work(
        &mut self,
        work: &Work,
        within: Duration,
        mut enough: impl FnMut(&[Block]) -> bool,
    ) -> Heard {
        let there = self.present();
        let begun = self.crew.fleet.begin(work);
        let size = self.crew.fleet.size();
        let mut heard = Heard {
            blocks: vec![Vec::new(); size],
            done: (0..size).map(|_| None).collect(),
            last: vec![begun.at; size],
            there,
            invalid: None,
        };
        if heard.there.is_empty() {
            heard.invalid = Some("no pod is left".to_owned());
            return heard;
        }
        let by = begun.at.saturating_add(nanos(within));
        let (mut known, mut ends) = (0, Ends::default());
        while !heard.is_over() {
            if let Some(news) = self.crew.fleet.next(PATIENCE) {
                self.learn(&mut heard, begun, news);
            }
            let now = self.crew.fleet.now();
            let together = heard.together();
            if together.len() > known {
                known = together.len();
                if enough(&together) {
                    ends.once(|| self.crew.fleet.stop());
                }
            }
            if let Some(late) = heard.late(now) {
                let name = self.crew.fleet.name(late);
                heard.invalid.get_or_insert_with(|| format!("{name} told nothing for two seconds"));
            }
            if heard.invalid.is_some() {
                ends.once(|| self.crew.fleet.stop());
            }
            if self.stop.is_stopped() {
                ends.twice(|| self.crew.fleet.stop());
            }
            if now > by {
                ends.twice(|| self.crew.fleet.stop());
                heard.invalid.get_or_insert_with(|| "pods did not come to an end in time".to_owned());
                break;
            }
        }
        heard
    }

    fn learn(&self, heard: &mut Heard, begun: Begun, News { pod, at, what }: News<Blocks, Done>) {
        heard.last[pod] = heard.last[pod].max(at);
        match what {
            What::Part { trial, part, .. } if trial == begun.trial => heard.blocks[pod].extend(part.0),
            What::Done { trial, result } if trial == begun.trial => heard.done[pod] = Some(result),
            What::Failed(why) => {
                let name = self.crew.fleet.name(pod);
                // It waits for the next one.
                heard.there.retain(|&there| there != pod);
                heard.invalid.get_or_insert_with(|| format!("{name}: {why}"));
            }
            What::Gone(why) => {
                let name = self.crew.fleet.name(pod);
                heard.there.retain(|&there| there != pod);
                crew::tell(&format!("{name} is gone: {why}"));
                if self.when_pod_fails == WhenPodFails::End {
                    self.stop.now();
                }
                heard.invalid.get_or_insert_with(|| format!("{name} is gone: {why}"));
            }
            _ => {}
        }
    }

    fn try_offer(&mut self, offer: &Offer) -> Seen {
        let within = offer.most + offer.drain + AROUND;
        let mut observer = self.observer.take();
        let heard = self.carry_out_work(&Work::Offer(*offer), within, |blocks| {
            if let Some(observer) = &mut observer {
                observer(offer, blocks);
            }
            offer.enough(blocks)
        });
        self.observer = observer;
        let blocks = heard.together();
        let mut seen = Seen { blocks, invalid: heard.invalid.clone(), away: true, ..Seen::default() };
        let mut total = Stats::default();
        for (pod, done) in heard.done.iter().enumerate() {
            let Some(Done::Offer(told)) = done else { continue };
            let Offered { took, invalid, no_port, away, interrupted, total: part } = &**told;
            total.beside(&part.stats);
            seen.took = seen.took.max(*took);
            seen.no_port += no_port;
            seen.away &= away;
            // By somebody else: it has ended, and its part is not whole.
            let cut = interrupted.then_some("it was told to end");
            let named = invalid.as_deref().or(cut).map(|why| format!("{}: {why}", self.crew.fleet.name(pod)));
            seen.invalid = seen.invalid.or(named);
        }
        seen.away &= seen.invalid.is_none();
        seen.beside = rig::beside(&total);
        seen.interrupted = self.stop.is_stopped();
        seen
    }

    /// Makes more pods, if there may be more; whether there are.
    fn grow(&mut self) -> bool {
        let size = self.crew.fleet.size();
        let more = (size * GROWTH).min(self.most);
        if more <= size || self.refused.is_some() || self.stop.is_stopped() {
            return false;
        }
        let stop = self.stop.clone();
        match self.crew.grow(more, || !stop.is_stopped()) {
            Ok(()) => true,
            Err(error) => {
                self.refused = Some(format!("{error:#}"));
                false
            }
        }
    }

    /// What can be offered by pods as there may be in the end.
    fn capacity(&self, pods: usize) -> Option<f64> {
        self.each.map(|(rate, _)| rate * pods as f64)
    }
}

/// What pods were told of an end.
#[derive(Default)]
struct Ends(u8);

impl Ends {
    fn once(&mut self, stop: impl Fn()) {
        self.up_to(1, stop);
    }

    fn twice(&mut self, stop: impl Fn()) {
        self.up_to(2, stop);
    }

    fn up_to(&mut self, times: u8, stop: impl Fn()) {
        while self.0 < times {
            stop();
            self.0 += 1;
        }
    }
}

impl Heard {
    fn is_over(&self) -> bool {
        self.there.iter().all(|&pod| self.done[pod].is_some())
    }

    /// Blocks of all that are there.
    fn together(&self) -> Vec<Block> {
        let parts: Vec<&[Block]> = self.there.iter().map(|&pod| &*self.blocks[pod]).collect();
        Blocks::together(&parts)
    }

    /// Who tells nothing, while others do.
    fn late(&self, now: Nanos) -> Option<usize> {
        let is_behind = |pod: &usize| {
            let most = self.blocks.iter().map(Vec::len).max().unwrap_or(0);
            self.done[*pod].is_none()
                && self.blocks[*pod].len() < most
                && now > self.last[*pod].saturating_add(LATE)
        };
        self.there.iter().copied().find(is_behind)
    }
}

impl Target for Pods {
    fn carry_out(&mut self, offer: &Offer) -> Seen {
        if self.stop.is_stopped() {
            return Seen { interrupted: true, ..Seen::default() };
        }
        while self.capacity(self.crew.fleet.size()).is_some_and(|most| offer.rate > most) && self.grow() {}
        let mut seen = self.try_offer(offer);
        while seen.invalid.is_some() && !seen.interrupted && self.grow() {
            seen = self.try_offer(offer);
        }
        if let (Some(invalid), Some(refused)) = (&mut seen.invalid, &self.refused) {
            invalid.push_str(&format!("; there are no more pods: {refused}"));
        }
        seen
    }

    fn rest(&mut self, time: Duration) -> bool {
        let by = self.crew.fleet.now().saturating_add(nanos(time));
        while self.crew.fleet.now() < by && !self.stop.is_stopped() {
            let left = Duration::from_nanos(by.saturating_sub(self.crew.fleet.now()));
            // Clocks are compared meanwhile; who is gone has no part in the next work.
            if let Some(News { pod, what: What::Gone(why), .. }) = self.crew.fleet.next(left.min(PATIENCE)) {
                crew::tell(&format!("{} is gone: {why}", self.crew.fleet.name(pod)));
            }
        }
        !self.stop.is_stopped()
    }
}

impl closed::Target for Pods {
    /// Clients are not asked of pods.
    fn carry_out(&mut self, _: &closed::Offer) -> Seen {
        Seen { interrupted: true, ..Seen::default() }
    }

    fn rest(&mut self, time: Duration) -> bool {
        Target::rest(self, time)
    }
}

impl Subject for Pods {
    fn watch(&mut self, experiment: &Experiment) -> Watched {
        if self.stop.is_stopped() {
            return Watched { interrupted: true, ..Watched::default() };
        }
        let heard = self.carry_out_work(&Work::Experiment(experiment.clone()), LONG * 3, |_| false);
        let parts = heard.done.into_iter().flatten().filter_map(|done| match done {
            Done::Experiment(tried) => Some(tried),
            _ => None,
        });
        let watched = Tried::together(parts.collect());
        let cut = watched.interrupted.then(|| "a pod was told to end".to_owned());
        let invalid = watched.invalid.or(heard.invalid).or(cut);
        Watched { invalid, interrupted: self.stop.is_stopped(), ..watched }
    }

    fn pause(&mut self, time: Duration) -> bool {
        Target::rest(self, time)
    }
}

impl Ground for Pods {
    fn calibrate(&mut self) -> Calibration {
        let before = self.crew.fleet.now();
        let heard = self.carry_out_work(&Work::Calibrate, LONG, |_| false);
        let told: Vec<Calibrated> = heard
            .done
            .into_iter()
            .flatten()
            .filter_map(|done| if let Done::Calibrated(told) = done { Some(told) } else { None })
            .collect();
        let took = Duration::from_nanos(self.crew.fleet.now().saturating_sub(before));
        let interrupted = self.stop.is_stopped();
        let least = told.iter().map(|one| one.most).collect::<Option<Vec<_>>>();
        let least = least.and_then(|all| all.into_iter().reduce(f64::min));
        let clients = told.iter().map(|one| one.clients).min().unwrap_or(0);
        self.each = least.map(|rate| (rate, clients));
        let pods = self.present().len();
        let how = match (least, told.first()) {
            (Some(rate), Some(first)) => format!(
                "{pods} pods, {} at most, of which the slowest sends {rate:.0} a second: {}",
                self.most, first.how
            ),
            _ => "the pods could not be tried out; each trial is judged by itself".to_owned(),
        };
        Calibration { most: self.capacity(self.most.max(pods)), how, took, interrupted }
    }

    fn hang_up(&mut self) {
        let _ = self.carry_out_work(&Work::HangUp, LONG, |_| false);
    }

    fn most_clients(&self) -> u32 {
        let pods = u32::try_from(self.crew.fleet.size()).unwrap_or(u32::MAX);
        self.each.map_or(0, |(_, clients)| clients.saturating_mul(pods))
    }
}

/// Ends everything from any thread.
pub(super) fn ending(stop: &Stop) -> Arc<dyn Fn() + Send + Sync> {
    let stop = stop.clone();
    Arc::new(move || stop.now())
}
