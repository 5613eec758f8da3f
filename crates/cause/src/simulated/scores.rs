//! How well inquiries did: what was planted against what was named.

use super::plants::{PAIRS, Plant, SINGLE};
use crate::case::Case;
use crate::class::Class;
use crate::inquiry::{Inquiry, Step, lasts};
use crate::odds::{self, Odds};
use crate::report::Report;
use crate::subject::Subject;

/// How an inquiry ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// What was planted.
    pub truth: Vec<Class>,
    /// What was named, the likeliest first.
    pub named: Vec<Class>,
    /// How much likelier the first is than the likeliest that is not named.
    pub ahead: f64,
    /// A tie was told that has both the planted and the named cause.
    pub tied: bool,
    /// Seconds of load.
    pub load: f64,
    /// What it said.
    pub report: Report,
}

/// So many times likelier is confident.
const CONFIDENT: f64 = 10.0;

impl Score {
    /// The first that was named is planted.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.named.first().is_some_and(|named| self.truth.contains(named))
    }

    /// It is not, and no doubt was told.
    #[must_use]
    pub fn is_wrong_with_confidence(&self) -> bool {
        !self.is_right() && self.ahead >= CONFIDENT
    }

    /// Everything planted was named.
    #[must_use]
    pub fn has_all(&self) -> bool {
        self.truth.iter().all(|class| self.named.contains(class))
    }

    /// It was, but without confidence.
    #[must_use]
    pub fn is_unsure(&self) -> bool {
        self.ahead < CONFIDENT
    }
}

/// Carries an inquiry out.
#[must_use]
pub fn score(mut plant: Plant) -> Score {
    let mut inquiry = Inquiry::new(plant.known.clone());
    let mut load = 0.0;
    loop {
        match inquiry.next_step() {
            Step::Over => break,
            Step::Rest(time) => {
                let goes_on = plant.subject.pause(time);
                inquiry.rested(time, goes_on);
            }
            Step::Try(experiment) => {
                let watched = plant.subject.watch(&experiment);
                load += lasts(&experiment);
                inquiry.saw(&experiment, watched);
            }
        }
    }
    let case = Case { known: &plant.known, tried: &inquiry.report().tried };
    let odds = Odds::new(&odds::read(&case), 1.0);
    scored(plant.truth, inquiry.report().clone(), &odds, load)
}

fn scored(truth: Vec<Class>, report: Report, odds: &Odds, load: f64) -> Score {
    let named: Vec<_> = report.causes.iter().map(|cause| cause.class).collect();
    let first = report.causes.first().map_or(0.0, |cause| cause.confidence);
    let next = odds.of.iter().find(|(class, _)| !named.contains(class)).map_or(0.0, |(_, p)| *p);
    let ahead = first / next.max(1e-3);
    let tied = report.ties.iter().any(|tie| {
        truth.iter().any(|class| tie.between.contains(class))
            && named.iter().any(|class| tie.between.contains(class))
    });
    Score { truth, named, ahead, tied, load, report }
}

/// Every single cause, from each seed.
#[must_use]
pub fn singles(seeds: std::ops::Range<u64>) -> Vec<Score> {
    let plants = SINGLE.into_iter().flat_map(|class| seeds.clone().map(move |seed| Plant::draw(class, seed)));
    plants.map(score).collect()
}

/// The same of targets on this machine.
#[must_use]
pub fn beside(seeds: std::ops::Range<u64>) -> Vec<Score> {
    let plants =
        SINGLE.into_iter().flat_map(|class| seeds.clone().map(move |seed| Plant::draw_beside(class, seed)));
    plants.map(score).collect()
}

/// Every pair, from each seed.
#[must_use]
pub fn pairs(seeds: std::ops::Range<u64>) -> Vec<Score> {
    let plants =
        PAIRS.into_iter().flat_map(|pair| seeds.clone().map(move |seed| Plant::draw_pair(pair, seed)));
    plants.map(score).collect()
}

/// Share of which this holds.
pub fn share(scores: &[Score], holds: impl Fn(&Score) -> bool) -> f64 {
    scores.iter().filter(|score| holds(score)).count() as f64 / scores.len().max(1) as f64
}
