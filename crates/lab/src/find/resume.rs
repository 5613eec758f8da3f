//! Leads a search to where an earlier run ended: by what was seen then, for a search decides by nothing else.
//!
//! The trials go into a new search in their order, with the time that it was granted when it was. What it wants next must be what was
//! offered next; where it is not, the run was made by another version, or its file was changed, and it is not continued. A trial that
//! somebody ended is made anew. What a search knows of the generator is what it knew then.

use std::time::Duration;

use seawall_search::offer::Offer;
use seawall_search::search::{Search, Step};
use seawall_search::seen::{Beside, Block, Seen};

use super::answer::{Answer, Asked, Grant, Trial};
use super::plan::Plan;
use super::told;

/// Why a run cannot be continued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Diverged {
    /// Something else was asked.
    #[error("it was asked with another {0}: a run is continued as it was begun")]
    Asked(&'static str),
    /// Its trials are no rates.
    #[error("it searched for a number of clients (--closed): such a run is not continued")]
    Clients,
    /// The search goes another way than it went.
    #[error(
        "trial {0} is not what this version would have offered: it was made by another version, or changed by hand"
    )]
    Way(usize),
    /// A time that is none.
    #[error("{0} is no number of seconds")]
    Time(String),
}

/// How far the same rate may be off, for decimal digits that were cut.
const SAME: f64 = 1e-6;

/// A search that knows what the earlier run knew.
///
/// # Errors
/// [`Diverged`].
pub fn search(plan: &Plan, before: &Answer) -> Result<Search, Diverged> {
    if before.closed.is_some() {
        return Err(Diverged::Clients);
    }
    alike(&plan.asked(), &before.asked)?;
    let mut search = Search::new(plan.goal, plan.profile, plan.bounds(before.generator.most));
    let mut grants = before.grants.iter().peekable();
    for (at, trial) in before.trials.iter().filter(|trial| !trial.interrupted).enumerate() {
        while let Some(grant) = grants.next_if(|grant| grant.after <= at) {
            allow(&mut search, grant)?;
        }
        let offer =
            next_offer(&mut search).filter(|offer| is_same(offer, trial)).ok_or(Diverged::Way(at + 1))?;
        search.saw(&offer, seen(trial)?);
    }
    Ok(search)
}

/// The first thing that differs.
fn alike(now: &Asked, before: &Asked) -> Result<(), Diverged> {
    let differences = [
        (now.goal != before.goal, "--slo"),
        (now.profile != before.profile, "profile (--quick or --thorough)"),
        (now.target != before.target || now.targets != before.targets, "target"),
        (now.arrivals != before.arrivals, "--arrivals"),
        (now.max_rate != before.max_rate, "--max-rate"),
        (now.connections != before.connections, "policy of connections"),
        (now.timeout != before.timeout, "--timeout"),
    ];
    let first = differences.into_iter().find(|(differs, _)| *differs);
    first.map_or(Ok(()), |(_, what)| Err(Diverged::Asked(what)))
}

fn allow(search: &mut Search, grant: &Grant) -> Result<(), Diverged> {
    search.grant(seconds(grant.cliff)?, seconds(grant.knee)?);
    Ok(())
}

/// What it wants offered, with its rests behind it; none if it wants nothing.
fn next_offer(search: &mut Search) -> Option<Offer> {
    loop {
        match search.next_step() {
            Step::Offer(offer) => return Some(offer),
            Step::Rest(time) => search.rested(time, true),
            Step::Over => return None,
        }
    }
}

fn is_same(offer: &Offer, trial: &Trial) -> bool {
    told::purpose(offer.purpose) == trial.purpose && (offer.rate / trial.rate - 1.0).abs() < SAME
}

fn seen(trial: &Trial) -> Result<Seen, Diverged> {
    let block = |&(sent, good, errors, timely, late, in_flight, latency, slowest): &_| Block {
        sent,
        good,
        errors,
        timely,
        late,
        in_flight,
        latency,
        slowest,
    };
    Ok(Seen {
        blocks: trial.blocks.iter().map(block).collect(),
        took: seconds(trial.took)?,
        invalid: trial.invalid.clone(),
        no_port: trial.no_port,
        away: trial.away,
        interrupted: false,
        beside: Beside { failing: trial.failing.clone(), quantiles: trial.quantiles },
    })
}

/// # Errors
/// [`Diverged::Time`].
pub(super) fn seconds(seconds: f64) -> Result<Duration, Diverged> {
    Duration::try_from_secs_f64(seconds).map_err(|_| Diverged::Time(seconds.to_string()))
}
